// What the values of an answer are told of: "logs are kept 12 weeks, backups 14 days" where passages keep
// logs for 14 days and backups for 12 weeks, and "gained 1.4 percent" of shares that "closed 1.4 percent lower".
//
// A number belongs to the words of its clause, which other numbers, signs and conjunctions end. Numbers are
// exchanged where each stands beside words that passages have beside the other one alone.
#pragma once

#include <algorithm>
#include <vector>

#include "slots.hpp"

namespace ragmeter {

class Owners {
  public:
    struct Found { Py_ssize_t start, end; };

    Owners(const English& english, const Slots& slots) : english_(english), slots_(slots) {}

    // Which numbers of an answer passages have beside other words, or with the contrary of a change.
    std::vector<Found> find(const Text& text, const std::vector<Py_ssize_t>& numbers, const std::vector<const Text*>& passages) const {
        std::vector<Found> out;
        std::vector<Value> values = read_values(text, numbers);
        Py_ssize_t size = 1;
        for (const Text* passage : passages) size += passage->size;
        size_t doubtful = 0;
        if ((Py_ssize_t)values.size() * size > MOST_READ) return out;
        for (Value& value : values) {
            if (values.size() == 1 && !value.share) return out;
            text.visit([&](const auto& signs) { read_clause(signs, value.start, value.end, value.share, value.mine); });
            if (value.mine.words.empty()) continue;
            look(value, passages);
            doubtful += value.doubtful();
            if (is_contrary(value)) out.push_back({value.start, value.end});
        }
        if (doubtful > 1) find_exchanged(values, out);
        return out;
    }

  private:
    // The words beside a number, and which of its opposites say how it changes.
    struct Clause {
        std::vector<uint64_t> words;
        uint64_t sides = 0;

        bool has(uint64_t word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
    };

    struct Value {
        Py_ssize_t start, end;
        Letters written;
        Clause mine = {}, their = {};
        bool known = false;  // whether passages have the number
        bool share = false;  // whether it is a percentage

        // Whether a word stands beside it that passages have nowhere beside it.
        bool doubtful() const {
            return known && !std::all_of(mine.words.begin(), mine.words.end(), [&](uint64_t word) { return their.has(word); });
        }
    };

    static constexpr Py_ssize_t MOST_READ = 20'000'000, REACH = 60;  // characters
    static constexpr size_t MOST_VALUES = 24;
    static constexpr int MOST_PLACES = 6;
    static constexpr uint64_t SIDES = 0x5555555555555555ULL;  // the first of each two bits

    // The numbers at places of a text that are no part of a word.
    std::vector<Value> read_values(const Text& text, const std::vector<Py_ssize_t>& numbers) const {
        std::vector<Value> out;
        auto decimal = [&](Py_ssize_t place) { return place < text.size && is_decimal(text.at(place)); };
        for (const Py_ssize_t start : numbers) {
            Py_ssize_t end = start;
            while (decimal(end) || (end < text.size && is_joint(text.at(end)) && decimal(end + 1))) end++;
            if (end - start > 15 || out.size() == MOST_VALUES) continue;
            out.push_back({start, end, text.part(start, end)});
            out.back().share = is_share(text, end);
        }
        return out;
    }

    static bool is_share(const Text& text, Py_ssize_t end) {
        static const Letters name = U" per";  // "percent", "per cent"
        if (end < text.size && text.at(end) == '%') return true;
        if (end + 5 > text.size || text.at(end) != ' ') return false;
        return text.at(end + 1) == '%' || (text.stands(name, end) && (text.at(end + 4) == 'c' || text.at(end + 4) == ' '));
    }

    static bool is_joint(Py_UCS4 sign) { return sign == '.' || sign == ',' || sign == ':'; }

    // Read the clauses of passages that have the number of a value, until one has all its words.
    void look(Value& value, const std::vector<const Text*>& passages) const {
        int places = 0;
        for (const Text* passage : passages) {
            Py_ssize_t at = passage->size ? passage->find(value.written) : -1;
            for (; at >= 0 && places < MOST_PLACES; at = passage->find(value.written, at + 1)) {
                const Py_ssize_t end = at + (Py_ssize_t)value.written.size();
                if ((at > 0 && (is_word(passage->at(at - 1)) || (at > 1 && is_joint(passage->at(at - 1)) && is_decimal(passage->at(at - 2)))))) continue;
                if (end < passage->size && (is_word(passage->at(end)) || (is_joint(passage->at(end)) && end + 1 < passage->size && is_decimal(passage->at(end + 1))))) continue;
                value.known = true;
                places++;
                passage->visit([&](const auto& signs) { read_clause(signs, at, end, value.share, value.their); });
                if (!(value.share && value.mine.sides) && !value.doubtful()) return;
            }
        }
    }

