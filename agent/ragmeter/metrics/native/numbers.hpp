// The numbers of a text, and the form that all ways to write one share.
#pragma once

#include <cmath>

#include "pattern.hpp"

namespace ragmeter {

struct Number {
    Py_ssize_t start = 0, end = 0;
    Letters form, raw;  // in canonical form, and as written
};

class Numbers {
  public:
    // Appends the numbers of a text in lower case, until there are `most`.
    void find(const Text& text, size_t most, std::vector<Number>& out) const {
        Match match;
        for (Py_ssize_t at = 0; out.size() < most && pattern_.search(text, at, match); at = match.end()) {
            Letters raw = text.part(match.start(), match.end());
            out.push_back({match.start(), match.end(), canonical(raw), raw});
        }
    }

  private:
    // The form that all ways to write a number share: "1,000.0" gives "1000". A time of day is "t"
    // and its minutes modulo twelve hours: "5:30 pm" and "17:30" are the same.
    static Letters canonical(const Letters& raw) {
        Letters form;
        bool decimal = true;
        for (char32_t sign : raw) {
            decimal = decimal && is_decimal(sign);
            // digits of other scripts, full width ones among them
            if (is_decimal(sign)) form.push_back(U'0' + Py_UNICODE_TODECIMAL(sign));
            else if (sign != ',') form.push_back(sign);
        }
        if (decimal) return without_zeros(form);
        size_t colon = form.find(U':');
        if (colon != Letters::npos || form.back() == 'm') {
            std::string hours = digits_from(form, 0), minutes;
            if (colon != Letters::npos) minutes = digits_from(form, colon + 1);
            // of many digits the nearest number that the processor has
            long hour = (long)std::fmod(std::stod(hours), 12);
            long minute = minutes.empty() ? 0 : std::stol(minutes);
            return U"t" + letters(std::to_string((hour * 60 + minute) % 720).c_str());
        }
        if (form.find(U'.') != Letters::npos) {
            while (form.back() == '0') form.pop_back();
            while (!form.empty() && form.back() == '.') form.pop_back();
        }
        return without_zeros(form);
    }

    static Letters without_zeros(const Letters& form) {
        size_t first = form.find_first_not_of(U'0');
        return first == Letters::npos ? Letters(U"0") : form.substr(first);
    }

    static std::string digits_from(const Letters& form, size_t at) {
        std::string out;
        for (; at < form.size() && is_decimal(form[at]); at++) out.push_back((char)form[at]);
        return out;
    }

    const Pattern pattern_{
        R"(\d(?<![\w.].)\d{0,14}(?:,\d{3}){0,5}(?:\.\d{1,10})?(?::\d{1,2})?(?:\s?[ap]\.?m\b)?)"};
};

}  // namespace ragmeter
