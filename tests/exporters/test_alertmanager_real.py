"""The whole way through a real Alertmanager: engine, sender, Alertmanager, a webhook receiver.

It shows what no stub can: that Alertmanager takes the payload, notifies with the worst trace ids,
holds a firing alert, and resolves it when told so or when we die.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter_exporters.alertmanager import Alertmanager

from tests.exporters.real_alertmanager import alertmanager, notified
from tests.exporters.stub import serve
from tests.parts.incidents.fakes import FakeWindows, Worst, around, rule
from tests.real import require
from tests.waiting import until_async

pytestmark = [pytest.mark.real, pytest.mark.slow]


@asynccontextmanager
async def sender_to(url: str, alerts: Callable[[], list[Alert]]) -> AsyncIterator[Alertmanager]:
    counts: Counter[str] = Counter()
    async with httpx.AsyncClient() as client:
        sender = Alertmanager(
            client,
            url,
            alerts,
            clock=time.time,
            count=lambda target, outcome: counts.update([outcome]),
            resend=0.5,
            status_url="http://127.0.0.1:9464",
        )
        task = asyncio.create_task(sender.run())
        try:
            yield sender
        finally:
            await sender.stop()
            await task
    assert set(counts) == {"sent"}, counts


@pytest.mark.parametrize("offset", [-86_400.0, 0.0, 86_400.0], ids=["past", "now", "future"])
def test_an_alert_arrives_with_its_evidence_and_resolves(tmp_path: Path, offset: float) -> None:
    """Event time may lie a day behind the wall clock (a replay) or ahead of it (skew)."""
    binary = require("alertmanager", "prometheus-alertmanager")

    async def scenario() -> None:
        made = rule(labels={"team": "search"}, segment="model", runbook="https://wiki.example/e")
        engine, windows = AlertEngine([made]), FakeWindows()
        windows.bad = [Worst("trace-7f3a", 1.0), Worst("trace-81bc", 1.0)]
        windows.estimates["bot", "model=gpt-4o", "error", "builtin"] = around(0.2)
        now = time.time() + offset
        async with (
            serve() as receiver,
            alertmanager(binary, tmp_path, receiver.url) as url,
            sender_to(url, engine.alerts) as sender,
        ):
            assert len(engine.evaluate(windows, now)) == 1
            sender.wake()
            await until_async(lambda: bool(notified(receiver, "firing")))
            # Held past its first `endsAt` by the resends: it neither resolves nor fires again.
            await asyncio.sleep(2.5)
            (fired,) = notified(receiver, "firing")
            assert notified(receiver, "resolved") == []
            assert fired["labels"] == {
                "alertname": "Errors",
                "severity": "critical",
                "service": "bot",
                "metric": "error",
                "scorer": "builtin",
                "window": "5m",
                "team": "search",
                "model": "gpt-4o",
            }
            assert fired["annotations"]["worst_traces"] == "trace-7f3a, trace-81bc"
            assert fired["annotations"]["ci_lower"] == "0.18"
            assert fired["annotations"]["runbook_url"] == "https://wiki.example/e"
            assert fired["generatorURL"] == "http://127.0.0.1:9464/service/bot"

            windows.estimates["bot", "model=gpt-4o", "error", "builtin"] = around(0.01)
            assert len(engine.evaluate(windows, now + 60)) == 1
            sender.wake()
            begin = time.monotonic()
            await until_async(lambda: bool(notified(receiver, "resolved")))
            # Told, not timed out: `endsAt` of the last resend lies up to 2 s ahead.
            assert time.monotonic() - begin < 1.5
            (resolved,) = notified(receiver, "resolved")
            assert resolved["fingerprint"] == fired["fingerprint"]

    asyncio.run(scenario())


def test_an_alert_ends_by_itself_when_we_die(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")

    async def scenario() -> None:
        engine, windows = AlertEngine([rule()]), FakeWindows()
        windows.estimates["bot", "", "error", "builtin"] = around(0.2)
        async with serve() as receiver, alertmanager(binary, tmp_path, receiver.url) as url:
            async with sender_to(url, engine.alerts) as sender:
                engine.evaluate(windows, time.time())
                sender.wake()
                await until_async(lambda: bool(notified(receiver, "firing")))
            await until_async(lambda: bool(notified(receiver, "resolved")))

    asyncio.run(scenario())
