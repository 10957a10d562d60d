"""Find the citation markers in the text of an answer, in the forms that docs/traces.md lists.

A form is a pattern that yields candidates; what it names is resolved by `Resolver`. Code, links,
regular expressions, intervals, check boxes and lists of links hold brackets that are no citations.
Every repetition is bounded, so a text of nothing but brackets is scanned in linear time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from ragmeter.core.folded_text import INVISIBLE
from ragmeter.metrics.citation_targets import FILE_ENDINGS, LABEL, LEAD, Resolver, Targets
from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.kernel import (
    DOT_ALL,
    IGNORE_CASE,
    MARKER_FORMS,
    MULTI_LINE,
    Found,
    MarkerSigns,
    Pattern,
)
from ragmeter.metrics.plain_text import CIRCLED, RAISED, RAISED_IN_BRACKETS

MAX_MARKS = 1000  # an answer with more is no answer; bounds the work on hostile text
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_AROUND = 60  # characters before a marker that tell what it is
_MAX_INDICES = 4  # of a nested list
_MAX_LISTED = 50  # lines of a list of sources

_CODE = Pattern(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,300}`", DOT_ALL)
# A marker between the signs of code, but for `arr[1]`
_MARKED_CODE = Pattern(r"(?<![`\w])`(\[\^?\d{1,3}(?:,\s?\d{1,3}){0,5}\])`(?!`)")
# RAGFlow's "##0$$" and "~~0==", which count from 0
_FENCED_NUMBER = re.compile(r"##(\d{1,3})\$\$|~~(\d{1,3})==")
_ESCAPED_TAG = Pattern(r"&lt;(/?[^&<>\n]{1,80})&gt;", IGNORE_CASE)
_PICTURE = Pattern(r"[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f]{1,4}\s?")
_SQUARE = Pattern(r"(\\?)\[([^\[\]\n]{1,120})\]")
# [[1]](url), [1](url), [[1](url)]: the label, and the address if there is one
_LINK = Pattern(
    r"(!?)\[{1,2}([^\[\]\n]{1,200})\]{1,2}\(\s{0,3}<?((?:https?:|/|#|\.|www\.|file:|mailto:"
    r"|[\w-]{1,40}\.)"
    r"[^()\s<>]{0,400})>?(?:\s{1,3}\"[^\"\n]{0,100}\")?\s{0,3}\)\]?",
    IGNORE_CASE,
)
_WIDE = Pattern(
    r"【([^【】\n]{1,120})】|［([^［］\n]{1,120})］|〔([^〔〕\n]{1,120})〕|〖([^〖〗\n]{1,120})〗"
    r"|⟦([^⟦⟧\n]{1,120})⟧|﹝([^﹝﹞\n]{1,120})﹞|《([^《》\n]{1,120})》|[「『⟨〈‹❲](\d{1,3})[」』⟩〉›❳]"
)
# Between signs that quote as well: ids alone
_QUOTED_IDS = Pattern(
    r"[「『⟨〈‹❲«]\s?([\w.#/-]{1,60}(?:\s?[,;、]\s?[\w.#/-]{1,60}){0,9})\s?[」』⟩〉›❳»]"
    r"|(?<![\w@#~.])(?:[@#~]|~~)([\w.#/-]{0,40}\d)~{0,2}(?![\w@])"
)
_STEP = Pattern(r"\s*(?:(\d{1,4}):)?(\d{1,4})\s*†")
_ROUND = Pattern(r"[(（]([^()（）\n]{1,120})[)）]")
_ROUND_CITES = Pattern(
    rf"\s{{0,3}}(?:{LEAD})?"
    rf"(?:{LABEL}(?:[\s_-]?id)?(?:\s?[#:=]|[\s_.-]{{0,2}}\d|\.?\s[a-z]{{1,8}}[_-]?\d)|[#№]\d|p(?:p|g)?\.\s?\d|pages?\s(?:no\.?\s)?\d"
    r"|s(?:eiten?|\.)\s?\d|стр\.?\s?\d|с\.\s?\d|第\s?\d)"
    r"|[^,;@]{2,80}[,;@]\s?(?:at\s)?(?:\d{1,2}:)?\d{1,3}:[0-5]\d|[^<>]{3,80}\s[›>»→]\s\S"
    r"|[^,;]{2,80},\s?(?:pp?\.|pages?|seiten?|s\.|pág(?:ina)?s?\.?|sec\.|section|ch\.|chapter"
    r"|§)\s?\d"
    rf"|.{{1,100}}?\.{FILE_ENDINGS}\b",
    IGNORE_CASE,
)
_ID = Pattern(rf"(?:{LEAD})?(?:{LABEL}[\s:#]{{1,3}})?([^\s]*\d[^\s]*)\Z", IGNORE_CASE)
_AUTHORS = Pattern(
    r"[(\[]\s?[A-Z][\w'’-]{1,30}(?:(?:,\s|\s(?:and|&)\s)[A-Z][\w'’-]{1,30}){0,4}"
    r"(?:,?\set\sal\.?,?\s|,\s)(?:19|20)\d\d[a-z]?(?:[,;:][^()\[\]\n]{0,100})?[)\]]"
)
# "(Smith 2020)", "[Smith & Jones, 2020a]", "(see Smith, 2020, p. 3)", "(World Bank, 2021)"
_LOOSE_AUTHORS = Pattern(
    rf"[(\[]\s?(?:{LEAD})?[A-Z][\w'’-]{{1,30}}(?:(?:\s(?:and|&|of|for|the|on)"
    rf"|,)?\s[A-Z&][\w'’-]{{0,30}}){{0,6}}"
    r"(?:\set\sal\.?)?,?\s\(?(?:19|20)\d\d[a-z]?\)?(?:[,;:][^()\[\]\n]{0,100})?[)\]]"
)
# "Smith et al. (2020)", "Smith (2020) argues"
_NARRATIVE = Pattern(
    r"\b[A-Z][\w'’-]{1,30}(?:(?:\s(?:and|&)\s[A-Z][\w'’-]{1,30})?\set\sal\.?,?\s\((?:19"
    r"|20)\d\d[a-z]?\)"
    r"|(?:\s(?:and|&)\s[A-Z][\w'’-]{1,30})?\s\((?:19|20)\d\d[a-z]?\)\s(?:says?|shows?|argues?"
    r"|finds?|found|reports?"
    r"|reported|states?|notes?|suggests?|showed|argued|concludes?|concluded|observes?|writes?))"
)
_CALENDAR = Pattern(
    r"[(\[]\s?(?:(?:early|late|mid|since|until|from|as of|in|q[1-4]|h[12]|fy|cy|fiscal|euro|expo"
    r"|olympics|windows|office"
    r"|server|version|edition|model|class|vintage|copyright|updated|founded|born|est)\b|easter"
    r"|christmas|jan|feb|mar|apr|may"
    r"|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|fall|winter)",
    IGNORE_CASE,
)
# These name a work alone: "doi:10.1000/1", "(RFC 2616)", "347 U.S. 483", "(§ 433 BGB)", "(ibid.)"
_WORK = Pattern(
    r"\bdoi:\s?10\.\d{4,9}/\S{1,100}|\barxiv:\s?\d{4}\.\d{4,5}|[(\[](?:rfc|pmid|pmc|isbn|ecli|iso"
    r"|celex)[\s:-]{0,2}\d"
    r"[^()\[\]\n]{0,40}[)\]]|[(\[](?:ibid|id\. at|op\. cit|loc\. cit)\b[^()\[\]\n]{0,40}[)\]]"
    r"|\b\d{1,4}\s(?:U\.\s?S\.|F\.\s?(?:2d|3d|4th|Supp\.)|S\.\s?Ct\.|L\.\s?Ed\.)\s\d{1,4}"
    r"|\((?:\d{1,3}\s(?:U\.\s?S\.\s?C\.|C\.\s?F\.\s?R\.)|§{1,2}\s?\d|art(?:icle|ikel|\.)?\s\d"
    r"|(?:bgh|bverfg|bag|eugh|bfh)\b)"
    r"[^()\n]{0,80}\)|\{\{(?:sfn|harv[a-z]{0,4}|cite|citation|refn|rp)\b[^{}\n]{0,300}\}\}",
    IGNORE_CASE,
)
# "[note 1]", "[Evidence: 2]": a word and numbers in brackets at the end of a clause
_WORDED = Pattern(
    r"([^\W\d_]{2,20}(?:\s[^\W\d_]{2,20})?)[\s.:#]{1,3}(\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,5})\Z"
)
_HOLDS_TEXT = frozenset(
    (
        "evidence",
        "extract",
        "fragment",
        "result",
        "search",
        "text",
        "fact",
        "web",
        "record",
        "entry",
        "hit",
    )
)
_MAY_CITE = frozenset(("note", "item", "article", "section", "paragraph", "part"))
# "[1a]", "[1: 3]", "[iv]", "[B]": of what, who knows
_SHORT = Pattern(
    r"\d{1,2}[a-z]\Z|\d{1,3}:\s\d{1,4}\Z|[ivx]{2,5}\Z|[IVX]{2,5}\Z|[A-Z][A-Za-z+]{1,4}\d\d[a-z]?\Z"
)
_LETTER = Pattern(r"[A-HJ-Z]\Z")
# Keys and choices: "press [1] for English"
_CHOICE = Pattern(
    r"\b(?:press|type|enter|dial|tap|hit|choose|select|grade|pulse|appuyez sur)"
    r"(?:\s(?:the|a|la|el|key|button|option|number|tecla|touche|taste)){0,2}\s\Z",
    IGNORE_CASE,
)
_OPTION = Pattern(r"\b(?:options?|keys?|buttons?)\s\Z", IGNORE_CASE)
_MACRO = Pattern(
    r"(?:\b(?:vec|array|e?println?|format|assert(?:_eq|_ne)?|panic|json|matches|smallvec)!|@)\Z"
)
_JSON_KEY = Pattern(r"[\"']\s?:\s{0,3}\Z")
_CALL = Pattern(
    r"(?:\bman(?:\spages?)?\s[^.\n]{0,40}\w|\b[A-Za-z]|\b(?:sin|cos|tan|log|ln|exp|max|min|print|len|range|sqrt|abs|round|int|str"
    r"|float|set|get|add|sum|rand"
    r"|sleep|exit)|\.[a-z_]\w{0,30}|_\w{0,30})\Z"
)
_NOT_COUNTED = Pattern(
    r"(?:\A|\b(?:is|are|was|were|see|than|of|to|the|a|an))\s{0,2}\Z", IGNORE_CASE
)
# An asterisk that has no other in its line, and a number behind a full stop: "years.12 The"
_ASTERISK = Pattern(r"(?<=[a-z]{3})\*{1,2}(?=[.,;](?:\s|\Z)|[ \t]{0,3}(?:\n|\Z))")
_GLUED = Pattern(r"(?<=[a-z]{4}\.)\d{1,2}(?:[,–-]\d{1,2}){0,5}(?=\s{1,2}[A-Z]|\s{0,3}\Z)")
_ORDINARY_NUMBER = Pattern(
    r"\b(?:equations?|eqs?\.?|fig(?:ure|s)?\.?|tables?|sections?|sec\.?|steps?|items?|options?"
    r"|chapters?"
    r"|lines?|notes?|appendix|articles?|clauses?|paragraphs?|parts?|numbers?|no\.|levels?|types?"
    r"|phases?"
    r"|versions?|questions?|rules?|points?|stages?|class|grades?|one|two|three|four|five|six"
    r"|seven|eight"
    r"|nine|ten|twelve|first|second|third|shapes?|sizes?|dimensions?|coordinates|vectors?|tuples?|pairs?"
    r"|\d(?:st|nd|rd|th)?)\s{0,2}\Z",
    IGNORE_CASE,
)
_RAISED = Pattern(
    rf"{RAISED}(?:[,˒⁻\s]{{0,2}}{RAISED}){{0,20}}|{RAISED_IN_BRACKETS}|{CIRCLED}",
)
_CIRCLED = Pattern(CIRCLED)
_CARET = Pattern(r"\^\(?(\d{1,3}(?:,\s?\d{1,3}){0,9})\)?\^?")
# Between bars or behind "#", at the end of a clause
_BARRED = Pattern(r"(?<=[\w.!?%\"”)])\s?([|‖]{1,2})(\d{1,2}(?:\s?,\s?\d{1,2}){0,5})\1")
_HASHED = Pattern(r"(?<=[\w.!?%\"”)])\s{1,2}#(\d{1,2}(?:\s?,\s?#\d{1,2}){0,5})(?!\w)")
_SENTENCE_END = Pattern(r"(?:[^\W\d_]{4}|[%)\"”])[.!?]\Z")
_PLAIN_WORD = Pattern(r"(?:\A|[^\w#])[a-z]{3,}\Z")
# "1️⃣" and "«1»" at the end of a clause
_KEYCAPS = Pattern(r"(?:\d\ufe0f?\u20e3\s?){1,4}")
_KEYCAP = Pattern(r"\d")
_QUOTED = Pattern(r"\s?«(\d{1,2}(?:,\s?\d{1,2}){0,5})»")
# What may be a marker only if it ends several sentences: "@1", "*1", "→1"
_REPEATED = (
    Pattern(r"\s?@\d{1,2}(?![\w@])"),
    Pattern(r"(?:\s|(?<=[.!?]))\*\d{1,2}(?![\w*])"),
    Pattern(r"\s?[→↗➜⇒]\s?\d{1,2}(?!\w)"),
)
_WORDS_BEFORE = Pattern(r"(?:\S{1,40} {1,2}){3}\S{1,40}\Z")
# A number of something else: "ranked #1", "the value |2|", "a ratio of [1:0]"
_COUNTS = Pattern(
    r"\b(?:ranked|ranks?|ranking|rated|number|numbered|issues?|tickets?|bugs?|rooms?|cases?"
    r"|invoices?"
    r"|orders?|tracks?|songs?|places?|spot|position|player|team|unit|apt|suite|ext|press|dial|the"
    r"|is|are|was|were|be|its?|our|my|your|their|and|or|than|of|to|value|values|norm|ratio|score"
    r"|odds|won|lost|drew|verses?|result|version|release|at|by|with|for|keys?|buttons?|digits?"
    r"|channels?|index|element|subscript|write|type|use|returns?|prints?|pages?|slides?|progress"
    r"|tasks?|thread|chance|probability|fraction|share|tecla|botón|touche|bouton|taste|tasto|pid|tid|port|code|errno|status|process)\Z",
    IGNORE_CASE,
)
# "[1:0]", "[1.2]" and "[1/3]": of a step, a page or a part of a document, who knows
_PARTED = Pattern(r"\d{1,3}(?:[:./]\d{1,4}){1,3}(?:\s?[-–]\s?\d{1,4}(?:[:./]\d{1,4}){0,3})?\Z")
# Times in a recording: "[at 12:30]", "[12:30-13:05]", "[12m30s]"; "[t=750s]", "[timestamp: 750]";
# "(00:12:45)", as players print them, where "(02:08:17)" may be the result of a race
_MOMENT = (
    r"(?:\d{1,2}:)?\d{1,3}:[0-5]\d(?:[.,]\d{1,3})?"
    r"|(?:\d{1,2}\s?h\s?)?\d{1,3}\s?m(?:in)?\s?\d{1,2}\s?s"
)
_TIMED = Pattern(
    rf"(?:(?:(?:(?:start|begin)\w{{0,4}}\s)?at|from|@|min(?:ute)?)\s?)?(?:{_MOMENT})(?:\s?(?:[-–—~]|to)\s?(?:{_MOMENT}))?\Z"
    rf"|(?:t|ts|start|time(?:\s?stamp|code)?)\s?[=:@]?\s?(?:{_MOMENT}|\d{{1,5}}(?:\.\d{{1,3}})?\s?s?(?:ec)?)"
    rf"(?:\s?(?:[-–—~]|to)\s?(?:{_MOMENT}|\d{{1,5}}(?:\.\d{{1,3}})?\s?s?))?\Z",
    IGNORE_CASE,
)
_PLAYED = Pattern(r"00:[0-5]\d:[0-5]\d")
# A time that a sentence tells: "she ran it in [28:14]"
_TELLS_TIME = Pattern(
    r"(?:\b(?:in|at|on|from|until|till|to|by|after|before|since|about|around|within|of|is|are|was"
    r"|were|be|the|and|or|for|with|than|km|daily|ratio|scores?|won|lost|drew|verses?|results?|times?)|[^\w\s.!?%)\"”])\s{0,3}\Z",
    IGNORE_CASE,
)
_LAST_WORD = Pattern(r"(?:[^\W\d_]{2}|[.!?%)\"”])\s{0,3}\Z")
_NUMBERS_ALONE = Pattern(r"[\d\s.,;:/&+|-]{0,120}\Z")
_LETTERED = Pattern(r"[CDEPRcdepr]\d{1,2}\Z")
# Maths, but not `$^{[1]}$`
_MATHS_SPAN = Pattern(
    r"\$\$[^$]{1,1000}\$\$|\$(?![\s$^])[^$\n]{1,200}(?<!\s)\$(?!\d)"
    r"|\\\([^\n]{1,300}?\\\)|\\\[[^\]]{0,200}[=_^<>][^\n]{0,300}?\\\]"
)
_MATHS_RAISED = Pattern(r"\$\^\{?\[?(\d{1,3}(?:\s?,\s?\d{1,3}){0,9})\]?\}?\$")
# The rows of a matrix
_NESTED = Pattern(r"\[\s{0,9}(?:\[[^\[\]]{0,200}\]\s{0,9},?\s{0,9}){2,50}\]")
_ROW = Pattern(r"\[[^\[\],]{1,40},")
# What takes an exponent: units and single letters.
_TAKES_EXPONENT = Pattern(
    r"(?:(?<![^\W\d_])[^\W\d_]{1,2}|\b(?:feet|foot|inch|metres?|meters?|sqm|mol|deg|log|sin|cos"
    r"|tan|exp))\Z"
)
_POWER = Pattern(r"(?:(?<![\d.,])(?:\d|10|100)|[⁻)])\Z")
_TAG = Pattern(
    r"<((?:cited?|citation|ref|reference|source|src|doc|document|chunk|passage)[_-](?:ids?|refs?"
    r"|sources?|docs?|documents?|chunks?|passages?|numbers?|index)"
    r"|cite|citations?|refs?|references?|sources?|src|docs?|documents?|sup|footnote|fn|co|c|span|a"
    r"|chunk|passage|grounding|evidence|context|snippet|cit"
    r"|excerpt|quote)\b([^<>\n]{0,300}?)/?>",
    IGNORE_CASE,
)
_ATTRIBUTE = Pattern(
    r"(?:^|[\s:])(?:data-)?(id|ids|name|key|index|indices|ref|refs|refid|source|sources"
    r"|source-id|source_id|src"
    r"|doc|docs|doc_id|document|document_id|document_index|chunk|citation|citation-id"
    r"|citation_id|cite|number"
    r"|n|passage|href|title)\s?=\s?(?:\"([^\"]{1,120})\"|'([^']{1,120})'|([^\s\"'>]{1,120}))",
    IGNORE_CASE,
)
_BARE_TAG = Pattern(
    rf"<{{1,2}}(?:\|\s?)?(?:(?:{LABEL}|co)[\s:_#-]{{0,2}}(\d{{1,3}}(?:\s?,\s?\d{{1,3}}){{0,9}}"
    rf"|[\w.-]{{0,40}}\d[\w.-]{{0,40}})"
    r"|(\d{1,3})|([a-z][\w.-]{0,40}\d))(?:\s?[|/])?>{1,2}",
    IGNORE_CASE,
)
_LATEX = Pattern(
    r"\\(?:[a-z]{0,6}cite[a-z]{0,8}\*?|footnote"
    r"|footnotemark)(?:\[[^\]\n]{0,60}\]){0,2}[{\[]([^{}\[\]\n]{1,120})[}\]]",
    IGNORE_CASE,
)
_BRACES = Pattern(r"\{{1,2}([^{}\n]{1,80})\}{1,2}")
_OAICITE = Pattern(
    r":?contentReference\[oaicite:(\d{1,4})\](?:\{index=\d{1,4}\})?|\[oaicite:(\d{1,4})\]"
)
# LibreChat's, which models write as escapes, too
_TURN_SIGN = r"[\ue200-\ue206]|\\ue20[0-6]"
_TURN = Pattern(
    r"\ue200[a-z]{0,20}cite((?:\ue202?[\w.-]{1,60}){1,20})\ue201?"
    rf"|((?:(?:{_TURN_SIGN}){{1,3}}turn\d{{1,3}}[a-z]{{2,12}}\d{{1,4}}){{1,20}})(?:{_TURN_SIGN})?"
    r"|\b(?:file)?cite((?:turn\d{1,3}[a-z]{2,12}\d{1,4}){1,20})"
)
_TURN_ID = Pattern(r"turn\d{1,3}[a-z]{2,12}\d{1,4}|[\w.-]{1,60}")
_SPOKEN = Pattern(
    r"[—–]\s{1,2}(?:source|document|doc|passage)\s{1,2}#?(\d{1,3})(?=[.,;)\s]|\Z)"
    r"|\b(?:(?:according to|as per|per|based on|(?:as )?(?:stated|described|noted|mentioned|shown"
    r"|explained) in|from|see"
    r"|refer to)\s(?:the\s)?(?:sources?|documents?|docs?|passages?|chunks?|excerpts?|contexts?"
    r"|references?)\s{1,2}#?"
    r"(\d{1,3}(?:(?:\s?,\s?|\s?and\s|\s?&\s|\s?,\s?and\s)\d{1,3}){0,9})"
    r"|(?:source|document|doc|passage|chunk|excerpt"
    r"|context)\s{1,2}#?(\d{1,3})\s(?:also\s)?(?:says?|states?|notes?"
    r"|mentions?|indicates?|shows?|explains?|describes?|reports?|specifies|confirms?|lists?"
    r"|gives?))\b",
    IGNORE_CASE,
)


# "Source: manual.pdf, p. 3" on a line of its own or at the end of one
_HEADS = (
    r"(?:sources?(?:\s(?:used|documents?|cited|consulted))?|references?|citations?|cited"
    r"|quoted from|based on|bibliography"
    r"|works cited|footnotes?|quellen?(?:angaben|verzeichnis)?|belege|einzelnachweise|fuentes?"
    r"|referencias?|fontes?|fonti"
    r"|référence?s?|bron(?:nen)?|käll(?:a|or)|kilder?|źródł[oa]|kaynak(?:lar|ça)?|источники?"
    r"|литература|джерел[оа]"
    r"|参考资料|参考文献|参考|參考資料|參考文獻|来源|來源|资料来源|出典|引用元|출처|참고\s?자료|참고\s?문헌|المصادر|المصدر|المراجع|स्रोत)"
)
_HEAD_ENDS = (
    r"(?:[sSnraаои]|nen|or|lar|angaben|\(s\))?(?:\s[a-z]{4,9})?[*_ \t\]]{0,4}(?:[:：–—-]|\n|\Z)"
)
# Which forms an answer may hold: by the words with which those begin that have words, less a first
# letter that may be a capital, and by the signs of all others.
_SIGNS = MarkerSigns(
    named=(
        "ource",
        "ocument",
        "oc",
        "assage",
        "hunk",
        "xcerpt",
        "ontext",
        "eference",
    ),
    headed=(
        "ource",
        "OURCE",
        "eference",
        "EFERENCE",
        "ited",
        "itation",
        "ibliography",
        "ootnote",
        "uoted from",
        "ased on",
        "Quelle",
        "Belege",
        "Einzelnachweise",
        "Fuente",
        "Referencia",
        "Fonte",
        "Fonti",
        "Bron",
        "Kilde",
        "Kaynak",
    ),
    ends=_HEAD_ENDS,
    foreign=(
        "éférence",
        "Käll",
        "Źródł",
        "Источник",
        "Литература",
        "Джерел",
        "参考",
        "參考",
        "来源",
        "來源",
        "出典",
        "引用元",
        "출처",
        "참고",
        "المصادر",
        "المصدر",
        "المراجع",
        "स्रोत",
    ),
)
_PICTURED = r"(?:[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f]{1,4}[ \t]?)?"
_SOURCE_LINE = Pattern(
    rf"(?:^|\n|(?<=[.!?;)。]\s)|(?<=[。！？])|(?<=[—–-]\s)"
    rf"|(?<=[\w]\s)(?=[*_]))[ \t>*_•-]{{0,6}}{_PICTURED}{_HEADS}"
    r"[*_]{0,2}(?:\s?[:：]|\s[–—-]\s)[*_]{0,2}[ \t]{0,4}([^\n]{1,300})",
    IGNORE_CASE,
)
_SOURCE_LIST = Pattern(
    rf"(?:^|\n)[#*_ \t>\[]{{0,6}}{_PICTURED}{_HEADS}[*_ \t\]]{{0,4}}[:：]?[*_ \t]{{0,4}}\n",
    IGNORE_CASE,
)
_LISTED = Pattern(
    r"^[ \t>]{0,4}(?:[-*•+][ \t]{1,3})?\\?"
    r"(?:\[?\^?(\d{1,3})\\?\]?[.):]{0,2}[ \t]{1,3})?(\S[^\n]{0,300})$",
    MULTI_LINE,
)
_DEFINITION = Pattern(
    r"^[ ]{0,3}\[(\^?)([^\[\]\n]{1,60})\]:[ \t]{0,4}(\S[^\n]{0,400})$",
    MULTI_LINE,
)
_DEFINED_ADDRESS = Pattern(r"<?(?:https?:|www\.|/|#|mailto:|file:)", IGNORE_CASE)
_ADDRESS = Pattern(r"(?<!\]\()(?<!\w)<?(https?://[^\s<>()\[\]{}|\"']{4,400})>?", IGNORE_CASE)
_INDEXED = Pattern(r"[A-Za-z_]\w{0,30}\Z")
_CODE_AFTER = Pattern(r"\}|\s?(?:[-+*/]?=[^=]|==|\.[a-z_]\w*|\(|\[\d+\]\s?=)")
_INDEX_NAMES = frozenset(ENGLISH["index_names"].split())
_CLASS = Pattern(r"\^?(?:(?:[A-Za-z]-[A-Za-z]|0-9|\d-\d|\\[A-Za-z]|\\?[_.,:;$@%+*?!/-]){1,12})\Z")
_SURE_CLASS = Pattern(r"[A-Za-z]-[A-Za-z]|0-9|\\[dwsDWS]")
_RANGE = Pattern(r"\d-\d\Z")
_LIST = Pattern(r"\s*[-+−]?\d[\d.]*(?:\s*,\s*[-+−]?\d[\d.]*)+\s*\Z")
_MATHS = Pattern(
    r"(?:\b(?:intervals?|ranges?|domains?|vectors?|arrays?|lists?|matrix|matrices|sets?|tuples?"
    r"|coordinates|bounds?"
    r"|between|returns?|returned|outputs?|prints?|printed|equals?|yields?|slices?|shapes?"
    r"|dimensions?|inputs?|sorted"
    r"|indices|scale|within|lies? in|falls? in|ci|numbers (?:in|from)|values? (?:in|from"
    r"|of))(?:\s(?:is|are|was|were|of|in|to|from))?"
    r"[:\s]|[=∈∪∩×<>+*]|\b[a-z]\sin\s)\s{0,2}\Z",
    IGNORE_CASE,
)
# "an array like [1]"
_EXAMPLE = Pattern(
    r"\b(?:arrays?|lists?|vectors?|tuples?|sets?|matrix|slices?|intervals?|values?|inputs?)"
    r"\s(?:like|such as|as in|e\.g\.,?|for example)\s\Z",
    IGNORE_CASE,
)
_CHAINED = Pattern(r"(?:\s(?:and|or|to|with|∪|∩|x|×)\s|\s?[,;/]\s?(?:and\s|or\s)?|\s)\Z")
_POINTS = Pattern(
    r"(?:\b(?:see|visit|at|links?|via|click|open)\s|\]\s(?:and|or|&)\s|\],\s)\Z",
    IGNORE_CASE,
)
_BOX = Pattern(r"^[ \t]{0,8}(?:[-*+]|\d{1,2}[.)])[ \t]\[[ xX✓]\]", MULTI_LINE)
_ITEM = Pattern(r"(?:^|\n)[ \t]{0,8}(?:[-*+]|\d{1,2}[.)])[ \t]\Z")
_DASH = Pattern(r"\s?[-‐‑–—−⁻]\s?")
_CLAUSE_END = Pattern(r"\s{0,3}(?:[.,;:!?。，；]|\n|\Z|[(\[【])")
_DAGGER = Pattern(r"(?<=[\w.,;:!?)\"”])[†‡](?!\d)")
# "†1", "†1 †3", " †" and "↩1"
_NOTE_SIGN = Pattern(
    r"(?<=[\w.,;:!?)\"”%])\s{0,2}[†‡↩]\ufe0e?"
    r"(\d{1,2}(?:\s?,\s?[†‡]?\d{1,2}|\s?[†‡]\d{1,2}){0,5})?(?!\w)"
)
# "_[3]_" and "__[1][2]__", where a name before a bracket would index it
_EMPHASISED = Pattern(r"(?<![\w\])])(_{1,2})(?:\[[^\[\]\n]{1,40}\]){1,5}\1(?!\w)")
_FROM_ZERO = Pattern(
    r"<co:\s?(?:\d{1,4},\s?){0,9}0\b|<cite\sindex=[\"'](?:[\d-]{1,9},\s?){0,9}0\b", IGNORE_CASE
)
_INNER_TAG = Pattern(r"<[^<>]{0,200}>")
_LEADING_LABEL = Pattern(rf"(?:{LABEL})[\s_#:.-]{{0,3}}", IGNORE_CASE)
_BRACED_CITES = Pattern(rf"\s?(?:{LABEL})[\s:_#=-]{{1,3}}\S", IGNORE_CASE)
_BRACKETS = " \t[](){}⁽⁾\\"
# Writers put these beside markers within brackets: words before one, and what joins two.
_LEADING_WORDS = Pattern(rf"\s{{0,3}}(?:{LEAD})?(?:{LABEL})?[\s:#]{{0,3}}\Z", IGNORE_CASE)
_JOINS = Pattern(r"\s?(?:[,;/&|+]|and|or)?\s?\Z")
_DIRECTIVE = Pattern(r"(?<![\w:]):{1,2}(?:cite|citation|ref|source|fn)\Z", IGNORE_CASE)
_OWN_PAGE = Pattern(r"(?:pp?\.|pages?|seiten?|s\.)\s?\d{1,5}(?:\s?[-–]\s?\d{1,5})?\Z", IGNORE_CASE)
# Models append a list of sources as JSON to the answer, or put a picture before a file's name.
_JSON_SOURCES = Pattern(
    r"(?:```\w{0,9}\s{0,3})?(?:\{\s{0,9})?"
    r"\"(?:sources?|citations?|references?|cited|(?:source|doc|document|passage|chunk|cited)_?ids?)\""
    r"\s?:\s?\[([^\[\]{}]{1,400})\](?:\s{0,9}\})?(?:\s{0,3}```)?",
    IGNORE_CASE,
)
_PICTURED_FILE = Pattern(
    r"(?:[\u2190-\u2bff\U0001f000-\U0001faff]\ufe0f?\s?|[—–]\s)([\w][\w .()-]{0,60}\."
    rf"{FILE_ENDINGS})\b",
    IGNORE_CASE,
)


@dataclass(slots=True)
class Marker:
    """A marker over the answer's characters [start, end), and what it names."""

    start: int
    end: int
    targets: Targets


