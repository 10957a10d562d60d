// What numbers of an answer are of: the row of a table, or the year beside them in a sentence.
//
// "Sales were 31 in 2022 and 27 in 2023" is wrong of passages that have 27 for 2022 and 31 for 2023. A
// number is wrong only where passages have it of another row or year alone.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "slots.hpp"

namespace ragmeter {

class Records {
  public:
    // A number of an answer, and whether it is of what passages have it of.
    struct Found {
        Py_ssize_t start, end;
        bool right;
    };

    static std::vector<Found> find(const Text& text, const std::vector<const Text*>& passages) {
        std::vector<Found> out;
        std::unordered_map<Letters, Row> rows = read_rows(passages);
        Py_ssize_t size = 1;
        for (const Text* passage : passages) size += passage->size;
        Py_ssize_t searches = std::min(MOST_SEARCHES, MOST_READ / size);  // of passages for a number
        for (Py_ssize_t behind = 0;;) {  // the sentences that have a digit
            Py_ssize_t start = find_decimal(text, behind), end = start;
            if (end == text.size) break;
            while (start > behind && !Slots::is_edge(text, start - 1)) start--;
            while (end < text.size && !Slots::is_edge(text, end)) end++;
            const std::vector<Number> numbers = read_numbers(text, start, end);
            if (!rows.empty() && !numbers.empty()) compare_rows(text, start, end, numbers, rows, passages, searches, out);
            for (const auto& [number, year] : pair_years(numbers))
                if (searches-- > 0) compare_years(*number, *year, passages, out);
            behind = std::min(end + 1, text.size);
        }
        compare_lines(text, passages, searches, out);
        return out;
    }

  private:
    struct Number {
        Py_ssize_t start, end;
        Letters value;  // without the commas of thousands
        bool year;
    };
    typedef std::unordered_set<Letters> Row;  // the numbers beside a label
    typedef std::vector<std::pair<const Number*, const Number*>> Pairs;

    static constexpr Py_ssize_t MOST_SEARCHES = 50, MOST_READ = 20'000'000, REACH = 300;
    static constexpr int MOST_PLACES = 20, MOST_BLANKS = 5;
    static constexpr size_t MOST_ROWS = 300, MOST_NUMBERS = 40, LONGEST_LABEL = 40;

    static bool decimal_at(const Text& text, Py_ssize_t at) { return at >= 0 && at < text.size && is_decimal(text.at(at)); }

    // The numbers of [from, to) that are no part of a word; those of one digit and days of a month are left out.
    static std::vector<Number> read_numbers(const Text& text, Py_ssize_t from, Py_ssize_t to) {
        std::vector<Number> out;
        for (Py_ssize_t at = from; at < to && out.size() < MOST_NUMBERS;) {
            at = find_decimal(text, at, to);
            if (at == to) break;
            Number one{at, at, Letters(), false};
            bool plain = at == from || !is_word(text.at(at - 1));
            while (at < to && (is_word(text.at(at)) || ((text.at(at) == ',' || text.at(at) == '.') && decimal_at(text, at + 1) && decimal_at(text, at - 1)))) {
                const Py_UCS4 sign = text.at(at++);
                plain = plain && (is_decimal(sign) || sign == ',' || sign == '.');
                if (sign != ',') one.value.push_back((char32_t)sign);
            }
            one.end = at;
            if (!plain || one.value.size() < 2) continue;
            const bool whole = one.end - one.start == 4 && one.value.find(U'.') == Letters::npos;
            one.year = whole && (one.value.compare(0, 2, U"19") == 0 || one.value.compare(0, 2, U"20") == 0) && !is_amount(text, one);
            if (one.value.size() > 2 || !is_day(text, one)) out.push_back(std::move(one));
        }
        return out;
    }

    // Whether a currency stands before a number, or a percentage or hyphen behind it.
    static bool is_amount(const Text& text, const Number& one) {
        static const Letters before = U"$€£¥₹-–", behind = U"%-–°";
        return (one.start > 0 && before.find(text.at(one.start - 1)) != Letters::npos) ||
            (one.end < text.size && behind.find(text.at(one.end)) != Letters::npos);
    }

