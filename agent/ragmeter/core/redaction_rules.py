"""Redaction rules: built-in and configured patterns, searched in a text within a bounded time.

Python's `re` cannot be stopped, and a text from outside may keep an innocent pattern busy for
hours. `regex` stops at a time limit; the text then counts as not redacted, so callers must not keep
it. Every repeat of the built-in patterns is bounded, so that no text makes their search long.
`regex` is imported with the first rule: without rules it costs nothing.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ragmeter.core.errors import DataError
from ragmeter.core.files import load_yaml

if TYPE_CHECKING:
    import regex

# A pattern is unrolled when it is compiled: a{1000} in a{1000} takes a second, one more a gigabyte.
_MAX_UNROLLED = 100_000
_MAX_TIMEOUTS = 3  # searches that ran out of time before a rule rests
REST_SECONDS = 30.0  # how long it rests; texts that it applies to are not kept meanwhile
LONG = 4_000  # characters from which a search releases the GIL (which costs 4 us)

# Matches all that matters for unrolling: escapes and sets (skipped), groups and counted repeats.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([()])|\{(\d*),?(\d*)\}", re.DOTALL)

_LONG_WORD = re.compile(r"[\w-]{20}", re.ASCII)
_DEFANGED = re.compile(r"\[\.?\]|\(\.?\)|\{\.\}|[\[(]dot[\])]", re.IGNORECASE)

# The last groups of a number of thousands, whose first group is shorter than a telephone number's.
_THOUSANDS = re.compile(r"\d{3}(?:[ .]\d{3})+\Z")
# A date of day, month and year, or a list of years: no telephone number.
_DATES = re.compile(
    r"\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d(?!\d)|(?:19|20)\d\d[./]\d{1,2}[./]\d{1,2}(?!\d)"
    r"|(?:(?:19|20)\d\d[ ./-]){1,5}(?:19|20)\d\d$"
)

# Groups that no telephone number has without a country code or a zero before them.
_NO_PHONE = re.compile(r"\d{2,5}[ .\-/]{1,2}\d{4}[ .\-/]\d{3}\Z")
# A number of a card or an account, whatever its check says.
_FOURS = re.compile(r"(?<!\d)(?<!\d[ \-./])(?:\d{4}[ \-./]){3,4}\d{1,4}(?!\d)")
# First digits of cards with their fewest and most digits (ISO/IEC 7812, and what networks tell).
# 15 digits that begin otherwise are an IMEI's.
_CARDS = (
    ("2131", 15, 15),
    ("2", 16, 19),
    ("30", 14, 19),
    ("34", 15, 15),
    ("37", 15, 15),
    ("35", 16, 19),
    ("36", 14, 19),
    ("38", 14, 19),
    ("39", 14, 19),
    ("4", 13, 13),
    ("4", 16, 19),
    ("5", 16, 19),
    ("50", 13, 15),
    ("56", 13, 15),
    ("57", 13, 15),
    ("58", 13, 15),
    ("6", 13, 19),
)
# What stands before the number of an order or of an article.
_NAMES_NUMBER = re.compile(
    r"\b(?:order|invoice|ticket|article|item|part|serial|model|product|batch|lot|tracking|reference|ref"
    r"|bestell|rechnungs|artikel|auftrags|serien|vorgangs|commande|facture|pedido|factura|ordine"
    r"|fattura)[ -]?(?:numbers?|no|nr|id|nummer|num)?\.?(?:\s(?:is|are|ist|lautet|est|es|è))?"
    r"[ \t:#]{1,3}\Z",
    re.IGNORECASE,
)
# Groups of one length that name no subscriber: "100-200-300", "200-400-800", "8080-8081-8082"
_EVEN_GROUPS = re.compile(r"(\d{2,5})([ .\-/])\d{2,5}(?:\2\d{2,5}){1,3}\Z")
# Writers put the unit behind the numbers that they measure.
_UNIT = re.compile(
    r"\s?(?:(?:mg|µg|kg|ml|cl|mm|cm|km|ft|metres?|meters?|miles?|px|dpi|kw|mah|k?hz|mhz|ghz|[kmg]i?b"
    r"|kcal|k?pa|psi|ppm|usd|eur|euros?|dollars?)\b|[%€£°])",
    re.IGNORECASE,
)
_WITHIN_NUMBER = re.compile(r"\d\d[\-./]\Z")
_AROUND = 30  # characters beside a finding in which such a number may begin and end

# Such words name a version, and stand before the first of several as well ("1.2.3.4 to 1.2.4.0").
_SECOND = (
    r"(?:[ \t:#=-]{0,3}\d{1,5}(?:\.\d{1,5}){1,3}"
    r"(?:,\s|,?\s(?:to|and|or|through|und|oder|bis|et|ou|y)\s)(?:(?:version|v)\s?)?){0,8}"
    r"[ \t:#=-]{0,3}\Z"
)
_NAMES_VERSION = re.compile(
    r"(?:(?<![^\W_])(?:v|ver|(?:file|product|assembly|client|server|app|api|schema|min|max)?[_-]?versions?"
    r"|versión|versão|versione|wersj\w|версия|releases?|build|firmware|kernel"
    r"|driver|patch|update|sdk|runtime|assembly|(?:sub-?)?sections?|sect?|chapters?|clauses?|articles?"
    r"|(?:sub)?paragraphs?|requirements?|appendix|annex|abschnitte?|kapitel|absatz|anhang|ziffer"
    r"|figure|table|step|schritt|oid|ec)\b\.?"
    rf"|§{{1,2}}|版本|バージョン|버전|^#{{2,6}}(?=[ \t])){_SECOND}"
    # a field of JSON, XML or code: `"version": "1.2.3.4"`, `<version>1.2.3.4`
    r"|version[\"']?\s?[:=>(]\s?[\"']?\Z",
    re.IGNORECASE | re.MULTILINE,
)
# These tell a version alone where no address of a network of one's own is meant.
_NAMES_PRODUCT = re.compile(
    r"(?:(?<!\w)(?:openssl|bios|uefi|chrome|chromium|firefox|python|java|jdk|php|ruby|gcc|\.net|windows"
    r"|macos|ios|android|weblogic(?: server)?|websphere|oracle(?: database)?|db2|esxi|cuda"
    r"|plug-?ins?|packages?|library|libraries|add-?ons?|installer|tested with|controls?"
    r"|[\w-]{1,32}\.(?:dll|exe|jar|msi|deb|rpm|sys|whl|ocx|apk)"
    rf"|(?:up|down)grad(?:e|ed|ing) (?:from|to))\b|[<>~]=){_SECOND}"
    # a noun for a state of software, and words that neither send nor reach anything
    r"|(?<!what )(?<!which )(?<![^\W_])(?:versions?|firmware|driver|bios|uefi|kernel|plug-?in"
    r"|(?:hot|bug)-?fix|(?:service|fix|feature|maintenance)[ -]?pack|revision|releases?|build|patch"
    r"|\w{0,20}(?:stand|version))"
    r"(?:\sof(?:\s(?:the|our|your|this))?\s[a-z]{2,20})?"
    r"(?:\s(?:level|number|no\.?|nr\.?|is|are|was|now|still|currently|already|before|after|since|until"
    r"|prior to|older than|newer than|earlier than|later than|below|above|at least|lautet|ist|vor"
    r"|nach|ab)){0,4}\s?[:=#]?\s?\Z"
    r"|\b(?:firmware|driver|bios|uefi|plug-?in)\s(?:(?:was|is)\s)?(?:upgraded|updated|flashed)\sto\s\Z",
    re.IGNORECASE,
)
# These words tell a version only where `_TO` follows the number, or `_WAS_FROM` stands before it.
_FROM = re.compile(
    r"\b(?:firmware|driver|bios|uefi|plug-?in|versions?|releases?)\s(?:(?:upgraded|updated)\s)?from\s"
    r"(?:\d{1,5}(?:\.\d{1,5}){2,3}\sto\s)?\Z",
    re.IGNORECASE,
)
_TO = re.compile(r"\sto\s\d{1,5}(?:\.\d{1,5}){2,3}")
_WAS_FROM = re.compile(r"\d\sto\s\Z")
_IS_VERSION = re.compile(
    r",?\s(?:(?:or|and|oder|und|ou|et)\s(?:later|newer|above|higher|up|older|earlier|below|neuer)"
    r"|of the (?:package|library|driver|plug-?in|firmware|software|app)\b"
    r"|(?:release|firmware|hot-?fix|patch level|service pack|fix ?pack)\b"
    r"|(?:is|was) (?:released|deprecated|out of support|end[ -]of[ -]life))"
    r"|[ -]?(?:alpha|beta|rc\d?|snapshot)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d]|[§#=<>~]")
# `lodash@4.17.21`: four numbers are an address, as of a mailbox
_VERSION = re.compile(r"v?\d{1,5}\.\d{1,5}\.\d{1,5}(?:-[A-Za-z][\w.-]*)?")
# Matches what stands before the `@` of an address with a user and a password, which is no mailbox.
_USER_OF_ADDRESS = re.compile(
    r"""(?:://[^\s/:"'<>]{0,128}:(?!//|\d{1,5}[/?#])(?:(?![?&]\w{1,40}=)[^\s"'<>]){1,256}"""
    r"""|://[\w.-]{20,256}|jdbc:oracle:thin:[^\s/@"']{1,64}/[^\s@"']{1,128})\Z""",
    re.IGNORECASE,
)
# Matches the same without a scheme; a port must follow the host.
_USER_OF_HOST = re.compile(
    r"""(?<![\w.@/:-])(?!(?:mailto|sips?|xmpp|acct|e?-?mail|from|to|b?cc|user|login|host):)"""
    r"""[\w.-]{1,64}:[^\s:/@"'<>,;]{3,128}\Z""",
    re.IGNORECASE,
)
_PORT = re.compile(r":\d{2,5}(?![\w.])")
_MAX_USER = 420  # characters of scheme, user and password that are looked at
_REMOTE = "git@"
_REMOTE_NAME = re.compile(r"(?<![\w.+-])git@\Z")
# A version follows these words, and so does an address: "the app waited before 52.14.33.9".
_BEFORE_OR_SINCE = re.compile(r"\s(?:before|after|since|until|vor|nach|ab)\s?\Z", re.IGNORECASE)
_MOST_VERSION = 31  # versions of four parts rarely begin beyond
# 0.0.0.0, and what masks leave open, such as 0.0.0.255 (RFC 6890)
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
_DOTTED = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_BEFORE = 48  # characters before a finding that may name it so