@dataclass(slots=True)
class _Answer:
    """The text of an answer without code, and what of it defines the labels of links and notes."""

    text: str
    resolver: Resolver
    definitions: dict[str, tuple[str, bool]] = field(default_factory=dict)  # and whether an address
    listed: dict[str, int] = field(
        default_factory=dict
    )  # passage by its number in a list of sources
    taken: bytearray = field(default_factory=bytearray)  # 1 for each character that is read
    found: list[Marker] = field(default_factory=list)

    def is_taken(self, start: int, end: int) -> bool:
        return self.taken.find(1, start, end) >= 0

    def take(self, start: int, end: int, targets: Targets | None) -> None:
        """Read no other marker in [start, end), and keep this one if it names anything."""
        if not self.taken:
            self.taken = bytearray(len(self.text))
        self.taken[start:end] = b"\1" * (end - start)
        if targets:
            self.found.append(Marker(start, end, targets))

    def number(self, label: str) -> Targets:
        """Resolve a number, which a list of sources in the answer may define."""
        bare = label.strip(" \t#^")
        if bare in self.listed:
            return Targets([self.listed[bare]])
        return self.resolver.read(label)


_Reader = Callable[[_Answer], None]


def find_markers(answer: str, resolver: Resolver) -> list[Marker]:
    """Return the markers of an answer in their order, at most `MAX_MARKS`."""
    forms = _SIGNS.read(answer)
    if not forms:
        return []
    text = answer
    if forms & MARKER_FORMS["code"] and _FENCED_NUMBER.search(text):
        text = _FENCED_NUMBER.sub(lambda found: f" [{found[1] or found[2]}] ", text)
        resolver.from_zero = True
    listed = _JSON_SOURCES.finditer(text) if forms & MARKER_FORMS["listed"] else []
    if forms & MARKER_FORMS["code"]:
        text = _plain_code(text)
        forms = _SIGNS.read(text)
    readers = [read for form, read in _READERS if forms & form]
    if not readers and not listed:
        return []
    state = _Answer(text, resolver)
    for match in listed:
        body = match[1].replace('"', " ")
        state.take(*match.span(), resolver.read(body, match.start(), marked=True))
    if forms & MARKER_FORMS["definitions"]:
        _read_definitions(state)
    if forms & MARKER_FORMS["source_lines"]:
        _read_listed(state)
    for read in readers:
        read(state)
        if len(state.found) > MAX_MARKS:
            break
    state.found.sort(key=lambda marker: marker.start)
    _fill_ranges(text, state.found)
    _widen(text, state.found)
    return state.found[:MAX_MARKS]


