"""Several Alertmanagers: each is notified by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError
from ragmeter.core.counters import Counters
from ragmeter.parts.views import Incident
from ragmeter_exporters.senders import AlertSenders

from tests.exporters.incidents import opened
from tests.exporters.real_alertmanager import alertmanager, notified
from tests.exporters.stub import Stub, serve
from tests.ports import free_port
from tests.real import require
from tests.waiting import until_async


class Running:
    """What the senders need of an agent: one open incident, and counters."""

    def __init__(self) -> None:
        self.counters = Counters()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        yield

    def incidents(self) -> list[Incident]:
        return [opened()]

    def evidence(self, service: str, trace_id: str) -> None:
        return None

    def counted(self) -> dict[tuple[str, ...], float]:
        return {
            tuple(value for _, value in labels): by for (_, labels), by in self.counters.items()
        }


def urls_of(given: str | list[str], **environ: str) -> list[str]:
    overrides = {"alerts": {"alertmanager_url": given}} if given else {}
    found = load_settings(environ=environ, overrides=overrides).alerts.alertmanager_url
    return [url.get_secret_value() for url in found]


async def delivered(urls: list[str], running: Any, until: Any) -> None:
    overrides = {"alerts": {"alertmanager_url": urls}}
    senders = AlertSenders(
        load_settings(environ={}, overrides=overrides).alerts,
        make_client=lambda: httpx.AsyncClient(trust_env=False),
    )
    senders.start(running)
    await until_async(until)
    await senders.stop()


def test_one_url_or_several() -> None:
    one, other = "http://a:9093", "http://b:9093/am"
    assert urls_of(one) == [one]
    assert urls_of([one, other]) == [one, other]
    assert urls_of("", RAGMETER_ALERTS__ALERTMANAGER_URL=f"{one}, {other}") == [one, other]
    assert urls_of("") == []
    with pytest.raises(ConfigError, match="each URL once"):
        urls_of([one, one])


def test_one_that_is_down_or_hangs_delays_no_other_and_is_counted_by_its_name() -> None:
    async def scenario() -> None:
        async def hang(_: int) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        dead = f"http://127.0.0.1:{free_port()}"
        running = Running()
        async with serve(hang) as stuck, serve() as good, serve() as last:
            urls = [dead, stuck.url, good.url, last.url]
            await delivered(
                urls, running, lambda: good.bodies and last.bodies and failed(running, dead)
            )
        assert stuck.paths == good.paths == last.paths == ["/api/v2/alerts"]
        assert good.bodies[0][0]["labels"] == last.bodies[0][0]["labels"]
        counts = running.counted()
        for one in (good, last):
            assert counts[target(one.url), "sent"] == 1
        assert counts[target(stuck.url), "sent"] == 0

    asyncio.run(scenario())


def target(url: str) -> str:
    return f"alertmanager {url.removeprefix('http://')}"


def failed(running: Running, url: str) -> bool:
    return running.counted().get((target(url), "retry"), 0) > 0


@pytest.mark.real
@pytest.mark.slow
def test_two_real_ones_each_notify_and_the_death_of_one_loses_nothing(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()

    async def scenario() -> None:
        running = Running()
        async with serve() as first, serve() as second:
            async with alertmanager(binary, folders[0], first.url) as one:
                async with alertmanager(binary, folders[1], second.url) as other:
                    await delivered([one, other], running, lambda: heard(first) and heard(second))
                first.bodies.clear()
            async with alertmanager(binary, folders[0], first.url) as one:
                await delivered(
                    [other, one], running, lambda: heard(first) and failed(running, other)
                )

    asyncio.run(scenario())


def heard(stub: Stub) -> bool:
    return bool(notified(stub, "firing"))
