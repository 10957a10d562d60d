// Values of an answer that its passages have, but not there: "12 dollars a year" for "12 dollars a
// month", two values that were exchanged, five eggs for three, Tuesday for Monday.
//
// Each rule asks for the same words beside the value in a passage, and is silent where any passage
// has the value of the answer there: a paraphrase must not count as a mistake.
#pragma once

#include "context.hpp"
#include "measures.hpp"
#include "quantity.hpp"

namespace ragmeter {

class Misplaced {
  public:
    struct Place { Py_ssize_t start, end; };

    // What an answer has in other places than its passages.
    struct Found {
        std::vector<Place> wrong;  // values that are not those of the passages there
        std::vector<std::pair<Place, Letters>> same;  // periods and counts, as the passages write them
    };

    Misplaced(const Context& context, const Measures& measures)
        : context_(context), measures_(measures), period_(PERIOD, IGNORE_CASE), unit_(UNIT_BEHIND, IGNORE_CASE),
          count_("(?<![\\w.,'’-])(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\d{1,2}) [a-z]{4,}", IGNORE_CASE),
          to_("(?:\\W+to|\\W*[-–—])\\W*$", IGNORE_CASE) {
        for (int at = 0; at < PERIODS; at++) period_groups_[at] = period_.group(PERIOD_GROUPS[at]);
        period_all_ = period_.group("all");
    }

    Found find(const Text& text, const std::vector<Quantity>& items, const std::vector<const Text*>& passages) const {
        Found out;
        find_periods(text, items, passages, out);
        find_exchanged(text, items, passages, out.wrong);
        find_counts(text, items, passages, out);
        find_names(text, items, passages, out.wrong);
        return out;
    }

  private:
    static constexpr int PERIODS = 12;
    static constexpr const char* PERIOD_GROUPS[PERIODS] = {
        "second", "minute", "hour", "day", "week", "month", "year", "hourly", "daily", "weekly", "monthly", "yearly"};
    // Behind a number and at most two words: "12 dollars per seat and month" is none.
    static constexpr const char* PERIOD =
        "(?: ?[$€£¥₹%]| ?[^\\W\\d_]+){0,2}(?P<all>(?: ?/ ?| (?:per|an?|each|every) )(?:"
        "(?P<second>s|sec(?:ond)?)|(?P<minute>min(?:ute)?)|(?P<hour>h|hr|hour)|(?P<day>day|night)|(?P<week>w(?:ee)?k)"
        "|(?P<month>mo(?:nth)?)|(?P<year>yr|year|annum))\\b"
        "| (?:(?P<hourly>hourly)|(?P<daily>daily)|(?P<weekly>weekly)|(?P<monthly>monthly)|(?P<yearly>yearly|annually))\\b)";
    static constexpr const char* UNIT_BEHIND =
        "(?:[\\s-]?(?:hundred|thousand|million|billion|trillion|[kmb]|bn|mn)\\b)?(?:[\\s-]?(?:%|percent\\b|per cent\\b"
        "|dollars?\\b|cents?\\b|euros?\\b|pounds?\\b|yen\\b|rupees?\\b|[$€£¥₹]|" MEASURE "))?";
    static constexpr Py_ssize_t FARTHEST = 80;  // characters between two values of one statement
    static constexpr int MOST_PLACES = 50;  // of a value in one text: a hostile one has it a million times

    // Where a text has a value as it is written.
    static std::vector<Py_ssize_t> places_of(const Letters& raw, const Text& text) {
        std::vector<Py_ssize_t> out;
        for (Py_ssize_t at = Context::find(raw, text); at >= 0 && out.size() < MOST_PLACES; at = Context::find(raw, text, at + 1))
            out.push_back(at);
        return out;
    }

    // -- a rate of another period

    // The period of a rate behind a place, and where it is written; -1 if there is none.
    int period_behind(const Text& text, Py_ssize_t at, Place& written) const {
        Match match;
        if (!period_.match(text, at, match)) return -1;
        written = Place{match.start(period_all_), match.end(period_all_)};
        for (int period = 0; period < PERIODS; period++)
            if (match.has(period_groups_[period])) return period < 7 ? period : period - 5;
        return -1;
    }

    void find_periods(const Text& text, const std::vector<Quantity>& items,
                      const std::vector<const Text*>& passages, Found& out) const {
        for (const Quantity& item : items) {
            if (item.figure < 0 && !item.keys[0].is("times")) continue;
            if (item.kind().find(U'/') != Letters::npos) continue;  // a unit of its own: "km/h"
            Place value = value_of(item), written{0, 0}, there{0, 0};
            int mine = period_behind(text, value.end, written);
            if (mine < 0) continue;
            Letters raw = text.part(value.start, value.end), as;
            std::vector<Letters> beside = context_.beside(text, item.start, value.end);
            bool other = false, same = false;
            for (const Text* passage : passages)
                for (Py_ssize_t at : places_of(raw, *passage)) {
                    Py_ssize_t end = at + (Py_ssize_t)raw.size();
                    int their = period_behind(*passage, end, there);
                    if (their == mine && !same) as = passage->part(there.start, there.end);
                    same = same || their == mine;
                    other = other || (their >= 0 && Context::share_words(beside, context_.beside(*passage, at, end)));
                }
            if (same && as != text.part(written.start, written.end)) out.same.emplace_back(written, as);
            if (other && !same) out.wrong.push_back(value);
        }
    }

