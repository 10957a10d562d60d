"""Probes on the cluster: one worker asks, one partition counts, and both survive a takeover."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

from aiokafka.partitioner import DefaultPartitioner

from ragmeter.core.tiers import ScoringCost
from ragmeter.kafka.jobs import PROBE_KEY, ProbeJob
from ragmeter.kafka.processors.aggregate import AggregateProcessor
from ragmeter.kafka.processors.delivery import partition_for_key
from ragmeter.kafka.processors.slow_tiers import InlineTiers
from ragmeter.kafka.score_records import ScoreRecord, decode_score, encode_score
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.scorers.judge.probes import RETRY_SECONDS, ProbeRunner, ProbeSet, load_probes
from ragmeter.scorers.judge.tier import JudgeTier
from tests.kafka.state.partition import apply, commit, record, reloaded, state_of
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
        self.processor = SimpleNamespace(owners={}, lock=threading.RLock())
        runner = ProbeRunner(
            JudgeTier(self.judge, SETTINGS),
            FEW,
            hours=HOURS,
            instrument="i",
            clock=lambda: cluster.now,
        )
        self.probing = ProbeJob(
            runner,
            cast(AggregateProcessor, self.processor),
            cast(InlineTiers, self),
            cluster.send,
            2,
            clock=lambda: cluster.now,
        )

    def charge(self, service: str, cost: ScoringCost) -> None:
        assert service == PROBE_SERVICE
        self.charged.add(cost)

    def own(self, state: PartitionState | None) -> None:
        self.processor.owners = {} if state is None else {2: SimpleNamespace(state=state)}

    def turn(self) -> bool:
        return asyncio.run(self.probing.run_once())


class Cluster:
    def __init__(self) -> None:
        self.now = 1000.0
        self.records: list[ScoreRecord] = []
        self.fails = False

    async def send(self, data: bytes) -> None:
        if self.fails:
            raise ConnectionError
        self.records.append(decode_score(data))


def test_the_results_go_where_a_producer_puts_the_key() -> None:
    for many in (1, 4, 7, 12):
        parts = list(range(many))
        assert partition_for_key(PROBE_KEY, many) == DefaultPartitioner()(PROBE_KEY, parts, parts)


def test_only_the_owner_of_the_home_partition_asks() -> None:
    cluster = Cluster()
    one, two = Worker(cluster), Worker(cluster)
    one.own(state_of())
    assert [one.turn(), two.turn(), one.turn()] == [True, False, False]
    assert one.judge.asked
    assert not two.judge.asked
    assert one.charged.requests > 0
    assert len(cluster.records) == len(FEW.probes)
    assert {(r.source, r.scored.service, r.scored.timestamp) for r in cluster.records} == {
        (None, PROBE_SERVICE, START)
    }


def test_schedule_and_baseline_go_with_the_partition() -> None:
    cluster, rows = Cluster(), dict[bytes, bytes]()
    one, two = Worker(cluster), Worker(cluster)
    state = state_of()
    one.own(state)
    assert one.turn()
    assert state.changed
    two.own(reloaded(commit(state, rows)))
    one.own(None)
    assert [one.turn(), two.turn()] == [False, False]  # it is not due
    cluster.now += HOURS * 3600 + 1
    assert [one.turn(), two.turn()] == [False, True]
    change = cluster.records[-1].scored.results[1]
    assert change.metric == "judge_probe_change"
    assert change.value == 0.0, "compared with what the first worker's judge has said"


def test_a_run_that_was_interrupted_is_not_paid_twice_at_once() -> None:
    cluster, rows = Cluster(), dict[bytes, bytes]()
    one, two = Worker(cluster), Worker(cluster)
    state = state_of()
    one.own(state)
    cluster.fails = True
    try:
        one.turn()
        raise AssertionError
    except ConnectionError:
        pass
    two.own(reloaded(commit(state, rows)))
    cluster.fails = False
    assert not two.turn()
    cluster.now += RETRY_SECONDS + 1
    assert two.turn()


def test_without_traffic_nothing_is_asked() -> None:
    worker = Worker(Cluster())
    worker.own(state_of())
    worker.newest = None
    assert not worker.turn()


def test_results_are_counted_once_and_even_where_no_service_lives() -> None:
    cluster, rows = Cluster(), dict[bytes, bytes]()
    worker = Worker(cluster)
    worker.own(state_of())
    worker.turn()
    state = state_of()
    again = [decode_score(encode_score(one)) for one in cluster.records]
    apply(state, cluster.records + again)
    state = reloaded(commit(state, rows))
    labels = (("metric", "judge_probe_agreement"), ("scorer", "judge"))
    assert state.aggregator.counters.get("ragmeter_seen_total", labels) == len(FEW.probes)
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
