"""Probes on the cluster: one worker asks, one partition counts, and both survive a takeover."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest
from aiokafka.partitioner import DefaultPartitioner
from ragmeter.core.tiers import ScoringCost
from ragmeter.kafka.probe_job import PROBE_KEY, ProbeJob
from ragmeter.kafka.processors.delivery import partition_for_key
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state_group import StateGroup
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.scorers.judge.probes import RETRY_SECONDS, ProbeRunner, ProbeSet, load_probes
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scoring.inline_tiers import InlineTiers

from tests.kafka.state.partition import Owned, apply, commit, record, reloaded, state_of
from tests.scorers.judge.fakes import FakeJudge
from tests.scorers.judge.test_probes import SETTINGS
from tests.traces import START

HOURS = 6.0
FEW = ProbeSet(load_probes().probes[:3], "few")


class Worker:
    """One worker with a judge of its own; it may own the home partition."""

    def __init__(self, cluster: Cluster) -> None:
        self.judge = FakeJudge()
        self.newest: float | None = START
        self.charged = ScoringCost()
        self.group = Owned()
        runner = ProbeRunner(
            JudgeTier(self.judge, SETTINGS),
            FEW,
            hours=HOURS,
            instrument="i",
            clock=lambda: cluster.now,
        )
        self.probing = ProbeJob(
            runner,
            cast(StateGroup, self.group),
            cast(InlineTiers, self),
            2,
            clock=lambda: cluster.now,
        )

    def charge(self, service: str, cost: ScoringCost) -> None:
        assert service == PROBE_SERVICE
        self.charged.add(cost)

    def own(self, state: PartitionState | None) -> None:
        self.group.held = {} if state is None else {2: state}

    def turn(self) -> bool:
        return asyncio.run(self.probing.run_once())


class Cluster:
    def __init__(self) -> None:
        self.now = 1000.0


def counted(state: PartitionState) -> float:
    labels = (("metric", "judge_probe_agreement"), ("scorer", "judge"))
    return state.aggregator.counters.get("ragmeter_seen_total", labels)


def test_the_results_go_where_a_producer_puts_the_key() -> None:
    for many in (1, 4, 7, 12):
        parts = list(range(many))
        assert partition_for_key(PROBE_KEY, many) == DefaultPartitioner()(PROBE_KEY, parts, parts)


def test_only_the_owner_of_the_home_partition_asks() -> None:
    cluster = Cluster()
    one, two = Worker(cluster), Worker(cluster)
    state = state_of()
    one.own(state)
    assert [one.turn(), two.turn(), one.turn()] == [True, False, False]
    assert one.judge.asked
    assert not two.judge.asked
    assert one.charged.requests > 0
    assert counted(state) == len(FEW.probes)
    assert state.aggregator.windows.now == START


def test_schedule_and_baseline_go_with_the_partition() -> None:
    cluster = Cluster()
    rows = dict[bytes, bytes]()
    one, two = Worker(cluster), Worker(cluster)
    state = state_of()
    one.own(state)
    assert one.turn()
    assert state.changed
    state = reloaded(commit(state, rows))
    two.own(state)
    one.own(None)
    assert [one.turn(), two.turn()] == [False, False]  # it is not due
    cluster.now += HOURS * 3600 + 1
    assert [one.turn(), two.turn()] == [False, True]
    windows = state.aggregator.windows
    change = windows.cell(PROBE_SERVICE, "", "judge_probe_change", "judge", "24h")
    assert change is not None
    assert (change.n, change.y) == (len(FEW.probes), 0), (
        "compared with what the first worker's judge has said"
    )


def test_a_run_that_was_interrupted_is_not_paid_twice_at_once() -> None:
    """The judge was asked, and the worker is gone before its results were committed."""
    cluster = Cluster()
    rows = dict[bytes, bytes]()
    one, two = Worker(cluster), Worker(cluster)
    state = state_of()
    one.own(state)
    honest = one.judge.ask

    async def interrupted(*call: Any, **more: Any) -> Any:
        raise ConnectionError

    one.judge.ask = interrupted  # type: ignore[method-assign]
    with contextlib.suppress(ConnectionError):
        one.turn()
    one.judge.ask = honest  # type: ignore[method-assign]
    two.own(reloaded(commit(state, rows)))
    assert not two.turn()
    cluster.now += RETRY_SECONDS + 1
    assert two.turn()


def test_a_result_that_cannot_be_counted_begins_the_state_anew() -> None:
    worker = Worker(Cluster())
    state = state_of()
    worker.own(state)
    state.aggregator.add_extra = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        worker.turn()
    assert state.spoiled


def test_without_traffic_nothing_is_asked() -> None:
    worker = Worker(Cluster())
    worker.own(state_of())
    worker.newest = None
    assert not worker.turn()


def test_results_are_counted_even_where_no_service_lives() -> None:
    worker = Worker(Cluster())
    state = state_of()
    worker.own(state)
    worker.turn()
    state = reloaded(commit(state, {}))
    assert counted(state) == len(FEW.probes)
    assert PROBE_SERVICE in state.aggregator.windows.services()
    # a service that comes later has its own time
    apply(state, [record(n) for n in range(5)])
    assert state.aggregator.windows.count_traces("bot", "", "24h") == 5


def test_a_note_of_another_program_is_no_trouble() -> None:
    state: Any = state_of()
    state.save_note("probes", {"key": 3})
    worker = Worker(Cluster())
    worker.own(state)
    assert worker.turn()
