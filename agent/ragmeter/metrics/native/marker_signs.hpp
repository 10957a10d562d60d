// Which forms of citation markers a text may hold. Most answers hold none, and the patterns of all
// forms take far longer than one look at each character.
#pragma once

#include <cstring>

#include "pattern.hpp"
#include "words.hpp"

namespace ragmeter {

// Which characters of ASCII may begin a marker: few, and texts have thousands of all others.
struct MarkerBeginnings {
    bool some[128] = {};

    constexpr MarkerBeginnings() {
        for (char sign : {'`', '~', '$', '\\', '&', ':', ']', '<', '@', '#', '[', '(', '{', '^', '|', '*', '.'})
            some[(int)sign] = true;
    }
};
inline constexpr MarkerBeginnings MARKER_BEGINNINGS;

class MarkerSigns {
  public:
    // The readers of `ragmeter.metrics.citation_markers`, by what a text must have for them to find
    // anything. `CODE` is what is changed or blanked before markers are read.
    enum Form : uint32_t {
        CODE = 1 << 0,
        LISTED = 1 << 1,
        DEFINITIONS = 1 << 2,
        TURNS = 1 << 3,
        OAICITE = 1 << 4,
        LATEX = 1 << 5,
        TAGS = 1 << 6,
        LINKS = 1 << 7,
        WIDE = 1 << 8,
        QUOTED_IDS = 1 << 9,
        SQUARE = 1 << 10,
        ROUND = 1 << 11,
        BRACES = 1 << 12,
        CARETS = 1 << 13,
        SIGNS = 1 << 14,
        RAISED = 1 << 15,
        KEYCAPS = 1 << 16,
        PICTURED_FILES = 1 << 17,
        SPOKEN = 1 << 18,
        ADDRESSES = 1 << 19,
        SOURCE_LINES = 1 << 20,
        REPEATED = 1 << 21,
        WORKS = 1 << 22,
        NOTES = 1 << 23,
    };

    // `named` are words that a number follows ("ource" of "source 1"), `headed` those that stand
    // above sources where one of `ends` follows, `foreign` those that do so whatever follows.
    MarkerSigns(
        const std::vector<Letters>& named, const std::vector<Letters>& headed, const Letters& ends,
        const std::vector<Letters>& foreign
    ) : number_("s?\\s{1,2}#?\\d"), ends_(ends, 0) {
        add(letters("citeturn"), TURNS, nullptr);
        add(letters("ue202turn"), TURNS, nullptr);
        add(letters("oaicite"), OAICITE, nullptr);
        for (const Letters& word : named) add(word, SPOKEN, &number_);
        for (const Letters& word : headed) add(word, SOURCE_LINES, &ends_);
        for (const Letters& word : foreign) add(word, SOURCE_LINES, nullptr);
    }
    MarkerSigns(const MarkerSigns&) = delete;  // the words point to its patterns

    // The forms that a text may hold; what is set for nothing costs time alone.
    uint32_t read(const Text& text) const {
        uint32_t forms = text.visit([](const auto& signs) { return read_signs(signs); });
        words_.each(text, [&](size_t number, Py_ssize_t at) {
            const Word& word = known_[number];
            Match behind;
            if (!(forms & word.form) && (!word.follows || word.follows->match(text, at + word.size, behind)))
                forms |= word.form;
            return false;
        });
        return forms;
    }

  private:
    struct Word { uint32_t form; Py_ssize_t size; const Pattern* follows; };

    void add(const Letters& word, Form form, const Pattern* follows) {
        words_.add(word);
        known_.push_back({form, (Py_ssize_t)word.size(), follows});
    }

    template <class Characters>
    static uint32_t read_signs(const Characters& text) {
        uint32_t forms = 0;
        for (Py_ssize_t at = 0; at < text.size; at++) {
            const Py_UCS4 sign = text.at(at);
            if (sign > 127) forms |= beyond_ascii(text, at);
            else if (MARKER_BEGINNINGS.some[sign]) forms |= sign_of(text, at);
        }
        return forms;
    }

    // -- what stands beside a sign; 0 is beyond the text

    template <class Characters>
    static Py_UCS4 sign_at(const Characters& text, Py_ssize_t at) {
        return at >= 0 && at < text.size ? text.at(at) : 0;
    }