def _fill_ranges(text: str, found: list[Marker]) -> None:
    """Add what lies between two markers that a dash joins: "[1]–[3]"."""
    for first, last in pairwise(found):
        if not 0 < last.start - first.end < 4 or not _DASH.fullmatch(text, first.end, last.start):
            continue
        low, high = first.targets, last.targets
        if len(low.passages) != 1 or len(high.passages) != 1 or low.dangling or high.dangling:
            continue
        between = range(low.passages[0], high.passages[0])
        begin, end = (_last_number(text[one.start : one.end]) for one in (first, last))
        if between and end - begin == len(between):
            low.passages[:] = between


def _widen(text: str, found: list[Marker]) -> None:
    """Take into the markers the brackets and words around them: "(see [1] and [2])", ":cite[1]"."""
    at = 0
    while at < len(found):
        first = last = found[at]
        at += 1
        while at < len(found) and _JOINS.match(text[last.end : found[at].start][:8]):
            last = found[at]
            at += 1
        before = text[max(0, first.start - _AROUND) : first.start]
        opened = max(before.rfind("("), before.rfind("（"))
        if text[last.end : last.end + 1] in (")", "）") and opened >= 0:
            if _LEADING_WORDS.match(before, opened + 1):
                first.start += opened - len(before)
                last.end += 1
        elif directive := _DIRECTIVE.search(before):
            first.start -= len(before) - directive.start()


