"""`/api/segments.json`: what may be asked, and that the lock is never held for long."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from ragmeter.config.settings import Settings
from ragmeter.core.durations import main_window
from ragmeter.parts.contract import PageHome
from ragmeter.parts.segments.api import InvalidSegmentsQuery, SegmentsQuery, segments_document
from ragmeter.parts.segments.breakdown import service_breakdown

from tests.exporters.broken_down import fallen
from tests.exporters.fakes import FakeAgent
from tests.exporters.test_web import ask
from tests.tables import each_row


def got(agent: FakeAgent, query: str = "") -> Any:
    answer, body = ask(agent, f"/api/segments.json{query}")
    assert answer.headers["Content-Type"].startswith("application/json")
    return answer.status, json.loads(body)


def test_the_answer_names_the_segment() -> None:
    status, found = got(fallen(), "?service=bot&metric=answered&window=1h")
    assert status == 200
    assert (found["window"], found["segments"]) == ("1h", ["kind"])
    (service,) = found["services"]
    assert (service["service"], service["past"], service["fdr"]) == ("bot", "the rest of 24h", 0.05)
    (series,) = service["series"]
    assert (series["metric"], series["scorer"]) == ("answered", "builtin")
    first = series["tags"][0]["segments"][0]
    assert (first["segment"], first["finding"]) == ("kind=b", "moved, unlike the rest")
    assert first["change"]["upper"] < 0
    assert first["change"]["q"] <= 0.05
    assert first["contribution"]["value"] < 0


def test_without_a_question_all_services_and_metrics() -> None:
    status, found = got(fallen())
    assert status == 200
    assert found["window"] == "1h"
    assert [series["metric"] for series in found["services"][0]["series"]] == [
        "grounding",
        "answered",
    ]


@each_row(
    ("query", "why"),
    [
        ("?window=2h", "window '2h': one of 5m, 1h, 24h is needed"),
        ("?service=nobody", "service 'nobody': no trace of it is in any window"),
        ("?metric=beauty", "metric 'beauty' is not known"),
        ("?against=me", "against: one of before, rest is needed"),
        ("?fdr=0", "fdr: a number between 0 and 1 is needed"),
        ("?fdr=nan", "fdr: a number between 0 and 1 is needed"),
        ("?fdr=much", "fdr: a number between 0 and 1 is needed"),
        ("?windows=1h", "'windows': one of service, metric, window, against, fdr is needed"),
        ("?window=24h&against=before", "bot has no traffic before that window"),
    ],
)
def test_what_cannot_be_answered_is_said(query: str, why: str) -> None:
    assert got(fallen(), query) == (400, {"error": why})


def test_against_the_rest() -> None:
    _, found = got(fallen(), "?against=rest&metric=answered")
    (service,) = found["services"]
    assert service["past"] is None
    rows = {row["segment"]: row for row in service["series"][0]["tags"][0]["segments"]}
    assert rows["kind=b"]["unlike_the_rest"]
    assert rows["kind=b"]["from_rest"]["value"] < 0
    assert rows["kind=b"]["change"] is None


def test_a_long_text_of_a_caller_does_not_come_back() -> None:
    with pytest.raises(InvalidSegmentsQuery) as error:
        SegmentsQuery.parse({"metric": "x" * 10_000})
    assert len(str(error.value)) < 200


def test_the_lock_is_taken_anew_for_each_series() -> None:
    agent = fallen()
    held: list[int] = []

    class Lock:
        def __enter__(self) -> None:
            agent.mutex.acquire()
            held.append(1)

        def __exit__(self, *_: object) -> None:
            agent.mutex.release()

    agent.lock = Lock  # type: ignore[method-assign]
    home = cast(PageHome, agent)
    service_breakdown(home, "bot", "1h")
    assert len(held) >= 4, "the segments, and each of two series"
    assert segments_document(home, Settings(), SegmentsQuery())["services"]


def test_the_usual_window() -> None:
    assert main_window(("5m", "1h", "24h")) == "1h"
    assert main_window(("10m", "2h", "7d")) == "2h"
