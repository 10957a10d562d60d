"""Alertmanager gets the alerts that it has to know of, in time, and gets them again."""

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
from ragmeter.parts.views import Incident
from ragmeter_exporters.alertmanager import (
    Alertmanager,
    _alerts_url,
    _SentAlert,
    alert_payload,
    alertmanager_labels,
)

from tests.exporters.alerts import make
from tests.exporters.incidents import RUNBOOK, opened, over, refused
from tests.exporters.stub import Stub, serve
from tests.tables import each_row
from tests.waiting import PATIENCE, until_async

WALL = 5_000.0


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def body_of(incident: Incident, now: float = WALL, **options: Any) -> dict[str, Any]:
    sent = _SentAlert(incident, options.pop("ended", None), options.pop("goes_on", None))
    return alert_payload(sent, now, 60, **options)


def test_labels_name_the_incident_and_whom_to_tell() -> None:
    signal = make(labels={"team": "search", "stage": "total", "9 lives": "x"})
    assert alertmanager_labels(opened(signals=(signal,))) == {
        "alertname": "RagIncident",
        "incident": "0123456789abcdef",
        "severity": "critical",
        "service": "bot",
        "question": "works",
        "team": "search",
        "_9_lives": "x",
    }
    assert alertmanager_labels(refused())["severity"] == "warning"


def test_labels_from_outside_replace_nothing_and_are_bounded() -> None:
    signal = make(labels={"service": "x", "severity": "none"})
    labels = alertmanager_labels(opened(service="a\nb" + "c" * 900, question="", signals=(signal,)))
    assert labels["service"].startswith("a bccc")
    assert len(labels["service"]) == 256
    assert labels["severity"] == "critical"
    assert "question" not in labels


def test_annotations_say_what_is_wrong_since_when_where_and_what_to_do() -> None:
    signal = make(annotations={"note": "n", "summary": "fake"})
    assert body_of(opened(signals=(signal,)))["annotations"] == {
        "title": "bot: 20 % of requests fail",
        "summary": "Errors 20 % (15 to 26), usual 0.4 %, since 00:14 UTC. All requests alike.",
        "detail": "Most often: upstream unavailable.\nIt ends when errors are below 1 %.",
        "since": "since 00:14 UTC",
        "where": "all requests alike",
        "advice": "See what the provider says.",
        "state": "open",
        "runbook_url": RUNBOOK,
        "worst_1": "trace-1",
        "worst_2": "trace-2",
        "note": "n",
    }


def test_a_change_and_a_segment_are_named() -> None:
    notes = body_of(refused())["annotations"]
    assert notes["change"] == "prompt_version v13 at 00:14 UTC"
    assert notes["where"] == "tenant=globex"


def test_an_end_says_what_it_is_now_and_how_long_it_lasted() -> None:
    notes = body_of(over(), ended=WALL)["annotations"]
    assert notes["title"] == "bot: requests work again"
    assert notes["summary"] == "Errors 0.3 %, as usual; it lasted 52 min."
    assert notes["since"] == "00:14 UTC to 01:06 UTC, for 52 min"
    assert notes["state"] == "over"


def test_annotations_are_bounded_and_hold_whole_ids_only() -> None:
    incident = opened(
        worst=("x" * 2000, "y" * 400), summary="s\x00" * 2000, detail=("d" * 600,) * 9
    )
    annotations = body_of(incident)["annotations"]
    assert "worst_1" not in annotations
    assert annotations["worst_2"] == "y" * 400
    assert len(annotations["summary"]) == 1000
    assert "\x00" not in annotations["summary"]
    assert len(annotations["detail"]) <= 1000


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


@each_row(("fired", "resolved", "ended", "starts", "ends"), TIMES)
def test_times_make_alertmanager_do_what_is_meant(
    fired: float, resolved: float | None, ended: float | None, starts: float, ends: float
) -> None:
    state = "open" if resolved is None else "over"
    incident = opened(state=state, opened_at=fired, ended_at=resolved)
    body = body_of(incident, ended=ended)
    assert seconds(body["startsAt"]) == starts
    assert seconds(body["endsAt"]) == ends


def test_the_link_leads_to_the_page_of_the_incident() -> None:
    assert "generatorURL" not in body_of(opened())
    body = body_of(opened(service="a/b c"), status_url="http://host:9464/")
    page = "http://host:9464/incident/a%2Fb%20c/0123456789abcdef"
    assert body["generatorURL"] == body["annotations"]["link"] == page
    assert body["annotations"]["worst_1_url"] == "http://host:9464/trace/a%2Fb%20c/trace-1"


