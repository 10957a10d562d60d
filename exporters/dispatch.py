"""Deliver an outbox over HTTP at least once, with retries and bounded concurrency.

One `Dispatcher` per target. What is due is read from a durable `Outbox`; an item leaves it only
when the target took it, refused it for good, or it grew too old. A crash in between sends it
again, with the same id: duplicates rather than misses.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from ragmeter.core.pacing import backoff_seconds, parse_retry_after
from ragmeter.store.rows import OutboxItem

log = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds for one whole request. A timeout per read would let a target drip bytes for ever."""

BASE_DELAY = 1.0
MAX_DELAY = 300.0
"""Seconds: a target that is back gets what waited for it within five minutes."""

MAX_AGE = 86_400.0
"""Seconds after which an undelivered notification is dropped: nobody acts on yesterday's alert."""

DeliveryCount = Callable[[str, str], None]
"""(target, outcome): counted as ragmeter_notifications_total{target,outcome}."""


class NotificationOutbox(Protocol):
    """A durable queue for one target. Called from threads; calls are short.

    `due` gives, oldest first, up to `limit` items whose time has come, and no item while an older
    one of the same key is still there. Items being sent stay due: the dispatcher knows them.
    """

    def due(self, now: float, limit: int) -> Sequence[OutboxItem]: ...
    def done(self, item_id: str) -> None: ...
    def retry(self, item_id: str, at: float, error: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """`sent`; `retry` (perhaps not before `after` seconds); `refused`: will never be taken."""

    kind: Literal["sent", "retry", "refused"]
    reason: str = ""
    after: float | None = None


@dataclass(frozen=True, slots=True)
class DeliveryEndpoint:
    """A URL taken apart: what is requested, what signs in, and what may be written into a log."""

    url: str
    auth: tuple[str, str] | None
    shown: str

    @classmethod
    def parse(cls, url: str) -> DeliveryEndpoint:
        """Raises ValueError, without the URL in it, where it is not http(s) with a host."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("not a valid URL") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("an http:// or https:// URL with a host is needed")
        name = f"[{host}]" if ":" in host else host
        place = name if port is None else f"{name}:{port}"
        auth = None
        if parts.username is not None:
            auth = (unquote(parts.username), unquote(parts.password or ""))
        bare = urlunsplit((parts.scheme, place, parts.path, parts.query, ""))
        # Chat webhooks carry their secret in the path or query: only scheme and host are shown.
        return cls(bare, auth, f"{parts.scheme}://{place}")


def _quiet_httpx() -> None:
    """httpx logs each request's whole URL at INFO, secrets in its path included."""
    logger = logging.getLogger("httpx")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


async def post_once(
    client: httpx.AsyncClient,
    endpoint: DeliveryEndpoint,
    body: bytes,
    headers: dict[str, str],
    *,
    now: Callable[[], float],
    limit: float = TIMEOUT,
) -> DeliveryOutcome:
    """One POST, judged. Never raises for what a network or a server does; reads no reply body."""
    _quiet_httpx()
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
                return classify_status(response.status_code, response.headers, now())
    except (TimeoutError, httpx.TimeoutException):
        return DeliveryOutcome("retry", "timeout")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        # The type only: the text of some errors holds the URL.
        return DeliveryOutcome("retry", type(error).__name__)


def classify_status(status: int, headers: httpx.Headers, now: float) -> DeliveryOutcome:
    """2xx is sent; 4xx but 408 and 429 is refused for good; all else is worth another try."""
    if 200 <= status < 300:
        return DeliveryOutcome("sent")
    reason = f"HTTP {status}"
    if 400 <= status < 500 and status not in (408, 429):
        return DeliveryOutcome("refused", reason)
    return DeliveryOutcome("retry", reason, parse_retry_after(headers, now, MAX_AGE))


class Dispatcher:
    """Takes what is due and sends it, `concurrency` at a time, until stopped.

    `send` does one delivery and judges it; `clock` is Unix time that does not jump; `rng` gives the
    jitter.
    Outcomes counted: sent, retry, refused, expired, error (the outbox itself failed).
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
        concurrency: int = 4,
        poll: float = 1.0,
        timeout: float = TIMEOUT,
        max_age: float = MAX_AGE,
    ) -> None:
        self._target = target
        self._outbox = outbox
        self._send = send
        self._clock = clock
        self._count = count
        self._rng = rng or random.Random()
        self._concurrency = concurrency
        self._poll = poll
        self._timeout = timeout
        self._max_age = max_age
        self._wake = asyncio.Event()
        self._stopping = False
        self._flying: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = (
            set()
        )  # sent or given up, and still in an outbox that is not written

    def wake(self) -> None:
        """Look at the outbox now: something was put in."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver until `stop`. An outbox that fails is tried again at the next poll."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self._start_due()
            except Exception:
                log.exception("notifications to %s: the outbox cannot be read", self._target)
                self._count(self._target, "error")
            try:
                async with asyncio.timeout(self._poll):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def stop(self, within: float = 5.0) -> None:
        """End `run`; give what is on its way `within` seconds. The rest stays in the outbox."""
        self._stopping = True
        self._wake.set()
        flying = list(self._flying.values())
        if not flying:
            return
        _, late = await asyncio.wait(flying, timeout=within)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _start_due(self) -> None:
        room = self._concurrency - len(self._flying)
        if room <= 0:
            return
        # Those on their way are still due: ask for enough to see past them.
        # In a thread: the outbox is a file, and a slow disk must not stop the event loop.
        # What flew when that was asked is left out even if it has landed since: it is done.
        limit, flying = self._concurrency + len(self._flying), set(self._flying)
        for item in await asyncio.to_thread(self._outbox.due, self._clock(), limit):
            if room <= 0:
                break
            if item.id in flying:
                continue
            room -= 1
            task = asyncio.create_task(self._deliver(item))
            self._flying[item.id] = task

    async def _deliver(self, item: OutboxItem) -> None:
        try:
            await self._attempt(item)
        except Exception:
            log.exception("notifications to %s: the outbox cannot be written", self._target)
            self._count(self._target, "error")
            # The item is still due: without a pause it would be sent in a tight loop.
            await asyncio.sleep(self._poll)
        finally:
            self._flying.pop(item.id, None)
            self._wake.set()

    async def _attempt(self, item: OutboxItem) -> None:
        if self._clock() - item.created > self._max_age:
            await asyncio.to_thread(self._outbox.done, item.id)
            self._drop(item, "expired", f"not taken within {self._max_age:.0f} s")
            return
        if item.id in self._ended:
            await self._done(item)
            return
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await self._send(item)
        except TimeoutError:
            outcome = DeliveryOutcome("retry", "timeout")
        except Exception as error:
            # The type only: what a sender raises may hold its URL.
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
            await asyncio.to_thread(self._outbox.retry, item.id, due, outcome.reason)
            self._count(self._target, "retry")
            log.info(
                "notification %s to %s: %s, again in %.0f s",
                item.id,
                self._target,
                outcome.reason,
                delay,
            )

    async def _done(self, item: OutboxItem) -> None:
        """Take it out. While a full disk forbids that, it is not sent once a second."""
        self._ended.add(item.id)
        await asyncio.to_thread(self._outbox.done, item.id)
        self._ended.discard(item.id)

    def _drop(self, item: OutboxItem, outcome: str, reason: str) -> None:
        self._count(self._target, outcome)
        log.warning("notification %s to %s dropped: %s", item.id, self._target, reason)


class MemoryOutbox:
    """An outbox that dies with the process: what `Outbox` means, in its smallest form."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[float, OutboxItem]] = {}
        self.errors: list[str] = []

    def __len__(self) -> int:
        return len(self._items)

    def next_at(self) -> float:
        """When the first of its items becomes due; infinity where there is none."""
        return min((at for at, _ in self._items.values()), default=math.inf)

    def put(self, item: OutboxItem) -> None:
        """Enqueue; an id that is there already changes nothing."""
        self._items.setdefault(item.id, (item.created, item))

    def due(self, now: float, limit: int) -> list[OutboxItem]:
        heads: dict[str, tuple[float, OutboxItem]] = {}
        for at, item in self._items.values():
            heads.setdefault(item.key, (at, item))
        return [item for at, item in heads.values() if at <= now][:limit]

    def done(self, item_id: str) -> None:
        self._items.pop(item_id, None)

    def retry(self, item_id: str, at: float, error: str) -> None:
        _, item = self._items[item_id]
        again = OutboxItem(item.id, item.key, item.body, item.created, item.attempts + 1)
        self._items[item_id] = (at, again)
        self.errors.append(error)