def _last_number(marker: str) -> int:
    numbers = re.findall(r"\d+", unicodedata.normalize("NFKC", marker.split("](")[0]))
    return int(numbers[-1][:9]) if numbers else 0


def _plain_code(text: str) -> str:
    """Return a text without code and maths, and with brackets and tags in place of escapes."""
    if "`[" in text:
        text = _uncode_markers(text)
    if "`" in text or "~~~" in text:
        text = _CODE.sub(_blank, text)
    if "$" in text or "\\(" in text or "\\[" in text:
        text = _MATHS_SPAN.sub(_blank, text)
    if "&#91;" in text:
        text = text.replace("&#91;", "    [").replace("&#93;", "]    ")
    if "&lt;" in text:
        text = _ESCAPED_TAG.sub(lambda match: f"   <{match[1]}>   ", text)
    return text


def _blank(match: Found) -> str:
    return " " * len(match.group())


def _uncode_markers(text: str) -> str:
    """Take the signs of code from markers at the end of a clause."""

    def uncode(match: Found) -> str:
        return f" {match[1]} " if _closes_clause(text, *match.span()) else match.group()

    return _MARKED_CODE.sub(uncode, text)


def _read_definitions(state: _Answer) -> None:
    """Read "[1]: https://…" and "[^1]: A manual", and take them out of the text."""

    def take(match: Found) -> str:
        address = bool(_DEFINED_ADDRESS.match(match[3]))
        if not match[1] and not address and not match[2].strip().isdecimal():
            return match.group()  # "[Note]: this is prose"
        state.definitions.setdefault(match[1] + match[2].strip().casefold(), (match[3], address))
        return _blank(match)

    state.text = _DEFINITION.sub(take, state.text)


