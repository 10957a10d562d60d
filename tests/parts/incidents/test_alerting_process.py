"""An outage from the traces to the pager: agent, real Alertmanager, webhook, page, restarts."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.crash import start
from tests.exporters.real_alertmanager import alertmanager, notified
from tests.exporters.stub import Stub, serve
from tests.ports import free_port
from tests.real import require
from tests.traces import START, trace_dict
from tests.waiting import PATIENCE, until_async

pytestmark = [pytest.mark.real, pytest.mark.slow]

SERVING = "serving until Ctrl-C"


def write(path: Path, seconds: range, failing: bool) -> Path:
    """A trace a second; two of three fail in an outage."""
    with path.open("w") as file:
        for n in seconds:
            bad = failing and n % 3 != 0
            trace = trace_dict(n, timestamp=START + n, status="error" if bad else "ok")
            file.write(json.dumps(trace) + "\n")
    return path


def notified_texts(stub: Stub, event: str) -> list[dict[str, Any]]:
    """The webhook's notifications of one kind: all of them are of one cause."""
    return [body["incident"] for body in stub.bodies if body["event"] == event]


def heard(stub: Stub, status: str) -> list[dict[str, Any]]:
    return [alert for alert in notified(stub, status) if alert["labels"]["question"] == "works"]


@asynccontextmanager
async def agent(config: Path, *files: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    arguments = [part for file in files for part in ("--replay", file)]
    talk = config.parent / "talk.txt"
    before = talk.read_text().count(SERVING) if talk.exists() else 0
    process = start(config.parent, "run", "-c", config, *arguments)
    try:
        await until_async(lambda: talk.read_text().count(SERVING) > before)
        yield process
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_an_outage_pages_once_names_its_traces_and_resolves(tmp_path: Path) -> None:
    binary = require("alertmanager", "prometheus-alertmanager")
    page = free_port()

    async def scenario() -> None:
        async with (
            serve() as pager,
            alertmanager(binary, tmp_path, pager.url) as manager,
            serve() as webhook,
        ):
            config = tmp_path / "config.json"
            config.write_text(
                json.dumps(
                    {
                        "http": {"otlp_port": free_port(), "metrics_port": page},
                        "state": {"path": str(tmp_path / "s.sqlite")},
                        "alerts": {
                            "alertmanager_url": manager,
                            "webhook_url": f"{webhook.url}/hook",
                            "page_url": f"http://127.0.0.1:{page}",
                        },
                    }
                )
            )
            calm = write(tmp_path / "calm.jsonl", range(600), failing=False)
            outage = write(tmp_path / "outage.jsonl", range(600, 1000), failing=True)
            after = write(tmp_path / "after.jsonl", range(1000, 3000), failing=False)

            async with agent(config, calm):
                await asyncio.sleep(2)
                assert pager.bodies == webhook.bodies == []

            async with agent(config, outage):
                await until_async(
                    lambda: bool(heard(pager, "firing") and notified_texts(webhook, "opened"))
                )
                (fired,) = notified_texts(webhook, "opened")
                assert fired["level"] > 0.05
                annotations = heard(pager, "firing")[0]["annotations"]
                for trace_id in fired["worst"]:
                    assert int(trace_id[1:]) >= 600
                    async with httpx.AsyncClient() as client:
                        opened = await client.get(f"http://127.0.0.1:{page}/trace/bot/{trace_id}")
                    assert opened.status_code == 200
                    assert trace_id in opened.text
                assert annotations["worst_3"] == fired["worst"][2]

            async with agent(config, outage):  # a restart while it fires
                await asyncio.sleep(4)
                assert len(notified_texts(webhook, "opened")) == 1
                assert len(heard(pager, "firing")) == 1
                assert notified_texts(webhook, "over") == []

            async with agent(config, after):
                await until_async(
                    lambda: bool(heard(pager, "resolved") and notified_texts(webhook, "over"))
                )
            assert len(notified_texts(webhook, "opened")) == 1
            assert len(notified_texts(webhook, "over")) == 1

    asyncio.run(scenario())
