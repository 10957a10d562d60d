// What stands at one place of statements that are worded alike: "at most five" in an answer where
// its passages have "at least five", "the last Monday" for "the first Monday", "fell by 12 percent"
// for "rose by 12 percent", exchanged values.
//
// A text is read as words and values. The place of a value is known by the tokens on either side of
// it; a value is wrong where passages have another one of its kind between the same tokens, and its
// own nowhere so.
#pragma once

#include <algorithm>
#include <map>
#include <unordered_set>

#include "english.hpp"
#include "measures.hpp"
#include "text.hpp"

namespace ragmeter {

class Slots {
  public:
    // A value of an answer: as passages write it there, or nothing if they have another one there.
    struct Found {
        Py_ssize_t start, end;
        Letters as;
    };

    Slots(const English& english, const Measures& measures) : english_(english), measures_(measures) {
        read_names();
        read_bounds();
        for (uint64_t word : {once_, twice_, thrice_}) add_kind(word, NUMBER);
        for (Kind kind : {ORDINAL, PERIOD}) add_kind(second_, kind);
    }

    // `numbers` gets where numbers in digits begin.
    std::vector<Found> find(const Text& text, const std::vector<const Text*>& passages, std::vector<Py_ssize_t>& numbers) const {
        std::vector<Found> out;
        Tokens tokens;
        text.visit([&](const auto& signs) { read(signs, 0, signs.size, tokens); });
        Py_ssize_t size = 1, slots = 0;
        for (const Text* passage : passages) size += passage->size;
        const Py_ssize_t most = std::min(MOST_SLOTS, MOST_READ / size);
        Search search{text, tokens, passages, MOST_WINDOWS};
        for (size_t at = 0; at < tokens.size() && slots < most; at++) {
            if (!is_value(tokens[at]) || (tokens[at].kind == OPPOSITE && !is_beside_number(tokens, at))) continue;
            slots++;
            compare(search, at, out);
        }
        for (const Token& token : tokens) {
            if ((token.kind == WORD || token.kind == OPPOSITE) && is_superlative(text, token) && slots++ < most && has_other_rank(text, token, passages))
                out.push_back({token.start, token.end, Letters()});
            if (token.kind != NUMBER || token.shared) continue;
            if (is_decimal(text.at(token.start))) numbers.push_back(token.start);
            if (!token.low || !is_decimal(text.at(token.end - 1))) continue;
            Py_ssize_t last = token.end;
            while (is_decimal(text.at(last - 1)) || text.at(last - 1) == '.' || text.at(last - 1) == ',') last--;
            numbers.push_back(last);
        }
        return out;
    }

    // Whether a sentence or line ends with the sign at a place.
    template <class Source>
    static bool is_edge(const Source& text, Py_ssize_t at) {
        Py_UCS4 sign = text.at(at);
        if (sign == '\n') return true;
        if (sign != '.' && sign != '!' && sign != '?') return false;
        if (at + 1 >= text.size) return true;
        return Py_UNICODE_ISSPACE(text.at(at + 1)) && !(at + 2 < text.size && is_lower(text.at(at + 2)));
    }

    // Whether [start, end) is a number whose last zero counts, as that of a version: "Python 3.10", "Section 4.20".
    template <class Source>
    static bool is_version(const Source& text, Py_ssize_t start, Py_ssize_t end) {
        static const std::unordered_set<Letters> labels = {U"version", U"versions", U"release", U"section", U"chapter", U"article", U"table", U"figure", U"kernel", U"firmware"};
        static const std::unordered_set<Letters> others = {
            U"about", U"around", U"over", U"under", U"nearly", U"only", U"roughly", U"approximately", U"from", U"with", U"costs", U"price", U"fee", U"total"};
        if (end - start < 4 || end - start > 7 || text.at(end - 1) != '0' || start < 2) return false;
        Py_ssize_t point = start;
        while (point < end && is_decimal(text.at(point))) point++;
        if (point == end || text.at(point) != '.' || end - point < 3) return false;
        for (Py_ssize_t at = point + 1; at < end; at++)
            if (!is_decimal(text.at(at))) return false;
        if (text.at(point + 1) == '0') return false;
        if (end < text.size && (text.at(end) == '%' || is_word(text.at(end)))) return false;
        if (lower_sign(text.at(start - 1)) == 'v') return !is_word(text.at(start - 2));
        if (text.at(start - 1) != ' ') return false;
        Py_ssize_t first = start - 1;
        while (first > 0 && start - first < 20 && (is_letter(text.at(first - 1)) || text.at(first - 1) == '.')) first--;  // "Node.js"
        if (first + 3 > start - 1) return false;
        const Letters word = lower(text.part(first, start - 1));
        if (labels.count(word)) return true;
        return is_upper(text.at(first)) && !is_upper(text.at(first + 1)) && !others.count(word);
    }

    // Which of two contrary words about an amount ends at a place, -1 if none: an even number, or the odd one behind it.
    template <class Source>
    int side_of(const Source& text, uint64_t word, Py_ssize_t end) const {
        const Name* name = names_.find(word);
        if (!name || name->kind != OPPOSITE || name->value >= 2 * amounts_) return -1;
        return !name->open || is_directed(text, end) ? (int)name->value : -1;
    }

  private:
    // `EDGE` is where a sentence, a line or the text begins or ends.
    enum Kind : uint8_t {
        WORD, EDGE, NUMBER, WEEKDAY, MONTH, ORDINAL, PERIOD, BOUND, COMPASS, CODE, FACTOR, CLOCK, MEASURED, OPPOSITE, DATE, LEFT_OUT
    };
    enum Bound : uint64_t { AT_LEAST, MORE, AT_MOST, LESS, NONE };

    struct Token {
        Py_ssize_t start, end;
        Kind kind;
        bool shared = false;  // whether another token has its place, too: "twice" are "two times"
        uint64_t value = 0;
        uint64_t low = 0, high = 0;  // of a range: the values from and up to
    };
    typedef std::vector<Token> Tokens;

    struct Search {
        const Text& text;
        const Tokens& tokens;
        const std::vector<const Text*>& passages;
        int windows;  // that may still be read
    };

    // Two texts of which tokens are compared.
    struct Pair {
        const Text& text;
        const Tokens& mine;
        const Text& passage;
        const Tokens& their;
    };

    // The best places for a value: the number of the same tokens beside it.
    struct Best {
        int own = 0, other = 0;
        int other_alike = 0;  // of another one of the same form
        int own_led = 0, other_led = 0;  // the same tokens before it, and before the other one where the sentence of the answer ends
        std::vector<uint64_t> other_near;  // the words beside the other one
        bool settled = false;  // whether passages have the value there
        bool labelled = false;  // whether they have it behind the same name: "week 10"
        const Text* other_in = nullptr;  // where the other one stands
        Py_ssize_t other_at = 0;
        bool own_beside = false, other_beside = false;  // whether it stands next to the same number
        Letters as;  // as it is written there
        uint64_t other_value = 0;  // the one that stands in place of it
    };

    static constexpr Py_ssize_t MOST_SLOTS = 200, MOST_READ = 20'000'000;  // slots, and characters of passages for them
    static constexpr int MOST_WINDOWS = 1000, MOST_PLACES = 50;
    static constexpr Py_ssize_t REACH = 90;  // characters beside a place that are looked at
    static constexpr int BESIDE = 3;  // tokens on either side that are compared
    static constexpr Py_ssize_t MOST_SIGNS = 40;  // of a word
    static constexpr int MOST_BETWEEN = 30;  // tokens up to the nearest number
    static constexpr int MOST_MIXED = 60;
    static constexpr int LEAST = 4;  // tokens that are the same beside another value

    // -- tokens

    struct Name {
        Kind kind = WORD;
        uint64_t value = 0;
        bool capital = false;  // whether it is one only with a capital letter: "May"
        bool label = false;  // whether the number behind it is its name: "week 10"
        bool open = false;  // whether it is one only before a number, "from", "by" or "on"
    };

    struct BoundName {
        Letters words;
        Bound value;
        bool trails;  // whether it stands behind its number: "or less"
        char32_t before;  // '#' of what is one only before a number, '@' only before a date or time, '$' before a number that begins no range
    };