class Rig:
    """A sender over a list of incidents and a clock turned by hand."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
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
                lambda: made.incidents,
                clock=lambda: made.now,
                count=lambda target, outcome: made.counts.update([outcome]),
                **options,
            ),
        )


def test_what_is_open_is_sent_and_to_the_right_place() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            assert await sender.send()
            assert made.stub.bodies == []
            made.incidents = [opened(service="b")]
            assert await sender.send()
            assert made.stub.paths == ["/prefix/api/v2/alerts"]
            assert [body["labels"]["service"] for body in made.last] == ["b"]
            assert made.counts == {"sent": 1}

    asyncio.run(scenario())


def test_an_end_is_told_for_fifteen_minutes() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [opened()]
            await sender.send()
            assert made.live() == [True]
            made.incidents = [over(ended_at=1500.0)]
            for _ in range(15):
                await sender.send()
                assert made.live() == [False]
                made.now += 60
            count = len(made.stub.bodies)
            await sender.send()
            assert len(made.stub.bodies) == count
            made.incidents = []
            await sender.send()
            assert not sender._sent

    asyncio.run(scenario())


def test_an_incident_that_vanished_ends_too() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [opened()]
            await sender.send()
            made.incidents = []
            made.now += 10
            await sender.send()
            assert made.live() == [False]
            assert seconds(made.last[0]["endsAt"]) == WALL + 10

    asyncio.run(scenario())


def test_one_that_is_over_and_opens_again_is_firing() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [over(ended_at=1500.0)]
            await sender.send()
            made.incidents = [opened(opened_at=1600.0)]
            await sender.send()
            assert made.live() == [True]
            assert seconds(made.last[0]["startsAt"]) == 1600.0

    asyncio.run(scenario())


def test_of_two_with_the_same_labels_the_firing_one_counts() -> None:
    async def scenario() -> None:
        long = "x" * 300
        ended = over(service=long + "a")
        for incidents in ([opened(service=long + "b"), ended], [ended, opened(service=long + "b")]):
            async with rig() as (made, sender):
                made.incidents = incidents
                await sender.send()
                assert made.live() == [True]

    asyncio.run(scenario())


def test_many_go_in_batches() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [opened(service=f"s{index}") for index in range(130)]
            await sender.send()
            assert [len(body) for body in made.stub.bodies] == [64, 64, 2]

    asyncio.run(scenario())


def test_a_refusal_is_counted_and_does_not_stop_the_rest() -> None:
    async def scenario() -> None:
        async with rig(400) as (made, sender):
            made.incidents = [opened(service=f"s{index}") for index in range(65)]
            assert await sender.send()
            assert made.counts == {"refused": 1, "sent": 1}

    asyncio.run(scenario())


def test_the_loop_sends_at_once_on_a_wake_and_again_by_itself() -> None:
    async def scenario() -> None:
        async with rig(resend=0.05) as (made, sender):
            task = asyncio.create_task(sender.run())
            made.incidents = [opened()]
            sender.wake()
            await until_async(lambda: len(made.stub.bodies) >= 3)
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)
        async with rig(resend=3600) as (made, sender):
            task = asyncio.create_task(sender.run())
            await asyncio.sleep(0.02)
            made.incidents = [opened()]
            sender.wake()
            await until_async(lambda: len(made.stub.bodies) == 1)
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(scenario())


def test_the_loop_tries_again_soon_after_a_failure() -> None:
    async def scenario() -> None:
        async with rig(503, resend=3600) as (made, sender):
            made.incidents = [opened()]
            task = asyncio.create_task(sender.run())
            await until_async(lambda: made.counts["sent"] == 1)
            assert made.counts == {"retry": 1, "sent": 1}
            await sender.stop()
            await asyncio.wait_for(task, PATIENCE)

    asyncio.run(scenario())


def test_a_transition_seen_only_by_a_wake_is_not_lost() -> None:
    """A fast replay forgets what is over within milliseconds of wall time."""

    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [opened()]
            sender.wake()
            made.incidents = []
            await sender.send()
            assert made.live() == [False]

    asyncio.run(scenario())


def test_one_that_gets_worse_is_told_anew_and_what_was_sent_says_that_it_goes_on() -> None:
    async def scenario() -> None:
        async with rig() as (made, sender):
            made.incidents = [refused()]
            await sender.send()
            worse = refused(severity="page", worsened_at=1800.0, title="bot: answers no question")
            made.incidents = [worse]
            made.now += 60
            await sender.send()
            by_severity = {one["labels"]["severity"]: one for one in made.last}
            assert {one["labels"]["incident"] for one in made.last} == {worse.id}
            first, second = by_severity["warning"], by_severity["critical"]
            assert seconds(first["endsAt"]) <= made.now < seconds(second["endsAt"])
            assert seconds(second["startsAt"]) == 1800.0
            assert first["annotations"]["state"] == "goes on"
            assert first["annotations"]["title"] == "bot: answers no question"
            assert second["annotations"]["state"] == "open"

    asyncio.run(scenario())


def test_what_nothing_supports_is_quoted() -> None:
    asked: list[str] = []

    def scores(service: str, trace_id: str) -> list[dict[str, Any]]:
        asked.append(trace_id)
        return [{"detail": {"unsupported_spans": [{"text": f"within {trace_id} days"}]}}]

    async def scenario() -> None:
        async with rig(read_scores=scores) as (made, sender):
            made.incidents = [opened(question="grounded", worst=("1", "2", "3", "4"))]
            await sender.send()
            detail = made.last[0]["annotations"]["detail"]
            assert detail.endswith(
                "\nUnsupported: 'within 1 days', 'within 2 days', 'within 3 days'"
            )
            made.incidents = [opened(worst=("9",))]
            await sender.send()

    asyncio.run(scenario())
    assert "9" not in asked


def test_probes_are_named_without_links_as_they_have_no_page() -> None:
    incident = opened(service="_judge", worst=("hard-arithmetic@1795759425",))
    notes = body_of(incident, 1100.0, status_url="http://page")["annotations"]
    assert notes["worst_1"] == "hard-arithmetic@1795759425"
    assert not {"worst_1_url", "link"} & notes.keys()


PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>x</body></html>"


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        ({"status": 404, "text": "404 page not found"}, "refused", ["404 page not", "path prefix"]),
        ({"status": 410, "text": "v1 is removed"}, "refused", ["v1 is removed", "API v2"]),
        ({"status": 401, "text": "Unauthorized"}, "refused", ["HTTP 401", "user:password@host"]),
        ({"status": 400, "text": "invalid label set: x"}, "refused", ["invalid label set: x"]),
        ({"status": 400, "text": "sent to an HTTPS server."}, "refused", ["needs https://"]),
        ({"status": 403, "text": PAGE, "content_type": "text/html"}, "refused", ['"Sign in"']),
        (
            {"status": 200, "text": PAGE, "content_type": "text/html"},
            "retry",
            ['"Sign in"; a page'],
        ),
        (
            {"status": 302, "headers": {"Location": "https://login.example/start?key=secret"}},
            "retry",
            ["redirected to https://login.example,", "not followed"],
        ),
        ({"status": 302, "headers": {"Location": "/login"}}, "retry", ["to another path"]),
    ],
)
def test_the_log_says_what_it_answers_and_what_helps(
    answer: dict[str, Any], outcome: str, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[str] = Counter()

    async def reply(_: int) -> web.Response:
        return web.Response(**answer)

    async def scenario() -> None:
        async with serve(reply) as stub, httpx.AsyncClient() as client:
            sender = Alertmanager(
                client,
                stub.url,
                lambda: [opened()],
                clock=lambda: WALL,
                count=lambda _, one: counts.update([one]),
            )
            await sender.send()

    asyncio.run(scenario())
    assert counts == {outcome: 1}
    assert all(word in caplog.text for word in words), caplog.text
    assert "key=secret" not in caplog.text


@each_row(
    "url",
    [
        "http://am/x",
        "http://am/x/",
        "http://am/x/api/v2",
        "http://am/x/api/v1/alerts",
        "http://am/x/api/v2/alerts/",
        "http://am/x/#/alerts?silenced=false",
    ],
)
def test_addresses_of_the_api_and_of_pages_have_a_base(url: str) -> None:
    assert _alerts_url(url) == "http://am/x/api/v2/alerts"


def test_credentials_and_the_query_of_an_address_stay() -> None:
    assert _alerts_url("https://u:p@am/?a=b") == "https://u:p@am/api/v2/alerts?a=b"
