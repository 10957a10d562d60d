"""The HTTP listener, with a request guard in front of every handler.

A path is closed unless it is listed here, so new routes are closed, too. Only liveness and
readiness are open: their clients (a kubelet, a load balancer) have no token, and the answer is one
word.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from ragmeter.core.errors import UnusableResource
from ragmeter.core.label_bounds import excerpt
from ragmeter.core.report_pace import ReportPace
from ragmeter.server.access import (
    AccessPolicy,
    AccessScope,
    background_task,
    is_own_name,
    parse_authorization,
)
from ragmeter.server.connections import IDLE_SECONDS, ConnectionLimiter, LimitedConnection

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALL_ADDRESSES = frozenset(("*", "::"))  # each stands for all of IPv4 and IPv6
OPEN_PATHS = frozenset(("/healthz", "/readyz"))
_OF_METRICS_PORT = OPEN_PATHS | {"/metrics", "/metrics/detail"}
_OF_PROMETHEUS = ("/api/v1/", "/federate")
# the settings whose tokens open what is asked for
_TOKENS = {
    "read": "http.token",
    "send": "http.token or http.send_token_file",
    "scrape": "http.token or http.scrape_token_file",
}
_SEND: AccessScope = "send"
PATH_SCOPES: dict[str, AccessScope] = {
    "/metrics": "scrape",
    "/metrics/detail": "scrape",
    "/v1/traces": "send",
    "/v1/logs": "send",
    "/v1/metrics": "send",
    "/v1/rag/traces": "send",
}  # the scope of all other paths is `read`, but for those that `listen` is given

# Of every response that does not set them itself.
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

_PATH_CHARS = 100  # of a path that a client has made up

# Open connections of a port. Beyond it the idlest one is closed, so that more senders than that are
# served in turn, and files and memory stay bounded.
MAX_CONNECTIONS = 400

# Connections that wait to be accepted: one that finds no place tries again after a second.
_BACKLOG = 1024


class ListenError(UnusableResource):
    """An address that cannot be listened on; the text says why."""


@contextlib.asynccontextmanager
async def listen(
    app: web.Application,
    host: str,
    port: int,
    access: AccessPolicy,
    *,
    name: str = "metrics",
    connections: int = MAX_CONNECTIONS,
    send_paths: Iterable[str] = (),
    form_paths: Iterable[str] = (),
) -> AsyncIterator[str]:
    """Serve `app` to permitted clients inside the block, and yield the base URL.

    Args:
        app: The handlers.
        host: The address.
        port: Port 0 picks a free one.
        access: Who is permitted.
        name: That of the port in counters and logs, and in the setting `http.{name}_port`.
        connections: Open connections; beyond it the idlest one is closed.
        send_paths: Paths beside `PATH_SCOPES` that are for sending.
        form_paths: Paths that a form on a page of our own posts to; every other POST comes from
            programs. The handler checks a token that only the page has.

    Raises:
        ListenError: The address is in use or invalid.
    """
    limiter = ConnectionLimiter(f"{name} port", connections, access.refusals(name))
    guard = RequestGuard(
        access,
        host,
        name,
        limiter,
        send_paths=send_paths,
        form_paths=form_paths,
    )
    guard.add_to(app)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_ProtocolErrors(limiter),
        # the handler unpacks compressed bodies, as it bounds their unpacked size
        auto_decompress=False,
        shutdown_timeout=2,
        keepalive_timeout=IDLE_SECONDS,
    )
    await runner.setup()
    http = runner.server
    if http is None:
        raise RuntimeError("http is missing")

    def connection() -> LimitedConnection:
        secure = access.certificate
        return LimitedConnection(limiter, http(), None if secure is None else secure.context)

    try:
        try:
            loop = asyncio.get_running_loop()
            # without an address asyncio listens on all of both families; with `::` on IPv6 alone
            address = None if host in ALL_ADDRESSES else host
            server = await loop.create_server(connection, address, port, backlog=_BACKLOG)
        except OSError as error:
            why = str(error.strerror or error).rpartition("): ")[2]  # asyncio names the address
            if error.errno == errno.EADDRINUSE:
                # asyncio's own words differ between versions of Python
                why = f"address already in use; for another port set {_setting(name)}"
            else:
                why = f"{why}; the address is {_ADDRESSES.get(name, 'http.host')}"
            raise ListenError(f"cannot listen on {host}:{port}: {why}") from None
        except UnicodeError:  # from the resolver: an empty label, or one of more than 63 characters
            raise ListenError(f"cannot listen on {host}:{port}: this is no host name") from None
        async with background_task(limiter.watch()):
            try:
                shown = f"[{host}]" if ":" in host else host
                shown = "localhost" if host in ALL_ADDRESSES else shown
                scheme = "http" if access.certificate is None else "https"
                yield f"{scheme}://{shown}:{server.sockets[0].getsockname()[1]}"
            finally:
                server.close()
    finally:
        await runner.cleanup()


# By the name of the port, which setting has its address.
_ADDRESSES = {"otlp": "http.otlp_host, or else http.host"}


def _setting(name: str) -> str:
    """Return the setting of a port and the environment variable that sets it."""
    return f"http.{name}_port (RAGMETER_HTTP__{name.upper()}_PORT)"


class RequestGuard:
    """The check of every request to one port, which is given by its name."""

    def __init__(
        self,
        access: AccessPolicy,
        host: str,
        port: str,
        limiter: ConnectionLimiter,
        *,
        send_paths: Iterable[str],
        form_paths: Iterable[str],
    ) -> None:
        self._form_paths = frozenset(form_paths)
        self._scopes = {**PATH_SCOPES, **dict.fromkeys(send_paths, _SEND)}
        self._access = access
        self._open_to_all = access.is_open_to_all(host)
        self._refused = access.refusals(port)
        self._limiter = limiter
        self._posts: list[str] = []  # the paths that take a POST

    def add_to(self, app: web.Application) -> None:
        """Put the guard before all middlewares of the application."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            peer = request.remote or ""
            with self._limiter.working(request.transport, request.content):
                try:
                    response = await self._handle(request, handler)
                except Exception:
                    if request.content.exception() is None:
                        raise
                    response = _refuse_broken_body()
                if _is_broken_off(request):
                    self._limiter.count_broken_off(peer)
                return response

        self._posts = [
            route.resource.canonical
            for route in app.router.routes()
            if route.method == hdrs.METH_POST and route.resource is not None
        ]
        app.middlewares.insert(0, guard)
        app.on_response_prepare.append(_set_headers)

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else ""
        scope = self._scopes.get(path, "read")
        problem = self._find_problem(request, scope, form=path in self._form_paths)
        if path in OPEN_PATHS:
            response = await handler(request)
            # the reason for not being ready names paths and addresses: only for permitted clients
            hidden = problem is not None and response.status != 200
            return web.Response(status=response.status, text="no\n") if hidden else response
        if problem is not None:
            return self._refuse(scope, *problem)
        missing = request.match_info.http_exception
        if missing is not None and (request.method == hdrs.METH_POST or self._takes_post(request)):
            return self._refuse_path(request, missing)
        if missing is not None and request.path in _OF_METRICS_PORT:  # a scraper, a probe
            text = f"{request.path} is a path of the other port (http.metrics_port)\n"
            return web.Response(status=missing.status, text=text)
        if missing is not None and request.path.startswith(_OF_PROMETHEUS):  # Grafana, a federation
            text = (
                "this is no Prometheus: scrape /metrics here, and query the Prometheus that does\n"
            )
            return web.Response(status=missing.status, text=text)
        return await handler(request)

    def _takes_post(self, request: web.Request) -> bool:
        return request.path in self._posts

    def _refuse_path(self, request: web.Request, missing: web.HTTPException) -> web.Response:
        """Tell a sender at a wrong path, or with a wrong method, what the port takes.

        Exporters log the status alone, so the port's log says it too.
        """
        shown = excerpt(request.path, _PATH_CHARS)
        if self._takes_post(request):
            text = f"{shown} takes POST alone"
        else:
            text = f"nothing is received at {shown}; this port takes POST to {self._taken()}"
            if missing.status == 404 and request.path in PATH_SCOPES:
                port = "metrics" if request.path in _OF_METRICS_PORT else "otlp"
                text += f"; it is a path of the other port (http.{port}_port)"
            self._limiter.refuse("path", request.remote or "", f"sends to a wrong path: {text}")
        headers = {name: value for name, value in missing.headers.items() if name == hdrs.ALLOW}
        response = web.Response(status=missing.status, text=f"{text}\n", headers=headers)
        response.force_close()  # the request's body is not read
        return response

    def _taken(self) -> str:
        return ", ".join(sorted(set(self._posts) - self._form_paths))

    def _refuse(self, scope: AccessScope, reason: str, status: int, text: str) -> web.Response:
        self._refused[reason] += 1
        headers = {}
        if status == 401:
            # a browser can ask a person for a password; programs send the token
            kind = "Basic" if scope == "read" else "Bearer"
            headers[hdrs.WWW_AUTHENTICATE] = f'{kind} realm="ragmeter"'
        response = web.Response(status=status, text=f"{text}\n", headers=headers)
        response.force_close()  # the request's body is not read
        return response

    def _find_problem(
        self, request: web.Request, scope: AccessScope, *, form: bool
    ) -> tuple[str, int, str] | None:
        """Return the reason for a refusal, its status and text; None if the request may pass."""
        access = self._access
        foreign = hdrs.ORIGIN in request.headers and not (form and _is_own_origin(request))
        if request.method not in ("GET", "HEAD") and foreign:
            # a browser sends `Origin` along, and perhaps a person's stored credentials
            return "origin", 403, "not from a page in a browser"
        transport = request.transport
        certified = transport is not None and transport.get_extra_info("peercert")
        if access.wants_certificate and not certified:
            return "certificate", 403, "a client certificate is needed"
        if access.requires_token(scope):
            token = parse_authorization(request.headers.get(hdrs.AUTHORIZATION))
            if token is None:
                return "no_token", 401, "a token is needed"
            if not access.accepts_token(scope, token):
                return "wrong_token", 401, f"this token does not open it ({_TOKENS[scope]} does)"
            return None
        if access.wants_certificate:
            return None
        if not self._open_to_all:
            return "closed", 403, "no token opens this: http.token is not set"
        # pages that send were refused by their `Origin`; this is about pages that read, and forms
        hosts = request.headers.getall(hdrs.HOST, [])
        if scope != "send" and not all(is_own_name(host, access.names) for host in hosts):
            text = "this name is not known to be its own: see http.names, or ask by address"
            return "host", 403, text
        return None


