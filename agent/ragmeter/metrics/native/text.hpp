// The characters of Python strings, without Python objects: of Python only its tables are used.
#pragma once

#include <Python.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ragmeter {

typedef std::u32string Letters;
typedef std::u32string_view LettersView;

// Of what is asked of each character of a text: compilers call it otherwise, as it is asked at many places.
#if defined(__GNUC__)
#define OF_EACH_SIGN inline __attribute__((always_inline))
#else
#define OF_EACH_SIGN inline
#endif

// What the characters of ASCII are, so that Python's tables are asked of others alone.
struct AsciiSigns {
    enum Kind : uint8_t { DECIMAL = 1, UPPER = 2, LOWER = 4, UNDERSCORE = 8 };
    uint8_t kinds[128] = {};
    uint8_t in_words[128] = {};  // the lower case of letters, digits and "_", 0 of what is in no word
    uint8_t commonness[128] = {};  // in English texts, 0 of capitals, digits and signs

    constexpr AsciiSigns() {
        for (int sign = '0'; sign <= '9'; sign++) kinds[sign] = DECIMAL;
        for (int sign = 'A'; sign <= 'Z'; sign++) kinds[sign] = UPPER;
        for (int sign = 'a'; sign <= 'z'; sign++) kinds[sign] = LOWER;
        kinds[(int)'_'] = UNDERSCORE;
        for (int sign = 0; sign < 128; sign++) in_words[sign] = (uint8_t)(kinds[sign] == UPPER ? sign + 32 : kinds[sign] ? sign : 0);
        const char rising[] = "zqxjkvbpygfwmucldrhsnioate ";
        for (int rank = 0; rising[rank]; rank++) commonness[(int)rising[rank]] = (uint8_t)(rank + 1);
    }
};
inline constexpr AsciiSigns ASCII_SIGNS;

OF_EACH_SIGN bool is_ascii_of(Py_UCS4 sign, int kinds) { return ASCII_SIGNS.kinds[sign] & kinds; }

OF_EACH_SIGN bool is_alnum(Py_UCS4 sign) {
    return sign < 128 ? is_ascii_of(sign, AsciiSigns::DECIMAL | AsciiSigns::UPPER | AsciiSigns::LOWER) : Py_UNICODE_ISALNUM(sign);
}
OF_EACH_SIGN bool is_word(Py_UCS4 sign) {
    const int word = AsciiSigns::DECIMAL | AsciiSigns::UPPER | AsciiSigns::LOWER | AsciiSigns::UNDERSCORE;
    return sign < 128 ? is_ascii_of(sign, word) : Py_UNICODE_ISALNUM(sign);
}
OF_EACH_SIGN bool is_letter(Py_UCS4 sign) {
    return sign < 128 ? is_ascii_of(sign, AsciiSigns::UPPER | AsciiSigns::LOWER) : Py_UNICODE_ISALPHA(sign);
}
OF_EACH_SIGN bool is_decimal(Py_UCS4 sign) { return sign < 128 ? is_ascii_of(sign, AsciiSigns::DECIMAL) : Py_UNICODE_ISDECIMAL(sign); }
OF_EACH_SIGN bool is_upper(Py_UCS4 sign) { return sign < 128 ? is_ascii_of(sign, AsciiSigns::UPPER) : Py_UNICODE_ISUPPER(sign); }
OF_EACH_SIGN bool is_lower(Py_UCS4 sign) { return sign < 128 ? is_ascii_of(sign, AsciiSigns::LOWER) : Py_UNICODE_ISLOWER(sign); }

// The characters of a string whose kind is known.
template <class Sign>
struct Signs {
    const Sign* data;
    Py_ssize_t size;

    Py_UCS4 at(Py_ssize_t place) const { return data[place]; }
    Letters part(Py_ssize_t start, Py_ssize_t end) const { return Letters(data + start, data + end); }
};

// The buffer of a string: one, two or four bytes a character.
struct Text {
    const void* data = nullptr;
    int kind = 1;
    Py_ssize_t size = 0;

    Text() = default;
    Text(const void* data, int kind, Py_ssize_t size) : data(data), kind(kind), size(size) {}
    explicit Text(const Letters& letters)
        : data(letters.data()), kind(4), size((Py_ssize_t)letters.size()) {}

    // Call with the characters as `Signs`: what reads many of them asks for their kind once.
    template <class Call>
    auto visit(Call call) const {
        if (kind == 1) return call(Signs<uint8_t>{(const uint8_t*)data, size});
        if (kind == 2) return call(Signs<uint16_t>{(const uint16_t*)data, size});
        return call(Signs<uint32_t>{(const uint32_t*)data, size});
    }

