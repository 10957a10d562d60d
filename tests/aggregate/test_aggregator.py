from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.series import CONFIRMING_SCORES
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

from tests.traces import START, make_trace

SCORER = Scorer()


def aggregator(**changes: Any) -> Aggregator:
    settings = load_settings(environ={}, overrides=changes)
    return Aggregator(settings, [], SCORER.pairs, parts=PARTS)


def apply(to: Aggregator, traces: list[Trace]) -> None:
    for trace in traces:
        to.apply(SCORER.score(trace).trace)
    to.settle()


text = st.one_of(st.none(), st.just(""), st.text(max_size=40), st.just("It is 5 [1]. Or not [9]."))
traces = st.builds(
    make_trace,
    st.integers(0, 10**6),
    service=st.sampled_from(["a", "b", "c", "\x00", "x" * 300]),
    timestamp=st.floats(START - 200_000, START + 200_000),
    query=text,
    answer=text,
    passages=st.one_of(
        st.none(), st.just([]), st.just([{"id": "p"}]), st.just([{"id": "p", "text": "It is 5."}])
    ),
    status=st.sampled_from(["ok", "error", "timeout"]),
    abstained=st.sampled_from([None, True, False]),
    timings=st.one_of(st.none(), st.dictionaries(st.text(max_size=5), st.floats(0, 1e9))),
    sampling=st.one_of(st.none(), st.builds(lambda p: {"probability": p}, st.floats(1e-9, 1))),
    model=st.one_of(st.none(), st.text(max_size=5)),
    reference=st.sampled_from([None, None, {"answer": "It is 5."}]),
)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(traces, max_size=25))
def test_seen_is_the_sum_of_the_states_whatever_comes(found: list[Trace]) -> None:
    one = aggregator(segments=["model"], limits={"services": 3})
    apply(one, found)
    seen: Counter[tuple[str, str]] = Counter()
    states: Counter[tuple[str, str]] = Counter()
    for (name, labels), value in one.counters.items():
        tags = dict(labels)
        if name == "ragmeter_seen_total":
            seen[tags["metric"], tags["scorer"]] += int(value)
        elif name == "ragmeter_results_total":
            states[tags["metric"], tags["scorer"]] += int(value)
    assert states == seen
    canaries = sum(trace.reference is not None for trace in found)
    for (_, scorer), number in seen.items():
        of_canaries = is_canary_scorer(scorer)
        assert number == (canaries if of_canaries else len(found) - canaries)
    for service in one.windows.services():
        for window in one.windows.names:
            traffic = one.windows.count_traces(service, "", window)
            asked = set()
            for metric, scorer in one.windows.series(service):
                states_of = one.windows.states(service, "", metric, scorer, window)
                if is_canary_scorer(scorer):
                    asked.add(sum(states_of.values()))
                else:
                    assert sum(states_of.values()) == traffic
            assert len(asked) <= 1  # each canary has a result of each of its metrics


def labels(**pairs: str) -> tuple[tuple[str, str], ...]:
    return tuple(pairs.items())


def test_guesses_are_counted_by_field() -> None:
    one = aggregator()
    guessed = {"query": "user_message", "model": "requested_model", "answer": "made up", "x": "y"}
    apply(one, [make_trace(1, guessed=guessed), make_trace(2, guessed={"query": "user_message"})])
    apply(one, [make_trace(3)])
    found = {
        dict(key[1])["field"]: number
        for key, number in one.counters.items()
        if key[0] == "rag_guessed_fields_total"
    }
    assert found == {"query": 2, "model": 1}


def test_tokens_cost_and_status_are_counted_as_they_are() -> None:
    one = aggregator()
    usage = {"input_tokens": 100, "output_tokens": 7, "cost_usd": 0.5}
    apply(one, [make_trace(n, usage=usage, sampling={"probability": 0.5}) for n in range(4)])
    assert one.counters.get("rag_tokens_total", labels(service="bot", direction="input")) == 400
    assert one.counters.get("rag_cost_usd_total", labels(service="bot")) == 2
    assert one.counters.get("rag_requests_total", labels(service="bot", status="ok")) == 4


