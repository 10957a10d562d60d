"""Calls while the judge is down: they wait for it, for a time, and nobody asks it meanwhile."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from typing import Any

import httpx
import pytest
from ragmeter.scorers.llm.admission import PATIENCE

from tests.scorers.judge.asking import Asked, Clock, Reply, completion, question
from tests.tables import each_row


class Together(Clock):
    """A clock for sleepers side by side: `run` moves it to the next one's end when nobody works."""

    def __init__(self) -> None:
        super().__init__()
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = 0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._number += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self.now + seconds, self._number, future))
        await future

    async def run(self) -> None:
        while True:
            for _ in range(200):  # nothing here waits for anything but this clock
                await asyncio.sleep(0)
            if self._sleeping:
                due, _, future = heapq.heappop(self._sleeping)
                if not future.done():
                    self.now = max(self.now, due)
                    future.set_result(None)


class Outage:
    """A judge that is away from `start` to `end` on the clock of `asked`."""

    def __init__(self, start: float, end: float, **settings: Any) -> None:
        self.start, self.end = start, end
        self.sent: list[tuple[float, str]] = []
        self.asked = Asked(self._serve, clock=Together(), **settings)

    @property
    def clock(self) -> Together:
        assert isinstance(self.asked.clock, Together)
        return self.asked.clock

    def _serve(self, body: dict[str, Any], _: httpx.Request) -> Reply:
        self.sent.append((self.clock.now, body["messages"][1]["content"]))
        self.clock.now += 0.01
        return 503 if self.start <= self.clock.now < self.end else completion()

    async def all(self, number: int) -> Counter[Any]:
        calls = (self.asked.ask(question(str(n))) for n in range(number))
        running = asyncio.create_task(self.clock.run())
        notified = Counter(await asyncio.gather(*calls))
        running.cancel()
        return notified


@each_row("before", [0, 0.3, 3.0])
@each_row("seconds", [4, 20, 50])
def test_an_outage_loses_nothing(before: float, seconds: float) -> None:
    start = 1000 + before
    outage = Outage(start, start + seconds)
    assert asyncio.run(outage.all(300)) == {2: 300}
    away = [now for now, _ in outage.sent if start <= now < start + seconds]
    assert len(away) < 40, "an open breaker sends trials only"
    assert outage.asked.cost.requests == len(outage.sent) < 340


def test_who_waited_is_served_in_the_order_of_asking() -> None:
    outage = Outage(1000, 1004, concurrency=4)
    asyncio.run(outage.all(200))
    asked = [int(text) for now, text in outage.sent if now >= 1004]
    first = [n for n in asked if n >= 40]  # those before were in hand when it went away
    assert first == sorted(first)


def test_an_outage_that_lasts_longer_fails_what_waits_and_then_at_once() -> None:
    outage = Outage(1000, 5000)

    async def main() -> None:
        notified = await outage.all(100)
        assert set(notified) == {"judge_error", "judge_unavailable"}
        assert notified["judge_unavailable"] > 80
        now = outage.clock.now
        assert PATIENCE <= now - 1000 < PATIENCE + 5
        sent = len(outage.sent)
        assert await outage.asked.ask() == "judge_unavailable"
        assert (outage.clock.now, len(outage.sent)) == (now, sent)
        outage.clock.now = 5001
        assert await outage.all(50) == {2: 50}  # the first is the trial, the others wait for it

    asyncio.run(main())


@pytest.mark.parametrize("status", [401, 402, 403, 404])
def test_a_mistake_in_the_settings_is_not_waited_out(status: int) -> None:
    asked = Asked(lambda *_: status)

    async def main() -> None:
        notified = Counter(await asyncio.gather(*(asked.ask(question(str(n))) for n in range(50))))
        assert notified == {"judge_error": 1, "judge_unavailable": 49}
        assert asked.clock.slept == []

    asyncio.run(main())


def test_who_is_cancelled_while_waiting_leaves_the_others_in_place() -> None:
    """Also the one that the sleep until the trial was begun for, and one that was just woken."""
    outage = Outage(1000, 1004, concurrency=2, retries=0)
    gate = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await gate.wait()
        outage.clock.now += seconds

    async def main() -> None:
        assert set(await outage.all(10)) == {"judge_error"}
        outage.asked.client._server.admission.queue._sleep = sleep
        calls = [asyncio.create_task(outage.asked.ask(question(str(n)))) for n in range(30)]
        for _ in range(3):
            await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        gate.set()
        while outage.clock.now < 1004:  # noqa: ASYNC110 - nothing but the clock tells
            await asyncio.sleep(0)
        calls[1].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        cancelled = [isinstance(one, asyncio.CancelledError) for one in done]
        assert cancelled == [True, True] + [False] * 28
        assert done[2:] == [2] * 28
        assert not outage.asked.client._server.admission.queue._waiters
        assert outage.asked.client._server.admission.queue._timer is None

    asyncio.run(main())
