"""Reading the reply of an embeddings server: vectors, or what is wrong with it.

Replies are untrusted: a vector that is none must become a reason, never a similarity.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.judge.replies import Failure, read_failure
from agent.metrics.words import tokens

__all__ = ["MAX_DIMENSIONS", "Embedded", "read_embeddings"]

MAX_DIMENSIONS = 4096
"""Of a vector: more than any model in use gives by default."""

SERVED_CHARS = 200

# llama.cpp's words for a text of more tokens than its batch, which it sends with status 500: it is
# the text that is wrong, and not the server.
TOO_LARGE = re.compile(r"too large to process|physical batch size")


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector for each text, all of one length. `served`: what the server calls its model."""

    vectors: list[list[float]]
    served: str


def read_embeddings(texts: Sequence[str], status: int, body: bytes) -> Embedded | Failure:
    """What a reply says of `texts`."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        reply = None
    if not 200 <= status < 300:
        failure = read_failure(status, reply, body)
        if failure.complaint is not None and TOO_LARGE.search(failure.complaint.message):
            return Failure("too_long", failure.detail)
        return failure
    try:
        vectors = _vectors(reply, len(texts))
    except (ValueError, OverflowError) as error:
        return Failure("malformed", str(error))
    if _one_for_all(texts, vectors):
        return Failure("malformed", "different texts have the same vector")
    served = reply.get("model")
    return Embedded(vectors, served[:SERVED_CHARS] if isinstance(served, str) else "")


def _vectors(reply: Any, number: int) -> list[list[float]]:
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the reply is no list of embeddings")
    by_index = {row.get("index"): row.get("embedding") for row in rows if _numbered(row)}
    if len(rows) != number or set(by_index) != set(range(number)):
        raise ValueError("not one embedding for each text")
    vectors = [_vector(by_index[index]) for index in range(number)]
    if len({len(vector) for vector in vectors}) != 1:
        raise ValueError("embeddings of different lengths")
    return vectors


def _numbered(row: dict[str, Any]) -> bool:
    return type(row.get("index")) is int  # True is no index


def _vector(values: Any) -> list[float]:
    if not isinstance(values, list) or not 2 <= len(values) <= MAX_DIMENSIONS:
        raise ValueError("an embedding is no list of numbers, or too long")
    if not all(type(value) in (int, float) for value in values):
        raise ValueError("an embedding is no list of numbers")
    vector = [float(value) for value in values]
    size = math.hypot(*vector)
    if not math.isfinite(size) or not size:
        raise ValueError("an embedding has no direction")
    return vector


def _one_for_all(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> bool:
    """Texts of different words have one vector: a server that answers anything, or a model that
    cannot read the language. All similarities would be 1."""
    first = tokens(texts[0])
    return any(
        vector == vectors[0] and tokens(text) != first
        for text, vector in zip(texts[1:], vectors[1:], strict=True)
    )
