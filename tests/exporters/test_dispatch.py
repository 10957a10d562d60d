"""Delivery: retries, order, bounds, and that nobody waits for a target that hangs."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest
from ragmeter.store.rows import OutboxItem
from ragmeter_exporters.dispatch import (
    DeliveryOutcome,
    DeliveryPolicy,
    Dispatcher,
    classify_status,
)

from tests.exporters.memory_outbox import MemoryOutbox
from tests.tables import each_row
from tests.waiting import PATIENCE, until_async


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A dispatcher over a memory outbox with a clock turned by hand."""

    def __init__(
        self,
        answers: Callable[[OutboxItem], Awaitable[DeliveryOutcome]],
        *,
        concurrency: int = 4,
        timeout: float = 5.0,
    ) -> None:
        self.clock = Clock()
        self.outbox = MemoryOutbox()
        self.counts: Counter[str] = Counter()
        self.sent: list[str] = []

        async def send(item: OutboxItem) -> DeliveryOutcome:
            self.sent.append(item.id)
            return await answers(item)

        self.dispatcher = Dispatcher(
            "webhook",
            self.outbox,
            send,
            clock=self.clock,
            count=lambda target, outcome: self.counts.update([outcome]),
            rng=random.Random(1),
            policy=DeliveryPolicy(concurrency, poll=0.005, timeout=timeout),
        )

    def put(self, item_id: str, key: str = "") -> None:
        self.outbox.put(OutboxItem(item_id, key or item_id, "{}", self.clock.now))

    async def __aenter__(self) -> Bench:
        self.task = asyncio.create_task(self.dispatcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dispatcher.stop(1.0)
        await self.task


def always(outcome: DeliveryOutcome) -> Callable[[OutboxItem], Awaitable[DeliveryOutcome]]:
    async def answer(_: OutboxItem) -> DeliveryOutcome:
        return outcome

    return answer


def test_what_is_due_is_sent_once_and_leaves_the_outbox() -> None:
    async def scenario() -> None:
        async with Bench(always(DeliveryOutcome("sent"))) as bench:
            for name in "abcdefgh":
                bench.put(name)
            await until_async(lambda: len(bench.outbox) == 0)
        assert sorted(bench.sent) == list("abcdefgh")
        assert bench.counts == {"sent": 8}

    asyncio.run(scenario())


def test_a_failure_waits_longer_each_time_and_is_tried_until_it_works() -> None:
    async def scenario() -> None:
        replies = [DeliveryOutcome("retry", "HTTP 503")] * 6 + [DeliveryOutcome("sent")]

        async def answer(_: OutboxItem) -> DeliveryOutcome:
            return replies.pop(0)

        async with Bench(answer) as bench:
            bench.put("a")
            waits = []
            for attempt in range(6):
                await until_async(lambda attempt=attempt: bench.counts["retry"] == attempt + 1)  # type: ignore[misc]
                waits.append(bench.outbox.next_at() - bench.clock.now)
                bench.clock.now += waits[-1]
            await until_async(lambda: bench.counts["sent"] == 1)
        for attempt, wait in enumerate(waits):
            assert 2**attempt / 2 <= wait <= 2**attempt
        assert len(bench.sent) == 7

    asyncio.run(scenario())


def test_retries_never_wait_longer_than_five_minutes_by_themselves() -> None:
    async def scenario() -> None:
        async with Bench(always(DeliveryOutcome("retry", "x"))) as bench:
            bench.outbox.put(OutboxItem("a", "a", "{}", bench.clock.now, attempts=1000))
            await until_async(lambda: bench.counts["retry"] == 1)
        assert 150 <= bench.outbox.next_at() - bench.clock.now <= 300

    asyncio.run(scenario())


def test_retry_after_is_obeyed() -> None:
    async def scenario() -> None:
        async with Bench(always(DeliveryOutcome("retry", "HTTP 429", 700.0))) as bench:
            bench.put("a")
            await until_async(lambda: bench.counts["retry"] == 1)
            assert bench.outbox.next_at() == bench.clock.now + 700
            bench.clock.now += 699
            await asyncio.sleep(0.03)
        assert bench.sent == ["a"]

    asyncio.run(scenario())


def test_what_is_refused_is_dropped_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Bench(always(DeliveryOutcome("refused", "HTTP 404"))) as bench:
            bench.put("a")
            await until_async(lambda: len(bench.outbox) == 0)
        assert bench.counts == {"refused": 1}

    asyncio.run(scenario())
    assert "notification a to webhook dropped: HTTP 404" in caplog.text


def test_what_is_older_than_a_day_is_dropped_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with Bench(always(DeliveryOutcome("retry", "down"))) as bench:
            bench.put("a")
            await until_async(lambda: bench.counts["retry"] == 1)
            bench.clock.now += 86_401
            await until_async(lambda: len(bench.outbox) == 0)
        assert bench.counts == {"retry": 1, "expired": 1}

    asyncio.run(scenario())
    assert "not taken within 86400 s" in caplog.text


def retried(bench: Bench, times: int) -> bool:
    return bench.counts["retry"] >= times


def test_the_first_failure_of_a_cause_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reasons = ["refused connection", "refused connection", "timeout", "refused connection"]

    async def scenario() -> None:
        async def answer(_: OutboxItem) -> DeliveryOutcome:
            return DeliveryOutcome("retry", reasons[len(bench.sent) - 1])

        async with Bench(answer) as bench:
            bench.put("a")
            for pause in (5, 5, 3600, 0):
                attempts = bench.counts["retry"] + 1
                await until_async(partial(retried, bench, attempts))
                bench.clock.now += pause

    asyncio.run(scenario())
    lines = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "INFO", "WARNING", "WARNING"]
    assert "notification a to webhook: refused connection, again in " in lines[0][1]
    assert lines[0][1].endswith("given up after 24 h")


