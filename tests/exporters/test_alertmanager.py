"""What Alertmanager is told, when, and that it is told again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest
from aiohttp import web
from ragmeter.alerts.alert import Alert
from ragmeter.server.client import service_path
from ragmeter_exporters.alertmanager import Alertmanager, alert_payload, alertmanager_labels

from tests.exporters.alerts import absent, drifted, make, unscored
from tests.exporters.stub import Stub, serve
from tests.waiting import PATIENCE, until_async

WALL = 5_000.0


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_labels_name_the_series() -> None:
    assert alertmanager_labels(make(labels={"team": "search"}, segment="model=gpt-4o")) == {
        "alertname": "RagErrorsHigh",
        "severity": "critical",
        "service": "bot",
        "metric": "error",
        "scorer": "builtin",
        "window": "5m",
        "team": "search",
        "model": "gpt-4o",
    }


def test_labels_from_outside_replace_nothing_and_are_valid() -> None:
    labels = alertmanager_labels(make(segment="service=x", service="a\nb" + "c" * 900, scorer=""))
    assert labels["segment_service"] == "x"
    assert labels["service"].startswith("a bccc")
    assert len(labels["service"]) == 256
    assert "scorer" not in labels
    assert alertmanager_labels(make(segment="9 lives=x=y"))["_9_lives"] == "x=y"


def test_annotations_carry_the_evidence() -> None:
    alert = make(runbook="https://wiki.example/x", annotations={"note": "n", "value": "fake"})
    assert alert_payload(alert, WALL, None, 60)["annotations"] == {
        "summary": "bot: too many errors",
        "value": "0.2",
        "ci_lower": "0.15",
        "ci_upper": "0.26",
        "threshold": "lower > 0.05",
        "samples": "240",
        "effective_samples": "231.5",
        "since": "1970-01-01T00:14:40.000+00:00",
        "worst_traces": "trace-1, trace-2",
        "worst_1": "trace-1",
        "worst_2": "trace-2",
        "runbook_url": "https://wiki.example/x",
        "note": "n",
    }


def test_every_kind_carries_what_it_was_before_where_and_who() -> None:
    notified = alert_payload(
        make(baseline=0.01, top_segment="model=m\x00", fingerprint="ab12"), WALL, None, 60
    )["annotations"]
    assert (notified["baseline"], notified["top_segment"], notified["judge_fingerprint"]) == (
        "0.01",
        "model=m ",
        "ab12",
    )
    notified = alert_payload(unscored(), WALL, None, 60)["annotations"]
    assert notified["reasons"] == "judge_timeout 60, unparsable 3"
    assert alert_payload(absent(), WALL, None, 60)["annotations"]["baseline"] == "40"


def test_a_rules_own_annotations_replace_no_evidence() -> None:
    names = ("baseline", "since", "top_segment", "judge_fingerprint", "reasons")
    notified = alert_payload(make(annotations=dict.fromkeys(names, "fake")), WALL, None, 60)[
        "annotations"
    ]
    assert "fake" not in notified.values()


def test_drift_says_since_when_from_what_and_where() -> None:
    notified = alert_payload(drifted(), WALL, None, 60)["annotations"]
    assert notified["value"] == "0.6"
    assert notified["baseline"] == "0.8"
    assert notified["statistic"] == "51234"
    assert notified["expected_days"] == "35.58"
    assert notified["threshold"] == "drift >= 43200"
    assert [seconds(notified[name]) for name in ("since", "since_earliest", "since_latest")] == [
        700,
        640,
        760,
    ]
    assert notified["top_segment"] == "model=<b>"
    assert notified["judge_fingerprint"] == "ab12cd34ef56"
    assert notified["provisional"] == "true"
    assert "cause" not in notified


def test_annotations_are_bounded_and_hold_whole_ids_only() -> None:
    alert = make(worst=["x" * 400, "y" * 400, "z" * 400], summary="s\x00" * 2000)
    annotations = alert_payload(alert, WALL, None, 60)["annotations"]
    assert annotations["worst_traces"] == "x" * 400 + ", " + "y" * 400
    assert len(annotations["summary"]) == 1000
    assert "\x00" not in annotations["summary"]


TIMES = [
    # fired, resolved (event), ended (wall), starts, ends
    (1_000.0, None, None, 1_000.0, WALL + 240),
    (9_000.0, None, None, WALL, WALL + 240),  # event time ahead of the wall
    (1_000.0, 2_000.0, 4_990.0, 1_000.0, 2_000.0),
    (1_000.0, 9_000.0, 4_990.0, 1_000.0, WALL),  # an end in the future would mean "still firing"
    (9_000.0, 9_500.0, 4_990.0, WALL, WALL),  # and a start after the end is refused
    (1_000.0, None, 4_990.0, 1_000.0, 4_990.0),  # gone without a word
    (9_000.0, None, 4_990.0, WALL, WALL),
]


@pytest.mark.parametrize(("fired", "resolved", "ended", "starts", "ends"), TIMES)
def test_times_make_alertmanager_do_what_is_meant(
    fired: float, resolved: float | None, ended: float | None, starts: float, ends: float
) -> None:
    state = "firing" if resolved is None else "resolved"
    alert = make(state=state, fired_at=fired, resolved_at=resolved)
    body = alert_payload(alert, WALL, ended, 60)
    assert seconds(body["startsAt"]) == starts
    assert seconds(body["endsAt"]) == ends


def test_the_link_leads_to_the_status_page() -> None:
    assert "generatorURL" not in alert_payload(make(), WALL, None, 60)
    body = alert_payload(make(service="a/b c"), WALL, None, 60, "http://host:9464/")
    assert body["generatorURL"] == "http://host:9464" + service_path("a/b c")
    assert body["generatorURL"] == "http://host:9464/service/a%2Fb%20c"


class Rig:
    """A sender over a list of alerts and a clock turned by hand."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.now = WALL
        self.counts: Counter[str] = Counter()
        self.stub = Stub()

    @property
    def last(self) -> list[dict[str, Any]]:
        return list(self.stub.bodies[-1])

    def live(self) -> list[bool]:
        """Of the last request: which alerts are still firing."""
        return [seconds(body["endsAt"]) > self.now for body in self.last]


