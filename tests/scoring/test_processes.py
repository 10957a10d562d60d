"""Scoring in other processes: the same scores whatever happens to a process."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.core.process import memory_limit, usable_cores
from ragmeter.core.score import ScoreState
from ragmeter.ingest.native import DecodeFailure
from ragmeter.metrics.merged_labels import ranked_passage_keys
from ragmeter.metrics.registry import metric_catalogue
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.scoring.processes import (
    BodyScorer,
    SamplingTerms,
    ScoredBody,
    ScorerPool,
    ScoringPlan,
    Unscorable,
    default_processes,
    dump_scores,
)
from ragmeter.scoring.scorer import Scorer, TraceScores

from tests.traces import make_trace, trace_dict, trace_line
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def plan(**tree: Any) -> ScoringPlan:
    return ScoringPlan.of(load_settings(environ={}, overrides=tree))


@contextmanager
def running(processes: int = 1, seconds: float = PATIENCE, **tree: Any) -> Iterator[ScorerPool]:
    pool = ScorerPool(plan(**tree), processes, trace_seconds=seconds)
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


def pids(pool: ScorerPool) -> list[int]:
    return [process._popen.pid for process in list(pool._ready)]


def scored(pool: ScorerPool, bodies: Sequence[bytes]) -> list[ScoredBody]:
    return pool.submit(bodies, pool._plan.terms).result(PATIENCE)


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


def test_scores_of_a_process_are_those_of_the_trace() -> None:
    """Field by field, with the details, and of canaries as well."""
    scorer = Scorer()
    bodies = [trace_line(n, **change) for n, change in enumerate(MIXED)]
    sent = pickle.loads(dump_scores(list(BodyScorer(plan()).score_all(bodies, plan().terms))))
    for n, (change, scores) in enumerate(zip(MIXED, sent, strict=True)):
        trace = make_trace(n, **change)
        own = scorer.score_alone(trace)
        assert scorer.draw(scores).trace == scorer.draw(own).trace
        assert scores.summary.passages == ranked_passage_keys(trace)
        with pytest.raises(LookupError):
            scores.prepare()
    assert sent[0].builtin[0].detail == {"grades": [2.48, 0.0]}


def test_what_a_process_did_not_draw_is_computed_when_it_is_drawn_after_all() -> None:
    tree = {"sampling": {"builtin": 0.3}}
    settings = load_settings(environ={}, overrides=tree).sampling
    bodies = [trace_line(n) for n in range(60)]
    sent = list(BodyScorer(plan(**tree)).score_all(bodies, SamplingTerms(settings, scale=0.5)))
    scorer = Scorer(sampler=Sampler(settings), strata=StratumClassifier())
    computed = late = 0
    for n, scores in enumerate(sent):
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
    with running() as pool:
        results = scored(pool, [b"{", trace_line(1)])
    assert isinstance(results[0], DecodeFailure)
    assert isinstance(results[1], TraceScores)

    def broken(*_: object) -> None:
        raise ValueError("no words")

    local = BodyScorer(plan())
    monkeypatch.setattr(local._scorer, "score_alone", broken)
    (result,) = local.score_all([trace_line(1)], local.terms)
    assert result == Unscorable("ValueError('no words')")


def test_a_killed_process_costs_nothing_but_time() -> None:
    bodies = [trace_line(n) for n in range(400)]
    expected = list(BodyScorer(plan()).score_all(bodies, plan().terms))
    with running(2) as pool:
        until(lambda: pool.alive == 2)
        slices = [bodies[n : n + 20] for n in range(0, 400, 20)]
        futures = [pool.submit(part, pool._plan.terms) for part in slices]
        futures[2].result(PATIENCE)
        for pid in pids(pool):
            os.kill(pid, signal.SIGKILL)
        results = [result for future in futures for result in future.result(PATIENCE)]
        assert results == expected
        until(lambda: pool.restarts == 2 and pool.alive == 2)
        (idle, _) = pids(pool)
        os.kill(idle, signal.SIGKILL)
        until(lambda: pool.restarts == 3 and pool.alive == 2)


def test_who_waits_no_longer_for_a_slice_holds_up_no_other() -> None:
    """A worker on Kafka stops waiting when a rebalance takes the partition away."""
    with running() as pool:
        for _ in range(3):
            assert pool.submit([trace_line(n) for n in range(50)], pool._plan.terms).cancel()
        assert len(scored(pool, [trace_line(1)])) == 1


# A metric of a user's that ends its process, hangs, or prints, as a trace tells it to.
MINE = """
import os, time
from ragmeter import metric

@metric(name="mine", kind="mean", meaning="m", formula="f", needs="n", source="s")
def mine(trace):
    print("a metric prints")
    if trace.query == "die":
        os._exit(7)
    if trace.query == "hang":
        time.sleep(1000)
    return 0.5
