"""Owners of partitions without a broker: what they take, and when they begin again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IllegalOperation, KafkaConnectionError, ProducerFenced
from ragmeter.config.kafka import KafkaSettings
from ragmeter.config.settings import Settings
from ragmeter.core import process
from ragmeter.core.process import Watchdog
from ragmeter.kafka import owners, transactions
from ragmeter.kafka.lag import follow_lag
from ragmeter.kafka.owners import BeginAgain, KnownOffsets, OutRecord
from ragmeter.kafka.score_group import ScoreGroup
from ragmeter.kafka.seeks import Seeks
from ragmeter.kafka.transactions import TransactionalOwner

from tests.kafka.messages import message
from tests.waiting import PATIENCE

TP = TopicPartition("rag.traces", 3)


class Producer:
    """As aiokafka's; `fails` are raised by the next commits."""

    def __init__(self, log: list[Any], fails: list[Exception]) -> None:
        self.log, self.fails = log, fails
        self.records: list[Any] = []

    async def start(self) -> None:
        self.log.append("fence")

    async def stop(self) -> None: ...

    async def begin_transaction(self) -> None:
        self.records = []

    async def send(self, topic: str, value: Any, key: Any, partition: Any, headers: Any) -> Any:
        assert key is not None or value is not None
        self.records.append((topic, value))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def send_offsets_to_transaction(self, offsets: Any, group: str) -> None:
        self.offsets = offsets

    async def commit_transaction(self) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self.log.append((self.records, self.offsets[TP]))


class Group:
    """One that has committed `offset`; its topic begins at `first` and ends at `end`."""

    kafka = KafkaSettings()
    largest = 2**20
    name = "g"

    def __init__(
        self, log: list[Any], offset: int | None, first: int = 0, end: int = 1_000_000
    ) -> None:
        self.log = log
        self.offset = offset
        self.first = first
        self.end = end
        self.note = ""
        self.answered_at = 0.0
        self.sought: list[int] = []
        self.lost = 0
        self.counters = self
        self.failed: list[BaseException] = []
        self.fail: Callable[[BaseException], Coroutine[Any, Any, None]] = self._fail

    async def offsets(self, tp: TopicPartition) -> KnownOffsets:
        self.log.append("offset")
        return KnownOffsets(self.offset, self.note, self.first, self.end)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        self.sought.append(offset)

    def inc(self, name: str, labels: object, count: int) -> None:
        self.lost += count

    async def _fail(self, error: BaseException) -> None:
        self.failed.append(error)


