from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.kafka.processors.acknowledged import AckTicket, AckTracker, OrderedAcks

Item = tuple[int, int, int]
"""(partition, generation, offset)"""


class Broker:
    """What a group with one consumer sees, and the promises checked by brute force."""

    def __init__(self, most: int, partitions: int, rng: random.Random) -> None:
        self.most, self.rng = most, rng
        self.tracker: AckTracker[Item] = AckTracker(most)
        self.generation = 0
        self.next = dict.fromkeys(range(partitions), 0)
        self.acked = dict.fromkeys(self.next, 0)  # position to commit
        self.committed = dict(self.acked)
        self.finished: set[tuple[int, int]] = set()
        self.delivered: dict[int, list[int]] = {p: [] for p in self.next}  # this generation's
        self.running: list[AckTicket[Item]] = []

    def deliver(self) -> None:
        partition = self.rng.choice(list(self.next))
        offset = self.next[partition]
        self.next[partition] += self.rng.choice(
            [1, 1, 1, 2, 7]
        )  # compacted away, or a control record
        self.delivered[partition].append(offset)
        assert self.tracker.put(
            partition, self.generation, offset, (partition, self.generation, offset)
        )

    def begin(self) -> None:
        for ticket in self.tracker.take():
            partition, generation, offset = ticket.item
            assert generation == self.generation
            # the promise: all that was ever delivered up to m - K was finished before m begins
            behind = [o for o in self.delivered[partition] if o <= offset - self.most]
            assert all((partition, o) in self.finished for o in behind)
            self.running.append(ticket)
        assert len(self.running) == self.tracker.running <= self.most

    def end(self) -> None:
        if not self.running:
            return
        ticket = self.running.pop(self.rng.randrange(len(self.running)))
        partition, generation, offset = ticket.item
        if self.rng.random() < 0.02:
            self.tracker.fail(ticket)
            self.rebalance()  # the worker crashes; its group goes on
            return
        self.finished.add((partition, offset))
        for item in self.tracker.finish(ticket):
            assert item[1] == self.generation == generation, "an old generation was acknowledged"
            assert item[2] >= self.acked[partition], "out of order"
            between = [o for o in self.delivered[partition] if o <= item[2]]
            assert all((partition, o) in self.finished for o in between)
            self.acked[partition] = item[2] + 1

    def commit(self) -> None:
        self.committed.update(self.acked)

    def rebalance(self) -> None:
        self.generation += 1
        self.acked = dict(self.committed)
        self.delivered = {
            partition: [offset for offset in offsets if offset < self.committed[partition]]
            for partition, offsets in self.delivered.items()
        }
        self.next = dict(self.committed)
        if self.rng.random() < 0.5:
            self.tracker.close(list(self.next))
        else:
            self.deliver()  # the first of the new generation closes the tracker as well


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4))
def test_promises_hold_in_any_order_of_events(seed: int, most: int, partitions: int) -> None:
    rng = random.Random(seed)
    broker = Broker(most, partitions, rng)
    steps = [broker.deliver, broker.begin, broker.end, broker.commit, broker.rebalance]
    for step in rng.choices(steps, [30, 30, 30, 3, 1], k=400):
        step()
    # and it comes to an end: all that was delivered is acknowledged
    for _ in range(2_000):
        broker.begin()
        broker.end()
    for partition, offsets in broker.delivered.items():
        assert all(offset < broker.acked[partition] for offset in offsets)


def test_another_generation_has_another_book() -> None:
    tracker: AckTracker[str] = AckTracker(4)
    tracker.put(0, 1, 5, "old 5")
    (old,) = tracker.take()
    tracker.put(0, 2, 5, "new 5")
    tracker.put(0, 2, 6, "new 6")
    five, six = tracker.take()
    assert tracker.finish(old) == []
    assert tracker.finish(six) == []
    assert tracker.finish(five) == ["new 5", "new 6"]
    assert not tracker.put(0, 1, 7, "from a buffer")
    assert tracker.running == tracker.waiting == 0


def test_an_offset_that_goes_back_opens_another_book() -> None:
    tracker: AckTracker[int] = AckTracker(4)
    tracker.put(0, 1, 5, 5)
    (first,) = tracker.take()
    tracker.put(0, 1, 5, 5)
    (second,) = tracker.take()
    assert tracker.finish(first) == []
    assert tracker.finish(second) == [5]