    // -- two values that were exchanged

    static Place value_of(const Quantity& item) {
        return item.figure >= 0 ? Place{item.figure, item.figure_end} : Place{item.start, item.end};
    }

    Py_ssize_t behind_unit(const Text& text, Py_ssize_t at) const {
        Match match;
        return unit_.match(text, at, match) ? match.end() : at;
    }

    // Whether a statement ends in [start, end).
    static bool is_broken(const Text& text, Py_ssize_t start, Py_ssize_t end) {
        for (Py_ssize_t at = start; at < end; at++) {
            Py_UCS4 sign = text.at(at);
            bool stops = sign == '.' || sign == '!' || sign == '?';
            if (sign == '\n' || (stops && at + 1 < end && Py_UNICODE_ISSPACE(text.at(at + 1)))) return true;
        }
        return false;
    }

    // What stands around two values: the stems between them, and the one before and behind both.
    struct Statement {
        std::vector<Letters> between;
        Letters before, behind;
        bool to = false;  // whether they are joined by "to"

        bool is_like(const Statement& other) const {
            bool outside = (!before.empty() && before == other.before) || (!behind.empty() && behind == other.behind);
            return between == other.between && to == other.to && outside;
        }
    };

    // Read what stands around a value over [start, end) and the next one; false if they are of two statements.
    bool read_statement(const Text& text, Py_ssize_t start, Py_ssize_t end, Place next, Statement& out) const {
        end = behind_unit(text, end);
        if (next.start < end || next.start - end > FARTHEST || is_broken(text, end, next.start)) return false;
        out.between = context_.stems(text, end, next.start);
        Match match;
        out.to = out.between.empty() && to_.match(text, end, match, next.start);
        if (out.between.empty() && !out.to) return false;  // a list, whose order says nothing
        std::vector<Letters> words = context_.stems(text, std::max<Py_ssize_t>(0, start - Context::REACH), start);
        if (!words.empty()) out.before = words.back();
        end = behind_unit(text, next.end);
        words = context_.stems(text, end, std::min(text.size, end + Context::REACH));
        if (!words.empty()) out.behind = words.front();
        return true;
    }

    // Whether a text states two values in this order in a statement like this.
    bool states(const Text& text, const Letters& first, const Letters& second, const Statement& like) const {
        for (Py_ssize_t at : places_of(first, text)) {
            Py_ssize_t end = at + (Py_ssize_t)first.size(), next = Context::find(second, text, end);
            if (next < 0) return false;
            Statement there;
            Place place{next, next + (Py_ssize_t)second.size()};
            if (read_statement(text, at, end, place, there) && like.is_like(there)) return true;
        }
        return false;
    }

    void find_exchanged(const Text& text, const std::vector<Quantity>& items,
                        const std::vector<const Text*>& passages, std::vector<Place>& out) const {
        for (size_t at = 0; at + 1 < items.size(); at++) {
            if (items[at].kind() != items[at + 1].kind()) continue;
            Place one = value_of(items[at]), other = value_of(items[at + 1]);
            Letters first = text.part(one.start, one.end), second = text.part(other.start, other.end);
            Statement mine;
            if (first == second || !read_statement(text, one.start, one.end, other, mine)) continue;
            bool exchanged = false, same = false;
            for (const Text* passage : passages) {
                same = same || states(*passage, first, second, mine);
                exchanged = exchanged || states(*passage, second, first, mine);
            }
            if (!exchanged || same) continue;
            out.push_back(one);
            out.push_back(other);
        }
    }

    // -- another small count of the same

    static long count_of(const Letters& word) {
        static const char32_t* const names[] = {
            U"two", U"three", U"four", U"five", U"six", U"seven", U"eight", U"nine", U"ten", U"eleven", U"twelve"};
        Letters low = lower(word);
        for (int at = 0; at < 11; at++) if (low == names[at]) return at + 2;
        return all_decimal(word) && word.size() < 3 ? number_of(word) : 0;
    }

    // The count that is nearest before a place, with at most two words between; 0 if there is none.
    static long count_before(const Text& text, Py_ssize_t at, Place& where) {
        for (int words = 0; words < 3 && at > 1 && text.at(at - 1) == ' '; words++) {
            where.end = at - 1;
            for (at = where.end; at > 0 && is_word(text.at(at - 1)); at--) {}
            where.start = at;
            if (at > 1 && !Py_UNICODE_ISSPACE(text.at(at - 1)) && is_word(text.at(at - 2))) return 0;  // "2.5", "twenty-two"
            if (long count = count_of(text.part(where.start, where.end))) return count;
        }
        return 0;
    }

