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

inline bool is_word(Py_UCS4 sign) {
    if (sign < 128)
        return (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') ||
            (sign >= '0' && sign <= '9') || sign == '_';
    return Py_UNICODE_ISALNUM(sign);
}

inline bool is_alnum(Py_UCS4 sign) { return sign != '_' && is_word(sign); }

// The buffer of a string: one, two or four bytes a character.
struct Text {
    const void* data = nullptr;
    int kind = 1;
    Py_ssize_t size = 0;

    Text() = default;
    Text(const void* data, int kind, Py_ssize_t size) : data(data), kind(kind), size(size) {}
    explicit Text(const Letters& letters)
        : data(letters.data()), kind(4), size((Py_ssize_t)letters.size()) {}

    Py_UCS4 at(Py_ssize_t place) const {
        if (kind == 1) return ((const uint8_t*)data)[place];
        if (kind == 2) return ((const uint16_t*)data)[place];
        return ((const uint32_t*)data)[place];
    }

    Letters part(Py_ssize_t start, Py_ssize_t end) const {
        Letters out;
        out.reserve(end - start);
        for (Py_ssize_t place = start; place < end; place++) out.push_back(at(place));
        return out;
    }

    // Where `word` stands at or behind `from`, or -1.
    Py_ssize_t find(LettersView word, Py_ssize_t from = 0) const {
        Py_ssize_t length = (Py_ssize_t)word.size(), last = size - length;
        if (kind == 1) {
            const uint8_t* letters = (const uint8_t*)data;
            if (word[0] > 255) return -1;
            while (from <= last) {
                const void* found = memchr(letters + from, (int)word[0], last - from + 1);
                if (!found) return -1;
                from = (const uint8_t*)found - letters;
                if (stands(word, from)) return from;
                from++;
            }
            return -1;
        }
        for (; from <= last; from++)
            if (at(from) == word[0] && stands(word, from)) return from;
        return -1;
    }

    bool stands(LettersView word, Py_ssize_t place) const {
        for (size_t at_word = 1; at_word < word.size(); at_word++)
            if (at(place + at_word) != word[at_word]) return false;
        return true;
    }
};

inline Py_UCS4 lower_sign(Py_UCS4 sign) {
    if (sign < 128) return sign >= 'A' && sign <= 'Z' ? sign + 32 : sign;
    return Py_UNICODE_TOLOWER(sign);
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
        seen_[hash >> 58] |= 1ULL << (hash >> 52 & 63);
        return values_[hash];
    }

    const Value* find(uint64_t hash) const {
        if (!(seen_[hash >> 58] >> (hash >> 52 & 63) & 1)) return nullptr;  // most words are none of them
        auto found = values_.find(hash);
        return found == values_.end() ? nullptr : &found->second;
    }

  private:
    uint64_t seen_[64] = {};
    std::unordered_map<uint64_t, Value> values_;
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
