"""Deliver an outbox over HTTP at least once, with retries and bounded concurrency.

One `Dispatcher` per target. Due items are read from a durable outbox; an item leaves it only when
the target took it, refused it for good, or it grew too old. A crash in between sends it again, with
the same id: duplicates rather than losses.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import httpx
from ragmeter.core.connection_errors import explain_connection_error
from ragmeter.core.process import end_tasks
from ragmeter.core.report_pace import ReportPace
from ragmeter.core.retries import backoff_seconds, parse_retry_after
from ragmeter.store.rows import OutboxItem

from ragmeter_exporters.endpoint import DeliveryEndpoint

# Seconds for one whole request. A timeout per read would let a target drip bytes for ever.
TIMEOUT = 10.0
# Seconds between two attempts: a target that is back gets its backlog within five minutes.
BASE_DELAY = 1.0
MAX_DELAY = 300.0
# The longest pause that a target may ask for: asking it again once an hour costs nothing, and an
# hour lost to a date in error costs an alert.
LONGEST_PAUSE = 3600.0
# Seconds after which an undelivered notification is dropped: nobody acts on yesterday's alert.
MAX_AGE = 86_400.0

# Seconds between two warnings of one cause, while notifications are only retried.
_WARN_SECONDS = 3600.0

# (target, outcome): counted as ragmeter_notifications_total{target,outcome}.
DeliveryCount = Callable[[str, str], None]

log = logging.getLogger(__name__)


class NotificationOutbox(Protocol):
    """A durable queue for one target, called from threads; calls are short."""

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]:
        """Return up to `limit` due items, oldest first.

        An item stays behind older ones of its key. Items in flight stay due: the dispatcher knows
        them.
        """

    def done(self, item_id: str) -> None:
        """Remove an item."""

    def retry(self, item_id: str, at: float) -> None:
        """Make an item due at Unix time `at`, after an attempt that failed."""


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The end of one attempt.

    Args:
        kind: `refused` is for good.
        reason: For the log; it holds no secret.
        after: Seconds that the target asks to wait before a retry.
    """

    kind: Literal["sent", "retry", "refused"]
    reason: str = ""
    after: float | None = None


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Bounds of a dispatcher, times in seconds.

    Args:
        poll: Time between two looks at the outbox.
        timeout: Time for one delivery.
        max_age: Age at which an item is dropped.
    """

    concurrency: int = 4
    poll: float = 1.0
    timeout: float = TIMEOUT
    max_age: float = MAX_AGE


async def post_once(
    client: httpx.AsyncClient,
    endpoint: DeliveryEndpoint,
    body: bytes,
    headers: Mapping[str, str],
    *,
    classify: Callable[[httpx.Response], Awaitable[DeliveryOutcome]],
    limit: float = TIMEOUT,
) -> DeliveryOutcome:
    """Send one POST of JSON; network errors do not raise.

    `classify` judges the reply, whose body has not been read. `limit` is that of the whole request.
    """
    # httpx logs each request's whole URL at INFO, secrets in its path included.
    logger = logging.getLogger("httpx")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    try:
        async with asyncio.timeout(limit):
            async with client.stream(
                "POST",
                endpoint.url,
                content=body,
                headers={"Content-Type": "application/json", **headers},
                auth=endpoint.auth,
                timeout=limit,
            ) as response:
                return await classify(response)
    except (TimeoutError, httpx.TimeoutException):
        return DeliveryOutcome("retry", "timeout")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return DeliveryOutcome("retry", explain_connection_error(error))


def classify_status(status: int, headers: httpx.Headers, now: float) -> DeliveryOutcome:
    """Judge a reply: 2xx is sent, 4xx is refused, all else is worth a retry.

    So are 408, 429, and 413 where it names a time to try again, as it then will pass (RFC 9110).
    """
    if 200 <= status < 300:
        return DeliveryOutcome("sent")
    reason = f"HTTP {status}"
    after = parse_retry_after(headers, now, LONGEST_PAUSE)
    passes = status in (408, 429) or (status == 413 and after is not None)
    if 400 <= status < 500 and not passes:
        return DeliveryOutcome("refused", reason)
    return DeliveryOutcome("retry", reason, after)


class Dispatcher:
    """Sends due items until it is stopped.

    Outcomes counted: sent, retry, refused, expired, error (the outbox itself failed). `target` is
    the name in counts and logs; `clock` gives Unix time that does not jump.
    """

    def __init__(
        self,
        target: str,
        outbox: NotificationOutbox,
        send: Callable[[OutboxItem], Awaitable[DeliveryOutcome]],
        *,
        clock: Callable[[], float],
        count: DeliveryCount,
        rng: random.Random | None = None,
        policy: DeliveryPolicy | None = None,
    ) -> None:
        self._target = target
        self._outbox = outbox
        self._send = send
        self._clock = clock
        self._count = count
        self._rng = rng or random.Random()
        self._policy = policy or DeliveryPolicy()
        self._wake = asyncio.Event()
        self._stopping = False
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        # Ids sent or given up whose removal from the outbox has not succeeded yet.
        self._finished: set[str] = set()
        self._warned = ReportPace(clock, _WARN_SECONDS)

    def wake(self) -> None:
        """Look at the outbox now: an item was added."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver until `stop`; an outbox that fails is read again at the next poll."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self._start_due()
            except Exception:
                log.exception("notifications to %s: the outbox cannot be read", self._target)
                self._count(self._target, "error")
            try:
                async with asyncio.timeout(self._policy.poll):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def stop(self, within: float = 5.0) -> None:
        """End `run`; deliveries in flight get `within` seconds, the rest stays in the outbox."""
        self._stopping = True
        self._wake.set()
        tasks = list(self._in_flight.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within)
        await end_tasks(late)

    async def _start_due(self) -> None:
        room = self._policy.concurrency - len(self._in_flight)
        if room <= 0:
            return
        # Items in flight are still due: ask for enough to see past them. An item that lands while
        # the outbox is read is left out, too: it is done.
        # In a thread: the outbox is a file, and a slow disk must not stop the event loop.
        limit = self._policy.concurrency + len(self._in_flight)
        in_flight = set(self._in_flight)
        items = await asyncio.to_thread(self._outbox.due, self._clock(), limit)
        for item in [item for item in items if item.id not in in_flight][:room]:
            self._in_flight[item.id] = asyncio.create_task(self._deliver(item))

    async def _deliver(self, item: OutboxItem) -> None:
        try:
            await self._attempt(item)
        except Exception:
            log.exception("notifications to %s: the outbox cannot be written", self._target)
            self._count(self._target, "error")
            # The item is still due: without a pause it would be sent in a tight loop.
            await asyncio.sleep(self._policy.poll)
        finally:
            self._in_flight.pop(item.id, None)
            self._wake.set()

    async def _attempt(self, item: OutboxItem) -> None:
        if self._clock() - item.created > self._policy.max_age:
            await asyncio.to_thread(self._outbox.done, item.id)
            self._drop(item, "expired", f"not taken within {self._policy.max_age:.0f} s")
            return
        if item.id in self._finished:
            await self._done(item)
            return
        try:
            async with asyncio.timeout(self._policy.timeout):
                outcome = await self._send(item)
        except TimeoutError:
            outcome = DeliveryOutcome("retry", "timeout")
        except Exception as error:
            # The type only: the text of a sender's error may hold its URL.
            outcome = DeliveryOutcome("retry", type(error).__name__)
        if outcome.kind == "sent":
            self._count(self._target, "sent")
            await self._done(item)
        elif outcome.kind == "refused":
            self._drop(item, "refused", outcome.reason)
            await self._done(item)
        else:
            # half random, so that many agents do not come back as one
            pause = backoff_seconds(item.attempts, self._rng, BASE_DELAY, MAX_DELAY, jitter=0.5)
            delay = max(pause, outcome.after or 0.0)
            due = self._clock() + delay
            await asyncio.to_thread(self._outbox.retry, item.id, due)
            self._count(self._target, "retry")
            self._report_retry(item, outcome.reason, delay)

    def _report_retry(self, item: OutboxItem, reason: str, delay: float) -> None:
        """Warn of the first failure of a cause, and again once an hour while it lasts."""
        level = logging.WARNING if self._warned.is_due(reason) else logging.INFO
        message = "notification %s to %s: %s, again in %.0f s; given up after %.0f h"
        hours = self._policy.max_age / 3600
        log.log(level, message, item.id, self._target, reason, delay, hours)

    async def _done(self, item: OutboxItem) -> None:
        """Remove an item. While a full disk forbids that, it is not sent once a second."""
        self._finished.add(item.id)
        await asyncio.to_thread(self._outbox.done, item.id)
        self._finished.discard(item.id)

    def _drop(self, item: OutboxItem, outcome: str, reason: str) -> None:
        self._count(self._target, outcome)
        log.warning("notification %s to %s dropped: %s", item.id, self._target, reason)
