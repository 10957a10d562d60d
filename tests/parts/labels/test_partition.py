"""Labels in a partition: joined as in the embedded agent, and once, whatever dies in between."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.feedback import Feedback
from ragmeter.core.score import Score
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, encode_score
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import HEAD, row_key
from ragmeter.parts.labels import join
from ragmeter.sampling.sampler import Sampler
from ragmeter.scoring.scorer import Scorer
from ragmeter.store.sqlite import SqliteStore

from tests.kafka.state.partition import (
    SCORER,
    apply,
    commit,
    crashing,
    flat,
    reloaded,
    split_row_key,
    state_of,
)
from tests.parts.labels.samples import decode, label_record, outcomes_of, reported, send
from tests.parts.labels.test_join import agent
from tests.traces import START, good

ONE = {"kafka": {"partitions": 1}, "segments": ["model"], "judge": {"k": [1, 2]}}


def settings_of(**tree: Any) -> Settings:
    return load_settings(environ={}, overrides={**ONE, **tree})


def trace(number: int, offset: int | None = None, **changes: Any) -> bytes:
    """The record of a trace with labels to come."""
    found = good(number, model="a", **changes)[0].trace
    source = SourceOffset(0, number if offset is None else offset)
    return encode_score(ScoreRecord(SCORER.score(found).trace, source))


def label(offset: int, item: Feedback, service: str = "bot") -> bytes:
    return label_record(item, service)


def counted(state: PartitionState) -> dict[str, float]:
    """What became of the feedback."""
    return outcomes_of(state.aggregator.counters.items())


def received(state: PartitionState) -> float:
    return state.aggregator.counters.get("ragmeter_feedback_received_total", (("source", "kafka"),))


def waiting(state: PartitionState) -> float:
    return {gauge[0]: gauge[2] for gauge in state.gauges()}["ragmeter_feedback_waiting"]


def kept(rows: dict[bytes, bytes], kind: str) -> list[str]:
    """The rows of the part of a kind."""
    names = [parts[0] for what, parts in map(split_row_key, rows.keys() - {HEAD}) if what == "m"]
    return [name for name in names if name.startswith(f'labels/["{kind}"')]


def scored(state: PartitionState) -> int:
    """Traces with the label `helpful` in the window."""
    return state.aggregator.windows.states("bot", "", "helpfulness", "human", "24h")["scored"]


def applied(*log: bytes, **tree: Any) -> PartitionState:
    state = state_of(settings_of(**tree))
    apply(state, [decode(data) for data in log])
    return state


def test_a_label_meets_its_trace_in_any_order() -> None:
    yes, no = reported(1), reported(2, answer={"helpful": False})
    first = applied(trace(1), trace(2), label(1, yes), label(2, no))
    last = applied(label(1, yes), label(2, no), trace(1), trace(2))
    mixed = applied(trace(2), label(1, yes), trace(1), label(2, no))
    for state in (first, last, mixed):
        assert counted(state) == {"joined": 2}
        assert (received(state), waiting(state)) == (2, 0)
        assert scored(state) == 2


def test_a_label_of_another_service_waits() -> None:
    state = applied(trace(1), label(1, reported(1), service="shop"))
    assert (counted(state), waiting(state)) == ({}, 1)


def test_a_repetition_is_counted_once_and_a_correction_in_its_place() -> None:
    log = [
        trace(1),
        label(1, reported(1)),
        label(2, reported(1)),
        label(3, reported(1, at=9, answer={"helpful": False})),
    ]
    state = applied(*log)
    assert counted(state) == {"joined": 2, "repeated": 1}
    assert scored(state) == 1


def test_what_waits_too_long_is_unmatched_once_also_after_a_restart() -> None:
    tree = {"windows": ["5m", "1h"]}
    state = state_of(settings_of(**tree))
    rows = dict[bytes, bytes]()
    apply(state, [decode(one) for one in (trace(1), label(1, reported(7)))])
    commit(state, rows)
    again = reloaded(rows, settings=settings_of(**tree))
    assert waiting(again) == 1
    assert not again.changed
    apply(again, [decode(trace(8, timestamp=START + 4000))])
    assert (counted(again), waiting(again)) == ({"unmatched": 1}, 0)
    commit(again, rows)
    third = reloaded(rows, settings=settings_of(**tree))
    apply(third, [decode(trace(7, timestamp=START + 4001))])
    assert (counted(third), received(third)) == ({"unmatched": 1}, 1)
    assert kept(rows, "waiting") == []


def test_a_trace_is_forgotten_after_its_horizon_and_for_want_of_room() -> None:
    tree = {"windows": ["5m", "1h"], "feedback": {"traces": 2}}
    state = applied(*(trace(n, timestamp=START + n) for n in (1, 2, 3)), **tree)
    apply(state, [decode(label(n, reported(n))) for n in (1, 2, 3)])
    assert (counted(state), waiting(state)) == ({"joined": 2}, 1)
    shed = state.aggregator.counters.get("ragmeter_feedback_traces_shed_total")
    assert shed == 1
    rows = dict[bytes, bytes]()
    commit(state, rows)
    apply(state, [decode(trace(4, timestamp=START + 4000))])
    apply(state, [decode(label(9, reported(2, at=5)))])
    assert counted(state) == {"joined": 2, "unmatched": 1}
    commit(state, rows)
    again = reloaded(rows, settings=settings_of(**tree))
    assert again.gauges() == state.gauges()
    assert kept(rows, "trace") == []


def test_a_label_that_cannot_be_counted_takes_no_trace_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(join, "label_scores", fails)
    state = applied(label(1, reported(1)), trace(1), label(2, reported(1)))
    assert (counted(state), received(state), waiting(state)) == ({"internal_error": 2}, 2, 0)
    assert state.aggregator.windows.count_traces("bot", "", "24h") == 1


@cache
def story() -> tuple[list[tuple[str, Any]], list[bytes]]:
    """Two hours of traces and labels, as they come and as the log of the scores has them: late,
    early, corrected, repeated and for nobody."""
    rng = random.Random(3)
    came: list[tuple[str, Any]] = []
    for n in range(160):
        at = START + 45 * n
        came.append(("trace", good(n, model="ab"[n % 2], timestamp=at)[0]))
        if n == 100:  # more for nobody than may wait
            came += [("label", reported(900 + one, at=45 * n)) for one in range(20)]
        for _ in range(rng.choice([0, 1, 1, 2])):
            about = n - rng.choice([0, 0, 1, 5, 40, -2, -30, 500])
            answer = {"helpful": rng.random() < 0.6}
            fields: dict[str, Any] = {"answer": answer, "scorer": rng.choice(["human", "team"])}
            if rng.random() < 0.3:
                fields["passages"] = {"kb-1": {"evidence_sufficient": rng.random() < 0.5}}
            item = reported(about, at=45 * n + rng.choice([0, 0, -60]), **fields)
            came += [("label", item)] * rng.choice([1, 1, 1, 2])
    offsets = {"trace": 0, "label": 0}
    log: list[bytes] = []
    for kind, item in came:
        offset = offsets[kind]
        offsets[kind] += 1
        if kind == "label":
            log.append(label(offset, item))
        else:
            scored = SCORER.score(item.trace).trace
            log.append(encode_score(ScoreRecord(scored, SourceOffset(0, offset))))
    return came, log


TIGHT: dict[str, Any] = {"windows": ["5m", "30m"], "feedback": {"traces": 30}}
FEW_WAITING = 20


def content(rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Rows that depend on the records alone: all but evidence, the control record and alerts."""
    own = {row_key("m", f"labels/{name}") for name in _names(rows)}
    return {
        key: data
        for key, data in rows.items()
        if key in own or (key != HEAD and split_row_key(key)[0] not in "em")
    }


