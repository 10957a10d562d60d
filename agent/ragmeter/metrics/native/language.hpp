// Identifies the language of a text by the commonest words of languages.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "text.hpp"

namespace ragmeter {

enum Script { NO_LETTERS, LATIN, OTHER_SCRIPT };

// By the first 200 characters.
inline Script detect_script(const Text& text) {
    Py_ssize_t letters = 0, latin = 0, end = std::min<Py_ssize_t>(text.size, 200);
    for (Py_ssize_t at = 0; at < end; at++) {
        Py_UCS4 sign = text.at(at);
        if (!is_letter(sign)) continue;
        letters++;
        latin += sign < 0x250;
    }
    return letters == 0 ? NO_LETTERS : 2 * latin >= letters ? LATIN : OTHER_SCRIPT;
}

class Languages {
  public:
    // What `identify` returns beside the number of a language.
    static constexpr int UNKNOWN = -1, OTHER = -2;  // too short or no words; one that has no number

    // English is the first language that is added, number 0; of equal counts an earlier one wins.
    int add_language() { return count_++; }
    void add_word(int language, const Letters& word) {
        Word& entry = words_[hash_of(word)];
        if (language == 0) {
            entry.english = true;
        } else {
            entry.languages.push_back(language);
        }
    }
    void add_letter(int language, Py_UCS4 sign) { letters_[sign].push_back(language); }

    // The language of the opening of a text. Nearly related languages may be taken for each other,
    // but hardly ever for English.
    int identify(const Text& text) const {
        if (has_few_english(text)) return 0;  // most texts, quickly
        Script script = detect_script(text);
        if (script != LATIN) return script == NO_LETTERS ? UNKNOWN : OTHER;
        Letters low;
        std::vector<LettersView> words;
        append_opening(low, text, READ_CHARS);
        read_words(low, words);
        long english = 0, listed = 0, accented = 0, count = 0;
        std::vector<long> counts(count_, 0);
        for (LettersView word : words) {
            const Word* found = words_.find(hash_of(word));
            english += found && found->english;
            if (found && !found->languages.empty()) {
                listed++;
                for (int language : found->languages) counts[language]++;
            } else if (std::any_of(word.begin(), word.end(), [](char32_t sign) { return sign > 127; })) {
                // letters of other alphabets speak for another language where no list has the word
                accented++;
                count_letters(word, counts);
            }
        }
        int best = UNKNOWN;
        for (int language = 1; language < count_; language++)
            if (counts[language] > count) {
                best = language;
                count = counts[language];
            }
        if (english >= std::max(2L, 2 * count)) return 0;
        long size = (long)words.size();
        if (size < LONG && !listed && !accented) return UNKNOWN;
        double prose = share_of_lower(text);
        if (count && count + accented / 2.0 >= std::max(1.5, 2.0 * english) && prose >= SOME_PROSE)
            return best;
        bool foreign = accented >= std::max({3.0, size / 5.0, 3.0 * english}) && prose >= SOME_PROSE;
        foreign = foreign || (!english && size >= LONG && prose >= PROSE);
        return foreign ? OTHER : UNKNOWN;
    }

  private:
    struct Word {
        bool english = false;
        std::vector<int> languages;  // others
    };

    static void append_opening(Letters& out, const Text& text, Py_ssize_t most) {
        Py_ssize_t end = std::min(text.size, most);
        out.reserve(end);
        for (Py_ssize_t at = 0; at < end; at++) append_lower(out, text, at, end);
    }

    // Whether the opening has a few different English words between blanks; no other text has.
    bool has_few_english(const Text& text) const {
        return text.visit([&](const auto& signs) {
            uint64_t seen[FEW_ENGLISH];
            const Py_ssize_t end = std::min(signs.size, FIRST_CHARS);
            int count = 0;
            for (Py_ssize_t at = 0; at < end && count < FEW_ENGLISH; at++) {
                WordHash word;
                bool is_plain = true;  // English has neither letter whose lower case is no matter of one character
                for (; at < end && !Py_UNICODE_ISSPACE(signs.at(at)); at++) {
                    word.add(lower_sign(signs.at(at)));
                    is_plain = is_plain && signs.at(at) != 0x130 && signs.at(at) != 0x3A3;
                }
                const Word* found = is_plain ? words_.find(word.value) : nullptr;
                if (found && found->english && std::find(seen, seen + count, word.value) == seen + count)
                    seen[count++] = word.value;
            }
            return count == FEW_ENGLISH;
        });
    }

    // The different words of a text in lower case.
    static void read_words(const Letters& low, std::vector<LettersView>& out) {
        size_t start = 0;
        for (size_t at = 0; at <= low.size(); at++) {
            if (at < low.size() && is_alnum(low[at])) continue;
            each_word(LettersView(low).substr(start, at - start), [&](LettersView word) {
                out.push_back(word);
            });
            start = at + 1;
        }
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
    }

    void count_letters(LettersView word, std::vector<long>& counts) const {
        std::vector<char> counted(count_, 0);  // a word counts once for a language
        for (char32_t sign : word) {
            auto found = letters_.find(sign);
            if (found == letters_.end()) continue;
            for (int language : found->second) {
                counts[language] += !counted[language];
                counted[language] = 1;
            }
        }
    }

    // Of the words, how many begin in lower case: names are of all languages, and a list has no
    // other words.
    static double share_of_lower(const Text& text) {
        Py_ssize_t end = std::min<Py_ssize_t>(text.size, READ_CHARS);
        long words = 0, lower = 0;
        bool inside = false;
        for (Py_ssize_t at = 0; at < end; at++) {
            Py_UCS4 sign = text.at(at);
            bool blank = Py_UNICODE_ISSPACE(sign);
            if (!blank && !inside) {
                words++;
                lower += is_lower(sign) != 0;
            }
            inside = !blank;
        }
        return (double)lower / (double)std::max(1L, words);
    }

    static constexpr Py_ssize_t FIRST_CHARS = 200;  // of a text: enough for most English
    static constexpr Py_ssize_t READ_CHARS = 400;  // of a text: two sentences are enough
    static constexpr int FEW_ENGLISH = 4;
    // Different words: English prose of so many without one of its commonest is very rare.
    static constexpr long LONG = 20;
    // Least shares of lower-case words in prose.
    static constexpr double PROSE = 0.7, SOME_PROSE = 0.4;

    int count_ = 0;
    ByWord<Word> words_;
    std::unordered_map<Py_UCS4, std::vector<int>> letters_;
};

}  // namespace ragmeter
