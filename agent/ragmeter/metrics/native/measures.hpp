// The units of measure of texts: what they are called, and which are the same.
#pragma once

#include <array>
#include <cmath>
#include <unordered_map>

#include "text.hpp"

namespace ragmeter {

#define LENGTH_NAME \
    "(?:(?:nano|micro|milli|centi|deci|kilo)?met(?:er|re)s?|[nuµμcdmk]?m|inch(?:es)?|feet|foot|ft|yards?|yds?|miles?|mi)"
// Prefixes, and what takes them, by name and by sign.
#define PREFIX "(?:femto|pico|nano|micro|milli|centi|deci|hecto|kilo|mega|giga|tera|peta|[kg]ibi|[mt]ebi)"
#define PREFIXED \
    "(?:gram(?:me)?s?|lit(?:er|re)s?|seconds?|bits?|bytes?|amp(?:ere)?s?|volts?|watts?(?:[ -]hours?)?|ohms?|farads?|henr(?:y|ies)|newtons?|joules?" \
    "|pascals?|hertz|moles?|teslas?|siemens|sieverts?|grays?|becquerels?|lumens?|candelas?|coulombs?|electron ?volts?|calories|bars?)"
#define SIGNED \
    "(?:[nuµμm]s|[uµμmk]?g|[uµμmcdh]?l|[nuµμmk]?a|[uµμmkg]?v|[nuµμmkgt]?w|[kmgt]?wh|[uµμmk]?ah|[mkg]?(?:Ω|ohms?)|[pnuµμm]f|[nuµμm]h|[mk]?n|[kmg]?j" \
    "|[hkmg]?pa|[kmgt]?hz|[npuµμmk]?mol|[mg]t|[uµμm]?sv|[mc]?gy|[kmg]?bq|lm|lx|[kmgt]?ev|[kmgtp]i?b|[kmgt]bps|[kmgt]?bits?(?:/s)?|m?bar|mva|kva)"
#define UNIT \
    "(?>(?:" PREFIX "?" PREFIXED "|seconds?|secs?|minutes?|mins?|hours?|hrs?|(?:(?:business|working) |work)?days?|weeks?|wks?|fortnights?|months?|mths?|mos?|years?|yrs?|decades?|[sh]" \
    "|[mcdk]?m ?\\^?[23]|[mcdk]?m ?<sup>[23]</sup>|(?:square|cubic|sq\\.?|cu\\.?)[ -]?" LENGTH_NAME "|sqft|sqm|" LENGTH_NAME \
    "|nautical miles?|nmi|light[ -]?years?|hectares?|ha|acres?|mcg|kgs|kilos?|tonnes?|(?:metric )?tons?|t|lbs?|(?:fluid |fl\\.? ?)?ounces?|(?:fl\\.? ?)?oz|stones?|carats?" \
    "|gallons?|gal|pints?|quarts?|barrels?|bbl|bushels?|cups?|tablespoons?|tbsp|teaspoons?|tsp|horsepower|hp|psi|mmhg|torr|atm|kcal|db|decibels?" \
    "|(?:beats|breaths|revolutions|frames|dots|pixels|words|rounds|requests?|reqs?|calls|queries|messages|transactions)(?:/| (?:per|an?) )(?:(?:square )?inch|minute|second|min|sec|s|hour|hr|h|day)" \
    "|bpm|rpm|fps|dpi|ppi|wpm|(?:mega)?pixels?|px|kph|kmh|mph|knots?|kts?|parts? per (?:million|billion|trillion)|pp[mbt]|° ?[cf]|(?<=\\d)o ?[cf]|(?<=\\d )o ?c|(?<=\\d\\d)[cfd]" \
    "|(?:degrees?|deg\\.?) ?(?:celsius|centigrade|fahrenheit|[cf])|celsius|fahrenheit|kelvins?|newton[ -]?met(?:er|re)s?|kilohms?|megohms?|(?:kilo|mega|giga)ton(?:ne)?s?" \
    "|in(?! ?\\w)|in(?= (?:tall|long|wide|high|deep|thick)\\b)|" SIGNED ")(?!\\w))"
// "mg/kg", "kilometres per hour", "hours a week"
#define MEASURE "(?>" UNIT "(?:(?: ?/ ?| per | an? )" UNIT ")?)"

// What a number counts: a kind of quantity, the power of ten and the factor to its base, what the
// base is divided by where it is a rate, and the name of a unit that is none of those.
struct Measure {
    Letters kind, name;
    long power = 0, times = 1;
    bool based = true;
    double per = 0;  // of a rate: how many of its base units one unit below is
    long loose = 0;  // of a binary unit: the power of ten that it is taken for

