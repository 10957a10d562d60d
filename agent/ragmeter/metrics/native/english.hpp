// Stop words and stems of English, as of `english.yaml`.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "text.hpp"

namespace ragmeter {

class English {
  public:
    void add_stop_word(const Letters& word) { stop_words_[hash_of(word)] = true; }
    bool is_stop_word(uint64_t hash) const { return stop_words_.find(hash); }
    void add_suffix(const Letters& suffix, int keep) {
        suffixes_[suffix.back()].push_back({suffix, keep});
    }

    // A light stem of a lower-case word: one for "parks", "parked" and "parking".
    Letters stem(Letters word) const {
        if (word.size() < 4 || Py_UNICODE_ISDIGIT(word[0])) return word;
        auto found = suffixes_.find(word.back());
        if (found != suffixes_.end())
            for (const Suffix& one : found->second) {
                size_t size = one.text.size();
                if (word.size() < size || (long)(word.size() - size) < one.keep) continue;
                if (word.compare(word.size() - size, size, one.text) != 0) continue;
                word.resize(word.size() - size);
                break;
            }
        if (word.size() > 4 && word[word.size() - 1] == word[word.size() - 2]) word.pop_back();
        if (word.size() > 9) word.resize(9);
        return word;
    }

    // The stem of a word, nothing of a stop word.
    Letters content_stem(const Letters& word) const {
        return is_stop_word(hash_of(word)) ? Letters() : stem(word);
    }

  private:
    struct Suffix { Letters text; int keep; };
    ByWord<bool> stop_words_;
    std::unordered_map<char32_t, std::vector<Suffix>> suffixes_;
};

}  // namespace ragmeter