def _read_listed(state: _Answer) -> None:
    """Read which passage each number of a list of sources at the end stands for."""
    head = _SOURCE_LIST.search(state.text)
    if head is None:
        return
    for line in _LISTED.finditer(state.text, head.end()):
        index = _name(state, line[2], line.start(2)) if line[1] else None
        if index is not None:
            state.listed.setdefault(line[1], index)


def _name(state: _Answer, text: str, at: int) -> int | None:
    """Return the passage that a line of a list of sources names."""
    link = _LINK.search(text)
    places = [link[3], link[2]] if link else []
    address = _ADDRESS.search(text)
    if address:
        places.append(address[1])
    for place in (*places, text):
        targets = state.resolver.read(place.strip(" \t*_.-–—\"'"), at)
        if targets.passages:
            return targets.passages[0]
    return None


def _defined(state: _Answer, label: str, start: int) -> Targets | None:
    """Resolve a label by its definition; None if it has none."""
    known = state.definitions.get(label.strip().casefold())
    if known is None:
        return None
    index = _name(state, known[0], start)
    if index is not None:
        return Targets([index])
    if known[1] and _POINTS.search(state.text, max(0, start - _AROUND), start):
        return Targets()  # "see [1] and [2]" points to links
    return Targets(unread=1)


def _read_turns(state: _Answer) -> None:
    for match in _TURN.finditer(state.text):
        ids = _TURN_ID.findall(match[1] or match[2] or match[3])
        indices = [state.resolver.by_id(one.strip("\ue202")) for one in ids]
        known = [index for index in indices if index is not None]
        state.take(*match.span(), Targets(known, unread=len(indices) - len(known)))


def _read_oaicite(state: _Answer) -> None:
    for match in _OAICITE.finditer(state.text):
        number = int(match[1] or match[2])
        targets = Targets()
        targets.add(number if number < state.resolver.count else None)
        state.take(*match.span(), targets)


def _read_latex(state: _Answer) -> None:
    for match in _LATEX.finditer(state.text):
        state.take(*match.span(), state.resolver.read(match[1], match.start(), marked=True))


