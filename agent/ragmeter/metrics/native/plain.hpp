// What of a text may be written in other characters than plain ones; see `plain_text`.
#pragma once

#include <cstring>

#include "pattern.hpp"

namespace ragmeter {

// Which characters of ASCII may begin what is written in other characters: few, and texts have
// thousands of all others.
struct PlainBeginnings {
    bool odd[128] = {};

    constexpr PlainBeginnings() {
        for (char sign : {'&', '\\', 'T', '{', '^', '$', '-'}) odd[(int)sign] = true;
    }
};
inline constexpr PlainBeginnings PLAIN_BEGINNINGS;

class PlainSigns {
  public:
    PlainSigns()
        : odd_("&(?:amp;)?(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
               "|(?<=[^\\W\\d_])[-\u00ad\u2010\u2011][ \\t]{0,3}\\r?\\n[ \\t]{0,20}(?=[a-z])"
               "|\\$\\d[\\d.,]{0,15}(?:\\{,\\}\\d{3}){0,4}(?:\\\\?%)?\\$(?!\\d)|\\{,\\}(?=\\d)|\\^\\{?\\\\circ\\b\\}?"
               "|(?<![A-Za-z]:)(?<!\\\\)\\\\(?:[,;:!%$&#_()]|(?:times|cdot|circ)(?![a-z])"
               "|(?:text|mathrm|mathbf|textbf|mbox)\\{[^{}\\n]{0,60}\\}|[dt]?frac\\{\\d{1,4}\\}\\{\\d{1,4}\\})"
               "|(?<![A-Za-z]:)(?<!\\\\)\\\\(?:r\\\\n|[nrt](?![a-z]{1,20}[\\\\/.])|u[0-9a-fA-F]{4})"
               "|(?<![A-Za-z_])T(?!00:?00(?::?00)?(?:\\.0{1,9})?(?:Z|[+-]00:?00)?(?!\\w))(?:[01]\\d|2[0-4])"
               "(?::[0-5]\\d(?::[0-5]\\d(?:\\.\\d{1,9})?)?|(?<=\\d{8}T\\d\\d)[0-5]\\d(?:[0-5]\\d)?)"
               "(?:Z|[+-]\\d\\d:?\\d\\d)?(?!\\w)") {}

    // Take a character that stays as it is beside any other; ideographs are known to.
    void add(Py_UCS4 sign) {
        if (sign < MOST) known_[sign] = true;
    }

    // Whether a text is plain: 1, 0 if not, -1 if characters that are not known decide it.
    int judge(const Text& text) const {
        return text.visit([this](const auto& signs) { return judge_signs(signs); });
    }

    // Where a text has entities, words broken at the end of a line, escapes, times of ISO 8601, and
    // characters beyond ASCII that may change, with the one of ASCII before them.
    void find(const Text& text, std::vector<std::pair<Py_ssize_t, Py_ssize_t>>& out) const {
        text.visit([&](const auto& signs) { find_signs(text, signs, out); });
    }

  private:
    template <class Sign>
    void find_signs(const Text& text, const Signs<Sign>& signs, std::vector<std::pair<Py_ssize_t, Py_ssize_t>>& out) const {
        Match match;
        Py_ssize_t at = 0;
        while (at < signs.size) {
            Py_UCS4 sign = signs.at(at);
            if (sign < 128 && !PLAIN_BEGINNINGS.odd[sign] && at + 1 < signs.size && signs.at(at + 1) < 128) {
                at++;
                continue;
            }
            bool odd = sign == '&' || is_hyphen(sign) || sign == '\\' || begins_time(signs, at) || begins_formula(sign, signs, at);
            if (odd && odd_.match(text, at, match)) {
                out.push_back({at, match.end()});
                at = match.end();
                continue;
            }
            Py_ssize_t end = at + (sign < 128);
            if (end == signs.size || signs.at(end) < 128 || (end > at && is_hyphen(signs.at(end)) && odd_.match(text, end, match))) {
                at++;
                continue;
            }
            bool changes = sign < 128 && (sign == 127 || (sign < ' ' && sign != '\t' && sign != '\n'));
            for (; end < signs.size && signs.at(end) > 127; end++) changes |= !stays(signs.at(end));
            if (changes) out.push_back({at, end});
            at = end;
        }
    }

    template <class Sign>
    int judge_signs(const Signs<Sign>& text) const {
        bool unknown = false;
        for (Py_ssize_t at = 0; at < text.size; at++) {
            Py_UCS4 sign = text.at(at);
            if (sign < 128 && !PLAIN_BEGINNINGS.odd[sign]) continue;
            if (sign == '&' || sign == '\\' || begins_time(text, at) || begins_formula(sign, text, at)) return 0;
            if (is_hyphen(sign) && at + 1 < text.size && (text.at(at + 1) == '\n' || text.at(at + 1) == '\r'))
                return 0;
            unknown |= sign > 127 && !stays(sign);
        }
        return unknown ? -1 : 1;
    }

    static bool is_hyphen(Py_UCS4 sign) { return sign == '-' || sign == 0xAD || sign == 0x2010 || sign == 0x2011; }

    template <class Characters>
    static bool begins_time(const Characters& text, Py_ssize_t at) {
        return text.at(at) == 'T' && at + 2 < text.size && text.at(at + 1) >= '0' && text.at(at + 1) <= '2' &&
            text.at(at + 2) >= '0' && text.at(at + 2) <= '9';
    }

    // "1{,}540", "180^\circ", "$1,540$"
    template <class Characters>
    static bool begins_formula(Py_UCS4 sign, const Characters& text, Py_ssize_t at) {
        if (sign != '{' && sign != '^' && sign != '$') return false;
        Py_UCS4 next = at + 1 < text.size ? text.at(at + 1) : 0;
        if (sign == '{') return next == ',';
        if (sign == '^') return next == '{' || next == '\\';
        if (next < '0' || next > '9') return false;
        Py_ssize_t end = at + 1;
        while (end < text.size && end - at < 40 && std::strchr("0123456789.,{}\\%", (int)text.at(end))) end++;
        return end < text.size && text.at(end) == '$';
    }

    static constexpr int MOST = 0x3100;
    bool stays(Py_UCS4 sign) const {
        return sign < MOST ? known_[sign] : (sign >= 0x4E00 && sign < 0xA000) || (sign >= 0xAC00 && sign < 0xD7A4);
    }

    Pattern odd_;
    bool known_[MOST] = {};
};

}  // namespace ragmeter