    // Whether a number stands beside the name of a month.
    static bool is_day(const Text& text, const Number& one) {
        static const std::unordered_set<Letters> months = {
            U"Jan", U"Feb", U"Mar", U"Apr", U"May", U"Jun", U"Jul", U"Aug", U"Sep", U"Oct", U"Nov", U"Dec"};
        auto begins_month = [&](Py_ssize_t at) { return at + 3 <= text.size && months.count(text.part(at, at + 3)); };
        if (one.end < text.size && text.at(one.end) == ' ' && begins_month(one.end + 1)) return true;
        Py_ssize_t at = one.start - 1;
        if (at < 1 || text.at(at) != ' ') return false;
        while (at > 0 && one.start - at < 12 && is_letter(text.at(at - 1))) at--;
        return begins_month(at);
    }

    // The numbers of a sentence with their years, where one follows the other throughout.
    static Pairs pair_years(const std::vector<Number>& numbers) {
        Pairs out;
        for (size_t at = 0; at + 1 < numbers.size(); at += 2) {
            const Number &first = numbers[at], &second = numbers[at + 1];
            if (first.year == second.year || first.year != numbers[0].year) return {};
            out.emplace_back(first.year ? &second : &first, first.year ? &first : &second);
        }
        if (numbers.size() % 2) out.clear();
        return out;
    }