def test_resolved_never_overtakes_firing() -> None:
    async def scenario() -> None:
        replies = {"firing": [DeliveryOutcome("retry", "down"), DeliveryOutcome("sent")]}

        async def answer(item: OutboxItem) -> DeliveryOutcome:
            return replies[item.id].pop(0) if item.id in replies else DeliveryOutcome("sent")

        async with Bench(answer) as bench:
            bench.put("firing", key="alert")
            bench.put("resolved", key="alert")
            bench.put("other")
            await until_async(lambda: bench.counts["sent"] == 1)
            await asyncio.sleep(0.03)
            assert "resolved" not in bench.sent
            bench.clock.now += 10
            await until_async(lambda: len(bench.outbox) == 0)
        assert bench.sent[-2:] == ["firing", "resolved"]

    asyncio.run(scenario())


def test_one_that_hangs_times_out_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async def answer(item: OutboxItem) -> DeliveryOutcome:
            if item.id == "hangs":
                await asyncio.sleep(60)
            return DeliveryOutcome("sent")

        async with Bench(answer, timeout=2.0) as bench:
            bench.put("hangs")
            for name in "abcdefgh":
                bench.put(name)
            await until_async(lambda: bench.counts["sent"] == 8)
            assert bench.counts["retry"] == 0, "all others are through before it times out"
            await until_async(lambda: bench.counts["retry"] == 1)
        assert "notification hangs to" in caplog.text
        assert "timeout, again in" in caplog.text

    asyncio.run(scenario())


def test_concurrency_is_bounded() -> None:
    async def scenario() -> None:
        flying, most = 0, 0

        async def answer(_: OutboxItem) -> DeliveryOutcome:
            nonlocal flying, most
            flying += 1
            most = max(most, flying)
            await asyncio.sleep(0.005)
            flying -= 1
            return DeliveryOutcome("sent")

        async with Bench(answer, concurrency=3) as bench:
            for index in range(20):
                bench.put(str(index))
            await until_async(lambda: len(bench.outbox) == 0)
        assert most == 3
        assert len(bench.sent) == 20

    asyncio.run(scenario())


def test_stop_takes_no_longer_than_allowed_and_keeps_what_was_not_sent() -> None:
    async def scenario() -> None:
        async def answer(_: OutboxItem) -> DeliveryOutcome:
            await asyncio.sleep(PATIENCE)
            return DeliveryOutcome("sent")

        bench = Bench(answer, timeout=PATIENCE)
        task = asyncio.create_task(bench.dispatcher.run())
        bench.put("a")
        await until_async(lambda: bench.sent == ["a"])
        begin = time.monotonic()
        await bench.dispatcher.stop(0.05)
        await task
        assert time.monotonic() - begin < PATIENCE / 2
        assert len(bench.outbox) == 1

    asyncio.run(scenario())


