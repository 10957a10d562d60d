from __future__ import annotations

import asyncio
import errno
import logging

import pytest
from aiohttp import web

from agent.config import load
from agent.listener.access import Access
from agent.ports import PortInUse, calm, listening


def test_a_lack_of_file_descriptors_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    handle = calm(lambda: now[0])
    loop = asyncio.new_event_loop()
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many open files"),
    }
    try:
        with caplog.at_level(logging.ERROR):
            for second in range(130):
                now[0] = float(second)
                handle(loop, context)
            assert len(caplog.records) == 3
            assert "Too many open files" in caplog.text
            assert "Traceback" not in caplog.text
            handle(loop, {"message": "another", "exception": ValueError("real")})
            assert "real" in caplog.text  # and nothing else is hidden
    finally:
        loop.close()


def test_a_port_is_free_again_afterwards_and_one_in_use_is_named() -> None:
    access = Access(load(environ={}))

    async def go() -> None:
        async with listening(web.Application(), "127.0.0.1", 0, access) as url:
            port = int(url.rpartition(":")[2])
            with pytest.raises(PortInUse, match=f"cannot listen on 127.0.0.1:{port}: "):
                async with listening(web.Application(), "127.0.0.1", port, access):
                    pass
        async with listening(web.Application(), "127.0.0.1", port, access) as again:
            assert again == url

    asyncio.run(go())


@pytest.mark.parametrize("host", ["a..b", "h" * 64])
def test_what_is_no_host_name_is_named_in_one_line(host: str) -> None:
    async def go() -> None:
        with pytest.raises(PortInUse, match=f"cannot listen on {host}:0: this is no host name"):
            async with listening(web.Application(), host, 0, Access(load(environ={}))):
                pass

    asyncio.run(go())