def test_a_slow_partition_does_not_hold_up_another() -> None:
    tracker: AckTracker[tuple[int, int]] = AckTracker(3)
    for offset in range(6):
        tracker.put(0, 1, offset, (0, offset))
    slow, *others = tracker.take()
    for ticket in others:
        assert tracker.finish(ticket) == []
    assert tracker.take() == []  # 3 would be K after 0
    for offset in range(6):
        tracker.put(1, 1, offset, (1, offset))
        (ticket,) = tracker.take()
        assert tracker.finish(ticket) == [(1, offset)]
    assert tracker.finish(slow) == [(0, 0), (0, 1), (0, 2)]
    assert tracker.oldest() == {0: 3}


def test_partitions_take_turns() -> None:
    tracker: AckTracker[int] = AckTracker(1)
    for offset in range(3):
        for partition in range(3):
            tracker.put(partition, 1, offset, partition)
    order = []
    while tickets := tracker.take():
        order += [ticket.item for ticket in tickets]
        tracker.finish(tickets[0])
    assert order == [0, 1, 2] * 3


async def idle(acks: OrderedAcks[int]) -> None:
    tracker = acks.tracker
    while (  # noqa: ASYNC110
        tracker.running or tracker.waiting or acks._acking
    ) and acks.error is None:
        await asyncio.sleep(0.001)


def test_acks_are_in_order_though_handlers_and_acks_take_their_time() -> None:
    rng = random.Random(3)
    acked: list[int] = []
    most = 0

    async def handle(item: int) -> None:
        nonlocal most
        most = max(most, acks.tracker.running)
        await asyncio.sleep(rng.random() * 0.004)

    async def ack(item: int) -> None:
        await asyncio.sleep(rng.random() * 0.002)
        acked.append(item)

    async def failed(error: BaseException) -> None:
        raise AssertionError

    acks: OrderedAcks[int]

    async def main() -> None:
        nonlocal acks
        acks = OrderedAcks(8, handle, ack, failed)
        for offset in range(200):
            await acks.submit(0, 1, offset, offset)
        await idle(acks)

    acks = OrderedAcks(8, handle, ack, failed)
    asyncio.run(asyncio.wait_for(main(), 60))
    assert acked == list(range(200))
    assert most == 8


@pytest.mark.parametrize("broken", ["handle", "ack"])
def test_what_fails_ends_it_once_and_nothing_behind_it_is_acknowledged(broken: str) -> None:
    acked: list[int] = []
    told: list[BaseException] = []

    async def handle(item: int) -> None:
        await asyncio.sleep(0.001)
        if broken == "handle" and item == 3:
            raise OSError("no broker")

    async def ack(item: int) -> None:
        if broken == "ack" and item == 3:
            raise OSError("no broker")
        acked.append(item)

    async def failed(error: BaseException) -> None:
        told.append(error)

    async def main() -> None:
        acks = OrderedAcks(4, handle, ack, failed)

        async def feed() -> None:
            for offset in range(100):
                await acks.submit(0, 1, offset, offset)

        with pytest.raises(OSError, match="no broker"):
            await feed()
        await idle(acks)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert acked == [0, 1, 2]
    assert len(told) == 1


class Held:
    """Handlers wait for `go`; what began and what was acknowledged is noted, and none may fail."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.acked: list[int] = []
        self.go = asyncio.Event()

    async def handle(self, item: int) -> None:
        self.begun.append(item)
        await self.go.wait()

    async def ack(self, item: int) -> None:
        self.acked.append(item)

    async def failed(self, error: BaseException) -> None:
        raise AssertionError

    def acks(self, most: int) -> OrderedAcks[int]:
        return OrderedAcks(most, self.handle, self.ack, self.failed)


def test_revoked_partitions_are_not_acknowledged() -> None:
    held = Held()

    async def main() -> None:
        acks = held.acks(4)
        for offset in range(3):
            await acks.submit(0, 1, offset, offset)
            await acks.submit(1, 1, offset, 10 + offset)
        await asyncio.sleep(0)
        acks.close([0])
        held.go.set()
        await idle(acks)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert held.acked == [10, 11, 12]


def test_a_rebalance_waits_for_what_is_under_way_and_for_nothing_behind_it() -> None:
    held = Held()

    async def main() -> None:
        acks = held.acks(2)
        for offset in range(4):
            await acks.submit(0, 1, offset, offset)
        blocked = asyncio.create_task(acks.submit(0, 1, 4, 4))
        await asyncio.sleep(0)
        assert acks.hold() == [2, 3]
        assert not await blocked, "else it would be acknowledged before those that were dropped"
        assert not await acks.submit(0, 1, 5, 5)
        held.go.set()
        await idle(acks)
        assert held.acked == held.begun == [0, 1]
        assert await acks.submit(0, 2, 2, 2)
        await idle(acks)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert held.acked == held.begun == [0, 1, 2]