    Py_UCS4 at(Py_ssize_t place) const {
        if (kind == 1) return ((const uint8_t*)data)[place];
        if (kind == 2) return ((const uint16_t*)data)[place];
        return ((const uint32_t*)data)[place];
    }

    Letters part(Py_ssize_t start, Py_ssize_t end) const {
        return visit([&](const auto& signs) { return signs.part(start, end); });
    }

    // Where `word` stands at or behind `from`, or -1.
    Py_ssize_t find(LettersView word, Py_ssize_t from = 0) const {
        return visit([&](const auto& signs) { return find_in(signs.data, word, from); });
    }

    bool stands(LettersView word, Py_ssize_t place) const {
        for (size_t at_word = 1; at_word < word.size(); at_word++)
            if (at(place + at_word) != word[at_word]) return false;
        return true;
    }

  private:
    // By the rarest letter of a word: where it is not, the word is not.
    template <class Sign>
    Py_ssize_t find_in(const Sign* signs, LettersView word, Py_ssize_t from) const {
        if (word.empty()) return -1;
        const size_t rarest = rarest_of(word);
        const char32_t letter = word[rarest];
        if (letter > (Sign)-1) return -1;
        const Py_ssize_t last = size - (Py_ssize_t)word.size();
        for (; from <= last; from++) {
            const Sign* found = find_sign(signs + from + rarest, signs + last + 1 + rarest, (Sign)letter);
            if (!found) return -1;
            from = found - signs - (Py_ssize_t)rarest;
            size_t same = 0;
            while (same < word.size() && signs[from + same] == word[same]) same++;
            if (same == word.size()) return from;
        }
        return -1;
    }

    static const uint8_t* find_sign(const uint8_t* begin, const uint8_t* end, uint8_t sign) {
        return (const uint8_t*)memchr(begin, sign, end - begin);
    }
    template <class Sign>
    static const Sign* find_sign(const Sign* begin, const Sign* end, Sign sign) {
        while (begin < end && *begin != sign) begin++;
        return begin < end ? begin : nullptr;
    }

    // Of the first letters of a word the one that texts have least.
    static size_t rarest_of(LettersView word) {
        size_t best = 0;
        int least = commonness(word[0]);
        for (size_t at = 1; least && at < word.size() && at < 12; at++) {
            const int common = commonness(word[at]);
            if (common >= least) continue;
            best = at;
            least = common;
        }
        return best;
    }
    static int commonness(char32_t sign) { return sign < 128 ? ASCII_SIGNS.commonness[sign] : 0; }
};

// Where a digit may be among characters of a byte, or `end`: eight of them are looked at together.
inline Py_ssize_t skip_no_digits(const uint8_t* signs, Py_ssize_t at, Py_ssize_t end) {
    constexpr uint64_t EACH = 0x0101010101010101;
    for (; at + 8 <= end; at += 8) {
        uint64_t eight;
        std::memcpy(&eight, signs + at, 8);
        eight ^= EACH * '0';  // digits are the bytes below ten now
        if ((eight - EACH * 10) & ~eight & EACH * 0x80) break;
    }
    return at;
}

// Where the next digit stands, at a place or behind it and before `end`, or `end`.
inline Py_ssize_t find_decimal(const Text& text, Py_ssize_t at, Py_ssize_t end) {
    return text.visit([&](const auto& signs) {
        if constexpr (sizeof(*signs.data) == 1) at = skip_no_digits(signs.data, at, end);
        while (at < end && !is_decimal(signs.at(at))) at++;
        return at;
    });
}
inline Py_ssize_t find_decimal(const Text& text, Py_ssize_t at) { return find_decimal(text, at, text.size); }

OF_EACH_SIGN Py_UCS4 lower_sign(Py_UCS4 sign) {
    if (sign < 128) return sign >= 'A' && sign <= 'Z' ? sign + 32 : sign;
    return Py_UNICODE_TOLOWER(sign);
}

// The lower case of a character of a word, 0 of what is in no word.
OF_EACH_SIGN Py_UCS4 in_word(Py_UCS4 sign) {
    if (sign < 128) return ASCII_SIGNS.in_words[sign];
    return Py_UNICODE_ISALNUM(sign) ? Py_UNICODE_TOLOWER(sign) : 0;
}

// The characters of a text as one byte each, nothing where one needs more.
inline std::string as_bytes(const Letters& text) {
    std::string out(text.begin(), text.end());
    for (char32_t sign : text)
        if (sign > 255) return std::string();
    return out;
}

// A number of a word in lower case, made from its characters in their order (FNV-1a).
struct WordHash {
    uint64_t value = 0xCBF29CE484222325;