def test_a_sender_that_raises_is_a_retry_and_its_words_stay_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async def answer(_: OutboxItem) -> DeliveryOutcome:
            raise RuntimeError("https://hooks.example/T0/secret")

        async with Bench(answer) as bench:
            bench.put("a")
            await until_async(lambda: bench.counts["retry"] == 1)

    asyncio.run(scenario())
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_an_outbox_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = Bench(always(DeliveryOutcome("sent")))
        due = bench.outbox.due
        failures = [OSError("locked"), OSError("locked")]

        def sometimes(now: float, limit: int) -> list[OutboxItem]:
            if failures:
                raise failures.pop()
            return due(now, limit)

        bench.outbox.due = sometimes  # type: ignore[method-assign]
        async with bench:
            bench.put("a")
            await until_async(lambda: len(bench.outbox) == 0)
        assert bench.counts == {"error": 2, "sent": 1}

    asyncio.run(scenario())
    assert "the outbox cannot be read" in caplog.text


@pytest.mark.parametrize("outcome", ["sent", "refused"])
def test_what_was_told_is_not_told_again_while_the_disk_is_full(outcome: Any) -> None:
    async def scenario() -> None:
        bench = Bench(always(DeliveryOutcome(outcome)))
        done = bench.outbox.done
        failures = [OSError("full")] * 3

        def sometimes(item_id: str) -> None:
            if failures:
                raise failures.pop()
            done(item_id)

        bench.outbox.done = sometimes  # type: ignore[method-assign]
        async with bench:
            bench.put("a")
            await until_async(lambda: len(bench.outbox) == 0)
        assert bench.sent == ["a"]
        assert bench.counts == {"error": 3, outcome: 1}

    asyncio.run(scenario())


def test_the_same_id_is_enqueued_once() -> None:
    outbox = MemoryOutbox()
    for _ in range(2):
        outbox.put(OutboxItem("a", "a", "{}", 0.0))
    assert len(outbox) == 1


NOW = 1_767_225_600.0  # Thu, 01 Jan 2026 00:00:00 GMT


@each_row(
    ("status", "header", "expected"),
    [
        (200, None, DeliveryOutcome("sent")),
        (204, None, DeliveryOutcome("sent")),
        (302, None, DeliveryOutcome("retry", "HTTP 302")),
        (400, None, DeliveryOutcome("refused", "HTTP 400")),
        (404, "60", DeliveryOutcome("refused", "HTTP 404")),
        (408, None, DeliveryOutcome("retry", "HTTP 408")),
        (429, "60", DeliveryOutcome("retry", "HTTP 429", 60.0)),
        (503, "Thu, 01 Jan 2026 00:02:00 GMT", DeliveryOutcome("retry", "HTTP 503", 120.0)),
        (503, "Wed, 31 Dec 2025 00:00:00 GMT", DeliveryOutcome("retry", "HTTP 503", 0.0)),
        (503, "soon", DeliveryOutcome("retry", "HTTP 503")),
        (503, "-5", DeliveryOutcome("retry", "HTTP 503", 0.0)),
        (503, "9" * 400, DeliveryOutcome("retry", "HTTP 503", 3_600.0)),
        (429, "Fri, 31 Dec 2199 23:59:59 GMT", DeliveryOutcome("retry", "HTTP 429", 3_600.0)),
        (413, None, DeliveryOutcome("refused", "HTTP 413")),
        (413, "30", DeliveryOutcome("retry", "HTTP 413", 30.0)),
    ],
)
def test_statuses_are_judged(status: int, header: str | None, expected: DeliveryOutcome) -> None:
    headers = httpx.Headers({} if header is None else {"Retry-After": header})
    assert classify_status(status, headers, NOW) == expected


def test_a_date_to_retry_after_is_by_the_clock_of_the_target() -> None:
    ahead = {
        "Date": "Thu, 01 Jan 2026 01:00:00 GMT",
        "Retry-After": "Thu, 01 Jan 2026 01:00:04 GMT",
    }
    outcome = classify_status(429, httpx.Headers(ahead), NOW)
    assert outcome == DeliveryOutcome("retry", "HTTP 429", 4.0)
