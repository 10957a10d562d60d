"""The whole way through a real Alertmanager: sender, Alertmanager, a webhook receiver.

It shows what no stub can: that Alertmanager takes the payload, notifies with the worst trace ids,
holds an open incident, and resolves it when we say so or when we die.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from ragmeter.parts.views import Incident
from ragmeter_exporters.alertmanager import Alertmanager

from tests.exporters.alerts import make
from tests.exporters.incidents import RUNBOOK, opened
from tests.exporters.real_alertmanager import alertmanager, notified
from tests.exporters.stub import serve
from tests.real import require
from tests.waiting import until_async

pytestmark = [pytest.mark.real, pytest.mark.slow]


@asynccontextmanager
async def sender_to(url: str, incidents: list[Incident]) -> AsyncIterator[Alertmanager]:
    counts: Counter[str] = Counter()
    async with httpx.AsyncClient() as client:
        sender = Alertmanager(
            client,
            url,
            lambda: incidents,
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
def test_an_incident_arrives_with_its_story_and_resolves(tmp_path: Path, offset: float) -> None:
    """Event time may lie a day behind the wall clock (a replay) or ahead of it (skew)."""
    binary = require("alertmanager", "prometheus-alertmanager")

    async def scenario() -> None:
        now = time.time() + offset
        incident = opened(
            since=now - 60,
            opened_at=now,
            worst=("trace-7f3a", "trace-81bc"),
            signals=(make(labels={"team": "search"}),),
        )
        held = [incident]
        async with (
            serve() as receiver,
            alertmanager(binary, tmp_path, receiver.url) as url,
            sender_to(url, held) as sender,
        ):
            sender.wake()
            await until_async(lambda: bool(notified(receiver, "firing")))
            # Held past its first `endsAt` by the resends: it neither resolves nor fires again.
            await asyncio.sleep(2.5)
            (fired,) = notified(receiver, "firing")
            assert notified(receiver, "resolved") == []
            assert fired["labels"] == {
                "alertname": "RagIncident",
                "incident": incident.id,
                "severity": "critical",
                "service": "bot",
                "question": "works",
                "team": "search",
            }
            assert fired["annotations"]["worst_2"] == "trace-81bc"
            assert fired["annotations"]["detail"] == "\n".join(incident.detail)
            assert fired["annotations"]["runbook_url"] == RUNBOOK
            assert fired["generatorURL"] == f"http://127.0.0.1:9464/incident/bot/{incident.id}"

            held[:] = [replace(incident, state="over", ended_at=now + 60, title="bot: it works")]
            sender.wake()
            begin = time.monotonic()
            await until_async(lambda: bool(notified(receiver, "resolved")))
            # It was sent, and did not time out: `endsAt` of the last resend lies up to 2 s ahead.
            assert time.monotonic() - begin < 1.5
            (resolved,) = notified(receiver, "resolved")
            assert resolved["fingerprint"] == fired["fingerprint"]
            assert resolved["annotations"]["title"] == "bot: it works"

    asyncio.run(scenario())


def test_an_incident_ends_by_itself_when_we_die(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")

    async def scenario() -> None:
        async with serve() as receiver, alertmanager(binary, tmp_path, receiver.url) as url:
            async with sender_to(url, [opened(opened_at=time.time())]) as sender:
                sender.wake()
                await until_async(lambda: bool(notified(receiver, "firing")))
            await until_async(lambda: bool(notified(receiver, "resolved")))

    asyncio.run(scenario())
