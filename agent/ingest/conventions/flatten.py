"""Lists that a sender wrote as `prefix.INDEX.suffix` attributes, read without trusting the index.

An index only orders the items, it never sizes anything: `documents.999999999.id` costs one item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_ITEMS", "has_items", "items"]

MAX_ITEMS = 1_000  # of one list; the largest retrieval seen holds 100 documents
_MAX_DIGITS = 9  # of an index; more is no index that a program wrote


def items(attributes: Mapping[str, Any], prefix: str) -> list[tuple[int, dict[str, Any]]]:
    """The items of the list at `prefix` as (index, {suffix: value}), lowest index first.

    `a.b.0.c.d` under the prefix `a.b` gives `(0, {"c.d": value})`; a value at `a.b.0` itself has
    the suffix "". At most `MAX_ITEMS` with the lowest indexes. A first index above 0 means that
    the sender's limits have cost the items before it.
    """
    start = len(prefix) + 1
    dotted = prefix + "."
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if not key.startswith(dotted):
            continue
        digits, _, suffix = key[start:].partition(".")
        if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
            found.setdefault(int(digits), {})[suffix] = value
    return sorted(found.items())[:MAX_ITEMS]


def has_items(attributes: Mapping[str, Any], prefix: str) -> bool:
    """Whether any key lies below `prefix`."""
    dotted = prefix + "."
    for key in attributes:  # noqa: SIM110 - any() with its generator takes three times as long
        if key.startswith(dotted):
            return True
    return False
