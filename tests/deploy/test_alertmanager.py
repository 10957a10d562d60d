"""One cause, one page, by the shipped settings of a real Alertmanager: what its receiver is sent.

Three causes at once, with the alerts that the agent and a real Prometheus (burn rates) had on them
in a staged incident of 25 minutes (errors, latency, answers to other questions). A minute is a
second here. The agent's alerts go through its own folding, too, on the clock of the events.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter_exporters.alertmanager import Alertmanager

from tests.exporters.alerts import drifted, make, slow
from tests.exporters.real_alertmanager import alertmanager
from tests.exporters.stub import serve
from tests.real import require
from tests.system.compressed import compressed_routes

pytestmark = pytest.mark.slow

SETTINGS = Path(__file__).parents[2] / "deploy" / "compose" / "alertmanager.yml"
FACTOR = 60.0
WARNS: dict[str, Any] = {"severity": "warning"}


# minute at which each alert of the agent fires
STAGED = [
    (3.4, make(service="checkout")),
    (5.7, make(rule="RagErrorsElevated", service="checkout", window="1h", **WARNS)),
    (5.7, slow(service="search")),
    (5.9, make(rule="RagGroundingCollapsed", metric="grounding", service="support")),
    (7.9, drifted(metric="error", service="checkout")),
    (8.9, drifted(metric="latency", service="search")),
    (10.7, slow(rule="RagLatencyElevated", service="search", window="1h", **WARNS)),
    (12.9, drifted(service="support", labels={"kind": "distribution"}, id="shares")),
    (15.9, drifted(service="support")),
]
# and each of Prometheus, with its objective
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


Step = tuple[float, Alert | dict[str, str]]
"""The minute of an alert of the agent, or of the labels of one that Prometheus sends."""


def notifications(folder: Path, steps: Sequence[Step], minutes: float) -> tuple[list[Any], int]:
    """Return the groups that were notified with the names in them, and how many alerts are held."""
    binary = require("alertmanager", "prometheus-alertmanager")
    own = compressed_routes(SETTINGS.read_text("utf-8"), FACTOR)

    async def scenario() -> tuple[list[Any], int]:
        firing: list[Alert] = []
        async with (
            httpx.AsyncClient() as client,
            serve() as pager,
            alertmanager(binary, folder, pager.url, own) as url,
        ):
            sender = Alertmanager(
                client, url, lambda: firing, clock=time.time, count=lambda *_: None, resend=1.0
            )
            running = asyncio.create_task(sender.run())
            begin = time.monotonic()
            for minute, alert in sorted(steps, key=lambda step: step[0]):
                await asyncio.sleep(max(0.0, begin + minute * 60 / FACTOR - time.monotonic()))
                if isinstance(alert, Alert):
                    alert.since = alert.fired_at = time.time()
                    firing.append(alert)
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
def test_three_causes_are_at_most_four_notifications(tmp_path: Path) -> None:
    steps: list[Step] = [*STAGED]
    for minute, speed, slo, service in BURNING:
        severity = "warning" if speed == "Ticket" else "critical"
        names = {"alertname": f"RagErrorBudgetBurn{speed}", "service": service, "slo": slo}
        steps.append((minute, {**names, "severity": severity, "job": "ragmeter"}))
    listed, held = notifications(tmp_path, steps, 25)
    assert {group["service"] for group, _ in listed} == SERVICES
    assert len(listed) <= 4, listed
    # nothing is lost: what is muted is held
    assert held == len(STAGED) + len(BURNING)


@pytest.mark.real
def test_a_judge_that_is_down_is_one_story_however_many_services_it_judges(tmp_path: Path) -> None:
    """Each service and metric has an alert of the agent; Prometheus has those on the judge."""
    own = {"job": "ragmeter", "instance": "a:9464", "severity": "warning"}
    steps: list[Step] = [
        (6.0, {"alertname": "RagmeterJudgeFailing", "judge": "judge", **own}),
        (12.5, {"alertname": "RagmeterJudgeDown", "judge": "judge", **own}),
    ]
    for number, metric in enumerate(("relevance", "answered", "faithfulness", "nugget_all")):
        for service in MANY:
            one = make(rule="RagUnscoredHigh", metric=metric, scorer="judge", service=service)
            one.id = f"{metric} {service}"
            steps.append((13.0 + number / 4, one))
    listed, held = notifications(tmp_path, steps, 30)
    assert len(listed) <= 3, listed
    assert Counter(listed[-1][1]) == {
        "RagUnscoredHigh": 24,
        "RagmeterJudgeDown": 1,
        "RagmeterJudgeFailing": 1,
    }
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


def test_the_agents_own_webhook_folds_the_same() -> None:
    engine, notified = AlertEngine([]), list[Alert]()
    held: list[Alert] = []
    waiting = [(minute * 60, alert.copy()) for minute, alert in STAGED]
    for step in range(0, 25 * 60, 15):
        while waiting and waiting[0][0] <= step:
            held.append(waiting.pop(0)[1])
            held[-1].fired_at = float(step)
        notified += engine._folder.update([alert.copy() for alert in held], float(step))
    assert [(alert.rule, alert.service) for alert in notified] == [
        ("RagErrorsHigh", "checkout"),
        ("RagLatencyHigh", "search"),
        ("RagGroundingCollapsed", "support"),
    ]
    folded = [alert.id for alert in held if engine._folder.find_leader(alert.id)]
    assert len(folded) == len(STAGED) - 3