    void read_names() {
        static const struct { Kind kind; const char* words; } rows[] = {  // the first one is the value
            {NUMBER, "1,one"}, {NUMBER, "2,two"}, {NUMBER, "3,three"}, {NUMBER, "4,four"}, {NUMBER, "5,five"}, {NUMBER, "6,six"},
            {NUMBER, "7,seven"}, {NUMBER, "8,eight"}, {NUMBER, "9,nine"}, {NUMBER, "10,ten"}, {NUMBER, "11,eleven"},
            {NUMBER, "12,twelve"}, {NUMBER, "13,thirteen"}, {NUMBER, "14,fourteen"}, {NUMBER, "15,fifteen"},
            {NUMBER, "16,sixteen"}, {NUMBER, "17,seventeen"}, {NUMBER, "18,eighteen"}, {NUMBER, "19,nineteen"},
            {NUMBER, "20,twenty"}, {NUMBER, "30,thirty"}, {NUMBER, "40,forty"}, {NUMBER, "50,fifty"}, {NUMBER, "60,sixty"},
            {NUMBER, "70,seventy"}, {NUMBER, "80,eighty"}, {NUMBER, "90,ninety"}, {NUMBER, "0.5,half"}, {NUMBER, "0.25,quarter,quarters"},
            {WEEKDAY, "Monday,Mondays,Mon"}, {WEEKDAY, "Tuesday,Tuesdays,Tue,Tues"}, {WEEKDAY, "Wednesday,Wednesdays,Wed"},
            {WEEKDAY, "Thursday,Thursdays,Thu,Thur,Thurs"}, {WEEKDAY, "Friday,Fridays,Fri"}, {WEEKDAY, "Saturday,Saturdays,Sat"},
            {WEEKDAY, "Sunday,Sundays,Sun"},
            {MONTH, "January,Jan"}, {MONTH, "February,Feb"}, {MONTH, "March,Mar"}, {MONTH, "April,Apr"}, {MONTH, "May"},
            {MONTH, "June,Jun"}, {MONTH, "July,Jul"}, {MONTH, "August,Aug"}, {MONTH, "September,Sep,Sept"},
            {MONTH, "October,Oct"}, {MONTH, "November,Nov"}, {MONTH, "December,Dec"},
            {ORDINAL, "1,first"}, {ORDINAL, "2,second"}, {ORDINAL, "3,third"}, {ORDINAL, "4,fourth"}, {ORDINAL, "5,fifth"},
            {ORDINAL, "6,sixth"}, {ORDINAL, "7,seventh"}, {ORDINAL, "8,eighth"}, {ORDINAL, "9,ninth"}, {ORDINAL, "10,tenth"},
            {ORDINAL, "11,eleventh"}, {ORDINAL, "12,twelfth"}, {ORDINAL, "last"},
            {PERIOD, "second,seconds"}, {PERIOD, "minute,minutes,min,mins"}, {PERIOD, "hour,hours,hourly,hr,hrs"}, {PERIOD, "day,days,daily"},
            {PERIOD, "week,weeks,weekly"}, {PERIOD, "month,months,monthly"}, {PERIOD, "year,years,yearly,annually"},
            {COMPASS, "north,northern,northerly"}, {COMPASS, "south,southern,southerly"}, {COMPASS, "east,eastern,easterly"},
            {COMPASS, "west,western,westerly"}, {COMPASS, "northeast,northeastern,northeasterly"},
            {COMPASS, "northwest,northwestern,northwesterly"}, {COMPASS, "southeast,southeastern,southeasterly"},
            {COMPASS, "southwest,southwestern,southwesterly"},
            {MEASURED, "dollar,dollars,usd"}, {MEASURED, "euro,euros,eur"}, {MEASURED, "gbp"}, {MEASURED, "cent,cents,ct"},
            {MEASURED, "masslb,pound,pounds"}, {MEASURED, "thousand"}, {MEASURED, "million,mn"}, {MEASURED, "billion,bn"},
            {MEASURED, "trillion,tn"},
            {FACTOR, "2,double,doubled,doubles,twofold"}, {FACTOR, "3,triple,tripled,triples,threefold"},
            {FACTOR, "4,quadruple,quadrupled,fourfold"}, {FACTOR, "1/2,halved,halves"},
            {CLOCK, "12:00,noon,midday"}, {CLOCK, "0:00,midnight"}, {ORDINAL, "3,thirds"}, {ORDINAL, "5,fifths"}, {ORDINAL, "6,sixths"}, {ORDINAL, "8,eighths"}, {ORDINAL, "10,tenths"},
            {LEFT_OUT, "minus,every,percent,pct,m,k,b,t,othervalue,othernumber"},
        };
        for (const auto& row : rows) {
            const uint64_t value = hash_of(letters(row.words).substr(0, letters(row.words).find(U',')));
            each_of(row.words, [&](const Letters& word) {
                if (word == U"second") return;  // may be a period
                names_[hash_of(word)] = Name{row.kind, value, is_upper(word[0]), false};
                add_kind(hash_of(word), row.kind);
            });
        }
        for (const auto& one : rated()) add_kind(hash_of(one.first), PERIOD);
        read_opposites();
        for (int whole = 0; whole <= MOST_MIXED; whole++) {
            Letters digits = letters(std::to_string(whole).c_str());
            for (const char32_t* part : {U"5", U"25", U"75"})
                mixed_[{hash_of(digits), hash_of(Letters(U"0.") + part)}] = hash_of(digits + U"." + part);
        }
        mixed_[{hash_of(U"3"), hash_of(U"0.25")}] = hash_of(U"0.75");  // "three quarters"
        for (int number = 2; number < 40; number++) {  // "Henry VIII" is "Henry the eighth"
            static const char32_t* const units[] = {U"", U"i", U"ii", U"iii", U"iv", U"v", U"vi", U"vii", U"viii", U"ix"};
            const Letters roman = Letters((size_t)number / 10, U'x') + units[number % 10];
            if (roman.size() < 2) continue;
            names_[hash_of(roman)] = Name{ORDINAL, hash_of(letters(std::to_string(number).c_str())), true};
            add_kind(hash_of(roman), ORDINAL);
        }
        const std::pair<const char32_t*, const char32_t*> points[] = {
            {U"n", U"north"}, {U"s", U"south"}, {U"e", U"east"}, {U"w", U"west"},
            {U"ne", U"northeast"}, {U"nw", U"northwest"}, {U"se", U"southeast"}, {U"sw", U"southwest"}};
        for (const auto& [letter, point] : points) {
            names_[hash_of(letter)] = Name{COMPASS, hash_of(point), true, false};
            add_kind(hash_of(letter), COMPASS);
        }
        each_of("week,room,chapter,section,article,page,step,level,phase,season,episode,round,part,figure,table,grade,type,passage",
                [&](const Letters& word) {
                    Name& name = names_[hash_of(word)];
                    name.label = true;
                    if (name.kind == WORD) name.value = hash_of(word);
                    add_kind(hash_of(word), name.kind);
                });
    }

    // Words of which one says the contrary of the other beside the same number. They have an even value, and the odd one behind it.
    void read_opposites() {
        static const char* const pairs[][2] = {  // first those about amounts, which a number has wherever it stands
            {"rose,rise,rises,risen,rising,increase,increased,increases,increasing,grew,grow,grows,grown,growth,climbed,climb,climbs"
             ",gained,gain,gains,raise,raised,raises,jumped,surged,soared,advanced,expanded,expands,strengthened,appreciated,higher,upper,up#",
             "fell,falls,fallen,falling,decrease,decreased,decreases,decreasing,declined,decline,declines,dropped,lost,lowered,lowers"
             ",reduced,reduces,reduction,cut,cuts,shrank,sank,plunged,plummeted,slipped,slumped,tumbled,contracted,contracts,weakened,depreciated,lower,down#"},
            {"minimum,lowest,smallest", "maximum,highest,largest,greatest,biggest"},
            {"longer,longest,taller,tallest", "shorter,shortest"}, {"older,oldest,elder", "younger,youngest,newer"},
            {"cheaper", "dearer"}, {"heavier,heaviest", "lighter,lightest"}, {"faster,fastest,quicker", "slower,slowest"},
            {"wider,widest,deeper,deepest", "narrower,narrowest,shallower,shallowest"}, {"warmer,warmest,hotter,hottest", "colder,coldest,cooler,coolest"},
            {"stronger,strongest", "weaker,weakest"}, {"richer,richest", "poorer,poorest"},
            {"bought,buys,buy", "sold,sells,sell"}, {"imports,imported,import", "exports,exported,export"},
            {"surplus,profit,profits", "deficit,loss,losses"}, {"highs", "lows"},
            {"before", "after"}, {"earlier,earliest", "later,latest"}, {"above", "below"}, {"more", "less,fewer"},
            {"including,includes,inclusive", "excluding,excludes,exclusive"},
            {"major", "minor"}, {"inside,indoors", "outside,outdoors"}, {"opens,opened,open", "closes,closed,close"},
            {"begins,began,begin,starts,started,start", "ends,ended,end"}, {"departs,departed,depart", "arrives,arrived,arrive"},
            {"business,working", "calendar"},
        };
        uint64_t value = 0;
        for (const auto& pair : pairs)
            for (const char* side : pair) {
                each_of(side, [&](Letters word) {
                    const bool open = word.back() == '#';  // only before what it is up or down to or by
                    if (open) word.pop_back();
                    Name& name = names_[hash_of(word)];
                    if (name.kind == WORD) name = Name{OPPOSITE, value, false, name.label, open};
                    add_kind(hash_of(word), OPPOSITE);
                });
                value++;
            }
    }

    // By their first word. A name that ends in "#" is one only before a number, in "@" before a date; those of `NONE` are left out.
    void read_bounds() {
        static const struct { Bound value; const char* names; } rows[] = {
            {AT_LEAST, "at least,no fewer than,no less than,not less than,not fewer than,not under,a minimum of,no earlier than"
                       ",no smaller than,no lower than,no shorter than,not below,starting from@,from@,from$,not before,not earlier than,or more,or later,or newer,or higher,or above,and over,and above,or over,or heavier,or longer,or larger,or bigger,or greater,or upwards,and upwards,upwards,and up,and older"},
            {AT_MOST, "at most,no more than,no later than,not more than,not later than,not exceeding,not exceed,never exceeds"
                      ",never exceed,a maximum of,no longer than,not longer than,no larger than,not larger than,no bigger than,no greater than,no higher than,not above,not over,or less,or fewer,or earlier,or below"
                      ",or under,or older,or younger,and younger,and under,or lighter,or shorter,or smaller,or lower,and below,limited to#,up to#,within#,until#,by@"},
            {MORE, "more than,greater than,older than,longer than,later than,larger than,taller than,over#,above#,after#,exceed#,exceeds#"
                   ",exceeding#,beyond#,since#"},
            {LESS, "less than,fewer than,younger than,shorter than,earlier than,smaller than,under#,below#,before#,prior to#"},
            {NONE, "percentage point,percentage points,per cent,basis point,basis points"},
        };
        for (const auto& row : rows) each_of(row.names, [&](Letters name) {
            const char32_t before = name.back() == '#' || name.back() == '@' || name.back() == '$' ? name.back() : 0;
            if (before) name.pop_back();
            bounds_[hash_of(name.substr(0, name.find(U' ')))].push_back({name, row.value, name.compare(0, 3, U"or ") == 0 || name.compare(0, 4, U"and ") == 0 || name.find(U"wards") != Letters::npos, before});
            each_of(name, U' ', [&](const Letters& word) { add_kind(hash_of(word), BOUND); });
        });
        each_of("be,have,fall,drop,sink,go,dip,rise,climb,get,run,last,weigh,cost,take,contain,use,measure,ever,stay,stays,stayed,remain,remains,remained,keep,kept", [&](const Letters& word) {
            verbs_[hash_of(word)] = true;
            add_kind(hash_of(word), BOUND);
        });
    }

    void add_kind(uint64_t word, Kind kind) { kinds_[word] |= 1U << kind; }

    template <class Call> static void each_of(const char* list, Call call) { each_of(letters(list), U',', call); }
    template <class Call> static void each_of(const Letters& names, char32_t between, Call call) {
        for (size_t at = 0; at <= names.size();) {
            size_t end = std::min(names.find(between, at), names.size());
            call(names.substr(at, end - at));
            at = end + 1;
        }
    }

