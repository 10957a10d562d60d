"""Lines as `ragmeter score` writes them, for tests."""

from __future__ import annotations

import json
from typing import Any

from ragmeter.offline.scored_lines import ScoredLine, decode_scored_line

from tests.traces import START

__all__ = ["line_dict", "line_of", "result"]


def result(metric: str, value: float | None = None, **more: Any) -> dict[str, Any]:
    state = {"state": "scored", "value": value} if value is not None else {"state": "unscored"}
    return {"metric": metric, "scorer": "builtin", **state, **more}


def line_dict(number: int = 0, *results: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One scored trace a second from START on; without results: an `error` of 0."""
    return {
        "trace_id": f"t{number}",
        "service": "bot",
        "timestamp": START + number,
        "results": list(results) or [result("error", 0.0)],
        **changes,
    }


def line_of(number: int = 0, *results: dict[str, Any], **changes: Any) -> ScoredLine:
    return decode_scored_line(json.dumps(line_dict(number, *results, **changes)).encode(), 2**20)