def _names(rows: dict[bytes, bytes]) -> list[str]:
    names = [parts[0] for what, parts in map(split_row_key, rows.keys() - {HEAD}) if what == "m"]
    return [name.removeprefix("labels/") for name in names if name.startswith("labels/")]


def test_crashes_and_redeliveries_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "MOST_WAITING", FEW_WAITING)
    _, records = story()
    settings = settings_of(**TIGHT)
    state = state_of(settings)
    rows = dict[bytes, bytes]()
    apply(state, [decode(data) for data in records])
    flat(state.step(), rows)
    outcomes = counted(state)
    assert min(outcomes[name] for name in ("joined", "repeated", "unmatched", "shed")) > 0, outcomes
    theirs = content(rows)
    for seed in range(3):
        found = crashing(
            random.Random(seed),
            records,
            lambda rows: reloaded(rows, settings=settings),
            sizes=(1, 2, 7, 40),
        )
        ours = content(found)
        assert sorted(ours.keys() ^ theirs.keys()) == [], seed
        assert sorted(key for key in ours if ours[key] != theirs[key]) == [], seed


def test_it_counts_what_the_embedded_agent_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "MOST_WAITING", FEW_WAITING)
    came, log = story()
    state = applied(*log, **TIGHT)
    with agent(tmp_path, windows=TIGHT["windows"], **TIGHT["feedback"]) as one:
        for kind, item in came:
            if kind == "trace":
                one.accept([(item, 0)], "test")
                one.wait_idle()
            else:
                send(one, [item.model_copy(update={"service": "bot"})])
    store = SqliteStore(tmp_path / "s.sqlite")  # a stop saves whole buckets
    saved = store.saved()
    store.close()
    rows = content(commit(state, {}))
    buckets = {
        tuple(parts): d for k, d in rows.items() for w, parts in [split_row_key(k)] if w == "b"
    }
    theirs = {tuple(row[:4]): row[4] for row in saved.buckets}
    assert buckets.keys() == theirs.keys()
    assert [key for key in buckets if buckets[key] != theirs[key]] == []
    assert counted(state) == outcomes_of(saved.counters)


