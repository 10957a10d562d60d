from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from ragmeter.canaries.client import (
    MAX_REPLY_BYTES,
    CanaryAttempt,
    CanaryClient,
    InvalidRequest,
)
from ragmeter.canaries.suite import CanarySuite
from ragmeter.trace import CANARY, Trace

from tests.canaries.suites import replying, suite
from tests.tables import each_row

REPLY = {
    "data": {"text": "In 14 days [d1]."},
    "docs": [
        {
            "doc": "d1",
            "body": "14 days.",
            "score": 0.5,
            "where": {"file": "a.md", "at": ["A", "B"]},
        },
        {"doc": 7, "body": None, "score": "high"},
        "bare text",
    ],
    "refs": ["d1", {"doc": "d2", "from": 0, "to": 4}, {"from": 1}, None],
    "abstained": False,
    "model": "m-1",
}
PLACES: dict[str, Any] = {
    "answer": "data.text",
    "passages": "docs",
    "passage": {"id": "doc", "text": "body", "rel_path": "where.file", "heading_path": "where.at"},
    "citations": "refs",
    "citation": {"passage_id": "doc", "start": "from", "end": "to"},
}


def asked(suite: CanarySuite, transport: httpx.AsyncBaseTransport, **changes: Any) -> CanaryAttempt:
    async def main() -> CanaryAttempt:
        clock = iter([100.0, 100.25])
        settings: dict[str, Any] = {"seconds": 5.0, "clock": lambda: 1_760_000_000.0, **changes}
        settings.setdefault("monotonic", lambda: next(clock))
        asker = CanaryClient(suite, "http://bot/ask", transport=transport, **settings)
        async with asker:
            return await asker.ask(suite.questions[0])

    return asyncio.run(main())


def trace(document: Any, status: int = 200, **places: Any) -> Trace:
    return asked(suite(response=places), replying(document, status)).trace


def test_a_reply_becomes_a_trace() -> None:
    found = trace(REPLY, **PLACES)
    assert (found.status, found.answer, found.model) == ("ok", "In 14 days [d1].", "m-1")
    assert found.timings == {"total": 0.25}
    assert found.passages is not None
    first, second, third = found.passages
    assert (first.id, first.text, first.rank, first.score) == ("d1", "14 days.", 1, 0.5)
    assert first.metadata == {"rel_path": "a.md", "heading_path": ["A", "B"]}
    assert (second.id, second.text, second.score) == ("7", None, None)
    assert (third.id, third.text) == ("3", "bare text")
    assert found.citations is not None
    assert [(one.start, one.end, one.passage_ids) for one in found.citations] == [
        (None, None, ["d1"]),
        (0, 4, ["d2"]),
    ]
    assert found.reference is not None
    assert found.canary
    assert found.tags == {"question": "a", CANARY: "true"}


def test_the_folders_that_the_service_searched_replace_those_of_the_reference() -> None:
    found = trace({"answer": "x", "searched": ["hr/", "it/"]}, answer="answer", scope="searched")
    assert found.reference is not None
    assert found.reference.scope == ["hr/", "it/"]
    silent = trace({"answer": "x"}, answer="answer", scope="searched").reference
    assert silent is not None
    assert silent.scope is None


def test_other_forms_of_an_answer() -> None:
    plain = replying(b"plain text", 200, **{"content-type": "text/plain"})
    assert asked(suite(response={"answer": "$"}), plain).trace.answer == "plain text"
    assert trace({"answer": ["14 ", "days"]}).answer == "14 days"
    assert trace({"answer": 14}).answer == "14"
    # retrieval that found nothing is not retrieval that nobody tells of
    assert trace({"answer": "x", "passages": []}).passages == []
    assert trace({"answer": "x"}).passages is None


def test_numbers_and_characters_that_no_trace_holds_cost_nothing_else() -> None:
    reply = b'{"answer": "14 \\ud83d days", "passages": [{"id": "a\\udc00", "score": %s}]}'
    for number in (b"NaN", b"-Infinity", b"1e999"):
        found = trace(reply % number)
        assert found.answer == "14 ? days"
        assert found.passages is not None
        assert (found.passages[0].id, found.passages[0].score) == ("a?", None)
        assert Trace.model_validate_json(found.model_dump_json()) == found


