"""HTTP listener with a request guard in front of every handler.

What stands before every handler of a port: who asks, from where, and what the answer carries.

A path is closed unless it is named here, so a route that somebody adds is closed, too. Liveness and
readiness alone are open: who asks them (a kubelet, a load balancer) has no token, and they say
nothing but one word.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from ragmeter.server.access import AccessPolicy, AccessScope, is_own_name, parse_authorization
from ragmeter.server.connections import IDLE_SECONDS, ConnectionLimiter, LimitedConnection

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = frozenset(("/healthz", "/readyz"))
PATH_SCOPES: dict[str, AccessScope] = {
    "/metrics": "scrape",
    "/v1/traces": "send",
    "/v1/logs": "send",
    "/v1/rag/traces": "send",
    "/v1/feedback": "send",
    "/v1/index": "send",
}
"""The rest is `read`."""

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Of every answer that does not say otherwise."""


class RequestGuard:
    """For one port, on `host`."""

    def __init__(self, access: AccessPolicy, host: str, port: str, room: ConnectionLimiter) -> None:
        self._access = access
        self._free = access.is_open_to_all(host)
        self._refused = access.refusals(port)
        self._room = room

    def add_to(self, app: web.Application) -> None:
        """Before everything that is there already."""
        app.middlewares.insert(0, self._middleware())
        app.on_response_prepare.append(_set_headers)

    def _middleware(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            with self._room.working(request.transport):
                resource = request.match_info.route.resource
                path = resource.canonical if resource is not None else ""
                problem = self._find_problem(request, PATH_SCOPES.get(path, "read"))
                if path in OPEN_PATHS:
                    done = await handler(request)
                    # why it is not ready names paths and addresses: not for whoever happens to ask
                    short = problem is not None and done.status != 200
                    return web.Response(status=done.status, text="no\n") if short else done
                if problem is None:
                    return await handler(request)
                return self._refuse(PATH_SCOPES.get(path, "read"), *problem)

        return guard

    def _refuse(self, scope: AccessScope, reason: str, status: int, text: str) -> web.Response:
        self._refused[reason] += 1
        headers = {}
        if status == 401:
            # a browser can ask a person for a password; programs send the token
            kind = "Basic" if scope == "read" else "Bearer"
            headers[hdrs.WWW_AUTHENTICATE] = f'{kind} realm="ragmeter"'
        answer = web.Response(status=status, text=f"{text}\n", headers=headers)
        answer.force_close()  # a body that comes with it is not read
        return answer

    def _find_problem(
        self, request: web.Request, scope: AccessScope
    ) -> tuple[str, int, str] | None:
        """Why not: a reason to count, a status, a text. None: it may."""
        access = self._access
        if request.method not in ("GET", "HEAD") and hdrs.ORIGIN in request.headers:
            # a browser sends it along, and may send along what it remembers of a person
            return "origin", 403, "not from a page in a browser"
        if access.wants_certificate and not _has_client_certificate(request):
            return "certificate", 403, "a client certificate is needed"
        if access.requires_token(scope):
            token = parse_authorization(request.headers.get(hdrs.AUTHORIZATION))
            if token is None:
                return "no_token", 401, "a token is needed"
            if not access.accepts_token(scope, token):
                return "wrong_token", 401, "this token does not open it"
            return None
        if access.wants_certificate:
            return None
        if not self._free:
            return "closed", 403, "no token opens this: http.token is not set"
        # who sends from a page has told so by `Origin`; what is left is who reads
        hosts = request.headers.getall(hdrs.HOST, [])
        if scope != "send" and not all(is_own_name(host, access.names) for host in hosts):
            return (
                "host", 403,
                "this name is not known to be its own: see http.names, or ask by address",
            )  # fmt: skip
        return None


def _has_client_certificate(request: web.Request) -> bool:
    transport = request.transport
    return transport is not None and bool(transport.get_extra_info("peercert"))


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    # what it is made of, and in which version, is nobody's business
    response.headers.popall(hdrs.SERVER, None)


log = logging.getLogger("ragmeter")

_BACKLOG = 128  # connections that wait to be accepted, as aiohttp has it
ACCEPT_REPORT_SECONDS = 60.0  # between two reports that there are no file descriptors left


class ListenError(Exception):
    """An address that cannot be listened on, and why."""


@contextlib.asynccontextmanager
async def listen(
    app: web.Application,
    host: str,
    port: int,
    access: AccessPolicy,
    *,
    name: str = "metrics",
    connections: int = 400,
) -> AsyncIterator[str]:
    """Serve `app` to whom `access` lets in; yields its base URL. Raises `PortInUse`."""
    room = ConnectionLimiter(f"{name} port", connections, access.refusals(name))
    RequestGuard(access, host, name, room).add_to(app)
    runner = web.AppRunner(
        app,
        access_log=None,
        # compressed bodies are unpacked by the handler, which bounds what they may grow to
        auto_decompress=False,
        shutdown_timeout=2,
        keepalive_timeout=IDLE_SECONDS,
    )
    await runner.setup()
    http = runner.server
    assert http is not None

    def connection() -> LimitedConnection:
        secure = access.certificate
        return LimitedConnection(room, http(), None if secure is None else secure.context)

    try:
        try:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(connection, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port}: {error.strerror or error}"
            ) from None
        except UnicodeError:  # from the resolver: an empty label, or one of more than 63 characters
            raise ListenError(f"cannot listen on {host}:{port}: this is no host name") from None
        watching = asyncio.create_task(room.watch())
        try:
            shown = f"[{host}]" if ":" in host else host
            scheme = "http" if access.certificate is None else "https"
            yield f"{scheme}://{shown}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    finally:
        await runner.cleanup()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def mute_protocol_errors() -> None:
    """Keep what is no HTTP out of the log: it is answered with 400, and anybody can send it."""
    logging.getLogger("aiohttp.server").addFilter(_is_worth_logging)


def limit_accept_errors(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler of the event loop that reports a lack of file descriptors at most once
    a minute: asyncio would write a traceback for every try to accept a connection.
    """
    last: float | None = None

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif last is None or clock() - last >= ACCEPT_REPORT_SECONDS:
            last = clock()
            log.error("no connection can be accepted: %s", error.strerror)

    return handle
