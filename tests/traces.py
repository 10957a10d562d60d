"""Small traces for tests."""

from __future__ import annotations

import json
from typing import Any

from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.trace import Trace

START = 1_760_000_000.0  # a fixed instant: a test never reads the clock


def trace_dict(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A whole and ordinary trace; keyword arguments replace or add fields."""
    base: dict[str, Any] = {
        "trace_id": f"t{number}",
        "service": "bot",
        "timestamp": START + number,
        "query": "How do I reset my password?",
        "passages": [
            {"id": "kb-1", "text": "Click Forgot password on the login page to reset it."},
            {"id": "kb-2", "text": "Invoices are sent on the first day of each month."},
        ],
        "answer": "Click Forgot password on the login page [1].",
        "status": "ok",
        "timings": {"total": 1.5, "retrieval": 0.1},
    }
    return {**base, **changes}


def trace_line(number: int = 0, **changes: Any) -> bytes:
    return json.dumps(trace_dict(number, **changes)).encode()


def make_trace(number: int = 0, **changes: Any) -> Trace:
    return Trace.model_validate(trace_dict(number, **changes))


def good(number: int = 0, **changes: Any) -> tuple[DecodedTrace, int]:
    item = decode_trace(trace_line(number, **changes), 2**20)
    assert isinstance(item, DecodedTrace)
    return item, number
