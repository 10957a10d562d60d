"""A real Alertmanager for tests, and what its receiver heard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.exporters.stub import Stub
from tests.ports import free_port

__all__ = ["alertmanager", "notified"]


@asynccontextmanager
async def alertmanager(
    binary: str,
    folder: Path,
    receiver: str = "",
    own: dict[str, Any] | None = None,
    *,
    filled: bool = False,
    external: str = "",
) -> AsyncIterator[str]:
    """A ready Alertmanager that notifies `receiver`, of each alert by itself or by the settings of
    its `own`, whose receiver it fills in unless it is `filled`; gives its URL. Links in what it
    sends begin with `external`, or with that URL."""
    webhook = {"webhook_configs": [{"url": receiver, "send_resolved": True}]}
    if own is not None and not filled:
        own = own | {"receivers": [{"name": own["route"]["receiver"], **webhook}]}
    config = own or {
        "route": {
            "receiver": "stub",
            "group_by": ["..."],
            "group_wait": "200ms",
            "group_interval": "300ms",
            "repeat_interval": "1h",
        },
        "receivers": [{"name": "stub", **webhook}],
    }
    path = folder / "alertmanager.json"  # JSON is YAML
    path.write_text(json.dumps(config))
    url = f"http://127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={path}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--cluster.listen-address=",
            f"--web.external-url={external or url}",
            "--web.route-prefix=/",
            stdout=log,
            stderr=log,
        )
        try:
            await ready(url, process, folder / "log")
            yield url
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ready(url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with httpx.AsyncClient() as client:
        for _ in range(200):
            if process.returncode is not None:
                pytest.fail(f"Alertmanager ended at once:\n{reported(log)}")
            try:
                if (await client.get(f"{url}/-/ready")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.05)
    pytest.fail(f"Alertmanager is not ready after 10 s:\n{reported(log)}")


def reported(log: Path) -> str:
    return log.read_text()


def notified(stub: Stub, status: str) -> list[dict[str, Any]]:
    """The alerts of this status that the receiver got."""
    return [alert for body in stub.bodies for alert in body["alerts"] if alert["status"] == status]