    void add(Py_UCS4 sign) { value = (value ^ sign) * 0x100000001B3; }
};

inline uint64_t hash_of(LettersView word) {
    WordHash out;
    for (char32_t sign : word) out.add(lower_sign(sign));
    return out.value;
}

// Values by words in lower case, which are looked up by their numbers.
template <class Value>
class ByWord {
  public:
    Value& operator[](uint64_t hash) {
        if (2 * (count_ + 1) > entries_.size()) grow();
        Entry& entry = entries_[place_of(hash)];
        if (!entry.used) {
            entry.used = true;
            entry.hash = hash;
            count_++;
            seen_[hash >> 58] |= 1ULL << (hash >> 52 & 63);
        }
        return entry.value;
    }

    const Value* find(uint64_t hash) const {
        if (!(seen_[hash >> 58] >> (hash >> 52 & 63) & 1)) return nullptr;  // most words are none of them
        const Entry& entry = entries_[place_of(hash)];
        return entry.used ? &entry.value : nullptr;
    }

  private:
    struct Entry {
        uint64_t hash = 0;
        bool used = false;
        Value value{};
    };

    // Where a word stands, or the free entry that it would take.
    size_t place_of(uint64_t hash) const {
        size_t mask = entries_.size() - 1, at = hash & mask;
        while (entries_[at].used && entries_[at].hash != hash) at = (at + 1) & mask;
        return at;
    }

    void grow() {
        std::vector<Entry> before(entries_.empty() ? 64 : 2 * entries_.size());
        before.swap(entries_);
        for (Entry& entry : before)
            if (entry.used) entries_[place_of(entry.hash)] = std::move(entry);
    }

    uint64_t seen_[64] = {};
    std::vector<Entry> entries_;  // a power of two, at most half of them in use
    size_t count_ = 0;
};

inline bool is_cased(Py_UCS4 sign) {
    return Py_UNICODE_ISUPPER(sign) || Py_UNICODE_ISLOWER(sign) || Py_UNICODE_ISTITLE(sign);
}

// Appends the lower case of the character at `at` of a text that ends at `end`: two characters of
// "İ", and the final form of "Σ" at the end of a word.
inline void append_lower(Letters& out, const Text& text, Py_ssize_t at, Py_ssize_t end) {
    Py_UCS4 sign = text.at(at);
    if (sign == 0x130) {
        out.push_back('i');
        out.push_back(0x307);
    } else if (sign == 0x3A3) {
        bool last = at > 0 && is_cased(text.at(at - 1)) && !(at + 1 < end && is_cased(text.at(at + 1)));
        out.push_back(last ? 0x3C2 : 0x3C3);
    } else {
        out.push_back(lower_sign(sign));
    }
}

// The lower case of a text, longer than it where it has "İ".
inline Letters lowered(const Letters& text) {
    const Text data(text);
    Letters out;
    out.reserve(text.size());
    for (Py_ssize_t at = 0; at < data.size; at++) {
        if (text[at] < 128) out.push_back(lower_sign(text[at]));
        else append_lower(out, data, at, data.size);
    }
    return out;
}

inline Letters lower(const Letters& word) {
    Letters out(word);
    for (char32_t& sign : out) sign = lower_sign(sign);
    return out;
}

// Whether a character is of a script that is written without spaces.
inline bool is_unspaced(Py_UCS4 sign) {
    return sign >= 0xE00 &&
        (sign < 0xF00 || (sign >= 0x1000 && sign < 0x10A0) || (sign >= 0x1780 && sign < 0x1800) ||
         (sign >= 0x3040 && sign < 0x3100) || (sign >= 0x3400 && sign < 0xA000) ||
         (sign >= 0xF900 && sign < 0xFB00));
}

// Calls with the words of a run of letters and digits: itself, or two characters each of a run that
// is written without spaces (Chinese, Japanese, Thai, …).
template <class Call>
void each_word(LettersView run, Call call) {
    bool unspaced = false;
    for (char32_t sign : run) unspaced = unspaced || is_unspaced(sign);
    if (!unspaced || run.size() < 3) {
        if (!run.empty()) call(run);
        return;
    }
    for (size_t at = 0; at + 1 < run.size(); at++) call(run.substr(at, 2));
}

inline Letters letters(const char* word) {  // of UTF-8
    Letters out;
    for (const uint8_t* p = (const uint8_t*)word; *p;) {
        int more = *p < 0x80 ? 0 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : 3;
        char32_t sign = more == 0 ? *p : *p & (0x3F >> more);
        for (p++; more; more--) sign = sign << 6 | (*p++ & 0x3F);
        out.push_back(sign);
    }
    return out;
}

}  // namespace ragmeter
