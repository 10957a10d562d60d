"""The agent with threads that score ahead: the same state whatever their number."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.tiers import Tier, TierScorer
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import DecodedTrace
from ragmeter.sampling.sampler import ReplayBudget
from ragmeter.scoring import threads
from ragmeter.scoring.slow_tiers import SlowTiers

from tests.crash import without_quotes
from tests.embedded.test_slow_tiers import Fake, mismatch
from tests.traces import START, good, trace_dict
from tests.waiting import PATIENCE, stop_agent, until

pytestmark = pytest.mark.slow

GONE = "The page does not say. I would guess 30 days, as elsewhere."


Items = Sequence[tuple[DecodedTrace, int]]


def traffic(count: int) -> Items:
    """Everything that scoring and drawing depend on: services, a new model, low scores, failures,
    rare tenants, late traces, canaries, repeated questions, traces of which a part was kept."""
    rng = random.Random(3)
    items = []
    for n in range(count):
        late = rng.random() < 0.02
        change: dict[str, Any] = {
            "service": rng.choices(["bot", "faq"], [9, 1])[0],
            "timestamp": START + 9 * n - (rng.expovariate(1 / 60) if late else 0),
            "status": rng.choices(["ok", "error"], [95, 5])[0],
            "answer": rng.choice([None, "", GONE, trace_dict()["answer"], "It is free [7]."]),
            "query": rng.choice(["How do I reset it?", f"What is number {n}?"]),
            "model": rng.choice(["a", "b", "c" if n > count / 2 else "a"]),
            "tags": {"tenant": "small" if rng.random() < 0.01 else "large"},
            "sampling": {"probability": rng.choice([1, 0.25])},
            "timings": {"total": rng.lognormvariate(0, 1)},
        }
        if rng.random() < 0.03:
            change["reference"] = {"answer": "Click Forgot password.", "answerable": True}
        items.append(good(n, **change))
    return items


def no_answer() -> Fake:
    """A judge that never answers: all that was drawn stays in its table, to be compared."""
    return Fake(lambda trace: asyncio.sleep(10 * PATIENCE))


class NoModel(Fake):
    """A local model that answers no more than a judge does."""

    tier = "model"
    pairs = (("grounding", "mini"),)

    def __init__(self, judge: Fake) -> None:
        super().__init__(judge.before)


@contextmanager
def agent(
    folder: Path, waiting: Items = (), judge: Fake | None = None, *, live: bool = False, **tree: Any
) -> Iterator[EmbeddedAgent]:
    paths = {"path": str(folder / "s.sqlite")}
    settings = load_settings(environ={}, overrides={"state": paths, **tree})
    rules = load_configured_rules(settings)
    fakes: dict[Tier, TierScorer] = {"judge": judge, "model": NoModel(judge)} if judge else {}
    tiers = SlowTiers(fakes, replays={"model": ReplayBudget(0.2, lambda: 1500.0)})
    made = EmbeddedAgent(settings, rules, live=live, tiers=lambda saved: tiers, parts=PARTS)
    if waiting:  # so that every run has the same commits
        made.accept(waiting, "test", live=live)
    made.start()
    try:
        yield made
    finally:
        stop_agent(made, 2)
        assert not made._store.depth


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def state(folder: Path) -> dict[str, list[Any]]:
    """All rows of the state file, but for the clock's."""
    with closing(sqlite3.connect(folder / "s.sqlite")) as database:
        names = [row[0] for row in database.execute(_TABLES)]
        rows = {
            name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr)
            for name in names
            if not name.startswith("sqlite_")
        }
    rows["meta"] = [row for row in rows["meta"] if row[0] != "wall_time"]
    return rows