@asynccontextmanager
async def rig(*statuses: int, **options: Any) -> AsyncIterator[tuple[Rig, Alertmanager]]:
    made = Rig()

    async def answer(number: int) -> web.Response:
        return web.Response(status=statuses[number] if number < len(statuses) else 200)

    async with serve(answer) as stub, httpx.AsyncClient() as client:
        made.stub = stub
        yield (
            made,
            Alertmanager(
                client,
                stub.url + "/prefix/",
                lambda: made.alerts,
                clock=lambda: made.now,
                count=lambda target, outcome: made.counts.update([outcome]),
                **options,
            ),
        )


def test_only_what_fires_is_sent_and_to_the_right_place() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            assert await sender.send()
            assert made.stub.bodies == []
            made.alerts = [make(state="pending", fired_at=None), make(service="b")]
            assert await sender.send()
            assert made.stub.paths == ["/prefix/api/v2/alerts"]
            assert [body["labels"]["service"] for body in made.last] == ["b"]
            assert made.counts == {"sent": 1}

    asyncio.run(scenario())


def test_an_end_is_told_for_fifteen_minutes() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.alerts = [make()]
            await sender.send()
            assert made.live() == [True]
            made.alerts = [make(state="resolved", resolved_at=1500.0)]
            for _ in range(15):
                await sender.send()
                assert made.live() == [False]
                made.now += 60
            count = len(made.stub.bodies)
            await sender.send()
            assert len(made.stub.bodies) == count
            made.alerts = []
            await sender.send()
            assert not sender._sent_alerts

    asyncio.run(scenario())


def test_an_alert_that_vanished_ends_too() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.alerts = [make()]
            await sender.send()
            made.alerts = []
            made.now += 10
            await sender.send()
            assert made.live() == [False]
            assert seconds(made.last[0]["endsAt"]) == WALL + 10

    asyncio.run(scenario())


def test_a_resolved_alert_that_fires_again_is_firing() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.alerts = [make(state="resolved", resolved_at=1500.0)]
            await sender.send()
            made.alerts = [make(fired_at=1600.0)]
            await sender.send()
            assert made.live() == [True]
            assert seconds(made.last[0]["startsAt"]) == 1600.0

    asyncio.run(scenario())


def test_of_two_with_the_same_labels_the_firing_one_counts() -> None:
    async def scenario() -> None:
        long = "x" * 300
        ended = make(service=long + "a", state="resolved", resolved_at=1500.0)
        for alerts in ([make(service=long + "b"), ended], [ended, make(service=long + "b")]):
            async with rig() as (made, sender):
                made.alerts = alerts
                await sender.send()
                assert made.live() == [True]

    asyncio.run(scenario())


def test_many_go_in_batches() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.alerts = [make(service=f"s{index}") for index in range(130)]
            await sender.send()
            assert [len(body) for body in made.stub.bodies] == [64, 64, 2]

    asyncio.run(scenario())


def test_a_refusal_is_counted_and_does_not_stop_the_rest() -> None:
    async def scenario() -> None:
        async with rig(400) as (made, sender):
            made.alerts = [make(service=f"s{index}") for index in range(65)]
            assert await sender.send()
            assert made.counts == {"refused": 1, "sent": 1}

    asyncio.run(scenario())


def test_the_loop_sends_at_once_on_a_wake_and_again_by_itself() -> None:
    async def scenario() -> None:
        async with rig(resend=0.05) as (made, sender):
            task = asyncio.create_task(sender.run())
            made.alerts = [make()]
            sender.wake()
            await until_async(lambda: len(made.stub.bodies) >= 3)
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)
        async with rig(resend=3600) as (made, sender):
            task = asyncio.create_task(sender.run())
            await asyncio.sleep(0.02)
            made.alerts = [make()]
            sender.wake()
            await until_async(lambda: len(made.stub.bodies) == 1)
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(scenario())


def test_the_loop_tries_again_soon_after_a_failure() -> None:
    async def scenario() -> None:
        async with rig(503, resend=3600) as (made, sender):
            made.alerts = [make()]
            task = asyncio.create_task(sender.run())
            await until_async(lambda: made.counts["sent"] == 1)
            assert made.counts == {"retry": 1, "sent": 1}
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(scenario())


def test_a_transition_seen_only_by_a_wake_is_not_lost() -> None:
    """A fast replay forgets a resolved alert within milliseconds of wall time."""

    async def scenario() -> None:
        async with rig() as (made, sender):
            made.alerts = [make()]
            sender.wake()
            made.alerts = []
            await sender.send()
            assert made.live() == [False]

    asyncio.run(scenario())


def test_probes_are_named_without_links_as_they_have_no_page() -> None:
    alert = make(service="_judge", worst=["hard-arithmetic@1795759425"])
    notes = alert_payload(alert, 1100.0, None, 60.0, "http://page")["annotations"]
    assert notes["worst_1"] == "hard-arithmetic@1795759425"
    assert "worst_1_url" not in notes
