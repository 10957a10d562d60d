"""A state is read back whole, whatever a rebalance has left in Faust's queues."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.tables.recovery import Recovery
from faust.transport.conductor import ConductorCompiler
from faust.types import TP
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from ragmeter.kafka.consumer import ContiguousFrom
from ragmeter.kafka.tables import ChangelogQueue, SafeTableManager

LOG = TP("state-changelog", 0)


class App:
    """As much of one as the way of a message of the changelog needs."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(stream_buffer_maxsize=4)
        self.sensors = SimpleNamespace(on_topic_buffer_full=lambda tp: None)
        self.flow_control = FlowControlEvent(initially_suspended=False)
        self.producer = SimpleNamespace(buffer=SimpleNamespace(wait_until_ebb=self._at_once))
        self.consumer = SimpleNamespace(
            on_buffer_full=lambda tp: None, on_buffer_drop=lambda tp: None, flow_active=True
        )
        self.consumer_generation_id = 6
        self.tables = SimpleNamespace()
        self.failed: list[BaseException] = []

    async def _at_once(self) -> None: ...

    async def fail(self, error: BaseException) -> None:
        self.failed.append(error)


class Channel:
    key_type = value_type = bytes

    def __init__(self, queue: ThrowableQueue[Any]) -> None:
        self.queue = queue

    async def decode(self, message: Any, propagate: bool) -> Any:
        return SimpleNamespace(message=message)

    async def put(self, event: Any) -> None:
        await self.queue.put(event)


def message(offset: int, generation: int, since: int | None = None) -> Any:
    return SimpleNamespace(
        tp=LOG,
        topic=LOG.topic,
        partition=LOG.partition,
        offset=offset,
        generation_id=generation,
        checksum=ContiguousFrom(offset if since is None else since),
        incref=lambda n: None,
    )


class Reading:
    """Faust's own way to the queue, and what its recovery makes of what comes out of it."""

    def __init__(self, seen: int) -> None:
        self.app = App()
        manager = SimpleNamespace(app=self.app, _changelog_queue=None)
        manager.recovery = SimpleNamespace(active_offsets={LOG: seen}, active_tps={LOG})
        self.recovery = manager.recovery
        self.queue: Any = SafeTableManager.changelog_queue.fget(manager)  # type: ignore[attr-defined]
        conductor: Any = SimpleNamespace(app=self.app)
        channels: Any = {Channel(self.queue)}
        self.deliver: Any = ConductorCompiler().build(conductor, LOG, channels)
        self.read: list[int] = []

    async def slurp(self) -> None:
        """As `Recovery._slurp_changelogs`."""
        while True:
            self.take(await self.queue.get())

    def take(self, event: Any) -> None:
        if event.message.offset > self.recovery.active_offsets[LOG]:
            self.recovery.active_offsets[LOG] = event.message.offset
            self.read.append(event.message.offset)


def test_what_waited_for_room_at_a_rebalance_does_not_come_later() -> None:
    async def test() -> list[int]:
        reading = Reading(-1)
        app = reading.app
        waiting: asyncio.Task[None]
        for offset in range(5):  # the last one waits for room
            waiting = asyncio.create_task(reading.deliver(message(offset, 6)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        reading.take(await reading.queue.get())  # now there is room, but nobody has used it yet
        # the group forms anew: Faust stops the flow, which lets go of whoever delivers
        app.consumer.flow_active = False
        app.flow_control.suspend()
        waiting.cancel()
        app.flow_control.clear()
        slurping = asyncio.create_task(reading.slurp())
        await asyncio.sleep(0.01)
        app.consumer_generation_id = 7
        app.flow_control.resume()
        app.consumer.flow_active = True
        for offset in range(8):  # sought anew
            await reading.deliver(message(offset, 7))
        await asyncio.sleep(0.01)
        slurping.cancel()
        assert not app.failed
        return reading.read

    assert asyncio.run(test()) == list(range(8))


def read(seen: int, *messages: Any, flows: bool = True) -> tuple[list[int], list[str]]:
    async def test() -> tuple[list[int], list[str]]:
        reading = Reading(seen)
        reading.app.consumer.flow_active = flows
        slurping = asyncio.create_task(reading.slurp())
        for one in messages:
            await reading.deliver(one)
        await asyncio.sleep(0.01)
        slurping.cancel()
        return reading.read, [str(error) for error in reading.app.failed]

    return asyncio.run(test())


def test_what_compaction_has_left_out_is_no_gap() -> None:
    found = read(9, message(9, 6), message(20, 6, since=10), message(25, 6, since=21))
    assert found == ([20, 25], [])


def test_a_part_that_is_missing_ends_the_worker() -> None:
    found, failed = read(9, message(10, 6), message(12, 6))
    assert found == [10]
    assert failed == [
        "state-changelog/0: offset 12 of the changelog was delivered without those from 11 on"
    ]


def test_what_comes_while_the_flow_is_off_is_left_for_later() -> None:
    assert read(9, message(10, 6), flows=False) == ([], [])


def test_it_is_the_queue_of_a_manager() -> None:
    async def test() -> None:
        assert isinstance(Reading(0).queue, ChangelogQueue)

    asyncio.run(test())


def test_nothing_flows_while_a_recovery_comes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's own recovery resumes the streams, and then seeks: what comes in between is lost."""
    said: list[str] = []

    async def stopped() -> None:
        said.append("stopped")

    async def completed(self: Any, generation_id: int = 0) -> None:
        said.append("sought and resumed")

    monkeypatch.setattr(Recovery, "on_recovery_completed", completed)
    app: Any = SimpleNamespace(
        conf=SimpleNamespace(stream_recovery_delay=0.0),
        consumer=SimpleNamespace(
            stop_flow=lambda: said.append("stop"), wait_for_stopped_flow=stopped
        ),
        flow_control=SimpleNamespace(suspend=lambda: said.append("suspend")),
        consumer_generation_id=6,
        take_over=lambda generation, assigned: said.append(f"take over {generation}"),
        start_owners=lambda generation: said.append(f"taken over {generation}"),
    )
    manager: Any = SimpleNamespace(app=app, beacon=None, loop=None, _recovery=None)
    recovery: Any = SafeTableManager.recovery.fget(manager)  # type: ignore[attr-defined]
    recovery.active_tps = {LOG}
    asyncio.run(recovery.on_recovery_completed(6))
    assert said == [
        *("stop", "suspend", "stopped"),
        *("take over 6", "sought and resumed", "taken over 6"),
    ]
    said.clear()
    asyncio.run(recovery.on_recovery_completed(5))  # another generation by now
    assert said[3:] == ["sought and resumed"]
