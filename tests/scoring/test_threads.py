"""Scoring in other threads: the same scores, in the order in which traces were handed over."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.core.score import ScoreState
from ragmeter.ingest.native import DecodeFailure
from ragmeter.metrics.merged_labels import ranked_passage_keys
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.scoring import threads
from ragmeter.scoring.scorer import Scorer, TraceScores
from ragmeter.scoring.threads import (
    SamplingTerms,
    ScoredSource,
    ScorerThreads,
    ScoringPlan,
    SourceScorer,
    Unscorable,
    start_threads,
)

from tests.traces import make_trace, trace_line
from tests.waiting import PATIENCE, until


def plan(**tree: Any) -> ScoringPlan:
    return ScoringPlan.of(load_settings(environ={}, overrides=tree))


@contextmanager
def running(number: int = 2) -> Iterator[ScorerThreads]:
    made = ScorerThreads(plan(), number)
    try:
        yield made
    finally:
        made.close()


def scored(made: ScorerThreads, bodies: Sequence[bytes]) -> list[ScoredSource]:
    return [one for part in made.submit(bodies, plan().terms) for one in part.result(PATIENCE)]


MIXED: list[dict[str, Any]] = [
    {},
    {"status": "error", "answer": None},
    {"answer": ""},
    {"answer": "Invoices are sent in spring [3]."},
    {"answer": "?!"},
    {"query": None},
    {"passages": None, "missing": {"passages": "resolver_error"}},
    {"passages": [{"id": "a"}]},
    {"sampling": {"probability": 0.25}, "model": "m", "tags": {"tenant": "x", "model": "y"}},
    {"usage": {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5}, "timings": None},
    {"reference": {"answer": "Click it.", "answerable": True, "facts": ["click"]}},
    {"tags": {"ragmeter.canary": "true"}},
    {"history": [{"role": "user", "text": "Hello"}], "answer": "\U0001f600 ok"},
]


def test_scores_of_a_thread_are_those_of_the_trace() -> None:
    """Field by field, with the details, and of canaries as well; of bodies as of traces."""
    scorer = Scorer()
    traces = [make_trace(n, **change) for n, change in enumerate(MIXED)]
    bodies = [trace_line(n, **change) for n, change in enumerate(MIXED)]
    for sources in (bodies, traces):
        ahead = SourceScorer(plan()).score_all(sources, plan().terms)
        for trace, scores in zip(traces, ahead, strict=True):
            assert isinstance(scores, TraceScores)
            assert scorer.draw(scores).trace == scorer.draw(scorer.score_alone(trace)).trace
            assert scores.summary.passages == ranked_passage_keys(trace)
            assert scores.prepared.trace == trace


def test_what_a_thread_did_not_draw_is_computed_when_it_is_drawn_after_all() -> None:
    tree = {"sampling": {"builtin": 0.3}}
    settings = load_settings(environ={}, overrides=tree).sampling
    bodies = [trace_line(n) for n in range(60)]
    ahead = SourceScorer(plan(**tree)).score_all(bodies, SamplingTerms(settings, scale=0.5))
    scorer = Scorer(sampler=Sampler(settings), strata=StratumClassifier())
    computed = late = 0
    for n, scores in enumerate(ahead):
        assert isinstance(scores, TraceScores)
        result, own = scorer.draw(scores).trace, scorer.score(make_trace(n)).trace
        assert result.results == own.results
        computed += scores.builtin is not None
        late += result.results[-1].state is ScoreState.SCORED and scores.builtin is None
    assert 2 < computed < 20
    assert late > 2


def test_an_unreadable_trace_and_one_that_raises_cost_themselves_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    score_alone = Scorer.score_alone

    def faulty(self: Scorer, trace: Any, *rest: Any) -> TraceScores:
        if trace.query == "Raise!":
            raise ValueError("no words")
        return score_alone(self, trace, *rest)

    monkeypatch.setattr(Scorer, "score_alone", faulty)
    with running() as made:
        results = scored(made, [b"{", trace_line(1), trace_line(2, query="Raise!"), trace_line(3)])
    assert [type(one) for one in results] == [DecodeFailure, TraceScores, Unscorable, TraceScores]
    assert results[2] == Unscorable("ValueError('no words')")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_follow_each_other_as_the_traces_do(number: int) -> None:
    bodies = [trace_line(n, **MIXED[n % len(MIXED)]) for n in range(200)]
    with running(number) as made:
        assert scored(made, bodies) == SourceScorer(plan()).score_all(bodies, plan().terms)


def test_threads_that_close_cancel_what_they_have_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, end = threading.Event(), threading.Event()

    def hold(self: SourceScorer, sources: object, terms: object) -> list[ScoredSource]:
        begun.set()
        end.wait(PATIENCE)
        return []

    monkeypatch.setattr(SourceScorer, "score_all", hold)
    made = ScorerThreads(plan(), 1)
    parts = made.submit([trace_line(n) for n in range(100)], plan().terms)
    assert begun.wait(PATIENCE)
    closing = threading.Thread(target=made.close)
    closing.start()
    until(parts[-1].cancelled)
    end.set()
    closing.join(PATIENCE)
    assert parts[0].result(PATIENCE) == []
    assert all(part.cancelled() for part in parts[1:])


@pytest.mark.parametrize(("cores", "number"), [(0.5, 0), (1, 0), (1.9, 0), (2, 2), (64, 2)])
def test_one_core_gets_no_threads_and_many_get_two(
    monkeypatch: pytest.MonkeyPatch, cores: float, number: int
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: cores)
    made = start_threads(load_settings(environ={}))
    assert (made._executor._max_workers if made else 0) == number
    if made:
        made.close()
