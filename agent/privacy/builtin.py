"""Ready-made rules: a pattern for what looks like it, and a check that says how much of it is.

Every repeat is bounded, so that no text makes a search long. A check is given the text and where a
candidate begins and ends, and says where the finding ends, or nothing: the digits of a card often
go on with those of its expiry date.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BUILTIN", "Check", "Part", "Ready"]

Check = Callable[[str, int, int], int | None]


@dataclass(frozen=True, slots=True)
class Part:
    """A pattern of a rule. A text without any of the `hints`, in lower case, is not searched."""

    pattern: str
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Several plain patterns are searched far more quickly than one with alternatives. A finding
    begins `back` characters before its match: so a pattern may begin with what is rare. `meaning`
    is for the documents."""

    parts: tuple[Part, ...]
    meaning: str
    check: Check | None = None
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
    Part(
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16384}+"
        r"(?:-----END [A-Z ]{0,30}KEY-----)?",
        ("private key-----",),
    ),
    Part(r"(?i)\b(?:bearer|basic)\s{1,3}[a-z0-9._~+/=-]{8,4096}", ("bearer", "basic")),
    Part(r"\beyJ[\w-]{5,4096}\.[\w-]{5,8192}(?:\.[\w-]{0,4096})?", ("eyj",)),
    Part(
        r"\b[spr]k[-_][\w-]{16,256}|\bgh[pousr]_\w{20,256}|\bgithub_pat_\w{20,256}"
        r"|\bglpat-[\w-]{16,256}|\bxox[abeoprs]-[\w-]{10,256}|\bhf_\w{20,256}",
        ("k-", "k_", "gh", "glpat-", "xox", "hf_"),
    ),
    Part(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,64}", ("akia", "asia", "aiza")),
    Part(
        r"(?i)\b(?:api[_-]?key|access[_-]?key|client[_-]?secret|secret|token|passw(?:or)?d)"
        r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;]{8,1024}",
        (":", "="),
    ),
)

BUILTIN: dict[str, Ready] = {
    "email": Ready(
        (Part(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}", ("@",)),),
        "e-mail addresses",
    ),
    "phone": Ready(
        (
            Part(
                r"(?<![\w+])(?:\+|00)\d{1,3}[ ().\-/]{0,3}(?:\d[ ().\-/]{0,2}){5,12}\d(?!\w)",
                ("+", "00"),
            ),
            Part(
                r"(?<![\w+])\(?\d{2,5}\)?[ .\-/]{1,2}\d{2,5}[ .\-/]\d{2,5}"
                r"(?:[ .\-/]\d{1,5}){0,2}(?!\w)"
            ),
        ),
        "telephone numbers: with a country code, or national ones of 9 digits and more in groups",
        _phone,
    ),
    "iban": Ready(
        (Part(r"\d{2}(?<=(?<![A-Za-z0-9])[A-Za-z]{2}\d{2})(?:[ \-]?[A-Za-z0-9]){11,30}"),),
        "IBANs whose check digits hold",
        _iban,
        back=2,
    ),
    "credit_card": Ready(
        (Part(r"(?<!\d)[2-6](?:[ \-]?\d){12,18}"),),
        "card numbers of 13 to 19 digits that pass Luhn's check",
        _card,
    ),
    "ip": Ready(
        (
            Part(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)", (".",)),
            Part(r"(?<![\w:])[0-9A-Fa-f]{0,4}+:[0-9A-Fa-f:.]{2,40}", (":",)),
        ),
        "IPv4 and IPv6 addresses",
        _address,
    ),
    "secret": Ready(
        _SECRETS,
        "bearer tokens, JWTs, private keys, API keys of known forms, `password: …` and the like",
    ),
}