    bool is_rate() const { return per > 0; }
    // How much one of it is in its base unit.
    double factor() const { return (double)times * std::pow(10.0, (double)power) / (per > 0 ? per : 1); }
};

class Measures {
  public:
    // The measure of "km", "square metres" or "mg/kg"; false if it is none.
    bool find(const Letters& written, Measure& out) const {
        for (const char32_t* between : {U"/", U" per ", U" an ", U" a "}) {
            size_t at = written.find(between);
            if (at == Letters::npos) continue;
            Measure above, below;
            Letters first = trimmed(written.substr(0, at));
            Letters second = trimmed(written.substr(at + std::char_traits<char32_t>::length(between)));
            if (!find_one(first, above) || !find_one(second, below)) return find_one(written, out);
            out = above;
            out.kind = above.kind + U"/" + below.kind;
            out.name = above.name + U"/" + below.name;
            out.based = above.based && below.based && above.kind != below.kind && !above.is_rate() && !below.is_rate();
            out.per = out.based ? below.factor() : 0;
            return true;
        }
        return find_one(written, out);
    }

  private:
    static Letters trimmed(const Letters& text) {
        size_t first = text.find_first_not_of(U' '), last = text.find_last_not_of(U' ');
        return first == Letters::npos ? Letters() : text.substr(first, last + 1 - first);
    }

    bool find_one(const Letters& written, Measure& out) const {
        Letters name;  // "sq. m" as "sq m", "m ^2" as "m2"
        bool tag = false;
        for (char32_t sign : written) {
            tag |= sign == '<';
            if (sign == '^' || sign == '.' || (tag && sign != '2' && sign != '3')) { tag &= sign != '>'; continue; }
            if (sign == '-') sign = ' ';
            if ((sign == '2' || sign == '3') && !name.empty() && name.back() == ' ') name.pop_back();
            name.push_back(sign == U'μ' || sign == U'µ' ? 'u' : sign);
        }
        auto found = names_.find(name);
        if (found == names_.end() && name.size() > 1) found = names_.find(lower(name));
        if (found == names_.end()) return false;
        out = found->second;
        return true;
    }

    struct Base { const char *sign, *names, *kind; long power, times; };