    template <class Source>
    static bool decimal_at(const Source& text, Py_ssize_t at) { return at < text.size && is_decimal(text.at(at)); }

    // Read the tokens of [from, to); what begins before `from` is left out.
    template <class Source>
    void read(const Source& text, Py_ssize_t from, Py_ssize_t to, Tokens& out) const {
        for (Py_ssize_t at = begin(text, from, to, out); at < to;) at = read_next(text, at, to, out);
        end(text, to, out);
    }

    template <class Source>
    static Py_ssize_t begin(const Source& text, Py_ssize_t from, Py_ssize_t to, Tokens& out) {
        if (from == 0) out.push_back({0, 0, EDGE});
        else if (is_word(text.at(from - 1)))
            while (from < to && is_word(text.at(from))) from++;
        return from;
    }

    template <class Source>
    static void end(const Source& text, Py_ssize_t to, Tokens& out) {
        if (to == text.size && (out.empty() || out.back().kind != EDGE)) out.push_back({to, to, EDGE});
    }

    // Read what stands at a place, which may be no token; returned is where it ends.
    template <class Source>
    Py_ssize_t read_next(const Source& text, Py_ssize_t at, Py_ssize_t to, Tokens& out) const {
        Py_UCS4 sign = text.at(at);
        if (!is_word(sign)) {
            if (is_edge(text, at) && !out.empty() && out.back().kind != EDGE) {
                bool short_form = sign == '.' && (out.back().kind == MONTH || out.back().kind == WEEKDAY) && at + 2 < text.size;
                if (!short_form) out.push_back({at, at + 1, EDGE});
            }
            return at + 1;
        }
        if (is_decimal(sign)) {
            if (Py_ssize_t behind = read_marker(text, at, out.empty() || out.back().kind == EDGE)) return behind;
            at = read_number(text, at, to, out);
        } else {
            at = read_word(text, at, to, out);
        }
        if (!out.empty() && (out.back().kind == NUMBER || out.back().kind == MONTH || out.back().kind == WEEKDAY)) {
            join(text, out);
            join_bounds(text, out);
            join_date(text, out);
        } else if (!out.empty() && (is_unit(out.back(), true) || is_degree(text, out.back()))) {
            join_measured(text, out);
        }
        return at;
    }

    // Where the number of an item of a list ends, or one in brackets: "2.", "**2.**", "(2)", "| 2 |"; 0 if it is none.
    template <class Source>
    static Py_ssize_t read_marker(const Source& text, Py_ssize_t at, bool first) {
        Py_ssize_t end = at + 1 + decimal_at(text, at + 1);
        Py_UCS4 before = at > 0 ? text.at(at - 1) : 0, behind = end < text.size ? text.at(end) : 0;
        if (before == '(' && behind == ')') return at > 1 && is_word(text.at(at - 2)) ? 0 : end;  // but "12(3)"
        if (!first || !behind || is_word(behind)) return 0;
        if (behind == ' ') return end + 1 < text.size && text.at(end + 1) == '|' ? end : 0;
        bool ends = behind == '.' || behind == ')' || behind == ':' || behind == '*';
        return ends && !decimal_at(text, end + 1) ? end : 0;
    }

    // Read a fraction of one digit each way: "1/2". Returned is where it ends, 0 if there is none.
    template <class Source>
    static Py_ssize_t read_fraction(const Source& text, Py_ssize_t at, Tokens& out) {
        const Py_ssize_t end = at + 3;
        if (end > text.size || text.at(at + 1) != '/' || !decimal_at(text, at + 2)) return 0;
        if ((at > 0 && (text.at(at - 1) == '/' || text.at(at - 1) == '.')) || (end < text.size && (is_word(text.at(end)) || text.at(end) == '/'))) return 0;
        Letters written = text.part(at, end);
        if (written[0] >= written[2]) return 0;
        if (written == U"1/2") written = U"0.5";
        if (written == U"1/4") written = U"0.25";
        if (written == U"3/4") written = U"0.75";
        out.push_back({at, end, NUMBER, false, hash_of(written)});
        return end;
    }

    template <class Source>
    static Py_ssize_t read_number(const Source& text, Py_ssize_t at, Py_ssize_t to, Tokens& out) {
        if (const Py_ssize_t end = read_fraction(text, at, out)) return end;
        Token token{at, at, NUMBER};
        char digits[32];
        size_t size = 0;
        bool point = false;
        while (at < to && size < sizeof digits) {
            Py_UCS4 sign = text.at(at);
            if (is_decimal(sign)) {
                digits[size++] = (char)('0' + Py_UNICODE_TODECIMAL(sign));
            } else if ((sign == '.' || sign == ':') && decimal_at(text, at + 1)) {
                if (sign == ':') token.kind = CLOCK;
                point = point || sign == '.';
                digits[size++] = (char)sign;
            } else if (sign != ',' || !decimal_at(text, at + 1) || !decimal_at(text, at + 2) || !decimal_at(text, at + 3)) {
                break;
            }
            at++;
        }
        const bool version = point && digits[size - 1] == '0' && is_version(text, token.start, at);
        while (point && !version && (digits[size - 1] == '0' || digits[size - 1] == '.')) point = digits[--size] != '.';  // "2.50", "2.14.0"
        WordHash value;
        if (const Py_ssize_t sign = find_minus(text, token.start, out); sign < token.start) {
            token.start = sign;
            value.add('-');
        }
        for (size_t digit = 0; digit < size; digit++) value.add(digits[digit]);
        token.value = value.value;
        if (at + 1 < to && is_letter(text.at(at)) && !(at + 2 < text.size && is_word(text.at(at + 2)))) {
            Py_UCS4 one = lower_sign(text.at(at)), two = lower_sign(text.at(at + 1));
            if ((one == 's' && two == 't') || (one == 'n' && two == 'd') || (one == 'r' && two == 'd') || (one == 't' && two == 'h')) {
                token.kind = ORDINAL;
                at += 2;
            }
        }
        token.end = at;
        out.push_back(token);
        return at;
    }

    // Where the sign of a number below zero stands, or else the number: "-128", "minus 128", but not "9 -12" and "-5" at the begin of a line.
    template <class Source>
    static Py_ssize_t find_minus(const Source& text, Py_ssize_t at, const Tokens& out) {
        static const LettersView word = U"minus ", other = U"negative ";
        if (at < 2) return at;
        const Py_UCS4 sign = text.at(at - 1), before = text.at(at - 2);
        if (sign == ' ') {
            if (before != 's' && before != 'e') return at;
            const LettersView written = before == 's' ? word : other;
            const Py_ssize_t start = at - (Py_ssize_t)written.size();
            return start >= 0 && lower_sign(text.at(start)) == written[0] && stands(text, written, start) ? start : at;
        }
        if ((sign != '-' && sign != 0x2212) || (before != ' ' && before != '(')) return at;
        const bool behind_number = !out.empty() && out.back().kind == NUMBER && out.back().end == at - 2;
        const bool begins_line = at < 3 || text.at(at - 3) == '\n' || text.at(at - 3) == ' ';
        return behind_number || (begins_line && before == ' ') ? at : at - 1;
    }

    // Where the number behind " x " or "×" begins; the same place if there is none.
    template <class Source>
    static Py_ssize_t skip_by(const Source& text, Py_ssize_t at) {
        Py_ssize_t next = at;
        if (text.at(next) == ' ') next++;
        if (next >= text.size || (text.at(next) != 'x' && text.at(next) != 0xD7)) return at;
        next++;
        if (next < text.size && text.at(next) == ' ') next++;
        return decimal_at(text, next) ? next : at;
    }

    // Where a code as "AX-4471-B" ends; its begin if it is none.
    template <class Source>
    static Py_ssize_t read_code(const Source& text, Py_ssize_t at, Py_ssize_t to, WordHash& value) {
        bool has_digit = false;
        Py_ssize_t end = at;
        for (; end < to && end - at < MOST_SIGNS; end++) {
            Py_UCS4 sign = text.at(end);
            if (sign == '-' && end + 1 < to && is_word(text.at(end + 1))) continue;
            const Py_ssize_t by = has_digit ? skip_by(text, end) : end;  // "M8 x 40" is "M8x40"
            if (by > end) {
                value.add('x');
                end = by - 1;
                continue;
            }
            if (!is_word(sign)) break;
            has_digit = has_digit || is_decimal(sign);
            value.add(lower_sign(sign));
        }
        return has_digit ? end : at;
    }

    // Where a word at a place ends.
    template <class Source>
    static Py_ssize_t read_hash(const Source& text, Py_ssize_t at, Py_ssize_t to, WordHash& out) {
        for (; at < to; at++) {
            Py_UCS4 low = in_word(text.at(at));
            if (!low) break;
            out.add(low);
        }
        return at;
    }

