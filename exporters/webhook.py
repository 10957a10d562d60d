"""The generic webhook: one JSON POST for every alert that fires or resolves.

`notification` makes the outbox item, in the transaction that stores the alert's state;
`WebhookSender` delivers it through a `Dispatcher`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from agent.alerts.alert import Alert
from agent.alerts.summary import clean
from exporters.dispatch import TIMEOUT, Endpoint, OutboxItem, Outcome, post

__all__ = ["PAYLOAD_VERSION", "WebhookSender", "notification"]

PAYLOAD_VERSION = 1

MAX_TEXT = 1_000


def notification(alert: Alert, now: float) -> OutboxItem:
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
        "alert": _cleaned(alert.to_dict()),
    }
    return OutboxItem(item_id, alert.id, json.dumps(body, ensure_ascii=False), now)


def _cleaned(value: Any) -> Any:
    """Every text in it bounded and without control characters; numbers as they are."""
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, dict):
        return {clean(key, MAX_TEXT): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
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
        self._endpoint = Endpoint.parse(url)
        self._clock = clock
        self._headers = dict(headers or {})
        self._timeout = timeout

    async def __call__(self, item: OutboxItem) -> Outcome:
        return await post(
            self._client,
            self._endpoint,
            item.body.encode("utf-8", "replace"),
            {**self._headers, "Idempotency-Key": item.id},
            now=self._clock,
            limit=self._timeout,
        )
