"""Alerts of workers that are killed: each is notified, and none a second time under another id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from werkzeug import Request, Response

from tests.http_stub import http_stub
from tests.kafka.cluster import SERVICES, workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

RULES = """\
rules:
  - {name: ErrorsHigh, severity: critical, metric: error, statistic: lower, op: ">",
     threshold: 0.05, window: 5m, for: 1m, keep_firing_for: 2m, min_samples: 10}
"""
STEP = 60  # traces, one a second: less than Faust may read ahead of another partition


class Webhook:
    """What came, by id, with how often; 503 while `shut`."""

    def __init__(self) -> None:
        self.url = ""
        self.shut = False
        self.refused: set[str] = set()
        self.bodies: list[dict[str, Any]] = []

    def take(self, request: Request) -> Response:
        notified = request.get_json()
        if self.shut:
            self.refused.add(notified["id"])
            return Response(status=503)
        self.bodies.append(notified)
        return Response()

    def notified(self, event: str) -> Counter[str]:
        """How many different notifications there were, by service."""
        found = {
            (body["id"], body["incident"]["service"])
            for body in list(self.bodies)
            if body["event"] == event and body["incident"]["kind"] == "errors"
        }
        return Counter(service for _, service in found)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    found = Webhook()
    with http_stub(found.take) as server:
        found.url = server.url_for("/")
        yield found


def traffic(first: int, count: int, status: str) -> list[bytes]:
    return [
        trace_line(n, service=SERVICES[n % len(SERVICES)], status=status)
        for n in range(first, first + count)
    ]


def test_alerts_fire_once_across_kills(
    broker: KafkaServer, tmp_path: Path, webhook: Webhook
) -> None:
    place = Place(broker, tmp_path)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    settings = {"windows": ["5m"], "alerts": {"rules": str(rules), "webhook_url": webhook.url}}
    worker = place.worker(settings=settings)
    at = 0

    def counted(number: int) -> bool:
        return worker.traces() == number

    def go_on(seconds: int, status: str, step: int = STEP) -> None:
        """In small steps: what one partition is ahead of another moves event time."""
        nonlocal at
        for _ in range(0, seconds, step):
            place.produce(traffic(at, step, status))
            at += step
            until(partial(counted, at))

    every = dict.fromkeys(SERVICES, 1)
    with workers(worker):
        until(lambda: worker.ready)
        go_on(300, "ok", 300)
        webhook.shut = True
        go_on(180, "error")
        until(lambda: webhook.refused)
        # durable, but not delivered: whoever owns it next notifies of it
        worker.kill()
        webhook.shut = False
        worker.start()
        until(lambda: webhook.refused <= {body["id"] for body in webhook.bodies})
        go_on(60, "error")
        until(lambda: webhook.notified("opened") == every)
        # delivered, and perhaps not durable that it is: at most the same id again
        worker.kill()
        worker.start()
        until(lambda: worker.ready)
        go_on(600, "ok", 2 * STEP)
        until(lambda: webhook.notified("over") == every)
        assert worker.stop() == 0, worker.log
    high = [body for body in webhook.bodies if body["incident"]["kind"] == "errors"]
    ids = {body["id"] for body in high}
    assert len(ids) == 2 * len(SERVICES), sorted(ids)
    # no notification says of what is over that it opened later
    for service in SERVICES:
        events = [body["event"] for body in high if body["incident"]["service"] == service]
        assert events == sorted(events), events