def _read_tags(state: _Answer) -> None:
    text = state.text
    if _FROM_ZERO.search(text):
        state.resolver.from_zero = True
    for match in _TAG.finditer(text):
        if len(state.found) > MAX_MARKS:
            return
        name = match[1].lower()
        start, end = match.span()
        if state.is_taken(start, end):
            continue
        attributes = f"id{match[2]}" if match[2].startswith("=") else match[2]  # <source_id="2">
        given = {key.lower(): a or b or c for key, a, b, c in _ATTRIBUTE.findall(attributes)}
        link = given.pop("href", "")
        close = -1 if match.group().endswith("/>") else text.find(f"</{match[1]}>", end, end + 400)
        if name.endswith("s") and _TAG.match(text, end):
            continue  # "<citations><citation>1</citation>…"
        inside = _INNER_TAG.sub("", text[end:close]).strip(_BRACKETS) if close >= 0 else ""
        inside = ", ".join(filter(None, map(str.strip, inside.split("\n"))))
        if re.fullmatch(r"[\d\s,;\[\]–-]{1,60}", inside):
            inside = re.sub(r"\]\s?\[", ",", inside).replace("[", "").replace("]", "")
        stop = close + len(name) + 3 if close >= 0 else end
        if name in ("a", "span"):
            if name == "span" and not re.search("cit|ref|source|foot", match[2], re.IGNORECASE):
                continue
            targets = state.resolver.read(inside, start) if inside.isdecimal() else Targets()
            index = state.resolver.by_name(link, start) if link else None
            if index is not None:
                targets = Targets([index])
            if targets:
                state.take(start, stop, targets)
            continue
        if name == "co" or (name in ("c", "sup") and not given):
            within = match[2].strip(" :")  # <co: 2>
            body = (within if name == "co" else "") or inside
            if not within and not re.fullmatch(r"[\d\s,;–-]{1,40}", body):
                continue
            if name == "sup" and _is_power(text, start):
                continue
            state.take(
                *((close, stop) if within and close >= 0 else (start, stop)),
                state.number(body),
            )
            continue
        target = next((value for key, value in given.items() if key != "title"), "")
        if target or not inside or len(inside) > 120:
            target = target or given.get("title", "")
            if not target:
                continue
            if "index" in given and re.fullmatch(r"\d+(?:-\d+)?(?:,\d+-\d+){0,9}", target):
                # of a document, and of its sentences
                target = ",".join(dict.fromkeys(one.split("-")[0] for one in target.split(",")))
            targets = state.resolver.read(target, start, marked=True)
        else:
            address = _ADDRESS.search(inside)
            index = state.resolver.by_name(address[1], start) if address else None
            if index is not None:
                targets = Targets([index])
            elif inside.isdecimal():
                targets = state.number(inside)
            else:
                marked = name.startswith(("cit", "ref", "foot", "fn"))
                targets = state.resolver.read(inside, start, marked=marked)
        wraps = close >= 0 and len(inside.split()) > 3
        state.take(*((close, stop) if wraps else (start, stop)), targets)
    for match in _BARE_TAG.finditer(text):
        if not state.is_taken(*match.span()):
            if match[2] and (
                text[max(0, match.start() - 1) : match.start()].isalnum()
                or not _closes_clause(text, *match.span())
            ):
                continue  # "vector<1>"
            if match[3]:
                index = state.resolver.by_id(match[3])
                if index is not None:
                    state.take(*match.span(), Targets([index]))
                continue
            body = match[1] or match[2]
            targets = (
                state.number(body)
                if body[0].isdecimal()
                else state.resolver.read(body, match.start(), marked=True)
            )
            if match[1] or targets.passages:
                state.take(*match.span(), targets)


def _read_links(state: _Answer) -> None:
    for match in _LINK.finditer(state.text):
        if state.is_taken(*match.span()):
            continue
        image, label, address = match.groups()
        start = match.start()
        if image:
            state.take(*match.span(), None)
            continue
        index = state.resolver.by_name(address, start)
        if index is None:
            index = state.resolver.by_id(address.lstrip("#"))
        if index is not None:
            targets = Targets([index])
        elif label.strip(" ^").isdecimal():
            targets = state.number(label.strip(" ^"))  # "[1](https://…)" cites
        else:
            targets = state.resolver.read(label, start)
            if targets.unread:  # a link to something else
                targets = Targets()
        state.take(*match.span(), targets)


def _read_wide(state: _Answer) -> None:
    for match in _WIDE.finditer(state.text):
        if state.is_taken(*match.span()):
            continue
        text = next(filter(None, match.groups()))
        step = _STEP.match(text)
        if step:
            # 【n†…】 counts from 1; in 【step:n†…】 n counts from 0
            targets = Targets()
            number = int(step[2]) + (step[1] is not None)
            if number == 0 and "0" not in state.resolver.ids:
                state.resolver.from_zero = True
            if step[1] is None and state.resolver.from_zero:
                targets.add(state.resolver.by_number(number))
            elif step[1] is not None:
                targets.add(number - 1 if number <= state.resolver.count else None)
            else:
                targets.add(state.resolver.by_number(number))
        else:
            targets = state.resolver.read(_plain(text), match.start())
            if "†" in text and not targets:
                targets = Targets(unread=1)
            if match.group()[0] == "《" and not targets.passages:
                continue  # the title of a work
        state.take(*match.span(), targets)


def _read_quoted_ids(state: _Answer) -> None:
    """Read "‹d1›", "«d1, d2»", "@d1" and "#d1" where they are ids of passages."""
    for match in _QUOTED_IDS.finditer(state.text):
        if state.is_taken(*match.span()):
            continue
        pieces = re.split(r"\s?[,;、]\s?", match[1] or match[2])
        indices = [None if one.isdecimal() else state.resolver.by_id(one) for one in pieces]
        known = [index for index in indices if index is not None]
        if len(known) == len(pieces):
            state.take(*match.span(), Targets(known))


def _read_pictured_files(state: _Answer) -> None:
    for match in _PICTURED_FILE.finditer(state.text):
        if not state.is_taken(*match.span()):
            index = state.resolver.by_name(match[1], match.start())
            state.take(*match.span(), None if index is None else Targets([index]))


def _read_square(state: _Answer) -> None:
    text = state.text
    candidates = [
        match
        for match in _SQUARE.finditer(text)
        if not state.is_taken(*match.span()) and not _is_index(text, *match.span())
    ]
    bodies = [_plain(match[2].removesuffix("\\")).strip("*_ ") for match in candidates]
    _count_from_zero(state, bodies)
    classes = any(_CLASS.match(body) and _SURE_CLASS.search(body) for body in bodies)
    boxes = bool(_BOX.search(text))
    chosen = any(  # whether brackets hold keys or choices
        _CHOICE.search(text, max(0, match.start() - _AROUND), match.start()) for match in candidates
    )
    lettered = all(
        _closes_clause(text, *match.span())
        for match, body in zip(candidates, bodies, strict=True)
        if _LETTER.match(body)
    )
    matrices = (
        [
            match.span()
            for match in _NESTED.finditer(text)
            if _ROW.search(text, *match.span())
            or _MATHS.search(text[max(0, match.start() - _AROUND) : match.start()])
        ]
        if "]," in text or "] ," in text
        else []
    )
    rejected = -2  # where the last bracket that is no citation ended
    for match, body in zip(candidates, bodies, strict=True):
        start, end = match.span()
        if not body.isascii():
            body = body[_leading_picture(body) :]
        before = text[max(0, start - _AROUND) : start]
        if match[1] and match[2][-1] != "\\":
            continue  # display maths
        if any(low < start < high for low, high in matrices) or text.endswith("_{", 0, start):
            continue
        if (
            (_CLASS.match(body) and _SURE_CLASS.search(body) and state.resolver.by_id(body) is None)
            or (classes and _RANGE.match(body))
            or (
                _RANGE.match(body) and text[end : end + 1] in "+*?{" and text[end : end + 2] != "**"
            )
            or (boxes and _ITEM.search(before) and len(body) == 1)
            or (_RANGE.match(body) and (_MATHS.search(before) or _falls(body)))
            or text[start - 1 : start] + text[end : end + 1] == "//"
            or (chosen and _CHOICE.search(before))
            or _MACRO.search(before)
            or (body[:1] == "^" and not re.search(r"\w", body))
            or (_OPTION.search(before) and not _CLAUSE_END.match(text, end))
            or (chosen and len(body) == 1 and not _closes_clause(text, start, end))
            or _JSON_KEY.search(before)
            or _EXAMPLE.search(before)
            or (_LIST.match(body) and _is_maths(body, before, text[end : end + 4]))
            or (
                rejected > 0
                and (_LIST.match(body) or _RANGE.match(body))
                and start - rejected < 8
                and _CHAINED.fullmatch(text, rejected, start)
            )
        ):
            rejected = end
            continue
        if body.startswith("!") or (text.startswith(":", end) and _at_line_start(text, start)):
            continue
        note = body.startswith("^")
        bare = body.strip("^ ") if note else body
        targets = _defined(state, body if note else bare, start)
        if targets is None:
            if note and not bare.isdecimal():
                targets = state.resolver.read(bare, start, marked=True)
            elif re.fullmatch(r"[#†‡]?\d{1,3}", bare):
                targets = state.number(bare.lstrip("†‡"))
            else:
                targets = state.resolver.read(bare, start)
        if not targets and _LETTERED.match(body) and _closes_clause(text, start, end):
            index = state.resolver.by_number(int(body[1:]))
            targets = Targets(unread=1) if index is None else Targets([index])
        if not targets and (
            _AUTHORS.fullmatch(match.group())
            or (_TIMED.match(body) and _is_of_recording(state, body, start, end))
        ):
            targets = Targets(unread=1)
        elif not targets and _closes_clause(text, start, end):
            targets = _read_worded(state, body)
            if not targets and (
                _PARTED.match(body)
                or _SHORT.match(body)
                or (lettered and _LETTER.match(body))
                or (_LOOSE_AUTHORS.fullmatch(match.group()) and not _CALENDAR.match(match.group()))
            ):
                targets = Targets(unread=1)
        if targets:
            state.take(start, end, targets)
        if len(state.found) > MAX_MARKS:
            return


