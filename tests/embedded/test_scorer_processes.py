"""The agent with scorer processes: the same state whatever their number, and whatever ends them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
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
from ragmeter.scoring.processes import ScorerPool
from ragmeter.scoring.slow_tiers import SlowTiers

from tests.crash import left_behind, start, without_quotes
from tests.embedded.test_slow_tiers import Fake, mismatch
from tests.scoring.test_processes import own_metric, pids  # noqa: F401
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
    folder: Path,
    processes: int,
    waiting: Items = (),
    judge: Fake | None = None,
    *,
    live: bool = False,
    **tree: Any,
) -> Iterator[EmbeddedAgent]:
    paths = {"path": str(folder / "s.sqlite")}
    whole: dict[str, Any] = {"state": paths, "scorers": {"processes": processes}, **tree}
    settings = load_settings(environ={}, overrides=whole)
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
def test_the_state_after_a_replay_is_the_same_for_any_number_of_processes(
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
    runs = [(0, 256), (2, 256), (2, 100)]
    if builtin == 1.0:
        runs[1:1] = [(1, 256), (3, 256)]
    for processes, commit in runs:
        folder = tmp_path / f"{processes} {commit}"
        folder.mkdir()
        monkeypatch.setattr("ragmeter.embedded.batches.BATCH", commit)
        with agent(folder, processes, items, no_answer(), **tree) as made:
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


def pool_of(made: EmbeddedAgent) -> ScorerPool:
    pool = made._worker._pool
    assert pool is not None
    return pool


def counter(made: EmbeddedAgent, name: str) -> float:
    with made.lock():
        return sum(value for (known, _), value in made.counters.items() if known == name)


def test_a_kill_in_the_middle_changes_nothing_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.embedded.batches.BATCH", 100)  # else the first is all there is
    items = traffic(1000)
    for processes in (0, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        with agent(folder, processes) as made:
            if processes:
                until(lambda: pool_of(made).alive == 2)
            made.accept(items, "test")
            if processes:
                until(lambda: made._store.depth < 1000)
                os.kill(pids(pool_of(made))[0], signal.SIGKILL)
            made.wait_idle()
            assert counter(made, "ragmeter_traces_received_total") == 1000
            if processes:  # an idle process may be missed only after the last trace
                until(lambda: pool_of(made).restarts == 1 and pool_of(made).alive == 2)
                made.accept([good(5000, timestamp=START)], "test")  # counts what ended since
                made.wait_idle()
                assert counter(made, "ragmeter_scorer_restarts_total") == 1
            else:
                made.accept([good(5000, timestamp=START)], "test")
                made.wait_idle()
    left, right = (left_behind(tmp_path / name) for name in "02")
    assert right["buckets"] == left["buckets"]
    counters = [
        {key: value for key, value in side["counters"].items() if "scorer_restarts" not in key[0]}
        for side in (left, right)
    ]
    assert counters[0] == counters[1]


def test_a_trace_that_ends_processes_is_a_dead_letter_and_costs_no_other(
    tmp_path: Path,
    own_metric: Path,  # noqa: F811
) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    items = [good(n, query="die" if n == 40 else "How?") for n in range(100)]
    with agent(folder, 1) as made:
        made.accept(items, "test")
        made.wait_idle()
        assert counter(made, "ragmeter_dead_letters_total") == 1
        with made.lock():
            assert made.windows.states("bot", "", "error", "builtin", "1h")["scored"] == 99
    (letter,) = [
        json.loads(line)
        for line in (folder / "s.sqlite.dead-letters.jsonl").read_text().splitlines()
    ]
    assert letter["reason"] == "internal_error"
    assert "2 processes ended" in json.dumps(letter)
    assert '"die"' in json.dumps(letter).replace("\\", "")


def test_under_load_the_built_in_tier_falls_and_comes_back(tmp_path: Path) -> None:
    """Every trace is counted under the probability by which it was drawn, and none is refused."""
    tree: dict[str, Any] = {"limits": {"queue": 1000}, "sampling": {"judge": 0.2}}
    now = time.time()
    items = [good(n, timestamp=now) for n in range(1000)]
    with agent(tmp_path, 1, items, live=True, **tree) as made:
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


def test_ctrl_c_goes_to_the_agent_alone_and_no_process_stays(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "state": {
                    "path": str(tmp_path / "s.sqlite"),
                },
                "http": {"otlp_port": 0, "metrics_port": 0},
                "scorers": {"processes": 2},
            }
        )
    )
    process = start(tmp_path, "run", "-c", tmp_path / "config.json")
    talk = tmp_path / "talk.txt"
    until(lambda: "serving until" in talk.read_text())
    found = {
        int(pid)
        for path in Path(f"/proc/{process.pid}/task").glob("*/children")  # of each thread
        for pid in path.read_text().split()
    }
    assert len(found) == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in found)
    assert not re.search("Traceback|KeyboardInterrupt|scorer process", talk.read_text())
