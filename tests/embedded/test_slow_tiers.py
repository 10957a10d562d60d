"""The second stage with tiers made for the test: nothing lost, nothing twice, nothing delayed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.scoring import JudgeBudgetSettings
from ragmeter.config.settings import Settings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.tier_draws import TierDraws
from ragmeter.parts.views import Incident
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.scoring.scorer import CheapScores
from ragmeter.scoring.slow_tiers import SlowTiers
from ragmeter.store.rows import OutboxItem, QueuedTrace, TierDraw
from ragmeter.trace import Trace
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.traces import START, good
from tests.waiting import PATIENCE, accept_in_turn, stop_agent, until

JUDGED: tuple[MetricScorer, ...] = (("relevance", "umbrela"), ("answered", "judge"))


class Fake:
    """A judge that gives grade 2, after `before` has let it."""

    tier: Tier = "judge"
    pairs: Sequence[MetricScorer] = JUDGED

    def __init__(self, before: Callable[[Trace], Any] = lambda trace: None) -> None:
        self.before = before
        self.asked: list[str] = []
        self.fingerprint = "f1"

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        self.asked.append(trace.trace_id)
        waited = self.before(trace)
        if waited is not None:
            await waited
        cost.requests += 2
        return [
            Score("relevance", "umbrela", ScoreState.SCORED, 2.0, fingerprint=self.fingerprint),
            Score("answered", "judge", ScoreState.UNSCORED, reason="judge_timeout"),
        ]


def settings(folder: Path, **limits: Any) -> Settings:
    tree = {
        "state": {"path": str(folder / "s.sqlite")},
        "sampling": {"judge": 1.0, "model": 1.0},
        "limits": limits,
    }
    return load_settings(environ={}, overrides=tree)


@contextmanager
def running(
    folder: Path, fake: Fake | None, *, live: bool = False, **limits: Any
) -> Iterator[EmbeddedAgent]:
    started = EmbeddedAgent(
        settings(folder, **limits),
        [],
        live=live,
        tiers=lambda saved: SlowTiers({"judge": fake} if fake else {}),
        parts=PARTS,
    )
    started.start()
    try:
        yield started
    finally:
        stop_agent(started, 2)


def states(started: EmbeddedAgent, metric: str, scorer: str) -> dict[str, int]:
    with started.lock():
        found = started.windows.states("bot", "", metric, scorer, "24h")
    return {name: number for name, number in found.items() if number}


def mismatch(started: EmbeddedAgent) -> float:
    """seen - sum(states) - waiting, over all pairs; no pair waits for less than nothing."""
    with started.lock():
        assert all(number >= 0 for number in started.waiting.values()), started.waiting
        total = 0.0
        for (name, _), value in started.counters.items():
            total += value * {"ragmeter_seen_total": 1, "ragmeter_results_total": -1}.get(name, 0)
        return total - sum(started.waiting.values())


def test_every_drawn_trace_is_scored_once_and_counted_in_its_own_window(tmp_path: Path) -> None:
    fake = Fake()
    with running(tmp_path, fake) as started:
        started.accept([good(n) for n in range(50)], "test")
        started.wait_idle()
        assert sorted(fake.asked) == sorted(f"t{n}" for n in range(50))
        assert states(started, "relevance", "umbrela") == {"scored": 50}
        assert states(started, "answered", "judge") == {"unscored": 50}
        with started.lock():
            assert started.windows.count_traces("bot", "", "24h") == 50
            found = started.windows.estimate("bot", "", "relevance", "umbrela", "24h")
        assert found is not None
        assert (found.value, found.samples) == (2.0, 50)
        assert mismatch(started) == 0


def test_cheap_metrics_do_not_wait_for_a_judge_that_hangs(tmp_path: Path) -> None:
    fake = Fake(lambda trace: asyncio.sleep(10 * PATIENCE))
    with running(tmp_path, fake) as started:
        started.accept([good(n) for n in range(30)], "test")
        until(lambda: started.health().queue_depth == 0)
        assert states(started, "error", "builtin") == {"scored": 30}
        assert states(started, "relevance", "umbrela") == {}
        health: AgentHealth = started.health()
        assert health.pending == {"judge": 30}
        assert health.ready
        assert mismatch(started) == 0


def test_what_was_not_scored_before_a_restart_is_scored_after_it(tmp_path: Path) -> None:
    slow = Fake(lambda trace: asyncio.sleep(10 * PATIENCE) if int(trace.trace_id[1:]) % 2 else None)
    with running(tmp_path, slow) as started:
        started.accept([good(n) for n in range(30)], "test")
        until(lambda: states(started, "relevance", "umbrela") == {"scored": 15})
    fast = Fake()
    with running(tmp_path, fast) as started:
        started.wait_idle()
        assert sorted(fast.asked) == sorted(f"t{n}" for n in range(1, 30, 2))
        assert states(started, "relevance", "umbrela") == {"scored": 30}
        assert mismatch(started) == 0


def test_a_judge_that_was_taken_away_leaves_its_traces_unscored(tmp_path: Path) -> None:
    with running(tmp_path, Fake(lambda trace: asyncio.sleep(10 * PATIENCE))) as started:
        started.accept([good(n) for n in range(10)], "test")
        until(lambda: started.health().pending == {"judge": 10})
    with running(tmp_path, None) as started:
        started.wait_idle()
        assert states(started, "relevance", "umbrela") == {"unscored": 10}
        with started.lock():
            counters = dict(started.counters.items())
        key = (("metric", "relevance"), ("scorer", "umbrela"), ("state", "unscored"))
        assert counters["ragmeter_results_total", (*key, ("reason", "not_configured"))] == 10
        assert mismatch(started) == 0


def test_a_tier_that_raises_costs_its_own_metrics_only(tmp_path: Path) -> None:
    def broken(trace: Trace) -> None:
        if trace.trace_id == "t3":
            raise RuntimeError("a mistake of ours")

    with running(tmp_path, Fake(broken)) as started:
        started.accept([good(n) for n in range(10)], "test")
        started.wait_idle()
        assert states(started, "relevance", "umbrela") == {"scored": 9, "unscored": 1}
        assert states(started, "error", "builtin") == {"scored": 10}


def counted(started: EmbeddedAgent, metric: str, scorer: str) -> dict[str, float]:
    """The results of a pair by state, those of late traces included."""
    pair = (("metric", metric), ("scorer", scorer))
    with started.lock():
        return {
            dict(labels)["state"]: value
            for (name, labels), value in started.counters.items()
            if name == "ragmeter_results_total" and labels[:2] == pair
        }


LATE_BY = 3 * 86_400.0  # seconds: longer than every window


@pytest.mark.parametrize("live", [False, True])
def test_a_trace_too_late_for_every_window_is_not_judged_and_counts_once(
    tmp_path: Path, live: bool
) -> None:
    fake = Fake()
    now = time.time() if live else START
    with running(tmp_path, fake, live=live) as started:
        started.accept([good(1, timestamp=now)], "test", live=live)
        started.wait_idle()
        started.accept([good(2, timestamp=now - LATE_BY)], "test", live=live)
        started.wait_idle()
        assert fake.asked == ["t1"]
        assert started.health().pending == {"judge": 0}
        assert counted(started, "relevance", "umbrela") == {"scored": 1, "late": 1}
        assert counted(started, "answered", "judge") == {"unscored": 1, "late": 1}
        assert mismatch(started) == 0


def test_results_that_nobody_waits_for_show_in_the_exported_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault is injected: a late trace is drawn nevertheless, so its results count twice."""
    honest = TierDraws.make_rows

    def careless(
        self: TierDraws, queued: QueuedTrace, cheap: CheapScores, *, late: bool
    ) -> tuple[CheapScores, list[TierDraw]]:
        return honest(self, queued, cheap, late=False)

    monkeypatch.setattr(TierDraws, "make_rows", careless)
    with running(tmp_path, Fake()) as started:
        for number, at in ((1, START), (2, START - LATE_BY), (3, START - LATE_BY)):
            started.accept([good(number, timestamp=at)], "test")
            started.wait_idle()
        assert started.waiting == dict.fromkeys(JUDGED, -2)
        text = PrometheusExporter(started).render().decode()
    name = "ragmeter_accounting_mismatch"
    found = {line for line in text.splitlines() if line.startswith(name)}
    assert {line for line in found if not line.endswith(" 0.0")} == {
        f'{name}{{metric="{metric}",scorer="{scorer}"}} 2.0' for metric, scorer in JUDGED
    }