def _read_worded(state: _Answer, body: str) -> Targets:
    """Read a word and numbers: of what holds text, a passage; of another word, who knows."""
    worded = _WORDED.match(body)
    if worded is None:
        return Targets()
    words = worded[1].casefold()
    if set(words.removesuffix("s").split()) <= _HOLDS_TEXT:
        targets = state.resolver.read(worded[2])
        if targets.passages and not targets.dangling:
            return targets
    elif words not in _MAY_CITE and (_ORDINARY_NUMBER.search(words + " ") or _COUNTS.search(words)):
        return Targets()
    return Targets(unread=1)


def _falls(numbers: str) -> bool:
    """Return whether a range of two digits goes down, as a score does."""
    return numbers[0] > numbers[-1]


def _count_from_zero(state: _Answer, bodies: list[str]) -> None:
    """Find out whether an answer counts the passages from 0."""
    resolver = state.resolver
    if "0" in resolver.ids or not resolver.count:
        return
    singles = [_LEADING_LABEL.sub("", body, count=1) for body in bodies]
    if "0" in singles and not any(
        one.isdecimal() and int(one) >= resolver.count for one in singles if len(one) < 5
    ):
        resolver.from_zero = True


def _read_round(state: _Answer) -> None:
    text = state.text
    for match in _ROUND.finditer(text):
        start, end = match.span()
        body = _plain(match[1])
        if state.is_taken(start, end) or text[max(0, start - 1) : start] in ("]", "\\"):
            continue
        if text[start - 1 : start] == "(" and text[end : end + 1] == ")":
            start, end = start - 1, end + 1
        if _OWN_PAGE.match(body) and state.is_taken(max(0, start - 2), start):
            state.take(start, end, None)  # "[manual.pdf] (p. 3)"
            continue
        if re.fullmatch(r"\d{1,2}(?:\s?[,;]\s?\d{1,2}){0,5}", body):
            before = text[max(0, start - _AROUND) : start]
            if (
                _CLAUSE_END.match(text, end)
                and not _CALL.search(before)
                and not _NOT_COUNTED.search(before)
                and re.search(r"[\w.!?%\"”)]\s{0,2}\Z", before)
                and not _ORDINARY_NUMBER.search(before)
            ):
                targets = state.number(body) if body.isdecimal() else state.resolver.read(body)
                if targets.passages and not targets.dangling:
                    state.take(start, end, targets)
            continue
        if _TIMED.match(body) and _is_of_recording(state, body, start, end):
            state.take(start, end, Targets(unread=1))
            continue
        if re.fullmatch(r"\d{1,2}\s?[-–]\s?\d{1,2}", body):
            if _closes_clause(text, start, end) and not _falls(body):
                state.take(start, end, Targets(unread=1))
            continue
        if _ROUND_CITES.match(body):
            if body[0] == "#" and _COUNTS.search(text[max(0, start - _AROUND) : start].rstrip()):
                continue
            targets = state.resolver.read(body, start)
            if targets:
                state.take(start, end, targets)
        elif not _NUMBERS_ALONE.match(body):
            named = _ID.match(body)
            index = state.resolver.by_id(named[1]) if named else None
            known = [index] if index is not None else state.resolver.read_joined(body)
            if known:
                state.take(start, end, Targets(known))
            elif _closes_clause(text, start, end):
                targets = _read_worded(state, body)
                if targets.passages:
                    state.take(start, end, targets)
        if state.is_taken(start, end) or _CALENDAR.match(match.group()):
            continue
        if _AUTHORS.fullmatch(match.group()) or (
            _LOOSE_AUTHORS.fullmatch(match.group()) and _closes_clause(text, start, end)
        ):
            targets = state.resolver.read(body, start)
            state.take(start, end, targets or Targets(unread=1))


def _read_braces(state: _Answer) -> None:
    for match in _BRACES.finditer(state.text):
        if state.is_taken(*match.span()):
            continue
        before = state.text[max(0, match.start() - 1) : match.start()]
        if before in ("]", ")") and re.fullmatch(r"[\d,\s]{1,9}", match[1]):
            continue  # "[0-9]{3}" is a regular expression
        body = _plain(match[1])
        address = _ADDRESS.search(match[1])
        index = state.resolver.by_name(address[1], match.start()) if address else None
        if index is not None:  # "{{cite web|url=https://…}}"
            state.take(*match.span(), Targets([index]))
            continue
        named = _ID.match(body)
        index = state.resolver.by_id(named[1]) if named and not body.isdecimal() else None
        if (
            body.isdecimal()
            and len(body) < 3
            and not _NOT_COUNTED.search(state.text, max(0, match.start() - _AROUND), match.start())
            and _CLAUSE_END.match(state.text, match.end())
        ):
            targets = state.number(body)
            if targets.passages:
                state.take(*match.span(), targets)
        elif index is not None:
            state.take(*match.span(), Targets([index]))
        elif _BRACED_CITES.match(body):
            targets = state.resolver.read(body, match.start())
            if targets:
                state.take(*match.span(), targets)


def _read_signs(state: _Answer) -> None:
    """Read "|1|" and "#1" behind a sentence; behind a word they may be something else."""
    text = state.text
    for pattern in (_BARRED, _HASHED):
        for match in pattern.finditer(text):
            start, end = match.span()
            line = text.rfind("\n", 0, start) + 1
            if state.is_taken(start, end) or text.startswith("|", line):
                continue
            ends = bool(_SENTENCE_END.search(text, max(line, start - 8), start))
            if not ends and not _closes_clause(text, start, end):
                continue
            number = match[2] if pattern is _BARRED else match[1].replace("#", "")
            targets = state.resolver.read(number)
            if pattern is _HASHED and not ends:
                targets = Targets(unread=1)
            if targets.passages or targets.unread:
                state.take(start, end, targets)


def _closes_clause(text: str, start: int, end: int) -> bool:
    """Return whether a marker ends a clause whose last word is no name of what is counted."""
    before = text[max(0, start - _AROUND) : start].rstrip()
    return (
        _CLAUSE_END.match(text, end) is not None
        and (_PLAIN_WORD.search(before) is not None or _SENTENCE_END.search(before) is not None)
        and not _COUNTS.search(before)
        and not _ORDINARY_NUMBER.search(before)
    )


def _is_of_recording(state: _Answer, time: str, start: int, end: int) -> bool:
    """Return whether a time in brackets at [start, end) is one in a recording that it cites.

    Between round brackets only what players print is, where no passage is of a recording.
    """
    text = state.text
    before = text[max(0, start - _AROUND) : start]
    if not _CLAUSE_END.match(text, end) or not _LAST_WORD.search(before):
        return False
    if _TELLS_TIME.search(before):
        return False
    said = text[start] == "[" and before.split()[-1][:1].islower()  # not "Anna Berg [2:09:56]"
    return said or bool(_PLAYED.match(time)) or state.resolver.has_recordings()


def _leading_picture(body: str) -> int:
    found = _PICTURE.match(body)
    return found.end() if found and found.end() < len(body) else 0


def _read_keycaps(state: _Answer) -> None:
    text = state.text
    for pattern in (_KEYCAPS, _QUOTED):
        for match in pattern.finditer(text):
            start, end = match.span()
            if state.is_taken(start, end) or not _closes_clause(text, start, end):
                continue
            numbers = match[1] if pattern is _QUOTED else ",".join(_KEYCAP.findall(match.group()))
            targets = state.resolver.read(numbers)
            state.take(start, end, targets)


def _read_repeated(state: _Answer) -> None:
    """Leave unread what several sentences of an answer end in that cites nowhere else."""
    text = state.text
    for pattern in () if state.found else _REPEATED:
        places = [match.span() for match in pattern.finditer(text)]
        ending = [place for place in places if _ends_sentence(text, *place)]
        if len(ending) > 1:
            for start, end in ending:
                state.take(start, end, Targets(unread=1))


def _read_works(state: _Answer) -> None:
    """Leave unread what names works that are no passages, unless it has a passage's address."""
    text = state.text
    dated = "(19" in text or "(20" in text
    for pattern in (_WORK, _NARRATIVE) if dated else (_WORK,):
        for match in pattern.finditer(text):
            if not state.is_taken(*match.span()):
                address = _ADDRESS.search(match.group())
                index = state.resolver.by_name(address[1], match.start()) if address else None
                if index is None:  # "(PMID: 31978945)", where that is the id of a passage
                    index = state.resolver.by_id(re.sub(r":\s", ":", match.group().strip("()[]")))
                targets = Targets(unread=1) if index is None else Targets([index])
                state.take(*match.span(), targets)