@pytest.mark.parametrize("builtin", [0.3, pytest.param(1.0, marks=pytest.mark.long)])
def test_the_state_after_a_replay_is_the_same_for_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builtin: float
) -> None:
    """To the byte, if commits are of the same traces. The last run has others: it differs at most
    in which of the buckets that no detector needs any more are still in the file, and in the worst
    questions of incidents, which are quoted from the texts that were stored by then."""
    tree: dict[str, Any] = {
        "segments": ["tenant"],
        "sampling": {"builtin": builtin, "judge": 0.2, "model": 0.5},
    }
    items = traffic(900)
    states = []
    monkeypatch.setattr(threads, "_SLICE", 7)  # so that threads take turns, and the last is short
    for number, commit in [(1, 256), (2, 256), (3, 256), (2, 100)]:
        folder = tmp_path / f"{number} {commit}"
        folder.mkdir()
        monkeypatch.setattr("ragmeter.embedded.batches.BATCH", commit)
        monkeypatch.setattr(threads, "usable_cores", lambda cores=number: float(cores))
        monkeypatch.setattr(threads, "_MAX_THREADS", number)
        with agent(folder, items, no_answer(), **tree) as made:
            assert (made._worker._scorers is None) == (number == 1)
            until(lambda: not made._store.depth)
            assert mismatch(made) == 0
            with made.lock():
                found = made.windows.estimate("bot", "", "relevance", "builtin", "1h")
            assert found is not None
        states.append(state(folder))
    assert states[0]["buckets"]
    assert states[0]["evidence"]
    drawn = Counter(row[1] for row in states[0]["drawn"])
    assert drawn["judge"] > 100
    assert 150 < drawn["model"] < 330  # of 900 at a rate of 0.5: a replay has its bounds
    for name, rows in states[0].items():
        for other in states[1:-1]:
            assert other[name] == rows, name
        last = states[-1][name]
        if name == "meta":
            rows, last = (
                [unquoted(row) for row in part if not row[0].startswith("drift/")]
                for part in (rows, last)
            )
        assert last == rows, name


def unquoted(row: Sequence[Any]) -> list[Any]:
    """A row of the state, of an incident without the questions that it quotes."""
    name, text = row
    return [name, without_quotes(text) if name.startswith("incidents/") else text]


def test_under_load_the_built_in_tier_falls_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trace is counted under the probability by which it was drawn, and none is refused."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 2.0)
    tree: dict[str, Any] = {"limits": {"queue": 1000}, "sampling": {"judge": 0.2}}
    now = time.time()
    items = [good(n, timestamp=now) for n in range(1000)]
    with agent(tmp_path, items, live=True, **tree) as made:
        made.wait_idle()
        assert mismatch(made) == 0
        with made.lock():
            states = made.windows.states("bot", "", "relevance", "builtin", "1h")
            error = made.windows.states("bot", "", "error", "builtin", "1h")
            found = made.windows.estimate("bot", "", "relevance", "builtin", "1h")
            scales = [v for name, labels, v in made.gauges() if ("tier", "builtin") in labels]
        assert error["scored"] == 1000
        assert states["scored"] + states["sampled_out"] == 1000
        assert states["sampled_out"] > 150
        assert found is not None
        assert found.value == pytest.approx(1.2397552646556629)
        made.accept([good(2000, timestamp=time.time())], "test", live=True)
        made.wait_idle()
        with made.lock():
            after = [v for name, labels, v in made.gauges() if ("tier", "builtin") in labels]
    assert scales[0] <= 1
    assert after == [1.0]


def test_a_trace_that_raises_where_it_is_scored_ahead_is_a_dead_letter_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 2.0)
    score = threads.SourceScorer._score

    def faulty(self: Any, source: Any) -> Any:
        if source.query == "Raise!":
            raise ValueError("no words")
        return score(self, source)

    monkeypatch.setattr(threads.SourceScorer, "_score", faulty)
    items = [good(n, query="Raise!" if n == 40 else "How?") for n in range(100)]
    with agent(tmp_path, items) as made:
        made.wait_idle()
        with made.lock():
            letters = {k: v for k, v in made.counters.items() if k[0].startswith("ragmeter_dead")}
            assert made.windows.states("bot", "", "error", "builtin", "1h")["scored"] == 99
    assert letters == {("ragmeter_dead_letters_total", (("reason", "internal_error"),)): 1}
    assert "no words" in (tmp_path / "s.sqlite.dead-letters.jsonl").read_text()
