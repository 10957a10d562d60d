"""The numbers of a text, and the form that all ways to write one share."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache


def compile_pattern(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    r"""Compile a pattern for any text and for ASCII: choose by `text.isascii()`.

    DIGIT and WORD stand in classes for `\d` and `\w`, whose tables of all Unicode take the engine
    two to three times as long as the ranges of ASCII.
    """
    words = {"DIGIT": (r"\d", "0-9"), "WORD": (r"\w", "A-Za-z0-9_")}
    any_text = ascii_text = pattern
    for name, (wide, narrow) in words.items():
        any_text = any_text.replace(name, wide)
        ascii_text = ascii_text.replace(name, narrow)
    return re.compile(any_text), re.compile(ascii_text)


NUMBER_PATTERN, _ASCII_NUMBER = compile_pattern(
    r"[DIGIT](?<![WORD.].)[DIGIT]{0,14}(?:,[DIGIT]{3}){0,5}(?:\.[DIGIT]{1,10})?(?::[DIGIT]{1,2})?"
    r"(?:\s?[ap]\.?m\b)?"
)


def find_numbers(text: str) -> list[str]:
    """Return the numbers of a lower-case text as they are written."""
    return (_ASCII_NUMBER if text.isascii() else NUMBER_PATTERN).findall(text)


@lru_cache(4_096)  # of at most 60 characters each
def canonical_number(raw: str) -> str:
    """Return the form that all ways to write a number share: "1,000.0" gives "1000".

    A time of day is "t" and its minutes modulo twelve hours: "5:30 pm" and "17:30" are the same.

    Args:
        raw: One of `find_numbers`.
    """
    if not raw.isascii():  # digits of other scripts, full width ones among them
        raw = "".join([str(unicodedata.decimal(c)) if c.isdecimal() else c for c in raw])
    if raw.isdecimal():
        return raw.lstrip("0") or "0"
    form = raw.replace(",", "")
    if ":" in form or form.endswith("m"):
        whole, _, rest = form.rstrip(" apm.").partition(":")
        return f"t{(int(float(whole)) * 60 + int(rest or 0)) % 720}"
    if "." in form:
        return form.rstrip("0").rstrip(".").lstrip("0") or "0"
    return form.lstrip("0") or "0"


def extract_numbers(text: str) -> list[tuple[str, str]]:
    """Return the numbers of a lower-case text as (canonical form, as written)."""
    return [(canonical_number(raw), raw) for raw in find_numbers(text)]
