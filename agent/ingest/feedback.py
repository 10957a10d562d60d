"""Feedback from JSON: one object, an array, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import ValidationError

from agent.feedback.labels import Feedback
from agent.ingest.bounds import BOM, TooMuch, check_body, utf16, values_over
from agent.ingest.native import MAX_ERRORS, MAX_LISTED, MAX_REASON, Bad, is_object, parse_array

__all__ = ["INVALID", "MAX_BYTES", "MAX_ITEMS", "decode", "decode_one"]

MAX_BYTES = 2**20  # of one feedback: three labels of each of 1,000 passages with long ids
MAX_VALUES = 20_000  # JSON values of one
MAX_ITEMS = 10_000  # of one body: a day of a team of annotators
INVALID = "invalid_feedback"


def decode_one(raw: bytes) -> Feedback | Bad:
    """One JSON object."""
    if len(raw) > MAX_BYTES or values_over(raw, MAX_VALUES):
        why = f"more than {MAX_BYTES} bytes or {MAX_VALUES} JSON values in one feedback"
        return Bad("too_large", (("", why),), b"")
    try:
        return Feedback.model_validate_json(raw)
    except ValidationError as error:
        return _bad(error)


def _bad(error: ValidationError) -> Bad:
    if error.error_count() > MAX_LISTED:
        return Bad(INVALID, (("", f"{error.error_count()} values are wrong"),), b"")
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    reason = "invalid_json" if errors[0]["type"] == "json_invalid" else INVALID
    return Bad(
        reason,
        tuple(
            (".".join(map(str, item["loc"]))[:MAX_REASON], item["msg"][:MAX_REASON])
            for item in errors[:MAX_ERRORS]
        ),
        b"",
    )


def decode(body: bytes) -> Iterator[Feedback | Bad]:
    """Every item of a body; what cannot be read keeps its reason and none of its bytes. Raises
    `TooMuch` before any is given."""
    body = body.strip().removeprefix(BOM).lstrip()
    check_body(body)
    if not body or utf16(body):
        why = "UTF-16 text; send UTF-8" if body else "the body is empty"
        yield Bad("invalid_json" if body else "empty", (("", why),), b"")
        return
    items = parse_array(body)
    if items is None:
        lines = [line.strip() for line in body.splitlines() if line.strip()]
        if len(lines) > 1 and not any(map(is_object, lines)):
            lines = [body]  # one object over several lines
    else:
        lines = [json.dumps(item).encode() for item in items[: MAX_ITEMS + 1]]
    if len(lines) > MAX_ITEMS:
        raise TooMuch(f"more than {MAX_ITEMS} items in one body; send smaller ones")
    for line in lines:
        yield decode_one(line)