    // Units that take prefixes: "mA" and "milliamperes", "hl" and "hectolitres". A sign counts as it is written, and in
    // lower case where no other unit has it so.
    static void add_prefixed(std::unordered_map<Letters, Measure>& out) {
        static const Base bases[] = {
            {"s", "second,seconds,sec,secs", "duration", 0, 1}, {"m", "meter,meters,metre,metres", "length", 0, 1},
            {"l", "liter,liters,litre,litres", "volume", 0, 1}, {"g", "gram,grams,gramme,grammes", "mass", 0, 1},
            {"B", "byte,bytes", "data", 0, 8}, {"bit", "bit,bits", "data", 0, 1}, {"W", "watt,watts", "power", 0, 1},
            {"Wh", "watt hour,watt hours", "energy", 0, 3600}, {"J", "joule,joules", "energy", 0, 1}, {"eV", "electronvolt,electronvolts,electron volt,electron volts", "energy of particles", 0, 1},
            {"V", "volt,volts", "voltage", 0, 1}, {"A", "ampere,amperes,amp,amps", "current", 0, 1}, {"Ah", "", "charge", 0, 1},
            {"C", "coulomb,coulombs", "electric charge", 0, 1}, {"Ω", "ohm,ohms", "resistance", 0, 1}, {"F", "farad,farads", "capacity", 0, 1},
            {"H", "henry,henries", "inductance", 0, 1}, {"S", "siemens", "conductance", 0, 1}, {"T", "tesla,teslas", "flux density", 0, 1},
            {"N", "newton,newtons", "force", 0, 1}, {"Pa", "pascal,pascals", "pressure", 0, 1}, {"bar", "bars", "pressure", 5, 1},
            {"Hz", "hertz", "frequency", 0, 1}, {"mol", "mole,moles", "amount of substance", 0, 1}, {"Sv", "sievert,sieverts", "dose", 0, 1},
            {"Gy", "gray,grays", "absorbed dose", 0, 1}, {"Bq", "becquerel,becquerels", "activity", 0, 1}, {"lm", "lumen,lumens", "luminous flux", 0, 1},
            {"lx", "lux", "illuminance", 0, 1}, {"cd", "candela,candelas", "luminous intensity", 0, 1}};
        static const struct { const char *sign, *name; long power; } prefixes[] = {
            {"", "", 0}, {"M", "mega", 6}, {"m", "milli", -3}, {"k", "kilo", 3}, {"K", "kilo", 3}, {"G", "giga", 9}, {"T", "tera", 12}, {"P", "peta", 15},
            {"u", "micro", -6}, {"n", "nano", -9}, {"p", "pico", -12}, {"f", "femto", -15}, {"c", "centi", -2}, {"d", "deci", -1}, {"h", "hecto", 2}};
        std::unordered_map<Letters, Measure> low;
        for (const Base& base : bases)
            for (const auto& prefix : prefixes) {
                const Letters sign = letters(prefix.sign) + letters(base.sign), kind = letters(base.kind);
                const Measure one{kind, sign, base.power + prefix.power, base.times};
                out.emplace(sign, one);
                if (sign.size() > 1) low.emplace(lower(sign), one);
                for (Letters names = letters(base.names); !names.empty();) {
                    const size_t end = std::min(names.find(U','), names.size());
                    out.emplace(letters(prefix.name) + names.substr(0, end), one);
                    names.erase(0, end + 1);
                }
            }
        out.insert(low.begin(), low.end());
        for (const auto& [kind, dimension] : {std::pair(U"area", 2), std::pair(U"volume", 3)})
            for (const auto& prefix : prefixes) {
                if (prefix.power > 3 || prefix.power < -3 || prefix.power == 2 || prefix.sign[0] == 'K') continue;
                const Letters sign = letters(prefix.sign) + U"m", number = digits_of(dimension);
                const Measure one{kind, sign + number, dimension * prefix.power + (dimension == 3 ? 3 : 0)};
                out[sign + number] = one;
                for (const char32_t* word : dimension == 2 ? std::array{U"square ", U"sq ", U"sq"} : std::array{U"cubic ", U"cu ", U"cu"})
                    for (const char32_t* name : {U"meter", U"meters", U"metre", U"metres", U"m"})
                        out[word + (name == LettersView(U"m") ? letters(prefix.sign) : letters(prefix.name)) + name] = one;
            }
    }

    // What servers count by time: "600 requests per minute" are "10 req/s".
    static void add_counted(std::unordered_map<Letters, Measure>& out) {
        static const std::pair<const char32_t*, const char32_t*> counted[] = {
            {U"requests", U"requests"}, {U"request", U"requests"}, {U"reqs", U"requests"}, {U"req", U"requests"}, {U"calls", U"calls"},
            {U"queries", U"queries"}, {U"messages", U"messages"}, {U"transactions", U"transactions"}};
        static const std::pair<const char32_t*, double> periods[] = {
            {U"second", 1}, {U"sec", 1}, {U"s", 1}, {U"minute", 60}, {U"min", 60}, {U"hour", 3600}, {U"hr", 3600}, {U"h", 3600}, {U"day", 86400}};
        for (const auto& [word, name] : counted)
            for (const auto& [period, seconds] : periods)
                for (const char32_t* between : {U"/", U" per ", U" a ", U" an "})
                    out[Letters(word) + between + period] = Measure{Letters(name) + U"/duration", name, 0, 1, true, seconds};
    }

    static Letters digits_of(int value) { return Letters(1, U'0' + (char32_t)value); }