def _is_own_origin(request: web.Request) -> bool:
    """Return whether a page of this very address sent the request.

    The scheme does not count: a proxy may have ended TLS.
    """
    origins = request.headers.getall(hdrs.ORIGIN)
    return len(origins) == 1 and origins[0].partition("://")[2] == request.host


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.popall(hdrs.SERVER, None)  # do not reveal the server's version


def _is_broken_off(request: web.Request) -> bool:
    """Return whether the client has gone before the end of the body that it sent."""
    error = request.content.exception()
    return error is not None and not isinstance(error, HttpProcessingError)


def _refuse_broken_body() -> web.Response:
    """Return the response to a body that was broken off, or is not what its head says."""
    response = web.Response(status=400, text="broken body\n")
    response.force_close()
    return response


class _ProtocolErrors(logging.LoggerAdapter[logging.Logger]):
    """The log of aiohttp without requests that are not HTTP, which anybody can send.

    They get a 400, are counted, and are named once a minute without a word of theirs.
    """

    def __init__(self, limiter: ConnectionLimiter) -> None:
        super().__init__(logging.getLogger("aiohttp.server"))
        self._limiter = limiter

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what is no error of the protocol; count what is one."""
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            peer = str(args[0]) if args else ""
            what = f"sends what is no HTTP request ({type(error).__name__})"
            self._limiter.refuse("protocol", peer, what, logging.INFO)
        else:
            super().log(level, msg, *args, **kwargs)


def limit_accept_errors(
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Make an exception handler that reports a lack of file descriptors at most once a minute.

    Asyncio would write a traceback for every try to accept a connection.
    """
    pace = ReportPace(clock)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif pace.is_due():
            log.error("no connection can be accepted: %s", error.strerror)

    return handle
