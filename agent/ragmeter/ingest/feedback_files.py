"""Decode labels, from request bodies and from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from ragmeter.core.feedback import Feedback
from ragmeter.ingest import native
from ragmeter.ingest.files import MAX_ARRAY, input_name, iterate_lines, open_input

MAX_BYTES = 2**20  # of one feedback: three labels of each of 1,000 passages with long ids
MAX_ITEMS = 10_000  # of one body: a day of a team of annotators
INVALID = "invalid_feedback"
_MAX_VALUES = 20_000  # JSON values of one feedback


def decode_feedback(raw: bytes) -> Feedback | native.DecodeFailure:
    """Decode one JSON object; a failure keeps none of its bytes."""
    if len(raw) > MAX_BYTES or native.has_values_over(raw, _MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {_MAX_VALUES} JSON values in one feedback"
        return native.DecodeFailure.of_whole("too_large", why, b"")
    try:
        return Feedback.model_validate_json(raw)
    except ValidationError as error:
        return native.DecodeFailure.of_validation(INVALID, error, b"")


def decode_feedback_body(body: bytes) -> Iterator[Feedback | native.DecodeFailure]:
    """Decode every item of a body, see `native.split_body`; failures keep none of its bytes.

    Raises:
        BodyLimitExceeded: The body is over a limit; nothing was yielded before.
    """
    items = native.split_body(body, MAX_ITEMS)
    if isinstance(items, native.DecodeFailure):
        yield native.DecodeFailure(items.reason, items.errors, b"")
        return
    for item in items:
        yield decode_feedback(item if isinstance(item, bytes) else json.dumps(item).encode())


def read_feedback(path: Path) -> Iterator[Feedback | native.DecodeFailure]:
    """Decode every item of a file or of standard input.

    Raises:
        OSError: The file cannot be read, its gzip is broken, or its array is too large.
    """
    try:
        with open_input(path) as file:
            head: bytes = file.peek(1)  # type: ignore[attr-defined]
            if head.lstrip(native.BOM + b" \t\r\n")[:1] == b"[":
                body = file.read(MAX_ARRAY + 1)
                if len(body) > MAX_ARRAY:
                    raise OSError(
                        f"{path}: an array over {MAX_ARRAY} bytes; write JSON lines instead"
                    )
                yield from decode_feedback_body(body)
                return
            for line, _ in iterate_lines(file, input_name(path), MAX_BYTES):
                yield decode_feedback(line.strip())
    except native.BodyLimitExceeded as error:
        raise OSError(f"{path}: {error}; write JSON lines instead") from None
