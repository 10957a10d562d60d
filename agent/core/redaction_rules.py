"""Redaction rules: built-in and configured patterns, searched in a text within a bounded time.

Ready-made rules: a pattern for what looks like it, and a check that says how much of it is.

Every repeat is bounded, so that no text makes a search long. A check is given the text and where a
candidate begins and ends, and says where the finding ends, or nothing: the digits of a card often
go on with those of its expiry date.

A redaction rule at work: what it finds in a text, within a bounded time or not at all.

Python's `re` cannot be stopped, and a text from outside may make an innocent pattern run for
hours. `regex` stops when its time is over; then the text counts as not redacted, which whoever asks
must take for "not to be kept". It is imported with the first rule: without one it costs nothing.
"""

from __future__ import annotations

import ipaddress
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

_FindingCheck = Callable[[str, int, int], int | None]


@dataclass(frozen=True, slots=True)
class _PatternPart:
    """A pattern of a rule. A text without any of the `hints`, in lower case, is not searched."""

    pattern: str
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _BuiltinRule:
    """Several plain patterns are searched far more quickly than one with alternatives. A finding
    begins `back` characters before its match: so a pattern may begin with what is rare. `meaning`
    is for the documents."""

    parts: tuple[_PatternPart, ...]
    meaning: str
    check: _FindingCheck | None = None
    back: int = 0


def _prefix(
    text: str, start: int, end: int, lengths: range, good: Callable[[str], bool]
) -> int | None:
    """The end of the longest run of letters and digits from `start` that is `good`: no letter or
    digit follows, and separators count for nothing."""
    ends = [at + 1 for at in range(start, end) if text[at].isalnum()]
    for length in reversed(lengths):
        if length <= len(ends):
            stop = ends[length - 1]
            after = text[stop : stop + 1]
            if not after.isalnum() and good("".join(filter(str.isalnum, text[start:stop]))):
                return stop
    return None


def _luhn(digits: str) -> bool:
    doubled = "0246813579"
    total = sum(
        int(doubled[int(digit)] if index % 2 else digit)
        for index, digit in enumerate(reversed(digits))
    )
    return total % 10 == 0


def _mod97(text: str) -> bool:
    return int("".join(str(int(char, 36)) for char in text[4:] + text[:4])) % 97 == 1


def _card(text: str, start: int, end: int) -> int | None:
    return _prefix(text, start, end, range(13, 20), _luhn)


def _iban(text: str, start: int, end: int) -> int | None:
    return _prefix(text, start, end, range(15, 35), _mod97)


def _phone(text: str, start: int, end: int) -> int | None:
    found = text[start:end]
    digits = sum(map(str.isdigit, found))
    if found[0] not in "+0(" and (digits < 9 or (found[4:5] == "-" and found[7:8] == "-")):
        return None  # too short to be told from other numbers; or a date
    return end if 7 <= digits <= 15 and not _is_address(found) else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(text: str, start: int, end: int) -> int | None:
    found = text[start:end]
    for candidate in (found, found.partition(".")[0]):  # the end of a sentence may follow
        candidate = candidate.rstrip(":.")
        stop = start + len(candidate)
        # `cafe::babe` is as good an address, and more often code
        if any(map(str.isdigit, candidate)) and _is_address(candidate):
            return None if text[stop : stop + 1].isalnum() else stop
    return None


_SECRETS = (
    _PatternPart(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16384}+"
        r"(?:-----END [A-Z ]{0,30}KEY-----)?",
        ("private key-----",),
    ),
    _PatternPart(r"(?i)\b(?:bearer|basic)\s{1,3}[a-z0-9._~+/=-]{8,4096}", ("bearer", "basic")),
    _PatternPart(r"\beyJ[\w-]{5,4096}\.[\w-]{5,8192}(?:\.[\w-]{0,4096})?", ("eyj",)),
    _PatternPart(
        r"\b[spr]k[-_][\w-]{16,256}|\bgh[pousr]_\w{20,256}|\bgithub_pat_\w{20,256}"
        r"|\bglpat-[\w-]{16,256}|\bxox[abeoprs]-[\w-]{10,256}|\bhf_\w{20,256}",
        ("k-", "k_", "gh", "glpat-", "xox", "hf_"),
    ),
    _PatternPart(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,64}", ("akia", "asia", "aiza")),
    _PatternPart(
        r"(?i)\b(?:api[_-]?key|access[_-]?key|client[_-]?secret|secret|token|passw(?:or)?d)"
        r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;]{8,1024}",
        (":", "="),
    ),
)

