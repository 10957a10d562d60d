// The units of measure of texts: what they are called, and which are the same.
#pragma once

#include <cmath>
#include <unordered_map>

#include "text.hpp"

namespace ragmeter {

#define LENGTH_NAME \
    "(?:(?:nano|micro|milli|centi|kilo)?met(?:er|re)s?|[nuµμcmk]?m|inch(?:es)?|feet|foot|ft|yards?|yds?|miles?|mi)"
#define UNIT \
    "(?:milliseconds?|ms|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|wks?|fortnights?|months?|mths?|mos?|years?|yrs?|decades?|[shglvw]" \
    "|[cmk]?m ?\\^?[23]|[cmk]?m ?<sup>[23]</sup>|(?:square|cubic|sq\\.?|cu\\.?)[ -]?" LENGTH_NAME "|sqft|sqm|" LENGTH_NAME \
    "|hectares?|ha|acres?|(?:micro|milli|kilo)?gram(?:me)?s?|mcg|[uµμmk]g|kgs|kilos?|tonnes?|(?:metric )?tons?|lbs?|ounces?" \
    "|oz|(?:milli|centi|deci)?lit(?:er|re)s?|[mcd]l|gallons?|gal|cups?|tablespoons?|tbsp|teaspoons?|tsp|[kmgtp]i?b|(?:kilo|mega|giga|tera|peta)?bytes?" \
    "|[kmg]bps|[kmg]bits?(?:/s)?|[kmgt]wh|[kmg]w|(?:kilo|mega|giga)?watts?(?:[ -]hours?)?|kv|(?:kilo)?volts?|mah|[kmg]?hz" \
    "|(?:kilo|mega|giga)?hertz|[kmh]pa|(?:kilo|mega|hecto)?pascals?|m?bar|psi|mmhg|kcal|kilocalories|calories" \
    "|kj|kilojoules|hp|horsepower|rpm|kph|kmh|mph|knots?|kts?|light[ -]?years?|parts? per (?:million|billion|trillion)|pp[mb]|[mµμ]mol|° ?[cf]|(?<=\\d)o ?[cf]|(?<=\\d )o ?c" \
    "|(?:degrees?|deg\\.?) ?(?:celsius|centigrade|fahrenheit|[cf])|celsius|fahrenheit)"
// "mg/kg", "kilometres per hour", "hours a week"
#define MEASURE UNIT "(?:(?: ?/ ?| per | an? )" UNIT ")?(?!\\w)"

// What a number counts: a kind of quantity, the power of ten and the factor to its base, what the
// base is divided by where it is a rate, and the name of a unit that is none of those.
struct Measure {
    Letters kind, name;
    long power = 0, times = 1;
    bool based = true;
    double per = 0;  // of a rate: how many of its base units one unit below is

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

    struct Row { const char* names; const char* kind; long power, times; bool based; double per; };