"""


@pytest.fixture
def own_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(MINE)
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ragmeter.metrics]\nmine = mine:mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # processes have the path of their parent
    metric_catalogue.cache_clear()
    yield tmp_path
    metric_catalogue.cache_clear()
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("query", ["die", "hang"])
def test_a_trace_that_ends_two_processes_is_given_up_and_no_other(
    own_metric: Path, query: str
) -> None:
    bodies = [trace_line(n, query=query if n == 13 else "How?") for n in range(32)]
    # a process that waits for a processor must not seem to hang: the count of restarts is exact
    with running(1, seconds=3.0 if query == "hang" else PATIENCE) as pool:
        results = scored(pool, bodies)
        assert pool.restarts == 2
    given_up = [n for n, result in enumerate(results) if isinstance(result, Unscorable)]
    assert given_up == [13]
    assert isinstance(results[0], TraceScores)
    assert results[0].summary.results[-1].value == 0.5  # the user's own


def test_a_process_with_other_metrics_than_the_agent_scores_nothing(
    own_metric: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = ScorerPool(plan(), 1)
    (own_metric / "mine-1.0.dist-info" / "entry_points.txt").write_text("")  # removed meanwhile
    pool.start()
    try:
        (result,) = scored(pool, [trace_line(1)])
        assert isinstance(result, TraceScores)
        assert result.summary.results[-1].value == 0.5
        assert "other metrics" in caplog.text
        assert pool.alive == 0
    finally:
        pool.close()


def test_without_a_process_that_starts_threads_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with running(2) as pool:
        results = scored(pool, [trace_line(n) for n in range(5)])
        assert pool.alive == pool.restarts == 0
    assert all(isinstance(result, TraceScores) for result in results)


def test_a_closed_pool_leaves_no_process_and_cancels_what_waits(own_metric: Path) -> None:
    with running(1) as pool:
        until(lambda: pool.alive == 1)
        (pid,) = pids(pool)
        futures = [pool.submit([trace_line(1, query="hang")], pool._plan.terms) for _ in range(5)]
        time.sleep(0.2)
    assert all(future.cancelled() for future in futures)
    assert not Path(f"/proc/{pid}").exists()


PARENT = """
import sys, time
from ragmeter.metrics.merged_labels import ranked_passage_keys
from ragmeter.app.settings import load_settings
from ragmeter.scoring.processes import ScorerPool, ScoringPlan
from tests.traces import trace_line

pool = ScorerPool(ScoringPlan.of(load_settings(environ={})), 2)
pool.start()
while pool.alive < 2:
    time.sleep(0.05)
pool.submit([trace_line(1, query=sys.argv[1])], pool._plan.terms)
print(*[process._popen.pid for process in pool._ready], flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("query", ["idle", "hang"])
def test_the_processes_end_with_their_parent_however_it_ends(own_metric: Path, query: str) -> None:
    path = os.pathsep.join([str(ROOT), str(own_metric)])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, query],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
    )
    assert parent.stdout is not None
    line = next(line for line in parent.stdout if line[0].isdigit())  # its metric prints, too
    children = [int(pid) for pid in line.split()]
    assert len(children) == 2
    for number in (signal.SIGINT, signal.SIGTERM):  # both are the parent's to answer
        os.kill(children[0], number)
    time.sleep(0.5)
    assert all(_lives(pid) for pid in children)
    parent.kill()
    parent.wait()
    until(lambda: not any(map(_lives, children)))
    parent.stdout.close()


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended before or after the file was opened
        return False


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, math.inf, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"}, math.inf, math.inf),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod1/c1\n",
                "sys/fs/cgroup/kubepods/pod1/cpu.max": "25000 100000",
                "sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000",
                "sys/fs/cgroup/kubepods/pod1/c1/memory.max": "max",
                "sys/fs/cgroup/kubepods/memory.max": "536870912",
            },
            0.25,
            2**29,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/host/name\n4:memory:/host/name\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824",
            },
            0.5,
            2**30,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            math.inf,
            math.inf,
        ),
    ],
)
def test_quotas_of_both_versions_of_control_groups_are_respected(
    tmp_path: Path, files: dict[str, str], cores: float, memory: float
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == min(own, cores)
    assert memory_limit(tmp_path) == memory


@pytest.mark.parametrize(
    ("cores", "memory", "number"),
    [
        *((0.5, 2**40, 0), (1, 2**40, 0), (1.9, 2**40, 0), (2, 2**40, 1), (3.5, 2**40, 2)),
        *(
            (4, math.inf, 3),
            (64, math.inf, 4),
            (64, 2**28, 0),
            (64, 2**29, 2),
            (64, 2**30, 4),
            (64, 2**27, 0),
        ),
    ],
)
def test_the_default_leaves_a_core_to_the_agent_and_fits_its_memory(
    cores: float, memory: float, number: int
) -> None:
    assert default_processes(cores, memory) == number


def test_a_large_import_scores_on_all_cores() -> None:
    numbers = [default_processes(cores, math.inf, 0) for cores in (1, 1.9, 2, 3.5, 64)]
    assert numbers == [0, 0, 2, 3, 4]


def test_the_plan_of_the_processes_holds_no_secret() -> None:
    tree = {
        "judge": {"base_url": "http://x/v1", "model": "m", "api_key": "s3cret-judge"},
    }
    assert b"s3cret" not in pickle.dumps(plan(**tree))
    assert json.loads(trace_line(1)) == trace_dict(1)