    struct Row { const char* names; const char* kind; long power, times; bool based; double per; long loose; };

    static std::unordered_map<Letters, Measure> read() {
        // The first name of a unit is how it is told from others of its kind where it has no factor.
        // A month is 30.436875 days: only months and years are compared by it.
        static const Row rows[] = {
            {"min,mins,minute,minutes", "duration", 0, 60, true},
            {"h,hr,hrs,hour,hours", "duration", 0, 3600, true},
            {"d,day,days,business day,business days,working day,working days,workday,workdays", "duration", 0, 86400, true},
            {"week,weeks,wk,wks", "duration", 0, 604800, true},
            {"fortnight,fortnights", "duration", 0, 1209600, true},
            {"month,months,mo,mos,mth,mths", "duration", 0, 2629746, true},
            {"year,years,yr,yrs", "duration", 0, 31556952, true},
            {"decade,decades", "duration", 0, 315569520, true},
            {"in,inch,inches", "length", -4, 254, true},
            {"ft,foot,feet", "length", -4, 3048, true},
            {"yd,yds,yard,yards", "length", -4, 9144, true},
            {"mi,mile,miles", "length", -3, 1609344, true},
            {"nautical mile,nautical miles,nmi", "length", 0, 1852, true},
            {"ha,hectare,hectares", "area", 4, 1, true},
            {"sq ft,sqft,sq feet,square foot,square feet,square ft", "area", 0, 1, false},
            {"sq in,sq inches,square inch,square inches", "area", 0, 1, false},
            {"sq yd,sq yards,square yard,square yards", "area", 0, 1, false},
            {"sq mi,sq miles,square mile,square miles,square mi", "area", 0, 1, false},
            {"acre,acres", "area", 0, 1, false},
            {"cup,cups", "volume", 0, 1, false},
            {"tbsp,tablespoon,tablespoons", "volume", 0, 1, false},
            {"tsp,teaspoon,teaspoons", "volume", 0, 1, false},
            {"gal,gallon,gallons", "volume", 0, 1, false},
            {"pint,pints", "volume", 0, 1, false},
            {"quart,quarts", "volume", 0, 1, false},
            {"barrel,barrels,bbl", "volume", 0, 1, false},
            {"bushel,bushels", "volume", 0, 1, false},
            {"fl oz,fluid ounce,fluid ounces,fl ounces", "volume", 0, 1, false},
            {"cu ft,cubic foot,cubic feet,cubic ft", "volume", 0, 1, false},
            {"cu in,cubic inch,cubic inches", "volume", 0, 1, false},
            {"cu yd,cubic yard,cubic yards", "volume", 0, 1, false},
            {"L", "volume", 0, 1, true},
            {"mcg", "mass", -6, 1, true},
            {"Mt,megatonne,megatonnes,megaton,megatons", "mass", 12, 1, true},
            {"Gt,gigatonne,gigatonnes,gigaton,gigatons", "mass", 15, 1, true},
            {"kilotonne,kilotonnes,kiloton,kilotons", "mass", 9, 1, true},
            {"mah", "charge", -3, 1, true},
            {"mv", "voltage", -3, 1, true},
            {"ma", "current", -3, 1, true},
            {"ohm,ohms", "resistance", 0, 1, true},
            {"kohm,kohms,kilohm,kilohms", "resistance", 3, 1, true},
            {"Mohm,megohm,megohms", "resistance", 6, 1, true},
            {"Nm,newton metre,newton metres,newton meter,newton meters", "torque", 0, 1, true},
            {"kgs,kilo,kilos", "mass", 3, 1, true},
            {"t,tonne,tonnes,metric ton,metric tons", "mass", 6, 1, true},
            {"ton,tons", "mass", 0, 1, false},
            {"lb,lbs", "mass", -5, 45359237, true},
            {"oz,ounce,ounces", "mass", -9, 28349523125, true},
            {"stone,stones", "mass", -5, 635029318, true},
            {"carat,carats", "mass", 0, 1, false},
            {"kib,kibibyte,kibibytes", "data", 0, 8L << 10, true, 0, 3},
            {"mib,mebibyte,mebibytes", "data", 0, 8L << 20, true, 0, 6},
            {"gib,gibibyte,gibibytes", "data", 0, 8L << 30, true, 0, 9},
            {"tib,tebibyte,tebibytes", "data", 0, 8L << 40, true, 0, 12},
            {"kbps,kbit/s,kbits/s", "data/duration", 3, 1, true, 1},
            {"mbps,mbit/s,mbits/s", "data/duration", 6, 1, true, 1},
            {"gbps,gbit/s,gbits/s", "data/duration", 9, 1, true, 1},
            {"tbps,tbit/s,tbits/s", "data/duration", 12, 1, true, 1},
            {"hp,horsepower", "power", 0, 1, false},
            {"kva", "power", 3, 1, false},
            {"mva", "power", 6, 1, false},
            {"kcal,kilocalories,kilocalorie", "energy", 0, 1, false},
            {"calories", "energy", 0, 1, false},
            {"rpm,revolutions per minute,revolutions a minute", "frequency", 0, 1, false},
            {"bpm,beats per minute,beats a minute,beats/minute,beats/min", "beats/duration", 0, 1, true, 60},
            {"beats per second,beats a second", "beats/duration", 0, 1, true, 1},
            {"breaths per minute,breaths a minute,breaths/minute,breaths/min", "breaths/duration", 0, 1, true, 60},
            {"fps,frames per second,frames a second,frames/second,frames/s", "frames/duration", 0, 1, true, 1},
            {"frames per minute,frames a minute", "frames/duration", 0, 1, true, 60},
            {"wpm,words per minute,words a minute,words/minute,words/min", "words/duration", 0, 1, true, 60},
            {"rounds per minute,rounds a minute", "rounds/duration", 0, 1, true, 60},
            {"dpi,dots per inch", "resolution", 0, 1, false},
            {"ppi,pixels per inch", "resolution", 0, 1, false},
            {"megapixel,megapixels", "pixels", 6, 1, true},
            {"px,pixel,pixels", "pixels", 0, 1, true},
            {"mbar,millibar,millibars", "pressure", 2, 1, true},
            {"psi,pounds per square inch", "pressure", 0, 1, false},
            {"mmhg,torr", "pressure", 0, 1, false},
            {"atm", "pressure", 0, 1, false},
            {"db,dB,decibel,decibels", "level", 0, 1, true},
            {"kelvin,kelvins", "temperature", 0, 1, false},
            {"C,°c,° c,oC,o C,celsius,degree c,degrees c,degree celsius,degrees celsius,degrees centigrade,deg c,deg celsius",
             "temperature", 0, 1, false},
            {"F,°f,° f,oF,o F,fahrenheit,degree f,degrees f,degree fahrenheit,degrees fahrenheit,deg f,deg fahrenheit",
             "temperature", 0, 1, false},
            {"km/h,kph,kmh", "length/duration", 3, 1, true, 3600},
            {"mi/h,mph", "length/duration", -3, 1609344, true, 3600},
            {"knot,knots,kt,kts", "length/duration", 0, 1852, true, 3600},
            {"light year,light years,lightyear,lightyears", "length", 0, 1, false},
            {"ppm,parts per million,part per million", "%", -4, 1, true},
            {"ppb,parts per billion,part per billion", "%", -7, 1, true},
            {"ppt,parts per trillion,part per trillion", "%", -10, 1, true},
        };
        std::unordered_map<Letters, Measure> out;
        add_prefixed(out);
        for (const Row& row : rows) {
            Letters names = letters(row.names), first;
            for (size_t at = 0; at <= names.size();) {
                size_t end = std::min(names.find(U',', at), names.size());
                Letters name = names.substr(at, end - at);
                if (first.empty()) first = name;
                out[name] = Measure{letters(row.kind), first, row.power, row.times, row.based, row.per, row.loose};
                at = end + 1;
            }
        }
        add_counted(out);
        for (const char32_t* sign : {U"C", U"F", U"S", U"H", U"T"}) out.erase(sign);
        return out;
    }

    const std::unordered_map<Letters, Measure> names_ = read();
};

}  // namespace ragmeter
