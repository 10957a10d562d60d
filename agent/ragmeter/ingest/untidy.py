"""Read native traces whose values have other forms than the schema's and one meaning.

Only a trace that is refused comes here, so that tidy traffic pays nothing. What has no one meaning,
and what would make a number lie, stays refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from ragmeter.trace import Trace, text_id

# An escape of JSON: a pair of surrogates, half of one, or any other.
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89aAbB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})"
    rb"|(?P<half>u[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)
_STATUSES = {
    "ok": "ok",
    "success": "ok",
    "succeeded": "ok",
    "successful": "ok",
    "completed": "ok",
    "error": "error",
    "failed": "error",
    "failure": "error",
    "exception": "error",
    "timeout": "timeout",
    "timed_out": "timeout",
    "timedout": "timeout",
    "deadline_exceeded": "timeout",
}
_NUMBER = re.compile(r"\s*\d{15,19}\s*")
# A Unix time in milliseconds is smaller until the year 5138, one in microseconds likewise.
_MIN_MICROSECONDS = 10**14
_MIN_NANOSECONDS = 10**17
_PASSAGE_TEXTS = ("text", "content", "page_content", "pageContent", "chunk", "passage", "snippet")
_PASSAGE_IDS = ("id", "_id", "id_", "chunk_id", "passage_id", "doc_id", "document_id")
_ORIGINS = ("source", "url", "title", "file_name", "filename", "rel_path")
_MAX_DEPTH = 4  # of lists in lists


def read_untidy(line: bytes) -> Trace | None:
    """Read a refused line in the forms of the schema, None where it is no trace in these, either.

    Half a pair of surrogates, which no text can hold, becomes a replacement character.
    """
    try:
        item = from_json(replace_half_pairs(line), allow_inf_nan=True)
    except ValueError:
        return None
    return validate_untidy(item) if isinstance(item, dict) else None


def validate_untidy(item: Mapping[str, Any]) -> Trace | None:
    """Return the trace of refused fields, in the forms of the schema; None where it is none."""
    try:
        return Trace.model_validate(_tidied(item))
    except ValidationError:
        return None


def replace_half_pairs(line: bytes) -> bytes:
    """Replace the escapes of JSON that are half a pair of surrogates."""
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found["half"] else found[0], line)


def _tidied(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a trace in the forms of the schema, as far as each has one meaning."""
    tidied = {name: value for name, value in item.items() if value is not None}
    if "timestamp" in tidied:
        tidied["timestamp"] = _seconds(tidied["timestamp"])
    status = tidied.get("status")
    if isinstance(status, str):
        tidied["status"] = _STATUSES.get(status.strip().lower().replace(" ", "_"), status)
    if "passages" in tidied:
        tidied["passages"] = _passages(tidied["passages"])
    return tidied


def _seconds(value: Any) -> Any:
    """Return a Unix time in micro- or nanoseconds in seconds, any other value as it is."""
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int):
        return value
    if number >= _MIN_NANOSECONDS:
        number //= 1_000
    return number / 10**6 if number >= _MIN_MICROSECONDS else value


def _passages(value: Any) -> Any:
    """Return a list of passages that are objects with an id, where a value can be such a list."""
    if isinstance(value, dict) and ("id" in value or _text(value) is not None):
        value = [value]
    if not isinstance(value, list):
        return value
    for _ in range(_MAX_DEPTH):
        if not any(isinstance(one, list) for one in value):
            break
        value = [inner for one in value for inner in (one if isinstance(one, list) else [one])]
    return [_passage(one) for one in value]


def _passage(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return {"id": text_id(value), "text": value}
    if not isinstance(value, dict):
        return value
    text = _text(value)
    identity = next((value[key] for key in _PASSAGE_IDS if value.get(key) not in (None, "")), None)
    if identity is None and text is not None:
        identity = text_id(text)
    origins = {key: value[key] for key in _ORIGINS if isinstance(value.get(key), str)}
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        origins |= metadata
    passage = {**value, "metadata": origins or metadata}
    if identity is not None:
        passage["id"] = identity
    if text is not None:
        passage["text"] = text
    return passage


def _text(passage: Mapping[str, Any]) -> str | None:
    texts = (passage.get(key) for key in _PASSAGE_TEXTS)
    return next((text for text in texts if isinstance(text, str)), None)
