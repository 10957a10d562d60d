"""The numbers of a text, and the form that all ways to write one share."""

from __future__ import annotations

from ragmeter.metrics import kernel

find_numbers = kernel.find_numbers


def extract_numbers(text: str) -> list[tuple[str, str]]:
    """Return the numbers of a lower-case text as (canonical form, as written)."""
    return [(form, text[start:end]) for start, end, form in find_numbers(text)]