    template <class Source>
    Py_ssize_t read_word(const Source& text, Py_ssize_t at, Py_ssize_t to, Tokens& out) const {
        bool capital = is_upper(text.at(at));
        if (capital) {
            WordHash code;
            Py_ssize_t end = read_code(text, at, to, code);
            if (end > at) {
                out.push_back({at, end, CODE, false, code.value});
                return end;
            }
        }
        WordHash hash;
        Py_ssize_t end = read_hash(text, at, to, hash);
        const uint32_t* known = kinds_.find(hash.value);  // most words are not
        if (const auto* bounds = known ? bounds_.find(hash.value) : nullptr)
            if (Py_ssize_t bound = read_bound(text, at, *bounds, out)) return bound;
        const bool counted = !out.empty() && out.back().kind == NUMBER && (at - out.back().end < 2 + (at > 1 && text.at(at - 1) == 0xB0) || is_part_of(text, out.back().end, at));
        if (end == at + 1) {
            if (const Py_ssize_t behind = read_letter(text, at, to, capital, hash, out)) return behind;
        } else if (text.at(at) == 'p' && !out.empty() && out.back().kind == NUMBER && is_paragraph(text, at, end, out)) {
            return end;
        }
        if (!counted && end - at < 15 && hash.value != second_ && is_rated(text, at) && !names_.find(hash.value)) {
            Measure unit;
            if (const Py_ssize_t behind = find_unit(text, at, end, unit)) {
                out.push_back({at, behind, MEASURED, false, hash_of(unit.kind + unit.name)});
                return behind;
            }
        }
        if ((!known || *known >> PERIOD & 1) && is_rate(text, at) && end - at < 15 && !english_.is_stop_word(hash.value) && (!known || rated().count(lower(text.part(at, end))))) {
            out.push_back({at, end, PERIOD, false, rated_by(lower(text.part(at, end)))});
        } else if (!known) {
            read_plain_word(text, at, end, hash.value, counted, out);
        } else if (hash.value == once_ || hash.value == twice_ || hash.value == thrice_) {
            out.push_back({at, end, NUMBER, true, counts_[hash.value == once_ ? 0 : hash.value == twice_ ? 1 : 2]});
            out.push_back({at, end, WORD, true, times_});
        } else if (hash.value == second_) {
            out.push_back({at, end, counted || is_behind_rate(text, at) ? PERIOD : ORDINAL, false, counts_[1]});
        } else if (counted && end - at == 1 && text.at(at) == 's') {
            out.push_back({at, end, MEASURED, false, hash_of(U"durations")});
        } else if (const Name* name = find_name(hash.value, capital, counted || is_rated(text, at)); name && (!name->open || is_directed(text, end)) && (!name->capital || name->kind != ORDINAL || is_roman(text, at, out))) {
            const bool gone = name->open && !out.empty() && out.back().kind == WORD && goes(text, out.back(), at);
            if (gone) {  // "went up by"
                at = out.back().start;
                out.pop_back();
            }
            const bool rises = name->kind == FACTOR && !out.empty() && out.back().kind == OPPOSITE && out.back().value == 0 && out.back().end + 1 == at;
            if (rises) {  // "rose threefold" is "tripled"
                at = out.back().start;
                out.pop_back();
            }
            const bool counts = name->kind == ORDINAL && name->capital && is_named(text, at, out);  // "chapter IV" is "chapter 4"
            if (counts) out.push_back({at, end, NUMBER, false, name->value});
            else if (name->kind != LEFT_OUT) out.push_back({at, end, name->kind, name->open && !gone, name->value});
        } else {
            read_plain_word(text, at, end, hash.value, counted, out);
        }
        return end;
    }

    // Read a single letter that names something, alone or with the number behind it; returned is where that ends, 0 if it names nothing.
    template <class Source>
    [[gnu::noinline]] static Py_ssize_t read_letter(const Source& text, Py_ssize_t at, Py_ssize_t to, bool capital, WordHash hash, Tokens& out) {
        Py_ssize_t end = at + 1;
        if (!capital || !is_behind_label(text, at, out)) {
            const Py_ssize_t behind = capital ? read_part_number(text, end, to, hash) : 0;
            if (behind == 0 && !is_subsection(text, at)) return 0;
            end = std::max(end, behind);
        }
        out.push_back({at, end, CODE, false, hash.value});
        return end;
    }

    // Where the number behind a letter ends that makes one name with it, as "C 117" for "C117"; 0 if there is none.
    template <class Source>
    static Py_ssize_t read_part_number(const Source& text, Py_ssize_t at, Py_ssize_t to, WordHash& value) {
        if (at + 3 > to || text.at(at) != ' ' || !decimal_at(text, at + 1) || !decimal_at(text, at + 2)) return 0;
        Py_ssize_t end = at + 1;
        while (end < to && is_decimal(text.at(end))) end++;
        if (end - at > 7 || (end < text.size && (is_word(text.at(end)) || text.at(end) == '%')) || decimal_at(text, end + 1)) return 0;
        for (Py_ssize_t digit = at + 1; digit < end; digit++) value.add(text.at(digit));
        return end;
    }

    // Whether the word right before a place is one that numbers name things behind: "chapter".
    template <class Source>
    bool is_named(const Source& text, Py_ssize_t at, const Tokens& out) const {
        if (out.empty() || out.back().end + 1 != at || out.back().end - out.back().start > 9) return false;
        const Name* name = names_.find(hash_of(lower(text.part(out.back().start, out.back().end))));
        return name && name->label;
    }

    // Whether a letter names a part of a section: "12(3)(b)".
    template <class Source>
    static bool is_subsection(const Source& text, Py_ssize_t at) {
        if (at < 2 || at + 1 >= text.size || text.at(at - 1) != '(' || text.at(at + 1) != ')') return false;
        return is_decimal(text.at(at - 2)) || text.at(at - 2) == ')';
    }

    // Whether a word stands between two numbers of which the last one names a paragraph: "article 21 paragraph 1" is "Art. 21(1)".
    template <class Source>
    static bool is_paragraph(const Source& text, Py_ssize_t at, Py_ssize_t end, const Tokens& out) {
        static const std::unordered_set<Letters> words = {U"paragraph", U"para", U"par"};
        if (out.empty() || out.back().kind != NUMBER || at - out.back().end > 2 || end - at > 9 || !words.count(lower(text.part(at, end)))) return false;
        const Py_ssize_t next = end + (end < text.size && text.at(end) == '.');
        return next < text.size && text.at(next) == ' ' && decimal_at(text, next + 1);
    }

    // Whether a word that says that something changes stands right before a place: "went", "came".
    template <class Source>
    static bool goes(const Source& text, const Token& word, Py_ssize_t at) {
        static const std::unordered_set<Letters> words = {U"went", U"go", U"goes", U"gone", U"going", U"came", U"come", U"comes", U"moved", U"moves", U"edged"};
        if (word.end + 1 != at || word.end - word.start > 5) return false;
        return words.count(lower(text.part(word.start, word.end)));
    }

    // Whether "a" stands between a number and its unit: "half a cup", "a quarter of an hour".
    template <class Source>
    static bool is_part_of(const Source& text, Py_ssize_t from, Py_ssize_t to) {
        if (to - from > 7 || to - from < 3 || text.at(to - 1) != ' ') return false;
        const Letters gap = text.part(from, to);
        return gap == U" a " || gap == U" an " || gap == U" of a " || gap == U" of an ";
    }

    // Read a word without a meaning of its own, which is no token where it is a stop word.
    template <class Source>
    void read_plain_word(const Source& text, Py_ssize_t at, Py_ssize_t end, uint64_t hash, bool counted, Tokens& out) const {
        const bool sign = counted && end == at + 1 && is_upper(text.at(at));  // "16 A"
        if (end - at >= MOST_SIGNS || (!sign && english_.is_stop_word(hash))) return;
        Measure unit;
        if (counted && end - at < 15 && measures_.find(text.part(at, end), unit))
            out.push_back({at, end, MEASURED, false, hash_of(unit.kind + unit.name)});
        else
            out.push_back({at, end, WORD, false, hash});
    }

    // Where the unit ends that a word over [at, end) is or begins, as "kilowatt" of "kilowatt hour"; 0 if it is none.
    template <class Source>
    Py_ssize_t find_unit(const Source& text, Py_ssize_t at, Py_ssize_t end, Measure& out) const {
        if (end + 1 < text.size && text.at(end) == ' ' && is_letter(text.at(end + 1))) {
            Py_ssize_t next = end + 1;
            while (next < text.size && next - end < 12 && is_letter(text.at(next))) next++;
            if (measures_.find(text.part(at, next), out)) return next;
        }
        return measures_.find(text.part(at, end), out) ? end : 0;
    }

    // Whether a Roman numeral counts what stands right before it: "Henry VIII", but not "Xi".
    template <class Source>
    static bool is_roman(const Source& text, Py_ssize_t at, const Tokens& out) {
        return is_upper(text.at(at + 1)) && !out.empty() && out.back().end + 1 == at && out.back().kind == WORD;
    }

    // Whether a single letter names what stands right before it: "size M", "type B".
    template <class Source>
    static bool is_behind_label(const Source& text, Py_ssize_t at, const Tokens& out) {
        static const std::unordered_set<Letters> labels = {
            U"size", U"type", U"class", U"group", U"grade", U"level", U"section", U"vitamin", U"hepatitis", U"influenza", U"gate", U"zone",
            U"appendix", U"annex", U"exhibit", U"plan", U"option", U"category", U"terminal", U"platform", U"schedule", U"figure", U"table",
            U"room", U"hall", U"building", U"block", U"bus", U"line", U"track", U"ward", U"wing", U"bay", U"dock", U"row", U"deck", U"model",
            U"team", U"phase", U"site", U"part", U"product", U"route", U"unit", U"lot", U"batch", U"party", U"company", U"school", U"patient", U"case",
            U"region", U"series", U"tier", U"stage", U"arm", U"cohort", U"district", U"tank", U"pump", U"version", U"variant", U"form", U"clause"};
        if (out.empty() || out.back().kind != WORD || out.back().end + 1 != at || out.back().end - out.back().start > 9) return false;
        return labels.count(lower(text.part(out.back().start, out.back().end)));
    }

    // Whether "up" or "down" says how a number changes: "down from 71.2 percent", "up 5 %".
    template <class Source>
    bool is_directed(const Source& text, Py_ssize_t at) const {
        if (is_before_number(text, at)) return true;
        for (const char32_t* word : {U" from", U" by", U" on"}) {
            const LettersView letters(word);
            if (at + (Py_ssize_t)letters.size() < text.size && text.at(at) == ' ' && stands(text, letters, at))
                return is_before_number(text, at + (Py_ssize_t)letters.size());
        }
        return false;
    }

    // Whether a unit stands behind "per" or "/".
    template <class Source>
    static bool is_rated(const Source& text, Py_ssize_t at) {
        if (at > 0 && text.at(at - 1) == '/') return true;
        return at > 4 && text.at(at - 1) == ' ' && text.at(at - 2) == 'r' && text.at(at - 3) == 'e' && text.at(at - 4) == 'p' && text.at(at - 5) == ' ';
    }

    // What a rate is by, the same for all words that mean it: "per guest" is "per person".
    uint64_t rated_by(const Letters& word) const {
        const auto same = rated().find(word);
        return hash_of(same == rated().end() ? english_.stem(word) : Letters(same->second));
    }