    // Of characters beyond ASCII, some are digits, letters and blanks.
    static bool may_be_digit(Py_UCS4 sign) { return sign > 127 || (sign >= '0' && sign <= '9'); }
    static bool may_be_letter(Py_UCS4 sign) { return sign > 127 || is_letter(sign); }
    static bool may_be_word(Py_UCS4 sign) { return sign > 127 || is_word(sign); }
    static bool may_be_blank(Py_UCS4 sign) { return sign > 127 || Py_UNICODE_ISSPACE(sign); }
    static bool is_small(Py_UCS4 sign) { return sign >= 'a' && sign <= 'z'; }

    template <class Characters>
    static uint32_t sign_of(const Characters& text, Py_ssize_t at) {
        const Py_UCS4 before = sign_at(text, at - 1), next = sign_at(text, at + 1);
        switch (text.at(at)) {
            case '`':
            case '$':
                return CODE;
            case '~':
                return (next == '~' ? CODE : 0) | quoted_id(next);
            case '@':
                return (may_be_digit(next) ? REPEATED : 0) | quoted_id(next);
            case '#':
                return (may_be_digit(next) ? SIGNS : 0) | quoted_id(next);
            case '\\':
                return (next == '(' || next == '[' ? CODE : 0) | (may_be_letter(next) ? LATEX : 0);
            case '&':
                return next == '#' || next == 'l' ? CODE : 0;
            case ':':
                return colon(text, at, before, next);
            case ']':
                return next == '(' ? LINKS : next == ':' ? DEFINITIONS : 0;
            case '<':
                return may_be_word(next) || next == '|' || next == '<' ? TAGS : 0;
            case '[':
                return SQUARE | (names_work(text, at) ? WORKS : 0);
            case '(':
                return (may_cite(text, at) ? ROUND : 0) | (names_work(text, at) ? WORKS : 0);
            case '{':
                return BRACES | (next == '{' ? WORKS : 0);
            case '^':
                return CARETS;
            case '|':
                return may_be_digit(next) ? SIGNS : 0;
            case '*':
                return (may_be_digit(next) ? REPEATED : 0) | (is_small(before) ? NOTES : 0);
            case '.':
                return (may_be_digit(next) && is_small(before) ? NOTES : 0) | (ends_reporter(text, at) ? WORKS : 0);
        }
        return 0;
    }

    static uint32_t quoted_id(Py_UCS4 next) {
        return may_be_word(next) || next == '.' || next == '/' || next == '#' || next == '-' || next == '~' ? QUOTED_IDS : 0;
    }

    // "https://", the key of JSON, "doi:", "arXiv:"
    template <class Characters>
    static uint32_t colon(const Characters& text, Py_ssize_t at, Py_UCS4 before, Py_UCS4 next) {
        uint32_t forms = next == '/' ? ADDRESSES : 0;
        if (before == '"' || (before == ' ' && sign_at(text, at - 2) == '"')) forms |= LISTED;
        if (before > 127 || before == 'i' || before == 'I' || before == 'v' || before == 'V') forms |= WORKS;
        return forms;
    }

    // Whether a bracket may begin the name of a work: "(RFC 2616)", "[ibid.]", "(§ 433 BGB)", "(19".
    template <class Characters>
    static bool names_work(const Characters& text, Py_ssize_t at) {
        const Py_UCS4 one = sign_at(text, at + 1), two = sign_at(text, at + 2);
        if (one > 127) return true;
        if (text.at(at) == '(' && one >= '0' && one <= '9') {
            if ((one == '1' && two == '9') || (one == '2' && two == '0')) return true;
            Py_ssize_t end = at + 1;
            while (end < at + 4 && may_be_digit(sign_at(text, end))) end++;
            return may_be_blank(sign_at(text, end));
        }
        if (two > 127) return may_be_letter(one);
        const Py_UCS4 first = lower_sign(one), second = lower_sign(two);
        for (const char* work : {"rf", "pm", "is", "ec", "ce", "ib", "id", "op", "lo", "ar", "bg", "bv", "ba", "eu", "bf"})
            if (first == (Py_UCS4)work[0] && second == (Py_UCS4)work[1]) return true;
        return false;
    }