# Names of fields whose values are passwords, keys of at least `_MIN_KEY` signs, or short codes.
_PASSWORD_NAME = re.compile(
    r"(?!.*(?:reset|forg[eo]t|change|show|hide|need|require|valid|policy|label|hint|url|link))"
    r".*(?:pass[_-]?(?:word|wd|phrase|code)|pwd|passwort|kennwort|contraseña|contrasena|senha"
    r"|mot[_-]?de[_-]?passe|wachtwoord|lösenord|hasło|heslo|пароль|密码|密碼|口令|パスワード|비밀번호"
    r"|(?:\A|[\W_])(?:pass|pw))s?(?:[_-]?(?:hash|value|confirm(?:ation)?|new|old|\d))?",
    re.IGNORECASE,
)
_KEY_NAME = re.compile(
    r".*(?:(?:api|access|account|auth|signing|private|encryption|subscription|client|master|shared"
    r"|license|consumer|webhook|secret)[_-]?(?:key|secret)(?:[_-]?(?:id|value|\d))?"
    r"|secret|token|credentials?|jwt|bearer)",
    re.IGNORECASE,
)
_CODE_NAME = re.compile(r"(?:.*[\W_])?(?:pin|cvv2?|cvc2?|otp|tan)(?:[_-]code)?", re.IGNORECASE)
_HEADER_NAME = re.compile(
    r"(?:.*[\W_])?(?:(?:proxy-?)?authorization|(?:set-?)?cookies?)", re.IGNORECASE
)
# Names of fields whose values are telephone numbers, however their digits are written.
_PHONE_NAME = re.compile(
    r"(?:.*[\W_])?(?:home|work|office|business|private|mobile|cell|user|customer|contact|primary)?[_-]?"
    r"(?:(?:tele|cell)?phone|tel|mobile|handy|fax|whatsapp|msisdn|telefon[oe]?|rufnummer|celular"
    r"|teléfono|téléphone|телефон|电话|電話|手机|手機|전화)[_-]?(?:numbers?|num|no|nr|nummer|\d)?",
    re.IGNORECASE,
)
_DEVICE_NAME = re.compile(
    r"(?:.*[\W_])?(?:(?:imei(?:sv)?|imsi|iccid|meid)[_-]?(?:numbers?|num|no|nr|\d)?"
    r"|mac[_-]?(?:addr(?:ess)?)?)",
    re.IGNORECASE,
)
_DEVICE_VALUE = re.compile(r"\d(?:[ \-/]?\d){13,19}|(?=.*\d)[0-9A-Fa-f]{12}(?:[0-9A-Fa-f]{2})?")
_PHONE_VALUE = re.compile(r"\(?\+?\d(?:[ ().\-/]{0,2}\d){6,14}")
# Matches a field of JSON or of a printed dictionary from its name on, up to its value.
_FIELD = re.compile(r"""["']?[^\s"':=]{1,64}(["'])\s{0,3}:\s{0,3}(["'])(?=[^"'])""")
_MIN_CODE = 3
_MIN_PASSWORD = 4
_MIN_KEY = 8
_MAX_WORD = 4_096  # characters of a key; a longer word is content
_MAX_NAME = 64  # characters of a name that are looked at, the last ones
# values that say something about a password, or that something has masked
_NO_VALUE = re.compile(
    r"none|null|true|false|undefined|required|optional|string|text|redacted|hidden|masked|invalid"
    r"|missing|changed|expired|forgotten|\W+|\[\w+\]|<[^<>]*>|\$?\{.*\}|%\(?\w+\)?s?",
    re.IGNORECASE,
)

