"""Tell what the columns of rows hold, which clients of SQL databases give without their names.

`[(7, "Refunds take five days.", 0.21), ...]`: the text of a passage is the column of sentences, its
id the first column that tells the rows apart, its score the last one of fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.conventions.values import is_embedding, looks_like_json, parse_number

_MAX_COLUMNS = 64
_MIN_WORDS = 4  # of a text, on average: names and titles have two or three
_MAX_ID = 100  # characters


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of rows by what they hold; a question and its answer are two of `texts`."""

    texts: list[int]
    id: int | None
    score: int | None


def name_columns(rows: Sequence[Any]) -> Columns | None:
    """Return what the columns of rows hold, None for rows without texts and any other list.

    Several rows of texts alone may be the documents of several queries: they count as rows only
    where one column has the long texts.
    """
    if not rows or not isinstance(rows[0], list) or not 1 <= len(rows[0]) <= _MAX_COLUMNS:
        return None
    if not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        return None
    columns = [[row[n] for row in rows] for n in range(len(rows[0]))]
    words = [_words(column) for column in columns]
    most = max(words)
    texts = [n for n, count in enumerate(words) if count >= max(most / 2, _MIN_WORDS)]
    typed = any(not isinstance(cell, str) for row in rows for cell in row)
    if not texts or (not typed and (len(texts) > 1 or len(rows) == 1)):
        return None
    others = [n for n in range(len(columns)) if n not in texts]
    if any(isinstance(cell, dict) for n in texts for cell in columns[n]):
        return None
    scores = [n for n in others if all(map(_is_fraction, columns[n]))]
    ids = [n for n in others if n not in scores and _are_ids(columns[n])]
    return Columns(texts, ids[0] if ids else None, scores[-1] if scores else None)


def _words(column: list[Any]) -> float:
    """Return the words of a cell on average, 0 for a column of anything but texts."""
    held = [cell for cell in column if cell is not None]
    if not held or not all(isinstance(cell, str) for cell in held):
        return 0.0
    if any(is_embedding(cell) or looks_like_json(cell) for cell in held):
        return 0.0
    return sum(len(cell.split()) for cell in held) / len(held)


def _is_fraction(cell: Any) -> bool:
    is_number = not isinstance(cell, int) and parse_number(cell) is not None
    return is_number and (isinstance(cell, float) or "." in cell)


def _are_ids(column: list[Any]) -> bool:
    whole = all(isinstance(cell, int | str) and not isinstance(cell, bool) for cell in column)
    texts = [str(cell) for cell in column] if whole else []
    plain = all(0 < len(text) <= _MAX_ID and " " not in text for text in texts)
    return whole and plain and len(set(texts)) == len(texts)
