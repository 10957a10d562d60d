"""Short ways to make a trace and to find one of its scores."""

from __future__ import annotations

from typing import Any

from ragmeter.core.score import Score
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.trace import Trace

KB = [
    {
        "id": "kb-1",
        "text": "To reset the password, open Settings and click Forgot password.",
        "rank": 1,
    },
    {"id": "kb-2", "text": "The invoice is sent on the 5th of each month by email.", "rank": 2},
    {
        "id": "kb-3",
        "text": "Refunds take 14 days after the warehouse received the parcel.",
        "rank": 3,
    },
]


def trace(**fields: Any) -> Trace:
    base: dict[str, Any] = {"trace_id": "t", "service": "s", "timestamp": 0}
    base.update({"query": "How do I reset my password?", "passages": KB})
    base.update({"answer": "Open Settings and click Forgot password to reset the password [1]."})
    return Trace.model_validate({**base, **fields})


def score_of(metric: str, **fields: Any) -> Score:
    one = trace(**fields)
    return next(
        s
        for s in score_cheap(PreparedTrace(one)) + score_builtin(PreparedTrace(one))
        if s.metric == metric
    )


def outcome(metric: str, **fields: Any) -> tuple[str, float | None, str | None]:
    """State, value and reason of one metric."""
    score = score_of(metric, **fields)
    return str(score.state), score.value, score.reason