    // What rates are by, each with the word that means the same.
    static const std::unordered_map<Letters, const char32_t*>& rated() {
        static const std::unordered_map<Letters, const char32_t*> words = {
            {U"person", U"person"}, {U"head", U"person"}, {U"guest", U"person"}, {U"capita", U"person"}, {U"pax", U"person"}, {U"individual", U"person"},
            {U"employee", U"employee"}, {U"worker", U"employee"}, {U"student", U"student"}, {U"pupil", U"student"}, {U"car", U"car"}, {U"vehicle", U"car"},
            {U"item", U"item"}, {U"piece", U"item"}, {U"table", U"table"}, {U"room", U"room"}, {U"night", U"night"}, {U"household", U"household"},
            {U"family", U"family"}, {U"couple", U"couple"}, {U"group", U"group"}, {U"team", U"team"}, {U"class", U"class"}, {U"user", U"user"},
            {U"seat", U"seat"}, {U"device", U"device"}, {U"account", U"account"}, {U"page", U"page"}, {U"project", U"project"}};
        return words;
    }

    // Whether "per" or "for each" stands before a word.
    template <class Source>
    static bool is_rate(const Source& text, Py_ssize_t at) {
        static const LettersView each = U"for each ", every = U"for every ";
        if (at < 5 || text.at(at - 1) != ' ') return false;
        const Py_UCS4 sign = text.at(at - 2);
        if (sign == 'r') return is_rated(text, at);
        const LettersView lead = sign == 'h' ? each : every;
        const Py_ssize_t start = at - (Py_ssize_t)lead.size();
        return (sign == 'h' || sign == 'y') && start >= 0 && text.at(start) == 'f' && stands(text, lead, start);
    }

    const Name* find_name(uint64_t hash, bool capital, bool counted) const {
        const Name* name = names_.find(hash);
        if (!name || (name->capital && !capital) || (name->kind == MEASURED && !counted)) return nullptr;
        return name;
    }

    // Whether "second" behind a word is a duration: "per second".
    template <class Source>
    static bool is_behind_rate(const Source& text, Py_ssize_t at) {
        if (at < 1 || text.at(at - 1) == '/') return at > 0;
        return at > 3 && text.at(at - 2) == 'r' && text.at(at - 3) == 'e' && text.at(at - 4) == 'p';
    }

    // Read "at least" and its kin at a place; returned is where it ends, 0 if there is none.
    template <class Source>
    Py_ssize_t read_bound(const Source& text, Py_ssize_t at, const std::vector<BoundName>& names, Tokens& out) const {
        for (const BoundName& name : names) {
            Py_ssize_t end = at + (Py_ssize_t)name.words.size();
            if (end > text.size || (end < text.size && is_word(text.at(end)))) continue;
            bool stands = true;
            for (Py_ssize_t place = at; stands && place < end; place++) stands = lower_sign(text.at(place)) == name.words[place - at];
            if (!stands || (name.before == '#' && !is_before_number(text, end))) continue;
            if (name.before == '@' && !is_before_date(text, end)) continue;
            if (name.before == '$' && (!is_before_number(text, end) || leads_to(text, end))) continue;
            if (name.value == NONE) return end;
            static const Letters older = U"or older";
            // an age "or older" is the least one, a version the last one
            const bool aged = name.value == AT_MOST && !out.empty() && is_unit(out.back(), true) && name.words == older;
            const Py_ssize_t start = name.value == MORE || name.value == LESS ? find_denial(text, at) : at;
            while (start < at && !out.empty() && out.back().start >= start) out.pop_back();  // "not fall below"
            const Bound value = aged ? AT_LEAST : start == at ? name.value : name.value == MORE ? AT_MOST : AT_LEAST;
            while (!name.trails && start == at && !out.empty() && stays(text, out.back(), at)) out.pop_back();
            const size_t last = out.size();
            size_t place = last;
            if (name.trails && last > 0) place = out[last - 1].kind == NUMBER ? last - 1 : last > 1 && out[last - 2].kind == NUMBER ? last - 2 : last;
            if (start == at && !name.trails && is_denied_too(text, at, out)) {
                out.push_back({at, end, BOUND, false, (uint64_t)(value == MORE ? AT_MOST : value == LESS ? AT_LEAST : value)});
                return end;
            }
            const bool told = place < last && place > 0 && out[place - 1].kind == BOUND;  // "from 10 people upwards"
            if (!told) out.insert(out.begin() + (Py_ssize_t)place, {start, end, BOUND, false, value});  // "5 kg or less" is "at most 5 kg"
            return end;
        }
        return 0;
    }

    // Whether what denies the bound before denies one at a place, too: "must not fall below 2 or exceed 8".
    template <class Source>
    static bool is_denied_too(const Source& text, Py_ssize_t at, const Tokens& out) {
        if (at < 4 || text.at(at - 1) != ' ' || text.at(at - 2) != 'r' || text.at(at - 3) != 'o' || text.at(at - 4) != ' ') return false;
        const bool degree = !out.empty() && out.back().kind == WORD && out.back().end - out.back().start == 1;  // "°C"
        const size_t units = !out.empty() && (is_unit(out.back(), true) || degree);
        if (out.size() < 2 + units || out[out.size() - 1 - units].kind != NUMBER || out[out.size() - 2 - units].kind != BOUND) return false;
        return lower_sign(text.at(out[out.size() - 2 - units].start)) == 'n' && out.back().end + 4 == at;
    }

    // Whether a word right before a bound says only that it holds: "stay above".
    template <class Source>
    static bool stays(const Source& text, const Token& word, Py_ssize_t at) {
        static const std::unordered_set<Letters> words = {U"stay", U"stays", U"stayed", U"remain", U"remains", U"remained", U"keep", U"kept"};
        if (word.kind != WORD || word.end + 1 != at || word.end - word.start > 8) return false;
        return words.count(text.part(word.start, word.end));
    }

    // Where "not" or "never" stands before a bound, with a verb or two between them; the same place if it does not.
    template <class Source>
    Py_ssize_t find_denial(const Source& text, Py_ssize_t at) const {
        static const uint64_t denials[] = {hash_of(U"not"), hash_of(U"never"), hash_of(U"cannot"), hash_of(U"no")};
        Py_ssize_t end = at;
        for (int words = 0; words < 3; words++) {
            if (end < 3 || text.at(end - 1) != ' ') return at;
            Py_ssize_t start = --end;
            while (start > 0 && end - start < 10 && is_lower(text.at(start - 1))) start--;
            WordHash word;
            read_hash(text, start, end, word);
            if (std::find(std::begin(denials), std::end(denials), word.value) != std::end(denials)) return start;
            if (!verbs_.find(word.value)) return at;
            end = start;
        }
        return at;
    }

    template <class Source>
    bool is_before_number(const Source& text, Py_ssize_t at) const {
        static const Letters signs = U"$€£¥₹";
        if (at + 1 >= text.size || text.at(at) != ' ') return false;
        at++;
        if (at + 4 < text.size && text.at(at) == 't' && text.at(at + 1) == 'h' && text.at(at + 2) == 'e' && text.at(at + 3) == ' ') at += 4;
        Py_UCS4 sign = text.at(at);
        if (is_decimal(sign) || signs.find(sign) != Letters::npos) return true;
        WordHash hash;
        read_hash(text, at, text.size, hash);
        const Name* name = find_name(hash.value, is_upper(sign), false);
        return name && name->kind >= NUMBER && name->kind <= ORDINAL;
    }

    // Whether the number behind a place is the first one of a range or of a way: "from 5 to 9 kg", "from 5 % in May to 9 %".
    template <class Source>
    static bool leads_to(const Source& text, Py_ssize_t at) {
        for (const Py_ssize_t end = std::min(text.size - 9, at + REACH); at < end && !is_edge(text, at); at++) {
            const Py_UCS4 sign = text.at(at);
            if (sign == 0x2013 || (sign == '-' && decimal_at(text, at + 1))) return true;
            if (sign != ' ') continue;
            for (const char32_t* word : {U" to ", U" until ", U" till ", U" through "})
                if (text.at(at + 1) == word[1] && stands(text, word, at)) return true;
        }
        return false;
    }

    // Whether a word whose first letter is there stands at a place.
    template <class Source>
    static bool stands(const Source& text, LettersView word, Py_ssize_t at) {
        for (size_t letter = 1; letter < word.size(); letter++)
            if (text.at(at + (Py_ssize_t)letter) != word[letter]) return false;
        return true;
    }

    // The word at a place, which becomes the one behind it and a blank.
    template <class Source>
    static Letters take_word(const Source& text, Py_ssize_t& at) {
        const Py_ssize_t start = at;
        while (at < text.size && at - start < 20 && is_word(text.at(at))) at++;
        const Letters out = text.part(start, at);
        if (at < text.size && text.at(at) == ' ') at++;
        return out;
    }

    // Whether a date, a year or a time of day stands behind a word, and no range begins with it.
    template <class Source>
    bool is_before_date(const Source& text, Py_ssize_t at) const {
        auto named = [&](const Letters& word, Kind kind) {
            const Name* name = word.empty() ? nullptr : names_.find(hash_of(word));
            return name && name->kind == kind && is_upper(word[0]);
        };
        if (at + 1 >= text.size || text.at(at) != ' ') return false;
        Letters word = take_word(text, ++at);
        if (word == U"the") word = take_word(text, at);
        bool found = named(word, MONTH) || named(word, WEEKDAY);
        if (!found && !word.empty() && is_decimal(word[0])) {
            const bool year = word.size() == 4 && (word[0] == '1' || word[0] == '2') && is_decimal(word[3]);
            found = year || (at < text.size && text.at(at) == ':' && decimal_at(text, at + 1));
            if (!found) word = take_word(text, at);
            if (word == U"of") word = take_word(text, at);
            found = found || named(word, MONTH) || word == U"am" || word == U"pm" || ((word == U"a" || word == U"p") && text.at(at) == '.');
        }
        for (Py_ssize_t end = std::min(text.size, at + 30); found && at < end && !is_edge(text, at); at++) {
            const Py_UCS4 sign = text.at(at);
            if (sign == 0x2013 || sign == '-') return false;
            if (at > 0 && text.at(at - 1) != ' ') continue;
            for (const char32_t* word : {U"to ", U"until ", U"till ", U"through "})
                if (at + 9 < text.size && text.at(at) == word[0] && stands(text, word, at)) {
                    const Py_UCS4 behind = text.at(at + (Py_ssize_t)LettersView(word).size());
                    if (is_decimal(behind) || is_upper(behind)) return false;
                }
        }
        return found;
    }

    // -- values of several tokens

    // Join the last two tokens where they are one value: "one and a half", "three quarters", "5 to 9", "March–May".
    template <class Source>
    void join(const Source& text, Tokens& out) const {
        while (out.size() > 1 && join_last(text, out)) {}
    }