class Owner(TransactionalOwner):
    """Commits each batch as one record; `fails` are raised by the next turns of its work."""

    def __init__(self, group: Any, fails: list[Exception] | None = None) -> None:
        super().__init__(group, TP)
        self.opened = 0
        self.fails = fails or []

    async def open(self, offsets: KnownOffsets) -> int | None:
        self.group.log.append("load")  # type: ignore[attr-defined]
        self.opened += 1
        return offsets.committed

    async def work(self) -> None:
        while True:
            if self.fails:
                raise self.fails.pop(0)
            messages = await self.take()
            values = b",".join(one.value for one in messages)
            await self.commit([OutRecord("out", values)], messages[-1].offset + 1)


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(owners, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(owners, "_FENCED_PAUSE", 0.01)
    return found


def run(
    monkeypatch: pytest.MonkeyPatch,
    log: list[Any],
    group: Group,
    owner: Callable[[], Owner],
    story: Callable[[Owner], Coroutine[Any, Any, None]],
    fails: list[Exception] | None = None,
) -> Owner:
    commits = fails or []
    monkeypatch.setattr(transactions, "make_producer", lambda *_, **options: Producer(log, commits))

    async def go() -> Owner:
        one = owner()
        one.start()
        await story(one)
        async with asyncio.timeout(PATIENCE):
            await one.close()
        return one

    return asyncio.run(go())


def test_the_owner_before_is_fenced_before_offset_and_state_are_read(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    group = Group(log, 7)

    async def story(owner: Owner) -> None:
        await until(lambda: owner.ready)
        for offset in (7, 8, 10):
            owner.put(message(b"%d" % offset, offset))
        owner.put(message(b"again", 8))
        await until(lambda: owner.position == 11)

    owner = run(monkeypatch, log, group, lambda: Owner(group), story)
    assert log == ["fence", "offset", "load", ([("out", b"7,8,10")], 11)]
    assert group.sought == [7]
    assert not owner.ready


def test_an_owner_ends_though_its_producer_swallows_the_cancellation(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    """Else its group deals no partition again, and it fences the owner after it without end."""
    stops: list[asyncio.Event] = []

    async def stop(_: Producer) -> None:
        stops.append(asyncio.Event())
        with contextlib.suppress(asyncio.CancelledError):
            await stops[-1].wait()

    async def story(_: Owner) -> None:
        await until(lambda: stops)

    monkeypatch.setattr(Producer, "stop", stop)
    monkeypatch.setattr(owners, "_FENCED_PAUSE", PATIENCE)  # it is over before that
    monkeypatch.setattr(process, "_CANCEL_AGAIN_SECONDS", 2 * PATIENCE)  # it takes no second one
    group = Group(log, 7)
    owner = run(monkeypatch, log, group, lambda: Owner(group, [ProducerFenced()]), story)
    assert owner.opened == 1
    assert len(stops) == 1


def test_an_owner_ends_though_the_clients_of_its_offsets_swallow_the_cancellation(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    asked = asyncio.Event()

    async def offsets(self: Group, tp: TopicPartition) -> KnownOffsets:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return KnownOffsets(7, "", 0, 10)

    async def story(_: Owner) -> None:
        await asked.wait()

    monkeypatch.setattr(Group, "offsets", offsets)
    monkeypatch.setattr(process, "_CANCEL_AGAIN_SECONDS", 2 * PATIENCE)
    group = Group(log, 7)
    assert not run(monkeypatch, log, group, lambda: Owner(group), story).ready


def test_every_owner_of_a_partition_opens_the_same_transactional_id(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    """Else it fences nobody. Those of other partitions and groups are others."""
    opened: list[str] = []

    def producer(**options: Any) -> Producer:
        opened.append(options["transactional_id"])
        return Producer(log, [])

    async def open_each() -> None:
        for tp in (TP, TP, TopicPartition("rag.traces", 4), TopicPartition("rag.spans", 3)):
            owner = Owner(Group(log, 0))
            owner.tp = tp
            owner.start()
            await until(partial(getattr, owner, "ready"))
            await owner.close()

    monkeypatch.setattr(owners, "AIOKafkaProducer", producer)
    asyncio.run(open_each())
    first, again, *others = opened
    assert first == again
    assert len({first, *others}) == 3


def test_where_nothing_is_committed_the_beginning_is(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    group = Group(log, None, first=4)

    async def story(owner: Owner) -> None:
        await until(lambda: owner.ready)

    run(monkeypatch, log, group, lambda: Owner(group), story)
    assert log[-1] == ([], 4)
    assert (group.sought, group.lost) == ([4], 0)


def test_what_the_retention_deleted_is_counted(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    group = Group(log, 3, first=10)

    async def story(owner: Owner) -> None:
        await until(lambda: owner.ready)

    run(monkeypatch, log, group, lambda: Owner(group), story, [KafkaConnectionError()])
    assert (group.sought, group.lost) == ([10], 7), "once, however often the owner begins"
    assert log[-1] == ([], 10), "so that the next owner does not count it again"


def test_an_offset_beyond_the_end_is_said_and_passes_over_nothing(
    monkeypatch: pytest.MonkeyPatch, log: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(log, 5000, first=2, end=30)

    async def story(owner: Owner) -> None:
        await until(lambda: owner.ready)

    run(monkeypatch, log, group, lambda: Owner(group), story)
    assert group.sought == [2]
    assert log[-1] == ([], 2), "so that the group no longer names an offset that is not there"
    assert "offset 5000 is committed, but the topic ends at 30" in caplog.text


@pytest.mark.parametrize(
    "error", [KafkaConnectionError(), ProducerFenced(), BeginAgain(), IllegalOperation()]
)
def test_an_owner_begins_again_with_what_is_committed(
    monkeypatch: pytest.MonkeyPatch, log: list[Any], error: Exception
) -> None:
    group = Group(log, 0)

    async def story(owner: Owner) -> None:
        await until(lambda: owner.ready)
        owner.put(message(b"a", 0))
        await until(lambda: owner.opened == 2 and owner.ready)
        assert not owner.queue, "what was taken is read again"
        owner.put(message(b"a", 0))
        await until(lambda: owner.position == 1)

    run(monkeypatch, log, group, lambda: Owner(group), story, [error])
    assert [one for one in log if isinstance(one, tuple)] == [([("out", b"a")], 1)]
    assert group.sought == [0, 0]
    assert group.failed == []


def test_an_outage_of_an_hour_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    """Commits fail, then no connection opens; pauses take no time here, but are counted."""
    now = 0.0
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        owner.measure(10, 20)  # there is work
        stalls.append(max(watchdog.update({TP: owner.mark}).values(), default=0.0))
        await sleep(0)

    class Away(Producer):
        async def start(self) -> None:
            if 0 < now < 3600:
                raise KafkaConnectionError
            self.log.append("fence")

    monkeypatch.setattr(asyncio, "sleep", pause)
    watchdog = Watchdog[TopicPartition](lambda: now)
    stalls = list[float]()
    group = Group(log, 10)
    monkeypatch.setattr(transactions, "make_producer", lambda *_, **options: Away(log, []))
    owner = Owner(group, [KafkaConnectionError()])

    async def outlive() -> None:
        owner.start()
        async with asyncio.timeout(PATIENCE):
            while now < 3600 or not owner.ready:
                await sleep(0)
        await owner.close()

    asyncio.run(outlive())
    assert 200 < len(stalls) < 300, "a try every 15 s at most"
    assert max(stalls) == 0
    assert not group.failed
    assert log.count("fence") == 2


def test_a_defect_ends_the_worker(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    group = Group(log, 0)

    async def story(owner: Owner) -> None:
        await until(lambda: group.failed)

    run(monkeypatch, log, group, lambda: Owner(group, [KeyError("x")]), story)
    assert isinstance(group.failed[0], KeyError)


def test_the_lag_is_what_is_not_committed_and_the_end_of_a_transaction_is_nothing() -> None:
    async def go() -> None:
        owner = Owner(Group([], 0))
        owner.ready = True
        owner.position = 5
        owner.expected = 5
        owner.measure(6, 6)
        assert (owner.lag, owner.mark) == (0, None)
        owner.measure(5, 9)
        assert (owner.lag, owner.mark) == (4, (5, 5))
        owner.put(message(b"a", 5, timestamp=1000))
        owner.measure(9, 9)
        assert owner.lag == 4
        assert owner.lag_seconds > 1e9
        owner.ready = False
        assert owner.mark is None

    asyncio.run(go())


def test_a_busy_worker_does_not_take_the_brokers_for_away() -> None:
    """At the limit of its CPU it measures its lag for seconds, or not at all; it commits."""

    class Busy(Group):
        async def measure(self) -> None:
            await asyncio.sleep(2.5)

    async def go() -> None:
        answered = asyncio.Event()
        following = asyncio.create_task(follow_lag(answered.set, cast(Any, Busy([], 0))))
        await asyncio.wait_for(answered.wait(), PATIENCE)
        following.cancel()
        group = Busy([], 0)
        owner = Owner(group)
        owner._producer = cast(Any, Producer([], []))
        before = time.monotonic()
        await owner.commit([], 1)
        assert group.answered_at >= before

    asyncio.run(go())


def test_an_owner_outlives_a_rebalance_that_leaves_its_partition() -> None:
    class Kept(Owner):
        def start(self) -> None:
            started.append(self)

        async def close(self) -> None:
            closed.append(self)

    started: list[Kept] = []
    closed: list[Kept] = []

    async def go() -> None:
        notified = Group([], 0)
        build: Any = lambda group, tp: Kept(notified)  # noqa: E731
        group = ScoreGroup(Settings(), [], build, notified, notified.fail)
        assert not group.ready
        await group.assign([TP, TopicPartition("rag.traces", 4)])
        started[0].lag, started[1].lag = 3, 4
        assert (group.waiting("rag.traces"), group.waiting("rag.feedback")) == (7, 0)
        await group.assign([TP])
        assert len(started) == 2
        assert closed == [started[1]]
        assert group.owners == {TP: started[0]}
        await group.close()
        assert len(closed) == 2

    asyncio.run(go())


class Consumer:
    def __init__(self) -> None:
        self.positions: dict[Any, int] = {}

    def assignment(self) -> set[Any]:
        return {TP}

    def seek(self, tp: Any, offset: int) -> None:
        self.positions[tp] = offset


def test_a_read_that_was_under_way_when_a_partition_was_sought_counts_for_nothing() -> None:
    seeks = Seeks()
    consumer = Consumer()
    other = TopicPartition("rag.traces", 9)
    seeks.pending |= {TP: 7, other: 1}
    assert seeks.apply(consumer) == consumer.positions == {TP: 7}
    assert seeks.valid({TP: ["x"]}) == {TP: ["x"]}
    seeks.pending[TP] = 3  # while the read is under way
    assert seeks.valid({TP: ["x"], other: ["y"]}) == {other: ["y"]}
    seeks.apply(consumer)
    assert consumer.positions == {TP: 3}


@pytest.mark.parametrize("answer", [{}, {TP: (-1, "")}, {TP: (7, "12")}])
def test_a_coordinator_that_does_not_answer_is_not_one_without_an_offset(
    monkeypatch: pytest.MonkeyPatch, answer: dict[TopicPartition, tuple[int, str]]
) -> None:
    """All would be read again, in a new epoch."""

    class Client:
        def __init__(self, *_: object, **options: object) -> None: ...

        async def start(self) -> None: ...

        stop = close = start

        async def list_consumer_group_offsets(self, *_: object, **options: object) -> Any:
            return answer

        async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(tps, 3)

        end_offsets = beginning_offsets

    monkeypatch.setattr(owners, "AIOKafkaAdminClient", Client)
    monkeypatch.setattr(owners, "make_consumer", Client)
    notified = Group([], 0)
    group = ScoreGroup(Settings(), [], cast(Any, None), cast(Any, notified), notified.fail)
    if not answer:
        with pytest.raises(BeginAgain, match="does not say what is committed"):
            asyncio.run(group.offsets(TP))
        return
    found = asyncio.run(group.offsets(TP))
    assert (found.committed, found.note) == {-1: (None, ""), 7: (7, "12")}[answer[TP][0]]