PEOPLE_SCORER = Scorer(people=True)
MODEL_SCORER = Scorer(
    people=True, sampler=Sampler(SamplingSettings()), tiers={"model": [("grounding", "mini")]}
)


def drawn_trace(number: int, *model: Score) -> bytes:
    """The record of a trace that people may be asked about, with a local model's score or not."""
    answer = "Click Forgot password on the login page [1]." if number % 2 else "I don't know."
    found = good(number, answer=answer)[0].trace
    scored = PEOPLE_SCORER.score(found).trace
    scored = scored._replace(results=[*scored.results, *model])
    source = SourceOffset(0, number)
    return encode_score(ScoreRecord(scored, source))


def verdict(number: int, at: int = 1, **labels: Any) -> Feedback:
    return Feedback.model_validate(
        {
            "trace_id": f"t{number}",
            "service": "bot",
            "timestamp": START + at,
            "scorer": "people",
            "probability": 0.5,
            "verdict": labels,
        }
    )


@pytest.mark.parametrize("labels_first", [False, True])
def test_peoples_labels_stand_for_all_traffic(labels_first: bool) -> None:
    traces = [drawn_trace(number) for number in range(24)]
    labels = [
        label(number, verdict(number, answered=bool(number % 2), relevant="cannot_tell"))
        for number in range(12)
    ]
    log = [*labels, *traces] if labels_first else [*traces, *labels]
    people: dict[str, Any] = {
        "settings": settings_of(sampling={"people": 1}),
        "scorer": PEOPLE_SCORER,
    }
    state = state_of(**people)
    rows: dict[bytes, bytes] = {}
    apply(state, [decode(data) for data in log])
    commit(state, rows)
    for one in (state, reloaded(rows, **people)):
        windows = one.aggregator.windows
        states = windows.states("bot", "", "answered", "people", "24h")
        assert (states["scored"], states["sampled_out"]) == (12, 12)
        alone = windows.estimate("bot", "", "answered", "people", "24h")
        assert alone is not None
        assert alone.value == 0.5
        assert windows.states("bot", "", "context_relevancy", "people", "24h")["unscored"] == 12


def test_a_corrected_verdict_takes_the_place_of_the_first() -> None:
    log = [
        drawn_trace(1),
        label(1, verdict(1, grounded="cannot_tell", answered=True)),
        label(2, verdict(1, at=2, grounded=False, answered=True)),
    ]
    state = state_of(settings_of(sampling={"people": 1}), scorer=PEOPLE_SCORER)
    apply(state, [decode(data) for data in log])
    states = state.aggregator.windows.states("bot", "", "grounding", "people", "24h")
    assert {name: number for name, number in states.items() if number} == {"scored": 1}
