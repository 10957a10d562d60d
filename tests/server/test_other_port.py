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
    reply = asyncio.run(ask("GET", path))
    assert reply.status_code == 404
    assert reply.text == f"{path} is a path of the other port (http.metrics_port)\n"


@pytest.mark.parametrize("path", ["/api/v1/query?query=up", "/federate"])
def test_who_takes_it_for_a_prometheus_is_told_so(path: str) -> None:
    reply = asyncio.run(ask("GET", path))
    assert reply.status_code == 404
    assert reply.text.startswith("this is no Prometheus: scrape /metrics here")


def test_a_sender_at_the_other_port_is_told_its_setting() -> None:
    reply = asyncio.run(ask("POST", "/v1/traces"))
    assert reply.status_code == 404
    assert reply.text.endswith("it is a path of the other port (http.otlp_port)\n")


def test_a_token_that_opens_something_else_names_the_setting() -> None:
    tokens = Settings.model_validate({"http": {"token": "t" * 32, "accept": ["plain"]}})
    wrong = {"Authorization": f"Bearer {'x' * 32}"}
    reply = asyncio.run(ask("GET", "/", tokens, wrong))
    assert reply.status_code == 401
    assert reply.text == "this token does not open it (http.token does)\n"


async def ask(
    method: str,
    path: str,
    settings: Settings | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    access = AccessPolicy(settings or Settings())
    async with (
        listen(web.Application(), "127.0.0.1", 0, access, connections=4) as url,
        httpx.AsyncClient() as client,
    ):
        return await client.request(method, f"{url}{path}", headers=headers)