def test_passages_that_no_trace_takes_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = trace({"answer": "x", "passages": [{"id": "a"}, {"id": "p" * 600}]})
    assert (found.answer, found.passages) == ("x", None)
    assert [record.getMessage() for record in caplog.records] == [
        "a: only the answer of the reply is used; passages.1.id: String should have at most 512"
        " characters"
    ]


@each_row(
    ("document", "status", "why"),
    [
        ({"reply": "x"}, 200, "the reply has no text at 'answer'; it has reply"),
        ({"answer": None}, 200, "the reply has no text at 'answer'"),
        (b"<html>", 200, "the reply is not JSON"),
        (b"[" * 100_000, 200, "the reply is not JSON"),
        ({"answer": "x"}, 500, "HTTP 500"),
        ({"answer": "x"}, 302, "HTTP 302"),
        (b" " * (MAX_REPLY_BYTES + 1), 200, f"the reply is over {MAX_REPLY_BYTES} bytes"),
    ],
)
def test_what_is_no_answer_is_an_error(document: Any, status: int, why: str) -> None:
    found = trace(document, status)
    assert found.status == "error"
    assert (found.error or "").startswith(why)
    assert found.answer is None
    assert found.reference is not None


def test_a_service_that_is_away_or_slow() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("secret-host:99 refused", request=request)

    found = asked(suite(), httpx.MockTransport(away)).trace
    assert (found.status, found.error) == ("error", "ConnectError")

    async def slow(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    found = asked(suite(), httpx.MockTransport(slow), seconds=0.05).trace
    assert (found.status, found.error) == ("timeout", "no reply within 0.05 s")


def test_the_request() -> None:
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"answer": "x"})

    request = {
        "headers": {"X-Key": "k {{env.KEY}}"},
        "params": {"lang": "{{vars.lang}}"},
        "body": {"messages": "{{history}}", "q": "{{query}}"},
    }
    one = {
        "query": "What is {{env.KEY}}?",
        "history": [{"role": "user", "text": "Hello"}],
        "vars": {"lang": "en"},
        "reference": {"answer": "x"},
    }
    transport = httpx.MockTransport(respond)
    found = asked(suite(one, request=request), transport, token="t0p", environ={"KEY": "s3cret"})
    (sent,) = seen
    assert (sent.method, str(sent.url)) == ("POST", "http://bot/ask?lang=en")
    assert json.loads(sent.content) == {
        "messages": [{"role": "user", "content": "Hello"}],
        "q": "What is {{env.KEY}}?",  # a question gets at no variable
    }
    assert sent.headers["x-key"] == "k s3cret"
    assert sent.headers["authorization"] == "Bearer t0p"
    version, trace_id, _, _ = sent.headers["traceparent"].split("-")
    assert (version, trace_id) == ("00", found.trace.trace_id)
    assert sent.headers["baggage"] == f"{CANARY}=true"
    assert "s3cret" not in found.trace.model_dump_json()

    asked(suite(request={"method": "GET", "params": {"q": "{{query}}"}}), transport)
    assert (seen[1].method, seen[1].content) == ("GET", b"")
    assert seen[1].url.params["q"] == "How long?"


def test_names_that_nobody_gives_are_found_before_anything_is_asked() -> None:
    with pytest.raises(InvalidRequest, match=r"env\.KEY is not set"):
        asked(suite(request={"headers": {"X": "{{env.KEY}}"}}), replying({}))
    with pytest.raises(InvalidRequest, match=r"asks for \{\{vars\.lang\}\}"):
        asked(suite(request={"body": ["{{vars.lang}}"]}), replying({}))


@pytest.mark.parametrize("secret", ["key\nother", "schl\u00fcssel"])
def test_a_header_that_cannot_be_sent_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^X: a header holds printable ASCII only$"):
        asked(suite(request={"headers": {"X": "{{env.K}}"}}), replying({}), environ={"K": secret})
    with pytest.raises(InvalidRequest, match=r"^Authorization: a header holds"):
        asked(suite(), replying({}), token=secret)


def test_a_busy_service_says_when_to_come_back() -> None:
    assert asked(suite(), replying({}, 503, **{"retry-after": "7"})).pause == 7
    assert asked(suite(), replying({}, 429)).pause is None
    assert asked(suite(), replying({}, 500, **{"retry-after": "7"})).pause is None
