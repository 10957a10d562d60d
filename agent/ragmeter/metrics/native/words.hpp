// Some words that are looked for in a text all at once.
#pragma once

#include <vector>

#include "text.hpp"

namespace ragmeter {

// Words of two characters at least. They are found within others, too.
class Words {
  public:
    void add(const Letters& word) {
        const size_t place = place_of(word[0], word[1]);
        uint8_t& bucket = buckets_[place];
        begins_[place >> 6] |= 1ULL << (place & 63);
        if (!bucket) {
            bucket = (uint8_t)words_.size();
            words_.emplace_back();
        }
        words_[bucket].push_back({word, size_++});
    }
    void add(const char* word) { add(letters(word)); }

    // The first of the words that stands at a place, or null.
    const Letters* standing(const Text& text, Py_ssize_t at) const {
        return text.visit([&](const auto& signs) { return standing(signs, at); });
    }
    template <class Sign>
    const Letters* standing(const Signs<Sign>& text, Py_ssize_t at) const {
        if (at + 1 >= text.size) return nullptr;
        for (const Word& word : words_[buckets_[place_of(text.at(at), text.at(at + 1))]])
            if (stands(word, text, at)) return &word.letters;
        return nullptr;
    }

    // Whether a text has one of the words.
    bool stand_in(const Text& text) const {
        return each(text, [](size_t, Py_ssize_t) { return true; });
    }

    // Which of the words a text has, in the order in which they were added.
    std::vector<size_t> find(const Text& text) const {
        std::vector<char> has(size_, 0);
        std::vector<size_t> out;
        each(text, [&](size_t number, Py_ssize_t) { has[number] = 1; return false; });
        for (size_t number = 0; number < size_; number++)
            if (has[number]) out.push_back(number);
        return out;
    }

    // Calls with the number of each word and the place where it stands, until a call returns true.
    template <class Call>
    bool each(const Text& text, Call call) const {
        return text.visit([&](const auto& signs) {
            for (Py_ssize_t at = 0; at + 1 < signs.size; at++) {
                const size_t place = place_of(signs.at(at), signs.at(at + 1));
                if (!(begins_[place >> 6] >> (place & 63) & 1)) continue;
                for (const Word& word : words_[buckets_[place]])
                    if (stands(word, signs, at) && call(word.number, at)) return true;
            }
            return false;
        });
    }

  private:
    struct Word { Letters letters; size_t number; };

    template <class Sign>
    static bool stands(const Word& word, const Signs<Sign>& text, Py_ssize_t at) {
        size_t left = word.letters.size();
        if (at + (Py_ssize_t)left > text.size) return false;
        // from the last letter, as the first ones are those of all that are looked at
        while (left && text.data[at + left - 1] == word.letters[left - 1]) left--;
        return left == 0;
    }

    static size_t place_of(Py_UCS4 one, Py_UCS4 two) { return (one << 7 ^ two) % PLACES; }

    static constexpr size_t PLACES = 1 << 14;  // one for each pair of ASCII, which others share
    uint64_t begins_[PLACES / 64] = {};  // whether there is a bucket: smaller, for the cache of the processor
    std::vector<uint8_t> buckets_ = std::vector<uint8_t>(PLACES);  // by the first two characters
    std::vector<std::vector<Word>> words_ = std::vector<std::vector<Word>>(1);
    size_t size_ = 0;
};

}  // namespace ragmeter
