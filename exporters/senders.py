"""The senders of alerts that the settings ask for, as one thing to start and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import httpx

from agent.alerts import Alert
from agent.config import Alerts
from agent.reading import Reading
from agent.steady import steady
from agent.store.rows import OutboxItem
from exporters.alertmanager import Alertmanager
from exporters.dispatch import Dispatcher, Outbox
from exporters.webhook import WebhookSender, notification

__all__ = ["Senders"]

STOP_SECONDS = 3.0  # what is not delivered by then stays in the outbox


class _Running(Reading, Protocol):
    @property
    def outbox(self) -> Outbox: ...


class Senders:
    """`notify` makes the outbox items of an alert that fired or resolved, in the step that commits
    it; `announced` is called after that step; `start` and `stop` frame the deliveries.
    """

    def __init__(self, settings: Alerts, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wakes: list[Callable[[], None]] = []
        self._stops: list[Callable[[], Coroutine[Any, Any, None]]] = []

    def notify(self, alert: Alert, now: float) -> Sequence[OutboxItem]:
        """The outbox items of one alert."""
        return [notification(alert, now)] if self._settings.webhook_url else []

    def announced(self) -> None:
        """Alerts have changed and are durable: the senders look now. From any thread."""
        if self._loop is not None:
            for wake in self._wakes:
                self._loop.call_soon_threadsafe(wake)

    def start(self, client: httpx.AsyncClient, running: _Running) -> None:
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
            even = steady(self._clock, time.monotonic)
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
