// Splits an answer into sentences, with its numbers and names, whatever format it is written in.
#pragma once

#include <algorithm>
#include <unordered_set>

#include "english.hpp"
#include "numbers.hpp"

namespace ragmeter {

// A sentence over [start, end) of a plain answer without markup.
struct Sentence {
    Py_ssize_t start = 0, end = 0;
    Py_ssize_t words = 0;  // where its words begin, behind an item number
    Letters text;  // it without bullet, item number and superfluous space
};

struct Answer {
    Letters bare;  // the text without markup, of which the sentences are parts
    std::vector<Sentence> sentences;
    std::vector<Number> numbers;
    std::vector<Letters> names;  // stems of capitalised words that do not begin a sentence
};

inline Letters stripped(const Letters& text, Py_ssize_t start, Py_ssize_t end) {
    while (start < end && Py_UNICODE_ISSPACE(text[start])) start++;
    while (end > start && Py_UNICODE_ISSPACE(text[end - 1])) end--;
    return text.substr(start, end - start);
}

constexpr size_t MOST_SENTENCES = 300;  // of one text

class AnswerReader {
  public:
    AnswerReader(const English& english, const Numbers& numbers)
        : english_(english), numbers_(numbers) {}

    // Where a list of sources begins after the answer proper, or the text's length.
    Py_ssize_t find_bibliography(const Letters& text) const {
        Text data(text);
        Match cut;
        if (!names_sources(text) || !bibliography_.search(data, 0, cut)) return data.size;
        return stripped(text, 0, cut.start()).empty() ? data.size : cut.start();
    }

    // Replaces markup by spaces, so that an answer reads the same in every format.
    //
    // The answer is Markdown, in prose, lists or tables, some with HTML. Citation markers stay: they
    // tell where a sentence ends. All characters keep their places.
    void strip_format(Letters& text) const {
        uint8_t has[128] = {};
        bool wide = false;
        for (char32_t sign : text) {
            if (sign < 128) has[sign] = 1;
            else wide = true;
        }
        if (has['('] && has[']'] && has_pair(text, ']', '('))
            for (const Match& match : all(link_, text)) unlink(match, text);
        if (has['<'])
            for (const Match& match : all(tag_, text)) {
                Match line;
                bool block = block_.match(Text(text), match.start(), line, match.end());
                blank(match, text);
                if (block) text[match.start()] = '\n';
            }
        if (has['('] || (wide && text.find_first_of(U"（「〔『⟨〈‹❲") != Letters::npos)) blank_all(round_marker_, text);
        if (has['\\'] || has['^'] || (has['o'] && Text(text).find(U"oaicite") >= 0))
            blank_all(sign_marker_, text);
        if (has['|'] || has['{'] || has['<'] || has['#'] || (wide && text.find_first_of(U"‖«\u20e3") != Letters::npos))
            blank_all(closing_marker_, text);
        if (has['|']) {
            blank_all(table_head_, text);
            blank_ordinals(row_number_, text, true);
            std::replace(text.begin(), text.end(), U'|', U' ');
        }
        // Markdown's signs; the signs of lists and quotations are no words anyway
        if (has['*'] || has['_'] || has['`'] || has['#'] || has['~'])
            for (char32_t& sign : text)
                if (sign == '*' || sign == '_' || sign == '`' || sign == '#' || sign == '~') sign = ' ';
        if (has['1'] && has['2'] &&
            ((has['.'] && has_pair(text, '2', '.') && has_pair(text, '1', '.')) ||
             (has[')'] && has_pair(text, '2', ')') && has_pair(text, '1', ')'))))
            blank_ordinals(enumerated_, text, false);
    }

    // Replaces citation markers, and all else in square brackets, by spaces.
    void strip_markers(Letters& text) const {
        for (char32_t sign : text)
            if (sign == '[' || sign == U'【') {
                blank_all(marker_, text);
                return;
            }
    }

    // Where a list item in [start, end) goes on behind its bullets.
    Py_ssize_t skip_bullet(const Text& text, Py_ssize_t start, Py_ssize_t end) const {
        Match bullet;
        bool plain = start >= end || is_alnum(text.at(start));
        return !plain && bullet_.match(text, start, bullet, end) ? bullet.end() : start;
    }