# Given a text and the start and end of a match, returns the end of the finding, or None. The digits
# of a card number often run into those of its expiry date.
_MatchCheck = Callable[[str, int, int], int | None]


@dataclass(frozen=True, slots=True)
class _BuiltinRule:
    """A rule of `redaction_rules.yaml`: patterns with their hints, and what checks a match.

    `long` are those patterns that need a long word.
    """

    patterns: Mapping[str, tuple[str, ...]]
    long: frozenset[str] = frozenset()
    check: _MatchCheck | None = None
    back: int = 0
    guess: bool = False


class RedactionError(DataError):
    """A rule that could not be applied to a text.

    Args:
        reason: `timeout`, `resting` after several timeouts, or `error`.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


def compile_pattern(
    pattern: str, *, any_case: bool = False, most: int = _MAX_UNROLLED
) -> regex.Pattern[str]:
    """Compile a pattern from outside.

    Args:
        pattern: A regular expression.
        any_case: Whether to ignore case.
        most: Bound on its unrolled repeats, and so on the time that compiling takes.

    Raises:
        ValueError: Not a pattern, too large, or it matches the empty text.
    """
    import regex

    if _unrolled(pattern) > most:
        raise ValueError(f"its repeats multiply to over {most}")
    try:
        compiled = regex.compile(pattern, regex.IGNORECASE if any_case else 0)
        empty = compiled.search("", timeout=1.0)
    except (regex.error, OverflowError, RecursionError, TimeoutError) as error:
        raise ValueError(f"no pattern: {error}") from None
    if empty is not None:
        raise ValueError("it matches the empty text, so everywhere")
    return compiled


class RedactionRule:
    """A rule that finds what is to be replaced; safe to use from any thread.

    Args:
        name: Name of the rule; without a pattern it is that of a built-in rule.
        pattern: A regular expression. One that `compile_pattern` refuses raises ValueError.
        replacement: Text in place of a finding; None for `[name]`.

    Attributes:
        builtin: Whether it is a built-in rule, whose patterns are made for folded texts.
        guess: Whether the form alone tells a finding, with no check and no sign that is its own.
    """

    def __init__(
        self,
        name: str,
        pattern: str | None,
        replacement: str | None,
        timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        rule = BUILTIN_RULES[name] if pattern is None else _BuiltinRule({pattern: ()})
        self.name = name
        self.replacement = f"[{name}]" if replacement is None else replacement
        self._patterns = [
            (compile_pattern(text), hints, text in rule.long)
            for text, hints in rule.patterns.items()
        ]
        self._hinted = any(rule.patterns.values())
        self._needs_long = bool(rule.long)
        self._check = rule.check
        self._back = rule.back
        self.builtin = pattern is None
        self.guess = rule.guess
        self._timeout = timeout
        self._monotonic = monotonic
        self._timeouts = 0  # in a row
        self._rests_until = -math.inf

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the findings as (start, end), in order and without overlaps.

        Raises:
            RedactionError: The search failed, so there may be more to replace.
        """
        start = self._monotonic()
        if start < self._rests_until:
            raise RedactionError(self.name, "resting")
        try:
            spans = self._search_all(text, start + self._timeout)
        except TimeoutError:
            self._timeouts += 1
            if self._timeouts >= _MAX_TIMEOUTS:
                self._rests_until = self._monotonic() + REST_SECONDS
                self._timeouts = _MAX_TIMEOUTS - 1  # after the rest one more is enough
            raise RedactionError(self.name, "timeout") from None
        except Exception:
            raise RedactionError(self.name, "error") from None
        self._timeouts = 0
        return spans

    def _search_all(self, text: str, deadline: float) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        lower = text.lower() if self._hinted else ""
        has_long = self._needs_long and _LONG_WORD.search(text) is not None
        for pattern, hints, long in self._patterns:
            if long and not has_long:
                continue
            if not hints or any(hint in lower for hint in hints):
                spans += self._search(pattern, text, deadline)
        if len(self._patterns) == 1 or len(spans) < 2:
            return spans
        spans.sort()
        joined = [spans[0]]
        for start, end in spans[1:]:
            if start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def _search(
        self, pattern: regex.Pattern[str], text: str, deadline: float
    ) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        at = 0
        size = len(text)
        check = self._check
        while at < size:
            left = deadline - self._monotonic()
            if left <= 0:
                raise TimeoutError
            match = pattern.search(text, at, timeout=left, concurrent=size > LONG)
            if match is None:
                break
            start, end = match.span()
            start -= self._back
            stop = end if check is None else check(text, start, end)
            if stop is None or stop <= start:
                at = match.start() + 1
                continue
            if self.builtin:
                start, stop = _value_within(text, start, stop)
            if text[start:stop] != self.replacement:
                spans.append((start, stop))
            at = stop
        return spans


