"""The senders of incidents that the settings configure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.aggregate.evidence import Results
from ragmeter.config.reporting import AlertSettings
from ragmeter.core.clocks import make_steady_clock
from ragmeter.core.process import end_tasks
from ragmeter.parts.views import Incident
from ragmeter.store.rows import OutboxItem

from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.notifications import build_notification

if TYPE_CHECKING:  # most agents send nothing, and an HTTP client is a tenth of their start
    import httpx

    from ragmeter_exporters.alertmanager import Alertmanager
    from ragmeter_exporters.dispatch import Dispatcher, NotificationOutbox

STOP_SECONDS = 3.0  # what is not delivered by then stays in the outbox


class _AlertSource(AgentView, Protocol):
    @property
    def outbox(self) -> NotificationOutbox: ...


def _make_client() -> httpx.AsyncClient:
    import httpx
    from ragmeter.core.outgoing import OutgoingTransport

    return httpx.AsyncClient(transport=OutgoingTransport())


class AlertSenders:
    """The senders of incidents that the settings configure.

    Args:
        settings: The settings of alerts.
        clock: Returns wall time.
        make_client: Makes the HTTP client, if there is anything to send to.
    """

    def __init__(
        self,
        settings: AlertSettings,
        clock: Callable[[], float] = time.time,
        make_client: Callable[[], httpx.AsyncClient] = _make_client,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._make_client = make_client
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[Dispatcher | Alertmanager] = []

    def notify(self, incident: Incident, now: float) -> Sequence[OutboxItem]:
        """Make the outbox items of an incident, in the step that commits its state."""
        return [build_notification(incident, now)] if self._settings.webhook_url else []

    def announced(self) -> None:
        """Wake the senders after incidents have changed durably; called from any thread."""
        if self._loop is not None:
            for sender in self._senders:
                self._loop.call_soon_threadsafe(sender.wake)

    def start(self, agent: _AlertSource) -> None:
        """Start delivering in the running event loop.

        Raises:
            ValueError: A URL cannot be used.
            UnusableResource: The proxy for a URL cannot be one.
        """
        settings = self._settings
        urls = [url.get_secret_value() for url in settings.alertmanager_url]
        if not urls and settings.webhook_url is None:
            return
        from ragmeter.core.outgoing import find_proxy

        webhook = settings.webhook_url.get_secret_value() if settings.webhook_url else None
        for url in [*urls, *([webhook] if webhook else [])]:
            find_proxy(url)  # a mistake in the proxy is told now, and not at the first incident
        self._loop = asyncio.get_running_loop()
        self._client = self._make_client()
        if webhook:
            self._start_webhook(agent, self._client, webhook)
        for url in urls:  # each by itself, as Prometheus does: one that is down delays no other
            self._start_alertmanager(agent, self._client, url, named=len(urls) > 1)

    def _start_webhook(self, agent: _AlertSource, client: httpx.AsyncClient, url: str) -> None:
        from ragmeter_exporters.dispatch import Dispatcher
        from ragmeter_exporters.webhook import WebhookSender

        target = "webhook"
        count = partial(_count, agent)
        count(target, "sent", 0)  # a rate needs a counter before its first notification
        send = WebhookSender(client, url, clock=self._clock)
        # A wall clock that is set would make what waits late, or too old, by its jump.
        steady = make_steady_clock(self._clock, time.monotonic)
        self._run(Dispatcher(target, agent.outbox, send, clock=steady, count=count))

    def _start_alertmanager(
        self, agent: _AlertSource, client: httpx.AsyncClient, url: str, *, named: bool
    ) -> None:
        from ragmeter_exporters.alertmanager import TARGET, Alertmanager

        target = TARGET
        if named:
            shown = DeliveryEndpoint.parse(url).shown
            target += f" {shown.partition('://')[2]}"

        def count_as(_: str, outcome: str) -> None:
            _count(agent, target, outcome)

        def read_scores(service: str, trace_id: str) -> Results:
            return (agent.evidence(service, trace_id) or {}).get("results") or ()

        def incidents() -> Sequence[Incident]:
            with agent.lock():
                return agent.incidents()

        page = self._settings.page_url
        _count(agent, target, "sent", 0)
        self._run(
            Alertmanager(
                client,
                url,
                incidents,
                clock=self._clock,
                count=count_as,
                status_url=page.get_secret_value() if page else "",
                read_scores=read_scores,
            )
        )

    def _run(self, sender: Dispatcher | Alertmanager) -> None:
        self._tasks.append(asyncio.create_task(sender.run()))
        self._senders.append(sender)

    async def stop(self) -> None:
        """End all deliveries within `STOP_SECONDS` and a dispatcher's own bound."""
        for sender in self._senders:
            await sender.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            await end_tasks(late)
        if self._client is not None:
            await self._client.aclose()


def _count(agent: AgentView, target: str, outcome: str, by: int = 1) -> None:
    with agent.lock():
        labels = (("target", target), ("outcome", outcome))
        agent.counters.inc("ragmeter_notifications_total", labels, by)
