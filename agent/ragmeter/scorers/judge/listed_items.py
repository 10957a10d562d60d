"""Lists of claims, facts or statements: as a judge reads and writes them, and as results show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

# Claims, facts or statements of one call: an answer of a page has some 40.
MAX_LISTED = 60

# Characters of one of them that a judge writes: a sentence of 60 words is one still.
_MAX_ITEM_CHARS = 400

# Characters of one of them, or of a nugget, that a result carries.
MAX_DETAIL_TEXT = 120

# Items of a kind that a result carries: a detail stays below 4 KiB in Latin script.
MAX_SHOWN = 10

_Item = TypeVar("_Item", bound=tuple[Any, ...])  # a text and its labels


def clean_list_item(text: str, subject: str) -> str:
    """Return one item of a list that a judge wrote, on one line.

    Raises:
        ValueError: It is empty or too long.
    """
    line = " ".join(text.split())
    if not any(char.isalnum() for char in line):
        raise ValueError(f"{subject} is empty")
    if len(line) > _MAX_ITEM_CHARS:
        raise ValueError(f"{subject} is too long: at most {_MAX_ITEM_CHARS} characters")
    return line


def number_lines(texts: Sequence[str]) -> str:
    """Return the texts as a numbered list."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def each_once(kind: str, items: Sequence[_Item]) -> list[_Item]:
    """Return each item once, the first `MAX_LISTED`.

    Args:
        kind: What an item is called in an error.
        items: Tuples of a text and its labels.

    Raises:
        ValueError: Equal texts have unequal labels, which is no verdict.
    """
    first: dict[str, _Item] = {}
    for number, item in enumerate(items, 1):
        if first.setdefault(item[0].casefold(), item)[1:] != item[1:]:
            raise ValueError(f"{kind} {number} stands there twice, with other labels")
    return list(first.values())[:MAX_LISTED]


def shown_texts(items: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the texts of the first items, as a result carries them."""
    return [item[0][:MAX_DETAIL_TEXT] for item in items[:MAX_SHOWN]]
