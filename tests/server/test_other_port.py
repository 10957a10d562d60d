"""The port for traces tells a scraper or a probe where to ask."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from aiohttp import web
from ragmeter.config.settings import Settings
from ragmeter.server.access import AccessPolicy
from ragmeter.server.listener import listen


@pytest.mark.parametrize("path", ["/metrics", "/metrics/detail", "/healthz", "/readyz"])
def test_a_scraper_at_the_other_port_is_told_so(path: str) -> None:
    async def ask() -> httpx.Response:
        access = AccessPolicy(Settings())
        async with (
            listen(web.Application(), "127.0.0.1", 0, access, connections=4) as url,
            httpx.AsyncClient() as client,
        ):
            return await client.get(f"{url}{path}")

    reply = asyncio.run(ask())
    assert reply.status_code == 404
    assert reply.text == f"{path} is a path of the other port (http.metrics_port)\n"