    static std::unordered_map<Letters, Measure> read() {
        // The first name of a unit is how it is told from others of its kind where it has no factor.
        // A month is 30.436875 days: only months and years are compared by it.
        static const Row rows[] = {
            {"ms,millisecond,milliseconds", "duration", -3, 1, true},
            {"s,sec,secs,second,seconds", "duration", 0, 1, true},
            {"min,mins,minute,minutes", "duration", 0, 60, true},
            {"h,hr,hrs,hour,hours", "duration", 0, 3600, true},
            {"day,days", "duration", 0, 86400, true},
            {"week,weeks,wk,wks", "duration", 0, 604800, true},
            {"fortnight,fortnights", "duration", 0, 1209600, true},
            {"month,months,mo,mos,mth,mths", "duration", 0, 2629746, true},
            {"year,years,yr,yrs", "duration", 0, 31556952, true},
            {"decade,decades", "duration", 0, 315569520, true},
            {"nm,nanometer,nanometers,nanometre,nanometres", "length", -9, 1, true},
            {"um,micrometer,micrometers,micrometre,micrometres", "length", -6, 1, true},
            {"mm,millimeter,millimeters,millimetre,millimetres", "length", -3, 1, true},
            {"cm,centimeter,centimeters,centimetre,centimetres", "length", -2, 1, true},
            {"m,meter,meters,metre,metres", "length", 0, 1, true},
            {"km,kilometer,kilometers,kilometre,kilometres", "length", 3, 1, true},
            {"in,inch,inches", "length", 0, 1, false},
            {"ft,foot,feet", "length", 0, 1, false},
            {"yd,yds,yard,yards", "length", 0, 1, false},
            {"mi,mile,miles", "length", 0, 1, false},
            {"cm2,sq cm,square cm,square centimeter,square centimeters,square centimetre,square centimetres", "area", -4, 1, true},
            {"m2,sqm,sq m,square m,square meter,square meters,square metre,square metres,sq meters,sq metres", "area", 0, 1, true},
            {"ha,hectare,hectares", "area", 4, 1, true},
            {"km2,sq km,square km,square kilometer,square kilometers,square kilometre,square kilometres", "area", 6, 1, true},
            {"sq ft,sqft,sq feet,square foot,square feet,square ft", "area", 0, 1, false},
            {"sq mi,sq miles,square mile,square miles,square mi", "area", 0, 1, false},
            {"acre,acres", "area", 0, 1, false},
            {"cm3,cu cm,cubic cm,cubic centimeter,cubic centimeters,cubic centimetre,cubic centimetres", "volume", -3, 1, true},
            {"ml,milliliter,milliliters,millilitre,millilitres", "volume", -3, 1, true},
            {"cl,centiliter,centiliters,centilitre,centilitres", "volume", -2, 1, true},
            {"dl,deciliter,deciliters,decilitre,decilitres", "volume", -1, 1, true},
            {"l,L,liter,liters,litre,litres", "volume", 0, 1, true},
            {"m3,cu m,cubic m,cubic meter,cubic meters,cubic metre,cubic metres", "volume", 3, 1, true},
            {"cup,cups", "volume", 0, 1, false},
            {"tbsp,tablespoon,tablespoons", "volume", 0, 1, false},
            {"tsp,teaspoon,teaspoons", "volume", 0, 1, false},
            {"gal,gallon,gallons", "volume", 0, 1, false},
            {"cu ft,cubic foot,cubic feet,cubic ft", "volume", 0, 1, false},
            {"ug,mcg,microgram,micrograms,microgramme,microgrammes", "mass", -6, 1, true},
            {"mg,milligram,milligrams,milligramme,milligrammes", "mass", -3, 1, true},
            {"g,gram,grams,gramme,grammes", "mass", 0, 1, true},
            {"kg,kgs,kilo,kilos,kilogram,kilograms,kilogramme,kilogrammes", "mass", 3, 1, true},
            {"t,tonne,tonnes,metric ton,metric tons", "mass", 6, 1, true},
            {"ton,tons", "mass", 0, 1, false},
            {"lb,lbs", "mass", 0, 1, false},
            {"oz,ounce,ounces", "mass", 0, 1, false},
            {"umol", "amount of substance", -6, 1, true},
            {"mmol", "amount of substance", -3, 1, true},
            {"byte,bytes", "data", 0, 1, true},
            {"kb,kib,kilobyte,kilobytes", "data", 3, 1, true},
            {"mb,mib,megabyte,megabytes", "data", 6, 1, true},
            {"gb,gib,gigabyte,gigabytes", "data", 9, 1, true},
            {"tb,tib,terabyte,terabytes", "data", 12, 1, true},
            {"pb,pib,petabyte,petabytes", "data", 15, 1, true},
            {"kbps,kbit/s,kbits/s", "rate of data", 3, 1, true},
            {"mbps,mbit/s,mbits/s", "rate of data", 6, 1, true},
            {"gbps,gbit/s,gbits/s", "rate of data", 9, 1, true},
            {"W,watt,watts", "power", 0, 1, true},
            {"kw,kilowatt,kilowatts", "power", 3, 1, true},
            {"mw,megawatt,megawatts", "power", 6, 1, true},
            {"gw,gigawatt,gigawatts", "power", 9, 1, true},
            {"hp,horsepower", "power", 0, 1, false},
            {"watt hour,watt hours", "energy", 0, 1, true},
            {"kwh,kilowatt hour,kilowatt hours", "energy", 3, 1, true},
            {"mwh,megawatt hour,megawatt hours", "energy", 6, 1, true},
            {"gwh,gigawatt hour,gigawatt hours", "energy", 9, 1, true},
            {"twh", "energy", 12, 1, true},
            {"kcal,kilocalories", "energy", 0, 1, false},
            {"calories", "energy", 0, 1, false},
            {"kj,kilojoules", "energy", 0, 1, false},
            {"V,volt,volts", "voltage", 0, 1, true},
            {"kv,kilovolt,kilovolts", "voltage", 3, 1, true},
            {"mah", "charge", 0, 1, true},
            {"hz,hertz", "frequency", 0, 1, true},
            {"khz,kilohertz", "frequency", 3, 1, true},
            {"mhz,megahertz", "frequency", 6, 1, true},
            {"ghz,gigahertz", "frequency", 9, 1, true},
            {"rpm", "frequency", 0, 1, false},
            {"pascal,pascals", "pressure", 0, 1, true},
            {"hpa,hectopascal,hectopascals", "pressure", 2, 1, true},
            {"mbar", "pressure", 2, 1, true},
            {"kpa,kilopascal,kilopascals", "pressure", 3, 1, true},
            {"bar", "pressure", 5, 1, true},
            {"mpa,megapascal,megapascals", "pressure", 6, 1, true},
            {"psi", "pressure", 0, 1, false},
            {"mmhg", "pressure", 0, 1, false},
            {"C,°c,° c,oC,o C,celsius,degree c,degrees c,degree celsius,degrees celsius,degrees centigrade,deg c,deg celsius",
             "temperature", 0, 1, false},
            {"F,°f,° f,oF,o F,fahrenheit,degree f,degrees f,degree fahrenheit,degrees fahrenheit,deg f,deg fahrenheit",
             "temperature", 0, 1, false},
            {"km/h,kph,kmh", "length/duration", 3, 1, true, 3600},
            {"mi/h,mph", "length/duration", 0, 1, false},
            {"knot,knots,kt,kts", "length/duration", 0, 1, false},
            {"light year,light years,lightyear,lightyears", "length", 0, 1, false},
            {"ppm,parts per million,part per million", "proportion", -6, 1, true},
            {"ppb,parts per billion,part per billion", "proportion", -9, 1, true},
            {"parts per trillion,part per trillion", "proportion", -12, 1, true},
        };
        std::unordered_map<Letters, Measure> out;
        for (const Row& row : rows) {
            Letters names = letters(row.names), first;
            for (size_t at = 0; at <= names.size();) {
                size_t end = std::min(names.find(U',', at), names.size());
                Letters name = names.substr(at, end - at);
                if (first.empty()) first = name;
                out[name] = Measure{letters(row.kind), first, row.power, row.times, row.based, row.per};
                at = end + 1;
            }
        }
        out.erase(U"C");
        out.erase(U"F");
        return out;
    }

    const std::unordered_map<Letters, Measure> names_ = read();
};

}  // namespace ragmeter