    // Sentences and list items without surrounding space, empty ones not; 300 at most.
    void find_sentences(const Letters& text, std::vector<std::pair<Py_ssize_t, Py_ssize_t>>& out) const {
        Py_ssize_t start = 0, size = (Py_ssize_t)text.size(), at = 0;
        while (at < size) {
            char32_t sign = text[at];
            bool ends = sign == '.' || sign == '!' || sign == '?';
            if (!ends && sign != '\n' && sign != U'。' && sign != U'！' && sign != U'？') {
                at++;
                continue;
            }
            Py_ssize_t end = end_of_break(text, at + 1), last = sign == '\n' ? at + 1 : end;
            if (ends && ((end < size && !Py_UNICODE_ISSPACE(text[end])) ||
                         (sign == '.' && end == at + 1 && is_abbreviation(text, start, at, end)))) {
                at = end;
                continue;
            }
            at = end;
            add_span(text, start, last, out);
            start = last;
            if (out.size() >= MOST_SENTENCES) return;
        }
        add_span(text, start, size, out);
    }

    // Reads a plain text.
    void read(Letters text, Answer& out) const {
        text.resize(find_bibliography(text));
        strip_format(text);
        Letters& bare = out.bare = text;
        strip_markers(bare);
        Match match;
        Py_ssize_t begin = -1;
        if (item_.match(Text(bare), 0, match)) {
            begin = match.end();
        } else {
            auto word = std::find_if(bare.begin(), bare.end(), is_word);
            if (word != bare.end()) begin = word - bare.begin();
        }
        if (begin >= 0 && preamble_.match(Text(bare), begin, match)) {
            Py_ssize_t last = (Py_ssize_t)bare.size();
            while (last && Py_UNICODE_ISSPACE(bare[last - 1])) last--;
            if (match.end() < last) {
                std::fill(text.begin(), text.begin() + match.end(), U' ');
                bare = text;
                strip_markers(bare);
            }
        }
        std::vector<std::pair<Py_ssize_t, Py_ssize_t>> spans;
        find_sentences(text, spans);
        std::vector<Py_ssize_t> firsts;
        for (const auto& span : spans) read_sentence(span.first, span.second, bare, firsts, out);
        read_numbers(bare, out.numbers);
        find_names(bare, firsts, out.names);
    }

  private:
    static std::vector<Match> all(const Pattern& pattern, const Letters& text) {
        std::vector<Match> out;
        Match match;
        Py_ssize_t at = 0;
        while (pattern.search(Text(text), at, match)) {
            out.push_back(match);
            at = match.end() + (match.end() == match.start());
        }
        return out;
    }

    static bool has_pair(const Letters& text, char32_t one, char32_t next) {
        const char32_t* signs = text.data();
        for (size_t at = 1; at < text.size(); at++)
            if (signs[at] == next && signs[at - 1] == one) return true;
        return false;
    }

    // Whether a text has a word that a list of sources has: looking for them is quicker than the
    // pattern.
    static bool names_sources(const Letters& text) {
        static const LettersView words[] = {U"ource", U"eference", U"itation", U"ibliograph"};
        static const LettersView capitals[] = {U"OURCE", U"EFERENCE", U"ITATION", U"IBLIOGRAPH"};
        for (size_t at = 0; at + 1 < text.size(); at++) {
            // by the second letter, which is rarer
            char32_t low = text[at + 1] | 32;
            if (low != 'u' && low != 'f' && low != 't' && low != 'b') continue;
            for (LettersView word : low == text[at + 1] ? words : capitals)
                if (text[at] == word[0] && text.compare(at, word.size(), word) == 0) return true;
        }
        return false;
    }

    static void blank(const Match& match, Letters& text) {
        std::fill(text.begin() + match.start(), text.begin() + match.end(), U' ');
    }

    static void blank_all(const Pattern& pattern, Letters& text) {
        for (const Match& match : all(pattern, text)) blank(match, text);
    }

    // `[text](address)` keeps its text; a number is a citation, and its address is no text.
    static void unlink(const Match& match, Letters& text) {
        Letters label = match.text(Text(text), 2);
        size_t first = label.find_first_not_of(U" ^"), last = label.find_last_not_of(U" ^");
        bool number = first != Letters::npos;
        for (size_t at = first; number && at <= last; at++) number = is_decimal(label[at]);
        blank(match, text);
        std::copy(label.begin(), label.end(), text.begin() + match.start(2));
        if (!number) return;
        text[match.end(1) - 1] = '[';
        text[match.start(3)] = ']';
    }

