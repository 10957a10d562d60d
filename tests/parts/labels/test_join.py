"""Labels in the running agent: what is joined, when, and what the windows say of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.clocks import Clocks
from ragmeter.core.feedback import HUMAN
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.metrics import labelled
from ragmeter.parts.labels import join

from tests.parts.labels.samples import outcomes_of, reported, send
from tests.traces import START, good
from tests.waiting import stop_agent


@contextmanager
def agent(
    folder: Path, start: bool = True, windows: Sequence[str] = ("5m", "1h", "24h"), **feedback: Any
) -> Iterator[EmbeddedAgent]:
    paths = {"path": str(folder / "s.sqlite")}
    tree = {
        "state": paths,
        "windows": windows,
        "segments": ["model"],
        "feedback": feedback,
        "limits": {"min_samples": 1},
        "judge": {"k": [1, 2]},
    }
    running = EmbeddedAgent(load_settings(environ={}, overrides=tree), [], live=False, parts=PARTS)
    if start:
        running.start()
    try:
        yield running
    finally:
        stop_agent(running, 10)


def feed(running: EmbeddedAgent, *numbers: int, **changes: Any) -> None:
    running.accept([good(n, model="a", **changes) for n in numbers], "test")
    running.wait_idle()


def outcomes(running: EmbeddedAgent) -> dict[str, float]:
    with running.lock():
        return outcomes_of(running.counters.items())


def value(
    running: EmbeddedAgent,
    metric: str,
    scorer: str = HUMAN,
    segment: str = "",
    window: str = "24h",
) -> float | None:
    with running.lock():
        found = running.windows.estimate("bot", segment, metric, scorer, window)
    return None if found is None else found.value


def balanced(running: EmbeddedAgent) -> bool:
    """seen == sum of states, for every metric and scorer; and all feedback has an outcome."""
    seen: dict[Any, float] = {}
    received = 0.0
    with running.lock():
        for (name, labels), number in running.counters.items():
            tags = dict(labels)
            sign = {"ragmeter_seen_total": 1, "ragmeter_results_total": -1}.get(name)
            if sign:
                key = (tags["metric"], tags["scorer"])
                seen[key] = seen.get(key, 0) + sign * number
            received += number * (name == "ragmeter_feedback_received_total")
        waiting = {g[0]: g[2] for g in running.gauges()}["ragmeter_feedback_waiting"]
    return not any(seen.values()) and received == sum(outcomes(running).values()) + waiting


def test_labels_are_counted_in_the_windows_of_their_trace(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1, 2, 3)
        send(
            one,
            [
                reported(1, answer={"helpful": True}),
                reported(2, answer={"helpful": False, "source_cited": False}),
                reported(
                    3,
                    passages={
                        "kb-1": {"topically_relevant": True, "evidence_sufficient": False},
                        "kb-2": {"evidence_sufficient": True},
                    },
                ),
            ],
        )
        assert outcomes(one) == {"joined": 3}
        assert value(one, "helpfulness") == 0.5
        assert value(one, "helpfulness", segment="model=a") == 0.5
        assert value(one, "citation_presence") == 0
        assert value(one, "topical_precision_at_k:2") == 1
        assert value(one, "sufficiency_hit_at_k:1") == 0
        assert value(one, "sufficiency_hit_at_k:2") == 1
        # grades 1, 2: (1 + 3/log2 3) / (3 + 1/log2 3)
        assert value(one, "ndcg_at_k:2") == pytest.approx(0.79670757, abs=1e-6)
        with one.lock():
            states = one.windows.states("bot", "", "citation_fabricated", HUMAN, "24h")
            # who was silent on it owes nothing: no `unscored`
            assert states["not_applicable"] == 1
            assert states["unscored"] == states["scored"] == 0
            assert one.windows.count_traces("bot", "", "24h") == 3
        assert balanced(one)


def test_a_repeat_changes_nothing_and_a_correction_takes_back(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1, 2)
        send(
            one,
            [reported(1, at=5, answer={"helpful": True}), reported(2, answer={"helpful": True})],
        )
        send(one, [reported(1, at=5, answer={"helpful": True})])
        send(one, [reported(1, at=3, answer={"helpful": False})])  # an earlier word that came late
        assert value(one, "helpfulness") == 1
        assert outcomes(one) == {"joined": 2, "repeated": 2}
        send(one, [reported(1, at=9, answer={"helpful": False, "incomplete": True})])
        assert value(one, "helpfulness") == 0.5
        assert value(one, "incompleteness") == 1
        with one.lock():
            assert one.windows.states("bot", "", "helpfulness", HUMAN, "1h")["scored"] == 2
        assert balanced(one)


def test_the_order_of_labels_does_not_matter_nor_do_restarts(tmp_path: Path) -> None:
    words = [
        reported(1, at=1, answer={"helpful": True}),
        reported(1, at=2, answer={"helpful": False, "unsupported_claim_present": False}),
        reported(1, at=3, answer={"contradicted_claim_present": True}, probability=0.5),
        reported(2, at=1, passages={"kb-2": {"misleading": True}}),
    ]
    views = []
    for at, order in enumerate(itertools.permutations(words)):
        if at % 6:  # four of the 24 orders, each word first once
            continue
        folder = tmp_path / str(at)
        with agent(folder) as one:
            feed(one, 1, 2)
        for word in random.Random(at).sample([*order, *order], 8):
            with agent(folder) as one:
                send(one, [word])
        with agent(folder) as one, one.lock():
            series = one.windows.series("bot")
            views.append({pair: one.windows.estimate("bot", "", *pair, "24h") for pair in series})
    assert len(views) == 4
    assert all(view == views[0] for view in views)
    assert views[0]["helpfulness", HUMAN].value == 0  # type: ignore[union-attr]


def test_feedback_before_its_trace_waits_for_it_through_a_restart(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1)
        send(one, [reported(7), reported(8)])
        assert outcomes(one) == {}
        feed(one, 7)
        assert outcomes(one) == {"joined": 1}
        assert balanced(one)
    with agent(tmp_path) as one:
        feed(one, 8)
        assert outcomes(one) == {"joined": 2}
        assert value(one, "helpfulness") == 1
        assert balanced(one)


def test_what_finds_no_trace_within_the_horizon_is_unmatched(tmp_path: Path) -> None:
    with agent(tmp_path, windows=["5m", "1h"]) as one:
        feed(one, 1)
        send(one, [reported(404)])
        feed(one, 3_000)
        assert outcomes(one) == {}
        feed(one, 3_900)
        assert outcomes(one) == {"unmatched": 1}
        send(one, [reported(1)])  # forgotten: its horizon has ended
        assert {g[0]: g[2] for g in one.gauges()}["ragmeter_feedback_traces"] == 2
        feed(one, 9_000)
        assert outcomes(one) == {"unmatched": 2}
        assert value(one, "helpfulness", window="1h") is None
        assert balanced(one)


def test_scorers_are_kept_apart_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "MOST_SCORERS", 1)  # and `human`, which always has a place
    with agent(tmp_path) as one:
        feed(one, 1)
        send(one, [reported(1, answer={"helpful": True})])
        send(one, [reported(1, answer={"helpful": False}, scorer="tickets")])
        send(one, [reported(1, answer={"helpful": False}, scorer="third")])
        assert value(one, "helpfulness") == 1
        assert value(one, "helpfulness", "tickets") == 0
        assert value(one, "helpfulness", "third") is None
        assert outcomes(one) == {"joined": 2, "too_many_scorers": 1}
        feed(one, 200_000)  # every window has forgotten the first two: there is room again
        send(one, [reported(200_000, scorer="third")])
        assert value(one, "helpfulness", "third") == 1
        assert balanced(one)


def test_a_label_of_a_trace_that_stands_for_more_weighs_more(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1)
        feed(one, 2, sampling={"probability": 0.5})
        send(one, [reported(1, answer={"helpful": True}), reported(2, answer={"helpful": False})])
        assert value(one, "helpfulness") == pytest.approx(1 / 3)
        send(one, [reported(1, at=1, answer={"helpful": True}, probability=0.25)])
        assert value(one, "helpfulness") == pytest.approx(4 / 6)
        assert balanced(one)


def test_which_trace_is_meant(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1)
        feed(one, 1, service="faq")
        send(one, [reported(1), reported(1, service="bot"), reported(1, at=1, service="nobody")])
        send(one, [reported(1, passages={"elsewhere": {"misleading": True}}, service="bot")])
        assert outcomes(one) == {"ambiguous": 1, "joined": 1, "no_such_passage": 1}
        assert value(one, "helpfulness") == 1
        with one.lock():
            assert one.windows.states("faq", "", "helpfulness", HUMAN, "24h")["scored"] == 0
        assert balanced(one)


def test_canaries_and_late_traces_wait_for_no_labels(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        feed(one, 1, reference={"answer": "x"})
        feed(one, 200_000)
        feed(one, 2)
        assert {g[0]: g[2] for g in one.gauges()}["ragmeter_feedback_traces"] == 1


def test_the_oldest_traces_and_labels_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "MOST_WAITING", 3)
    with agent(tmp_path, traces=2) as one:
        feed(one, 5, 1, 3)
        assert {g[0]: g[2] for g in one.gauges()}["ragmeter_feedback_traces"] == 2
        with one.lock():
            assert one.counters.get("ragmeter_feedback_traces_shed_total") == 1
        send(one, [reported(3), reported(5)])
        assert outcomes(one) == {"joined": 2}
        for number in range(10, 15):  # 1 is the one that was forgotten; these never came
            send(one, [reported(number)])
        assert outcomes(one) == {"joined": 2, "shed": 2}
        feed(one, 12, 13, 14)
        assert outcomes(one)["joined"] > 2
        assert balanced(one)


def test_a_live_label_from_the_future_is_of_now(tmp_path: Path) -> None:
    with agent(tmp_path) as one:
        one._worker._clocks = Clocks(lambda: START + 10)
        feed(one, 1)
        send(one, [reported(1, at=1e8, answer={"helpful": True})], live=True)
        send(one, [reported(1, at=200, answer={"helpful": False})], live=True)
        assert value(one, "helpfulness") == 0


def test_what_no_frame_can_hold_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agent(tmp_path) as one:
        feed(one, 1, 2)
        real = labelled.label_scores

        def broken(passages: Any, answer: Any, *rest: Any) -> Any:
            if answer.helpful is False:
                raise ValueError("a mistake of ours")
            return real(passages, answer, *rest)

        monkeypatch.setattr(join, "label_scores", broken)
        send(one, [reported(1, answer={"helpful": False}), reported(2)])
        assert outcomes(one) == {"internal_error": 1, "joined": 1}
        assert one.fatal is None
        assert balanced(one)
