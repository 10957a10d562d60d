"""A port that is listened on, and what anybody who connects there cannot do to the log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agent.listener.access import Access
from agent.listener.connections import IDLE_SECONDS, Connection, Connections
from agent.listener.guard import Guard

__all__ = ["PortInUse", "calm", "listening", "quiet"]

log = logging.getLogger("ragmeter")

BACKLOG = 128  # connections that wait to be accepted, as aiohttp has it
QUIET_SECONDS = 60.0  # between two reports that there are no file descriptors left


class PortInUse(Exception):
    """An address that cannot be listened on, and why."""


@contextlib.asynccontextmanager
async def listening(
    app: web.Application,
    host: str,
    port: int,
    access: Access,
    *,
    name: str = "metrics",
    connections: int = 400,
) -> AsyncIterator[str]:
    """Serve `app` to whom `access` lets in; yields its base URL. Raises `PortInUse`."""
    room = Connections(f"{name} port", connections, access.refusals(name))
    Guard(access, host, name, room).add_to(app)
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

    def connection() -> Connection:
        secure = access.certificate
        return Connection(room, http(), None if secure is None else secure.context)

    try:
        try:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(connection, host, port, backlog=BACKLOG)
        except OSError as error:
            raise PortInUse(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        except UnicodeError:  # from the resolver: an empty label, or one of more than 63 characters
            raise PortInUse(f"cannot listen on {host}:{port}: this is no host name") from None
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


def _worth_a_line(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def quiet() -> None:
    """Keep what is no HTTP out of the log: it is answered with 400, and anybody can send it."""
    logging.getLogger("aiohttp.server").addFilter(_worth_a_line)


def calm(
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
        elif last is None or clock() - last >= QUIET_SECONDS:
            last = clock()
            log.error("no connection can be accepted: %s", error.strerror)

    return handle