def _value_within(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of the value alone where a finding holds a name, a colon and quotes too.

    JSON stays JSON if only what stands between its quotes is replaced.
    """
    field = _FIELD.match(text, start, end)
    if field is None:
        return start, end
    closed = text[end - 1] == field[2]
    return field.end(), end - 1 if closed else end


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret by the name of its field: a password, a key or a code.

    A word alone counts: a field of any name may hold a sentence. A piece of a streamed text is
    called a "token", too, so that a key needs a digit.
    """
    word = value[: _MAX_WORD + 1].strip()
    kind = _kind_of_secret(name[-_MAX_NAME:])
    if not kind:
        return False
    if kind == "header":
        is_value = "=" in word or len(word.split(None, 2)) <= 2
        return is_value and len(word) >= _MIN_KEY and any(map(str.isdecimal, word))
    if not _MIN_CODE <= len(word) <= _MAX_WORD or any(map(str.isspace, word)):
        return False
    if kind == "code":
        return word.isdecimal() and len(word) <= _MIN_KEY
    if kind == "password":
        return len(word) >= _MIN_PASSWORD and _NO_VALUE.fullmatch(word) is None
    has_digits = any(map(str.isdecimal, word)) and not word.isdecimal()
    return len(word) >= _MIN_KEY and has_digits


def is_named_phone(name: str, value: str) -> bool:
    """Return whether a value is a telephone number by the name of its field and its digits."""
    return (
        _PHONE_VALUE.fullmatch(value.strip()) is not None
        and _PHONE_NAME.fullmatch(name[-_MAX_NAME:]) is not None
    )


def is_named_device(name: str, value: str) -> bool:
    """Return whether a value is the number of a device by the name of its field and its digits."""
    return (
        _DEVICE_VALUE.fullmatch(value.strip()) is not None
        and _DEVICE_NAME.fullmatch(name[-_MAX_NAME:]) is not None
    )


@lru_cache(maxsize=4_096)
def _kind_of_secret(name: str) -> str:
    kinds = {
        "password": _PASSWORD_NAME,
        "code": _CODE_NAME,
        "header": _HEADER_NAME,
        "key": _KEY_NAME,
    }
    return next((kind for kind, pattern in kinds.items() if pattern.fullmatch(name)), "")


def _unrolled(pattern: str) -> int:
    """Return the largest product of counted repeats within one another."""
    most = [1]  # by depth of open groups
    last = 1  # of the piece before
    for match in _PIECE.finditer(pattern):
        bracket, low, high = match.groups()
        if bracket == "(":
            most.append(1)
            last = 1
        elif bracket == ")":
            last = most.pop() if len(most) > 1 else 1
            most[-1] = max(most[-1], last)
        elif low or high:
            repeated = last * max(int(count or 1) for count in (low[:9], high[:9]))
            most[-1] = max(most[-1], repeated)
            last = 1
        else:
            last = 1
    return max(most)


def _card(text: str, start: int, end: int) -> int | None:
    """Return the end of the longest run of digits that may be a card's; no digit may follow it."""
    ends = [at + 1 for at in range(start, end) if text[at].isdigit()]
    for length in range(min(19, len(ends)), 12, -1):
        stop = ends[length - 1]
        digits = "".join(_digits(text[start:stop]))
        if not text[stop : stop + 1].isdigit() and _is_issued(digits) and _luhn(digits):
            return stop
    return None


def _is_issued(digits: str) -> bool:
    """Return whether cards of so many digits are issued under such a number's first digits."""
    return any(
        digits.startswith(first) and shortest <= len(digits) <= longest
        for first, shortest, longest in _CARDS
    )


def _device(text: str, start: int, end: int) -> int | None:
    """Return the end of a device's number, None for the hardware addresses of all and of none."""
    return None if set(text[start:end].upper()) - set(":-.") in ({"0"}, {"F"}) else end


def _email(text: str, start: int, end: int) -> int | None:
    """Return the end of an address of a mailbox.

    A package's version, a repository, and the host behind a user and a password are none.
    """
    host = text[start:end].rpartition("@")[2]
    if len(host) < end - start:
        before = text[max(end - len(host) - 1 - _MAX_USER, 0) : end - len(host) - 1]
        if _USER_OF_ADDRESS.search(before) or (
            _PORT.match(text, end) and _USER_OF_HOST.search(before)
        ):
            return None
        if not any(map(str.isalnum, text[start : end - len(host)])):
            return None  # `{{ password }}@db.example`
    name = text[max(start - len(_REMOTE), 0) : end - len(host)]
    is_remote = text[end : end + 1] in (":", "/") and _REMOTE_NAME.search(name)
    return None if _VERSION.fullmatch(host) or is_remote else end


def _digits(text: str) -> list[str]:
    return [str(unicodedata.decimal(char)) for char in text if char.isdecimal()]


def _iban(text: str, start: int, end: int) -> int | None:
    """Return the end of an IBAN of its country's length; no letter or digit may follow it.

    The name of the next field may, as it does in copies of tables.
    """
    length = _IBAN_LENGTHS.get(text[start : start + 2].upper())
    ends = [at + 1 for at in range(start, end) if text[at].isalnum()]
    if length is None or length > len(ends):
        return None
    stop = ends[length - 1]
    whole = "".join(filter(str.isalnum, text[start:stop]))
    follows = text[stop : stop + 5].upper()
    ends_here = not follows[:1].isalnum() or follows.startswith(("BIC", "SWIFT"))
    return stop if ends_here and _mod97(whole) else None


def _luhn(digits: str) -> bool:
    doubled = "0246813579"
    total = sum(
        int(doubled[int(digit)] if index % 2 else digit)
        for index, digit in enumerate(reversed(digits))
    )
    return total % 10 == 0


def _mod97(text: str) -> bool:
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


def _phone(text: str, start: int, end: int) -> int | None:
    match = text[start:end]
    if _DATES.match(match):
        return None
    if match[0] != "+" and _WITHIN_NUMBER.search(text[max(start - 3, 0) : start]):
        return None
    if _THOUSANDS.match(match) and re.fullmatch(r"\d[ .]", text[max(start - 2, 0) : start]):
        return None
    digits = sum(map(str.isdigit, match))
    if match[0] not in "+0(" and (
        _NO_PHONE.match(match)
        or _is_series(text, end, match)
        or _NAMES_NUMBER.search(text[max(start - _BEFORE, 0) : start])
        or _in_fours(text, start, end)
    ):
        return None
    if match[0] not in "+0(" and (digits < 9 or (match[4:5] == "-" and match[7:8] == "-")):
        return None  # too short to be told from other numbers; or a date
    return end if 7 <= digits <= 15 and not _is_address(match) else None


def _is_series(text: str, end: int, match: str) -> bool:
    """Return whether groups grow by a step, or are of one length and measured, round or doubled."""
    groups = re.split(r"\D", match)
    if not _EVEN_GROUPS.match(match):
        return False
    numbers = [int(group) for group in groups]
    pairs = list(itertools.pairwise(numbers))
    if len({after - before for before, after in pairs}) == 1 and numbers[0] != numbers[1]:
        return True
    return len(set(map(len, groups))) == 1 and (
        all(before and after == 2 * before for before, after in pairs)
        or all(number % 50 == 0 for number in numbers)
        or _UNIT.match(text, end) is not None
    )


def _in_fours(text: str, start: int, end: int) -> bool:
    """Return whether a finding is part of a number in groups of four."""
    around = max(start - _AROUND, 0)
    return any(
        around + fours.start() < end and start < around + fours.end()
        for fours in _FOURS.finditer(text[around : end + _AROUND])
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(text: str, start: int, end: int) -> int | None:
    match = text[start:end]
    before = text[max(start - _BEFORE, 0) : start]
    if _WORD.search(before) is None:  # as in a list of addresses
        before = ""
    elif _NAMES_VERSION.search(before):
        return None
    dots = _DOTTED.match(match)
    if (
        dots
        and (
            _names_version(before, dots.group())
            or _IS_VERSION.match(text, start + dots.end())
            or (
                _FROM.search(before)
                and (_WAS_FROM.search(before) or _TO.match(text, start + dots.end()))
            )
        )
        and not (_is_address(dots.group()) and ipaddress.ip_address(dots.group()).is_private)
    ):
        return None
    for candidate in (match, match.partition(".")[0]):  # the end of a sentence may follow
        candidate = candidate.rstrip(":.")
        stop = start + len(candidate)
        # `cafe::babe` is as good an address, and more often code
        plain = _DEFANGED.sub(".", candidate)
        if any(map(str.isdigit, candidate)) and _is_address(plain):
            return None if text[stop : stop + 1].isalnum() or _is_nobodys(plain) else stop
    return None


def _is_nobodys(address: str) -> bool:
    """Return whether an address is every machine's own or a mask of networks."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 6:
        parsed = parsed.ipv4_mapped or parsed
    if parsed.version == 6 or parsed.is_loopback:
        return parsed.is_loopback or parsed.is_unspecified
    zeros = (1 << 32) - int(parsed)  # of a mask: a power of two
    return parsed in _THIS_NETWORK or zeros & (zeros - 1) == 0


def _names_version(before: str, dotted: str) -> bool:
    if not _NAMES_PRODUCT.search(before):
        return False
    return int(dotted.partition(".")[0]) <= _MOST_VERSION or not _BEFORE_OR_SINCE.search(before)


# Of the SWIFT registry of IBANs (ISO 13616), release 99: country and number of characters.
_IBANS = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27
DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28
IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22
MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24
SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}

_CHECKS: dict[str, _MatchCheck] = {
    "email": _email,
    "phone": _phone,
    "iban": _iban,
    "credit_card": _card,
    "device": _device,
    "ip": _address,
}
BUILTIN_RULES = {
    name: _BuiltinRule(
        patterns={one["pattern"]: tuple(one.get("hints", ())) for one in rule["patterns"]},
        long=frozenset(one["pattern"] for one in rule["patterns"] if one.get("long")),
        check=_CHECKS.get(name),
        back=rule.get("back", 0),
        guess=rule.get("guess", False),
    )
    for name, rule in load_yaml(__package__, "redaction_rules.yaml").items()
}
