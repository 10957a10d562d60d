"""Post notifications of incidents to a webhook, one JSON document each."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from ragmeter.store.rows import OutboxItem

from ragmeter_exporters import dispatch
from ragmeter_exporters.endpoint import DeliveryEndpoint


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
        self._endpoint = DeliveryEndpoint.parse(url)
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
