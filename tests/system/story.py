"""The story with real parts: traffic, the agent, Prometheus with its rules, Alertmanager, a pager.

    traffic -> ragmeter -> webhook ------------------> receiver
                  |  `--> Alertmanager ----------------> |
                  `-> /metrics -> Prometheus -> Alertmanager

The agent alerts as it does without any rule of a user. The traffic of eleven calm hours is replayed
as fast as it goes; what the agent exported on the way becomes what Prometheus knows of them. Then
the story is played, `factor` times faster than it is.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.exporters.real_alertmanager import alertmanager
from tests.ports import free_port
from tests.prometheus_server import prometheus
from tests.real import require
from tests.system.arrivals import WAYS, Arrival, Receiver, receiver
from tests.system.backfill import backfilled
from tests.system.compressed import compressed, faster
from tests.system.feed import ROOT, Agent, agent, pace
from tests.system.traffic import EVENING, HOUR, LEAD, STORY, traffic
from tests.waiting import PATIENCE

__all__ = ["FACTOR", "Notified", "configured", "play", "rules_for_prometheus"]

FACTOR = 100.0
"""How many seconds of the story are played in one: 135 minutes in 81 s. Prometheus scrapes every
minute and asks its rules every 30 s, which are 600 and 300 ms then: a scrape that takes longer
fails. Where the machine is too busy for that, the story begins anew, at a quarter of the pace."""

SLOWEST = 6.25
"""In 22 minutes: a machine that does not answer within 10 s does nothing else in time either."""

SCRAPED, ASKED = "1m", "30s"
BEHIND = 5 * 60.0
"""Seconds of the story by which the teller may be late: a quarter of what an arrival may."""

HEAD_START = 20 * 60.0
"""Seconds of the calm that are played at the story's pace: Prometheus is started meanwhile."""

MARKS = (*(hours * HOUR for hours in range(-10, -1, 2)), EVENING, EVENING / 2, -HEAD_START)
"""When Prometheus has scraped before the story."""

AFTER = 5 * 60.0  # for what was reported last to arrive, in seconds of the story
LONGEST = 50 * 60.0
"""Seconds of the story after its end in which what still fires may end: Prometheus holds drift,
which ends last, for a quarter of an hour after the agent, and on a busy machine more."""


@dataclass
class Notified:
    """What came of it. Minutes of the story; `opened` are the pages of the worst traces."""

    factor: float
    receiver: Receiver
    began: float
    origin: float
    opened: dict[str, tuple[int, str]]
    gone: float
    """Seconds that the whole took."""
    hurried: str = ""
    """What the machine was too busy for; empty where the pace was kept."""

    def minute(self, arrival: Arrival) -> float:
        """When it arrived."""
        return (arrival.at - self.began) * self.factor / 60

    def fired(self, arrival: Arrival, key: str = "startsAt") -> float:
        """When the agent says, of an alert that came from Alertmanager."""
        return (datetime.fromisoformat(arrival.notified[key]).timestamp() - self.origin) / 60


def configured(folder: Path, **alerts: Any) -> Path:
    """The settings of the agent, with the objectives of the rules for Prometheus."""
    slos = (ROOT / "deploy/prometheus/objectives.yaml").read_text()
    own = {
        "http": {"otlp_port": free_port(), "metrics_port": alerts.pop("port")},
        "state": {"path": str(folder / "state.sqlite")},
        # a minute, not 15 s: most of what the calm hours cost is asking rules
        "alerts": {"evaluation_seconds": 60, **alerts},
    }
    path = folder / "ragmeter.yaml"
    path.write_text(slos + "\n".join(f"{key}: {json.dumps(value)}" for key, value in own.items()))
    return path


def rules_for_prometheus(config: Path) -> str:
    """Written by the command, from the settings that the agent runs with."""
    command = [
        sys.executable,
        "-m",
        "ragmeter",
        "rules",
        "prometheus",
        "--config",
        str(config),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=PATIENCE
    )
    return done.stdout


def prometheus_config(factor: float, target: str, manager: str) -> str:
    return json.dumps(
        {
            "global": {
                "scrape_interval": faster(SCRAPED, factor),
                "evaluation_interval": faster(ASKED, factor),
                "external_labels": {"sent_by": "prometheus"},
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "ragmeter", "static_configs": [{"targets": [target]}]}],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [manager.removeprefix("http://")]}]}
                ]
            },
        }
    )


def lead(to: Agent, seed: int, origin: float) -> list[tuple[float, str]]:
    """Tell the calm hours; what was exported at the marks."""
    found = []
    waiting = traffic(-LEAD, -HEAD_START, origin=origin, seed=seed)
    for mark in MARKS:
        to.write(_until(waiting, mark))
        found.append((mark, to.caught_up()))
    return found


def _until(
    waiting: Iterator[tuple[float, dict[str, Any]]], mark: float
) -> Iterator[tuple[float, dict[str, Any]]]:
    for pair in waiting:
        yield pair
        if pair[0] >= mark:
            return


