"""Limits on the number and the idle time of a port's connections.

A connection that is not sending a request, or is too slow with it, holds a file descriptor and
nothing else; aiohttp would let it for an hour. `Connections` closes it, and where there are too
many, the one that has waited longest goes first: so a crowd of idle ones keeps nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

log = logging.getLogger("ragmeter")

HEAD_SECONDS = 10.0  # from the connection, or a request's first byte, to the end of its head
IDLE_SECONDS = 75.0  # between requests: longer than a Prometheus' and an exporter's interval of 60
WRITE_SECONDS = 30.0  # without taking a byte of an answer
CHECK_SECONDS = 1.0  # between two looks at the deadlines
REPORT_SECONDS = 60.0  # between two reports that the port is full


class ConnectionLimiter:
    """Those of one port. `clock` is monotonic, in seconds; `refused` counts by reason."""

    def __init__(
        self,
        name: str,
        limit: int,
        refused: Counter[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.refused = refused
        self._name = name
        self._limit = limit
        self._open: set[LimitedConnection] = set()
        self._by_transport: dict[asyncio.BaseTransport, LimitedConnection] = {}
        self._reported = float("-inf")

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def working(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """While a request of that connection is handled: nobody waits for its client."""
        connection = None if transport is None else self._by_transport.get(transport)
        if connection is not None:
            connection.begin()
        try:
            yield
        finally:
            if connection is not None:
                connection.end()

    def enter(self, connection: LimitedConnection) -> bool:
        """Whether there is room for it."""
        if len(self._open) >= self._limit:
            self.refused["connections"] += 1
            now = self.clock()
            if now - self._reported >= REPORT_SECONDS:
                self._reported = now
                log.warning(
                    "%s: %d connections (limits.connections): the idlest are closed",
                    self._name,
                    self._limit,
                )
            idle = min(
                (one for one in self._open if not one.busy), key=_waiting_since, default=None
            )
            if idle is None:
                return False
            self.leave(idle)
            idle.abort()
        self._open.add(connection)
        return True

    def register_transport(
        self, connection: LimitedConnection, transport: asyncio.BaseTransport
    ) -> None:
        """Requests will name it by that transport."""
        self._by_transport[transport] = connection

    def leave(self, connection: LimitedConnection) -> None:
        self._open.discard(connection)
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)

    def close_overdue(self) -> None:
        """Close those that are over their time."""
        now = self.clock()
        for connection in [one for one in self._open if one.deadline <= now]:
            # one that is idle is no slower than it may be
            if not connection.idle or connection.stuck:
                self.refused["slow"] += 1
            self.leave(connection)
            connection.abort()

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.close_overdue()


class LimitedConnection(asyncio.Protocol):
    """One of them, between the socket and `inner`, which speaks HTTP."""

    def __init__(
        self,
        room: ConnectionLimiter,
        inner: asyncio.Protocol,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._room = room
        self._inner = inner
        self._context = context
        self._raw: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None
        """What `inner` writes to; None while TLS is agreed on."""
        self._early: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None
        self._gone = False
        self.busy = False
        self.idle = False
        """Between two requests, of which nothing has come yet."""
        self.since = self._room.clock()
        self._until = self.since + HEAD_SECONDS
        self._take_until = float("inf")

    @property
    def stuck(self) -> bool:
        """Whether it does not take what we write."""
        return self._take_until < float("inf")

    @property
    def deadline(self) -> float:
        return min(self._until, self._take_until)

    def begin(self) -> None:
        self.busy, self.idle = True, False
        self._until = float("inf")

    def end(self) -> None:
        self.busy, self.idle = False, True
        self.since = self._room.clock()
        self._until = self.since + IDLE_SECONDS

    def abort(self) -> None:
        """Now, whatever is still to be written."""
        for transport in (self.transport, self._raw):
            if transport is not None:
                transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # a stream's transport, though uvloop's is no subclass of asyncio's
        self._raw = raw = cast(asyncio.Transport, transport)
        if not self._room.enter(self):
            raw.abort()
        elif self._context is None:
            self._connected(raw)
        else:
            raw.pause_reading()  # what comes from now on is for the handshake
            self._handshake = asyncio.get_running_loop().create_task(
                self._shake(raw, self._context)
            )

    async def _shake(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        """TLS for this connection, by the certificate of this moment."""
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                raw, self, context,
                server_side=True, ssl_handshake_timeout=HEAD_SECONDS,
                ssl_shutdown_timeout=HEAD_SECONDS,
            )  # fmt: skip
        except OSError:  # ssl.SSLError is one: no TLS, or a certificate of nobody we know
            self._room.refused["tls"] += 1
            secure = None
        if secure is None or self._gone:
            self._room.leave(self)
            raw.abort()
            return
        self._connected(secure)
        for data in self._early:
            self._inner.data_received(data)
        self._early.clear()

    def _connected(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._room.register_transport(self, transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.idle:
            self.idle = False
            self._until = self._room.clock() + HEAD_SECONDS
        if self.transport is None:
            self._early.append(data)  # it came along with the end of the handshake
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self.transport is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._room.leave(self)
        if self.transport is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._take_until = self._room.clock() + WRITE_SECONDS
        if self.transport is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._take_until = float("inf")
        if self.transport is not None:
            self._inner.resume_writing()


def _waiting_since(connection: LimitedConnection) -> float:
    return connection.since