def test_live_traffic_beyond_the_queue_is_shed_and_counted(tmp_path: Path) -> None:
    fake = Fake(lambda trace: asyncio.sleep(10 * PATIENCE))
    with running(tmp_path, fake, live=True, drawn=20) as started:
        started.accept([good(n, timestamp=time.time()) for n in range(50)], "test", live=True)
        until(lambda: started.health().queue_depth == 0)
        assert states(started, "relevance", "umbrela") == {"shed": 30}
        assert started.health().pending == {"judge": 20}
        assert mismatch(started) == 0


def test_a_replay_waits_for_its_judge_instead(tmp_path: Path) -> None:
    fake = Fake(lambda trace: asyncio.sleep(0.001))
    with running(tmp_path, fake, drawn=20) as started:
        for start in range(0, 1000, 100):
            accept_in_turn(started, [good(n) for n in range(start, start + 100)], "test")
        started.wait_idle()
        assert states(started, "relevance", "umbrela") == {"scored": 1000}


def test_a_file_read_beside_live_traffic_waits_for_neither_it_nor_its_judge(
    tmp_path: Path,
) -> None:
    """Else a second file would not be read while an application sends, or while a judge is down."""
    fake = Fake(lambda trace: asyncio.sleep(10 * PATIENCE))
    stop = threading.Event()

    def send(started: EmbeddedAgent) -> None:
        number = 1000
        while not stop.wait(0.001):
            started.accept([good(number, timestamp=time.time())], "test", live=True)
            number += 1

    with running(tmp_path, fake, live=True) as started:
        sender = threading.Thread(target=send, args=(started,))
        sender.start()
        try:
            started.accept([good(n, timestamp=time.time()) for n in range(50)], "file")
            waiting = threading.Thread(target=started.wait_replayed, daemon=True)
            waiting.start()
            waiting.join(PATIENCE)
            assert not waiting.is_alive()
            with started.lock():
                assert started.windows.count_traces("bot", "", "24h") >= 50
            assert started.health().pending["judge"] >= 50
        finally:
            stop.set()
            sender.join()


