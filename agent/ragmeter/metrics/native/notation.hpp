// The numbers, dates and times of texts, and how an answer is read in its passages' notation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <unordered_set>

#include "context.hpp"
#include "measures.hpp"
#include "owners.hpp"
#include "quantity.hpp"
#include "records.hpp"
#include "slots.hpp"
#include "words.hpp"

namespace ragmeter {

// -- what is read as a number, a date or a time

#define MONTH \
    "(?:january|february|march|april|may|june|july|august|september|october|november|december" \
    "|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?![a-z])\\.?)"
#define ORDINAL \
    "(?:(?:twenty|thirty)-)?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)|tenth" \
    "|eleventh|twelfth|thirteenth|fourteenth|fifteenth|sixteenth|seventeenth|eighteenth" \
    "|nineteenth|twentieth|thirtieth"
#define HIGH_ORDINAL "(?:for|fif|six|seven|eigh|nine)ty-(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)"
#define DAY "(?:0?[1-9]|[12]\\d|3[01])(?:st|nd|rd|th)?"
#define YEAR "(?:1[5-9]|20|21)\\d\\d"
#define ANY_YEAR "(?:" YEAR "|['’]\\d\\d)"
// A year before 1500 behind a day, where no word follows that it may count.
#define OLD_YEAR \
    "|1[0-4]\\d\\d(?![\\w]|[.,]\\d| (?!(?:and|as|at|before|but|by|for|from|he|in|is|it|near|of|on|she|the|to|under|until|was|when|with)\\b)[a-z])"
#define WEEKDAY "(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:mon|tue|wed|thu|fri|sat|sun)\\.?)"
#define NUMBER \
    "(?:(?:\\d{1,3}(?:[,.'’ ]\\d{3})+|\\d{1,2}(?:,\\d\\d)+,\\d{3}|\\d{1,15})" \
    "(?:[.,]\\d{1,10})?(?:e[+-]?\\d{1,2})?|\\.\\d{1,6})"
#define SCALE \
    "(?:(?:hundred|thousand|millionen|milliarden|milliards?|millones|millón|milhões|milhão|million" \
    "|billion|trillion|lakh crore|lakh|crore|mio|mln|mrd|mld|tsd|mn|mm|bn|tn|cr|[kmb](?!s\\b))(?:s\\b)?\\b\\.?|" WIDE_SCALE ")"
// Of Chinese, Japanese and Korean, which write no blank behind a number.
#define WIDE_SCALE \
    "(?:十万|百万|千万|十亿|百亿|千亿|万亿|十萬|百萬|千萬|十億|百億|千億|兆|万|萬|亿|億|千|십만|백만|천만|십억|백억|천억|만|억|조|천)"
#define WIDE_CURRENCY \
    "(?:美元|美金|欧元|歐元|英镑|英鎊|日元|日圓|人民币|人民幣|ドル|ユーロ|ポンド|달러|유로|파운드|엔|원|元|円|圓|块)"
#define CURRENCY_SIGN \
    "(?:us\\$|a\\$|c\\$|ca\\$|au\\$|hk\\$|nt\\$|s\\$|nz\\$|r\\$|usd|eur|gbp|jpy|inr|chf|cad|aud|cny|rmb|krw|sek|nok" \
    "|dkk|pln|brl|mxn|sgd|hkd|nzd|zar|rs\\.?|s?fr\\.|[$€£¥₹₩₽₺₫₱₪฿])"
#define CURRENCY_NAME \
    "(?:de |di )?(?:(?:us|swiss|swedish|norwegian|danish|indian|canadian|australian)[ -])?(?:dollars?|dólares|euros?" \
    "|pounds?(?: sterling)?|yen|rupees?|francs?|yuan|kron(?:a|or|er|e)|z[lł]ot(?:ys?|ych)|pesos?|roubles?|rubles?" \
    "|usd|eur|gbp|jpy|inr|chf|cad|aud|cny|rmb|krw|sek|nok|dkk|pln|brl|mxn|sgd|hkd|nzd|zar)\\b" \
    "|[$€£¥₹₩₽₺₫₱₪฿]|" WIDE_CURRENCY
#define PERCENT "%|percent(?:age[ -]points?)?\\b|per cent\\b|pct\\b|pc\\b|pp\\b|basis points?\\b|bps?\\b"
// Between a number and its unit: a blank, a hyphen, and the signs of Markdown and HTML around either.
#define MARKUP "(?:\\*{1,3}|_{1,2}|`|</?[a-z]{1,6}>)?"
#define GAP MARKUP "[\\s-]?" MARKUP
#define CENTS "cents?\\b|¢|pence\\b|(?<=\\d)p\\b"
// Of a time: how far it is from UTC. "10:00-12:00" is two times, "10:00:00-05:00" one.
#define ZONE \
    "(?: ?(?P<zone>(?:utc|gmt)(?: ?[+−-] ?\\d{1,2}(?::?[0-5]\\d)?)?|z|cest|cet|mesz|mez|eest|eet|msk|jst|kst|hkt|sgt" \
    "|aest|aedt|edt|est|cdt|mdt|mst|pdt|pst)\\b" \
    "|(?P<shift> ?\\+[01]\\d:?[0-5]\\d|(?<=\\d:[0-5]\\d:[0-5]\\d)-[01]\\d:?[0-5]\\d)(?![\\d:]))?"
#define NUMBER_WORD \
    "seventeen|thirteen|fourteen|eighteen|nineteen|fifteen|sixteen|seventy|eleven|twelve|twenty" \
    "|thirty|eighty|ninety|three|seven|eight|forty|fifty|sixty|four|five|nine|one|two|six|ten" \
    "|hundred|thousand|million|billion|trillion|dozen"
// Words of Chinese, Japanese and Korean before a time.
#define WIDE_MORNING "凌晨|清晨|早晨|早上|上午|早朝|午前|朝|오전|새벽|아침"
#define WIDE_NIGHT "晚上|夜晚|夜|밤"
#define WIDE_HALF "(?:" WIDE_MORNING "|中午|昼|낮|下午|傍晚|午後|午后|夕方|오후|저녁|" WIDE_NIGHT ")"
#define WIDE_HOUR "(?:\\d{1,2}|[一二两兩三四五六七八九十]{1,2})"
#define WIDE_MINUTE "(?:\\d{1,2}|[零〇一二三四五六七八九十]{1,3})"
#define HOUR "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
#define PART_OF_DAY "in the (?:morning|afternoon|evening)|at night"
#define TENS "(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)"
// A share of which both numbers are small, and a part of one unit.
#define SMALL "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|(?:a |one )?hundred|\\d{1,3}"
#define FRACTION \
    "(?:1/(?:[2-68]|1[02])|2/[35]|3/(?:[458]|10)|4/5|5/[68]|7/(?:8|10)|9/10)(?![ -](?:time|metre|meter)\\b)" \
    "|(?:one|two|three|four|five|six|seven|nine|\\d)[ -](?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twelfth)s?(?![\\w-]| part)" \
    "|an? (?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twelfth)(?= of (?!an? ))|half(?= of (?!an? ))" \
    "|(?:full|whole|entire|half)(?= (?:(?:the|their|your|his|her|its) )?(?:pay|salary|wages?|price|costs?|fare|fee|rent|rate|refund|amount|coverage|tuition|deposit|balance|value)\\b)" \
    "|(?:(?:" SMALL ") (?:out of (?:the |every |all )?|of (?:the|its|their|every) )|(?:one|two|three|four|[1-4]) in (?:every )?)" \
    "(?:" SMALL ")(?![\\w%]|[.,:]\\d| (?:percent|per cent)|[ -]?" UNIT "(?!\\w))" \
    "|(?>(?:" SMALL ") )(?!stars?\\b|points?\\b|" UNIT ")(?>(?:[a-z]{3,14} ){1,2}?(?:(?:in|out of) (?:every |each )?|of every ))(?:" SMALL ")(?![\\w%]|[.,:]\\d| (?:percent|per cent)|[ -]?" UNIT "(?!\\w))"
#define DIGIT_WORD "zero|one|two|three|four|five|six|seven|eight|nine"
#define NUMBER_WORDS \
    "(?:(?:an?|half a|" NUMBER_WORD ")\\b)(?:(?:[ -]|,? and )(?:" NUMBER_WORD ")\\b){0,9}"

// Read only where `Notation::find_starts` says that a quantity may begin, which is never within a word.
const char QUANTITY[] =
    "(?:(?P<weekday>" WEEKDAY ")(?:, ?| )(?:the )?(?=\\w))?(?:"
    "(?P<compact>(?P<ky>(?:19|20)\\d\\d)(?P<km>0[1-9]|1[0-2])(?P<kd>0[1-9]|[12]\\d|3[01])(?![\\w]|[.,]\\d))"
    "|(?P<iso>(?P<iy>" YEAR "|1[0-4]\\d\\d(?=-\\d\\d-\\d\\d))(?P<is>[-/.])(?P<im>0?[1-9]|1[0-2])(?P=is)(?P<id>0?[1-9]|[12]\\d"
    "|3[01])(?!\\d)(?:T00:00(?::00)?(?:\\.0{1,9})?(?:Z|[+-]00:?00)?(?!\\w))?)"
    "|(?P<num>(?P<na>\\d{1,2})(?P<ns>[-/.])(?P<nb>\\d{1,2})(?P=ns)(?P<ny>" YEAR
    "|\\d\\d)(?![\\d.]\\d|\\d))"
    "|(?P<slash>(?:(?<=by )|(?<=on )|(?<=due )|(?<=until )|(?<=since )|(?<=before )|(?<=after )|(?<=from ))"
    "(?:(?:1[0-2]|0?[1-9])/(?:1[3-9]|2\\d|3[01])|(?:1[3-9]|2\\d|3[01])/(?:1[0-2]|0?[1-9]))(?![\\w/%]|[.,]\\d))"
    "|(?P<cjk>(?:(?P<cy>" YEAR ")[年년] ?)?(?P<cm>1[0-2]|0?[1-9])[月월] ?(?P<cd>\\d{1,2})[日号號일])"
    "|(?P<mdy>(?P<mm>" MONTH ") (?:the )?(?P<md>" DAY "|(?:" ORDINAL ")(?=,? " YEAR "\\b))\\b(?![:.]\\d"
    "| ?[ap]\\.?m)(?:,? (?:of )?(?P<my>" ANY_YEAR OLD_YEAR ")\\b)?)"
    "|(?P<dmy>(?:the )?(?P<dd>" DAY "|(?:" ORDINAL ")(?= (?:day )?of ))[ -](?:day of |of )?(?P<dm>" MONTH ")(?![a-z])"
    "(?:,?[ -](?P<dy>" ANY_YEAR OLD_YEAR ")\\b)?)"
    "|(?P<month>(?P<om>" MONTH "),? (?:of )?(?P<oy>" ANY_YEAR "|(?:3[2-9]|[4-9]\\d)(?![\\w%]|[.,:]\\d))\\b|(?P<ov>" YEAR ")-(?P<ow>0[1-9]|1[0-2])(?![\\w-]|[.,]\\d)|(?P<on>0?[1-9]|1[0-2])/(?P<oz>" YEAR ")(?![\\w/]|[.,]\\d))"
    "|(?P<race>(?P<rm>\\d{1,3}):(?P<rs>[0-5]\\d[.]\\d{1,3})(?!\\w)|pt(?:(?P<r1>\\d{1,4})h)?(?:(?P<r2>\\d{1,5})m)?(?:(?P<r3>\\d{1,6})s)?(?!\\w)"
    "|(?P<r4>\\d{1,3}) ?m(?:in)? ?(?P<r5>[0-5]?\\d(?:[.]\\d{1,3})?) ?s(?:ec)?(?!\\w))"
    "|(?P<lasting>(?P<lh>\\d{1,3}) ?h(?:rs?|ours?)? ?(?P<lm>[0-5]?\\d) ?m(?:in(?:ute)?s?)?\\b)"
    "|(?:(?P<time>(?P<th>\\d{1,2})(?:[:.h](?P<tm>[0-5]\\d)"
    "(?::[0-5]\\d)?)? ?(?P<ta>[ap])\\.? ?m\\b\\.?)"
    "|(?P<clock>(?P<ch>[01]?\\d"
    "|2[0-4])(?P<cs>[:h])(?P<ci>[0-5]\\d)(?::[0-5]\\d)?(?!\\d)(?: (?:hours|hrs|uhr|o'clock|h\\b))?(?: (?P<cp>" PART_OF_DAY ")\\b)?))" ZONE
    "|(?P<wide>(?P<wa>" WIDE_HALF ") ?(?P<wh>" WIDE_HOUR ")(?::(?P<wm>[0-5]\\d)(?!\\d)| ?[点點时時시](?![間间간])"
    "(?: ?(?P<wn>" WIDE_MINUTE ") ?[分분]|(?P<wd>[0-5]\\d)(?!\\d)| ?(?P<wk>[半반]))?))"
    "|(?P<digital>(?P<xh>[01]?\\d|2[0-4]) ?(?:[点點时時시] ?(?:(?P<xm>[0-5]?\\d) ?[分분]|(?P<xk>[半반]))|[時시](?![間간])))"
    "|(?P<uhr>(?P<uh>[01]?\\d|2[0-4])(?:[.](?P<um>[0-5]\\d))? (?:uhr|o['’]clock)\\b(?! in the | at night))"
    "|(?P<noon>12 noon|noon|12 midnight|(?:(?<=at )|(?<=until )|(?<=from )|(?<=before )|(?<=after )|(?<=and )|(?<=to )|(?<=by ))midnight)\\b"
    "|(?P<half>(?:(?P<hx>half past|half-past|(?:a )?quarter (?:past|to)|(?:five|ten|twenty|twenty[ -]five|\\d{1,2})(?: minutes?)? past|(?:five|ten|twenty|twenty[ -]five|\\d{1,2})"
    "(?: minutes? to|(?: to(?= (?:noon|midnight)\\b)|(?: to(?= (?:\\d{1,2}|" HOUR ")(?: (?:" PART_OF_DAY ")|[.,;]|$)))))) (?P<hp>\\d{1,2}|" HOUR "|noon|midnight)(?![\\w]|[.,:]\\d)(?: (?P<hd>" PART_OF_DAY ")\\b)?"
    "|(?P<hq>[1-9]|1[0-2]|" HOUR ")(?: o['’]clock)? (?P<he>" PART_OF_DAY ")\\b))"
    "|(?P<partial>(?P<pf>half|(?:a |one )?quarter|three[ -]quarters|(?:a |one )third|two[ -]thirds|[123]/[234])(?: of)?[ -](?:an? )?"
    "(?:(?P<pm>" MEASURE ")|(?P<pq>percent(?:age[ -]points?)?|per cent)\\b|(?P<ps>hundred|thousand|million|billion|trillion)\\b(?:[ -](?P<pc>" CURRENCY_NAME "))?)"
    "|(?P<pn>an?|one|two|three|four|five|six|\\d{1,3}) (?P<pu>" UNIT ") and (?P<pg>an? half|an? quarter|three[ -]quarters)(?! (?:cups?|table|tea|mile|hour|day|week|month|year))\\b)"
    "|(?P<fraction>" FRACTION ")"
    "|(?P<century>(?:(?P<hn>\\d{1,2})(?:st|nd|rd|th)|(?P<hw>" ORDINAL "|[ivx]{1,5})(?:th)?)[ -]centur(?:y|ies)\\b)"
    "|(?P<decade>(?P<ten>(?:1[5-9]|20)\\d0|(?<=the )1[0-4]\\d0|(?<=the |he ['’])[2-9]0)['’]?s\\b|(?<=the )(?P<tens>(?:(?:seven|eigh|nine)teen[ -])?" TENS "ies)\\b)"
    "|(?P<week>(?:(?:calendar )?week|[ck]w) ?(?P<w1>[0-5]?\\d)(?:,? (?:of |in )?|/)(?P<w2>" YEAR ")\\b|(?P<w3>" YEAR ")-?w(?P<w4>[0-5]\\d)(?!\\w))"
    "|(?P<fiscal>(?:fy|(?:fiscal|financial)(?: year)?)[ -]?['’]?(?P<fy>" YEAR "|\\d\\d)(?![\\w]|/\\d|[ -]q[1-4](?!\\w))"
    "|(?P<fy2>" YEAR ") (?:fiscal|financial) year\\b)"
    "|(?P<quarter>(?:(?:fy|fiscal(?: year)?)[ -]?['’]?(?:20)?\\d\\d|20\\d\\d)[ -]?q[1-4](?!\\w)|(?:q(?P<q1>[1-4])|(?P<q2>[1-4])q|(?P<q3>first|second|third|fourth|1st|2nd"
    "|3rd|4th)[ -]quarter|(?:h(?=[12](?!\\w))|(?=[12]h 20\\d\\d(?!\\d)))(?P<q4>[12])h?|(?P<q5>first|second|1st|2nd)[ -]half(?=(?: of)? (?:fiscal |fy ?)?['’]?\\d))"
    "(?:(?: ?of)?[ /-]?(?:fiscal (?:year )?|fy ?)?['’]?(?P<qy>" YEAR "|\\d\\d(?=\\W|$))(?!\\d))?)"
    "|(?P<times>(?:(?:once|twice|thrice|(?:" SMALL ") times|(?>\\d{1,2} ?)[x×])(?:(?: (?:an?|per|each|every)[ -]| ?/ ?)(?P<period>minute|hour|day|week|month|year)\\b| (?P<daily>hour|dai|week|month|year)ly\\b)"
    "|by a factor of (?:\\d{1,3}(?:[.,]\\d{1,2})?|" SMALL ")(?![\\w]|[.,]\\d)|(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|\\d{1,3})-?fold\\b"
    "|(?P<factor>\\d{1,3}[.,]\\d{1,2}|(?:one|two|three|four|five) and an? (?:half|quarter))(?: times|x)(?!\\w)|(?:twice|thrice|(?:" SMALL ") times)\\b|half(?= as )|\\d{1,2}x(?!\\w| ?\\d)|once(?= (?:an?|per|each|every|daily|weekly|monthly|yearly)\\b)))"
    "|(?P<one>(?:an? |every (?:(?P<nth>other|second|third|fourth) )?)(?P<ou>minute|hour|day|week|fortnight|month|year|decade)(?![\\w-]))"
    "|(?P<often>(?:(?:bi|semi)-?(?:week|month)|fortnight)ly\\b|(?:dai|week|month|quarter|half-year|twice-year|year)ly\\b|(?:bi|semi-?)?annually\\b)"
    "|(?P<degrees>(?P<ga>\\d{1,3}(?:[.,]\\d{1,8})?)(?: ?°,? ?| degrees?,? )(?:(?P<gm>\\d{1,2}(?:[.,]\\d{1,8})?)(?: ?['′’],? ?| minutes?,? )"
    "(?:(?P<gs>\\d{1,2}(?:[.,]\\d{1,8})?)(?: ?[\"″”],? ?| seconds?,? ))?)?(?P<point>north|south|east|west|[nsew])(?![\\w-]))"
    "|(?P<ordinal>\\d{1,3}(?:st|nd|rd|th)\\b|(?:" ORDINAL "|" HIGH_ORDINAL ")(?![\\w]|-\\w))"
    "|(?P<level>(?:fl|flight level) ?(?P<lv>[0-4]\\d\\d)(?!\\w|[.,]\\d))"
    "|(?P<loss>" CURRENCY_SIGN " ?\\((?P<lost>" NUMBER ")\\)(?: ?" SCALE ")?)"
    "|(?P<amount>(?!40[13] ?\\(?[kb])(?P<minus>[-−–]|minus |negative )?(?:(?P<sign>" CURRENCY_SIGN ") ?)?(?P<figure>(?P<value>" NUMBER ")(?:(?: and)? (?P<part>1/2|[13]/4|[1357]/8|[1-4]/5|an? half)\\b)?"
    "(?:(?![ -]?m(?:m?(?: ?\\^| ?<sup>| ?/|[23]\\b)|m (?:per|an?) (?:hour|day|week|month|year)| (?:per|an?) (?:second|minute|hour)))[ -]?(?P<scale>" SCALE ")| ?[x×] ?10\\^?(?P<power>\\d{1,2}))?)"
    "(?:(?<=[万萬亿億兆千百만억조천])|(?= ?" WIDE_CURRENCY ")|(?=" MEASURE "|(?:bps?|pct|pc|pp|p)\\b)|(?![\\w]|[.,]\\d))"
    "(?:" GAP "(?:(?P<percent>" PERCENT ")|(?P<cents>" CENTS ")|(?P<name>" CURRENCY_NAME ")|(?P<measure>" MEASURE ")(?P<below> below zero\\b)?))?)"
    "|(?P<spelt>(?P<words>" NUMBER_WORDS ")"
    "(?:(?P<wpart> and an? (?:half|quarter)| and three[ -]quarters| point(?: (?:" DIGIT_WORD ")\\b){1,4})"
    "(?: (?P<wscale>hundred|thousand|million|billion|trillion)\\b)?)?(?:[ -](?:(?P<wpercent>" PERCENT
    ")|(?P<wname>" CURRENCY_NAME ")|(?P<wmeasure>" MEASURE ")))?)"
    ")";

// The groups of `QUANTITY`; those of its kinds come first.
enum Group {
    G_COMPACT, G_ISO, G_NUM, G_SLASH, G_CJK, G_MDY, G_DMY, G_MONTH, G_RACE, G_LASTING, G_TIME, G_CLOCK, G_WIDE, G_DIGITAL, G_UHR, G_NOON, G_HALF,
    G_FRACTION, G_PARTIAL,
    G_CENTURY, G_DECADE, G_WEEK, G_FISCAL, G_QUARTER, G_TIMES, G_ONE, G_OFTEN, G_DEGREES, G_ORDINAL, G_LEVEL, G_LOSS, G_AMOUNT, G_SPELT, G_WEEKDAY, G_KY, G_KM, G_KD, G_HP, G_FY2, G_PART, G_WPART,
    G_WSCALE, G_IY, G_IM, G_ID, G_NA, G_NS, G_NB, G_NY, G_CY, G_CM, G_CD,
    G_MM, G_MD, G_MY, G_DD, G_DM, G_DY, G_OM, G_OY, G_TH, G_TM, G_TA, G_CH, G_CS, G_CI, G_UH, G_UM,
    G_FY, G_Q1, G_Q2, G_Q3, G_QY, G_SIGN, G_FIGURE, G_VALUE, G_SCALE, G_POWER, G_PERCENT, G_NAME,
    G_WORDS, G_WPERCENT, G_WNAME,
    G_WA, G_WH, G_WM, G_WN, G_WD, G_WK, G_XH, G_XM, G_XK, G_ZONE, G_SHIFT,
    G_CENTS, G_MEASURE, G_WMEASURE, G_HN, G_HW, G_TEN, G_TENS,
    G_LH, G_LM, G_CP, G_HX, G_HD, G_HQ, G_HE, G_PF, G_PM, G_PS, G_PC, G_PN, G_PU, G_PG, G_Q4, G_Q5, G_MINUS, G_BELOW, G_NTH, G_OU, G_GA, G_GM, G_GS, G_POINT, G_PERIOD, G_DAILY, G_FACTOR, G_ON, G_OZ, G_PQ, G_LV, G_OV, G_OW, G_RM, G_RS, G_R1, G_R2, G_R3, G_R4, G_R5, G_W1, G_W2, G_W3, G_W4, G_LOST, G_COUNT
};
// Which of them say a quarter or a half.
const Group QUARTERS[] = {G_Q1, G_Q2, G_Q3, G_Q4, G_Q5};
const char* const GROUPS[] = {
    "compact", "iso", "num", "slash", "cjk", "mdy", "dmy", "month", "race", "lasting", "time", "clock", "wide", "digital", "uhr", "noon", "half",
    "fraction", "partial",
    "century", "decade", "week", "fiscal", "quarter", "times", "one", "often", "degrees", "ordinal", "level", "loss", "amount", "spelt", "weekday", "ky", "km", "kd", "hp", "fy2", "part", "wpart",
    "wscale", "iy", "im", "id", "na", "ns", "nb", "ny", "cy", "cm", "cd",
    "mm", "md", "my", "dd", "dm", "dy", "om", "oy", "th", "tm", "ta", "ch", "cs", "ci", "uh", "um",
    "fy", "q1", "q2", "q3", "qy", "sign", "figure", "value", "scale", "power", "percent", "name",
    "words", "wpercent", "wname",
    "wa", "wh", "wm", "wn", "wd", "wk", "xh", "xm", "xk", "zone", "shift",
    "cents", "measure", "wmeasure", "hn", "hw", "ten", "tens",
    "lh", "lm", "cp", "hx", "hd", "hq", "he", "pf", "pm", "ps", "pc", "pn", "pu", "pg", "q4", "q5", "minus", "below", "nth", "ou", "ga", "gm", "gs", "point", "period", "daily", "factor", "on", "oz", "pq", "lv", "ov", "ow", "rm", "rs", "r1", "r2", "r3", "r4", "r5", "w1", "w2", "w3", "w4", "lost",
};

// A word that may be a number has one of these; looking for them is quicker than the pattern.
const char* const SPELT[] = {
    "teen", "ty", "ties", "undred", "ousand", "illion", "leven", "welve", "ercent", "er cent", "ollar",
    "noon", "midn", " past ", " to ", "uarter", "fy", "fiscal", "q1", "q2", "q3", "q4", "usd", "eur", "gbp", "us$",
    "anua", "ebru", "arch", "pril", "une", "uly", "ugus", "epte", "ctob", "ovem", "ecem",
    "jan ", "feb ", "mar ", "apr ", "may ", "jun ", "jul ", "aug ", "sep", "oct ", "nov ", "dec ",
    "jan.", "feb.", "mar.", "apr.", "jun.", "jul.", "aug.", "oct.", "nov.", "dec.",
    "month", "econds", "centur", "hour", " day", "week", "minute", "year", "decade", "aily", "nually",
    "half", "financial", "dozen", "fortnight", "every ", "egrees", "hird", "ifth", "ixth", "ighth", "tenth", "ourth", "venth", "inth", "welfth", "ut of", "ne in ", "wo in ", "ree in ", "our in ", "n three", "n four", "n five", "n six", "n seven", "n eight", "n nine", "n ten", "n twelve", "n every ", "ull ", "hole ", "ntire ", "wo of ", "ree of ",
    "our of ", "ive of ", "six of ", "ven of ", "ght of ", "ine of ", "minus ", "egative ", "h1", "h2",
    "wice", "hrice", "imes", "nce a ", "nce per ", "nce ever", "nce dai", "nce wee", "he morning", "evening", "at night", "jpy", "inr", "rs", "chf", "cad", "aud", "a$", "c$", "u$", "k$", "t$", "s$", "z$", "r$", "cny", "rmb",
    "krw", "sek", "nok", "dkk", "pln", "brl", "mxn", "sgd", "hkd", "nzd", "zar", "fr.", "fl1", "fl2", "fl3", "fl4", "ght level", "pt1", "pt2", "pt3", "pt4", "pt5", "pt6", "pt7", "pt8", "pt9", "cw", "kw", "metre", "meter", "litre", "liter", " gram", " mile", " inch", " feet", " foot", " pound", " ounce", " cup", "spoon", " euro", " cents", " watt", " volt", " pixel", "actor of", "fold",
};
const char* const WORDY[] = {
    "teen", "ty", "ties", "undred", "ousand", "illion", "leven", "welve", "ercent", "noon", "uarter",
    "month", "econds", "centur", "hour", " day", "week", "minute", "year", "decade", "aily", "nually",
    "half", "dozen", "fortnight", "every ", "hird", "ifth", "ixth", "ighth", "tenth", "ourth", "venth", "inth", "welfth", "ut of", "ne in ", "wo in ", "ree in ", "our in ", "n three", "n four", "n five", "n six", "n seven", "n eight", "n nine", "n ten", "n twelve", "n every ", "ull ", "hole ", "ntire ", "wo of ", "ree of ",
    "our of ", "ive of ", "six of ", "ven of ", "ght of ", "ine of ", "wice", "hrice", "imes", "nce a ", "nce per ", "nce ever", "nce dai", "nce wee", "he morning", "evening", "at night", "egrees", "metre", "meter", "litre", "liter", " gram", " mile", " inch", " feet", " foot", " pound", " ounce", " cup", "spoon", " euro", " dollar", " cents", " watt", " volt", " pixel", "actor of", "fold",
};
// With what a quantity begins that begins with a letter; the first that fits counts.
const char* const BEGINNINGS[] = {
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "one",
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fifteen", "twenty", "thirty", "forty", "fifty", "hundred", "thousand", "million",
    "billion", "trillion", "dozen", "half", "minus ", "negative ", "an hour", "quarter", "h1", "h2", "once ", "twice", "thrice", "every ", "noon", "midnight", "fy", "fiscal", "q1", "q2", "q3",
    "q4", "first", "second", "third", "fourth", "fif", "sixth", "seventh", "eigh", "nin", "tenth", "eleventh", "twel",
    "twentieth", "thirtieth", "twenties", "thirties", "forties", "mon", "tue", "wed", "thu", "fri",
    "sat", "sun", "financial", "usd", "eur", "gbp", "jpy", "inr", "chf", "cad", "aud", "rs",
    "us", "the ", "a ", "a$", "c$", "ca$", "au$", "hk$", "nt$", "s$", "nz$", "r$", "cny", "rmb", "krw",
    "sek", "nok", "dkk", "pln", "brl", "mxn", "sgd", "hkd", "nzd", "zar", "fl", "fr.", "sfr.", "by a factor of ", "pt", "week ", "weekly", "yearly", "daily", "annually", "biannually", "semi",  "calendar week", "cw", "kw", "full ", "whole ", "entire ", "bi", "fortnightly",
};

// What an article may stand before that is a duration: "a week".
const char* const PERIODS[] = {"minute", "hour", "day", "week", "fortnight", "month", "year", "decade"};

const char* const MONTHS[] = {
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
};

// A decimal number of at most 28 digits, as those of Python's `decimal` are after a product.
struct Decimal {
    Letters coefficient;
    long exponent = 0;