def test_the_histogram_holds_each_duration_once_with_its_trace() -> None:
    one = aggregator()
    apply(one, [make_trace(n, timings={"total": t}) for n, t in enumerate([0.01, 0.5, 0.51, 99])])
    counts = {
        dict(key)["le"]: value
        for (name, key), value in one.counters.items()
        if name == "rag_request_duration_seconds_bucket"
    }
    assert counts == {"0.05": 1, "0.5": 1, "0.75": 1, "+Inf": 1}
    exemplars = {dict(key[1])["le"]: item.trace_id for key, item in one.counters.exemplars.items()}
    assert exemplars["+Inf"] == "t3"


def test_segments_are_kept_beside_the_whole() -> None:
    one = aggregator(segments=["model", "tenant"])
    apply(one, [make_trace(n, model="ab"[n % 2], tags={"tenant": "x"}) for n in range(10)])
    assert one.windows.segments("bot") == ["model=a", "model=b", "tenant=x"]
    assert one.windows.count_traces("bot", "model=a", "5m") == 5
    assert one.windows.count_traces("bot", "", "5m") == 10


def test_state_survives_dump_and_load() -> None:
    one = aggregator(segments=["model"])
    apply(one, [make_trace(n, model="m") for n in range(50)])
    saved = one.changes()
    again = aggregator(segments=["model"])
    again.restore(saved.buckets, [], saved.meta)
    kept = again.changes().meta
    assert kept == {name: saved.meta[name] for name in kept}
    assert {"labels", "fingerprints", "next_step"} <= kept.keys()
    assert again.windows.now == one.windows.now


@pytest.mark.slow
def test_two_weeks_of_charts_survive_a_restart() -> None:
    hourly = load_settings(environ={}, overrides={"alerts": {"evaluation_seconds": 3600}})

    def restart(old: Aggregator) -> Aggregator:
        for row in (changes := old.changes()).buckets:
            rows[row[:4]] = row
        again = Aggregator(hourly, [], SCORER.pairs, parts=PARTS)
        kept = [row for row in rows.values() if row[4] is not None]
        again.restore(kept, [], changes.meta)
        return again

    rows: dict[Any, Any] = {}
    one = Aggregator(hourly, [], SCORER.pairs, parts=PARTS)
    for n in range(16 * 24):
        scored = SCORER.score(make_trace(n)).trace
        one.apply(scored._replace(timestamp=scored.timestamp + 3600.0 * n))
        if n % 100 == 50:
            one = restart(one)
    points = one.windows.history("bot", "", "error", "builtin", "14d")
    assert sum(point.samples for _, point in points if point) in range(13 * 24, 14 * 24 + 1)


OUTAGE = {
    "rules": [
        {
            "name": "Errors",
            "severity": "critical",
            "metric": "error",
            "statistic": "lower",
            "op": ">",
            "threshold": 0.2,
            "window": "5m",
            "for": "1m",
        }
    ]
}


@cache
def story() -> list[ScoredTrace]:
    """Healthy, then failing, then healthy again: nothing is pending when it begins, and it begins
    before the first bucket expires."""
    found = []
    for n in range(900):
        bad = 60 <= n < 200 and n % 2
        found.append(SCORER.score(make_trace(n, status="error" if bad else "ok")).trace)
    return found


def notified(batches: list[int], look: bool, restart: bool) -> list[tuple[str, str, float]]:
    """What fires and resolves when the story comes in these batches, is looked at, restarted."""
    rules = parse_rules([OUTAGE])
    one = Aggregator(load_settings(environ={}), rules, SCORER.pairs, parts=PARTS)
    moved: list[tuple[str, str, float]] = []
    rows: dict[Any, Any] = {}
    meta: dict[str, Any] = {}
    traces = story()
    for size in [*batches, len(traces)]:
        for scored in traces[:size]:
            moved += [(a.rule, a.state, a.updated_at) for a in one.apply(scored).alerts]
        traces = traces[size:]
        if look:
            one.windows.services()
        if restart:
            changes = one.changes()
            rows |= {row[:4]: row for row in changes.buckets}
            meta |= changes.meta
            for name in changes.forget_meta:
                meta.pop(name, None)
            one = Aggregator(load_settings(environ={}), rules, SCORER.pairs, parts=PARTS)
            one.restore([row for row in rows.values() if row[4] is not None], [], meta)
    return moved


