"""Delivery of canary traces to a running agent or to a file.

Traces that the agent has not accepted yet wait in memory, bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import httpx

from ragmeter.core.retries import backoff_seconds, parse_retry_after
from ragmeter.server.client import reply_object
from ragmeter.server.paths import TRACES_PATH
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

MAX_TRACES = 1_000
MAX_BYTES = 32 * 2**20
_FINAL_RETRY_SECONDS = 0.5  # between two attempts once the run has ended
_PERMANENT_STATUSES = (400, 413, 415, 422)  # a retry of the same trace would fail again


class TraceDelivery:
    """Sends traces to the agent in order, in the background.

    Args:
        client: The client of `ragmeter.server.client`; None: traces only go to `file`.
        url: Base URL of the agent's port for traces.
        file: A file to append the traces to.
        most: The most traces that wait; older ones are dropped.
        most_bytes: The most bytes that wait.

    Attributes:
        sent: Traces delivered.
        refused: Traces that the agent rejected.
        dropped: Traces dropped because too many waited.
    """

    def __init__(
        self,
        client: httpx.Client | None,
        url: str,
        *,
        file: Path | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        most: int = MAX_TRACES,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}{TRACES_PATH}"
        self._file = file
        self._rng = rng or random.Random()
        self._clock = clock
        self._most = most
        self._most_bytes = most_bytes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._added = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unreachable = False
        self.sent = self.refused = self.dropped = 0

    @property
    def waiting(self) -> int:
        """The number of traces that wait."""
        return len(self._waiting)

    def put(self, trace: Trace) -> None:
        """Queue a trace and append it to the file.

        Raises:
            OSError: The file cannot be written.
        """
        line = trace.model_dump_json(exclude_none=True).encode()
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(line + b"\n")
        if self._client is None:
            self.sent += self._file is not None
            return
        self._add(line)
        self._added.set()

    def _add(self, line: bytes) -> None:
        self._waiting.append(line)
        self._empty.clear()
        self._bytes += len(line)
        while len(self._waiting) > self._most or self._bytes > self._most_bytes:
            self._bytes -= len(self._waiting.popleft())
            self.dropped += 1
            if self.dropped == 1:
                log.error(
                    "the agent is not reachable and too many traces wait; dropping the oldest"
                )

    def start(self) -> None:
        """Start sending in the running event loop, until `finish`."""
        if self._client is not None and self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        attempt = 0
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            line = self._waiting[0]
            pause = await self._post(line)
            if pause is None:
                attempt = 0
                self._remove_sent(line)
                continue
            if not self._unreachable:
                self._unreachable = True
                log.warning("%s accepts no traces; they wait", self._url)
            await self._pause(max(pause, backoff_seconds(attempt, self._rng)))
            attempt += 1

    async def _pause(self, seconds: float) -> None:
        """Wait, shorter once `finish` was called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
                await asyncio.sleep(_FINAL_RETRY_SECONDS)

    async def finish(self, seconds: float) -> bool:
        """Send what waits within this many seconds, close, and return whether nothing is left."""
        if self._client is None:
            return True
        self.start()
        self._ending.set()
        if self._task is None:
            raise RuntimeError("task is missing")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._client.close()
        return not self._waiting

    def _remove_sent(self, line: bytes) -> None:
        # it may have been dropped for lack of room while it was being sent
        if self._waiting and self._waiting[0] is line:
            self._waiting.popleft()
            self._bytes -= len(line)
        if not self._waiting:
            self._empty.set()
        if self._unreachable and not self._waiting:
            self._unreachable = False
            log.info("%s accepts traces again", self._url)

    async def _post(self, line: bytes) -> float | None:
        """Send one trace; return None if it is done with, else the least seconds to wait."""
        if self._client is None:
            raise RuntimeError("client is missing")
        headers = {"Content-Type": "application/json"}
        try:
            reply = await asyncio.to_thread(
                self._client.post, self._url, content=line, headers=headers
            )
        except (httpx.HTTPError, httpx.InvalidURL):
            return 0.0
        document = reply_object(reply) or {}  # another server counts nothing
        if reply.status_code == 200 and "accepted" in document and not document.get("rejected"):
            self.sent += 1
            return None
        if reply.status_code == 200 or reply.status_code in _PERMANENT_STATUSES:
            self.refused += 1
            log.error("the agent refused a trace: %s", reply.text[:300])
            return None
        if not self._unreachable:
            log.warning("the agent answers with status %d", reply.status_code)
        return parse_retry_after(reply.headers, self._clock()) or 0.0
