"""Redaction of attribute values: nested ones, and JSON that is written into a text.

A text that is JSON is opened first. Escapes would hide things from a pattern (`a\\u0040b.com`), and
a replacement in the middle of a number would make the whole unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import from_json

from agent.privacy.patterns import Unredacted

__all__ = ["HIDDEN", "Values"]

HIDDEN = "__REDACTED__"
"""What stands for a text that could not be redacted: conventions take it for hidden content."""

MAX_DEPTH = 24  # of nested values, and of JSON in JSON; deeper is dropped
DIGITS = 9  # of a whole number that is looked at: shorter ones are counts, and tell little

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN = {"b": " ", "f": " ", "n": "\n", "r": "\r", "t": "\t"}


def _unescaped(text: str) -> str:
    """A text with the escapes of JSON resolved."""
    plain = _ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]),
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Values:
    """`redact` gives a text as it may be kept or raises `Unredacted`; `drop` matches names that
    must go, nested ones with dots between."""

    def __init__(self, redact: Callable[[str], str], drop: re.Pattern[str] | None) -> None:
        self._redact = redact
        self._drop = drop

    def attributes(self, values: Mapping[str, Any], *, names: bool = False) -> dict[str, Any]:
        """`names`: they come from whoever uses the application, and are redacted too."""
        found = {}
        for key, value in values.items():
            if self._stays(key):
                kept = self._guarded(key, "") if names else key
                found[str(kept)] = self._guarded(value, key)
        return found

    def text(self, text: str) -> str:
        """A text that is no attribute."""
        try:
            return self._text(text, 0)
        except Unredacted:
            return HIDDEN

    def _stays(self, name: str) -> bool:
        return self._drop is None or self._drop.match(name) is None

    def _guarded(self, value: Any, name: str) -> Any:
        try:
            return self._value(value, name, 0)
        except Unredacted:
            return HIDDEN

    def _value(self, value: Any, name: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, depth, name)
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            written = str(value) if abs(value) >= 10**DIGITS // 10 else ""
            found = self._redact(written) if written else written
            return value if found == written else found
        if depth >= MAX_DEPTH:
            return None
        if isinstance(value, dict):
            return {
                self._redact(str(key)): self._value(item, f"{name}.{key}", depth + 1)
                for key, item in value.items()
                if self._stays(f"{name}.{key}") and self._stays(str(key))
            }
        if isinstance(value, list | tuple):
            return [self._value(item, name, depth + 1) for item in value]
        return self._redact(str(value))

    def _text(self, text: str, depth: int, name: str = "") -> str:
        if not text:
            return text
        head = text.lstrip()[:1]
        if head in '{["' and head and depth < MAX_DEPTH:
            try:
                opened = from_json(text)
            except ValueError:
                opened = None
            if isinstance(opened, dict | list | str):
                found = self._value(opened, name, depth + 1)
                return text if found == opened else _written(found)
        plain = self._redact(text)
        if "\\" in plain:  # JSON that was cut still has its escapes
            opened_text = _unescaped(plain)
            found_text = self._redact(opened_text)
            if found_text != opened_text:
                return found_text
        return plain


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