    // Whether a full stop is that of "347 U.S. 483".
    template <class Characters>
    static bool ends_reporter(const Characters& text, Py_ssize_t at) {
        const Py_UCS4 letter = lower_sign(sign_at(text, at - 1));
        return (letter > 127 || letter == 'u' || letter == 'f' || letter == 's' || letter == 'l') &&
            may_be_blank(sign_at(text, at - 2)) && may_be_digit(sign_at(text, at - 3));
    }

    // Whether what a round bracket opens may cite: it has a number, the sign of a label, the ending
    // of a file, or is a list of words, which may be ids.
    template <class Characters>
    static bool may_cite(const Characters& text, Py_ssize_t at) {
        bool cites = false, lists = false, prose = false;
        bool joined = true, blank = false;  // whether what came last joins, and a blank since then
        const Py_ssize_t end = at + LONGEST_ROUND + 2 < text.size ? at + LONGEST_ROUND + 2 : text.size;
        for (at++; at < end; at++) {
            const Py_UCS4 sign = text.at(at);
            if (sign == ')' || sign == 0xFF09) return cites || (lists && !prose);
            if (sign == '(' || sign == 0xFF08 || sign == '\n') return false;
            cites = cites || may_be_digit(sign);
            if (Py_UNICODE_ISSPACE(sign)) {
                blank = true;
                continue;
            }
            const bool joins = sign == ',' || sign == ';';
            prose = prose || (blank && !joined && !joins);
            lists = lists || joins;
            cites = cites || sign == '#' || sign == ':' || sign == '=' || sign == '>' ||
                sign == 0xBB || sign == 0x203A || sign == 0x2192 ||
                (sign == '.' && may_end_file(sign_at(text, at + 1)));
            joined = joins;
            blank = false;
        }
        return false;
    }

    // Whether a character may be the first of the ending of a file ("pdf", "md", "xlsx", …).
    static bool may_end_file(Py_UCS4 sign) {
        return sign > 127 || (sign > 0 && std::strchr("pdmhtxcjrPDMHTXCJR", (int)sign));
    }

    template <class Characters>
    static uint32_t beyond_ascii(const Characters& text, Py_ssize_t at) {
        const Py_UCS4 sign = text.at(at);
        if (sign < 0xB2) return sign == 0xAB ? QUOTED_IDS | KEYCAPS : 0;
        if (sign < 0x2000) return sign < 0xBA && (sign <= 0xB3 || sign == 0xB9) ? RAISED : 0;
        if ((sign >= 0x3400 && sign < 0xE000) || sign > 0xFFFF)
            return sign >= 0x1F000 && sign <= 0x1FAFF ? PICTURED_FILES : 0;
        if (sign == 0x2013 || sign == 0x2014)  // –, —
            return may_be_blank(sign_at(text, at + 1)) ? PICTURED_FILES : 0;
        uint32_t forms = sign >= 0x2190 && sign <= 0x2BFF ? PICTURED_FILES : 0;
        if ((sign >= 0x2070 && sign <= 0x207D) || (sign >= 0x2460 && sign <= 0x2487) || (sign >= 0x24F5 && sign <= 0x24FE) ||
            (sign >= 0x2776 && sign <= 0x2789))
            forms |= RAISED;
        switch (sign) {
            case 0x2020: case 0x2021: case 0x21A9:  // daggers, and the arrow of a note
                return forms | RAISED;
            case 0x2016:  // ‖
                return forms | SIGNS;
            case 0x20E3:
                return forms | KEYCAPS;
            case 0x2192: case 0x2197: case 0x279C: case 0x21D2:  // arrows
                return forms | REPEATED;
            case 0xE200: case 0xE202:
                return forms | TURNS;
            case 0xFF08:  // （
                return forms | (may_cite(text, at) ? ROUND : 0);
            case 0x3010: case 0xFF3B: case 0x3014: case 0x3016: case 0x27E6: case 0xFE5D: case 0x300A:  // 【 ［ 〔 〖 ⟦ ﹝ 《
                return forms | WIDE;
            case 0x300C: case 0x300E: case 0x27E8: case 0x3008: case 0x2039: case 0x2772:  // 「 『 ⟨ 〈 ‹ ❲
                return forms | WIDE | QUOTED_IDS;
        }
        return forms;
    }

    static constexpr Py_ssize_t LONGEST_ROUND = 120;  // characters between round brackets that may cite

    const Pattern number_, ends_;
    Words words_;
    std::vector<Word> known_;
};

}  // namespace ragmeter