@dataclass(frozen=True)
class Watched:
    """What Prometheus saw of a story that began at this time of the clock."""

    client: httpx.Client
    factor: float
    began: float

    def hurried(self) -> str:
        """What it could not do in time, in words: its own counts, not what came of them."""
        failed = self._value("count_over_time(up[1h]) - sum_over_time(up[1h])")
        if failed:
            return f"{failed:.0f} scrapes failed"
        seconds = time.time() - self.began
        due = seconds / (60 / self.factor)
        done = self._value(f"count_over_time(up[{seconds:.0f}s])")
        if done < 0.95 * due:
            return f"{done:.0f} of {due:.0f} scrapes were made"
        own = self.client.get(self.client.base_url.join("/metrics")).text
        missed = sum(
            float(line.rpartition(" ")[2])
            for line in own.splitlines()
            if line.startswith("prometheus_rule_group_iterations_missed_total{")
        )
        return f"{missed:.0f} evaluations were left out" if missed else ""

    def _value(self, query: str) -> float:
        (found,) = self.client.get("/query", params={"query": query}).json()["data"]["result"]
        return float(found["value"][1])


@contextmanager
def watched(
    folder: Path, rules: str, scrapes: list[tuple[float, str]], factor: float, url: str, to: str
) -> Iterator[Watched]:
    """Prometheus, once it scrapes."""
    target = url.removeprefix("http://")
    begins = time.time() + HEAD_START / factor
    backfilled(
        folder,
        [(begins + mark / factor, text) for mark, text in scrapes],
        {"job": "ragmeter", "instance": target},
    )
    (folder / "rules.yml").write_text(compressed(rules, factor))
    flags = [f"--query.lookback-delta={faster('5m', factor)}"]
    with prometheus(folder, prometheus_config(factor, target, to), flags) as client:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                answer = client.get("/query", params={"query": "up == 1"}).json()
                if answer["data"]["result"]:
                    break
            except (httpx.TransportError, KeyError, ValueError):
                pass
            time.sleep(0.05)
        else:
            raise TimeoutError((folder / "log").read_text()[-3000:])
        yield Watched(client, factor, max(begins, time.time()))


async def play(folder: Path, *, factor: float = FACTOR, seed: int = 1) -> Notified:
    """Tell the story, and anew at a quarter of the pace where the machine was too busy for it;
    `folder` is for what the parts write."""
    while True:
        noted = await tell(folder, factor, seed)
        if not noted.hurried or factor <= SLOWEST:
            return noted
        print(f"played anew, {noted.hurried} at {factor:g} times the pace of life")
        factor /= 4


async def tell(folder: Path, factor: float, seed: int) -> Notified:
    """Tell the story once."""
    begin = time.monotonic()
    page = free_port()
    manager = require("alertmanager", "prometheus-alertmanager")
    require("prometheus")
    require("promtool")
    url = f"http://127.0.0.1:{page}"
    for name in ("agent", "alertmanager", "prometheus"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    # the story ends now: what is dated in the future would not be believed
    origin = float(round(time.time()) - STORY - 60)
    opened: dict[str, tuple[int, str]] = {}
    async with (
        receiver() as heard,
        alertmanager(manager, folder / "alertmanager", heard.url) as am,
    ):
        config = configured(
            folder / "agent", port=page, alertmanager_url=am, webhook_url=heard.url, page_url=url
        )
        rules = await asyncio.to_thread(rules_for_prometheus, config)

        def notified() -> tuple[float, str]:
            with agent(folder / "agent", config, url) as running:
                scrapes = lead(running, seed, origin)
                assert heard.arrivals == [], heard.arrivals
                prometheus = folder / "prometheus"
                with watched(prometheus, rules, scrapes, factor, url, am) as watch:
                    rest = traffic(-HEAD_START, origin=origin, seed=seed)
                    behind = pace(running, rest, factor, watch.began)
                    running.caught_up()
                    time.sleep(AFTER / factor)
                    end = time.monotonic() + LONGEST / factor
                    while any(map(heard.firing, WAYS)) and time.monotonic() < end:
                        time.sleep(0.1)
                    late = f"the teller was {behind / factor:.1f} s late" if behind > BEHIND else ""
                    return watch.began, late or watch.hurried()

        async def look() -> None:
            """Open the worst traces of whatever the agent tells Alertmanager, as they come."""
            async with httpx.AsyncClient(timeout=PATIENCE) as client:
                seen = 0
                while True:
                    for one in heard.arrivals[seen:]:
                        seen += 1
                        if one.way == "alertmanager" and one.status == "firing":
                            for trace_id in one.worst:
                                answer = await client.get(f"{url}/trace/{one.service}/{trace_id}")
                                opened[trace_id] = (answer.status_code, answer.text)
                    await asyncio.sleep(0.2)

        looking = asyncio.create_task(look())
        try:
            began, hurried = await asyncio.to_thread(notified)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    assert set(WAYS) >= {one.way for one in heard.arrivals}
    return Notified(factor, heard, began, origin, opened, time.monotonic() - begin, hurried)
