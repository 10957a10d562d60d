"""People label traces in both homes: SQLite and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.feedback import PEOPLE, Feedback
from ragmeter.parts.labels.pool import LabelPool

from tests.backends import BACKENDS, Backend, settings_of
from tests.traces import START, trace_line


@pytest.fixture(params=BACKENDS, ids=lambda kind: kind.__name__.lower())
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Backend]]:
    started: list[Backend] = []

    def start(**tree: Any) -> Backend:
        started.append(request.param(settings_of(tmp_path, **tree)))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def verdict(trace_id: str, probability: float, *, grounded: bool) -> Feedback:
    return Feedback.model_validate(
        {
            "trace_id": trace_id,
            "service": "bot",
            "timestamp": START + 500,
            "scorer": PEOPLE,
            "probability": probability,
            "verdict": {"grounded": grounded, "answered": True},
        }
    )


def test_people_label_drawn_traces_also_after_a_restart(build: Callable[..., Backend]) -> None:
    few = {"windows": ["1h"], "limits": {"min_samples": 4}, "models": {"cpu_share": 0}}
    backend = build(**few, sampling={"people": 1})
    backend.feed([trace_line(n, answer="Click it [1]." + "x" * n) for n in range(20)])

    def pool() -> LabelPool:
        (place,) = backend.view.part_places("labels")
        found: LabelPool = place.pool
        return found

    assert pool().state("bot")[2] == 20
    pool().draw("bot", 4)
    backend.restart()
    drawn, of, waiting = pool().state("bot")
    assert (len(drawn), of, waiting) == (4, 4, 0)
    assert {one.probability for one in drawn} == {0.2}
    for number, one in enumerate(drawn):
        assert backend.view.evidence("bot", one.trace_id), "also of traces that are not the worst"
        backend.add_label(verdict(one.trace_id, 0.2, grounded=number > 0))
    assert pool().state("bot")[0] == []

    def estimate() -> Any:
        with backend.view.lock():
            return backend.view.windows.estimate("bot", "", "grounding", "people", "1h")

    found = estimate()
    assert found.samples == 4
    assert found.value == pytest.approx(0.75)
    agreement = pool().agreement("bot")
    assert {row.n for row in agreement if row.scorer == "builtin"} >= {4}
    joined = 'ragmeter_feedback_total{outcome="joined"}'
    assert backend.metrics()[joined] == 4
    backend.restart()
    assert estimate() == found
    assert pool().agreement("bot") == agreement
    backend.feed([trace_line(n) for n in range(20)])
    assert pool().state("bot")[2] == 0, "a trace has one chance"
