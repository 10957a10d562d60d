"""The webhook, and the set of senders that the settings configure.

The webhook posts one JSON document when an incident opens, gets worse or is over, and when it can
no longer be judged. `build_notification` makes the outbox item, in the transaction that stores the
state of the incident; `WebhookSender` delivers it through a `Dispatcher`.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

import httpx
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.aggregate.evidence import Results
from ragmeter.alerts.alert import clean_text
from ragmeter.config.reporting import AlertSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.core.process import end_tasks
from ragmeter.parts.incident_words import event_of
from ragmeter.parts.views import Incident
from ragmeter.store.rows import OutboxItem

from ragmeter_exporters import dispatch
from ragmeter_exporters.alertmanager import TARGET, Alertmanager

PAYLOAD_VERSION = 1
MAX_TEXT = 1_000  # characters of a text in the payload
STOP_SECONDS = 3.0  # what is not delivered by then stays in the outbox


def build_notification(incident: Incident, now: float) -> OutboxItem:
    """Make the outbox item of what is to be told of an incident, at wall time `now`.

    Its id is the same however often it is made for the same event, so a redone step of work
    enqueues nothing new, and receivers can tell a repetition.
    """
    event, at = event_of(incident)
    # Milliseconds: evaluation steps are seconds, and an id must not depend on float printing.
    item_id = f"{incident.id}-{math.floor(at * 1000)}-{event.replace(' ', '-')}"
    body = {
        "version": PAYLOAD_VERSION,
        "event": event,
        "id": item_id,
        "incident": _clean_texts(asdict(incident)),
    }
    return OutboxItem(item_id, incident.id, json.dumps(body, ensure_ascii=False), now)


def _clean_texts(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value, MAX_TEXT)
    if isinstance(value, dict):
        return {clean_text(key, MAX_TEXT): _clean_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_texts(item) for item in value]
    return value


class WebhookSender:
    """Posts one item to a URL.

    Raises:
        ValueError: The URL cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        clock: Callable[[], float],
        timeout: float = dispatch.TIMEOUT,
    ) -> None:
        self._client = client
        self._endpoint = dispatch.DeliveryEndpoint.parse(url)
        self._classify = dispatch.status_classifier(clock)
        self._timeout = timeout

    async def __call__(self, item: OutboxItem) -> dispatch.DeliveryOutcome:
        """Post the item once."""
        return await dispatch.post_once(
            self._client,
            self._endpoint,
            item.body.encode("utf-8", "replace"),
            {"Idempotency-Key": item.id},
            classify=self._classify,
            limit=self._timeout,
        )


class _AlertSource(AgentView, Protocol):
    @property
    def outbox(self) -> dispatch.NotificationOutbox: ...


class AlertSenders:
    """The senders of incidents that the settings configure; `clock` gives wall time."""

    def __init__(self, settings: AlertSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[dispatch.Dispatcher | Alertmanager] = []

    def notify(self, incident: Incident, now: float) -> Sequence[OutboxItem]:
        """Make the outbox items of an incident, in the step that commits its state."""
        return [build_notification(incident, now)] if self._settings.webhook_url else []

    def announced(self) -> None:
        """Wake the senders after incidents have changed durably; called from any thread."""
        if self._loop is not None:
            for sender in self._senders:
                self._loop.call_soon_threadsafe(sender.wake)

    def start(self, client: httpx.AsyncClient, agent: _AlertSource) -> None:
        """Start delivering in the running event loop.

        Raises:
            ValueError: A URL cannot be used.
        """
        settings = self._settings

        def count(target: str, outcome: str, by: int = 1) -> None:
            with agent.lock():
                labels = (("target", target), ("outcome", outcome))
                agent.counters.inc("ragmeter_notifications_total", labels, by)

        def count_as(target: str, _: str, outcome: str) -> None:
            count(target, outcome)

        def read_scores(service: str, trace_id: str) -> Results:
            return (agent.evidence(service, trace_id) or {}).get("results") or ()

        def incidents() -> Sequence[Incident]:
            with agent.lock():
                return agent.incidents()

        self._loop = asyncio.get_running_loop()
        # a rate needs a counter before its first notification
        if settings.webhook_url:
            count("webhook", "sent", 0)
            send = WebhookSender(client, settings.webhook_url.get_secret_value(), clock=self._clock)
            # A wall clock that is set would make what waits late, or too old, by its jump.
            steady = make_steady_clock(self._clock, time.monotonic)
            self._run(dispatch.Dispatcher("webhook", agent.outbox, send, clock=steady, count=count))
        urls = [url.get_secret_value() for url in settings.alertmanager_url]
        for url in urls:  # each by itself, as Prometheus does: one that is down delays no other
            target = TARGET
            if len(urls) > 1:
                shown = dispatch.DeliveryEndpoint.parse(url).shown
                target = f"{TARGET} {shown.partition('://')[2]}"
            count(target, "sent", 0)
            self._run(
                Alertmanager(
                    client,
                    url,
                    incidents,
                    clock=self._clock,
                    count=partial(count_as, target),
                    status_url=settings.page_url.get_secret_value() if settings.page_url else "",
                    read_scores=read_scores,
                )
            )

    def _run(self, sender: dispatch.Dispatcher | Alertmanager) -> None:
        self._tasks.append(asyncio.create_task(sender.run()))
        self._senders.append(sender)

    async def stop(self) -> None:
        """End all deliveries within `STOP_SECONDS` and a dispatcher's own bound."""
        for sender in self._senders:
            await sender.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            await end_tasks(late)
