"""Decode feedback from JSON bodies and from files."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from pydantic import ValidationError

from ragmeter.core.feedback import Feedback
from ragmeter.ingest.files import GZIP, MAX_ARRAY, STDIN
from ragmeter.ingest.native import (
    BOM,
    MAX_ERRORS,
    MAX_LISTED,
    MAX_REASON,
    BodyLimitExceeded,
    DecodeFailure,
    check_body_limits,
    has_values_over,
    is_json_object,
    is_utf16,
    parse_json_array,
)

MAX_BYTES = 2**20  # of one feedback: three labels of each of 1,000 passages with long ids
_MAX_VALUES = 20_000  # JSON values of one
MAX_ITEMS = 10_000  # of one body: a day of a team of annotators
INVALID = "invalid_feedback"


def decode_feedback(raw: bytes) -> Feedback | DecodeFailure:
    """One JSON object."""
    if len(raw) > MAX_BYTES or has_values_over(raw, _MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {_MAX_VALUES} JSON values in one feedback"
        return DecodeFailure("too_large", (("", why),), b"")
    try:
        return Feedback.model_validate_json(raw)
    except ValidationError as error:
        return _describe_failure(error)


def _describe_failure(error: ValidationError) -> DecodeFailure:
    if error.error_count() > MAX_LISTED:
        return DecodeFailure(INVALID, (("", f"{error.error_count()} values are wrong"),), b"")
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    reason = "invalid_json" if errors[0]["type"] == "json_invalid" else INVALID
    return DecodeFailure(
        reason,
        tuple(
            (".".join(map(str, item["loc"]))[:MAX_REASON], item["msg"][:MAX_REASON])
            for item in errors[:MAX_ERRORS]
        ),
        b"",
    )


def decode_feedback_body(body: bytes) -> Iterator[Feedback | DecodeFailure]:
    """Every item of a body; what cannot be read keeps its reason and none of its bytes. Raises
    `TooMuch` before any is given."""
    body = body.strip().removeprefix(BOM).lstrip()
    check_body_limits(body)
    if not body or is_utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield DecodeFailure("invalid_json" if body else "empty", (("", why),), b"")
        return
    items = parse_json_array(body)
    if items is None:
        lines = [line.strip() for line in body.splitlines() if line.strip()]
        if len(lines) > 1 and not any(map(is_json_object, lines)):
            lines = [body]  # one object over several lines
    else:
        lines = [json.dumps(item).encode() for item in items[: MAX_ITEMS + 1]]
    if len(lines) > MAX_ITEMS:
        raise BodyLimitExceeded(f"more than {MAX_ITEMS} items in one body; send smaller ones")
    for line in lines:
        yield decode_feedback(line)


def read_feedback(path: Path) -> Iterator[Feedback | DecodeFailure]:
    """Every item. Raises OSError, also for broken gzip and an array that is too large."""
    try:
        with os.fdopen(os.dup(0), "rb") if path == STDIN else path.open("rb") as raw:
            yield from _items(path, cast("IO[bytes]", raw))
    except EOFError:
        raise OSError(f"{path}: the gzip stream is cut off") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise OSError(f"{path}: broken gzip: {error}") from None
    except BodyLimitExceeded as error:
        raise OSError(f"{path}: {error}; write JSON lines instead") from None


def _items(path: Path, raw: IO[bytes]) -> Iterator[Feedback | DecodeFailure]:
    buffered = raw
    if raw.peek(2)[:2] == GZIP:  # type: ignore[attr-defined]
        buffered = cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    first = buffered.readline(MAX_BYTES + 1)
    if first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":
        body = first + buffered.read(MAX_ARRAY)
        if len(body) > MAX_ARRAY:
            raise OSError(f"{path}: an array over {MAX_ARRAY} bytes; write JSON lines instead")
        yield from decode_feedback_body(body)
        return
    line = first.removeprefix(b"\xef\xbb\xbf")
    while line:
        if line.strip():
            yield decode_feedback(line.strip())
        while len(line) > MAX_BYTES and not line.endswith(b"\n"):
            line = buffered.readline(MAX_BYTES + 1)  # the rest of a line that was too long
        line = buffered.readline(MAX_BYTES + 1)