    // Whether passages have a percentage with the contrary of what the answer says of it, and nowhere else.
    static bool is_contrary(const Value& value) {
        const uint64_t mine = value.mine.sides, swapped = ((mine & SIDES) << 1) | ((mine >> 1) & SIDES);
        // what has a unit may be told the other way round: "6 m taller than", "6 m shorter than"
        return value.share && mine && (mine & swapped) == 0 && (value.their.sides & swapped) && (value.their.sides & mine) == 0;
    }

    // Add the values that stand for each other in two or three.
    static void find_exchanged(const std::vector<Value>& values, std::vector<Found>& out) {
        const size_t count = values.size();
        std::vector<uint32_t> next(count, 0);
        for (size_t one = 0; one < count; one++)
            for (size_t other = 0; other < count; other++)
                if (one != other && stands_for(values[one], values[other])) next[one] |= 1U << other;
        auto reached = [&](uint32_t from) {
            uint32_t all = 0;
            for (size_t one = 0; one < count; one++)
                if (from >> one & 1) all |= next[one];
            return all;
        };
        for (size_t one = 0; one < count; one++) {
            const uint32_t second = reached(next[one]), third = reached(second);
            if ((second | third) >> one & 1) out.push_back({values[one].start, values[one].end});
        }
    }

    // Whether a value stands beside words that passages have beside another one, and beside none of its own.
    static bool stands_for(const Value& one, const Value& other) {
        if (!one.doubtful() || !other.doubtful() || one.written == other.written) return false;
        bool of_other = false;
        for (const uint64_t word : one.mine.words) {
            const bool own = one.their.has(word), others = other.their.has(word);
            if (own && !others) return false;
            of_other = of_other || (others && !own);
        }
        return of_other;
    }

    // Add the words on either side of [start, end), up to the end of the clause.
    template <class Source>
    void read_clause(const Source& text, Py_ssize_t start, Py_ssize_t end, bool share, Clause& out) const {
        const Py_ssize_t from = std::max<Py_ssize_t>(0, start - REACH), to = std::min(text.size, end + REACH);
        for (Py_ssize_t at = start; at > from;) {
            if (!is_letter(text.at(at - 1))) {
                if (ends_clause(text, --at)) break;
                continue;
            }
            Py_ssize_t first = at;
            while (first > from && is_letter(text.at(first - 1))) first--;
            if ((first == from && from > 0) || !add_word(text, first, at, false, share, out)) break;
            at = first;
        }
        bool is_unit = true;  // the word right behind a number goes where it goes
        for (Py_ssize_t at = end; at < to;) {
            if (!is_letter(text.at(at))) {
                if (text.at(at) == ':' || ends_clause(text, at++)) break;  // "Step 2: open it"
                continue;
            }
            Py_ssize_t last = at;
            while (last < to && is_letter(text.at(last))) last++;
            if ((last == to && to < text.size) || !add_word(text, at, last, is_unit, share, out)) break;
            is_unit = false;
            at = last;
        }
    }

    template <class Source>
    static bool ends_clause(const Source& text, Py_ssize_t at) {
        const Py_UCS4 sign = text.at(at);
        return sign == ',' || sign == ';' || sign == '|' || sign == '(' || sign == ')' || is_decimal(sign) || Slots::is_edge(text, at);
    }

    // Add a word that has a meaning; false where it begins a clause of its own.
    template <class Source>
    bool add_word(const Source& text, Py_ssize_t start, Py_ssize_t end, bool is_unit, bool share, Clause& out) const {
        static const uint64_t joints[] = {hash_of(U"and"), hash_of(U"or"), hash_of(U"but"), hash_of(U"while"), hash_of(U"whereas")};
        WordHash word;
        for (Py_ssize_t at = start; at < end; at++) word.add(lower_sign(text.at(at)));
        if (std::find(std::begin(joints), std::end(joints), word.value) != std::end(joints)) return false;
        const int side = share ? slots_.side_of(text, word.value, end) : -1;
        if (side >= 0) out.sides |= 1ULL << side;
        if (is_unit) return true;
        if (end == start + 1) {  // "Team A"
            const bool label = is_upper(text.at(start)) && start > 1 && text.at(start - 1) == ' ' && is_letter(text.at(start - 2));
            if (label) out.words.push_back(word.value);
        }
        else if (!english_.is_stop_word(word.value) && !out.has(word.value)) {
            out.words.push_back(word.value);
        }
        return true;
    }

    const English& english_;
    const Slots& slots_;
};

}  // namespace ragmeter