    // Multiply by a power of ten.
    void scale(long power) {
        coefficient.append(power, U'0');
        size_t zeros = coefficient.find_first_not_of(U'0');
        coefficient = zeros == Letters::npos ? U"0" : coefficient.substr(zeros);
        if (coefficient.size() <= 28) return;
        long dropped = (long)coefficient.size() - 28;
        Letters rest = coefficient.substr(28);
        coefficient.resize(28);
        exponent += dropped;
        bool more = rest[0] > '5' || (rest[0] == '5' && rest.find_first_not_of(U'0', 1) != Letters::npos);
        bool half = rest[0] == '5' && !more;
        if (!more && !(half && (coefficient.back() - '0') % 2)) return;
        size_t at = 28;
        while (at > 0 && coefficient[at - 1] == '9') coefficient[--at] = '0';
        if (at) coefficient[at - 1]++;
        else { coefficient.insert(coefficient.begin(), U'1'); coefficient.resize(28); exponent++; }
    }

    void multiply(long factor) {
        if (factor == 1 || coefficient.size() > 18) return;
        unsigned __int128 value = 0;
        for (char32_t digit : coefficient) value = value * 10 + (digit - '0');
        coefficient = digits(value * (unsigned __int128)factor);
    }

    Letters shown() const {
        if (coefficient == U"0") return coefficient;
        Letters out = coefficient;
        if (exponent >= 0) return out.append(exponent, U'0');
        if ((long)out.size() <= -exponent) out.insert(0, -exponent - out.size() + 1, U'0');
        out.insert(out.size() + exponent, 1, U'.');
        while (out.back() == '0') out.pop_back();
        if (out.back() == '.') out.pop_back();
        return out;
    }
};

// Read a number with separators of any kind; false if it is none.
//
// Three digits behind a single point are thousands, as in "1.450", unless a scale follows as in
// "1.450 million".
inline bool parse_figure(const Letters& text, bool scaled, Decimal& out) {
    Letters plain, power;
    bool behind = false;
    for (char32_t sign : text) {
        sign = lower_sign(sign);
        if (sign == 0x2019 || sign == '\'' || sign == ' ') continue;
        if (!behind && sign == 'e') { behind = true; continue; }
        (behind ? power : plain).push_back(sign);
    }
    auto count = [&](char32_t sign) { return std::count(plain.begin(), plain.end(), sign); };
    long points = count('.'), commas = count(',');
    if (points && commas) {
        size_t point = plain.rfind(U'.'), comma = plain.rfind(U',');
        char32_t other = point > comma ? ',' : '.';
        plain.erase(std::remove(plain.begin(), plain.end(), other), plain.end());
        if (count(count('.') ? U'.' : plain[0]) > 1) return false;
        std::replace(plain.begin(), plain.end(), U',', U'.');
    } else if (points + commas) {
        char32_t sign = points ? '.' : ',';
        std::vector<Letters> groups(1);
        for (char32_t one : plain) {
            if (one == sign) groups.emplace_back();
            else groups.back().push_back(one);
        }
        const Letters& head = groups[0];
        bool thousands = !head.empty() && head.size() < 4 && head != U"0";
        for (size_t at = 1; at < groups.size(); at++) thousands &= groups[at].size() == 3;
        bool indian = sign == ',' && groups.size() > 2 && groups.back().size() == 3;
        if ((thousands || indian) && !(scaled && points == 1)) {
            plain.erase(std::remove(plain.begin(), plain.end(), sign), plain.end());
        } else if (groups.size() == 2) {
            std::replace(plain.begin(), plain.end(), U',', U'.');
        } else {
            return false;
        }
    }
    if (count('.') > 1 || count(',')) return false;
    out.coefficient.clear();
    out.exponent = 0;
    bool fraction = false;
    for (char32_t sign : plain) {
        if (sign == '.') { fraction = true; continue; }
        if (!is_decimal(sign)) return false;
        out.coefficient.push_back(U'0' + Py_UNICODE_TODECIMAL(sign));
        out.exponent -= fraction;
    }
    if (out.coefficient.empty()) return false;
    if (!power.empty()) out.exponent += power[0] == '-' ? -number_of(power) : number_of(power);
    return true;
}

// The value of a number in words; false if they make none.
inline bool parse_words(const Letters& text, unsigned __int128& value) {
    static const std::unordered_map<Letters, int> units = [] {
        std::unordered_map<Letters, int> out;
        const char* names[] = {
            "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
            "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
            "nineteen", "twenty"};
        for (int at = 0; at < 20; at++) out[letters(names[at])] = at + 1;
        const char* tens[] = {"thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
        for (int at = 0; at < 7; at++) out[letters(tens[at])] = 10 * (at + 3);
        return out;
    }();
    static const std::unordered_map<Letters, long long> scales = {
        {U"hundred", 100}, {U"thousand", 1000}, {U"million", 1000000}, {U"billion", 1000000000},
        {U"trillion", 1000000000000}, {U"dozen", 12}};
    std::vector<Letters> words(1);
    for (char32_t sign : lower(text)) {
        if (sign >= 'a' && sign <= 'z') words.back().push_back(sign);
        else if (!words.back().empty()) words.emplace_back();
    }
    words.erase(
        std::remove_if(words.begin(), words.end(), [](const Letters& word) {
            return word.empty() || word == U"and";
        }), words.end());
    unsigned __int128 total = 0, part = 0;
    long long last = 1000000000000000;
    if (words.size() > 1 && words[0] == U"half" && words[1] == U"a") {
        if (words.size() != 3) return false;
        auto scale = scales.find(words[2]);
        value = scale == scales.end() ? 0 : scale->second / 2;
        return true;
    }
    for (const Letters& word : words) {
        auto unit = units.find(word);
        if (word == U"a" || word == U"an") {
            part = 1;
        } else if (unit != units.end()) {
            if (part % 100 && !(part % 10 == 0 && unit->second < 10)) return false;
            part += unit->second;
        } else {
            auto scale = scales.find(word);
            if (scale == scales.end()) return false;
            if (word == U"hundred" || word == U"dozen") {
                part = (part > 1 ? part : 1) * scale->second;
                continue;
            }
            if (scale->second >= last) return false;
            total += (part > 1 ? part : 1) * scale->second;
            part = 0;
            last = scale->second;
        }
    }
    value = total + part;
    return true;
}

// Reads the quantities of texts.
class Notation {
  public:
    explicit Notation(const English& english)
        : context_(english), slots_(english, measures_), owners_(english, slots_), quantity_(QUANTITY, IGNORE_CASE) {
        for (int group = 0; group < G_COUNT; group++) groups_[group] = quantity_.group(GROUPS[group]);
        for (const char* word : SPELT) spelt_.add(word);
        for (const char* word : WORDY) wordy_.add(word);
        for (const char* word : BEGINNINGS) beginnings_.add(word);
        for (Py_UCS4 sign = 0; sign < 256; sign++) lower_latin_[sign] = (uint8_t)lower_sign(sign);
        for (Py_UCS4 sign = 0; sign < 128; sign++) figures_[sign] = is_figure(sign) || sign == '-' || sign == '.';
        for (const char* word : PERIODS) periods_.add(word);
    }

    // The numbers, dates and times of a text in order.
    void find(const Text& text, std::vector<Quantity>& out) const {
        std::vector<Py_ssize_t> starts;
        find_starts(text, starts);
        Match match;
        Py_ssize_t end = 0;
        int count = 0;
        for (Py_ssize_t start : starts) {
            if (start < end || !quantity_.match(text, start, match)) continue;
            end = match.end();
            Quantity item;
            item.start = match.start();
            item.end = match.end();
            if (read(text, match, item) && (item.is_plain() || !is_version_sign(text, start))) {
                if (!out.empty()) read_day_in_utc(out.back(), item);
                if (item.is_plain()) read_share(text, item);
                if (item.is_plain()) read_loss(text, item);
                if (item.is_plain()) read_proportion(text, item);
                end = std::max(end, item.end);
                if (out.empty() || !add_smaller(text, item, out.back())) {
                    if (!out.empty()) share_unit(text, out.back(), item);
                    out.push_back(std::move(item));
                }
            }
            if (++count >= MOST) return;
        }
    }

    // Whether a text may have a number.
    bool may_have(const Text& text) const {
        for (Py_ssize_t at = 0; at < text.size; at++)
            if (is_decimal(text.at(at)) || begins_wide_half(text.at(at))) return true;
        return wordy_.stand_in(text);
    }

    struct Change { Py_ssize_t start, end; Letters text; };

    // Two words of no passage, behind a value that stands in place of another one.
    static constexpr const char32_t* OTHER = U" othervalue othernumber";
    // The same behind an amount of which passages have another unit.
    static constexpr const char32_t* OTHER_UNIT = U"amount otherunit";

    // What to replace in a text so that it has the quantities as passages, or else the query, write
    // the same values. Returned is where values stand that no passage has while passages have
    // another value of the same kind beside the same words.
    std::vector<Py_ssize_t> adopt(const Text& text, const std::vector<Text>& passages,
                                  const Text& query, std::vector<Change>& changes) const {
        std::vector<Py_ssize_t> replaced;
        if (passages.empty()) return replaced;
        std::vector<Quantity> items;
        if (may_have(text)) find(text, items);
        std::unordered_set<Letters> said;
        std::vector<Quantities> known;
        std::vector<Py_ssize_t> right;  // where values with a unit begin that passages have
        auto read_known = [&] {
            if (!known.empty()) return;
            for (const Text& passage : passages) known.push_back(read_all(passage));
            known.push_back(read_all(query));
            for (const Quantity& each : items)
                for (const Key& key : each.keys) said.insert(key.whole());
        };
        for (const Quantity& item : items) {
            if (item.is_below_zero() && !stands_in_any(text.part(item.sign, item.end), passages)) {
                read_known();
                if (write_below_zero(text, item, known, changes)) {
                    write_approximation(text, item, passages, changes);
                    right.push_back(item.start);
                    continue;
                }
            }
            Letters raw = text.part(item.start, item.end);
            if (item.figure < 0 && item.keys.back().is("n") && item.kind() == U"interval") raw = U"every " + raw;  // "week" stands in "every second week"
            bool stands = Context::stands_in(raw, query);
            for (const Text& passage : passages) stands = stands || Context::stands_in(raw, passage);
            if (stands) write_approximation(text, item, passages, changes);
            // "10:00 UTC" stands in "10:00 UTC+2", and "20 °C" in "-20 °C"
            if (stands && !item.zoned && item.kind() != U"temperature") continue;
            if (item.adverb) {
                read_known();
                if (is_known(item, known)) write_as_known(item, raw, text, known, changes);
                else if (stands_replaced(item, context_.beside(text, item.start, item.end), said, known)) {
                    replaced.push_back(item.start);
                    changes.push_back({item.start, item.end, U"no" + raw + OTHER});
                }
                continue;
            }
            if (all_decimal(raw) && raw.size() < 3 && !item.keys[0].is("d") && !is_counted(text, item)) continue;
            read_known();
            bool is_said = is_known(item, known);
            if (is_said && !stands) write_approximation(text, item, passages, changes);
            if (is_said && (item.keys.size() > 1 || item.shift)) right.push_back(item.start);
            std::vector<Letters> beside;
            bool is_replaced = false;
            if (!is_said) {
                beside = context_.beside(text, item.start, item.end);
                const bool dated = item.keys[0].is("q") || (item.keys[0].is("d") && item.keys[0].parts.size() > 3);
                is_replaced = stands_replaced(item, beside, said, known) || (dated && stands_in_sentence(text, item, said, known));
            }
            if (!is_said && is_other_unit(item, known) && (item.is_money() || is_replaced || (item.kind().find(U'/') != Letters::npos && stands_in_sentence(text, item, said, known)))) {
                replaced.push_back(item.start);  // as words of no passage: amount and unit
                changes.push_back({item.start, item.end, item.single + OTHER_UNIT});
                continue;
            }
            size_t count = changes.size();
            if (is_said || !item.is_time()) write_as_known(item, raw, text, known, changes);
            if (!is_replaced) continue;
            replaced.push_back(item.start);
            if (item.is_time())  // as one word: no part of it is found by chance
                changes.push_back({item.start, item.end, item.keys[0].parts[1] + U"min"});
            else if (item.keys[0].is("century"))
                changes.push_back({item.start, item.end, item.keys[0].parts[1] + U"century"});
            else if ((item.figure < 0 && item.single.empty()) || item.keys[0].is("times")) {
                changes.erase(changes.begin() + (Py_ssize_t)count, changes.end());
                changes.push_back({item.start, item.end, U"no" + item.keys.back().parts[1] + OTHER});
            }
            else if (item.few && !item.measured && count == changes.size())
                changes.push_back({item.figure, item.figure_end, item.single});
            else if (item.keys[0].is("d") || is_told(item, text, passages) || item.kind() == U"temperature" || item.single.find(U'.') != Letters::npos ||
                     (item.few && item.measured) || is_part(item, text, passages) ||
                     (item.kind() == U"%" && item.keys.back().parts[1].size() == 1)) {  // "8 %" for "one in eight"
                // the parts of "5.2" stand in "2.5", "5" in "0.5", "20" in "-20", and those of "3 May" in "3 March"
                bool has_figure = item.figure >= 0;
                Py_ssize_t start = has_figure ? item.figure : item.start, end = has_figure ? item.figure_end : item.end;
                if (count == changes.size()) changes.push_back({start, end, text.part(start, end)});
                Change& written = changes.back();
                bool joined = written.end < text.size && is_letter(text.at(written.end));
                if (written.text.back() == ' ') written.text.pop_back();
                written.text += OTHER;
                if (joined) written.text.push_back(' ');
            }
        }
        mark_exchanged(text, items, passages, known, replaced, changes);
        std::vector<const Text*> texts;
        for (const Text& passage : passages) texts.push_back(&passage);
        texts.push_back(&query);
        std::vector<Py_ssize_t> numbers;
        mark_joined(text, items, right, texts, numbers, replaced, changes);
        write_telephones(text, passages, replaced, changes);
        write_labels(text, numbers, passages, changes);
        write_dimensions(text, items, passages, changes);
        mark_slots(text, texts, replaced, changes);
        std::sort(changes.begin(), changes.end(),
                  [](const Change& one, const Change& other) { return one.start < other.start; });
        return replaced;
    }

  private:
    // Numbers that are one value together, over [start, end) of a text: "3-1", "60 x 90", "3.11.4".
    struct Joined {
        Py_ssize_t start, end;
        Letters key;  // the sign, and the numbers in their order
        size_t numbers;
        bool looked = false;
        std::vector<Letters> beside;  // the words next to it, once they were looked at
    };

    static constexpr size_t MOST_JOINED = 100;  // of a text

    // Where the sign of a length behind a number ends, which stands at a place or behind a blank; the same place if there is none.
    static Py_ssize_t skip_length(const Text& text, Py_ssize_t at) {
        static const Letters signs[] = {U"cm", U"mm", U"m", U"in", U"ft"};
        const Py_ssize_t start = at + (at < text.size && text.at(at) == ' ');
        for (const Letters& sign : signs) {
            const Py_ssize_t end = start + (Py_ssize_t)sign.size();
            if (end < text.size && text.at(start) == sign[0] && text.stands(sign, start) && (text.at(end) == ' ' || text.at(end) == 0xD7)) return end;
        }
        return at;
    }

    // The sign that joins two numbers at a place: '-' for a result or range, '&' for "and", 'x' for
    // measures, '.' and '/'; 0 for any other. `next` becomes the place of the number behind it.
    static Py_UCS4 joining(const Text& text, Py_ssize_t at, Py_ssize_t& next) {
        auto digit = [&](Py_ssize_t place) { return place < text.size && is_decimal(text.at(place)); };
        static const Letters dashes = U"-:\u2010\u2011\u2012\u2013\u2014\u2212";
        static const Letters words[] = {U" to ", U" : ", U" and ", U" by "};
        if (at >= text.size) return 0;
        Py_UCS4 sign = text.at(at);
        next = at + 1;
        if (dashes.find(sign) != Letters::npos && digit(next)) return '-';
        if ((sign == '.' || sign == '/') && digit(next)) return sign;
        for (const Letters& word : words) {
            next = at + (Py_ssize_t)word.size();
            if (digit(next) && text.stands(word, at)) return word[1] == 'a' ? '&' : word[1] == 'b' ? 'x' : '-';
        }
        if (const Py_ssize_t unit = skip_length(text, at); unit > at) {  // "30 cm x 20 cm"
            if (digit(unit + 4) && text.at(unit) == ' ' && text.stands(words[3], unit)) {
                next = unit + 4;
                return 'x';
            }
            at = unit;
            if (at >= text.size) return 0;
            sign = text.at(at);
        }
        next = at + 1;
        if (sign == ' ' && next < text.size) sign = text.at(next++);
        if (sign != 'x' && sign != 0xD7) return 0;
        if (next < text.size && text.at(next) == ' ') next++;
        return digit(next) ? 'x' : 0;
    }

    // Add the number at a place, which becomes the one behind it: "5,400", "2.5", but of "3.11.4" each.
    static void read_number(const Text& text, Py_ssize_t& at, Joined& one) {
        auto digits = [&](Py_ssize_t place) {
            Py_ssize_t count = 0;
            while (place + count < text.size && is_decimal(text.at(place + count))) count++;
            return count;
        };
        bool first = one.numbers == 0 || one.key[0] != '.';
        Py_ssize_t size = digits(at);
        one.key += text.part(at, at + size);
        at += size;
        while (first && size < 4 && at < text.size && text.at(at) == ',' && digits(at + 1) == 3) {
            one.key += text.part(at + 1, at + 4);
            at += 4;
        }
        size = first && at < text.size && text.at(at) == '.' ? digits(at + 1) : 0;
        Py_ssize_t end = at + 1 + size;
        if (size && !(end < text.size && text.at(end) == '.' && digits(end + 1))) {
            one.key += text.part(at, end);
            at = end;
        }
        one.key.push_back(0x1F);
        one.numbers++;
        one.end = at;
    }

    static bool is_behind(const Text& text, const Letters& word, Py_ssize_t at) {
        Py_ssize_t start = at - (Py_ssize_t)word.size();
        return start >= 0 && text.stands(word, start);
    }

    static bool is_year(const Letters& written) {
        return all_decimal(written) && (written.compare(0, 2, U"19") == 0 || written.compare(0, 2, U"20") == 0);
    }

    // Whether joined numbers may be a time: "1:15".
    static bool is_clock(const Letters& written) {
        size_t colon = written.find(U':');
        return colon != Letters::npos && colon < 3 && written.size() == colon + 3 && written[colon + 1] < '6';
    }

    // Go on to the next number, which may begin with a "v". False where it is part of a word, which is passed over.
    static bool find_number(const Text& text, Py_ssize_t& at, Py_ssize_t& start, std::vector<Py_ssize_t>* seen = nullptr) {
        at = find_decimal(text, at);
        if (at == text.size) return false;
        if (seen) seen->push_back(at);
        start = at > 0 && (text.at(at - 1) | 32) == 'v' ? at - 1 : at;
        if (start == 0 || !is_alnum(text.at(start - 1))) return true;
        while (at < text.size && is_alnum(text.at(at))) at++;
        return false;
    }

    // `seen` gets the places of the first digits.
    static std::vector<Joined> find_joined(const Text& text, std::vector<Py_ssize_t>* seen = nullptr) {
        std::vector<Joined> out;
        for (Py_ssize_t at = 0; at < text.size && out.size() < MOST_JOINED;) {
            Py_ssize_t start = at;
            if (!find_number(text, at, start, seen)) continue;
            Joined one{start, at, Letters(), 0, false, {}};
            bool alone = true, mixed = false;
            while (at < text.size && is_alnum(text.at(at))) {
                if (!alone || !is_decimal(text.at(at))) {  // the rest of a word
                    alone = false;
                    at++;
                    continue;
                }
                read_number(text, at, one);
                Py_ssize_t next = at;
                Py_UCS4 by = joining(text, at, next);
                if (by == '&') by = one.numbers == 1 && is_behind(text, U"between ", one.start) ? '-' : 0;
                if (!by) continue;
                mixed = mixed || (one.numbers > 1 && by != one.key[0]);
                if (one.numbers == 1) one.key.insert(one.key.begin(), (char32_t)by);
                at = next;
            }
            if (mixed || one.numbers <= (one.key[0] == '.' ? 2 : 1)) continue;
            expand_years(one.key);
            out.push_back(std::move(one));
        }
        return out;
    }

    // "1931-34" is from 1931 to 1934.
    static void expand_years(Letters& key) {
        Letters first = key.substr(1, 4), rest = key.size() > 6 ? key.substr(6) : Letters();
        if (key[0] != '-' || !is_year(first) || key[5] != 0x1F || rest.size() != 3) return;
        if (rest.compare(0, 2, first, 2, 2) > 0) key.insert(6, first, 0, 2);
    }

    // The telephone numbers of a text, whose digits may be grouped in any way.
    static std::vector<Joined> find_telephones(const Text& text) {
        static const Letters signs = U" -./()\u2010\u2011\u2013\u00A0";
        std::vector<Joined> out;
        for (Py_ssize_t at = 0; at < text.size && out.size() < MOST_JOINED;) {
            at = find_decimal(text, at);
            if (at == text.size) break;
            Py_UCS4 sign = at > 0 ? text.at(at - 1) : 0;
            if (is_alnum(sign)) {  // the rest of a word
                while (at < text.size && is_alnum(text.at(at))) at++;
                continue;
            }
            bool plus = sign == '+', bracket = sign == '(';
            Joined one{at - (plus || bracket), at, Letters(), 0, false, {}};
            Py_ssize_t next = at;
            while (next < text.size && is_decimal(text.at(next))) {
                while (next < text.size && is_decimal(text.at(next))) one.key.push_back((char32_t)text.at(next++));
                one.end = at = next;
                for (int more = 0; more < 3 && next < text.size && signs.find(text.at(next)) != Letters::npos; more++) next++;
            }
            const bool grouped = one.key.size() > 9 && is_grouped_call(text, one.start, one.end);
            bool called = plus || bracket || grouped || one.key[0] == '0';
            const size_t trunk = one.key.size() > 5 ? text.part(one.start, one.end).find(U"(0)") : Letters::npos;
            if (plus && trunk != Letters::npos) {  // "+44 (0)20" is "+44 20"
                const Letters before = text.part(one.start, one.start + (Py_ssize_t)trunk);
                one.key.erase(std::count_if(before.begin(), before.end(), [](char32_t each) { return is_decimal(each); }), 1);
            }
            if (!plus && one.key.compare(0, 2, U"00") == 0) {  // "0044 20" is "+44 20"
                one.key.erase(0, 2);
                plus = true;
            }
            one.numbers = plus;
            if (called && one.key.size() >= 7 && one.key.size() <= 15) out.push_back(std::move(one));
        }
        return out;
    }

    // Whether digits stand in groups as those of North America do: "1-800-555-0142", "800.555.0142".
    static bool is_grouped_call(const Text& text, Py_ssize_t start, Py_ssize_t end) {
        Letters groups(1, U'0');
        for (Py_ssize_t at = start; at < end; at++) {
            if (is_decimal(text.at(at))) groups.back()++;
            else if (groups.back() != '0') groups.push_back(U'0');
        }
        return groups == U"334" || groups == U"1334";
    }

    // Whether one number has a country in place of the leading zero of the other one: "+44 20 …" and "020 …".
    static bool is_same_call(const Letters& one, const Letters& other) {
        const Letters& longer = one.size() > other.size() ? one : other;
        const Letters& shorter = one.size() > other.size() ? other : one;
        const size_t country = longer.size() - shorter.size() + 1;
        if (longer.size() == 11 && shorter.size() == 10 && longer[0] == '1') return longer.compare(1, Letters::npos, shorter) == 0;
        return shorter[0] == '0' && longer[0] != '0' && country < 4 && shorter.size() > 8 && longer.compare(country, Letters::npos, shorter, 1) == 0;
    }

    static void write_telephones(const Text& text, const std::vector<Text>& passages,
                                 std::vector<Py_ssize_t>& replaced, std::vector<Change>& changes) {
        std::vector<Joined> mine = find_telephones(text);
        std::unordered_map<Letters, Letters> known;
        if (mine.empty()) return;
        for (const Text& passage : passages)
            for (const Joined& their : find_telephones(passage))
                known.emplace(their.key, passage.part(their.start, their.end));
        for (const Joined& one : mine) {
            auto their = known.find(one.key);
            if (their == known.end() && one.key.size() > 8)
                their = std::find_if(known.begin(), known.end(), [&](const auto& each) { return is_same_call(one.key, each.first); });
            if (their != known.end() && their->second != text.part(one.start, one.end))
                put({one.start, one.end, their->second}, replaced, changes);
        }
    }

    // Write what names a number as passages do: "Art. 17" and "Article 17", "FL350" and "flight level 350".
    static void write_labels(const Text& text, const std::vector<Py_ssize_t>& numbers, const std::vector<Text>& passages, std::vector<Change>& changes) {
        static const std::vector<std::vector<Letters>> groups = {
            {U"article", U"art."}, {U"section", U"sec.", U"sect.", U"§"}, {U"number", U"no.", U"nr.", U"№"}, {U"chapter", U"ch.", U"chap."},
            {U"figure", U"fig."}, {U"paragraph", U"para.", U"par."}, {U"page", U"p.", U"pg."}, {U"pages", U"pp."}, {U"volume", U"vol."},
            {U"flight level", U"fl"}, {U"calendar week", U"week", U"cw", U"kw"}, {U"extension", U"ext."}, {U"clause", U"cl."}, {U"appendix", U"app."}, {U"equation", U"eq."}, {U"version", U"v"}};
        static const std::unordered_map<Letters, size_t> known = [] {
            std::unordered_map<Letters, size_t> out;
            for (size_t group = 0; group < groups.size(); group++)
                for (const Letters& name : groups[group]) out[name.back() == '.' ? name.substr(0, name.size() - 1) : name.substr(name.find(U' ') + 1)] = group;
            return out;
        }();
        int searches = MOST_LABELS;
        for (const Py_ssize_t number : numbers) {
            Py_ssize_t end = number - (number > 0 && text.at(number - 1) == ' ');
            end -= end > 0 && text.at(end - 1) == '.';
            Py_ssize_t start = end;
            while (start > 0 && end - start < 10 && is_letter(text.at(start - 1))) start--;
            if (start == end && end > 0 && (text.at(end - 1) == U'§' || text.at(end - 1) == U'№')) start--;
            write_metre(text, number, passages, changes);
            if (start == end || (start > 0 && is_word(text.at(start - 1)))) continue;
            const auto found = known.find(lower(text.part(start, end)));
            if (found == known.end() || searches-- <= 0) continue;
            const std::vector<Letters>& names = groups[found->second];
            const Letters first = names[0].substr(0, names[0].find(U' ') + 1);  // "flight " of "flight level"
            const Py_ssize_t begin = start - (Py_ssize_t)first.size();
            if (!first.empty() && end - start > 3 && begin >= 0 && lower(text.part(begin, start)) == first) start = begin;
            const Letters written = lower(text.part(start, number));
            const auto [other, own] = find_label(names, written, passages);
            if (own || other.empty()) continue;
            const bool free = std::none_of(changes.begin(), changes.end(), [&](const Change& one) { return one.start < number && one.end > start; });
            if (free) changes.push_back({start, number, other});
        }
    }

    // Write "3/4 time" as "three-four time" where passages do.
    static void write_metre(const Text& text, Py_ssize_t at, const std::vector<Text>& passages, std::vector<Change>& changes) {
        static const char32_t* const names[] = {U"", U"one", U"two", U"three", U"four", U"five", U"six", U"seven", U"eight", U"nine"};
        static const Letters time = U" time";
        const Py_ssize_t end = at + 3;
        if (end + 5 > text.size || text.at(at + 1) != '/' || !is_decimal(text.at(at + 2)) || !text.stands(time, end)) return;
        const int above = Py_UNICODE_TODECIMAL(text.at(at)), below = Py_UNICODE_TODECIMAL(text.at(at + 2));
        if (above == 0 || below == 0) return;
        const bool spelt = std::any_of(passages.begin(), passages.end(), [](const Text& passage) {
            if (passage.size == 0) return false;
            return passage.find(U"-four time") >= 0 || passage.find(U"-eight time") >= 0 || passage.find(U"-two time") >= 0;
        });
        if (!spelt) return;
        changes.erase(std::remove_if(changes.begin(), changes.end(), [&](const Change& each) { return each.start < end && each.end > at; }), changes.end());
        changes.push_back({at, end, Letters(names[above]) + U"-" + names[below]});
    }

    // As passages write one of the names before a number, and whether they write it so, too.
    static std::pair<Letters, bool> find_label(const std::vector<Letters>& names, const Letters& written, const std::vector<Text>& passages) {
        Letters out;
        for (const Letters& name : names)
            for (const char32_t* gap : {U" ", U""})
                for (const bool capital : {true, false}) {
                    Letters label = name + gap;
                    if (capital) label[0] = upper_of(label[0]);
                    const bool sign = name == U"fl" || name == U"cw" || name == U"kw";
                    if (capital && sign) label[1] = upper_of(label[1]);
                    if (is_letter(label.back()) && !sign && name != U"v") continue;  // "article17"
                    for (const Text& passage : passages)
                        for (Py_ssize_t at = passage.size ? passage.find(label) : -1, places = 0; at >= 0 && places < 5; at = passage.find(label, at + 1), places++) {
                            const Py_ssize_t end = at + (Py_ssize_t)label.size();
                            if (end >= passage.size || !is_decimal(passage.at(end)) || (at > 0 && is_word(passage.at(at - 1)))) continue;
                            if (lower(label) == written) return {Letters(), true};
                            if (out.empty()) out = label;
                        }
                }
        return {out, false};
    }

    static char32_t upper_of(char32_t sign) { return sign >= 'a' && sign <= 'z' ? sign - 32 : sign; }

    // Write "in length" behind a measure as "long", and the like, where passages do, and the other way round.
    static void write_dimensions(const Text& text, const std::vector<Quantity>& items, const std::vector<Text>& passages, std::vector<Change>& changes) {
        static const char32_t* const pairs[][2] = {{U" long", U" in length"}, {U" wide", U" in width"}, {U" high", U" in height"}, {U" tall", U" in height"}, {U" deep", U" in depth"}, {U" thick", U" in thickness"}};
        auto told = [&](const Letters& word) {
            return std::any_of(passages.begin(), passages.end(), [&](const Text& passage) { return passage.size && passage.find(word) >= 0; });
        };
        for (const Quantity& item : items) {
            if (!item.measured || item.end + 5 > text.size || item.kind() != U"length") continue;
            for (const auto& pair : pairs)
                for (const int side : {0, 1}) {
                    const Letters written = pair[side], other = pair[1 - side];
                    const Py_ssize_t end = item.end + (Py_ssize_t)written.size();
                    if (end > text.size || !text.stands(written, item.end) || (end < text.size && is_word(text.at(end)))) continue;
                    if (!told(written) && told(other)) {
                        changes.push_back({item.end, end, other});
                        break;
                    }
                }
        }
    }

    static constexpr int MOST_LABELS = 20;  // of an answer that are looked for in passages

    // The text with changes, and where each stands in it.
    struct Written {
        std::vector<std::pair<Py_ssize_t, Change>> changes;
        Text text;  // that of before where there are no changes: a copy has four bytes a character

        Written(const Text& from, std::vector<Change> all) : text(from) {
            if (all.empty()) return;
            std::sort(all.begin(), all.end(), [](const Change& one, const Change& other) { return one.start < other.start; });
            Py_ssize_t at = 0;
            for (Change& change : all) {
                letters_ += from.part(at, change.start);
                at = change.end;
                changes.emplace_back((Py_ssize_t)letters_.size(), change);
                letters_ += change.text;
            }
            letters_ += from.part(at, from.size);
            text = Text(letters_);
        }
        Written(const Written&) = delete;  // its text may be in itself

        // The change of [start, end) of this text as one of the text before.
        Change change_before(Py_ssize_t start, Py_ssize_t end, const Letters& as) const {
            Py_ssize_t first = start, last = end;
            Py_ssize_t from = place_before(start, first, true), to = place_before(end, last, false);
            return {from, to, text.part(first, start) + as + text.part(end, last)};
        }

        // Whether a value was marked in [start, end), or a change stands there that is no smaller.
        bool is_settled(Py_ssize_t start, Py_ssize_t end, bool only_marked) const {
            return std::any_of(changes.begin(), changes.end(), [&](const auto& one) {
                const Letters& as = one.second.text;
                const Py_ssize_t last = one.first + (Py_ssize_t)as.size();
                if (one.first >= end || last <= start) return false;
                const bool smaller = one.first >= start && last <= end && last - one.first < end - start;
                return as.find(OTHER) != Letters::npos || (!only_marked && !smaller);
            });
        }

      private:
        // The place in the text before; `outer` becomes where what was written over it begins or ends.
        Py_ssize_t place_before(Py_ssize_t place, Py_ssize_t& outer, bool begins) const {
            Py_ssize_t shift = 0;
            for (const auto& [at, change] : changes) {
                Py_ssize_t end = at + (Py_ssize_t)change.text.size();
                if (at >= place) break;
                if (end > place) {
                    outer = begins ? at : end;
                    return begins ? change.start : change.end;
                }
                shift += end - at - (change.end - change.start);
            }
            return place - shift;
        }

        Letters letters_;
    };

    // Mark the values in whose place statements of passages have others, and write those that they have as they do.
    void mark_slots(const Text& text, const std::vector<const Text*>& texts, std::vector<Py_ssize_t>& replaced,
                    std::vector<Change>& changes) const {
        const Written written(text, changes);
        const Text& read = written.text;
        const std::vector<Records::Found> told = Records::find(read, texts);
        auto add = [&](Py_ssize_t start, Py_ssize_t end, const Letters& as) {
            if (written.is_settled(start, end, as.empty())) return;
            const bool joined = end < read.size && read.at(end) == '(';  // "Art. 22(1)"
            Change change = written.change_before(start, end, as.empty() ? read.part(start, end) + OTHER + Letters(joined, U' ') : as);
            Py_ssize_t place = change.start;
            put(std::move(change), replaced, changes);
            if (as.empty()) replaced.push_back(place);
        };
        for (const Records::Found& one : told)
            if (!one.right) add(one.start, one.end, Letters());
        std::vector<Py_ssize_t> numbers;
        for (const auto& [start, end, as] : slots_.find(read, texts, numbers)) {
            const bool known = std::any_of(told.begin(), told.end(), [&](const auto& one) { return one.start < end && one.end > start && (one.right || as.empty()); });
            if (!known) add(start, end, as);
        }
        for (const auto& [start, end] : owners_.find(read, numbers, texts)) {
            const bool known = std::any_of(told.begin(), told.end(), [&, from = start, to = end](const auto& one) { return one.start < to && one.end > from && one.right; });
            if (!known) add(start, end, Letters());
        }
    }

    // Add a change in place of all that was found in its place: a value is marked once, and no more where passages have it.
    static void put(Change change, std::vector<Py_ssize_t>& replaced, std::vector<Change>& changes) {
        auto within = [&](Py_ssize_t at) { return at >= change.start && at < change.end; };
        replaced.erase(std::remove_if(replaced.begin(), replaced.end(), within), replaced.end());
        changes.erase(std::remove_if(changes.begin(), changes.end(),
                                     [&](const Change& each) { return each.start < change.end && each.end > change.start; }),
                      changes.end());
        changes.push_back(std::move(change));
    }

    // Write joined numbers that passages have as they do, and mark those in place of others.
    void mark_joined(const Text& text, const std::vector<Quantity>& items, const std::vector<Py_ssize_t>& right, const std::vector<const Text*>& texts,
                     std::vector<Py_ssize_t>& numbers, std::vector<Py_ssize_t>& replaced, std::vector<Change>& changes) const {
        static const Letters both = U"between ";
        std::vector<Joined> mine = find_joined(text, &numbers);
        if (mine.empty()) return;
        std::unordered_set<Letters> said;
        for (const Joined& one : mine) said.insert(one.key);
        std::vector<std::vector<Joined>> known;
        for (const Joined& one : mine) {
            bool other = false;  // a date, a time or a number with decimals
            Letters raw = text.part(one.start, one.end);
            bool clock = is_clock(raw);
            for (const Quantity& item : items) {
                bool exact = item.start == one.start && item.end == one.end;
                bool covers = item.start <= one.start && item.end >= one.end && !(exact && clock && !item.zoned);
                bool cuts = (item.start < one.start && item.end > one.start) || (item.start < one.end && item.end > one.end);
                bool times = item.is_time() && item.start >= one.start && item.end <= one.end && raw.find(U' ') != Letters::npos;
                bool dated = raw.size() > 4 && item.figure >= 0 && item.end > one.end && item.keys.size() > 1 && is_year(raw.substr(0, 4));
                other = other || covers || (dated && item.start > one.start) || (cuts && item.keys[0].is("n") && item.figure < one.start) || times;
            }
            for (const Text* there : texts) other = other || Context::stands_in(raw, *there);
            const auto known_within = std::count_if(right.begin(), right.end(), [&](Py_ssize_t at) { return at >= one.start - 1 && at < one.end; });
            if (other || (known_within > 1 && one.key[0] != 'x')) continue;  // "€0.50–0.80" of "50 to 80 cents"
            if (known.empty())
                for (const Text* there : texts) known.push_back(find_joined(*there));
            Letters written;
            bool is_replaced = false;
            bool led = raw.find(U" and ") != Letters::npos && is_behind(text, both, one.start);
            std::vector<Letters> beside = context_.beside(text, one.start, one.end);
            for (size_t at = 0; at < texts.size() && written.empty(); at++)
                for (Joined& their : known[at]) {
                    if (clock && is_clock(texts[at]->part(their.start, their.end))) continue;  // times
                    if (their.key == one.key) {
                        written = texts[at]->part(their.start, their.end);
                        led = led && !is_behind(*texts[at], both, their.start);
                        break;
                    }
                    if (is_replaced || their.key[0] != one.key[0] || their.numbers != one.numbers || said.count(their.key))
                        continue;
                    if (!their.looked) their.beside = context_.beside(*texts[at], their.start, their.end);
                    their.looked = true;
                    is_replaced = Context::share_words(beside, their.beside);
                }
            if (written.empty() && (!is_replaced || known_within > 1)) continue;
            bool has_it = !written.empty();
            if (has_it && is_marked(changes, one)) continue;  // "8-12 days" for "8 to 12 hours"
            if (!has_it) written = raw + OTHER;
            if (one.end < text.size && is_letter(text.at(one.end))) written.push_back(' ');
            const Py_ssize_t start = one.start - (led && has_it ? (Py_ssize_t)both.size() : 0);
            const Py_ssize_t end = has_it ? take_unit(changes, one, written) : one.end;
            put({start, end, written}, replaced, changes);
            if (!has_it) replaced.push_back(one.start);
        }
    }

    // Whether one of joined numbers is marked as a value of another unit.
    static bool is_marked(const std::vector<Change>& changes, const Joined& one) {
        return std::any_of(changes.begin(), changes.end(), [&](const Change& change) {
            return change.start < one.end && change.end > one.start && change.text.find(OTHER_UNIT) != Letters::npos;
        });
    }

    // Let joined numbers end with the unit of the last one, where that is written as passages do: "8-12 h" as "8 to 12 hours".
    // Returned is where it ends.
    static Py_ssize_t take_unit(const std::vector<Change>& changes, const Joined& one, Letters& written) {
        size_t last = written.size();
        while (last > 0 && (is_decimal(written[last - 1]) || written[last - 1] == '.' || written[last - 1] == ',')) last--;
        const Letters number = written.substr(last);
        for (const Change& change : changes) {
            if (change.start <= one.start || change.start >= one.end || change.end <= one.end || number.empty()) continue;
            if (change.text.compare(0, number.size(), number) != 0 || change.text.find(OTHER) != Letters::npos) continue;
            written += change.text.substr(number.size());
            return change.end;
        }
        return one.end;
    }

    struct Place {
        Letters kind, key, most, clock;
        Py_ssize_t start, end;
        bool money, zoned;
        long utc;
    };

    // What a text has, by value, as it is written there.
    struct Quantities {
        const Text* text;
        std::unordered_map<Letters, Letters> whole, figures;
        std::vector<Place> places;
    };

    // Whether times of day at two places are the ends of a span: "from noon until half past one".
    static bool spans(const Text& text, Py_ssize_t start, Py_ssize_t end, Py_ssize_t next) {
        static const std::unordered_set<Letters> to = {U" to ", U" until ", U" till ", U" through ", U"-", U"–", U" - ", U" – "};
        const Py_ssize_t size = next - end;
        if (size < 1 || size > 9) return false;
        const Letters gap = text.part(end, next);
        return to.count(gap) || (gap == U" and " && word_before(text, start) == U"between");
    }

    // Mark spans of times whose ends passages have the other way round alone.
    static void mark_exchanged(const Text& text, const std::vector<Quantity>& items, const std::vector<Text>& passages, const std::vector<Quantities>& known,
                               std::vector<Py_ssize_t>& replaced, std::vector<Change>& changes) {
        if (known.empty()) return;
        for (size_t at = 0; at + 1 < items.size(); at++) {
            const Quantity &first = items[at], &last = items[at + 1];
            if (!first.is_time() || !last.is_time() || !spans(text, first.start, first.end, last.start) || first.clock() == last.clock()) continue;
            bool right = false, exchanged = false;
            for (size_t passage = 0; passage < passages.size() && !right; passage++) {
                const std::vector<Place>& places = known[passage].places;
                for (size_t place = 0; place + 1 < places.size(); place++) {
                    const Place &one = places[place], &next = places[place + 1];
                    if (!spans(passages[passage], one.start, one.end, next.start)) continue;
                    right = right || (is_same_time(first, one) && is_same_time(last, next));
                    exchanged = exchanged || (is_same_time(first, next) && is_same_time(last, one));
                }
            }
            if (right || !exchanged) continue;
            for (const Quantity* item : {&first, &last}) {
                put({item->start, item->end, text.part(item->start, item->end) + OTHER}, replaced, changes);
                replaced.push_back(item->start);
            }
        }
    }

    // Where quantities may begin, in order.
    void find_starts(const Text& text, std::vector<Py_ssize_t>& out) const {
        text.visit([&](const auto& signs) { find_figures(signs, out); });
        if (text.kind == 1) {  // so is its lower case
            std::string low(text.size, 0);
            const uint8_t* signs = (const uint8_t*)text.data;
            for (Py_ssize_t at = 0; at < text.size; at++) low[at] = (char)lower_latin_[signs[at]];
            find_beginnings(Signs<uint8_t>{(const uint8_t*)low.data(), text.size}, Text(low.data(), 1, text.size), out);
            return;
        }
        Letters low(text.size, 0);
        for (Py_ssize_t at = 0; at < text.size; at++) {
            if (text.at(at) == 0x130) return;  // whose lower case are two characters
            low[at] = lower_sign(text.at(at));
        }
        find_beginnings(Signs<char32_t>{low.data(), text.size}, Text(low), out);
    }

    template <class Sign>
    void find_figures(const Signs<Sign>& text, std::vector<Py_ssize_t>& out) const {
        for (Py_ssize_t at = 0; at < text.size; at++) {
            const Py_UCS4 sign = text.at(at);
            if (sign < 128 && !figures_[sign]) continue;
            if ((is_figure(sign) && (!joins_before(text, at) || is_version_sign(text, at))) || begins_wide_half(sign) || is_minus(text, at) || is_point(text, at)) out.push_back(at);
        }
    }

    // Where words begin quantities, beside what was found before.
    template <class Sign>
    void find_beginnings(const Signs<Sign>& low, const Text& text, std::vector<Py_ssize_t>& out) const {
        const size_t before = out.size();
        for (Py_ssize_t at = 0; at < low.size;) {
            if (!in_word(low.at(at))) {
                at++;
                continue;
            }
            if (const Letters* word = joins_before(low, at) ? nullptr : beginnings_.standing(low, at)) {
                Py_ssize_t next = at + (Py_ssize_t)word->size();
                if (!is_article(*word) || leads_on(text, next)) out.push_back(at);
                at = next;
                if (!is_word(low.at(at - 1))) continue;
            }
            while (at < low.size && in_word(low.at(at))) at++;
        }
        add_roman_centuries(text, before, out);
        if (out.size() == before) return;
        if (!spelt_.stand_in(text)) out.resize(before);
        std::inplace_merge(out.begin(), out.begin() + (Py_ssize_t)before, out.end());
    }

    // Add where the numerals of "the XII century" begin, to the places from `before` on.
    static void add_roman_centuries(const Text& low, size_t before, std::vector<Py_ssize_t>& out) {
        static const Letters numerals = U"ivx", century = U"centur";
        const size_t words = out.size();
        for (Py_ssize_t at = low.size ? low.find(century) : -1; at >= 0; at = low.find(century, at + 1)) {
            Py_ssize_t end = at - 1;
            if (end > 2 && low.at(end - 1) == 'h' && low.at(end - 2) == 't') end -= 2;
            Py_ssize_t start = end;
            while (start > 0 && end - start < 6 && numerals.find(low.at(start - 1)) != Letters::npos) start--;
            if (start >= 0 && start < end && !joins_before(low, start)) out.push_back(start);
        }
        if (out.size() > words) std::sort(out.begin() + (Py_ssize_t)before, out.end());
    }

    // Whether a number is that of a version: "v3.12".
    template <class Source>
    static bool is_version_sign(const Source& text, Py_ssize_t at) {
        return at > 1 && text.at(at - 1) == 'v' && (text.at(at - 2) == ' ' || text.at(at - 2) == '(');
    }

    static bool is_article(const Letters& word) { return word == U"a " || word == U"the "; }

    // Whether what stands behind an article makes a quantity with it: a number, a word that begins
    // one, or a unit as in "a mile and a half".
    bool leads_on(const Text& low, Py_ssize_t at) const {
        if (at < low.size && is_figure(low.at(at))) return true;
        if (beginnings_.standing(low, at) || periods_.standing(low, at)) return true;
        Text near((const char*)low.data + at * low.kind, low.kind, std::min(low.size - at, LONGEST_UNIT));
        return near.find(U" and a") >= 0;
    }

    static bool is_figure(Py_UCS4 sign) {
        if (sign < 128) return (sign >= '0' && sign <= '9') || sign == '$';
        static const Letters signs = U"€£¥₹₩₽₺₫₱₪฿";
        return signs.find(sign) != Letters::npos || is_decimal(sign);
    }

    static bool begins_wide_half(Py_UCS4 sign) {
        static const Letters signs = U"凌清早上午朝오새아中昼낮下傍夕저晚夜밤";
        return sign > 0x3000 && signs.find(sign) != Letters::npos;
    }

    // Whether a sign before a number stands there that is no hyphen.
    template <class Source>
    static bool is_minus(const Source& text, Py_ssize_t at) {
        Py_UCS4 sign = text.at(at);
        if (sign != '-' && sign != 0x2212 && sign != 0x2013) return false;
        if (at + 1 >= text.size || !is_decimal(text.at(at + 1))) return false;
        return at == 0 || Py_UNICODE_ISSPACE(text.at(at - 1)) || text.at(at - 1) == '(';
    }

    // Whether a number below one begins there without its zero: ".3 mL".
    template <class Source>
    static bool is_point(const Source& text, Py_ssize_t at) {
        if (text.at(at) != '.' || at == 0 || at + 1 >= text.size || !is_decimal(text.at(at + 1))) return false;
        return text.at(at - 1) == ' ' || text.at(at - 1) == '(';
    }

    // Whether what stands at a place goes on with a word or a number.
    template <class Source>
    static bool joins_before(const Source& text, Py_ssize_t at) {
        return at > 0 && (text.at(at - 1) == '.' || is_word(text.at(at - 1)));
    }

    // Whether a small number stands before a word within a line, so that it is no item of a list,
    // and not behind what is cited: "Passage 3 says".
    static bool is_counted(const Text& text, const Quantity& item) {
        static const std::unordered_set<Letters> cited = {
            U"passage", U"passages", U"document", U"documents", U"source", U"sources", U"doc", U"chunk", U"excerpt",
            U"context", U"reference", U"step", U"item", U"option", U"article", U"result"};
        Py_ssize_t before = item.start - 1, behind = item.end + 1;
        if (before < 1 || text.at(before) != ' ' || behind >= text.size) return false;
        Py_UCS4 after = text.at(item.end);
        if (after != '(' && (after != ' ' || !is_lower(text.at(behind)))) return false;
        if (text.at(before - 1) == ',') return true;
        Py_ssize_t start = before;
        while (start > 0 && before - start < 12 && is_letter(text.at(start - 1))) start--;
        return start < before && !cited.count(lower(text.part(start, before)));
    }

    static bool looks_structured(const Text& text) {
        int count = 0;
        Py_ssize_t end = text.size < 400 ? text.size : 400;
        for (Py_ssize_t at = 0; at + 1 < end; at++) {
            Py_UCS4 sign = text.at(at);
            count += (sign == '"' || sign == '\'') && text.at(at + 1) == ':';
        }
        return count >= 3;
    }

    Quantities read_all(const Text& text) const {
        Quantities out;
        out.text = &text;
        std::vector<Quantity> items;
        bool record = looks_structured(text);
        find(text, items);
        for (const Quantity& item : items) {
            if (record && item.is_time()) continue;  // opening hours, which are compared as such
            Letters raw = text.part(item.start, item.end);
            if (item.adverb && record) continue;
            for (const Key& key : item.keys) out.whole.emplace(key.whole(), raw);
            if (item.is_below_zero()) out.whole.emplace(item.below_zero().whole(), text.part(item.sign, item.end));
            for (const auto& part : item.parts) out.whole.emplace(part.first.whole(), part.second);
            Letters last = item.keys.back().whole();
            out.places.push_back({item.kind(), last, item.keys[0].whole(), item.clock(), item.start, item.end,
                                  item.is_money(), item.zoned, item.utc});
            if (item.figure >= 0) out.figures.emplace(last, text.part(item.figure, item.figure_end));
        }
        return out;
    }

    static bool stands_in_any(const Letters& raw, const std::vector<Text>& passages) {
        return std::any_of(passages.begin(), passages.end(), [&](const Text& passage) { return Context::stands_in(raw, passage); });
    }

    // Write "approximately" before a value as "about" where no passage has the word.
    static void write_approximation(const Text& text, const Quantity& item, const std::vector<Text>& passages, std::vector<Change>& changes) {
        static const Letters words[] = {U"approximately ", U"roughly ", U"around ", U"circa ", U"approx. ", U"approx ", U"ca. "};
        const Py_ssize_t end = item.is_below_zero() ? item.sign : item.start;
        if (end < 4 || text.at(end - 1) != ' ') return;
        for (const Letters& word : words) {
            const Py_ssize_t start = end - (Py_ssize_t)word.size();
            if (start < 0 || text.at(end - 2) != word[word.size() - 2] || lower(text.part(start, end)) != word) continue;
            if (start > 0 && is_word(text.at(start - 1))) continue;
            const Letters rest = word.substr(1);  // whatever its first letter
            const bool told = std::any_of(passages.begin(), passages.end(), [&](const Text& passage) { return passage.size && passage.find(rest) >= 0; });
            if (!told) changes.push_back({start, end, U"about "});
            return;
        }
    }

    // Write a percentage below zero as passages do: "minus 0.8 percent" as "-0.8 %". False if they have none.
    static bool write_below_zero(const Text& text, const Quantity& item, const std::vector<Quantities>& known, std::vector<Change>& changes) {
        const Letters key = item.below_zero().whole();
        for (const Quantities& one : known) {
            const auto found = one.whole.find(key);
            if (found == one.whole.end()) continue;
            if (lower(found->second) != lower(text.part(item.sign, item.end))) changes.push_back({item.sign, item.end, found->second});
            return true;
        }
        return false;
    }

    // Whether a text has a value, and not just with another year, half of the day or unit.
    static bool is_known(const Quantity& item, const std::vector<Quantities>& known) {
        if (item.is_time()) {
            for (const Quantities& one : known)
                for (const Place& place : one.places) if (is_same_time(item, place)) return true;
            return false;
        }
        for (size_t at = 0; at + 1 < item.keys.size(); at++)
            for (const Quantities& one : known) if (one.whole.count(item.keys[at].whole())) return true;
        Letters last = item.keys.back().whole();
        for (const Quantities& one : known)
            for (const Place& place : one.places)
                if (place.key == last && (item.keys.size() == 1 || place.most == place.key)) return true;
        return false;
    }

    // Times of known zones are compared in UTC, others on the clock where they were written.
    static bool is_same_time(const Quantity& item, const Place& place) {
        if (item.kind() != place.kind) return false;
        if (item.zoned && place.zoned) return item.utc == place.utc;
        Letters most = item.clock();
        Letters last = item.keys.back().whole();
        return most == place.clock || (last == place.key && (most == last || place.clock == place.key));
    }

    // Rates of the same are of one kind: "mg/kg" and "mg/ml".
    static bool is_same_kind(const Letters& one, const Letters& other) {
        size_t at = one.find(U'/');
        return one == other || (at != Letters::npos && one.compare(0, at + 1, other, 0, at + 1) == 0);
    }

    // Whether passages have the same number with another currency, or with another unit of its kind.
    static bool is_other_unit(const Quantity& item, const std::vector<Quantities>& known) {
        if (item.keys.size() < 2 || !(item.is_money() || item.measured)) return false;
        Letters number = item.keys.back().whole();
        for (const Quantities& one : known)
            for (const Place& place : one.places)
                if (place.key == number && place.money == item.is_money() && place.most != place.key &&
                    (item.is_money() || is_same_kind(place.kind, item.kind())))
                    return true;
        return false;
    }

    bool stands_replaced(
        const Quantity& item, const std::vector<Letters>& beside,
        const std::unordered_set<Letters>& said, const std::vector<Quantities>& known) const {
        const bool dated = item.keys[0].is("d");  // of those without a year a word of the statement is enough
        const bool alone = beside.size() == 1 && (item.measured || item.keys[0].is("century"));  // "Simmer for two hours."
        if (beside.size() < 2 && !dated && !alone) return false;
        for (const Quantities& one : known)
            for (const Place& place : one.places) {
                if (!is_same_kind(place.kind, item.kind()) || said.count(place.most)) continue;
                if (said.count(place.key) && place.key != item.keys.back().whole()) continue;
                const bool near = dated && item.keys.size() == 1 && is_near_date(item.keys.back().parts, place.key);
                if (near && beside.empty()) return true;  // it stands alone
                std::vector<Letters> there = context_.beside(*one.text, place.start, place.end);
                if (Context::share_words(beside, there, near || alone ? 1 : 2)) return true;
            }
        return false;
    }

    // Whether a value stands in place of another one that passages have, by more of the words beside it.
    bool stands_in_sentence(const Text& text, const Quantity& item, const std::unordered_set<Letters>& said, const std::vector<Quantities>& known) const {
        std::vector<Letters> beside;
        for (const Quantities& one : known)
            for (const Place& place : one.places) {
                if (!is_same_kind(place.kind, item.kind()) || said.count(place.most)) continue;
                if (beside.empty()) beside = context_.beside(text, item.start, item.end, Context::MANY);
                const bool near = item.keys[0].is("q") && item.keys[0].parts.size() > 2 && is_year_of(item.keys[0].parts[2], place.clock);
                if (Context::share_words(beside, context_.beside(*one.text, place.start, place.end, Context::MANY), near ? 1 : 2)) return true;
            }
        return false;
    }

    // Whether a day and month has the day or the month of another date, so that one may stand for the other.
    static bool is_near_date(const std::vector<Letters>& parts, const Letters& key) {
        const Letters begin = Key{parts[0], parts[1]}.whole(), end = U'\x1F' + parts[2] + U'\x1F';
        return key.compare(0, begin.size(), begin) == 0 || (key.size() > end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0);
    }

    // Whether a value ends with a year: another quarter of the same one.
    static bool is_year_of(const Letters& year, const Letters& key) {
        const Letters end = U'\x1F' + year + U'\x1F';
        return key.size() > end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0;
    }

    // Whether passages have the number of a value, of something else.
    static bool is_told(const Quantity& item, const Text& text, const std::vector<Text>& passages) {
        if (item.figure < 0) return false;
        const Letters figure = text.part(item.figure, item.figure_end);
        return std::any_of(passages.begin(), passages.end(), [&](const Text& passage) { return Context::stands_in(figure, passage); });
    }

    // Whether an amount or a measure stands in passages as a part of other numbers alone.
    static bool is_part(const Quantity& item, const Text& text, const std::vector<Text>& passages) {
        if (item.figure < 0 || !(item.measured || item.is_money() || item.kind() == U"%")) return false;
        Letters figure = text.part(item.figure, item.figure_end);
        bool found = false;
        for (const Text& passage : passages) {
            if (Context::stands_in(figure, passage)) return false;
            for (Py_ssize_t at = passage.find(figure); at >= 0 && !found; at = passage.find(figure, at + 1)) {
                Py_ssize_t end = at + (Py_ssize_t)figure.size();
                found = (at == 0 || !is_alnum(passage.at(at - 1))) &&
                    (end == passage.size || !is_alnum(passage.at(end)));
            }
        }
        return found;
    }

    static void write_as_known(
        const Quantity& item, const Letters& raw, const Text& text,
        const std::vector<Quantities>& known, std::vector<Change>& changes) {
        if (item.is_time()) {
            for (const Quantities& one : known)
                for (const Place& place : one.places) {
                    if (!is_same_time(item, place)) continue;
                    Letters as = one.text->part(place.start, place.end);
                    if (lower(as) != lower(raw)) changes.push_back({item.start, item.end, as});
                    return;
                }
            return;
        }
        for (const Key& key : item.keys) {
            Letters whole = key.whole();
            for (const Quantities& one : known) {
                auto found = one.whole.find(whole);
                if (found == one.whole.end()) continue;
                if (item.figure >= 0 && key.is("n") && key.parts.size() == 2 && item.keys.size() > 1) break;  // another unit
                Letters as = found->second;
                const std::vector<Letters>& most = item.keys[0].parts;
                if (key.is("d") && key.parts.size() < most.size() && as.find(most[1]) == Letters::npos)
                    as += U", " + most[1];
                if (item.figure >= 0 && item.keys.size() == 1) {
                    auto figure = one.figures.find(whole);
                    if (figure != one.figures.end()) as = figure->second;
                }
                if (all_decimal(raw) && as.find(U'.') != Letters::npos) return;  // the same number: "3.0"
                const bool whole_form = item.kind() == U"interval" && (as.find(U"ly") != Letters::npos || as.find_first_of(U"/×") != Letters::npos || says_times(as));
                const Py_ssize_t start = item.start - (whole_form && is_behind(text, U"every ", item.start) ? 6 : 0);  // "every month" as "monthly"
                if (lower(as) != lower(raw)) changes.push_back({start, item.end, as});
                return;
            }
        }
        if (item.figure >= 0) {
            Letters figure = text.part(item.figure, item.figure_end), as;
            Letters last = item.keys.back().whole();
            for (const Quantities& one : known) {
                auto found = one.figures.find(last);
                if (found == one.figures.end()) continue;
                as = found->second;
                break;
            }
            if (as.empty() && item.few) return;
            if (all_decimal(figure) && as.find(U'.') != Letters::npos) return;  // the same number: "3.0"
            if (as.empty()) {
                bool whole = item.single.find(U'.') == Letters::npos;
                as = !all_decimal(figure) && whole ? item.single : figure;
            }
            if (item.attached) as.push_back(' ');
            if (as != figure) changes.push_back({item.figure, item.figure_end, as});
            return;
        }
        if (!item.single.empty() && raw != item.single)
            changes.push_back({item.start, item.end, item.single});
    }

    // Whether it is told how many times something happens: "twice a year".
    static bool says_times(const Letters& written) {
        const Letters low = lower(written);
        return low.find(U"once") == 0 || low.find(U"twice") == 0 || low.find(U"thrice") == 0 || low.find(U"times") != Letters::npos || low.find(U"x ") != Letters::npos;
    }

    // -- what was matched

    static Letters full_year(const Letters& year) {
        if (year.size() == 4) return year;
        if (year.size() == 3) return full_year(year.substr(1));  // '24
        return (year < U"50" ? U"20" : U"19") + year;
    }

    static int month_number(const Letters& name) {
        Letters low = lower(name.substr(0, 3));
        for (int month = 0; month < 12; month++)
            if (lower(letters(MONTHS[month]).substr(0, 3)) == low) return month + 1;
        return 0;
    }

    static long day_number(const Letters& day) {
        if (is_decimal(day[0])) return number_of(day);
        static const char* const names[] = {
            "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
            "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
            "seventeenth", "eighteenth", "nineteenth", "twentieth"};
        Letters low = lower(day);
        if (low == U"thirtieth") return 30;
        size_t hyphen = low.find(U'-');
        static const Letters begins = U"twthfofisiseeini";  // of "twenty", "thirty" and so on
        long tens = hyphen == Letters::npos ? 0 : 20 + 10 * (long)(begins.find(low.substr(0, 2)) / 2);
        if (tens) low = low.substr(hyphen + 1);
        for (int at = 0; at < 20; at++) if (low == letters(names[at])) return tens + at + 1;
        return 0;
    }

    static bool date(Quantity& item, const Letters& year, long month, long day) {
        if (month < 1 || month > 12 || day < 1 || day > 31) return false;
        Letters name = letters(MONTHS[month - 1]) + U" " + digits(day);
        if (!year.empty()) {
            Letters full = full_year(year);
            item.keys.push_back(Key{U"d", full, digits(month), digits(day)});
            name += U", " + full;
        }
        item.keys.push_back(Key{U"d", digits(month), digits(day)});
        item.single = name;
        return true;
    }

    static bool numeric_date(Quantity& item, const Letters& sign, const Letters& year, long first, long second) {
        bool dot = sign == U".";
        if (dot && year.size() == 2 && second > 12) return false;
        if (first > 12 || (dot && second <= 12)) return date(item, year, second, first);
        if (!date(item, year, first, second)) return false;
        if (first != second && second <= 12)  // either may be the month
            item.keys.insert(
                item.keys.begin() + 1, Key{U"d", full_year(year), digits(second), digits(first)});
        return true;
    }

    // `half` tells that its half of the day is known.
    static bool time(Quantity& item, long minutes, bool half) {
        if (half) item.keys.push_back(Key{U"t", digits(minutes % 1440)});
        item.keys.push_back(Key{U"h", digits(minutes % 720)});
        return true;
    }

    // Of a number up to 99 in digits or as "十五", "〇五".
    static long wide_number(const Letters& text) {
        static const Letters signs = U"〇一二三四五六七八九";
        if (is_decimal(text[0])) return number_of(text);
        long tens = 0, last = 0;
        for (char32_t sign : text) {
            if (sign == U'十') { tens = last ? last : 1; last = 0; continue; }
            size_t at = sign == U'两' || sign == U'兩' ? 2 : signs.find(sign);
            last = at == Letters::npos ? 0 : (long)at;
        }
        return tens * 10 + last;
    }

    // At twelve "上午" may mean noon; "晚上12点" is midnight.
    static bool wide_time(Quantity& item, const Letters& half, long hour, long minute) {
        auto one_of = [&](const char32_t* words) { return Letters(words).find(half) != Letters::npos; };
        if (hour > 24 || minute > 59) return false;
        bool known = true;
        if (one_of(U"" WIDE_MORNING)) known = hour != 12 || half == U"凌晨";
        else if (one_of(U"" WIDE_NIGHT)) hour = hour == 12 ? 0 : hour < 12 && hour > 4 ? hour + 12 : hour;
        else if (hour < (one_of(U"中午|昼|낮") ? 10 : 12)) hour += 12;
        if (half == U"凌晨") hour %= 12;
        return time(item, hour * 60 + minute, known);
    }

    static Letters unit(const Letters& percent, const Letters& sign, const Letters& name) {
        static const std::pair<Letters, std::vector<Letters>> currencies[] = {
            {U"€", {U"€", U"eur", U"euro", U"欧元", U"歐元", U"ユーロ", U"유로"}},
            {U"£", {U"£", U"gbp", U"pound", U"英镑", U"英鎊", U"ポンド", U"파운드"}},
            {U"₩", {U"₩", U"krw", U"원"}},
            {U"$", {U"$", U"usd", U"dollar", U"dólar", U"美元", U"美金", U"ドル", U"달러"}},
            {U"¥", {U"¥", U"jpy", U"yen", U"cny", U"rmb", U"yuan", U"元", U"円", U"圓", U"人民币", U"人民幣", U"엔", U"块"}},
            {U"₹", {U"₹", U"inr", U"rs", U"rupee"}}, {U"chf", {U"chf", U"franc", U"fr."}}, {U"₽", {U"₽", U"rouble", U"ruble"}},
            {U"pln", {U"pln", U"zlot", U"złot"}}, {U"mxn", {U"mxn", U"peso"}}, {U"sek", {U"sek", U"swedish"}},
            {U"nok", {U"nok", U"norwegian"}}, {U"dkk", {U"dkk", U"danish"}}};
        if (!percent.empty()) return U"%";
        for (const Letters* one : {&sign, &name}) {
            if (one->empty()) continue;
            Letters low = lower(*one);
            for (const auto& currency : currencies)
                for (const Letters& word : currency.second)
                    if (low.find(word) != Letters::npos) return currency.first;
            return low;
        }
        return Letters();
    }

    bool amount(const Match& match, const Letters& value, const Letters& unit, Group figure, Quantity& item) const {
        if (!unit.empty()) item.keys.push_back(Key{U"n", value, unit});
        item.keys.push_back(Key{U"n", value});
        int group = groups_[figure];
        item.figure = match.start(group);
        item.figure_end = match.end(group);
        item.single = value;
        return true;
    }

    // So much of a unit, in its base unit.
    static Decimal in_base_of(Decimal value, const Measure& unit) {
        value.multiply(unit.times);
        value.exponent += unit.power;
        return value;
    }

    // Whether the point of a figure read as thousands may be that of a decimal number: "4.478".
    static bool may_be_decimal(const Letters& written, const Decimal& value) {
        const size_t point = written.find(U'.');
        return point != Letters::npos && value.exponent == 0 && written.size() == point + 4 && all_decimal(written.substr(point + 1)) && all_decimal(written.substr(0, point));
    }

    // Of an amount with a unit of measure, in its base unit; false if it is none.
    bool measured(const Text& text, const Match& match, const Decimal& value, const Letters& written, Group figure, Quantity& item) const {
        Measure unit;
        const bool degree = written == U"F" || written == U"C";  // "350F"
        if (!measures_.find(degree ? U"°" + written : written, unit)) return false;
        auto in_base = [&](const Decimal& number) {
            return unit.is_rate() ? Notation::written(number_in(number.shown()) * unit.factor()) : in_base_of(number, unit).shown();
        };
        Letters most = in_base(value);
        const bool fahrenheit = unit.kind == U"temperature" && unit.name == U"F", kelvins = unit.kind == U"temperature" && unit.name == U"kelvin";
        if (fahrenheit || kelvins) {
            const bool below = match.has(groups_[G_MINUS]) || match.has(groups_[G_BELOW]);
            const double degrees = number_in(value.shown());
            const double celsius = kelvins ? std::round((degrees - 273.15) * 100) / 100 : std::round(((below ? -1 : 1) * degrees - 32) / .18) / 10;
            most = this->written(below ? -celsius : celsius) + U" C";
        }
        else if (!unit.based) most += U" " + unit.name;
        item.measured = true;
        if (unit.is_rate() && unit.kind.find(U"/duration") != Letters::npos) {  // "140 MWh a year" has "140 MWh", too
            const Letters above = written.substr(0, std::min(written.find(U'/'), std::min(written.find(U" per "), std::min(written.find(U" a "), written.find(U" an ")))));
            Measure one;
            const Py_ssize_t start = match.start(groups_[figure]), end = match.start(groups_[figure == G_WORDS ? G_WMEASURE : G_MEASURE]);
            if (end > start && above.size() < written.size() && measures_.find(above, one)) {
                item.parts.emplace_back(Key{U"n", in_base_of(value, one).shown(), one.kind}, text.part(start, end + (Py_ssize_t)above.size()));
            }
        }
        item.unit = unit.based && !unit.is_rate() ? unit.factor() : 0;
        item.base = number_in(value.shown()) * item.unit;
        item.keys.push_back(Key{U"n", most, unit.kind});
        if (unit.based && match.has(groups_[G_VALUE]) && may_be_decimal(match.text(text, groups_[G_VALUE]), value)) {  // "4.478 km" for "4,478 m"
            Decimal decimal = value;
            decimal.exponent -= 3;
            item.keys.push_back(Key{U"n", in_base(decimal), unit.kind});
        }
        if (unit.loose) {  // "512 MiB" for "512 MB"
            Decimal loose = value;
            loose.multiply(8);
            loose.exponent += unit.loose;
            item.keys.push_back(Key{U"n", loose.shown(), unit.kind});
        }
        return amount(match, value.shown(), Letters(), figure, item);
    }

    static double number_in(const Letters& shown) {
        std::string text(shown.begin(), shown.end());
        return std::strtod(text.c_str(), nullptr);
    }

    static Letters written(double value) {
        char text[32];
        std::snprintf(text, sizeof text, "%.12g", value);
        return letters(text);
    }

    // So much of a kind, in its base unit, that is not written as one number and one unit.
    static bool lasting(Quantity& item, const Letters& kind, double value) {
        item.keys = {Key{U"n", written(value), kind}, Key{U"n", written(value) + kind}};
        item.measured = true;
        item.figure = item.figure_end = -1;
        item.single.clear();
        item.base = value;
        return true;
    }

    // Add a value to the one right before it that has a greater unit: "4 hours and 10 minutes".
    static bool add_smaller(const Text& text, const Quantity& item, Quantity& before) {
        static const Letters between[] = {U" ", U" and ", U", ", U", and "};
        Letters gap = item.start - before.end < 7 ? text.part(before.end, item.start) : Letters();
        if (std::find(std::begin(between), std::end(between), gap) == std::end(between)) return false;
        if (gap[0] == ',' && item.kind() != U"duration") return false;  // "443 Hz, 3 Hz above"
        for (const Key& key : item.keys)
            if (item.cents && before.is_money() && key.parts.size() > 2 && key.parts[2] == before.kind()) {
                for (const Quantity* one : {(const Quantity*)&before, &item})
                    before.parts.emplace_back(one->keys[0], text.part(one->start, one->end));
                lasting(before, before.kind(), number_in(before.keys.back().parts[1]) + item.base);
                before.measured = false;
                before.end = item.end;
                return true;
            }
        if (before.base <= 0 || item.base <= 0 || item.unit <= 0 || item.base >= before.unit)
            return false;
        if (item.kind() != before.kind() && !(before.kind() == U"interval" && item.kind() == U"duration")) return false;
        for (const Quantity* one : {(const Quantity*)&before, &item})
            if (one->parts.empty()) before.parts.emplace_back(one->keys[0], text.part(one->start, one->end));
        Letters kind = before.kind();
        lasting(before, kind, before.base + item.base);
        before.unit = item.unit;
        before.end = item.end;
        before.few = before.attached = false;
        return true;
    }

    // Read "4.2 per 100,000" as a share of a hundred.
    static void read_share(const Text& text, Quantity& item) {
        static const std::pair<const char32_t*, long> bases[] = {
            {U"1,000,000", 6}, {U"1000000", 6}, {U"1 million", 6}, {U"one million", 6}, {U"a million", 6}, {U"million", 6}, {U"100,000", 5}, {U"100 000", 5},
            {U"100.000", 5}, {U"100000", 5}, {U"100k", 5}, {U"10,000", 4}, {U"10000", 4}, {U"1,000", 3}, {U"1000", 3}, {U"thousand", 3}, {U"billion", 9}};
        static const Letters by = U" per ", in = U" in ";
        if (item.end + 8 >= text.size || text.at(item.end) != ' ') return;
        const bool rated = text.stands(by, item.end);
        if (!rated && !text.stands(in, item.end)) return;
        const Py_ssize_t start = item.end + (Py_ssize_t)(rated ? by : in).size();
        for (const auto& [name, power] : bases) {
            const Letters base = name;
            const Py_ssize_t end = start + (Py_ssize_t)base.size();
            if (end > text.size || lower_sign(text.at(start)) != base[0] || !text.stands(base, start)) continue;
            const bool goes_on = end < text.size && (is_word(text.at(end)) || ((text.at(end) == ',' || text.at(end) == '.') && end + 1 < text.size && is_decimal(text.at(end + 1))));
            Decimal value;
            if (goes_on || (!rated && power < 4 && (base != U"1,000" || item.keys[0].parts[1].size() > 2)) || !parse_figure(item.keys[0].parts[1], true, value)) return;
            value.exponent += 2 - power;
            item.keys.insert(item.keys.begin(), Key{U"n", value.shown(), U"%"});
            item.end = end;
            item.few = false;
            return;
        }
    }

    // Read "(4.2)%" as a percentage below zero.
    static void read_loss(const Text& text, Quantity& item) {
        if (item.start == 0 || item.end + 1 >= text.size || text.at(item.start - 1) != '(' || text.at(item.end) != ')' || text.at(item.end + 1) != '%') return;
        item.keys.insert(item.keys.begin(), Key{U"n", item.keys[0].parts[1], U"%"});
        item.figure = item.sign = item.start - 1;
        item.figure_end = item.end + 1;  // "(8)" would be a number of a list
        item.end += 2;
    }

    // Read ".67" of "a proportion of .67" as a share of a hundred, too.
    static void read_proportion(const Text& text, Quantity& item) {
        static const std::unordered_set<Letters> names = {
            U"proportion", U"share", U"fraction", U"probability", U"likelihood", U"accuracy", U"precision", U"recall", U"sensitivity", U"specificity"};
        const Py_UCS4 first = text.at(item.start);
        if (first != '.' && !(first == '0' && item.end - item.start > 2 && text.at(item.start + 1) == '.')) return;
        Py_ssize_t end = item.start;
        for (int words = 0; words < 2; words++) {
            const Letters word = word_before(text, end);
            if (word.empty()) return;
            Decimal value;
            if (names.count(word) && parse_figure(item.keys[0].parts[1], true, value)) {
                value.scale(2);
                item.keys.insert(item.keys.begin(), Key{U"n", value.shown(), U"%"});
                const Py_ssize_t start = end - (Py_ssize_t)word.size() - 4;
                const bool share = words == 1 && start >= 0 && (word == U"proportion" || word == U"share" || word == U"fraction");
                if (share && text.at(start) == ' ' && text.stands(U" a ", start)) item.start = start + 1;
                return;
            }
            end -= (Py_ssize_t)word.size() + 1;
        }
    }

    // Give a number of a range the unit, scale or month that only the other one is written with: "50 to 80 cents",
    // "€0.50–0.80", "3 to 14 June".
    static void share_unit(const Text& text, Quantity& first, Quantity& last) {
        static const std::unordered_set<Letters> between = {U" to ", U"-", U"–", U" - ", U" – ", U"—"};
        const Py_ssize_t size = last.start - first.end;
        const bool scaled = first.is_plain() && last.is_plain() && last.shift > 0 && first.shift == 0;
        if (size < 1 || size > 5 || (first.is_plain() == last.is_plain() && !scaled)) return;
        const Letters gap = text.part(first.end, last.start);
        const bool both = gap == U" and " && word_before(text, first.sign < 0 ? first.start : first.sign) == U"between";
        const bool days = gap == U" and " && (first.keys[0].is("d") || last.keys[0].is("d")) && !counts(text, last.end);  // "24 and 31 December"
        const bool sides = (gap == U" by " || gap == U" x " || gap == U"x" || gap == U"×" || gap == U" × ") && last.kind() == U"length";
        if (!both && !days && !sides && !between.count(gap)) return;
        if (scaled) {  // "12 to 15 thousand"
            Decimal value;
            if (first.keys[0].parts[1].size() > 3 || !parse_figure(first.keys[0].parts[1], true, value)) return;
            value.exponent += last.shift;
            first.keys.insert(first.keys.begin(), Key{U"n", value.shown(), U"scaled"});
            first.keys.insert(first.keys.begin() + 1, Key{U"n", value.shown()});
            return;
        }
        Quantity& plain = first.is_plain() ? first : last;
        const Quantity& whole = first.is_plain() ? last : first;
        const bool named = !is_decimal(text.at(whole.start));  // "June 3", "$5"
        if (whole.keys[0].is("d")) {
            const Letters month = whole.keys.back().parts[1], day = plain.keys[0].parts[1];
            if (named == first.is_plain() || day.size() > 2 || !all_decimal(day) || text.part(whole.start, whole.end).find(U' ') == Letters::npos) return;
            const Letters year = first.is_plain() && whole.keys[0].parts.size() > 3 ? whole.keys[0].parts[1] : Letters();
            Quantity dated;
            if (!date(dated, year, number_of(month), number_of(day))) return;
            plain.keys = dated.keys;
            plain.single = dated.single;
            plain.figure = plain.figure_end = -1;
            return;
        }
        if (!whole.keys[0].is("n") || whole.keys[0].parts.size() < 3 || (!named && last.is_plain())) return;
        Decimal value;
        if (!parse_figure(plain.keys[0].parts[1], true, value)) return;
        std::vector<Key> keys;
        const Letters unit = whole.keys[0].parts[2], most = whole.keys[0].parts[1];
        if (whole.measured) {
            const size_t blank = most.find(U' ');
            if (whole.unit <= 0 && blank == Letters::npos) return;
            const bool below = unit == U"temperature" && plain.sign >= 0;
            keys.push_back(Key{U"n", whole.unit > 0 ? written(number_in(value.shown()) * whole.unit) : Letters(below, U'-') + value.shown() + most.substr(blank), unit});
            if (below) plain.start = plain.figure = plain.sign;
        } else {
            value.exponent += whole.shift;
            for (const Key& key : whole.keys)
                if (key.parts.size() > 2) keys.push_back(Key{U"n", value.shown(), key.parts[2]});
        }
        plain.measured = whole.measured;
        plain.keys.insert(plain.keys.begin(), keys.begin(), keys.end());
    }

    // Whether a number that ends at a place counts what stands behind it: "and 31 people".
    static bool counts(const Text& text, Py_ssize_t at) {
        static const std::unordered_set<Letters> behind = {
            U"for", U"in", U"at", U"to", U"from", U"of", U"is", U"are", U"was", U"were", U"when", U"as", U"because", U"due", U"only", U"each", U"every", U"and", U"but", U"until", U"this", U"next", U"last", U"that", U"with", U"by"};
        if (at + 1 >= text.size || text.at(at) != ' ' || !is_lower(text.at(at + 1))) return false;
        Py_ssize_t end = at + 1;
        while (end < text.size && end - at < 9 && is_letter(text.at(end))) end++;
        return !behind.count(text.part(at + 1, end));
    }

    // Of a number in digits or words, 0 if it is none.
    static long small_number(const Letters& text) {
        unsigned __int128 value = 0;
        if (is_decimal(text[0])) return number_of(text);
        Letters low = lower(text);
        return low == U"a" || low == U"an" ? 1 : parse_words(low, value) ? (long)value : 0;
    }

    // How much of a unit "half", "a quarter", "two thirds" or "3/4" is.
    static bool parse_part(const Letters& part, double& out) {
        if (part.find(U'/') != Letters::npos) {
            const double above = part[0] - '0', below = part[2] - '0';
            out = above / below;
            return above < below;
        }
        const bool three = part[0] == 't' && part[1] == 'h' && part[2] == 'r';
        if (part.find(U"third") != Letters::npos) out = part[0] == 't' && part[1] == 'w' ? 2.0 / 3 : 1.0 / 3;
        else out = part.find(U"half") != Letters::npos ? .5 : three ? .75 : .25;
        return true;
    }

    // Whether "a week" is a duration and not what a rate is by, as in "40 hours a week": by the word before it, or
    // where "before" or a smaller one comes behind.
    static bool is_duration(const Text& text, const Match& match) {
        static const std::unordered_set<Letters> leading = {
            U"within", U"for", U"in", U"after", U"about", U"nearly", U"almost", U"over", U"under", U"than", U"least", U"most", U"to",
            U"of", U"has", U"have", U"had", U"takes", U"took", U"take", U"lasts", U"lasted", U"last", U"is", U"was", U"by", U"until",
            U"only", U"just", U"exactly", U"around", U"roughly", U"approximately"};
        Py_ssize_t end = match.start(), behind = match.end();
        if (behind + 8 < text.size && text.at(behind) == ' ') {
            for (const char32_t* word : {U" before", U" after", U" later", U" earlier", U" ago", U" long", U" prior"})
                if (text.stands(word, behind)) return !is_counted_before(text, end);
            if (text.stands(U" and ", behind) && Py_UNICODE_ISDECIMAL(text.at(behind + 5))) return true;
        }
        return end > 2 && leading.count(word_before(text, end));
    }

    // The word that stands with a blank right before a place, in lower case.
    static Letters word_before(const Text& text, Py_ssize_t end) {
        if (end < 2 || text.at(end - 1) != ' ') return Letters();
        Py_ssize_t start = --end;
        while (start > 0 && end - start < 14 && Py_UNICODE_ISALPHA(text.at(start - 1))) start--;
        return lower(text.part(start, end));
    }

    // Whether what stands at a place is how long something lasts: "takes 2h35".
    static bool is_lasting(const Text& text, Py_ssize_t at) {
        static const std::unordered_set<Letters> leading = {
            U"takes", U"take", U"took", U"lasts", U"lasted", U"last", U"runs", U"ran", U"for", U"within", U"about", U"of", U"spent", U"needs", U"needed"};
        return leading.count(word_before(text, at));
    }

    // Whether a number with a point is a time: "starts at 11.10".
    static bool is_dotted_time(const Text& text, Py_ssize_t start, Py_ssize_t end, const Letters& written) {
        static const std::unordered_set<Letters> priced = {
            U"traded", U"trades", U"trading", U"priced", U"valued", U"sold", U"sells", U"bought", U"closed", U"averaged", U"stood", U"stands", U"grew", U"rose", U"fell",
            U"set", U"fixed", U"estimated", U"settled", U"ended", U"finished", U"remained", U"peaked", U"is", U"was", U"rate"};
        static const std::unordered_set<Letters> behind = {
            U"on", U"in", U"every", U"each", U"and", U"or", U"from", U"to", U"until", U"sharp", U"daily", U"local", U"during", U"after", U"before", U"when",
            U"with", U"by", U"for", U"this", U"tomorrow", U"today", U"tonight", U"the"};
        const size_t point = written.find(U'.');
        if (point == Letters::npos || point > 2 || written.size() != point + 3 || number_of(written.substr(0, point)) > 23 || written[point + 1] > '5') return false;
        if (word_before(text, start) != U"at" || priced.count(word_before(text, start - 3))) return false;
        if (end + 1 >= text.size || text.at(end) != ' ') return true;
        Py_ssize_t last = end + 1;
        while (last < text.size && last - end < 12 && is_letter(text.at(last))) last++;
        return behind.count(lower(text.part(end + 1, last)));
    }

    // Whether a number and a word stand right before a place, or "twice": "19 cents an hour".
    static bool is_counted_before(const Text& text, Py_ssize_t at) {
        Py_ssize_t start = at - 1;
        while (start > 0 && at - start < 20 && text.at(start - 1) != ' ') start--;
        const Letters word = lower(text.part(std::max<Py_ssize_t>(0, start), std::max<Py_ssize_t>(0, at - 1)));
        const bool number = start > 1 && Py_UNICODE_ISDECIMAL(text.at(start - 2));
        return number || word == U"times" || word == U"once" || word == U"twice" || word == U"thrice";
    }

    // "3 times" what is 300 percent of it, and "3 times a day" what is every eight hours.
    bool times(const Match& match, const Letters& written, const Letters& period, const Letters& factor, Quantity& item) const {
        const size_t blank = written.find(U' '), end = is_decimal(written[0]) ? std::min(blank, written.find_first_of(U"x×")) : blank;
        if (!factor.empty()) {
            Decimal value;
            const size_t part = factor.find(U" and ");
            if (part != Letters::npos) value.coefficient = digits(small_number(factor.substr(0, part)));
            if (part != Letters::npos ? !add_part(value, factor.substr(part)) : !parse_figure(factor, true, value)) return false;
            item.keys = {Key{U"times", value.shown()}};
            value.exponent += 2;
            item.keys.push_back(Key{U"n", value.shown(), U"%"});
            item.keys.push_back(item.keys[0]);
            return true;
        }
        if (written == U"half") {
            item.keys = {Key{U"times", U"0.5", U"%"}, Key{U"n", U"50", U"%"}, Key{U"times", U"0.5"}};
            return true;
        }
        const Letters often = written.substr(0, end);
        const long number = often == U"once" ? 1 : often == U"twice" ? 2 : often == U"thrice" ? 3 : small_number(often);
        if (number == 0) return false;
        if (!period.empty()) {
            Measure unit;
            if (!measures_.find(period == U"dai" ? U"day" : period, unit)) return false;
            item.keys.push_back(Key{U"n", this->written(unit.factor() / (double)number), U"interval"});
        } else if (number > 1) {
            item.keys.push_back(Key{U"times", digits(number), U"%"});
            item.keys.push_back(Key{U"n", digits(number * 100), U"%"});
        }
        item.keys.push_back(Key{U"times", digits(number)});
        if (period.empty() && Py_UNICODE_ISDECIMAL(often[0])) {
            item.keys.push_back(Key{U"n", digits(number)});
            item.figure = match.start();
            item.figure_end = match.start() + (Py_ssize_t)end;
        }
        return true;
    }

    // "threefold" and "by a factor of three": 300 percent of it.
    static bool folds(Letters written, Quantity& item) {
        static const LettersView by = U"by a factor of ";
        Decimal value;
        if (written.compare(0, by.size(), by) == 0) written.erase(0, by.size());
        else if (written.size() > 5 && written.compare(written.size() - 4, 4, U"fold") == 0) written.resize(written.size() - 4 - (written[written.size() - 5] == '-'));
        else return false;
        if (is_decimal(written[0]) ? !parse_figure(written, true, value) : small_number(written) == 0) return false;
        if (!is_decimal(written[0])) value.coefficient = digits(small_number(written));
        item.keys = {Key{U"times", value.shown()}};
        value.exponent += 2;
        item.keys.push_back(Key{U"n", value.shown(), U"%"});
        item.keys.push_back(item.keys[0]);
        return true;
    }

    // A quarter behind its year: "FY2023 Q3", "2022Q4".
    static bool quarter_of_year(Quantity& item, const Letters& written) {
        Letters year;
        for (char32_t sign : written.substr(0, written.size() - 2))
            if (is_decimal(sign)) year += sign;
        const Letters quarter(1, written.back());
        item.keys.push_back(Key{U"q", quarter, full_year(year)});
        item.single = U"Q" + quarter + U" " + full_year(year);
        return true;
    }

    // Half of a year: "2H23".
    static bool half_year(Quantity& item, const Letters& half, const Letters& year) {
        item.keys.push_back(Key{U"q", U"half " + half, full_year(year)});
        item.single = U"H" + half + U" " + full_year(year);
        return true;
    }

    // The number that a Roman numeral up to "xxxix" is; 0 if it is none.
    static long roman_number(const Letters& numeral) {
        static const Letters units[] = {U"", U"i", U"ii", U"iii", U"iv", U"v", U"vi", U"vii", U"viii", U"ix"};
        for (long number = 1; number < 40; number++)
            if (numeral == Letters((size_t)number / 10, U'x') + units[number % 10]) return number;
        return 0;
    }

    // A latitude or longitude, in seconds of an angle.
    static bool degrees(Quantity& item, Letters whole, Letters minutes, Letters seconds, const Letters& point) {
        double value = 0;
        for (Letters* part : {&whole, &minutes, &seconds}) {
            std::replace(part->begin(), part->end(), U',', U'.');
            value = value * 60 + (part->empty() ? 0 : number_in(*part));
        }
        if (value > 180 * 3600) return false;
        const bool latitude = point[0] == 'n' || point[0] == 's';
        if (point[0] == 's' || point[0] == 'w') value = -value;
        item.keys.push_back(Key{latitude ? U"latitude" : U"longitude", written(value)});
        return true;
    }

    // "2/3", "two thirds", "2 out of 3", "half".
    static bool parse_fraction(const Letters& text, long& above, long& below) {
        static const std::pair<const char32_t*, long> parts[] = {
            {U"full", 1}, {U"whole", 1}, {U"entire", 1}, {U"half", 2}, {U"third", 3}, {U"quarter", 4}, {U"fifth", 5}, {U"sixth", 6}, {U"seventh", 7}, {U"eighth", 8}, {U"ninth", 9}, {U"tenth", 10}, {U"twelfth", 12}};
        size_t first = text.find_first_of(U"/ -"), last = text.find_last_of(U"/ ");
        above = first == Letters::npos ? 1 : small_number(text.substr(0, first));
        const bool counted = text.find(U" in ") != Letters::npos || text.find(U" of ") != Letters::npos;
        for (const auto& part : parts)
            if (!counted && text.find(part.first) != Letters::npos) below = part.second;
        if (!below && last != Letters::npos) below = small_number(text.substr(last + 1));
        return above > 0 && below > 0;
    }

    // Of a time on a clock of twelve hours, in a part of the day or at any.
    static bool spoken_time(Quantity& item, long minutes, const Letters& part) {
        Letters low = lower(part);
        bool night = low.find(U"night") != Letters::npos, morning = low.find(U"morning") != Letters::npos;
        if (low.empty() || minutes >= 780) return time(item, minutes, minutes >= 780);
        minutes %= 720;
        return time(item, morning || (night && minutes < 360) ? minutes : minutes + 720, true);
    }

    // "85 cents" are 0.85 of a dollar or euro.
    bool cents(const Match& match, const Decimal& value, const Letters& name, Quantity& item) const {
        Decimal whole = value;
        whole.exponent -= 2;
        if (name == U"p" && value.coefficient.size() + value.exponent > 2) return false;  // "1080p"
        item.cents = true;
        item.shift = -2;
        item.base = number_in(whole.shown());
        if (name[0] == 'p') {
            item.keys.push_back(Key{U"n", whole.shown(), U"£"});
        } else {
            item.keys.push_back(Key{U"n", whole.shown(), U"$"});
            item.keys.push_back(Key{U"n", whole.shown(), U"€"});
        }
        return amount(match, value.shown(), Letters(), G_FIGURE, item);
    }

    // Add a fraction: "and a half", "1/4", "point five".
    static bool add_part(Decimal& value, const Letters& part) {
        static const std::pair<const char32_t*, const char32_t*> fractions[] = {
            {U"1/8", U"125"}, {U"3/8", U"375"}, {U"5/8", U"625"}, {U"7/8", U"875"}, {U"1/5", U"2"}, {U"2/5", U"4"}, {U"3/5", U"6"}, {U"4/5", U"8"},
            {U"three", U"75"}, {U"3/4", U"75"}, {U"quarter", U"25"}, {U"1/4", U"25"}, {U"half", U"5"},
            {U"1/2", U"5"}};
        static const char* const names[] = {
            "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
        if (value.exponent) return false;
        Letters behind;
        if (part.find(U"point") == Letters::npos) {
            for (const auto& fraction : fractions)
                if (behind.empty() && part.find(fraction.first) != Letters::npos) behind = fraction.second;
        } else {
            for (size_t at = 7; at < part.size();) {
                size_t end = std::min(part.find(U' ', at), part.size());
                for (int digit = 0; digit < 10; digit++)
                    if (part.substr(at, end - at) == letters(names[digit])) behind.push_back(U'0' + digit);
                at = end + 1;
            }
        }
        value.coefficient += behind;
        value.exponent = -(long)behind.size();
        return !behind.empty();
    }

    // Whether a scale is of a language that writes thousands with a point: "1.800 Mio." are 1,800 million.
    static bool has_thousands(const Letters& scale) {
        static const std::unordered_set<Letters> scales = {
            U"mio", U"mrd", U"mld", U"tsd", U"millionen", U"milliarden", U"millones", U"milhões"};
        return scales.count(scale);
    }

    static long power_of(const Letters& scale) {
        static const std::unordered_map<Letters, long> powers = {
            {U"hundred", 2}, {U"thousand", 3}, {U"million", 6}, {U"billion", 9}, {U"trillion", 12},
            {U"lakh", 5}, {U"crore", 7}, {U"k", 3}, {U"m", 6}, {U"mn", 6}, {U"mm", 6}, {U"mio", 6},
            {U"b", 9}, {U"bn", 9}, {U"mrd", 9}, {U"t", 12}, {U"tn", 12}, {U"mln", 6}, {U"mld", 9},
            {U"tsd", 3}, {U"cr", 7}, {U"lakh crore", 12}, {U"millionen", 6}, {U"millones", 6},
            {U"millón", 6}, {U"milhões", 6}, {U"milhão", 6}, {U"milliarden", 9}, {U"milliard", 9},
            {U"千", 3}, {U"천", 3}, {U"万", 4}, {U"萬", 4}, {U"만", 4}, {U"十万", 5}, {U"十萬", 5},
            {U"십만", 5}, {U"百万", 6}, {U"百萬", 6}, {U"백만", 6}, {U"千万", 7}, {U"千萬", 7},
            {U"천만", 7}, {U"亿", 8}, {U"億", 8}, {U"억", 8}, {U"十亿", 9}, {U"十億", 9}, {U"십억", 9},
            {U"百亿", 10}, {U"百億", 10}, {U"백억", 10}, {U"千亿", 11}, {U"千億", 11}, {U"천억", 11},
            {U"兆", 12}, {U"万亿", 12}, {U"조", 12}};
        auto found = powers.find(scale);
        if (found != powers.end()) return found->second;
        size_t end = scale.find_last_not_of(U's');
        found = powers.find(scale.substr(0, end == Letters::npos ? 0 : end + 1));
        return found == powers.end() ? 0 : found->second;
    }

    bool read(const Text& text, const Match& match, Quantity& item) const {
        auto of = [&](Group group) { return match.text(text, groups_[group]); };
        int kind = 0;
        while (!match.has(groups_[kind])) kind++;
        if (match.has(groups_[G_WEEKDAY])) {  // the right one adds nothing to a date
            item.start = match.start(groups_[kind]);
            Quantity dated;
            if (kind <= G_DMY && read_kind(text, match, kind, dated) && falls_on(dated, of(G_WEEKDAY)))
                item.start = match.start();
        }
        if (!read_kind(text, match, kind, item)) return false;
        if (item.measured && item.kind() == U"duration" && is_behind(text, U"every ", item.start)) item.keys[0].parts[2] = U"interval";
        Letters zone = of(G_ZONE);
        if (std::any_of(zone.begin(), zone.end(), [](char32_t sign) { return sign >= 'a' && sign <= 'z'; })) {
            zone.clear();  // a word: "à 10:30 est"
            item.end = match.start(groups_[G_ZONE]);
            while (Py_UNICODE_ISSPACE(text.at(item.end - 1))) item.end--;
        }
        if (zone.empty() && item.is_time() && item.end == match.end()) zone = zone_behind(text, item.end);
        return read_zone(zone, of(G_SHIFT), item);
    }

    // The zone in brackets behind a time: "23:50 local time (UTC+1)"; nothing if there is none.
    static Letters zone_behind(const Text& text, Py_ssize_t at) {
        static const Letters local = U" local time";
        if (at >= text.size || text.at(at) != ' ') return Letters();
        if (at + (Py_ssize_t)local.size() < text.size && text.stands(local, at)) at += (Py_ssize_t)local.size();
        if (at + 2 >= text.size || text.at(at) != ' ' || text.at(at + 1) != '(') return Letters();
        Letters zone;
        for (at += 2; at < text.size && zone.size() < 12 && text.at(at) != ')'; at++)
            if (text.at(at) != ' ') zone.push_back(text.at(at));
        const size_t sign = zone.find_first_of(U"+−-");
        const Letters name = lower(zone.substr(0, sign));
        if (at >= text.size || text.at(at) != ')' || (name != U"utc" && name != U"gmt" && (sign != Letters::npos || !zones().count(name)))) return Letters();
        if (sign != Letters::npos && (number_of(zone) > 1459 || zone.find_first_not_of(U"+−-:0123456789", sign) != Letters::npos)) return Letters();
        return zone;
    }

    // Before a time of a known zone the day in UTC, where it is another one.
    static void read_day_in_utc(Quantity& before, const Quantity& time) {
        static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
        if (!time.zoned || !before.keys[0].is("d") || before.keys[0].parts.size() != 4) return;
        if (time.start - before.end > 4) return;
        long minutes = number_of(time.keys[0].parts[1]) - time.offset;
        if (minutes >= 0 && minutes < 1440) return;
        const std::vector<Letters>& parts = before.keys[0].parts;
        long year = number_of(parts[1]), month = number_of(parts[2]), day = number_of(parts[3]);
        auto length = [&] {
            bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            return lengths[month - 1] + (month == 2 && leap);
        };
        if (minutes < 0) {
            if (--day == 0) {
                if (--month == 0) { month = 12; year--; }
                day = length();
            }
        } else if (++day > length()) {
            day = 1;
            if (++month == 13) { month = 1; year++; }
        }
        before.keys.insert(before.keys.begin() + 1, Key{U"d", digits(year), digits(month), digits(day)});
    }

    // The minutes from UTC of zones by their names.
    static const std::unordered_map<Letters, long>& zones() {
        static const std::unordered_map<Letters, long> offsets = {
            {U"utc", 0}, {U"gmt", 0}, {U"z", 0}, {U"cet", 60}, {U"mez", 60}, {U"cest", 120}, {U"mesz", 120},
            {U"eet", 120}, {U"eest", 180}, {U"msk", 180}, {U"hkt", 480}, {U"sgt", 480}, {U"jst", 540}, {U"kst", 540},
            {U"aest", 600}, {U"aedt", 660}, {U"edt", -240}, {U"est", -300}, {U"cdt", -300}, {U"mdt", -360},
            {U"mst", -420}, {U"pdt", -420}, {U"pst", -480}};
        return offsets;
    }

    // Take the zone of a time from "UTC+2", "CEST" or "+02:00".
    static bool read_zone(const Letters& zone, const Letters& shift, Quantity& item) {
        if (zone.empty() && shift.empty()) return true;
        Letters name = lower(zone);
        size_t sign = name.empty() ? 0 : name.find_first_of(U"+−-");
        Letters hours = name.empty() ? shift : sign == Letters::npos ? Letters() : name.substr(sign);
        if (hours.empty()) {
            item.offset = zones().at(name);
        } else {
            long value = number_of(hours);
            bool whole = value < 100 && hours.find(U':') == Letters::npos;
            item.offset = whole ? value * 60 : value / 100 * 60 + value % 100;
            if (hours.find(U'+') == Letters::npos) item.offset = -item.offset;
        }
        item.zoned = true;
        long minutes = number_of(item.keys[0].parts[1]);
        item.utc = ((minutes - item.offset) % 1440 + 1440) % 1440;
        item.keys[0] = Key{U"t", digits(minutes), U"from utc", digits(item.utc)};
        return true;
    }

    // Whether a date of a known year is a weekday, by Sakamoto's method.
    static bool falls_on(const Quantity& item, const Letters& weekday) {
        static const char* const names[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
        static const int shifts[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
        const std::vector<Letters>& parts = item.keys[0].parts;
        if (parts.size() != 4) return false;
        long month = number_of(parts[2]), day = number_of(parts[3]);
        long year = number_of(parts[1]) - (month < 3);
        long found = (year + year / 4 - year / 100 + year / 400 + shifts[month - 1] + day) % 7;
        return lower(weekday.substr(0, 3)) == letters(names[found]);
    }

    bool read_kind(const Text& text, const Match& match, int kind, Quantity& item) const {
        auto of = [&](Group group) { return match.text(text, groups_[group]); };
        auto number = [&](Group group) { return number_of(of(group)); };
        switch (kind) {
            case G_COMPACT: {
                if (!date(item, of(G_KY), number(G_KM), number(G_KD))) return false;
                item.keys.insert(item.keys.begin() + 1, Key{U"n", of(G_COMPACT)});
                return true;
            }
            case G_ISO: return date(item, of(G_IY), number(G_IM), number(G_ID));
            case G_NUM: return numeric_date(item, of(G_NS), of(G_NY), number(G_NA), number(G_NB));
            case G_SLASH: {
                const Letters written = of(G_SLASH);
                const long first = number_of(written.substr(0, written.find(U'/'))), second = number_of(written.substr(written.find(U'/')));
                return date(item, Letters(), std::min(first, second), std::max(first, second));
            }
            case G_CJK: return date(item, of(G_CY), number(G_CM), number(G_CD));
            case G_MDY: return date(item, of(G_MY), month_number(of(G_MM)), day_number(of(G_MD)));
            case G_DMY: return date(item, of(G_DY), month_number(of(G_DM)), day_number(of(G_DD)));
            case G_MONTH: {
                const bool named = match.has(groups_[G_OM]), dashed = match.has(groups_[G_OW]);
                const long month = named ? month_number(of(G_OM)) : number(dashed ? G_OW : G_ON);
                if (!month) return false;
                const Letters year = full_year(of(named ? G_OY : dashed ? G_OV : G_OZ));
                if (dashed && month > number_of(year) % 100) return false;  // "2004-05" may be from 2004 to 2005
                item.keys.push_back(Key{U"m", year, digits(month)});
                item.single = letters(MONTHS[month - 1]) + U" " + year;
                return true;
            }
            case G_TIME: {
                long hour = number(G_TH);
                if (hour > 12) return false;
                bool late = lower(of(G_TA)) == U"p";
                return time(item, (hour % 12 + 12 * late) * 60 + number(G_TM), true);
            }
            case G_CLOCK: {
                Letters hour = of(G_CH);
                bool known = number_of(hour) > 12 || hour[0] == '0';
                known |= match.has(groups_[G_ZONE]) || match.has(groups_[G_SHIFT]);
                const Letters clock = lower(of(G_CLOCK));
                if ((of(G_CS) == U"h" || clock.find(U"hours") != Letters::npos) && is_lasting(text, match.start()))
                    return lasting(item, U"duration", number_of(hour) * 3600 + number(G_CI) * 60);
                if (std::count(clock.begin(), clock.end(), U':') == 2 && !match.has(groups_[G_ZONE]) && (word_before(text, match.start()) == U"in" || is_lasting(text, match.start())))  // "won in 2:06:12"
                    return lasting(item, U"duration", number_of(hour) * 3600 + number(G_CI) * 60 + number_of(clock.substr(clock.rfind(U':'), 3)));
                if (clock.find(U" h") != Letters::npos && is_lasting(text, match.start()))
                    return lasting(item, U"duration", number_of(hour) * 3600 + number(G_CI) * 60);
                if (of(G_CS) == U"H" && (hour == U"1" || hour == U"2") && item.end == match.end(groups_[G_CI])) return half_year(item, hour, of(G_CI));
                if (match.has(groups_[G_CP])) return spoken_time(item, number_of(hour) * 60 + number(G_CI), of(G_CP));
                return time(item, number_of(hour) * 60 + number(G_CI), known);
            }
            case G_WIDE: {
                long minute = 0;
                for (Group group : {G_WM, G_WN, G_WD})
                    if (match.has(groups_[group])) minute = wide_number(of(group));
                if (match.has(groups_[G_WK])) minute = 30;
                return wide_time(item, of(G_WA), wide_number(of(G_WH)), minute);
            }
            case G_DIGITAL: {
                long hour = number(G_XH);
                return time(item, hour * 60 + (match.has(groups_[G_XK]) ? 30 : number(G_XM)), hour > 12);
            }
            case G_UHR: return time(item, number(G_UH) * 60 + number(G_UM), true);
            case G_NOON: {
                bool noon = lower(of(G_NOON)).find(U"noon") != Letters::npos;
                return time(item, noon ? 720 : 0, true);
            }
            case G_HALF: {
                bool whole = match.has(groups_[G_HQ]);
                Letters part = lower(of(G_HX));
                const Letters named = lower(of(whole ? G_HQ : G_HP));
                const bool midnight = named == U"midnight", middle = midnight || named == U"noon";
                long hour = middle ? 12 : small_number(named);
                if (hour < 1 || hour > 12) return false;
                long minutes = whole ? 0 : part.find(U"half") != Letters::npos ? 30 : part.find(U"quarter") != Letters::npos ? 15 : small_number(part.substr(0, part.find(U' ')));
                if (minutes > 59) return false;
                if (!whole && part.back() == 'o') minutes = -minutes;
                if (middle) return time(item, (midnight ? 1440 : 720) + minutes, true);
                return spoken_time(item, (hour * 60 + minutes + 720) % 720, of(whole ? G_HE : G_HD));
            }
            case G_RACE: {
                double seconds = 0;
                if (match.has(groups_[G_RM])) seconds = (double)number(G_RM) * 60 + number_in(of(G_RS));
                else if (match.has(groups_[G_R4])) seconds = (double)number(G_R4) * 60 + number_in(of(G_R5));
                else seconds = (double)(number(G_R1) * 3600 + number(G_R2) * 60 + number(G_R3));
                return seconds > 0 && lasting(item, U"duration", seconds);
            }
            case G_LASTING:
                item.unit = 60;
                return lasting(item, U"duration", number(G_LH) * 3600 + number(G_LM) * 60);
            case G_FRACTION: {
                Letters written = lower(of(G_FRACTION));
                long above = 0, below = 0;
                if (!parse_fraction(written, above, below)) return false;
                long by = std::gcd(above, below);
                above /= by, below /= by;
                if (above * 10'000 % below == 0) {  // "one in eight" is 12.5 %
                    Decimal share{digits(above * 10'000 / below), -2};
                    item.keys.push_back(Key{U"n", share.shown(), U"%"});
                }
                item.keys.push_back(Key{U"fraction", digits(above) + U"of" + digits(below)});
                return true;
            }
            case G_PARTIAL: {
                Measure unit;
                Letters part = lower(of(match.has(groups_[G_PF]) ? G_PF : G_PG));
                double amount = part.find(U"half") != Letters::npos ? .5 : part.find(U"three") != Letters::npos ? .75 : .25;
                if (!match.has(groups_[G_PF])) amount += small_number(of(G_PN));
                else if (!parse_part(part, amount)) return false;
                if (match.has(groups_[G_PQ])) {  // "a quarter of a percentage point"
                    item.keys = {Key{U"n", written(amount), U"%"}, Key{U"n", written(amount) + U"%"}};
                    return true;
                }
                if (match.has(groups_[G_PS])) {  // "a quarter of a million"
                    Letters name = of(G_PC), scaled = written(amount * std::pow(10.0, (double)power_of(lower(of(G_PS)))));
                    this->amount(match, scaled, this->unit(Letters(), Letters(), name), G_PF, item);
                    item.figure_end = match.end(groups_[G_PS]);
                    return true;
                }
                Letters written = of(match.has(groups_[G_PF]) ? G_PM : G_PU);
                if (!measures_.find(written, unit)) return false;
                lasting(item, unit.kind, amount * unit.factor());
                if (!unit.based) item.keys[0].parts[1] += U" " + unit.name;
                return true;
            }
            case G_CENTURY: {
                long century = day_number(match.has(groups_[G_HN]) ? of(G_HN) : of(G_HW));
                if (!century) century = roman_number(lower(of(G_HW)));
                if (!century) return false;
                item.keys.push_back(Key{U"century", digits(century)});
                return true;
            }
            case G_DECADE: {
                Letters ten = of(G_TEN), named = lower(of(G_TENS)), before = U"19";
                unsigned __int128 value = 0;
                const size_t hundred = named.find(U"teen");
                if (hundred != Letters::npos) {  // "the eighteen-seventies"
                    before = named[0] == 's' ? U"17" : named[0] == 'e' ? U"18" : U"19";
                    named.erase(0, hundred + 5);
                }
                if (!named.empty() && parse_words(named.substr(0, named.size() - 3) + U"y", value)) ten = digits(value);
                item.keys.push_back(Key{U"decade", ten.size() == 2 ? before + ten : ten});
                if (ten.size() == 4 && ten < U"1500" && ten.compare(2, 2, U"00") == 0) item.keys.push_back(Key{U"century", digits(number_of(ten) / 100 + 1)});
                return true;
            }
            case G_WEEK: {
                const bool named = match.has(groups_[G_W1]);
                item.keys.push_back(Key{U"week", of(named ? G_W2 : G_W3), digits(number(named ? G_W1 : G_W4))});
                return true;
            }
            case G_FISCAL: {
                Letters year = match.has(groups_[G_FY2]) ? of(G_FY2) : full_year(of(G_FY));
                item.keys.push_back(Key{U"fy", year});
                item.keys.push_back(Key{U"n", year});
                item.single = U"fiscal year " + year;
                return true;
            }
            case G_QUARTER: {
                if (std::none_of(std::begin(QUARTERS), std::end(QUARTERS), [&](Group group) { return match.has(groups_[group]); }))
                    return quarter_of_year(item, of(G_QUARTER));
                Letters quarter = of(G_Q1);
                if (quarter.empty()) quarter = of(G_Q2);
                Letters half = of(G_Q4);
                if (half.empty() && match.has(groups_[G_Q5]))
                    half = day_number(of(G_Q5)) == 1 ? U"1" : U"2";
                if (quarter.empty() && half.empty()) {
                    Letters named = of(G_Q3), low = lower(named);
                    quarter = low == U"first" ? U"1" : low == U"second" ? U"2" : low == U"third" ? U"3" :
                        low == U"fourth" ? U"4" : named.substr(0, 1);
                }
                Letters year = of(G_QY);
                item.single = half.empty() ? U"Q" + quarter : U"H" + half;
                if (!half.empty()) quarter = U"half " + half;
                if (year.empty()) {
                    item.keys.push_back(Key{U"q", quarter});
                    return true;
                }
                year = full_year(year);
                item.keys.push_back(Key{U"q", quarter, year});
                item.single += U" " + year;
                return true;
            }
            case G_TIMES: return folds(lower(of(G_TIMES)), item) || times(match, lower(of(G_TIMES)), lower(of(match.has(groups_[G_PERIOD]) ? G_PERIOD : G_DAILY)), lower(of(G_FACTOR)), item);
            case G_ONE: {
                Measure unit;
                if (!measures_.find(lower(of(G_OU)), unit)) return false;
                if (text.at(match.start() + 1) == 'v' || text.at(match.start() + 1) == 'V') {  // "every second week"
                    Letters nth = lower(of(G_NTH));
                    double number = nth.empty() ? 1 : nth == U"third" ? 3 : nth == U"fourth" ? 4 : 2;
                    item.start = match.start(groups_[nth.empty() ? G_OU : G_NTH]);
                    return lasting(item, U"interval", number * unit.factor());
                }
                if (!is_duration(text, match)) return false;
                lasting(item, unit.kind, unit.factor());
                item.unit = unit.factor();
                return true;
            }
            case G_OFTEN: {
                static const std::pair<const char32_t*, double> often[] = {
                    {U"dai", 86400}, {U"week", 604800}, {U"fortnight", 1209600}, {U"month", 2629746}, {U"quarter", 7889238},
                    {U"half", 15778476}, {U"twice", 15778476}, {U"bi", 15778476}, {U"semi", 15778476}, {U"year", 31556952}, {U"annual", 31556952}};
                const Letters written = lower(of(G_OFTEN));
                item.adverb = true;
                const bool twice = written.compare(0, 2, U"bi") == 0, half = written.compare(0, 4, U"semi") == 0;
                if (const size_t unit = std::min(written.find(U"week"), written.find(U"month")); (twice || half) && unit != Letters::npos) {
                    const double seconds = written[unit] == 'w' ? 604800 : 2629746;
                    lasting(item, U"interval", twice ? 2 * seconds : seconds / 2);
                    if (twice) item.keys.insert(item.keys.begin() + 1, Key{U"n", this->written(seconds / 2), U"interval"});  // it may mean either
                    return true;
                }
                for (const auto& [name, seconds] : often)
                    if (written.compare(0, LettersView(name).size(), name) == 0) return lasting(item, U"interval", seconds);
                return false;
            }
            case G_DEGREES: return degrees(item, of(G_GA), of(G_GM), of(G_GS), lower(of(G_POINT)));
            case G_LEVEL: return lasting(item, U"length", (double)number(G_LV) * 100 * 0.3048);  // hundreds of feet
            case G_ORDINAL: {
                long number = day_number(of(G_ORDINAL));
                if (!number) return false;
                item.keys.push_back(Key{U"ordinal", digits(number)});
                return true;
            }
            case G_LOSS: {  // "$(14.2) million", as accountants write what is below zero
                Decimal value;
                const Letters written = of(G_LOSS);
                Letters scale = lower(written.substr(written.find(U')') + 1));
                scale.erase(scale.find_last_not_of(U". ") + 1);
                scale.erase(0, scale.find_first_not_of(U' '));
                if (!parse_figure(of(G_LOST), !scale.empty(), value)) return false;
                value.scale(power_of(scale));
                return amount(match, value.shown(), unit(Letters(), written.substr(0, written.find(U'(')), Letters()), G_LOST, item);
            }
            case G_AMOUNT: {
                Letters scale = lower(of(G_SCALE)), sign = of(G_SIGN), name = of(G_NAME);
                Group figure = G_FIGURE;
                Letters measure = of(G_MEASURE);
                bool kelvin = false;
                while (!scale.empty() && (scale.back() == '.' || scale.back() == ' ')) scale.pop_back();
                while (!scale.empty() && (scale[0] == '.' || scale[0] == ' ')) scale.erase(0, 1);
                bool attached = of(G_SCALE) == U"M" && is_decimal(text.at(match.start(groups_[G_SCALE]) - 1));
                if (scale == U"k" && of(G_SCALE) == U"K" && sign.empty() && name.empty() && measure.empty() && text.at(match.start(groups_[G_SCALE]) - 1) == ' ') {
                    measure = U"kelvin";  // "277.15 K"
                    scale.clear();
                    kelvin = true;
                }
                bool letter = (scale == U"m" && !attached) || scale == U"t" || scale == U"mm";
                if (kelvin) figure = G_VALUE;
                bool metres = letter && sign.empty() && name.empty() && measure.empty();
                if (metres && (scale == U"mm" || !all_decimal(of(G_VALUE)))) {
                    measure = scale;  // metres, millimetres, tonnes
                    scale.clear();
                    figure = G_VALUE;
                    metres = false;
                }
                Decimal value;
                Letters percent = of(G_PERCENT);
                bool minus = match.has(groups_[G_MINUS]);
                if (minus || match.has(groups_[G_BELOW])) {  // of temperatures
                    Measure unit;
                    minus = measures_.find(measure, unit) && unit.kind == U"temperature";
                    if (!minus && match.has(groups_[G_MINUS])) item.sign = item.start;
                    if (!minus) item.start = match.start(groups_[match.has(groups_[G_SIGN]) ? G_SIGN : G_FIGURE]);
                }
                const bool scaled = !percent.empty() || (!scale.empty() && !has_thousands(scale));
                if (!parse_figure(of(G_VALUE), scaled, value)) return false;
                Letters part = lower(of(G_PART));
                if (!part.empty() && !add_part(value, part)) return false;
                value.scale(power_of(scale));
                Letters power = of(G_POWER);
                if (!power.empty()) value.scale(number_of(power));
                if (lower(percent.substr(0, 1)) == U"b") value.exponent -= 2;  // basis points
                item.attached = item.end > match.end(groups_[figure]) && is_letter(text.at(match.end(groups_[figure])));
                if (metres && scale == U"m" && of(G_SCALE) == U"m") {  // or millions
                    Decimal length = value;
                    length.exponent -= 6;
                    item.keys.push_back(Key{U"n", length.shown(), U"length"});
                    item.measured = true;
                }
                if (match.has(groups_[G_CENTS])) return cents(match, value, lower(of(G_CENTS)), item);
                if (!measure.empty() && measured(text, match, value, measure, figure, item)) {
                    if (minus && match.has(groups_[G_MINUS])) item.figure = item.start;
                    if (minus)
                        for (Key& key : item.keys) key.parts[1].insert(0, U"-");
                    return true;
                }
                if (!measure.empty()) {
                    item.end = match.end(groups_[figure]);
                    if (item.end < text.size && is_word(text.at(item.end))) return false;
                    item.attached = false;
                }
                const Letters unit = this->unit(percent, sign, name);
                if (unit.empty() && scale.empty() && Slots::is_version(text, item.start, item.end)) {
                    item.keys.push_back(Key{U"n", of(G_VALUE)});
                    item.single = of(G_VALUE);
                    item.figure = match.start(groups_[figure]);
                    item.figure_end = match.end(groups_[figure]);
                    return true;
                }
                if (unit.empty() && scale.empty() && part.empty() && is_dotted_time(text, item.start, item.end, of(G_VALUE))) {
                    const long hour = number_of(of(G_VALUE).substr(0, of(G_VALUE).find(U'.')));
                    return time(item, hour * 60 + number_of(of(G_VALUE).substr(of(G_VALUE).find(U'.'))), hour > 12 || of(G_VALUE)[0] == '0');
                }
                item.shift = power_of(scale) - (lower(percent.substr(0, 1)) == U"b" ? 2 : 0);
                return amount(match, value.shown(), unit, figure, item);
            }
            default: {
                Letters low = lower(of(G_WORDS)), in = unit(of(G_WPERCENT), Letters(), of(G_WNAME));
                if (low == U"a" || low == U"an" || low == U"half a") return false;
                Letters measure = of(G_WMEASURE);
                static const std::unordered_set<Letters> few = {
                    U"one", U"two", U"three", U"four", U"five", U"six", U"seven", U"eight", U"nine", U"ten"};
                item.few = !match.has(groups_[G_WPART]) && few.count(low);
                Measure of_measure;
                if (!measure.empty() && !measures_.find(measure, of_measure)) {
                    measure.clear();
                    item.end = match.end(groups_[match.has(groups_[G_WPART]) ? G_WPART : G_WORDS]);
                    if (match.has(groups_[G_WSCALE])) item.end = match.end(groups_[G_WSCALE]);
                }
                if (item.few && in.empty() && measure.empty()) return false;
                unsigned __int128 value;
                if (!parse_words(low, value)) return false;
                Decimal whole{digits(value), 0};
                Letters part = lower(of(G_WPART));
                if (!part.empty()) {
                    if (!add_part(whole, part)) return false;
                    whole.scale(power_of(lower(of(G_WSCALE))));
                    if (measure.empty() || !measured(text, match, whole, measure, G_WORDS, item))
                        amount(match, whole.shown(), in, G_WORDS, item);
                    int last = groups_[match.has(groups_[G_WSCALE]) ? G_WSCALE : G_WPART];
                    item.figure_end = match.end(last);
                    return true;
                }
                if (!measure.empty() && measured(text, match, whole, measure, G_WORDS, item)) return true;
                return amount(match, digits(value), in, G_WORDS, item);
            }
        }
    }

    static constexpr int MOST = 200;  // quantities of one text
    static constexpr Py_ssize_t LONGEST_UNIT = 32;  // characters, and " and a" behind it
    Context context_;
    Measures measures_;
    Slots slots_;
    Owners owners_;
    Pattern quantity_;
    int groups_[G_COUNT];
    Words spelt_, wordy_, beginnings_, periods_;
    bool figures_[128] = {};  // which may be the first character of a number
    uint8_t lower_latin_[256];
};

}  // namespace ragmeter