    void find_counts(const Text& text, const std::vector<Quantity>& items,
                     const std::vector<const Text*>& passages, Found& out) const {
        Match match;
        int counts = 0;
        for (Py_ssize_t at = 0; counts < MOST_PLACES && count_.search(text, at, match); at = match.end(), counts++) {
            Py_ssize_t start = match.start(), blank = start;
            while (text.at(blank) != ' ') blank++;
            Letters thing = text.part(blank + 1, match.end()), stem = context_.stem(thing);
            long mine = count_of(text.part(start, blank));
            Measure unit;
            bool of_unit = stem.empty() || Py_UNICODE_ISUPPER(thing[0]) || measures_.find(thing, unit) || count_of(thing);
            for (const Quantity& item : items)
                of_unit = of_unit || (item.start < start && item.end > start) || (item.start <= start && item.end > blank);
            if (of_unit || mine < 2) continue;
            std::vector<Letters> beside = context_.beside(text, start, blank);
            Letters as;
            bool other = false, same = false;
            for (const Text* passage : passages)
                for (Py_ssize_t place : places_of(thing, *passage)) {
                    Place where{0, 0};
                    long their = count_before(*passage, place, where);
                    if (their == mine && !same) as = passage->part(where.start, where.end);
                    same = same || their == mine;
                    if (their < 2 || their == mine) continue;
                    other = other || Context::share_words(beside, context_.beside(*passage, where.start, where.end));
                }
            if (same && as != text.part(start, blank)) out.same.emplace_back(Place{start, blank}, as);
            if (other && !same) out.wrong.push_back({start, blank});
        }
    }

    // -- another weekday or month

    static bool is_within(const std::vector<Quantity>& items, Py_ssize_t at) {
        for (const Quantity& item : items) if (item.start <= at && item.end > at) return true;
        return false;
    }

    // Whether another name stands within 20 characters of [start, end), as in a range: "Monday to Friday".
    static bool is_of_range(const Text& text, Py_ssize_t start, Py_ssize_t end, const std::vector<Letters>& names) {
        Py_ssize_t from = std::max<Py_ssize_t>(0, start - 20), to = std::min(text.size, end + 20);
        const Text near((const char*)text.data + from * text.kind, text.kind, to - from);
        for (const Letters& name : names)
            for (Py_ssize_t at = near.find(name); at >= 0; at = near.find(name, at + 1))
                if (at != start - from) return true;
        return false;
    }

    void find_names(const Text& text, const std::vector<Quantity>& items,
                    const std::vector<const Text*>& passages, std::vector<Place>& out) const {
        static const std::vector<Letters> kinds[] = {
            {U"Monday", U"Tuesday", U"Wednesday", U"Thursday", U"Friday", U"Saturday", U"Sunday"},
            {U"January", U"February", U"March", U"April", U"May", U"June", U"July", U"August", U"September", U"October",
             U"November", U"December"}};
        for (const std::vector<Letters>& names : kinds)
            for (const Letters& name : names) {
                Py_ssize_t at = find_name(name, text, 0);
                if (at < 0 || is_within(items, at)) continue;
                Py_ssize_t end = at + (Py_ssize_t)name.size();
                bool known = false;
                for (const Text* passage : passages) known = known || passage->find(name) >= 0;
                if (known || is_of_range(text, at, end, names)) continue;
                std::vector<Letters> beside = context_.beside(text, at, end);
                if (beside.size() > 1 && has_another(name, names, text, beside, passages)) out.push_back({at, end});
            }
    }

    // Where a name stands as a word, or -1.
    static Py_ssize_t find_name(const Letters& name, const Text& text, Py_ssize_t from) {
        for (Py_ssize_t at = text.find(name, from); at >= 0; at = text.find(name, at + 1)) {
            Py_ssize_t end = at + (Py_ssize_t)name.size();
            if (end < text.size && text.at(end) == 's') end++;
            if ((at == 0 || !is_word(text.at(at - 1))) && (end >= text.size || !is_word(text.at(end)))) return at;
        }
        return -1;
    }

    bool has_another(const Letters& name, const std::vector<Letters>& names, const Text& text,
                     const std::vector<Letters>& beside, const std::vector<const Text*>& passages) const {
        bool found = false;
        for (const Text* passage : passages)
            for (const Letters& other : names) {
                if (other == name || text.find(other) >= 0) continue;
                int seen = 0;
                for (Py_ssize_t at = find_name(other, *passage, 0); at >= 0 && seen < MOST_PLACES;
                     at = find_name(other, *passage, at + 1), seen++) {
                    Py_ssize_t end = at + (Py_ssize_t)other.size();
                    if (is_of_range(*passage, at, end, names)) return false;
                    found = found || Context::share_words(beside, context_.beside(*passage, at, end));
                }
            }
        return found;
    }

    const Context& context_;
    const Measures& measures_;
    Pattern period_, unit_, count_, to_;
    int period_groups_[PERIODS], period_all_;
};

}  // namespace ragmeter