    // Replaces the numbers 1, 2, 3, … of a list by spaces.
    void blank_ordinals(const Pattern& pattern, Letters& text, bool rows) const {
        std::vector<std::vector<Match>> runs;
        Text data(text);
        Match before;
        for (const Match& match : all(pattern, text)) {
            long number = 0;
            for (Py_ssize_t at = match.start(1); at < match.end(1); at++)
                number = 10 * number + Py_UNICODE_TODECIMAL(text[at]);
            Py_ssize_t start = match.start(1);
            if (text.compare(start, match.end(1) - start, U"1") == 0 &&
                (rows || list_start_.search(data, start > 40 ? start - 40 : 0, before, start)))
                runs.push_back({match});
            else if (!runs.empty() && number == (long)runs.back().size() + 1)
                runs.back().push_back(match);
        }
        for (const auto& run : runs)
            for (const Match& match : run) {
                if (run.size() < 2) continue;
                bool line = text[match.start()] == '\n';
                blank(match, text);
                if (line) text[match.start()] = '\n';
            }
    }

    static void add_span(const Letters& text, Py_ssize_t start, Py_ssize_t end,
                         std::vector<std::pair<Py_ssize_t, Py_ssize_t>>& out) {
        while (start < end && Py_UNICODE_ISSPACE(text[start])) start++;
        if (start == end) return;
        while (Py_UNICODE_ISSPACE(text[end - 1])) end--;
        out.emplace_back(start, end);
    }

    // Whether a full stop ends a word that is short for another one, or the number of an item.
    bool is_abbreviation(const Letters& text, Py_ssize_t start, Py_ssize_t at, Py_ssize_t end) const {
        char32_t before = text[at ? at - 1 : text.size() - 1];
        Py_ssize_t low = at > 2 ? at - 2 : 0;
        if (is_lower(before) && !abbreviation_ends_.count(text.substr(low, at - low)))
            return false;
        Py_ssize_t first = std::max(start, at - 8);
        return abbreviation_.search(Text(text.substr(first, end - first)));
    }

    // Where closing quotes and citation markers after a sentence end.
    static Py_ssize_t end_of_break(const Letters& text, Py_ssize_t at) {
        Py_ssize_t size = (Py_ssize_t)text.size();
        for (int count = 0; count < 3 && at < size; count++, at++) {
            char32_t sign = text[at];
            if (sign != '"' && sign != '\'' && sign != ')' && sign != ']' && sign != U'”' && sign != U'’')
                break;
        }
        for (int marks = 0; marks < 5; marks++) {
            Py_ssize_t place = at;
            if (place < size && Py_UNICODE_ISSPACE(text[place])) place++;
            for (int count = 0; count < 3 && place < size && text[place] == ' '; count++) place++;
            if (place >= size || (text[place] != '[' && text[place] != U'【')) break;
            Py_ssize_t inside = ++place;
            while (place < size && place - inside < 41) {
                char32_t sign = text[place];
                if (sign == '[' || sign == ']' || sign == '\n' || sign == U'【' || sign == U'】') break;
                place++;
            }
            if (place >= size || place == inside || place - inside > 40) break;
            if (text[place] != ']' && text[place] != U'】') break;
            at = place + 1;
        }
        return at;
    }

    void read_sentence(Py_ssize_t start, Py_ssize_t end, Letters& bare,
                       std::vector<Py_ssize_t>& firsts, Answer& out) const {
        Match item;
        Py_ssize_t first = start;
        bool plain = is_upper(bare[start]) && bare[start] != 'S';
        if (!plain && item_.match(Text(bare), start, item, end)) {
            first = item.end();
            if (std::any_of(bare.begin() + start, bare.begin() + first, is_decimal)) blank(item, bare);
        }
        Sentence sentence;
        sentence.start = start;
        sentence.end = end;
        sentence.words = first;
        while (first < end && !is_alnum(bare[first])) first++;
        if (first == end) return;
        firsts.push_back(first);
        Letters text = stripped(bare, sentence.words, end);
        if (has_pair(text, ' ', ' ')) text = with_single_spaces(text);
        text.erase(0, skip_bullet(Text(text), 0, (Py_ssize_t)text.size()));
        sentence.text = std::move(text);
        out.sentences.push_back(std::move(sentence));
    }

