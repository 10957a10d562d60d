// Words and stems as integers, and texts as lists of them, without Python objects.
#pragma once

#include <atomic>
#include <new>
#include <unordered_map>

#include "english.hpp"

namespace ragmeter {

enum StemFlag {
    DIGIT_FIRST = 1,  // a number, as it is written: its first character is at most "9"
    COUNT = 2,  // "seven", "dozen"
    TIME = 4,
    META = 8,  // words about the passages themselves
    SAY = 16,
    TEXT = 32,  // META without those that say nothing of a text by themselves
    NEGATION = 64,
    DIGIT = 128,  // a digit first, of any script
    DECIMAL = 256,
};

enum FormFlag {
    HEDGE = 1,
    NEGATES = 2,
    DENIES = 4,  // in a record
};

enum {
    SCOPE = 6,  // words that a negation may deny, stop words included
    MEAN_CHARS = 20,  // of a word: a full lexicon of longer ones would take more memory
};

inline void append_utf8(std::string& out, Py_UCS4 sign) {
    if (sign < 0x80) {
        out.push_back((char)sign);
        return;
    }
    if (sign < 0x800) {
        out.push_back((char)(0xC0 | sign >> 6));
    } else {
        if (sign < 0x10000) {
            out.push_back((char)(0xE0 | sign >> 12));
        } else {
            out.push_back((char)(0xF0 | sign >> 18));
            out.push_back((char)(0x80 | (sign >> 12 & 63)));
        }
        out.push_back((char)(0x80 | (sign >> 6 & 63)));
    }
    out.push_back((char)(0x80 | (sign & 63)));
}

inline std::string utf8(const Letters& text) {
    std::string out;
    for (char32_t sign : text) append_utf8(out, sign);
    return out;
}

// Bytes that may be read behind the end of a word, whose letters are read eight at a time.
const size_t PADDING = 8;

// Numbers words by their bytes, in UTF-8.
//
// The hash has a secret, so that nobody can send words that all meet in one place.
class WordTable {
  public:
    struct Entry {
        uint64_t hash;
        uint32_t begin, size;  // the word's bytes in `letters_`
        int number;  // -1: the entry is free
    };

    void clear(uint64_t secret, uint64_t seed) {
        secret_ = secret | 1;
        seed_ = seed;
        entries_.assign(1 << 12, Entry{0, 0, 0, -1});
        letters_.assign(PADDING, 0);
        count_ = 0;
    }

    // The number of a word, or -1; `hash` becomes what `add` needs.
    int find(const char* word, size_t size, uint64_t* hash) const {
        uint64_t value = *hash = hash_of(word, size);
        size_t mask = entries_.size() - 1, at = value & mask;
        for (;; at = (at + 1) & mask) {
            const Entry& entry = entries_[at];
            if (entry.number < 0) return -1;
            if (entry.hash == value && entry.size == size && same(letters_.data() + entry.begin, word, size))
                return entry.number;
        }
    }

    int find(const std::string& word) const {
        uint64_t hash;
        return find(padded(word).data(), word.size(), &hash);
    }

    // Takes a word that it does not have. Where memory is short nothing has changed.
    void add(const char* word, size_t size, uint64_t hash, int number) {
        if (2 * (count_ + 1) > entries_.size()) {
            std::vector<Entry> wider(2 * entries_.size(), Entry{0, 0, 0, -1});
            for (const Entry& entry : entries_)
                if (entry.number >= 0) free_of(wider, entry.hash) = entry;
            entries_.swap(wider);
        }
        size_t begin = letters_.size() - PADDING;
        letters_.insert(letters_.end() - PADDING, word, word + size);
        free_of(entries_, hash) = Entry{hash, (uint32_t)begin, (uint32_t)size, number};
        count_++;
    }

    static std::string padded(const std::string& word) { return word + std::string(PADDING, '\0'); }

