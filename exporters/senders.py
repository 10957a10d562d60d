"""The webhook, and the set of alert senders that the settings configure.

The generic webhook: one JSON POST for every alert that fires or resolves.

`notification` makes the outbox item, in the transaction that stores the alert's state;
`WebhookSender` delivers it through a `Dispatcher`.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import httpx

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.alerts.alert import Alert, clean_text
from ragmeter.config.reporting import AlertSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.exporters.alertmanager import Alertmanager
from ragmeter.exporters.dispatch import (
    TIMEOUT,
    DeliveryEndpoint,
    DeliveryOutcome,
    Dispatcher,
    NotificationOutbox,
    post_once,
)
from ragmeter.store.rows import OutboxItem

PAYLOAD_VERSION = 1

MAX_TEXT = 1_000


def build_notification(alert: Alert, now: float) -> OutboxItem:
    """The outbox item for an alert that fired or resolved; `now` is wall time.

    Its id is the same however often it is made for the same firing, so a redone step of work
    enqueues nothing new, and receivers can tell a repetition.
    """
    if alert.state == "pending" or alert.fired_at is None:
        raise ValueError(f"an alert that is {alert.state} is not announced")
    # Milliseconds: evaluation steps are seconds, and an id must not depend on float printing.
    item_id = f"{alert.id}-{math.floor(alert.fired_at * 1000)}-{alert.state}"
    body = {
        "version": PAYLOAD_VERSION,
        "event": alert.state,
        "id": item_id,
        "alert": _clean_texts(alert.to_dict()),
    }
    return OutboxItem(item_id, alert.id, json.dumps(body, ensure_ascii=False), now)


def _clean_texts(value: Any) -> Any:
    """Every text in it bounded and without control characters; numbers as they are."""
    if isinstance(value, str):
        return clean_text(value, MAX_TEXT)
    if isinstance(value, dict):
        return {clean_text(key, MAX_TEXT): _clean_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean_texts(item) for item in value]
    return value


class WebhookSender:
    """Sends one item. Raises ValueError for a URL that cannot be used."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        clock: Callable[[], float],
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._client = client
        self._endpoint = DeliveryEndpoint.parse(url)
        self._clock = clock
        self._headers = dict(headers or {})
        self._timeout = timeout

    async def __call__(self, item: OutboxItem) -> DeliveryOutcome:
        return await post_once(
            self._client,
            self._endpoint,
            item.body.encode("utf-8", "replace"),
            {**self._headers, "Idempotency-Key": item.id},
            now=self._clock,
            limit=self._timeout,
        )


STOP_SECONDS = 3.0  # what is not delivered by then stays in the outbox


class _AlertSource(AgentView, Protocol):
    @property
    def outbox(self) -> NotificationOutbox: ...


class AlertSenders:
    """`notify` makes the outbox items of an alert that fired or resolved, in the step that commits
    it; `announced` is called after that step; `start` and `stop` frame the deliveries.
    """

    def __init__(self, settings: AlertSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wakes: list[Callable[[], None]] = []
        self._stops: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def notify(self, alert: Alert, now: float) -> Sequence[OutboxItem]:
        """The outbox items of one alert."""
        return [build_notification(alert, now)] if self._settings.webhook_url else []

    def announced(self) -> None:
        """Alerts have changed and are durable: the senders look now. From any thread."""
        if self._loop is not None:
            for wake in self._wakes:
                self._loop.call_soon_threadsafe(wake)

    def start(self, client: httpx.AsyncClient, running: _AlertSource) -> None:
        """Start delivering. Raises ValueError for a URL that cannot be used."""
        settings = self._settings

        def count(target: str, outcome: str) -> None:
            with running.lock():
                labels = (("target", target), ("outcome", outcome))
                running.counters.inc("ragmeter_notifications_total", labels)

        def alerts() -> Sequence[Alert]:
            with running.lock():
                return running.alerts()

        self._loop = asyncio.get_running_loop()
        if settings.webhook_url:
            send = WebhookSender(client, settings.webhook_url, clock=self._clock)
            # by a clock that nobody sets: else what waits would be late, or too old, by a jump
            even = make_steady_clock(self._clock, time.monotonic)
            dispatcher = Dispatcher("webhook", running.outbox, send, clock=even, count=count)
            self._add(dispatcher.run(), dispatcher.wake, dispatcher.stop)
        if settings.alertmanager_url:
            manager = Alertmanager(
                client,
                [settings.alertmanager_url],
                alerts,
                clock=self._clock,
                count=count,
                resend=settings.resend_seconds,
                status_url=settings.page_url or "",
            )

            async def stop() -> None:
                manager.stop()

            self._add(manager.run(), manager.wake, stop)

    def _add(
        self,
        run: Coroutine[Any, Any, None],
        wake: Callable[[], None],
        stop: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._tasks.append(asyncio.create_task(run))
        self._wakes.append(wake)
        self._stops.append(stop)

    async def stop(self) -> None:
        """End all deliveries within a bound."""
        for stop in self._stops:
            await stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