def _read_notes(state: _Answer) -> None:
    """Leave unread the signs of notes in an answer that cites nowhere else."""
    text = state.text
    if state.found:
        return
    for match in _GLUED.finditer(text):
        state.take(*match.span(), Targets(unread=1))
    for match in _ASTERISK.finditer(text) if "*" in text else ():
        start, end = match.span()
        line = text[text.rfind("\n", 0, start) + 1 : (text + "\n").index("\n", end)]
        if line.count("*") == end - start:
            state.take(start, end, Targets(unread=1))


def _ends_sentence(text: str, start: int, end: int) -> bool:
    """Return whether a sign stands right before or behind the full stop of a sentence."""
    before = text[max(0, start - 2 * _AROUND) : start]
    behind = text[end : end + 3]
    if _SENTENCE_END.search(before):
        ends = not behind.strip() or behind[0] == "\n" or behind.lstrip()[0].isupper()
    else:
        ends = behind.lstrip(" ")[:1] in (".", "!", "?") and _PLAIN_WORD.search(before) is not None
    return bool(ends and _WORDS_BEFORE.search(before) and not _COUNTS.search(before))


def _read_carets(state: _Answer) -> None:
    for match in _MATHS_RAISED.finditer(state.text):
        if not state.is_taken(*match.span()):
            state.take(*match.span(), state.resolver.read(match[1]))
    for match in _CARET.finditer(state.text):
        start, end = match.span()
        if not state.is_taken(start, end) and not _is_power(state.text, start):
            state.take(start, end, state.resolver.read(match[1]))


def _read_raised(state: _Answer) -> None:
    text = state.text
    for match in _RAISED.finditer(text):
        start, end = match.span()
        circled = _CIRCLED.match(text, start) is not None
        if (
            not circled
            and text[end : end + 1].isalpha()
            and not text[max(0, start - 1) : start].strip("[( \n")
        ):
            continue  # "¹⁴C"
        if state.is_taken(start, end) or (not circled and _is_power(text, start)):
            continue
        if circled and (
            _at_line_start(text, start) or text[:start].rstrip()[-1:] in (":", ",", ";")
        ):
            continue  # an item of a list
        body = _plain(match.group()).replace("˒", ",").strip("()")
        if circled:
            body = str(int(unicodedata.numeric(text[start])))
        body = re.sub(r"[⁻−]", "-", re.sub(r"(?<=\d)\s+(?=\d)", ",", body))
        state.take(
            start, end, state.number(body) if body.isdecimal() else state.resolver.read(body)
        )
    for match in _NOTE_SIGN.finditer(text):
        start, end = match.span()
        if state.is_taken(start, end) or not (
            _closes_clause(text, start, end) or _ends_sentence(text, start, end)
        ):
            continue
        targets = Targets()
        if match[1] and "↩" not in match.group():
            targets = state.resolver.read(re.sub(r"\s?[†‡]", ",", match[1]))
        known = targets.passages and not targets.dangling
        state.take(start, end, targets if known else Targets(unread=1))
    for match in _DAGGER.finditer(text):
        if not state.is_taken(*match.span()):
            state.take(*match.span(), Targets(unread=1))


def _read_spoken(state: _Answer) -> None:
    for match in _SPOKEN.finditer(state.text):
        if not state.is_taken(*match.span()):
            targets = state.resolver.read(match[1] or match[2] or match[3])
            if targets.passages:
                state.take(*match.span(), targets)


def _read_addresses(state: _Answer) -> None:
    for match in _ADDRESS.finditer(state.text):
        if not state.is_taken(*match.span()):
            index = state.resolver.by_name(match[1].rstrip(".,;:!?"), match.start())
            if index is not None:
                state.take(*match.span(), Targets([index]))


def _read_source_lines(state: _Answer) -> None:
    """Read "Source: manual.pdf", and the list of sources of an answer that cites nowhere else."""
    text = state.text
    for match in _SOURCE_LINE.finditer(text):
        start, end = match.span(1)
        if not state.is_taken(start, end) and not state.found:
            body = _plain(match[1]).strip(" \t*_.")
            targets = state.resolver.read(body, start, marked=True)
            state.take(start, end, targets)
    head = None if state.found else _SOURCE_LIST.search(text)
    if head is not None:  # "[1]: manual.pdf" in a list that no sentence refers to
        for label, (named, address) in state.definitions.items():
            index = None if address else _name(state, named, head.start())
            if index is not None and not label.startswith("^"):
                state.take(*head.span(), Targets([index]))
    if head is not None and text[: head.start()].strip():
        for line in list(_LISTED.finditer(text, head.end()))[:_MAX_LISTED]:
            index = _name(state, line[2], line.start(2))
            targets = Targets(unread=1) if index is None else Targets([index])
            state.take(*line.span(), targets)


def _plain(text: str) -> str:
    """Return a text in plain characters, for full-width and raised digits."""
    if text.isascii():
        return text.strip()
    plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).strip()
    return _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit.group())), plain)


def _at_line_start(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t>*-")


def _is_power(text: str, start: int) -> bool:
    """Return whether what is raised at `start` is an exponent, as in "km²" and "10⁶"."""
    before = text[max(0, start - 12) : start]
    return bool(
        not before.strip()
        or (before[-1].isalpha() and _TAKES_EXPONENT.search(before))
        or _POWER.search(before)
    )


def _is_maths(body: str, before: str, after: str) -> bool:
    """Return whether a list of numbers in brackets is an interval, a vector or the like."""
    numbers = re.findall(r"[-+−]?\d[\d.]*", body)
    return bool(
        _MATHS.search(before)
        or any(one[0] in "-+−" or "." in one for one in numbers)
        or numbers[0] == "0"
        or after[:1] in ("^", "²", "ⁿ")
    )


def _is_index(answer: str, start: int, end: int) -> bool:
    """Return whether `[n]` at [start, end) indexes a variable, as in `arr[1]` and `a["b"][1]`."""
    for _ in range(_MAX_INDICES):
        if start < 2 or answer[start - 1] != "]":
            break
        opened = answer.rfind("[", max(0, start - _AROUND), start)
        if opened < 0:
            return False
        if answer[opened + 1] in "'\"" and answer[start - 2] == answer[opened + 1]:
            return True
        start, end = opened, start
    if start > 1 and answer[start - 2 : start] == "()":
        return True
    if start == 0 or not (answer[start - 1].isalnum() or answer[start - 1] in "_)"):
        return False
    if not answer[start - 1].isascii() or _is_emphasised(answer, start):
        return False
    if _CODE_AFTER.match(answer, end):
        return True
    word = _INDEXED.search(answer, max(0, start - 32), start)
    if word is None:
        return False
    name = word.group()
    return (
        len(name) == 1
        or "_" in name
        or name in _INDEX_NAMES
        or (name[0].islower() and name != name.lower())
    )


def _is_emphasised(answer: str, start: int) -> bool:
    """Return whether underscores around brackets that begin at `start` emphasise them."""
    signs = 2 if answer.endswith("__", 0, start) else 1
    return _EMPHASISED.match(answer, start - signs) is not None


# The readers of the forms, those of longer markers first.
_READERS: tuple[tuple[int, _Reader], ...] = tuple(
    (MARKER_FORMS[name], read)
    for name, read in (
        ("turns", _read_turns),
        ("oaicite", _read_oaicite),
        ("latex", _read_latex),
        ("tags", _read_tags),
        ("links", _read_links),
        ("wide", _read_wide),
        ("quoted_ids", _read_quoted_ids),
        ("square", _read_square),
        ("round", _read_round),
        ("braces", _read_braces),
        ("carets", _read_carets),
        ("signs", _read_signs),
        ("raised", _read_raised),
        ("keycaps", _read_keycaps),
        ("pictured_files", _read_pictured_files),
        ("spoken", _read_spoken),
        ("addresses", _read_addresses),
        ("source_lines", _read_source_lines),
        ("repeated", _read_repeated),
        ("works", _read_works),
        ("notes", _read_notes),
    )
)
