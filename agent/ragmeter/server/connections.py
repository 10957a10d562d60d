"""Limits on the number and the idle time of a port's connections.

A connection that sends no request, or sends one too slowly, holds a file descriptor; aiohttp would
let it for an hour. `ConnectionLimiter` closes it. At the limit it closes a connection for each that
comes, so that a crowd keeps nobody out: first the oldest of those whose request is overdue to
arrive, then the one that has been idle longest. Among them, those of a peer that has more than half
of all connections go before any other.
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

from aiohttp import StreamReader

from ragmeter.core.report_pace import ReportPace

log = logging.getLogger(__name__)

GRPC_CURE = "send OTLP over HTTP: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
_PREFACE = b"PRI * HTTP/2.0\r\n"  # with which every client of HTTP/2, so of gRPC, begins
_TLS_HELLO = b"\x16\x03"  # and every client of TLS
# The frames of HTTP/2 that say so: empty SETTINGS, then GOAWAY with HTTP_1_1_REQUIRED (RFC 9113).
_GOAWAY = (
    b"\0\0\0\4\0\0\0\0\0"
    + (8 + len(GRPC_CURE)).to_bytes(3, "big")
    + b"\7\0\0\0\0\0\0\0\0\0\0\0\0\x0d"
    + GRPC_CURE.encode()
)

HEAD_SECONDS = 10.0  # from the connection, or a request's first byte, to the end of its head
IDLE_SECONDS = 75.0  # between requests: longer than a Prometheus' and an exporter's interval of 60
WRITE_SECONDS = 30.0  # until a client takes a byte of a response
CHECK_SECONDS = 1.0  # between two checks of the deadlines
# A body that comes more slowly than this is treated like an unfinished head: 1 KB within 0.1 s.
_SLOW = 10_000.0
_NEVER = float("inf")

_NO_TLS = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this port has no TLS: send to http://\n"
)
# Why a handshake fails, by OpenSSL's reason, and what to do; other clients may only probe the port.
_HANDSHAKES = {
    "HTTP_REQUEST": "speaks HTTP without TLS; send to https://",
    "WRONG_VERSION_NUMBER": "speaks no TLS, which this port needs (https://)",
    "PACKET_LENGTH_TOO_LONG": "speaks no TLS, which this port needs (https://)",
    "TLSV1_ALERT_UNKNOWN_CA": "does not trust the certificate of http.tls.cert_file",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "does not trust the certificate of http.tls.cert_file",
    "SSLV3_ALERT_BAD_CERTIFICATE": "does not trust the certificate of http.tls.cert_file",
    "CERTIFICATE_VERIFY_FAILED": "has a certificate that http.tls.client_ca_file did not sign",
    "UNSUPPORTED_PROTOCOL": "speaks only TLS before 1.2",
}


class ConnectionLimiter:
    """The open connections of one port, at most `limit`; `refused` counts the closed by reason."""

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
        self._pace = ReportPace(clock)

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def working(
        self, transport: asyncio.BaseTransport | None, body: StreamReader | None = None
    ) -> Iterator[None]:
        """Suspend the deadlines of a connection while its request, with that body, is handled."""
        connection = None if transport is None else self._by_transport.get(transport)
        if connection is not None:
            connection.begin(body)
        try:
            yield
        finally:
            if connection is not None:
                connection.end()

    def refuse(self, reason: str, peer: str, what: str, level: int = logging.WARNING) -> None:
        """Count a refusal, and say once a minute what a client of that address did.

        `what` goes on after the client's address; text of a client's in it must be escaped.
        """
        self.refused[reason] += 1
        if self._pace.is_due(reason):
            log.log(level, "%s: %s %s", self._name, peer or "a client", what)

    def count_broken_off(self, peer: str) -> None:
        """Count a body whose client has gone before its end."""
        number = self.refused["broken_off"] + 1
        what = f"broke off the body of a request ({number} so far)"
        self.refuse("broken_off", peer, what, logging.INFO)

    def refuse_handshake(self, peer: str, error: OSError) -> None:
        """Count a failed TLS handshake; what a client does that means to send is said."""
        cause = _HANDSHAKES.get(error.reason or "") if isinstance(error, ssl.SSLError) else None
        if cause is None:
            self.refused["tls"] += 1
        else:
            self.refuse("tls", peer, cause)

    def enter(self, connection: LimitedConnection) -> bool:
        """Admit a connection, closing another at the limit; return False if all are busy."""
        if len(self._open) >= self._limit:
            what = f"came to {self._limit} connections:"
            self.refuse("connections", connection.peer, f"{what} slow and idle ones are closed")
            least = self._find_least(self.clock())
            if least is None:
                return False
            self.leave(least)
            least.abort()
        self._open.add(connection)
        return True

    def _find_least(self, now: float) -> LimitedConnection | None:
        """Return the connection that is missed least, None if all are busy."""
        peers = Counter(one.peer for one in self._open)
        crowd, number = peers.most_common(1)[0]
        candidates = [one for one in self._open if not one.busy or one.is_slow(now)]
        if 2 * number > self._limit:
            candidates = [one for one in candidates if one.peer == crowd] or candidates
        return min(candidates, key=lambda one: (one.idle, one.since), default=None)

    def register_transport(
        self, connection: LimitedConnection, transport: asyncio.BaseTransport
    ) -> None:
        """Register the transport by which requests refer to the connection."""
        self._by_transport[transport] = connection

    def leave(self, connection: LimitedConnection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)

    def close_overdue(self) -> None:
        """Close the connections past their deadline."""
        now = self.clock()
        for connection in [one for one in self._open if one.deadline <= now]:
            # an idle client was not slow
            if not connection.idle or connection.stuck:
                self.refused["slow"] += 1
            self.leave(connection)
            connection.abort()

    async def watch(self) -> None:
        """Close overdue connections for ever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.close_overdue()


