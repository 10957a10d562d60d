"""One signal on its way: a bounded queue in memory, batches, retries, and a count of every loss.

At most once over a crash: what waits is in memory, and what a killed process had not sent is lost.
A durable outbox, as alerts have it, would write every score twice to the state file and keep a
dead receiver's backlog on the disk; a score that is lost here is still in the windows. Within a
process a batch whose answer was lost is sent again, with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from exporters.otel.encode import Encode
from exporters.otel.results import Result
from exporters.otel.transport import Answer, compressed

__all__ = ["Channel", "Count"]

log = logging.getLogger("ragmeter")

BASE_DELAY, MAX_DELAY = 1.0, 30.0
"""Seconds between two tries of a receiver that is down: it is asked twice a minute for good."""

MAX_AFTER = 600.0
"""Seconds that `Retry-After` may ask for: a mistaken one must not end the export."""

QUIET = 60.0
"""Seconds between two lines of the log on a full queue: it may be full at every commit."""

Count = Callable[[str, str, int], None]
"""(signal, result, number): counted as ragmeter_results_exported_total{signal,result}."""


class Post(Protocol):
    """`exporters.otel.transport.Transport`, or a test's."""

    @property
    def shown(self) -> str: ...
    async def post(self, body: bytes, headers: Mapping[str, str]) -> Answer: ...


class Channel:
    """Sends results as one signal. `put` may be called from any one thread, before `run` too; all
    else belongs to the event loop.

    Results counted: sent, rejected (the receiver took the request and not these), refused (it took
    none and will not), queue_full, gave_up (not taken within `retry` seconds), error (a mistake of
    ours), not_sent (we ended).
    """

    def __init__(
        self,
        signal: str,
        transport: Post,
        encode: Encode,
        headers: Callable[[], Mapping[str, str]],
        *,
        count: Count,
        queue: int,
        batch: int,
        linger: float,
        retry: float,
        monotonic: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._signal = signal
        self._transport = transport
        self._encode = encode
        self._headers = headers
        self._count = count
        self._most = queue
        self._batch = batch
        self._linger = linger
        self._retry = retry
        self._monotonic = monotonic
        self._rng = rng or random.Random()
        self._queue: deque[Result] = deque()
        self._flying = 0
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self._full_at = float("-inf")
        self._trouble = ""

    def put(self, results: Sequence[Result]) -> None:
        """Take what there is room for; the rest is dropped. Never waits. `wake` follows."""
        room = max(0, self._most - len(self._queue))
        self._queue.extend(results[:room])
        dropped = len(results) - room
        if dropped > 0:
            self._count(self._signal, "queue_full", dropped)
            now = self._monotonic()
            if now - self._full_at > QUIET:
                log.warning("%s: the queue is full, results are dropped", self._transport.shown)
                self._full_at = now

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Send until `stop`, and then what is left, without waiting for anyone."""
        while True:
            batch = await self._gathered()
            if not batch:
                return
            self._flying = len(batch)
            if not await self._deliver(batch):
                return
            self._flying = 0

    async def stop(self, running: asyncio.Task[None], within: float) -> None:
        """End `run` within so many seconds; what is not sent by then is dropped."""
        self._stopping.set()
        self._news.set()
        await asyncio.wait([running], timeout=within)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        left = len(self._queue) + self._flying
        self._queue.clear()
        if left:
            self._count(self._signal, "not_sent", left)
            log.warning("%s: %d results were not sent at the end", self._transport.shown, left)

    async def _gathered(self) -> list[Result]:
        """The next batch: a full one, or what came within the linger time. Empty at the end."""
        while not self._queue and not self._stopping.is_set():
            self._news.clear()
            if not self._queue:  # put in between
                await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                while len(self._queue) < self._batch and not self._stopping.is_set():
                    self._news.clear()
                    await self._news.wait()
        return list(self._taken())

    def _taken(self) -> Iterator[Result]:
        for _ in range(min(self._batch, len(self._queue))):
            yield self._queue.popleft()

    async def _deliver(self, batch: Sequence[Result]) -> bool:
        """Whether to go on: False where we end and the receiver does not take this batch, for no
        other will fare better."""
        try:
            # in a thread: ten milliseconds of one core are an age to the loop that takes traces
            body = await asyncio.to_thread(lambda: compressed(self._encode(batch)))
            # what an earlier batch has learnt of the receiver is not held against this one
            await self._pause(self._not_before - self._monotonic())
            until = self._monotonic() + self._retry
            while True:
                headers = await asyncio.to_thread(self._headers)
                answer = await self._transport.post(body, headers)
                if answer.kind != "retry":
                    self._settle(answer, len(batch))
                    return True
                self._postpone(answer)
                if self._stopping.is_set():
                    return False
                if self._not_before > until:
                    self._drop("gave_up", len(batch), answer.reason)
                    return True
                await self._pause(self._not_before - self._monotonic())
        except Exception as error:
            # The type only: the text may hold what is sent.
            self._drop("error", len(batch), type(error).__name__)
            return True

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()

    def _postpone(self, answer: Answer) -> None:
        self._failures += 1
        full = min(BASE_DELAY * 2.0 ** min(self._failures - 1, 30), MAX_DELAY)
        delay = full * (0.5 + 0.5 * self._rng.random())  # many agents must not come back as one
        if answer.after is not None:
            delay = max(delay, min(answer.after, MAX_AFTER))
        self._not_before = self._monotonic() + delay
        self._say(f"not taken ({answer.reason}), again in {delay:.0f} s")

    def _settle(self, answer: Answer, number: int) -> None:
        self._failures, self._not_before = 0, 0.0
        if answer.kind == "refused":
            self._drop("refused", number, answer.reason)
            return
        rejected = min(answer.rejected, number)
        if rejected:
            self._drop("rejected", rejected, repr(answer.reason))
        elif self._trouble:
            log.info("%s: results are taken again", self._transport.shown)
            self._trouble = ""
        if number > rejected:
            self._count(self._signal, "sent", number - rejected)

    def _drop(self, result: str, number: int, why: str = "") -> None:
        self._count(self._signal, result, number)
        self._say(f"results are dropped: {result} {why}".rstrip())

    def _say(self, trouble: str) -> None:
        """Once, until results are taken again: a receiver may be down for days."""
        if not self._trouble:
            log.warning("%s: %s", self._transport.shown, trouble)
        self._trouble = trouble
