"""Index events for tests."""

from __future__ import annotations

import json
from typing import Any

from ragmeter.parts.index.events import IndexEvent

__all__ = ["event", "event_dict", "event_line"]


def event_dict(number: int = 1, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "schema": "ragmeter.index/1",
        "event_id": f"run-{number}",
        "service": "bot",
        "timestamp": 1_790_000_000 + number,
        "index": "kb",
        "index_version": "v1",
        "chunker": "recursive-512",
        "embedding_model": "e5-small",
        "documents": {"processed": 40, "no_chunks": 2},
        "chunks": {"attempted": 100, "embedded": 90, "skipped": {"too_long": 6, "empty": 3}},
        "tokens_per_chunk": {"10": 5, "400": 75, "500": 20},
    }
    return {key: value for key, value in {**fields, **changes}.items() if value is not None}


def event_line(number: int = 1, **changes: Any) -> bytes:
    return json.dumps(event_dict(number, **changes)).encode()


def event(number: int = 1, **changes: Any) -> IndexEvent:
    return IndexEvent.model_validate(event_dict(number, **changes))