    static void compare_years(const Number& number, const Number& year, const std::vector<const Text*>& passages, std::vector<Found>& out) {
        bool other = false, known = false;  // whether it is of another year, and whether passages have its year
        for (const Text* passage : passages) {
            if (!passage->size) continue;
            known = known || passage->find(year.value) >= 0;
            Py_ssize_t at = passage->find(number.value);
            if (number.end - number.start != (Py_ssize_t)number.value.size() || at < 0) at = find_grouped(*passage, number.value, 0);
            for (int places = 0; at >= 0; at = find_grouped(*passage, number.value, at + 1)) {
                if (++places > MOST_PLACES) return;
                Py_ssize_t start = at, end = at;
                while (start > 0 && at - start < REACH && !Slots::is_edge(*passage, start - 1)) start--;
                while (end < passage->size && end - at < REACH && !Slots::is_edge(*passage, end)) end++;
                const std::vector<Number> numbers = read_numbers(*passage, start, end);
                const Pairs pairs = pair_years(numbers);
                const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first->start == at; });
                if (found == pairs.end()) {
                    const bool stands = std::any_of(numbers.begin(), numbers.end(), [&](const Number& one) { return one.start == at && one.value == number.value; });
                    if (stands) return;  // of no year, or of any
                    continue;
                }
                if (found->first->value != number.value) continue;
                if (found->second->value == year.value) {
                    out.push_back({number.start, number.end, true});
                    return;
                }
                other = true;
            }
        }
        if (other && known) out.push_back({number.start, number.end, false});
    }

    // Where a number stands in a text, with commas or without, at or behind a place, or -1.
    static Py_ssize_t find_grouped(const Text& text, const Letters& value, Py_ssize_t from) {
        const size_t point = std::min(value.find(U'.'), value.size());
        Letters grouped = value;
        for (size_t at = point; at > 3; at -= 3) grouped.insert(at - 3, 1, U',');
        const Py_ssize_t one = text.find(value, from), other = grouped == value ? -1 : text.find(grouped, from);
        return one < 0 ? other : other < 0 ? one : std::min(one, other);
    }

    // The rows of tables by their first cell, in lower case: lines of at least two cells with "|" between.
    static std::unordered_map<Letters, Row> read_rows(const std::vector<const Text*>& passages) {
        std::unordered_map<Letters, Row> out;
        for (const Text* passage : passages) {
            if (!passage->size || passage->find(U"|") < 0) continue;
            for (Py_ssize_t start = 0; start < passage->size && out.size() < MOST_ROWS;) {
                Py_ssize_t end = std::max(start, passage->find(U"\n", start));
                if (end == start && passage->at(start) != '\n') end = passage->size;
                Py_ssize_t cell = start;
                while (cell < end && (passage->at(cell) == '|' || passage->at(cell) == ' ')) cell++;
                Py_ssize_t bar = cell;
                while (bar < end && passage->at(bar) != '|') bar++;
                Py_ssize_t last = bar;
                while (last > cell && passage->at(last - 1) == ' ') last--;
                if (bar < end && last > cell && last - cell < (Py_ssize_t)LONGEST_LABEL && is_word(passage->at(cell)))
                    for (const Number& one : read_numbers(*passage, bar, end)) out[lower(passage->part(cell, last))].insert(one.value);
                start = end + 1;
            }
        }
        if (out.size() < 2) out.clear();
        return out;
    }

    // A line of an answer that tells numbers of what it begins with: "| Basic | $10 |", "- Basic: $10".
    struct Line {
        Letters label;  // in lower case
        std::vector<Number> numbers;
    };

    static int count_blanks(const Text& text, Py_ssize_t start, Py_ssize_t end) {
        int blanks = 0;
        for (Py_ssize_t at = start + 1; at + 1 < end; at++)
            blanks += text.at(at) == ' ' && text.at(at + 1) != ' ' && text.at(at + 1) != '|';
        return blanks;
    }

    // Whether what stands behind a label are values and no clauses.
    static bool has_short_cells(const Text& text, Py_ssize_t at, Py_ssize_t end) {
        while (at < end) {
            Py_ssize_t last = at + 1;
            while (last < end && text.at(last) != '|') last++;
            if (count_blanks(text, at, last) > MOST_BLANKS) return false;
            at = last;
        }
        return true;
    }

    static std::vector<Line> read_lines(const Text& text) {
        static const Letters before = U"|-*\u2022\u2013 \t", signs = U" *_`";
        std::vector<Line> out;
        for (Py_ssize_t start = 0; start < text.size && out.size() < MOST_NUMBERS;) {
            Py_ssize_t end = start;
            while (end < text.size && text.at(end) != '\n') end++;
            Py_ssize_t first = start;
            while (first < end && before.find(text.at(first)) != Letters::npos) first++;
            Py_ssize_t last = first;
            while (last < end && last - first <= (Py_ssize_t)LONGEST_LABEL && text.at(last) != '|' && text.at(last) != ':') last++;
            if (last > first && last < end && last - first <= (Py_ssize_t)LONGEST_LABEL && is_letter(text.at(first))) {
                Line line{lower(text.part(first, last)), read_numbers(text, last, end)};
                line.label.erase(line.label.find_last_not_of(signs) + 1);
                if (line.label.size() > 2 && count_blanks(text, first, last) < 3 && !line.numbers.empty() && has_short_cells(text, last, end))
                    out.push_back(std::move(line));
            }
            start = end + 1;
        }
        return out;
    }

    // Compare the numbers of lines with sentences that name what two or more of the lines are of. A number is wrong
    // where every sentence of passages that has it tells it of another one.
    static void compare_lines(const Text& text, const std::vector<const Text*>& passages, Py_ssize_t& searches, std::vector<Found>& out) {
        std::vector<Line> lines = read_lines(text);
        if (lines.size() < 2) return;
        std::unordered_set<Letters> firsts, names;
        for (const Line& line : lines) firsts.insert(line.label.substr(0, line.label.find(U' ')));
        for (Line& line : lines) {  // "Basic plan" may be "the Basic subscription"
            if (firsts.size() == lines.size()) line.label.resize(std::min(line.label.size(), line.label.find(U' ')));
            names.insert(line.label);
        }
        if (names.size() < lines.size()) return;
        for (const Line& line : lines)
            for (const Number& number : line.numbers)
                if (searches-- > 0 && is_told_of_others(number, line, lines, passages)) out.push_back({number.start, number.end, false});
    }

    static bool is_told_of_others(const Number& number, const Line& line, const std::vector<Line>& lines, const std::vector<const Text*>& passages) {
        bool other = false;
        for (const Text* passage : passages) {
            int places = 0;
            for (Py_ssize_t at = passage->size ? find_grouped(*passage, number.value, 0) : -1; at >= 0; at = find_grouped(*passage, number.value, at + 1)) {
                if (++places > MOST_PLACES) return false;
                Py_ssize_t start = at, end = at;
                while (start > 0 && at - start < REACH && !Slots::is_edge(*passage, start - 1)) start--;
                while (end < passage->size && end - at < REACH && !Slots::is_edge(*passage, end)) end++;
                const std::vector<Number> numbers = read_numbers(*passage, start, end);
                if (std::none_of(numbers.begin(), numbers.end(), [&](const Number& one) { return one.start == at && one.value == number.value; })) continue;
                const Line* of = owner(lower(passage->part(start, end)), at - start, numbers, start, lines);
                if (!of || of == &line) return false;
                other = true;
            }
        }
        return other;
    }

    // Which of the lines a number of a sentence is of: the one named last before it, or next behind it where the sentence
    // begins with a number. Null where that is not clear.
    static const Line* owner(const Letters& sentence, Py_ssize_t at, const std::vector<Number>& numbers, Py_ssize_t from, const std::vector<Line>& lines) {
        std::vector<std::pair<Py_ssize_t, const Line*>> named;
        for (const Line& line : lines)
            for (size_t place = sentence.find(line.label); place != Letters::npos; place = sentence.find(line.label, place + 1)) {
                const size_t end = place + line.label.size();
                if ((place > 0 && is_word(sentence[place - 1])) || (end < sentence.size() && is_word(sentence[end]) && sentence[end] != 's')) continue;
                named.emplace_back((Py_ssize_t)place, &line);
            }
        if (named.empty()) return nullptr;
        std::sort(named.begin(), named.end());
        const bool leads = named[0].first < numbers[0].start - from;
        const Line* out = nullptr;
        for (size_t one = 0; one < named.size(); one++) {
            const size_t next = one + 1;
            if (next < named.size() && named[next].second != named[one].second) {  // "Basic and Pro cost"
                const bool apart = std::any_of(numbers.begin(), numbers.end(), [&](const Number& each) {
                    return each.start - from > named[one].first && each.start - from < named[next].first;
                });
                if (!apart) return nullptr;
            }
            if (leads && named[one].first < at) out = named[one].second;
            if (!leads && named[one].first > at && !out) out = named[one].second;
        }
        return out;
    }

    struct Label {
        Py_ssize_t start, end;
        const Row* row;
    };

    static std::vector<Label> find_labels(const Letters& sentence, Py_ssize_t start, const std::unordered_map<Letters, Row>& rows) {
        std::vector<Label> out;
        for (const auto& [label, row] : rows)
            for (size_t at = sentence.find(label); at != Letters::npos && out.size() < MOST_NUMBERS; at = sentence.find(label, at + 1)) {
                const size_t end = at + label.size();
                if ((at > 0 && is_word(sentence[at - 1])) || (end < sentence.size() && is_word(sentence[end]))) continue;
                out.push_back({start + (Py_ssize_t)at, start + (Py_ssize_t)end, &row});
            }
        std::sort(out.begin(), out.end(), [](const Label& one, const Label& other) { return one.start < other.start; });
        return out;
    }

    // Compare the numbers of a sentence with the rows that it names. Labels without a number of a table between
    // them are named together; a number is wrong where neither those before it have it nor those behind it.
    static void compare_rows(const Text& text, Py_ssize_t start, Py_ssize_t end, const std::vector<Number>& numbers,
                             const std::unordered_map<Letters, Row>& rows, const std::vector<const Text*>& passages,
                             Py_ssize_t& searches, std::vector<Found>& out) {
        const std::vector<Label> labels = find_labels(lower(text.part(start, end)), start, rows);
        if (labels.empty()) return;
        std::vector<const Number*> told;  // the numbers that rows have
        for (const Number& one : numbers) {
            const bool in_label = std::any_of(labels.begin(), labels.end(), [&](const Label& label) { return label.start <= one.start && one.end <= label.end; });
            const bool in_row = std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.second.count(one.value); });
            if (in_row && !in_label) told.push_back(&one);
        }
        for (const Number* one : told) {
            bool right = false, named = false;
            for (const bool before : {true, false}) {
                const Label* nearest = nullptr;
                for (const Label& label : labels) {
                    if (before ? label.start < one->start : label.start > one->start && !nearest) nearest = &label;
                }
                for (const Label& label : labels) {
                    if (!nearest || (label.start < one->start) != before) continue;
                    const Py_ssize_t from = std::min(label.start, nearest->start), to = std::max(label.start, nearest->start);
                    const bool apart = std::any_of(told.begin(), told.end(), [&](const Number* each) { return each->start > from && each->start < to; });
                    if (apart) continue;
                    named = true;
                    right = right || label.row->count(one->value);
                }
            }
            if (named && (right || (searches-- > 0 && !stands_outside(one->value, passages)))) out.push_back({one->start, one->end, right});
        }
    }

    // Whether passages have a number in a line that is no row.
    static bool stands_outside(const Letters& value, const std::vector<const Text*>& passages) {
        for (const Text* passage : passages) {
            Py_ssize_t at = passage->size ? find_grouped(*passage, value, 0) : -1;
            for (int places = 0; at >= 0; at = find_grouped(*passage, value, at + 1)) {
                if (++places > MOST_PLACES) return true;
                if (decimal_at(*passage, at - 1) || decimal_at(*passage, at + (Py_ssize_t)value.size())) continue;
                Py_ssize_t start = at, end = at;
                while (start > 0 && at - start < REACH && passage->at(start - 1) != '\n' && passage->at(start) != '|') start--;
                while (end < passage->size && end - at < REACH && passage->at(end) != '\n' && passage->at(end) != '|') end++;
                if (passage->at(start) != '|' && !(end < passage->size && passage->at(end) == '|')) return true;
            }
        }
        return false;
    }
};

}  // namespace ragmeter
