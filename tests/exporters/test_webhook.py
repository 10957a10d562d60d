"""The webhook's payload, and its delivery to a real server over loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from dataclasses import asdict

import httpx
import pytest
from aiohttp import web
from ragmeter.store.rows import OutboxItem
from ragmeter_exporters.dispatch import DeliveryOutcome, DeliveryPolicy, Dispatcher
from ragmeter_exporters.notifications import build_notification
from ragmeter_exporters.webhook import WebhookSender

from tests.exporters.incidents import opened, over, refused
from tests.exporters.memory_outbox import MemoryOutbox
from tests.exporters.stub import Answer, ok, serve
from tests.waiting import PATIENCE, until_async


def test_the_payload_carries_the_whole_incident() -> None:
    incident = refused()
    item = build_notification(incident, 5.0)
    body = json.loads(item.body)
    notified = json.loads(json.dumps(asdict(incident)))
    assert body == {"version": 1, "event": "opened", "id": item.id, "incident": notified}
    assert (item.key, item.created, item.attempts) == (incident.id, 5.0, 0)
    assert body["incident"]["change"]["value"] == "v13"
    assert body["incident"]["signals"][0]["metric"] == "error"


def test_the_id_is_the_same_for_the_same_event_and_no_other() -> None:
    first, later = opened(), opened(updated_at=2000.0, level=0.3)
    assert build_notification(first, 1.0).id == build_notification(later, 2.0).id
    notified = [first, opened(worsened_at=1500.0), opened(state="no traffic"), over()]
    ids = {build_notification(incident, 1.0).id for incident in notified}
    assert len(ids) == len(notified)
    events = [json.loads(build_notification(one, 1.0).body)["event"] for one in notified]
    assert events == ["opened", "worse", "no traffic", "over"]


def test_text_from_traces_is_cleaned_and_bounded() -> None:
    incident = opened(service="a\x1b[2J\u202eb\ud800", worst=("t\n1",), summary="s" * 9000)
    body = json.loads(build_notification(incident, 0.0).body)
    assert body["incident"]["service"] == "a [2J b "
    assert body["incident"]["worst"] == ["t 1"]
    assert len(body["incident"]["summary"]) == 1000


def test_the_body_is_strict_json_whatever_the_reading() -> None:
    body = build_notification(opened(level=None, lower=None, upper=None), 0.0).body
    assert "NaN" not in body
    assert json.loads(body)["incident"]["level"] is None


async def deliver(
    answer: Answer,
    item: OutboxItem,
    *,
    timeout: float = PATIENCE,  # noqa: ASYNC109 (it is handed on to the sender)
    tail: str = "",
) -> tuple[DeliveryOutcome, list[dict[str, str]]]:
    async with serve(answer) as stub, httpx.AsyncClient() as client:
        url = stub.url.replace("http://", "http://user:secret@") + tail
        sender = WebhookSender(client, url, clock=time.time, timeout=timeout)
        return await sender(item), stub.headers


def test_headers_say_who_and_which() -> None:
    item = build_notification(opened(), 0.0)
    outcome, (headers,) = asyncio.run(deliver(ok, item))
    assert outcome == DeliveryOutcome("sent")
    assert headers["Idempotency-Key"] == item.id
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"].startswith("Basic ")


def test_retry_after_is_read_from_the_answer() -> None:
    async def busy(_: int) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"})

    outcome, _ = asyncio.run(deliver(busy, build_notification(opened(), 0.0)))
    assert outcome == DeliveryOutcome("retry", "HTTP 429", 7.0)


def test_an_endpoint_that_hangs_is_a_timeout() -> None:
    async def hang(_: int) -> web.Response:
        await asyncio.sleep(PATIENCE)
        return web.Response()

    begin = time.monotonic()
    outcome, _ = asyncio.run(deliver(hang, build_notification(opened(), 0.0), timeout=0.1))
    assert outcome == DeliveryOutcome("retry", "timeout")
    assert time.monotonic() - begin < PATIENCE / 2


def test_an_endpoint_that_is_not_there_is_a_retry() -> None:
    async def scenario() -> DeliveryOutcome:
        async with serve() as stub:
            url = stub.url
        async with httpx.AsyncClient() as client:
            return await WebhookSender(client, url, clock=time.time)(
                build_notification(opened(), 0.0)
            )

    outcome = asyncio.run(scenario())
    assert outcome.kind == "retry"
    assert outcome.reason.startswith("ConnectError, ")


def test_secrets_of_the_url_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def refuse(_: int) -> web.Response:
        return web.Response(status=400, text="Cannot POST /T0/secret?key=secret")

    async def scenario() -> Counter[str]:
        counts: Counter[str] = Counter()
        outbox = MemoryOutbox()
        async with serve(refuse) as stub, httpx.AsyncClient() as client:
            url = stub.url.replace("http://", "http://user:secret@") + "/T0/secret?key=secret"
            dispatcher = Dispatcher(
                "webhook",
                outbox,
                WebhookSender(client, url, clock=time.time),
                clock=time.time,
                count=lambda target, outcome: counts.update([outcome]),
                policy=DeliveryPolicy(poll=0.005),
            )
            task = asyncio.create_task(dispatcher.run())
            outbox.put(build_notification(opened(), time.time()))
            await until_async(lambda: len(outbox) == 0)
            await dispatcher.stop()
            await task
            assert stub.paths == ["/T0/secret?key=secret"]
        return counts

    assert asyncio.run(scenario()) == {"refused": 1}
    assert 'dropped: HTTP 400; it says "Cannot POST /T0/[...]?key=[...]"' in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("status", "headers", "text", "kind", "words"),
    [
        (400, {}, "no_text", "refused", 'HTTP 400; it says "no_text"'),
        (
            302,
            {"Location": "https://login.example/secret"},
            "",
            "retry",
            "redirected to https://login.example, which is not followed: name it in"
            " alerts.webhook_url",
        ),
        (
            200,
            {"Content-Type": "text/html"},
            "<html><title>Sign in</title></html>",
            "sent",
            'answers with a web page, it says "Sign in": is alerts.webhook_url its receiver?',
        ),
    ],
)
def test_what_a_receiver_says_is_told(
    status: int,
    headers: dict[str, str],
    text: str,
    kind: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, text=text, request=request)

    async def main() -> DeliveryOutcome:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            send = WebhookSender(client, "http://hooks.example/T0/x", clock=time.time)
            await send(build_notification(opened(), time.time()))
            return await send(build_notification(opened(), time.time()))

    outcome = asyncio.run(main())
    assert outcome.kind == kind
    assert words in outcome.reason + caplog.text
    assert caplog.text.count("a web page") == (kind == "sent")
