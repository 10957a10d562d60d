from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from ragmeter.canaries.verdicts import AnswerSimilarity
from ragmeter.trace import Trace

from tests.traces import make_trace


def measured(trace: Trace, reply: Any, status: int = 200) -> float | None:
    def respond(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://e/v1/embeddings"
        assert request.headers["authorization"] == "Bearer k"
        assert json.loads(request.content) == {"model": "m", "input": [trace.answer, "Right."]}
        return httpx.Response(status, json=reply)

    async def main() -> Trace:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as http:
            return await AnswerSimilarity("http://e/v1/", "m", "k", http=http).measure(trace)

    reference = asyncio.run(main()).reference
    return reference.similarity if reference else None


def test_the_similarity_goes_with_the_reference() -> None:
    trace = make_trace(1, reference={"answer": "Right."})
    rows = [{"index": 1, "embedding": [1, 1]}, {"index": 0, "embedding": [1, 0]}]
    assert measured(trace, {"data": rows}) == pytest.approx(0.5**0.5)
    broken: Any
    for broken in ({"data": rows[:1]}, {"data": [{"index": 0}]}, [], {"data": None}):
        assert measured(trace, broken) is None
    assert measured(trace, {"data": rows}, 500) is None


def test_nobody_is_asked_where_there_is_nothing_to_compare() -> None:
    for changes in ({"answer": ""}, {"status": "error"}, {"reference": {"facts": ["x"]}}):
        trace = make_trace(1, **{"reference": {"answer": "Right."}, **changes})
        assert measured(trace, AssertionError) is None


def test_a_failing_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    assert measured(make_trace(1, reference={"answer": "Right."}), {}, 500) is None
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("no embeddings: ")
