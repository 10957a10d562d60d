"""Decode feedback from JSON bodies and from files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from pydantic import ValidationError

from ragmeter.core.feedback import Feedback
from ragmeter.ingest.files import GZIP, MAX_ARRAY, named_gzip_errors, open_raw
from ragmeter.ingest.native import (
    BOM,
    BodyLimitExceeded,
    DecodeFailure,
    has_values_over,
    split_body,
)

MAX_BYTES = 2**20  # of one feedback: three labels of each of 1,000 passages with long ids
MAX_ITEMS = 10_000  # of one body: a day of a team of annotators
INVALID = "invalid_feedback"
_MAX_VALUES = 20_000  # JSON values of one feedback


def decode_feedback(raw: bytes) -> Feedback | DecodeFailure:
    """Decode one JSON object; a failure keeps none of its bytes."""
    if len(raw) > MAX_BYTES or has_values_over(raw, _MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {_MAX_VALUES} JSON values in one feedback"
        return DecodeFailure.of_whole("too_large", why, b"")
    try:
        return Feedback.model_validate_json(raw)
    except ValidationError as error:
        return DecodeFailure.of_validation(INVALID, error, b"")


def decode_feedback_body(body: bytes) -> Iterator[Feedback | DecodeFailure]:
    """Decode every item of a body, see `native.split_body`; failures keep none of its bytes.

    Raises:
        BodyLimitExceeded: The body is over a limit; nothing was yielded before.
    """
    items = split_body(body, MAX_ITEMS)
    if isinstance(items, DecodeFailure):
        yield DecodeFailure(items.reason, items.errors, b"")
        return
    for item in items:
        yield decode_feedback(item if isinstance(item, bytes) else json.dumps(item).encode())


def read_feedback(path: Path) -> Iterator[Feedback | DecodeFailure]:
    """Decode every item of a file or of standard input.

    Raises:
        OSError: The file cannot be read, its gzip is broken, or its array is too large.
    """
    try:
        with named_gzip_errors(str(path)), open_raw(path) as raw:
            yield from _read_items(path, raw)
    except BodyLimitExceeded as error:
        raise OSError(f"{path}: {error}; write JSON lines instead") from None


def _read_items(path: Path, raw: IO[bytes]) -> Iterator[Feedback | DecodeFailure]:
    file = raw
    if raw.peek(2)[:2] == GZIP:  # type: ignore[attr-defined]
        file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    line = file.readline(MAX_BYTES + 1)
    if line.lstrip(BOM + b" \t\r\n")[:1] == b"[":
        body = line + file.read(MAX_ARRAY)
        if len(body) > MAX_ARRAY:
            raise OSError(f"{path}: an array over {MAX_ARRAY} bytes; write JSON lines instead")
        yield from decode_feedback_body(body)
        return
    line = line.removeprefix(BOM)
    while line:
        if line.strip():
            yield decode_feedback(line.strip())
        while len(line) > MAX_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_BYTES + 1)  # the rest of a line that was too long
        line = file.readline(MAX_BYTES + 1)