    template <class Source>
    bool join_last(const Source& text, Tokens& out) const {
        Token& first = out[out.size() - 2];
        const Token& last = out.back();
        const Py_ssize_t size = last.start - first.end;
        if (first.kind != last.kind || first.shared || last.shared || first.low || last.low || size < 1 || size > 9) return false;
        Letters gap = text.part(first.end, last.start);
        if (first.kind != NUMBER && gap[0] == '.') gap.erase(0, 1);  // "Mon. to Sat."
        if (first.kind == NUMBER) {
            trim_sign(gap);
            auto mixed = mixed_.find({first.value, last.value});
            const bool written = text.at(last.start) == '0' + 1 || text.at(last.start) == '0' + 3;
            const bool beside = (gap == U" " || gap == U"-") && (written || last.value == hash_of(U"0.25"));
            if (mixed != mixed_.end() && (beside || gap == U" and a " || gap == U" and ")) {
                first.value = mixed->second;
                first.end = last.end;
                out.pop_back();
                return true;
            }
        }
        if (!is_range(text, first, gap, last)) return false;
        make_range(first, last);
        out.pop_back();
        if (gap == U" and ") take_between(text, out);
        return true;
    }

    // Leave the sign of a currency out of what stands between two numbers: "$5–$9".
    static void trim_sign(Letters& gap) {
        static const Letters signs = U"$€£¥₹";
        if (signs.find(gap.back()) != Letters::npos) gap.pop_back();
    }

    static void make_range(Token& first, const Token& last) {
        first.low = first.value;
        first.high = last.value;
        first.value = first.low * 31 + first.high;
        first.end = last.end;
    }

    // Let the range that was read last begin with "between", where it stands before it.
    template <class Source>
    static void take_between(const Source& text, Tokens& out) {
        if (out.size() < 2) return;
        const Token& word = out[out.size() - 2];
        const Py_ssize_t size = out.back().start - word.end;
        if (size < 1 || size > 2 || !is_between(text, word)) return;
        out.back().start = word.start;
        out.erase(out.end() - 2);
    }

    template <class Source>
    static bool is_between(const Source& text, const Token& word) {
        return word.kind == WORD && word.end - word.start == 7 && lower_sign(text.at(word.start)) == 'b' && stands(text, LettersView(U"between"), word.start);
    }

    // Whether a token is the letter of "°C".
    template <class Source>
    static bool is_degree(const Source& text, const Token& token) {
        return token.kind == WORD && token.end == token.start + 1 && token.start > 0 && text.at(token.start - 1) == 0xB0;
    }

    // Join two numbers that have the same unit each, as where it stands behind the last one alone: "148 mmHg to 136 mmHg".
    template <class Source>
    static void join_measured(const Source& text, Tokens& out) {
        if (out.size() < 4) return;
        Token &first = out[out.size() - 4], &unit = out[out.size() - 3], &last = out[out.size() - 2];
        if (first.kind != NUMBER || last.kind != NUMBER || unit.kind != out.back().kind || unit.value != out.back().value) return;
        const Py_ssize_t size = last.start - unit.end;
        if (first.shared || last.shared || first.low || last.low || size < 1 || size > 9 || unit.start - first.end > 2) return;
        Letters gap = text.part(unit.end, last.start);
        if (gap.back() == '+' && gap.size() > 1) gap.pop_back();  // "-10 °C to +45 °C"
        if (!is_range(text, first, gap, last)) return;
        make_range(first, last);
        out.erase(out.end() - 3, out.end() - 1);
        const Token behind = out.back();
        out.pop_back();
        if (gap == U" and ") take_between(text, out);
        out.push_back(behind);
    }

    // Join "at least 9" and "at most 15", which are "between 9 and 15", also where a word stands between: "at least 9
    // members and at most 15".
    template <class Source>
    static void join_bounds(const Source& text, Tokens& out) {
        if (out.size() < 4 || out.back().kind != NUMBER) return;
        const bool apart = out.size() > 4 && (out[out.size() - 3].kind == WORD || is_unit(out[out.size() - 3], true));
        const size_t count = apart ? 5 : 4;
        const Token *first = &out[out.size() - count], *low = first + 1, *bound = first + count - 2, *last = &out.back();
        if (first->kind != BOUND || bound->kind != BOUND || first->value + bound->value != AT_LEAST + AT_MOST || first->value % 2) return;
        if (first->start > low->start || low->kind != NUMBER || last->low || low->low || bound->start - bound[-1].end > 6 || last->start - bound->end > 2) return;
        for (Py_ssize_t at = bound[-1].end; at < bound->start; at++)
            if (!is_lower(text.at(at)) && text.at(at) != ' ' && text.at(at) != ',') return;
        Token range{first->start, last->end, NUMBER}, word = bound[-1];
        const bool ascends = first->value == AT_LEAST;
        range.low = ascends ? low->value : last->value;
        range.high = ascends ? last->value : low->value;
        range.value = range.low * 31 + range.high;
        out.resize(out.size() - count);
        out.push_back(range);
        if (apart) out.push_back(word);
    }

    // Join a day, a month and a year, as one date is exchanged with another one.
    template <class Source>
    static void join_date(const Source& text, Tokens& out) {
        if (out.size() < 3 || out.back().kind != NUMBER || !is_year(text, out.back())) return;
        const Token *year = &out.back(), *first = year - 2;
        const bool begins = first->kind == MONTH;
        const Token &month = *(begins ? first : year - 1), &day = *(begins ? year - 1 : first);
        if (month.kind != MONTH || (day.kind != NUMBER && day.kind != ORDINAL) || day.low || month.low) return;
        if (year->start - year[-1].end > 5 || year[-1].start - first->end > 4 || day.end - day.start > 4) return;
        Token date{first->start, year->end, DATE};
        date.value = (year->value * 31 + month.value) * 31 + day.value;
        out.resize(out.size() - 3);
        out.push_back(date);
    }

    template <class Source>
    static bool is_year(const Source& text, const Token& number) {
        return number.end - number.start == 4 && !number.low && (text.at(number.start) == '1' || text.at(number.start) == '2');
    }

    template <class Source>
    static bool is_range(const Source& text, const Token& first, const Letters& gap, const Token& last) {
        static const std::unordered_set<Letters> between = {
            U"-", U"–", U"—", U" - ", U" – ", U" — ", U" to ", U" through ", U" until ", U" till "};
        static const Letters both = U"between ", signs = U"$€£¥₹";
        const bool priced = first.start > 0 && signs.find(text.at(first.start - 1)) != Letters::npos;
        const Py_ssize_t start = first.start - priced - (Py_ssize_t)both.size();
        const bool led = gap == U" and " && start >= 0 && lower_sign(text.at(start)) == both[0] && stands(text, both, start);
        if (!led && !between.count(gap)) return false;
        auto dashed = [&](Py_ssize_t at) { return at >= 0 && at < text.size && (text.at(at) == '-' || text.at(at) == '/' || text.at(at) == ':'); };
        return !dashed(first.start - 1) && !(dashed(last.end) && decimal_at(text, last.end + 1));
    }

    // -- ranks

    static bool is_superlative(const Text& text, const Token& token) {
        const Py_ssize_t end = token.end;
        return end - token.start > 5 && end < text.size && text.at(end) == ' ' && text.at(end - 1) == 't' && text.at(end - 2) == 's' && text.at(end - 3) == 'e';
    }

    // Which ordinal stands right before a place: that of "second largest" or "2nd-largest", 0 if there is none.
    uint64_t ordinal_before(const Text& text, Py_ssize_t at) const {
        if (at < 4 || (text.at(at - 1) != ' ' && text.at(at - 1) != '-')) return 0;
        Py_ssize_t start = --at;
        while (start > 0 && at - start < 12 && is_alnum(text.at(start - 1))) start--;
        const Letters word = lower(text.part(start, at));
        if (word.empty()) return 0;
        if (is_decimal(word[0])) return !is_decimal(word.back()) ? hash_of(word.substr(0, word.size() - std::min<size_t>(2, word.size() - 1))) : 0;
        const uint64_t hash = hash_of(word);
        if (hash == second_) return counts_[1];
        const Name* name = names_.find(hash);
        return name && name->kind == ORDINAL && !name->capital ? name->value : 0;
    }

    // Whether passages have the same superlative before the same word behind another ordinal alone: "the second
    // largest city" for "the largest city".
    bool has_other_rank(const Text& text, const Token& token, const std::vector<const Text*>& passages) const {
        Py_ssize_t next = token.end;
        while (next < text.size && next - token.end < 20 && (next == token.end || is_word(text.at(next)))) next++;
        const Letters written = text.part(token.start, next);
        const uint64_t rank = ordinal_before(text, token.start);
        bool other = false;
        int places = 0;
        for (const Text* passage : passages)
            for (Py_ssize_t at = find_word(*passage, written, 0); at >= 0; at = find_word(*passage, written, at + 1)) {
                if (++places > MOST_PLACES || ordinal_before(*passage, at) == rank) return false;
                other = true;
            }
        return other;
    }

    // -- places

    static bool is_value(const Token& token) { return token.kind != WORD && token.kind != EDGE; }

    // Whether a number stands near a token.
    static bool is_beside_number(const Tokens& tokens, size_t at) {
        const size_t first = at > BESIDE ? at - BESIDE : 0, last = std::min(tokens.size(), at + BESIDE + 1);
        return std::any_of(tokens.begin() + first, tokens.begin() + last, [](const Token& token) {
            return token.kind == NUMBER || token.kind == CLOCK || token.kind == CODE || token.kind == ORDINAL;
        });
    }

    // Whether a value of one text may stand in place of one of another text.
    static bool are_alike(const Token& one, const Token& other) {
        return one.kind == other.kind && (one.kind != OPPOSITE || one.value / 2 == other.value / 2);
    }

    // Whether one of two values is a range that the other one is an end of.
    static bool is_end(const Token& one, const Token& other) {
        auto has = [](const Token& range, const Token& end) { return range.low && !end.low && (range.low == end.value || range.high == end.value); };
        return has(one, other) || has(other, one);
    }

