"""What came to the receiver, when, and on which way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.exporters.stub import Stub, serve

__all__ = ["WAYS", "Arrival", "Receiver", "receiver"]

WAYS = ("webhook", "alertmanager", "prometheus")
"""The agent's own webhook; its incidents, and the alerts of Prometheus, through Alertmanager."""

_EVENTS = {"over": "resolved"}  # of the webhook, in the words of Alertmanager; others: `firing`


@dataclass(frozen=True)
class Arrival:
    """`at` is the clock's time; `alert` the question of an incident, or the name of an alert of
    Prometheus; `notified` what came."""

    way: str
    status: str
    alert: str
    service: str
    at: float
    notified: dict[str, Any] = field(repr=False, hash=False, compare=False)

    @property
    def worst(self) -> list[str]:
        """The worst traces that it names."""
        if self.way == "webhook":
            return list(self.notified["worst"])
        names = (self.notified["annotations"].get(f"worst_{number}") for number in (1, 2, 3))
        return [name for name in names if name]


@dataclass
class Receiver:
    url: str = ""
    arrivals: list[Arrival] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def of(self, way: str, status: str, alert: str, service: str) -> list[Arrival]:
        key = (way, status, alert, service)
        return [
            one for one in self.arrivals if (one.way, one.status, one.alert, one.service) == key
        ]

    def firing(self, way: str) -> set[tuple[str, str]]:
        """Which alerts this way has said to fire and not yet to be over."""
        found: set[tuple[str, str]] = set()
        for one in self.arrivals:
            if one.way == way:
                change = found.add if one.status == "firing" else found.discard
                change((one.alert, one.service))
        return found


def read(body: dict[str, Any], at: float) -> list[Arrival]:
    """What one notification is about."""
    if "event" in body:
        own = body["incident"]
        status = _EVENTS.get(body["event"], "firing")
        return [Arrival("webhook", status, own["question"], own["service"], at, own)]
    return [
        Arrival(
            "prometheus" if one["labels"].get("sent_by") == "prometheus" else "alertmanager",
            one["status"],
            one["labels"].get("question") or one["labels"]["alertname"],
            one["labels"].get("service", ""),
            at,
            one,
        )
        for one in body["alerts"]
    ]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A webhook receiver that takes what the agent and what Alertmanager send."""
    heard = Receiver()
    servers: list[Stub] = []

    async def answer(_: int) -> web.Response:
        heard.bodies.append(servers[0].bodies[-1])  # nothing has run in between
        heard.arrivals += read(heard.bodies[-1], time.time())
        return web.Response()

    async with serve(answer) as stub:
        servers.append(stub)
        heard.url = stub.url
        yield heard