def test_a_replay_ends_when_its_judge_has_answered(tmp_path: Path) -> None:
    with running(tmp_path, Fake(lambda trace: asyncio.sleep(0.01))) as started:
        started.accept([good(n) for n in range(50)], "file")
        started.wait_replayed()
        assert states(started, "relevance", "umbrela") == {"scored": 50}


def test_a_new_fingerprint_starts_a_new_series(tmp_path: Path) -> None:
    fake = Fake()
    with running(tmp_path, fake) as started:
        started.accept([good(n) for n in range(10)], "test")
        started.wait_idle()
        fake.fingerprint = "f2"
        started.accept([good(n) for n in range(10, 30)], "test")
        started.wait_idle()
        with started.lock():
            series = [
                s for m, s in started.windows.series("bot") if m == "relevance" and "+" not in s
            ]
            samples = [
                estimate.samples
                for scorer in ("umbrela", "umbrela@f1", "umbrela@f2")
                if (estimate := started.windows.estimate("bot", "", "relevance", scorer, "24h"))
            ]
            changes = started.counters.get(
                "ragmeter_instrument_changes_total",
                (("metric", "relevance"), ("scorer", "umbrela")),
            )
        assert series == ["builtin", "umbrela@f1", "umbrela"]
        assert samples == [20, 10, 20]  # who asks for the scorer gets its newest series
        assert changes == 1
    with running(tmp_path, fake) as started, started.lock():
        found = started.windows.estimate("bot", "", "relevance", "umbrela", "24h")
        assert found is not None
        assert found.samples == 20


def test_the_evidence_of_a_trace_holds_what_both_stages_found(tmp_path: Path) -> None:
    with running(tmp_path, Fake()) as started:
        started.accept([good(n) for n in range(10)], "test")
        started.wait_idle()
        kept = started.evidence("bot", "t1")
        assert kept is not None
        found = {(item["metric"], item["scorer"]): item for item in kept["results"]}
        assert found["relevance", "umbrela"]["value"] == 2.0
        assert found["relevance", "umbrela"]["fingerprint"] == "f1"
        assert found["error", "builtin"]["value"] == 0.0


def test_results_that_cannot_be_counted_become_unscored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragmeter.aggregate.aggregator import Aggregator

    honest = Aggregator.finish

    def poisoned(self: Aggregator, scored: Any) -> Any:
        counted = honest(self, scored)
        if scored.trace_id == "t7" and scored.results[0].state is ScoreState.SCORED:
            raise OverflowError("too large")
        return counted

    monkeypatch.setattr(Aggregator, "finish", poisoned)
    with running(tmp_path, Fake()) as started:
        started.accept([good(n) for n in range(20)], "test")
        started.wait_idle()
        assert started.fatal is None
        assert states(started, "relevance", "umbrela") == {"scored": 19, "unscored": 1}
        assert mismatch(started) == 0


def test_what_a_trace_cost_is_in_the_commit_that_counts_it(tmp_path: Path) -> None:
    started = EmbeddedAgent(
        settings(tmp_path),
        [],
        live=True,
        tiers=lambda saved: SlowTiers(
            {"judge": Fake()}, controllers={"judge": BudgetController(JudgeBudgetSettings())}
        ),
        parts=PARTS,
    )
    started.start()
    try:
        started.accept([good(1, timestamp=time.time())], "test", live=True)
        started.wait_idle()
        # what a kill would leave now: no later commit has come to put it right
        with closing(sqlite3.connect(tmp_path / "s.sqlite")) as db, db:
            (text,) = db.execute("SELECT value FROM meta WHERE name='budgets'").fetchone()
    finally:
        stop_agent(started, 2)
    assert json.loads(text)["judge"]["settled"] == 1