    // The nearest number on one side within the sentence, or null.
    static const Token* find_number(const Tokens& tokens, size_t at, int step) {
        size_t next = at + step;
        for (int count = 0; count < MOST_BETWEEN && next < tokens.size() && tokens[next].kind != EDGE; count++, next += step)
            if (tokens[next].kind == NUMBER || tokens[next].kind == CLOCK) return &tokens[next];
        return nullptr;
    }

    // Whether the same number comes right before or right after two values that are the same.
    static bool share_number(const Pair& pair, size_t at, size_t place) {
        for (int step : {-1, 1}) {
            const Token* mine = find_number(pair.mine, at, step);
            const Token* their = find_number(pair.their, place, step);
            if (mine && their && mine->kind == their->kind && mine->value == their->value && mine->end - mine->start > 1) return true;
        }
        return false;
    }

    bool match_words(const Pair& pair, const Token& one, const Token& other) const {
        if (one.value == other.value) return true;
        Py_ssize_t longer = std::max(one.end - one.start, other.end - other.start), shorter = std::min(one.end - one.start, other.end - other.start);
        if (one.shared || other.shared || shorter < 3 || longer - shorter > 6) return false;
        for (Py_ssize_t at = 0; at < 3; at++)
            if (lower_sign(pair.text.at(one.start + at)) != lower_sign(pair.passage.at(other.start + at))) return false;
        return english_.stem(lower(pair.text.part(one.start, one.end))) == english_.stem(lower(pair.passage.part(other.start, other.end)));
    }

    // Whether tokens are the same, of bounds whether they are of one side.
    bool match(const Pair& pair, size_t one, size_t other) const {
        const Token& mine = pair.mine[one];
        const Token& their = pair.their[other];
        if (mine.kind != their.kind) return false;
        if (mine.kind == WORD) return match_words(pair, mine, their);
        return mine.kind == BOUND ? mine.value / 2 == their.value / 2 : mine.value == their.value;
    }

    static bool is_scale(const Token& token) {
        static const std::unordered_set<uint64_t> scales = {hash_of(U"thousand"), hash_of(U"million"), hash_of(U"billion"), hash_of(U"trillion")};
        return token.kind == MEASURED && scales.count(token.value);
    }

    // Whether a token is a unit, which a period is right behind its number.
    static bool is_unit(const Token& token, bool behind) { return token.kind == MEASURED || (behind && token.kind == PERIOD); }

    // How many tokens are the same next to two places, up to the end of the sentence. Units of exchanged
    // values may differ, and each of the values is where the other one was.
    int count_same(const Pair& pair, size_t at, size_t place, int step) const {
        int count = 0;
        for (size_t one = at + step, other = place + step; count < BESIDE; one += step, other += step) {
            if (one >= pair.mine.size() || other >= pair.their.size()) return count;
            if (one == at + 1 && step > 0 && is_scale(pair.mine[one]) != is_scale(pair.their[other])) {  // "2.5 million" for "4.2"
                (is_scale(pair.mine[one]) ? one : other) += 1;
                if (one >= pair.mine.size() || other >= pair.their.size()) return count;
            }
            if (match(pair, one, other) || (match(pair, one, place) && match(pair, at, other))) count++;
            else if (!is_unit(pair.mine[one], one == at + 1) || !is_unit(pair.their[other], other == place + 1)) return count;
            if (pair.mine[one].kind == EDGE) return count;
        }
        return count;
    }

    // Whether a list goes from one token to the next, whose order says nothing.
    static bool is_list(const Text& text, const Token& one, const Token& next) {
        if (next.start - one.end > 6 || next.start < one.end) return false;
        for (Py_ssize_t at = one.end; at < next.start; at++) {
            Py_UCS4 sign = text.at(at);
            if (sign == ' ' || sign == ',' || sign == '&' || sign == '/' || sign == ';') continue;
            bool joins = at + 3 < next.start && text.at(at) == 'a' && text.at(at + 1) == 'n' && text.at(at + 2) == 'd';
            joins = joins || (at + 2 < next.start && text.at(at) == 'o' && text.at(at + 1) == 'r');
            if (!joins) return false;
            at += sign == 'a' ? 2 : 1;
        }
        return true;
    }

    // Whether the list that a place of the passage is of has the value.
    bool lists(const Pair& pair, size_t at, size_t place) const {
        for (int step : {-1, 1})
            for (size_t one = place, next = place + step; next < pair.their.size(); one = next, next += step) {
                const Token& first = pair.their[std::min(one, next)];
                const Token& second = pair.their[std::max(one, next)];
                if (pair.their[next].kind != pair.mine[at].kind || !is_list(pair.passage, first, second)) break;
                if (match(pair, at, next)) return true;
            }
        return false;
    }

    // Whether a number names what stands right before it in both texts: "week 10".
    bool is_labelled(const Pair& pair, size_t at, size_t place) const {
        if (at == 0 || place == 0) return false;
        const Token& mine = pair.mine[at - 1];
        const Token& their = pair.their[place - 1];
        const Name* name = mine.kind == WORD || mine.kind == PERIOD ? word_before(pair.text, mine) : nullptr;
        return name && name->label && mine.end + 1 == pair.mine[at].start && their.end + 1 == pair.their[place].start &&
            match(pair, at - 1, place - 1);
    }

    const Name* word_before(const Text& text, const Token& token) const {
        return names_.find(hash_of(text.part(token.start, token.end)));
    }

    // The nearest word on one side of a token, or else the token next to it; the same if there is none.
    static size_t find_anchor(const Tokens& tokens, size_t at, int step) {
        for (int count = 1; count <= BESIDE; count++) {
            size_t next = at + step * count;
            if (next >= tokens.size() || tokens[next].kind == EDGE) break;
            if ((tokens[next].kind == WORD && !tokens[next].shared) || tokens[next].kind == PERIOD) return next;
        }
        size_t next = at + step;
        return next < tokens.size() && tokens[next].kind != EDGE ? next : at;
    }

    // Where a word stands in a text, with a first letter of any case, or -1.
    static Py_ssize_t find_word(const Text& text, const Letters& word, Py_ssize_t from) {
        if (text.size == 0) return -1;
        const LettersView rest = LettersView(word).substr(word.size() > 1);
        Py_ssize_t before = word.size() > 1;
        for (Py_ssize_t at = text.find(rest, from + before); at >= 0; at = text.find(rest, at + 1)) {
            Py_ssize_t start = at - before, end = at + (Py_ssize_t)rest.size();
            bool alone = (start == 0 || !is_word(text.at(start - 1))) && (end >= text.size || !is_word(text.at(end)));
            if (alone && lower_sign(text.at(start)) == lower_sign(word[0])) return start;
        }
        return -1;
    }

    // Look at the places of passages that stand to the anchor as the value does.
    void look(Search& search, size_t at, size_t anchor, Best& best) const {
        const Token& token = search.tokens[anchor];
        const Wanted wanted{search.tokens[at].kind, (Py_ssize_t)at - (Py_ssize_t)anchor};
        Letters word = search.text.part(token.start, token.end);
        Tokens there;
        for (const Text* passage : search.passages) {
            Py_ssize_t place = find_word(*passage, word, 0);
            for (int places = 0; place >= 0 && places < MOST_PLACES; places++, place = find_word(*passage, word, place + 1)) {
                if (search.windows-- <= 0) return;
                Py_ssize_t end = std::min(passage->size, place + (Py_ssize_t)word.size() + REACH);
                size_t slot = passage->visit([&](const auto& signs) { return read_around(signs, place, end, wanted, there); });
                if (slot < there.size() && are_alike(search.tokens[at], there[slot])) weigh({search.text, search.tokens, *passage, there}, at, slot, best);
                if (best.settled) return;
            }
        }
    }

    // A value of a kind, so many tokens behind an anchor.
    struct Wanted {
        Kind kind;
        Py_ssize_t steps;
    };

    // Whether a value may follow the anchor at a place. What stands before the anchor decides whether it
    // is one, but nothing behind it.
    template <class Source>
    bool may_follow(const Source& passage, Py_ssize_t place, Py_ssize_t end, Wanted wanted, Tokens& there) const {
        if (place == 0 || wanted.kind == DATE || wanted.kind == BOUND) return true;
        there.assign(1, {place, place, WORD});  // stands for what is before it
        const size_t slot = 1 + (size_t)wanted.steps;
        for (Py_ssize_t at = place; at < end && there.size() <= slot;) at = read_next(passage, at, end, there);
        // behind a number the anchor is no unit, which may have two words
        if (there.size() > 1 && (there[1].start != place || there[1].kind == MEASURED)) return true;
        // a bound or a month may be joined with what is behind it
        for (size_t token = 1; token < there.size(); token++)
            if (there[token].kind == BOUND || there[token].kind == MONTH || is_between(passage, there[token])) return true;
        if (wanted.kind == NUMBER && slot > 1 && slot - 1 < there.size() && there[slot - 1].kind == NUMBER) return true;  // "5 kg or less"
        return slot < there.size() && there[slot].kind == wanted.kind;
    }

    // Whether a value may precede the anchor at a place: not, where as many words stand between that are
    // tokens whatever is before them.
    template <class Source>
    bool may_precede(const Source& passage, Py_ssize_t place, Wanted wanted) const {
        if (wanted.kind == MEASURED || wanted.kind == CODE || wanted.kind == PERIOD) return true;  // any word behind a number, or a letter behind "size"
        const Py_ssize_t from = std::max<Py_ssize_t>(0, place - REACH);
        for (Py_ssize_t steps = wanted.steps, end = place; steps < 0;) {
            while (end > from && !is_word(passage.at(end - 1))) end--;
            Py_ssize_t start = end;
            while (start > from && is_word(passage.at(start - 1)))
                if (is_decimal(passage.at(--start))) return true;
            bool is_cut = start == from && from > 0 && is_word(passage.at(from - 1));
            if (start == end || is_cut) return false;
            WordHash hash;
            read_hash(passage, start, end, hash);
            const uint32_t* kinds = kinds_.find(hash.value);
            if (kinds && *kinds >> wanted.kind & 1) return true;
            bool is_alone = end - start < MOST_SIGNS && !(start > 0 && passage.at(start - 1) == '-');
            if (!kinds && is_alone && !english_.is_stop_word(hash.value)) steps++;
            end = start;
        }
        return false;
    }

