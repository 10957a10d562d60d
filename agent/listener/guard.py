"""What stands before every handler of a port: who asks, from where, and what the answer carries.

A path is closed unless it is named here, so a route that somebody adds is closed, too. Liveness and
readiness alone are open: who asks them (a kubelet, a load balancer) has no token, and they say
nothing but one word.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from agent.listener.access import Access, Scope, is_own_name
from agent.listener.connections import Connections
from agent.listener.tokens import presented

__all__ = ["HEADERS", "OPEN", "PATHS", "Guard"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN = frozenset(("/healthz", "/readyz"))
PATHS: dict[str, Scope] = {
    "/metrics": "scrape",
    "/v1/traces": "send",
    "/v1/logs": "send",
    "/v1/rag/traces": "send",
    "/v1/feedback": "send",
    "/v1/index": "send",
}
"""The rest is `read`."""

HEADERS = {
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


class Guard:
    """For one port, on `host`."""

    def __init__(self, access: Access, host: str, port: str, room: Connections) -> None:
        self._access = access
        self._free = access.free(host)
        self._refused = access.refusals(port)
        self._room = room

    def add_to(self, app: web.Application) -> None:
        """Before everything that is there already."""
        app.middlewares.insert(0, self._middleware())
        app.on_response_prepare.append(_prepare)

    def _middleware(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            with self._room.working(request.transport):
                resource = request.match_info.route.resource
                path = resource.canonical if resource is not None else ""
                problem = self._no(request, PATHS.get(path, "read"))
                if path in OPEN:
                    done = await handler(request)
                    # why it is not ready names paths and addresses: not for whoever happens to ask
                    short = problem is not None and done.status != 200
                    return web.Response(status=done.status, text="no\n") if short else done
                if problem is None:
                    return await handler(request)
                return self._refuse(PATHS.get(path, "read"), *problem)

        return guard

    def _refuse(self, scope: Scope, reason: str, status: int, text: str) -> web.Response:
        self._refused[reason] += 1
        headers = {}
        if status == 401:
            # a browser can ask a person for a password; programs send the token
            kind = "Basic" if scope == "read" else "Bearer"
            headers[hdrs.WWW_AUTHENTICATE] = f'{kind} realm="ragmeter"'
        answer = web.Response(status=status, text=f"{text}\n", headers=headers)
        answer.force_close()  # a body that comes with it is not read
        return answer

    def _no(self, request: web.Request, scope: Scope) -> tuple[str, int, str] | None:
        """Why not: a reason to count, a status, a text. None: it may."""
        access = self._access
        if request.method not in ("GET", "HEAD") and hdrs.ORIGIN in request.headers:
            # a browser sends it along, and may send along what it remembers of a person
            return "origin", 403, "not from a page in a browser"
        if access.wants_certificate and not _certificate(request):
            return "certificate", 403, "a client certificate is needed"
        if access.guarded(scope):
            token = presented(request.headers.get(hdrs.AUTHORIZATION))
            if token is None:
                return "no_token", 401, "a token is needed"
            if not access.opens(scope, token):
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


def _certificate(request: web.Request) -> bool:
    transport = request.transport
    return transport is not None and bool(transport.get_extra_info("peercert"))


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    # what it is made of, and in which version, is nobody's business
    response.headers.popall(hdrs.SERVER, None)