@cache
def told_one_by_one() -> list[tuple[str, str, float]]:
    return notified([1] * 900, look=True, restart=False)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 200), max_size=12), st.booleans(), st.booleans())
def test_alerts_do_not_depend_on_batches_looks_or_restarts(
    batches: list[int], look: bool, restart: bool
) -> None:
    expected = told_one_by_one()
    moved = [(rule, state) for rule, state, _ in expected]
    assert [one for one in moved if one[0] == "Errors"] == [
        ("Errors", "firing"),
        ("Errors", "resolved"),
    ]
    assert ("RagDrift", "firing") in moved
    assert notified(batches, look, restart) == expected


def test_every_change_of_a_judge_over_the_years_has_a_series_of_its_own() -> None:
    one = aggregator(alerts={"evaluation_seconds": 3600})
    for number in range(20):
        at = START + number * 30 * 86_400
        for item in range(CONFIRMING_SCORES):
            one.apply(SCORER.score(make_trace(100 * number + item, timestamp=at)).trace)
            score = Score("relevance", "umbrela", ScoreState.SCORED, 2.0, fingerprint=f"f{number}")
            one.finish(ScoredTrace(f"t{number}", "bot", at, "ok", [score], partial=True))
    one.settle()
    assert one.windows.current_scorer("relevance", "umbrela") == "umbrela@f19"
    key = labels(metric="relevance", scorer="umbrela")
    assert one.counters.get("ragmeter_instrument_changes_total", key) == 19


def test_the_order_in_which_verdicts_come_back_changes_nothing() -> None:
    """A blank answer is 0 without a call, and so without a fingerprint."""
    blank = Score("answered", "judge", ScoreState.SCORED, 0.0)
    failed = Score("answered", "judge", ScoreState.UNSCORED, reason="judge_timeout")
    judged = Score("answered", "judge", ScoreState.SCORED, 1.0, fingerprint="f1")
    found = []
    for order in itertools.permutations((blank, failed, judged)):
        one = aggregator(limits={"min_samples": 1})
        for number in range(3):
            one.apply(SCORER.score(make_trace(number)).trace)
        for score in order:
            one.finish(ScoredTrace("t1", "bot", START, "ok", [replace(score)], partial=True))
        one.settle()
        estimate = one.windows.estimate("bot", "", "answered", "judge", "24h")
        assert estimate is not None
        assert (estimate.value, estimate.samples) == (0.5, 2)
        assert estimate.states["unscored"] == 1
        assert [at.value for at in one.windows.worst("bot", "answered", "judge", "24h")] == [0.0]
        found.append(sorted(one.windows.drain()))
    assert all(rows == found[0] for rows in found)


def test_interleaved_services_are_counted_as_if_one_by_one() -> None:
    found = [
        SCORER.score(
            make_trace(
                number,
                service="zxyz"[number % 4] if number != 30 else "late comer",
                timestamp=START + number / 2,
                model=f"m{number % 2}",
                reference={"answer": "It is 5."} if number == 50 else None,
            )
        ).trace
        for number in range(90)
    ]
    together, single = (aggregator(segments=["model"], limits={"services": 3}) for _ in range(2))
    runs = list(together.apply_all(found))
    names = [arrival.trace.service for run in runs for arrival in run.traces]
    assert names == [arrival.trace.service for one in found for arrival in single.apply(one).traces]
    assert max(len(run.traces) for run in runs) > 8
    changed = together.changes()
    expected = single.changes()
    assert sorted(changed.buckets) == sorted(expected.buckets)
    assert changed.meta == expected.meta
    assert dict(together.counters.items()) == dict(single.counters.items())
