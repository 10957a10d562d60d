// What a number, date or time of a text is worth, and where it stands.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "text.hpp"

namespace ragmeter {

// A value: its kind, and what it is made of.
struct Key {
    std::vector<Letters> parts;

    Key(std::initializer_list<Letters> parts) : parts(parts) {}
    // One text of all, which no other key has.
    Letters whole() const {
        Letters out;
        for (const Letters& part : parts) { out += part; out.push_back(0x1F); }
        return out;
    }
    bool is(std::string_view kind) const { return std::equal(parts[0].begin(), parts[0].end(), kind.begin(), kind.end()); }
};

// A number, date or time over [start, end) of a text.
struct Quantity {
    Py_ssize_t start = 0, end = 0;
    std::vector<Key> keys;  // its values from the most to the least exact
    Py_ssize_t figure = -1, figure_end = -1;  // of its number without unit
    bool measured = false;  // whether it has a unit of measure
    double base = 0, unit = 0;  // of a number with a unit: how much in its base unit, and one of its unit
    std::vector<std::pair<Key, Letters>> parts;  // of "4 hours 10 minutes": the value of each, as written
    bool few = false;  // whether it is a word from one to ten
    bool adverb = false;  // whether it says how often in one word: "monthly"
    Py_ssize_t sign = -1;  // of a number without unit or a percentage: where its "-" or "minus" stands
    bool cents = false;
    long shift = 0;  // of an amount without a unit of measure: the powers of ten by its scale or unit
    bool attached = false;  // whether a unit follows it without a blank: "5kg"
    Letters single;  // how it is written as one word
    bool zoned = false;  // of a time whose zone is known: its minutes from UTC, and the time there
    long offset = 0, utc = 0;

    // What it is a value of: a unit, or a date, time and so on.
    const Letters& kind() const {
        const Key& first = keys[0];
        static const Letters time = U"time";
        static const Letters share = U"%";
        if (is_time()) return time;  // whether its half of the day is known or not
        if (first.is("fraction")) return share;
        return first.is("n") && first.parts.size() > 2 ? first.parts[2] : first.parts[0];
    }
    bool is_plain() const { return keys.size() == 1 && keys[0].parts.size() == 2 && keys[0].is("n"); }
    // Whether it is a percentage with a sign, and its value.
    bool is_below_zero() const { return sign >= 0 && keys[0].is("n") && kind() == U"%"; }
    Key below_zero() const { return Key{U"n", U"-" + keys[0].parts[1], U"%"}; }
    bool is_time() const { return keys[0].is("t") || keys[0].is("h"); }
    // A time without its zone.
    Letters clock() const {
        return zoned && keys[0].is("t") ? Key{keys[0].parts[0], keys[0].parts[1]}.whole() : keys[0].whole();
    }
    bool is_money() const { return keys[0].is("n") && keys[0].parts.size() > 2 && kind() != U"%" && !measured; }
};

inline Letters digits(unsigned __int128 value) {
    Letters out;
    do out.insert(out.begin(), U'0' + (char32_t)(value % 10)); while (value /= 10);
    return out;
}

inline long number_of(const Letters& text) {  // of the digits in it
    long out = 0;
    for (char32_t sign : text)
        if (is_decimal(sign)) out = 10 * out + Py_UNICODE_TODECIMAL(sign);
    return out;
}

inline bool all_decimal(const Letters& text) {
    for (char32_t sign : text) if (!is_decimal(sign)) return false;
    return !text.empty();
}

}  // namespace ragmeter