    static Letters with_single_spaces(const Letters& text) {
        Letters out;
        for (char32_t sign : text) {
            if (!Py_UNICODE_ISSPACE(sign)) out.push_back(sign);
            else if (!out.empty() && out.back() != ' ') out.push_back(' ');
        }
        if (!out.empty() && out.back() == ' ') out.pop_back();
        return out;
    }

    // -- numbers and names

    void read_numbers(const Letters& text, std::vector<Number>& out) const {
        if (std::none_of(text.begin(), text.end(), is_decimal)) return;
        const Letters low = lowered(text);
        numbers_.find(Text(low), MOST_NUMBERS, out);
    }

    // Appends the content stems of the matches of `[A-Z](?<![\w'’].)\w+` that begin no sentence.
    void find_names(const Letters& text, const std::vector<Py_ssize_t>& firsts, std::vector<Letters>& out) const {
        Py_ssize_t size = (Py_ssize_t)text.size(), at = 0;
        size_t first = 0;
        char32_t before = 0;
        while (at < size) {
            char32_t sign = text[at];
            if (sign < 'A' || sign > 'Z' || before == '\'' || before == U'’' || is_word(before)) {
                before = sign;
                at++;
                continue;
            }
            Py_ssize_t end = at + 1;
            while (end < size && is_word(text[end])) end++;
            while (first < firsts.size() && firsts[first] < at) first++;
            bool begins = first < firsts.size() && firsts[first] == at;
            if (end > at + 1 && !begins) read_name(text.substr(at, end - at), out);
            before = text[end - 1];
            at = end;
        }
    }

    void read_name(const Letters& name, std::vector<Letters>& out) const {
        const Letters low = lowered(name);
        Letters word;
        for (size_t at = 0; at <= low.size(); at++) {
            if (at < low.size() && is_alnum(low[at])) {
                word.push_back(low[at]);
                continue;
            }
            each_word(word, [&](LettersView piece) {
                Letters stem = english_.content_stem(Letters(piece));
                if (!stem.empty()) out.push_back(stem);
            });
            word.clear();
        }
    }

    static constexpr size_t MOST_NUMBERS = 300;  // of an answer: some are searched for in all passages