BUILTIN_RULES: dict[str, _BuiltinRule] = {
    "email": _BuiltinRule(
        (_PatternPart(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", ("@",)),),
        "e-mail addresses",
    ),
    "phone": _BuiltinRule(
        (
            _PatternPart(
                r"(?<![\w+])(?:\+|00)\d{1,3}[ ().\-/]{0,3}(?:\d[ ().\-/]{0,2}){5,12}\d(?!\w)",
                ("+", "00"),
            ),
            _PatternPart(
                r"(?<![\w+])\(?\d{2,5}\)?[ .\-/]{1,2}\d{2,5}[ .\-/]\d{2,5}"
                r"(?:[ .\-/]\d{1,5}){0,2}(?!\w)"
            ),
        ),
        "telephone numbers: with a country code, or national ones of 9 digits and more in groups",
        _phone,
    ),
    "iban": _BuiltinRule(
        (_PatternPart(r"\d{2}(?<=(?<![A-Za-z0-9])[A-Za-z]{2}\d{2})(?:[ \-]?[A-Za-z0-9]){11,30}"),),
        "IBANs whose check digits hold",
        _iban,
        back=2,
    ),
    "credit_card": _BuiltinRule(
        (_PatternPart(r"(?<!\d)[2-6](?:[ \-]?\d){12,18}"),),
        "card numbers of 13 to 19 digits that pass Luhn's check",
        _card,
    ),
    "ip": _BuiltinRule(
        (
            _PatternPart(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)", (".",)),
            _PatternPart(r"(?<![\w:])[0-9A-Fa-f]{0,4}+:[0-9A-Fa-f:.]{2,40}", (":",)),
        ),
        "IPv4 and IPv6 addresses",
        _address,
    ),
    "secret": _BuiltinRule(
        _SECRETS,
        "bearer tokens, JWTs, private keys, API keys of known forms, `password: …` and the like",
    ),
}


# A pattern is unrolled when it is compiled: a{1000} in a{1000} takes a second, one more a gigabyte.
_MAX_UNROLLED = 100_000
_MAX_TIMEOUTS = 3  # searches that ran out of time before a rule is left alone
REST_SECONDS = 30.0  # for so long; what it applies to is not kept meanwhile
LONG = 4_000  # characters from which on other threads may run during a search (it costs 4 us)

# What matters for that: escapes and sets (to be skipped), groups and counted repeats.
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([()])|\{(\d*),?(\d*)\}", re.DOTALL)


class RedactionError(Exception):
    """A rule could not be applied to a text: `timeout`, `resting` after several, or `error`."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


def _unrolled(pattern: str) -> int:
    """The largest product of counted repeats within one another."""
    most = [1]  # of what is open, by depth
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
            counted = last * max(int(count or 1) for count in (low[:9], high[:9]))
            most[-1] = max(most[-1], counted)
            last = 1
        else:
            last = 1
    return max(most)


def compile_pattern(
    pattern: str, *, any_case: bool = False, most: int = _MAX_UNROLLED
) -> regex.Pattern[str]:
    """ValueError where the pattern is none, is too large, or matches the empty text. `most`
    bounds its unrolled repeats, and so the time that this takes."""
    import regex

    if _unrolled(pattern) > most:
        raise ValueError(f"its repeats multiply to over {most}")
    try:
        found = regex.compile(pattern, regex.IGNORECASE if any_case else 0)
        empty = found.search("", timeout=1.0)
    except (regex.error, OverflowError, RecursionError, TimeoutError) as error:
        raise ValueError(f"no pattern: {error}") from None
    if empty is not None:
        raise ValueError("it matches the empty text, so everywhere")
    return found


class RedactionRule:
    """Finds what is to be replaced. Safe from any thread. Raises ValueError for a bad pattern."""

    def __init__(
        self,
        name: str,
        pattern: str | None,
        replacement: str | None,
        timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        ready = BUILTIN_RULES[name] if pattern is None else None
        self.name = name
        self.replacement = f"[{name}]" if replacement is None else replacement
        parts = ready.parts if ready else (_PatternPart(pattern or ""),)
        self._parts = [(compile_pattern(part.pattern), part.hints) for part in parts]
        self._check: _FindingCheck | None = ready.check if ready else None
        self._back = ready.back if ready else 0
        self._timeout = timeout
        self._monotonic = monotonic
        self._strikes = 0
        self._rests_until = -math.inf

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where it matches, in order and apart. Raises `Unredacted`."""
        start = self._monotonic()
        if start < self._rests_until:
            raise RedactionError(self.name, "resting")
        try:
            found = self._all(text, start + self._timeout)
        except TimeoutError:
            self._strikes += 1
            if self._strikes >= _MAX_TIMEOUTS:
                self._rests_until = self._monotonic() + REST_SECONDS
                self._strikes = _MAX_TIMEOUTS - 1  # then one more is enough
            raise RedactionError(self.name, "timeout") from None
        except Exception:
            raise RedactionError(self.name, "error") from None
        self._strikes = 0
        return found

    def _all(self, text: str, deadline: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        lower = text.lower() if len(self._parts) > 1 or self._parts[0][1] else ""
        for pattern, hints in self._parts:
            if not hints or any(hint in lower for hint in hints):
                found += self._search(pattern, text, deadline)
        if len(self._parts) == 1 or len(found) < 2:
            return found
        found.sort()
        joined = [found[0]]
        for start, end in found[1:]:
            if start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def _search(
        self, pattern: regex.Pattern[str], text: str, deadline: float
    ) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at, size, check = 0, len(text), self._check
        shared = size > LONG
        left = deadline - self._monotonic()
        while at < size:
            if left <= 0:
                raise TimeoutError
            match = pattern.search(text, at, timeout=left, concurrent=shared)
            if match is None:
                break
            start, end = match.span()
            start -= self._back
            stop = end if check is None else check(text, start, end)
            if stop is None or stop <= start:
                at = match.start() + 1
            else:
                found.append((start, stop))
                at = stop
            left = deadline - self._monotonic()
        return found