def test_scales_go_by_the_bounded_names_of_services(tmp_path: Path) -> None:
    control = BudgetController(JudgeBudgetSettings(requests_per_minute=1))
    started = EmbeddedAgent(
        settings(tmp_path, services=2),
        [],
        live=True,
        tiers=lambda saved: SlowTiers({"judge": Fake()}, controllers={"judge": control}),
        parts=PARTS,
    )
    started.start()
    try:
        now = time.time()
        named = [good(n, timestamp=now, service=f"{n}" + "x" * 400) for n in range(5)]
        started.accept(named, "test", live=True)
        started.wait_idle()
        with started.lock():
            gauges = started.gauges()
            scales = [labels for name, labels, _ in gauges if name == "ragmeter_sampling_scale"]
            known = started.windows.services()
    finally:
        stop_agent(started, 2)
    assert len(known) == 3  # two and `__other__`
    judged = [(("tier", "judge"), ("service", name)) for name in sorted(known)]
    assert scales == [(("tier", "builtin"), ("service", "")), *judged]


def test_a_table_of_drawn_traces_that_makes_no_sense_is_quarantined(tmp_path: Path) -> None:
    with running(tmp_path, Fake(lambda trace: asyncio.sleep(10 * PATIENCE))) as started:
        started.accept([good(1)], "test")
        until(lambda: started.health().pending == {"judge": 1})
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as db, db:
        db.execute("UPDATE drawn SET pairs='{'")
    with running(tmp_path, Fake()) as started:
        assert started.counters.get("ragmeter_state_quarantined_total") == 1
        started.accept([good(2)], "test")
        started.wait_idle()
        assert states(started, "relevance", "umbrela") == {"scored": 1}


def test_a_replay_is_drawn_by_its_rates_and_live_traffic_by_the_budget(tmp_path: Path) -> None:
    """So a replay gives the same draws whenever it is read, and leaves no debt."""
    tight = BudgetController(JudgeBudgetSettings(requests_per_minute=1))

    def tiers(saved: Any) -> SlowTiers:
        return SlowTiers({"judge": Fake()}, controllers={"judge": tight})

    started = EmbeddedAgent(settings(tmp_path), [], live=False, tiers=tiers, parts=PARTS)
    started.start()
    try:
        started.accept([good(n) for n in range(50)], "test")
        started.wait_idle()
        assert states(started, "relevance", "umbrela") == {"scored": 50}
        assert tight.balances()["requests"][1] >= 0
        live = [good(n, timestamp=time.time()) for n in range(50, 500)]
        started.accept(live[:1], "test", live=True)
        started.wait_idle()
        started.accept(live[1:], "test", live=True)
        started.wait_idle()
        assert states(started, "relevance", "umbrela")["sampled_out"] > 300
        assert mismatch(started) == 0
    finally:
        stop_agent(started, 2)


class Local(Fake):
    """A local model that supports nothing, and says which words."""

    tier: Tier = "model"
    pairs: Sequence[MetricScorer] = (("grounding", "mini"),)

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        spans = "the login\npage", "x" * 500, "third"
        detail = {"unsupported_spans": [{"start": 0, "end": 9, "text": text} for text in spans]}
        return [Score("grounding", "mini", ScoreState.SCORED, 0.1, detail=detail)]


@pytest.mark.parametrize("content", ["full", "none"])
def test_an_alert_on_grounding_quotes_what_nothing_supports(tmp_path: Path, content: str) -> None:
    rule = {
        "name": "Low",
        "severity": "critical",
        "metric": "grounding",
        "scorer": "mini",
        "statistic": "upper",
        "op": "<",
        "threshold": 0.5,
        "window": "5m",
        "for": "1m",
    }
    notified: list[Incident] = []

    def notify(incident: Incident, now: float) -> list[OutboxItem]:
        notified.append(incident)
        return []

    tree = {
        "state": {"path": str(tmp_path / "s")},
        "sampling": {"model": 1.0},
        "privacy": {"content": content},
    }
    started = EmbeddedAgent(
        load_settings(environ={}, overrides=tree),
        parse_rules([{"rules": [rule]}]),
        live=False,
        tiers=lambda saved: SlowTiers({"model": Local()}),
        outputs=AgentOutputs(make_notifications=notify),
        parts=PARTS,
    )
    started.start()
    try:
        for first in (0, 100):
            started.accept([good(n) for n in range(first, first + 100)], str(first))
            started.wait_idle()
    finally:
        stop_agent(started, 2)
    detail = "; ".join(notified[0].detail)
    if content == "none":
        assert "Unsupported" not in detail
    else:
        assert "Unsupported: 'the login page', 'xxx" in detail
        assert "third" not in detail  # two of a trace
        assert len(detail) < 600
