"""Delivery of canary traces to the running agent or to a file, with a spool for what waits.

What the agent has not taken waits, bounded, in memory and, where there is one, in a spool file,
which the next start reads.
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
from typing import Any

import httpx

from ragmeter.core.atomic_files import replacing
from ragmeter.core.pacing import backoff_seconds, parse_retry_after
from ragmeter.embedded.endpoints.json_items import TRACES_PATH
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.canary")

SPOOL_TRACES = 1_000
SPOOL_BYTES = 32 * 2**20
_FINAL_RETRY_SECONDS = 0.5  # seconds between two tries when the end has come
_PERMANENT_STATUSES = (400, 413, 415, 422)  # of a trace that will not become better


class SpoolError(OSError):
    """The file of what waits cannot be read or written."""


class TraceDelivery:
    """`client` is made by `ragmeter.server.client`; `url` is the base of the port for traces.
    Without a client, traces go to `file` alone. `sent`, `refused` and `dropped` count traces."""

    def __init__(
        self,
        client: httpx.Client | None,
        url: str,
        *,
        file: Path | None = None,
        spool: Path | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        most: int = SPOOL_TRACES,
        most_bytes: int = SPOOL_BYTES,
    ) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}{TRACES_PATH}"
        self._file = file
        self._spool = spool
        self._rng = rng or random.Random()
        self._clock = clock
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._came = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._spooled = False
        self._away = False
        self.sent = self.refused = self.dropped = 0
        self._read_spool()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def put(self, trace: Trace) -> None:
        """Raises OSError where the file cannot be written."""
        line = trace.model_dump_json(exclude_none=True).encode()
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(line + b"\n")
        if self._client is None:
            self.sent += self._file is not None
            return
        self._add(line)
        if self._away:
            self._write_spool()
        self._came.set()

    def _add(self, line: bytes) -> None:
        self._waiting.append(line)
        self._empty.clear()
        self._bytes += len(line)
        while len(self._waiting) > self._most or self._bytes > self._most_bytes:
            self._bytes -= len(self._waiting.popleft())
            self.dropped += 1
            if self.dropped == 1:
                log.error("the agent is away and the spool is full: the oldest traces are dropped")

    def start(self) -> None:
        """Hand over what comes, in the running loop, until `finish`."""
        if self._client is not None and self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        attempt = 0
        while True:
            if not self._waiting:
                self._came.clear()
                await self._came.wait()
            line = self._waiting[0]
            pause = await self._post(line)
            if pause is None:
                attempt = 0
                self._take_batch(line)
                continue
            if not self._away:
                self._away = True
                log.warning("%s does not take traces; they wait", self._url)
                self._write_spool()
            await self._pause(max(pause, backoff_seconds(attempt, self._rng)))
            attempt += 1

    async def _pause(self, seconds: float) -> None:
        """Shorter where the end has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()
                await asyncio.sleep(_FINAL_RETRY_SECONDS)

    async def finish(self, seconds: float) -> bool:
        """Hand over the rest within this time; whether nothing is left. Then close."""
        if self._client is None:
            return True
        self.start()
        self._ending.set()
        assert self._task is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._write_spool()
        self._client.close()
        return not self._waiting

    def _take_batch(self, line: bytes) -> None:
        # the head may have been dropped for want of room while it was under way
        if self._waiting and self._waiting[0] is line:
            self._waiting.popleft()
            self._bytes -= len(line)
        if not self._waiting:
            self._empty.set()
        if self._away and not self._waiting:
            self._away = False
            log.info("%s takes traces again", self._url)
            self._write_spool()

    async def _post(self, line: bytes) -> float | None:
        """None when that is settled; else the least number of seconds to wait."""
        assert self._client is not None
        headers = {"Content-Type": "application/json"}
        try:
            reply = await asyncio.to_thread(
                self._client.post, self._url, content=line, headers=headers
            )
        except (httpx.HTTPError, httpx.InvalidURL):
            return 0.0
        if reply.status_code == 200 and not _rejected(reply):
            self.sent += 1
            return None
        if reply.status_code == 200 or reply.status_code in _PERMANENT_STATUSES:
            self.refused += 1
            log.error("the agent refused a trace: %s", reply.text[:300])
            return None
        if not self._away:
            log.warning("the agent answers with status %d", reply.status_code)
        return parse_retry_after(reply.headers, self._clock()) or 0.0

    # The spool ----------------------------------------------------------------------------------

    def _read_spool(self) -> None:
        if self._spool is None or not self._spool.exists():
            return
        try:
            lines = self._spool.read_bytes().splitlines()
        except OSError as error:
            raise SpoolError(f"{self._spool}: {error.strerror}") from None
        for line in lines:
            if line.strip():
                self._add(line)
        self._spooled = bool(self._waiting)
        self._came.set()

    def _write_spool(self) -> None:
        """All that waits, in one piece: a process that dies in between leaves the one before."""
        if self._spool is None or not (self._waiting or self._spooled):
            return
        try:
            if self._waiting:
                with replacing(self._spool, sync=True) as part:
                    part.write_bytes(b"".join(line + b"\n" for line in self._waiting))
            else:
                self._spool.unlink(missing_ok=True)
            self._spooled = bool(self._waiting)
        except OSError as error:
            log.error("%s: %s; what waits is in memory alone", self._spool, error.strerror)


def _rejected(reply: httpx.Response) -> bool:
    try:
        found: Any = reply.json()
    except (ValueError, RecursionError):
        return True  # no agent
    return not isinstance(found, dict) or bool(found.get("rejected"))
