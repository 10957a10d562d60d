"""The score half learns from the traffic."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.contract import Arrival
from ragmeter.parts.control.traffic import (
    LOW_METRICS,
    MAX_VALUES,
    MIN_TRACES,
    REVISE_SECONDS,
    ControlLearner,
    ControlState,
    ServiceTraffic,
)

HOUR = 3600.0


def trace(at: float, grounding: float | None = None, **tags: str) -> ScoredTrace:
    results = []
    if grounding is not None:
        results.append(Score("grounding", "builtin", ScoreState.SCORED, grounding))
    return ScoredTrace("t", "bot", at, "ok", results, tags=tags)


ROWS = TypeAdapter(dict[str, ControlState | None])


def observe(
    learner: ControlLearner,
    scored: ScoredTrace,
    service: str = "bot",
    segments: Sequence[str] = (),
    turn: int = 0,
) -> None:
    learner.observe([Arrival(scored._replace(service=service), tuple(segments), service)], turn)


def changes(learner: ControlLearner) -> dict[str, ControlState | None]:
    """The rows that changed, through JSON."""
    return ROWS.validate_json(ROWS.dump_json(learner.changes()))


def restored(rows: dict[str, ControlState | None], *low: str) -> ControlLearner:
    learner = ControlLearner(low or LOW_METRICS)
    learner.restore({name: row for name, row in rows.items() if row is not None})
    return learner


def taught(number: int = 2000, low_share: float = 0.2) -> ControlLearner:
    rng = random.Random(1)
    learner = ControlLearner(["grounding"], low_share)
    for n in range(number):
        tenant = "small" if n % 100 == 0 else "large"
        observe(learner, trace(n, rng.betavariate(8, 2)), "bot", [f"tenant={tenant}"])
    observe(learner, trace(2 * HOUR, 1.0), "bot")
    return learner


@pytest.mark.parametrize("low_share", [0.1, 0.2, 0.5])
def test_the_low_cut_is_a_quantile_of_the_cheap_score(low_share: float) -> None:
    cut = taught(low_share=low_share).record.low["bot"]["grounding"]
    rng = random.Random(2)
    below = sum(rng.betavariate(8, 2) < cut for _ in range(20_000)) / 20_000
    assert below == pytest.approx(low_share, abs=0.03)


def test_the_share_is_divided_by_the_metrics() -> None:
    learner = ControlLearner(["grounding", "relevance"], 0.4)
    for n in range(1000):
        observe(learner, trace(0, n / 1000), "bot")
    observe(learner, trace(2 * HOUR), "bot")
    assert learner.record.low["bot"]["grounding"] == pytest.approx(0.2, abs=0.006)


def test_little_traffic_says_nothing() -> None:
    record = taught(MIN_TRACES - 10).record
    assert (record.low, record.rare) == ({}, {})


def test_of_a_score_that_is_mostly_the_worst_nothing_is_low() -> None:
    learner = ControlLearner(["grounding"])
    for n in range(1000):
        observe(learner, trace(0, float(n % 3 == 0)), "bot")
    observe(learner, trace(2 * HOUR), "bot")
    assert learner.record.low == {}


def test_a_segment_with_little_traffic_is_rare() -> None:
    assert taught().record.rare == {"bot": ["tenant=small"]}


def test_a_record_comes_hourly_and_at_once_when_a_version_appears() -> None:
    learner = ControlLearner()
    changed = []
    for n in range(8000):
        before = learner.record
        observe(learner, trace(float(n)), "bot")
        if learner.record is not before:
            changed.append(n)
    assert changed == [0, int(REVISE_SECONDS), 2 * int(REVISE_SECONDS)]
    before = learner.record
    observe(learner, trace(8000.0, model="x"), "bot")
    after = learner.record
    assert after.version == before.version + 1
    assert after.first["bot"] == {"": 0.0, "model=x": 8000.0}
    observe(learner, trace(8001.0, model="x"), "bot")
    assert learner.record is after


def test_a_record_holds_from_the_turn_after_the_one_it_was_learned_in() -> None:
    learner = ControlLearner()
    observe(learner, trace(0.0), "bot", turn=3)
    observe(learner, trace(1.0, model="x"), "bot", turn=3)
    assert learner.at(3).version == 0
    assert learner.at(4) is learner.record
    assert learner.record.version == 2
    observe(learner, trace(2.0, model="y"), "bot", turn=4)
    assert learner.at(4).version == 2
    assert learner.at(5).version == 3


def test_the_versions_longest_unseen_are_forgotten() -> None:
    learner = ControlLearner()
    for n in range(MAX_VALUES + 10):
        observe(learner, trace(float(n), model=f"m{n}"), "bot")
        observe(learner, trace(float(n), model="m0"), "bot")
    first = learner.record.first["bot"]
    assert len(first) == MAX_VALUES + 1
    assert {"", "model=m0", f"model=m{MAX_VALUES + 9}"} <= first.keys()
    assert "model=m1" not in first


def test_a_restart_changes_nothing() -> None:
    learner = taught()
    rows = changes(learner)
    assert sorted(rows) == ["record", "service/bot"]
    other = restored(rows, "grounding")
    assert other.record == learner.record
    assert learner.changes() == {}
    for one in (learner, other):
        for n in range(3000):
            observe(one, trace(2 * HOUR + 4 * n, n % 7 / 7, model="new"), "bot", ["tenant=new"])
    assert ROWS.dump_json(other.changes()) == ROWS.dump_json(learner.changes())


def test_old_counts_fade() -> None:
    learner = ControlLearner(["grounding"])
    for value, number in ((0.9, 15_000), (0.3, 60_000)):
        ten = [Arrival(trace(0, value - n / 100), (), "bot") for n in range(10)]
        learner.observe(ten * (number // 10))
    observe(learner, trace(2 * HOUR), "bot")
    assert 0.2 < learner.record.low["bot"]["grounding"] < 0.31


def test_how_traces_are_divided_changes_nothing() -> None:
    rng = random.Random(3)
    arrivals = []
    for n in range(25_000):
        service = rng.choice(["bot", "bot", "desk"])
        one = trace(3.0 * n, rng.random(), model=f"m{n // 900}")._replace(service=service)
        arrivals.append(Arrival(one, (f"tenant={n % 50}",), service))

    def divided(size: int) -> bytes:
        learner = ControlLearner(["grounding"])
        for first in range(0, len(arrivals), size):
            learner.observe(arrivals[first : first + size])
        return ROWS.dump_json(learner.changes())

    whole = divided(1)
    for size in (7, 400, 5000):
        assert divided(size) == whole, size


def test_a_service_that_is_gone_leaves_nothing() -> None:
    learner = ControlLearner()
    rows: dict[str, ControlState | None] = {}
    for n, name in enumerate(("a", "b", "c")):
        for _ in range(n + 1):
            observe(learner, trace(float(n)), name)
        rows |= changes(learner)
        learner.retain(["b", "c"])
    rows |= changes(learner)
    assert rows["service/a"] is None
    other = restored(rows)
    observe(other, trace(9.0), "c")
    row = other.changes()["service/c"]
    assert isinstance(row, ServiceTraffic)
    assert row.traces == 4