  private:
    static uint64_t fold(uint64_t one, uint64_t other) {
        unsigned __int128 product = (unsigned __int128)one * other;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    // The first `size` bytes of eight, 1 at least.
    static uint64_t head(const char* bytes, size_t size) {
        uint64_t value;
        memcpy(&value, bytes, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        return value & ~0ULL << (64 - 8 * size);
#else
        return value & ~0ULL >> (64 - 8 * size);
#endif
    }

    static bool same(const char* one, const char* other, size_t size) {
        for (; size > 8; size -= 8, one += 8, other += 8)
            if (memcmp(one, other, 8)) return false;
        return size == 0 || head(one, size) == head(other, size);
    }

    uint64_t hash_of(const char* word, size_t size) const {
        uint64_t value = seed_ ^ size, part;
        for (; size > 8; size -= 8, word += 8) {
            memcpy(&part, word, 8);
            value = fold(value ^ part, secret_);
        }
        part = size ? head(word, size) : 0;
        return fold(fold(value ^ part, secret_), secret_);
    }

    static Entry& free_of(std::vector<Entry>& entries, uint64_t hash) {
        size_t mask = entries.size() - 1, at = hash & mask;
        while (entries[at].number >= 0) at = (at + 1) & mask;
        return entries[at];
    }

    std::vector<Entry> entries_;  // a power of two, at most half of them in use
    std::vector<char> letters_;
    size_t count_ = 0;
    uint64_t secret_ = 1, seed_ = 0;
};

// What is known of words and stems before any text is read; all lexicons share it.
struct Vocabulary {
    const English* english = nullptr;
    std::unordered_map<std::string, double> rarities;  // the background rarity by stem
    double rarest = 0;  // of a stem that is not listed
    std::unordered_map<std::string, int> stem_flags, form_flags;
    std::vector<std::pair<std::string, std::string>> numerals;  // stems of one number, both ways
    size_t prefix = 0;  // letters that related stems share

    void set_rarity(const std::string& stem, double value) { rarities[stem] = value; }
    void set_stem_flags(const std::string& stem, int flags) { stem_flags[stem] |= flags; }
    void set_form_flags(const std::string& word, int flags) { form_flags[word] |= flags; }
    void add_numeral(const std::string& stem, const std::string& other) {
        numerals.emplace_back(stem, other);
    }
};

struct Form {  // 16 bytes: what a word needs lies side by side, for the cache of the processor
    int stem;  // 0 of a stop word
    int flags;
    long seen;
};

struct Stem {
    double rarity;
    long wanted;  // the trace that wants its positions, and `local`, its index there
    long seen;  // the trace whose passages have it
    long marked;
    int local;
    int flags;
    int prefix;  // -1 of a short stem
    int numeral;  // a stem of the same number, or 0
};

// One passage in the numbers of a lexicon; they hold for one generation of it.
struct PassageWords {
    long generation = 0;
    std::vector<int> stems;  // ends with 0
    std::vector<int> forms;  // each once
    std::vector<int> heads;  // of each negation: the first stem after it, and all near it
    std::vector<int> near;
    std::vector<size_t> near_ends;
};

// Numbers words and stems and knows of each what the metrics ask; one thread uses it at a time.
class Lexicon {
  public:
    std::vector<Form> form_data;
    std::vector<Stem> stem_data;
    std::vector<long> prefix_seen;  // by prefix
    long mark = 0;
    long epoch = 0;  // of the trace that was read last
    long generation = 0;  // other than that of any other lexicon; 0 where memory was short

    // `limit` is how many words and stems it holds; beyond, it begins anew.
    Lexicon(const Vocabulary& vocabulary, size_t limit, uint64_t secret, uint64_t seed)
        : vocabulary_(vocabulary), limit_(limit), secret_(secret), seed_(seed) {
        begin();
    }

    // Begins anew where it is full; call it between two traces.
    void make_room() {
        if (generation == 0 || form_data.size() > limit_ || stem_data.size() > limit_ ||
            chars_ > limit_ * MEAN_CHARS)
            begin();
    }

    // The number of a stem, which is added if it is new.
    int stem(const std::string& text) {
        uint64_t hash;
        std::string word = WordTable::padded(text);
        int known = stems_.find(word.data(), text.size(), &hash);
        if (known >= 0) return known;
        try {
            return new_stem(text, hash);
        } catch (...) {
            generation = 0;  // half a stem may be there
            throw;
        }
    }

    // The number of a stem, or -1.
    int find_stem(const std::string& text) const { return stems_.find(text); }

    // Whether the text of a stem comes before that of another, by characters.
    bool before(int one, int other) const { return texts_[one] < texts_[other]; }

    // Appends the forms of the words of [begin, end). A text with "İ" or "Σ", whose lower case is
    // no matter of one character, is given in lower case.
    void read(const Text& text, Py_ssize_t begin, Py_ssize_t end, std::vector<int>& forms) {
        try {
            if (text.kind == 1)
                read_bytes((const uint8_t*)text.data + begin, end - begin, forms);
            else
                read_wide(text, begin, end, forms);
        } catch (...) {
            generation = 0;  // half a form may be there
            throw;
        }
    }

    void read_passage(const Text& text, bool structured, PassageWords& out) {
        int denial = structured ? DENIES : NEGATES;
        words_.clear();
        read(text, 0, text.size, words_);
        out.generation = generation;
        size_t size = words_.size();
        out.stems.reserve(size + 1);
        mark++;
        denials_.clear();
        for (size_t at = 0; at < size; at++) {
            Form& form = form_data[words_[at]];
            if (form.stem) out.stems.push_back(form.stem);
            if (form.flags & denial) denials_.push_back(at);
            if (form.seen != mark) {
                form.seen = mark;
                out.forms.push_back(words_[at]);
            }
        }
        out.stems.push_back(0);
        for (size_t at : denials_) {
            mark++;
            int head = 0;
            size_t high = at + SCOPE + 1 < size ? at + SCOPE + 1 : size;
            for (size_t place = at > SCOPE ? at - SCOPE : 0; place < high; place++) {
                int stem = form_data[words_[place]].stem;
                if (stem == 0 || place == at) continue;
                if (place > at && head == 0) head = stem;
                if (stem_data[stem].marked != mark) {
                    stem_data[stem].marked = mark;
                    out.near.push_back(stem);
                }
            }
            out.heads.push_back(head);
            out.near_ends.push_back(out.near.size());
        }
    }

  private:
    void begin() {
        static std::atomic<long> generations{0};
        generation = 0;  // until all is there
        epoch++;  // ends the comparison before
        chars_ = 0;
        forms_.clear(secret_, seed_);
        stems_.clear(secret_, ~seed_);
        prefixes_.clear(secret_, seed_ + 1);
        prefix_count_ = 0;
        texts_.clear();
        form_data.clear();
        stem_data.clear();
        prefix_seen.clear();
        stem(std::string());  // 0 ends passages and stands for stop words
        stem_data[0].rarity = 0;
        for (const auto& pair : vocabulary_.numerals) {
            int one = stem(pair.first), other = stem(pair.second);
            stem_data[one].numeral = other;
        }
        generation = ++generations;
    }

    int new_stem(const std::string& text, uint64_t hash) {
        Stem data{};
        Letters signs = ragmeter::letters(text.c_str());
        auto rarity = vocabulary_.rarities.find(text);
        data.rarity = rarity == vocabulary_.rarities.end() ? vocabulary_.rarest : rarity->second;
        data.prefix = -1;
        if (!signs.empty()) {
            auto flags = vocabulary_.stem_flags.find(text);
            data.flags = flags == vocabulary_.stem_flags.end() ? 0 : flags->second;
            if (signs[0] <= '9') data.flags |= DIGIT_FIRST;
            if (Py_UNICODE_ISDIGIT(signs[0])) data.flags |= DIGIT;
            if (is_decimal(signs[0])) data.flags |= DECIMAL;
        }
        if (signs.size() >= vocabulary_.prefix) {
            std::string begin = utf8(signs.substr(0, vocabulary_.prefix));
            uint64_t of_prefix;
            std::string word = WordTable::padded(begin);
            data.prefix = prefixes_.find(word.data(), begin.size(), &of_prefix);
            if (data.prefix < 0) {
                data.prefix = prefix_count_;
                prefix_seen.push_back(0);
                prefixes_.add(word.data(), begin.size(), of_prefix, prefix_count_++);
            }
        }
        int number = (int)stem_data.size();
        stem_data.push_back(data);
        texts_.push_back(text);
        stems_.add(WordTable::padded(text).data(), text.size(), hash, number);
        chars_ += signs.size();
        return number;
    }

    int new_form(const char* word, size_t size, uint64_t hash) {
        std::string text(word, size);
        Form data{};
        auto flags = vocabulary_.form_flags.find(text);
        data.flags = flags == vocabulary_.form_flags.end() ? 0 : flags->second;
        data.stem = stem(utf8(vocabulary_.english->content_stem(ragmeter::letters(text.c_str()))));
        int number = (int)form_data.size();
        form_data.push_back(data);
        forms_.add(word, size, hash, number);
        chars_ += size;
        return number;
    }

    int form(const char* word, size_t size) {
        uint64_t hash;
        int known = forms_.find(word, size, &hash);
        return known >= 0 ? known : new_form(word, size, hash);
    }

    // What a byte is in a word in lower case, 0 outside of words.
    struct Plain {
        char sign[128];
        Plain() {
            for (int sign_of = 0; sign_of < 128; sign_of++)
                sign[sign_of] = is_word(sign_of) && sign_of != '_' ? (char)lower_sign(sign_of) : 0;
        }
    };

    void read_bytes(const uint8_t* text, size_t size, std::vector<int>& forms) {
        static const Plain plain;
        // Latin-1: each character has two bytes of UTF-8 at most
        if (flat_.size() < 2 * size + PADDING + 1) flat_.resize(2 * size + PADDING + 1);
        char* flat = flat_.data();
        size_t length = 0, start = 0;
        for (size_t at = 0; at < size; at++) {
            uint8_t sign = text[at];
            char low;
            if (sign < 128) {
                low = plain.sign[sign];
            } else {
                Py_UCS4 letter = is_alnum(sign) ? lower_sign(sign) : 0;
                low = 0;
                if (letter) {
                    flat[length++] = (char)(0xC0 | letter >> 6);
                    low = (char)(0x80 | (letter & 63));
                }
            }
            flat[length] = low;
            if (low) {
                length++;
            } else if (length > start) {
                forms.push_back(form(flat + start, length - start));
                start = length;
            }
        }
        if (length > start) forms.push_back(form(flat + start, length - start));
    }

    void read_wide(const Text& text, Py_ssize_t begin, Py_ssize_t end, std::vector<int>& forms) {
        word_.clear();
        for (Py_ssize_t at = begin; at <= end; at++) {
            Py_UCS4 sign = at < end ? text.at(at) : 0;
            if (is_word(sign) && sign != '_') {
                word_.push_back(lower_sign(sign));
            } else if (!word_.empty()) {
                each_word(word_, [&](LettersView word) {
                    bytes_.clear();
                    for (char32_t letter : word) append_utf8(bytes_, letter);
                    size_t size = bytes_.size();
                    bytes_.append(PADDING, '\0');
                    forms.push_back(form(bytes_.data(), size));
                });
                word_.clear();
            }
        }
    }

    const Vocabulary& vocabulary_;
    size_t limit_, chars_ = 0;
    uint64_t secret_, seed_;
    WordTable forms_, stems_, prefixes_;
    int prefix_count_ = 0;
    std::vector<std::string> texts_;  // by stem
    std::vector<int> words_;
    std::vector<size_t> denials_;
    std::vector<char> flat_;
    Letters word_;
    std::string bytes_;
};

}  // namespace ragmeter