    // Read the tokens beside the anchor at a place. Returned is which of them is the value; they are not
    // complete, and it is none of them, where there is none.
    template <class Source>
    size_t read_around(const Source& passage, Py_ssize_t place, Py_ssize_t end, Wanted wanted, Tokens& there) const {
        there.clear();
        if (wanted.steps > 0 ? !may_follow(passage, place, end, wanted, there) : !may_precede(passage, place, wanted)) return there.size();
        there.clear();
        Py_ssize_t at = begin(passage, std::max<Py_ssize_t>(0, place - REACH), end, there);
        while (at < end && at <= place) at = read_next(passage, at, end, there);
        size_t found = 0;
        while (found < there.size() && there[found].start != place) found++;
        if (found == there.size()) return found;
        const size_t slot = found + (size_t)wanted.steps;
        if (wanted.steps < 0 && (slot >= there.size() || there[slot].kind != wanted.kind)) return there.size();
        while (at < end) at = read_next(passage, at, end, there);
        Slots::end(passage, end, there);
        return slot < there.size() && there[slot].kind == wanted.kind ? slot : there.size();
    }

    // Take a place of a passage into account that may be that of the value.
    void weigh(const Pair& pair, size_t at, size_t place, Best& best) const {
        const Token& mine = pair.mine[at];
        const Token& their = pair.their[place];
        int left = count_same(pair, at, place, -1), right = count_same(pair, at, place, 1);
        if (mine.value == their.value) {
            best.own = std::max(best.own, left + right);
            best.own_led = std::max(best.own_led, left);
            if (left + right > 1 && !mine.shared && !their.shared) best.as = pair.passage.part(their.start - is_priced(pair.passage, their, pair.text, mine), their.end);
            best.settled = left + right > LEAST;
            best.labelled = best.labelled || is_labelled(pair, at, place);
            best.own_beside = best.own_beside || (left + right > 0 && share_number(pair, at, place));
        } else if (is_end(mine, their)) {
            return;
        } else if (left > 0 && !match(pair, at, place) && !lists(pair, at, place)) {
            const bool led = left == BESIDE && ends(pair.mine, at) && are_of_one_form(pair, mine, their);
            if (right == 0 && !led) return;
            if (led) best.other_led = left;
            if (left + right > best.other || best.other_near.empty()) {
                best.other_near.clear();
                add_words(pair.their, place, best.other_near);
                best.other_in = &pair.passage;
                best.other_at = their.start;
                best.other_value = their.value;
            }
            if (right == 0) return;
            best.other = std::max(best.other, left + right);
            if (are_of_one_form(pair, mine, their)) best.other_alike = std::max(best.other_alike, left + right);
            best.other_beside = best.other_beside || share_number(pair, at, place);
        }
    }

    // Whether the sign of a currency stands before a range and belongs to what another one has as "between $5 and $9".
    static bool is_priced(const Text& text, const Token& range, const Text& other_text, const Token& other) {
        static const Letters signs = U"$€£¥₹";
        if (!range.low || range.start == 0 || is_decimal(other_text.at(other.start)) || !is_decimal(text.at(range.start))) return false;
        return signs.find(text.at(range.start - 1)) != Letters::npos;
    }

    // Whether two values are ranges both or none, and years both or none.
    static bool are_of_one_form(const Pair& pair, const Token& mine, const Token& their) {
        auto begins_year = [](const Text& text, const Token& token) {
            const Py_UCS4 first = text.at(token.start);
            return token.end - token.start > 3 && (first == '1' || first == '2') && is_decimal(text.at(token.start + 1)) && is_decimal(text.at(token.start + 2)) && is_decimal(text.at(token.start + 3));
        };
        return (mine.low == 0) == (their.low == 0) && begins_year(pair.text, mine) == begins_year(pair.passage, their);
    }

    // Whether the sentence ends behind a value and its unit.
    static bool ends(const Tokens& tokens, size_t at) {
        size_t next = at + 1;
        if (next + 1 < tokens.size() && tokens[next].kind == OPPOSITE && is_unit(tokens[next + 1], true)) next++;  // "business days"
        if (next < tokens.size() && is_unit(tokens[next], true)) next++;
        return next < tokens.size() && tokens[next].kind == EDGE;
    }

    // Add the words that stand beside a place within its sentence, on both sides or behind it alone.
    static void add_words(const Tokens& tokens, size_t at, std::vector<uint64_t>& out, bool behind = false) {
        for (int step : {-1, 1}) {
            if (behind && step < 0) continue;
            size_t next = at + step;
            for (int count = 0; count < BESIDE && next < tokens.size() && tokens[next].kind != EDGE; count++, next += step)
                if (tokens[next].kind == WORD) out.push_back(tokens[next].value);
        }
    }

    // Whether the sentence of a value tells what passages have beside it, and not beside the one in its place: "In
    // May it was 3" where they have "it was 5, and 3 in May".
    bool is_told_of(Search& search, size_t at, const Best& best) const {
        const Token& value = search.tokens[at];
        const Letters written = search.text.part(value.start, value.end);
        std::vector<uint64_t> near;
        for (const Text* passage : search.passages) {
            Py_ssize_t place = find_word(*passage, written, 0);
            for (int places = 0; place >= 0 && places < MOST_PLACES && search.windows-- > 0; places++, place = find_word(*passage, written, place + 1)) {
                Tokens there;
                passage->visit([&](const auto& signs) {
                    read(signs, std::max<Py_ssize_t>(0, place - REACH), std::min(passage->size, place + REACH), there);
                });
                // what stands before two values of a sentence is told of both
                const bool first = passage == best.other_in && place < best.other_at && goes_on(*passage, place, best.other_at);
                for (size_t token = 0; token < there.size(); token++)
                    if (there[token].start <= place && there[token].end > place) add_words(there, token, near, first);
            }
        }
        auto holds = [](const std::vector<uint64_t>& words, uint64_t word) { return std::find(words.begin(), words.end(), word) != words.end(); };
        for (int step : {-1, 1})
            for (size_t next = at + step; next < search.tokens.size() && search.tokens[next].kind != EDGE; next += step) {
                const Token& token = search.tokens[next];
                if (token.kind == WORD && holds(near, token.value) && !holds(best.other_near, token.value)) return true;
            }
        return false;
    }

    // Whether a sentence goes on from one place to another.
    static bool goes_on(const Text& text, Py_ssize_t from, Py_ssize_t to) {
        if (to - from > 3 * REACH) return false;
        while (from < to && !is_edge(text, from)) from++;
        return from == to;
    }

    // Whether a value stands where passages have another one, though fewer tokens beside them are the same.
    bool is_other_there(Search& search, size_t at, const Best& best) const {
        const bool between = best.other_alike >= LEAST - 1 && best.own == 0 && !best.labelled;
        const bool led = best.other_led == BESIDE && best.own_led < BESIDE - 1;
        return (between || led) && !is_told_of(search, at, best);
    }

    // Whether passages have a value with two tokens on either side as they are written.
    static bool stands(const Search& search, size_t at) {
        auto outermost = [&](int step) {
            size_t place = at;
            for (int count = 0; count < 2; count++) {
                if (place + step >= search.tokens.size() || search.tokens[place].kind == EDGE) break;
                place += step;
            }
            return place;
        };
        Py_ssize_t start = search.tokens[outermost(-1)].start, end = std::max(search.tokens[outermost(1)].end, search.tokens[at].end);
        if (end <= start || end - start > 2 * REACH) return false;
        Letters written = search.text.part(start, end);
        for (const Text* passage : search.passages)
            if (passage->size && passage->find(written) >= 0) return true;
        return false;
    }

    static bool has(const Tokens& tokens, Kind kind, uint64_t value) {
        return std::any_of(tokens.begin(), tokens.end(), [&](const Token& token) { return token.kind == kind && token.value == value; });
    }

    // Whether passages have what a rate is by, or a period is.
    bool is_told(const Search& search, const Token& value) const {
        const Letters word = search.text.part(value.start, value.end);
        const uint64_t hash = hash_of(lower(word));
        if (hash == second_ || names_.find(hash) || rated().count(lower(word))) return true;
        return std::any_of(search.passages.begin(), search.passages.end(), [&](const Text* passage) { return find_word(*passage, word, 0) >= 0; });
    }

    void compare(Search& search, size_t at, std::vector<Found>& out) const {
        const Token& value = search.tokens[at];
        size_t before = find_anchor(search.tokens, at, -1), behind = find_anchor(search.tokens, at, 1);
        if ((before == at && behind == at) || (value.kind != DATE && stands(search, at))) return;
        Best best;
        if (before != at) look(search, at, before, best);
        if (behind != at && !best.settled) look(search, at, behind, best);
        const bool beside = best.own_beside && !best.other_beside;
        bool is_wrong = !best.settled && !best.labelled && !beside && best.other >= LEAST && best.other > best.own + 1;
        // of two dates that are exchanged both stand in both
        is_wrong = is_wrong || (value.kind == DATE && !best.settled && best.other >= LEAST && best.other > best.own && has(search.tokens, DATE, best.other_value));
        is_wrong = is_wrong || (!best.settled && !beside && is_other_there(search, at, best));
        if (is_wrong && value.kind == PERIOD && !is_told(search, value)) return;  // "per guest" for "per person"
        if (is_wrong) out.push_back({value.start, value.end, Letters()});
        if (is_wrong || best.as.empty()) return;
        const Text as(best.as);
        Token whole = value;
        whole.start = 0;
        const Py_ssize_t start = value.start - is_priced(search.text, value, as, whole);
        if (lower(best.as) != lower(search.text.part(start, value.end))) out.push_back({start, value.end, best.as});
    }

    const uint64_t once_ = hash_of(U"once"), twice_ = hash_of(U"twice"), thrice_ = hash_of(U"thrice"), times_ = hash_of(U"times"),
                   second_ = hash_of(U"second"), counts_[3] = {hash_of(U"1"), hash_of(U"2"), hash_of(U"3")};
    const English& english_;
    const Measures& measures_;
    ByWord<Name> names_;
    ByWord<std::vector<BoundName>> bounds_;
    ByWord<bool> verbs_;  // that may stand between "not" and a bound
    uint64_t amounts_ = 15;  // how many of the pairs of contrary words are about amounts
    ByWord<uint32_t> kinds_;  // of what a word that has a meaning of its own may be or begin
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> mixed_;  // "one" and "a half", of numbers up to `MOST_MIXED`
};

}  // namespace ragmeter
