from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from ragmeter.config.reporting import AlertSettings
from ragmeter.core.counters import Counters
from ragmeter.core.errors import UnusableResource
from ragmeter.store.rows import OutboxItem
from ragmeter_exporters.senders import AlertSenders

from tests.exporters.memory_outbox import MemoryOutbox
from tests.waiting import until_async

NOW = 1_790_000_000.0
DAY = 86_400.0


class Running:
    def __init__(self) -> None:
        self.outbox = MemoryOutbox()
        self.counters = Counters()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 3 * DAY])
def test_a_clock_that_jumps_delays_and_drops_no_notification(jump: float) -> None:
    """An hour back, what is there would not be due for an hour; days on, it would be too old."""

    async def scenario() -> None:
        clock = [NOW]
        notified: list[httpx.Request] = []

        def take(request: httpx.Request) -> httpx.Response:
            notified.append(request)
            return httpx.Response(204)

        running: Any = Running()
        running.outbox.put(OutboxItem("a", "a", "{}", NOW))
        client = httpx.AsyncClient(transport=httpx.MockTransport(take))
        senders = AlertSenders(
            AlertSettings(webhook_url="http://hook.test/"),
            clock=lambda: clock[0],
            make_client=lambda: client,
        )
        senders.start(running)
        clock[0] += jump
        await until_async(lambda: len(running.outbox) == 0)
        await senders.stop()
        assert client.is_closed
        assert len(notified) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "settings",
    [
        {"webhook_url": "https://hook.test/"},
        {"alertmanager_url": ["http://10.0.0.1:9093", "https://two.test"]},
    ],
)
def test_a_proxy_that_cannot_be_one_is_told_at_the_start(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:hush@proxy.test:1080")
    monkeypatch.delenv("https_proxy", raising=False)
    senders = AlertSenders(AlertSettings.model_validate(settings))
    running: Any = Running()
    with pytest.raises(UnusableResource, match=r"HTTPS_PROXY: .* http://host:port") as raised:
        senders.start(running)
    assert "hush" not in str(raised.value)
    monkeypatch.setenv("NO_PROXY", "hook.test,two.test")  # then it is not asked for

    async def scenario() -> None:
        senders.start(running)
        await senders.stop()

    asyncio.run(scenario())