    const English& english_;
    const Numbers& numbers_;
    // The last two characters of those of `abbreviation_` that end in lower case.
    const std::unordered_set<Letters> abbreviation_ends_{
        U"Mr", U"rs", U"Ms", U"Dr", U"of", U"St", U"Jr", U"Sr", U"vs", U"tc", U".g", U".e", U"cf",
        U"No", U"nc", U"td", U"Co", U"ig", U"al", U"ox", U"ov", U"en", U"ep", U".m"};
    const Pattern marker_{R"(\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】)"};
    // A number or letter of a list, after other signs as in "- [ ] 2." and "> 3)".
    const Pattern item_{
        R"((?:[^\w\n]{0,9}(?:\d{1,2}(?:[.)]|\ufe0f?\u20e3)|[a-z]\)|[①-⑳])"
        R"(|(?:[Ss]tep|STEP) \d{1,2}\s{0,3}[.:)–—-])(?:\s+|\Z)){1,2})"};
    const Pattern bullet_{R"((?:[-–—•‣◦▪●○→✓✔>+] )+)"};
    const Pattern enumerated_{R"((?:^|\s)\(?(\d{1,2})[.)](?=\s))"};
    const Pattern list_start_{R"((?:(?:^|[.:;!?,\n])\s*|\()\Z)"};
    const Pattern link_{
        R"((\[{1,2})([^\[\]\n]{1,200})(\]{1,2})(\((?:https?:|/|#|www\.|mailto:)[^()\s]{0,400}(?:\s"[^"\n]{0,100}")?\)\]?))",
        IGNORE_CASE};
    // Citation markers that are not in square brackets, as of `ragmeter.metrics.citation_markers`.
    const Pattern round_marker_{
        R"([(（]\s?(?:see |per |cf\.? |from )?(?:sources?|docs?|documents?|chunks?|refs?\.?|references?)"
        R"(|citations?|excerpts?|contexts?|quellen?|fuentes?|fontes?|来源|來源|资料|出典|출처)"
        R"()(?:\s?[:#：]|[\s_.-]{0,2}\d)[^()（）\n]{0,80}[)）])"
        R"(|\(#\d{1,3}\)|\(s\d{1,2}(?:, ?s\d{1,2}){0,5}\))"
        R"(|\((?:see )?(?:pp?\.|pages?|seite) ?\d{1,4}(?:[-–]\d{1,4})?\))"
        R"(|\([^()\n]{1,80}\.(?:pdf|docx?|md|html?|txt|pptx?)\b[^()\n]{0,40}\))"
        R"(|(?<=[\w.!?%]) \(\d{1,2}(?:, ?\d{1,2}){0,4}\)(?=[.!?]? ?(?:\n|\Z|[A-Z]))|[「〔『⟨〈‹❲]\d{1,3}[」〕』⟩〉›❳])",
        IGNORE_CASE};
    const Pattern sign_marker_{
        R"(\\(?:[a-z]{0,6}cite[a-z]{0,8}\*?(?:\[[^\]\n]{0,60}\])?\{[^{}\n]{1,120}\}|\[[\d, ]{1,20}\\\]))"
        R"(|(?<=[^\W\d_]{3})\s?\^\[?\d{1,3}\]?\^|(?<=[^\W\d_]{3})\^\[?\d{1,3}\]?|:?contentReference\[oaicite:\d{1,4}\])"
        R"(\{index=\d{1,4}\})",
        IGNORE_CASE};
    // Numbers in signs that an answer has at the end of a clause alone, and "#1" behind a sentence.
    const Pattern closing_marker_{
        R"((?:(?<=[^\W\d_]{3})|(?<=[\w)][.!?])) ?)"
        R"((?:[|‖]{1,2}\d{1,2}(?:, ?\d{1,2}){0,5}[|‖]{1,2}|«\d{1,2}»|(?:\d\ufe0f?\u20e3 ?){1,4}|\{{1,2}\d{1,2}\}{1,2}|<\|?\d{1,2}\|?>))"
        R"((?=[.!?,;:]?(?:\s|\Z)))"
        R"(|(?<=[^\W\d_]{4}[.!?]) #\d{1,2}(?:, ?#\d{1,2}){0,5}(?=[.!?]?(?:\s|\Z)))"};
    const Pattern tag_{
        R"(<(sup|cite|citation|ref|source|fn|c)\b[^<>\n]{0,100}>[^<>\n\s]{1,40}</\1>)"
        R"(|<!--[^<>]{0,500}-->|</?[a-z][a-z1-6]{0,9}(?: [^<>\n]{0,200})?/?>)",
        IGNORE_CASE};
    // Tags that begin or end a line.
    const Pattern block_{
        R"(</?(?:br|p|li|ul|ol|dl|dt|dd|div|tr|table|h[1-6]|section|article|blockquote|pre|hr)\b)",
        IGNORE_CASE};
    const Pattern table_head_{
        R"(^[^\n]{0,1000}\n[ \t]{0,9}\|?(?:[ \t]{0,9}:?-{1,99}:?[ \t]{0,9}\|){1,40}[ :\t-]{0,99}$)",
        MULTI_LINE};
    const Pattern row_number_{R"(^[ \t]{0,9}\|[ \t]{0,9}(\d{1,3})\.?[ \t]{0,9}(?=\|))", MULTI_LINE};
    const Pattern bibliography_{
        R"((?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?)"
        R"(|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$))",
        IGNORE_CASE};
    // "Sure! Here is a summary of the article in 200 words:" claims nothing.
    const Pattern preamble_{
        R"((?:(?:sure|certainly|of course|absolutely|okay|ok)\b[^\n:.!]{0,60}[!.,:])"
        R"([^\w\n]{0,9}\n?[^\w\n]{0,9})?)"
        R"((?:(?:based on|according to)\b[^\n:.,]{0,60},\s{0,9})?)"
        R"((?:here(?:'s|’s| is| are)|below (?:is|are)|the following (?:is|are))\b[^\n:.]{0,160}:\s+)"
        R"(|(?:sure|certainly|of course|absolutely)\b[^\n:.!]{0,60}!\s+)",
        IGNORE_CASE};
    const Pattern abbreviation_{
        R"((?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|No|Inc|Ltd|Co|Fig|al|approx)"
        R"(|U\.S|U\.K|Gov|Sen|Rep|Gen|a\.m|p\.m)\.\Z|^\s*\d{1,2}\.\Z)"};
};

}  // namespace ragmeter