class LimitedConnection(asyncio.Protocol):
    """One connection, between the socket and the HTTP protocol; plain text without `context`."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        inner: asyncio.Protocol,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._limiter = limiter
        self._inner = inner
        self._context = context
        self._raw: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None  # of `inner`; None during the handshake
        self._early: list[bytes] = []
        self._handshake: asyncio.Task[None] | None = None
        self._gone = False
        self.busy = False  # a request is handled
        self.idle = False  # between two requests
        self.peer = ""  # address
        self.since = self._limiter.clock()  # the connection, the request, or the end of the last
        self._body: StreamReader | None = None  # of the request
        self._received = 0  # bytes of the request
        self._begun = False  # something of the client's has come
        self._until = self.since + HEAD_SECONDS
        self._take_until = _NEVER

    @property
    def stuck(self) -> bool:
        """Whether the client does not take the response."""
        return self._take_until < _NEVER

    @property
    def deadline(self) -> float:
        """The time at which to close the connection, by the limiter's clock."""
        return min(self._until, self._take_until)

    def begin(self, body: StreamReader | None) -> None:
        """Note that a request is handled."""
        self.busy = True
        self.idle = False
        self._body = body
        self._until = _NEVER

    def end(self) -> None:
        """Note that a request was handled."""
        self.busy = False
        self.idle = True
        self._body = None
        self._received = 0
        self.since = self._limiter.clock()
        self._until = self.since + IDLE_SECONDS

    def is_slow(self, now: float) -> bool:
        """Return whether the body of a request comes too slowly."""
        if self._body is None or self._body.is_eof():
            return False
        return self._received < _SLOW * (now - self.since)

    def abort(self) -> None:
        """Close the connection at once, without writing what is left."""
        for transport in (self.transport, self._raw):
            if transport is not None:
                transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the TLS handshake, or hand a plain connection to the HTTP protocol."""
        # a stream's transport, though uvloop's is no subclass of asyncio's
        self._raw = raw = cast(asyncio.Transport, transport)
        address = raw.get_extra_info("peername")
        self.peer = str(address[0]) if isinstance(address, tuple) else ""
        if not self._limiter.enter(self):
            raw.abort()
        elif self._context is None:
            self._connected(raw)
        else:
            raw.pause_reading()  # all that follows belongs to the handshake
            self._handshake = asyncio.get_running_loop().create_task(
                self._shake(raw, self._context)
            )

    async def _shake(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            secure = await loop.start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=HEAD_SECONDS,
                ssl_shutdown_timeout=HEAD_SECONDS,
            )
        except OSError as error:  # ssl.SSLError is one
            self._limiter.refuse_handshake(self.peer, error)
            secure = None
        if secure is None or self._gone:
            self._limiter.leave(self)
            raw.abort()
            return
        self._connected(secure)
        early, self._early = self._early, []
        self._received = 0
        for data in early:
            self.data_received(data)

    def _connected(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._limiter.register_transport(self, transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass data on; the first of a request starts the time limit of its head."""
        self._received += len(data)
        if self.idle:
            self.idle = False
            self.since = self._limiter.clock()
            self._until = self.since + HEAD_SECONDS
        if self.transport is None:
            self._early.append(data)  # came together with the end of the handshake
            return
        begun, self._begun = self._begun, True
        if not begun and data.startswith(_PREFACE):
            self._limiter.refuse("grpc", self.peer, f"speaks gRPC; {GRPC_CURE}")
            self.transport.write(_GOAWAY)
            self.transport.close()
        elif not begun and data.startswith(_TLS_HELLO):
            cure = "send to http://, or set http.tls.cert_file"
            self._limiter.refuse("tls", self.peer, f"speaks TLS, which this port has not; {cure}")
            self.transport.write(_NO_TLS)
            self.transport.close()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the client's data on."""
        return self._inner.eof_received() if self.transport is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._gone = True
        self._limiter.leave(self)
        if self.transport is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client a time limit to take more of the response."""
        self._take_until = self._limiter.clock() + WRITE_SECONDS
        if self.transport is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Lift the time limit of `pause_writing`."""
        self._take_until = _NEVER
        if self.transport is not None:
            self._inner.resume_writing()
