// Finds what an answer says out of courtesy or caution, which claims nothing about its subject.
//
// Greetings and thanks come before the answer proper; offers, wishes, signatures and disclaimers
// behind it. Only what stands at one of both ends counts, and only whole sentences: "Hi Anna, thanks
// for asking!" and "AI-generated content may be incorrect.", but not "AI may be incorrect in one of
// ten answers, so that …".
#pragma once

#include <algorithm>

#include "pattern.hpp"

namespace ragmeter {

// The patterns of courtesies, as `ragmeter.metrics.courtesies` makes them of `english.yaml`.
struct CourtesyRules {
    Letters greeting, opening, lead;  // each at the beginning of the answer, or behind another one
    Letters closing, footer, farewell, further;  // each of a whole sentence
};

class Courtesies {
  public:
    Courtesies(const CourtesyRules& rules, const std::vector<Letters>& cues)
        : greeting_(rules.greeting, 0),
          opening_(rules.opening, IGNORE_CASE),
          lead_(rules.lead, IGNORE_CASE),
          closing_(whole(rules.closing), IGNORE_CASE),
          footer_(whole(rules.footer), IGNORE_CASE),
          farewell_(whole(rules.farewell), IGNORE_CASE),
          further_(whole(rules.further), IGNORE_CASE) {
        for (const Letters& cue : cues) cues_[hash_of(cue)] = true;
    }

    // Where the answer proper begins in a text without markup, at or behind `start`.
    Py_ssize_t find_opening(Letters text, Py_ssize_t start) const {
        straighten(text);
        Text data(text);
        Py_ssize_t begin = start;
        while (start < data.size && !is_alnum(text[start])) start++;
        Py_ssize_t first = start;
        Match found;
        for (int count = 0; count < MOST_OPENINGS; count++) {
            if (!greeting_.match(data, start, found) && !opening_.match(data, start, found) &&
                !lead_.match(data, start, found))
                break;
            if (found.end() == start) break;
            start = found.end();
        }
        return start == first ? begin : start;
    }

    // How many of the last sentences are courtesies.
    template <class Sentence>
    size_t count_closings(const std::vector<Sentence>& sentences) const {
        size_t count = 0;
        std::vector<Letters> below;  // the last sentence first
        for (size_t at = sentences.size(); at && below.size() < MOST_CLOSINGS; at--) {
            const Letters& sentence = sentences[at - 1].text;
            if (count < below.size() && sentence.size() > LONGEST_HEADING) {
                below.push_back(sentence);
                continue;
            }
            Letters text = trimmed(sentence);
            if ((count == below.size() && (text.empty() || closes(text))) || heads(text, below))
                count = below.size() + 1;
            below.push_back(std::move(text));
        }
        return count;
    }

  private:
    static Letters whole(const Letters& rule) { return U"(?:" + rule + U")\\Z"; }

    static void straighten(Letters& text) { std::replace(text.begin(), text.end(), U'’', U'\''); }

    // A sentence with single spaces, without the signs, pictures and quotation marks around it.
    static Letters trimmed(const Letters& sentence) {
        Letters out;
        for (char32_t sign : sentence) {
            if (!Py_UNICODE_ISSPACE(sign)) out.push_back(sign);
            else if (!out.empty() && out.back() != ' ') out.push_back(' ');
        }
        straighten(out);
        size_t start = 0, end = out.size();
        while (start < end && !is_alnum(out[start])) start++;
        while (start < end && !is_alnum(out[end - 1]) && out[end - 1] != '?' && out[end - 1] != '%') end--;
        return out.substr(start, end - start);
    }

    // Whether the answer proper ends above a line: a signature or questions follow.
    bool heads(const Letters& text, const std::vector<Letters>& below) const {
        if (text.size() > LONGEST_HEADING) return false;
        Match match;
        if (farewell_.match(Text(text), 0, match))
            return std::all_of(below.begin(), below.end(),
                               [](const Letters& one) { return count_words(one) <= SIGNATURE_WORDS; });
        return !below.empty() && std::all_of(below.begin(), below.end(), asks) && further_.match(Text(text), 0, match);
    }

    bool closes(const Letters& text) const {
        if (text.size() > LONGEST || (!asks(text) && !has_cue(text))) return false;
        Match match;
        if (footer_.match(Text(text), 0, match)) return true;
        // with a number it claims something
        return std::none_of(text.begin(), text.end(), [](char32_t sign) { return Py_UNICODE_ISDIGIT(sign); }) &&
            closing_.match(Text(text), 0, match);
    }

    static bool asks(const Letters& text) { return !text.empty() && text.back() == '?'; }

    static size_t count_words(const Letters& text) {
        size_t words = 0;
        bool inside = false;
        for (char32_t sign : text) {
            bool space = Py_UNICODE_ISSPACE(sign);
            words += !space && !inside;
            inside = !space;
        }
        return words;
    }

    // Whether a text has a word without which it is no closing: looking for them is far quicker
    // than the rules.
    bool has_cue(const Letters& text) const {
        const Text data(text);
        Letters run;
        bool has = false;
        for (size_t at = 0; at <= text.size() && !has; at++) {
            if (at < text.size() && is_alnum(text[at])) {
                if (text[at] < 128) run.push_back(lower_sign(text[at]));
                else append_lower(run, data, (Py_ssize_t)at, data.size);
                continue;
            }
            each_word(run, [&](LettersView word) { has = has || cues_.find(hash_of(word)); });
            run.clear();
        }
        return has;
    }

    static constexpr int MOST_OPENINGS = 4;
    static constexpr size_t MOST_CLOSINGS = 6;  // sentences that are looked at, from the last one back
    static constexpr size_t LONGEST = 260;  // characters of such a sentence
    static constexpr size_t LONGEST_HEADING = 80;
    static constexpr size_t SIGNATURE_WORDS = 6;  // of a line below "Best regards,"

    const Pattern greeting_, opening_, lead_, closing_, footer_, farewell_, further_;
    ByWord<bool> cues_;
};

}  // namespace ragmeter
