"""One incident, one message, by the shipped settings of a real Alertmanager: what is sent on.

Three causes at once: the incidents that the agent makes of them, and what a real Prometheus (burn
rates) had on them in a staged outage of 25 minutes. A minute is a second here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.parts.views import Incident
from ragmeter_exporters.alertmanager import Alertmanager

from tests.exporters.incidents import opened, refused
from tests.exporters.real_alertmanager import alertmanager
from tests.exporters.stub import serve
from tests.real import require
from tests.system.compressed import compressed_routes

pytestmark = pytest.mark.slow

SETTINGS = Path(__file__).parents[2] / "deploy" / "compose" / "alertmanager.yml"
FACTOR = 60.0
WARNS: dict[str, Any] = {"severity": "warning"}


# minute at which each incident opens
STAGED = [
    (3.4, opened(service="checkout", id="1" * 16)),
    (5.7, opened(service="search", id="2" * 16, question="fast", kind="slow")),
    (5.9, opened(service="support", id="3" * 16, question="grounded", kind="ungrounded")),
    (7.9, refused(service="support", id="4" * 16)),  # a cause of its own, though a warning
]
# and each alert of Prometheus, with its objective
BURNING = [
    (1.6, "Ticket", "availability", "checkout"),
    (1.6, "Ticket", "latency", "search"),
    (5.3, "Fast", "availability", "checkout"),
    (5.3, "Slow", "availability", "checkout"),
    (6.7, "Fast", "latency", "search"),
    (9.9, "Slow", "latency", "search"),
]
SERVICES = {"checkout", "search", "support"}
MANY = ("bot", "search", "shop", "help", "wiki", "desk")


Step = tuple[float, Incident | dict[str, str]]
"""The minute of an incident of the agent, or of the labels of an alert that Prometheus sends."""


def notifications(folder: Path, steps: Sequence[Step], minutes: float) -> tuple[list[Any], int]:
    """Return the groups that were notified with the names in them, and how many alerts are held."""
    binary = require("alertmanager", "prometheus-alertmanager")
    own = compressed_routes(SETTINGS.read_text("utf-8"), FACTOR)

    async def scenario() -> tuple[list[Any], int]:
        standing: list[Incident] = []
        async with (
            httpx.AsyncClient() as client,
            serve() as pager,
            alertmanager(binary, folder, pager.url, own) as url,
        ):
            sender = Alertmanager(
                client, url, lambda: standing, clock=time.time, count=lambda *_: None, resend=1.0
            )
            running = asyncio.create_task(sender.run())
            begin = time.monotonic()
            for minute, alert in sorted(steps, key=lambda step: step[0]):
                await asyncio.sleep(max(0.0, begin + minute * 60 / FACTOR - time.monotonic()))
                if isinstance(alert, Incident):
                    now = time.time()
                    standing.append(replace(alert, since=now, opened_at=now))
                    sender.wake()
                else:
                    await client.post(f"{url}/api/v2/alerts", json=[{"labels": alert}])
            await asyncio.sleep(max(0.0, begin + minutes * 60 / FACTOR - time.monotonic()))
            held = (await client.get(f"{url}/api/v2/alerts")).json()
            await sender.stop()
            await running
            listed = [
                (body["groupLabels"], [one["labels"]["alertname"] for one in body["alerts"]])
                for body in pager.bodies
            ]
            return listed, len(held)

    return asyncio.run(scenario())


@pytest.mark.real
def test_each_incident_is_one_message_and_mutes_what_it_costs(tmp_path: Path) -> None:
    steps: list[Step] = [*STAGED]
    for minute, speed, slo, service in BURNING:
        severity = "warning" if speed == "Ticket" else "critical"
        names = {"alertname": f"RagErrorBudgetBurn{speed}", "service": service, "slo": slo}
        steps.append((minute, {**names, "severity": severity, "job": "ragmeter"}))
    listed, held = notifications(tmp_path, steps, 25)
    assert {group["service"] for group, _ in listed} == SERVICES
    of_agent = [names for _, names in listed if names == ["RagIncident"]]
    assert len(of_agent) == len(STAGED)
    # a burn rate that was there before the page of its service
    assert len(listed) <= len(STAGED) + 1, listed
    # nothing is lost: what is muted is held
    assert held == len(STAGED) + len(BURNING)


@pytest.mark.real
def test_a_judge_that_is_down_is_one_story(tmp_path: Path) -> None:
    own = {"job": "ragmeter", "instance": "a:9464", "severity": "warning"}
    steps: list[Step] = [
        (6.0, {"alertname": "RagmeterJudgeFailing", "judge": "judge", **own}),
        (12.5, {"alertname": "RagmeterJudgeDown", "judge": "judge", **own}),
    ]
    listed, held = notifications(tmp_path, steps, 30)
    assert len(listed) <= 2, listed
    assert Counter(listed[-1][1]) == {"RagmeterJudgeDown": 1, "RagmeterJudgeFailing": 1}
    assert held == len(steps)


@pytest.mark.real
def test_a_judge_that_is_slow_is_one_notification(tmp_path: Path) -> None:
    scaled = {"alertname": "RagmeterSamplingScaledDown", "tier": "judge", **WARNS}
    listed, _ = notifications(tmp_path, [(1.0, scaled | {"service": one}) for one in MANY], 20)
    assert [Counter(names) for _, names in listed] == [{"RagmeterSamplingScaledDown": len(MANY)}]


@pytest.mark.real
def test_an_agent_that_stands_still_is_told_once(tmp_path: Path) -> None:
    own = {"job": "ragmeter", "instance": "a:9464", "severity": "critical"}
    names = ("RagmeterNotReady", "RagmeterStalled")
    steps: list[Step] = [
        (7.0, {"alertname": names[0], **own}),
        (15.0, {"alertname": names[1], **own}),
        (15.0, {"alertname": names[1], **own, "instance": "b:9464"}),
    ]
    listed, _ = notifications(tmp_path, steps[:2], 25)
    assert listed == [({}, ["RagmeterNotReady"])]
    (tmp_path / "other").mkdir()
    listed, _ = notifications(tmp_path / "other", steps, 25)
    assert sorted(listed[-1][1]) == ["RagmeterNotReady", "RagmeterStalled"]
