"""Post notifications of incidents to a webhook, one JSON document each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import httpx
from ragmeter.store.rows import OutboxItem

from ragmeter_exporters import dispatch
from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.replies import is_page, read_words, redirected

_SETTING = "alerts.webhook_url"

log = logging.getLogger(__name__)


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
        self._clock = clock
        self._timeout = timeout
        self._warned = False

    async def __call__(self, item: OutboxItem) -> dispatch.DeliveryOutcome:
        """Post the item once."""
        return await dispatch.post_once(
            self._client,
            self._endpoint,
            item.body.encode("utf-8", "replace"),
            {"Idempotency-Key": item.id},
            classify=self._judge_reply,
            limit=self._timeout,
        )

    async def _judge_reply(self, response: httpx.Response) -> dispatch.DeliveryOutcome:
        """Judge a reply by its status, and say in a failure's reason what it says.

        A web page with status 200 counts as delivered, because some receivers answer with one and
        would get a repeated notification twice. A login page looks the same, so the log warns once.
        """
        outcome = dispatch.classify_status(response.status_code, response.headers, self._clock())
        if outcome.kind == "sent":
            if is_page(response) and not self._warned:
                self._warned = True
                log.warning(
                    "the webhook answers with a web page, %s: is alerts.webhook_url its receiver?",
                    await read_words(response) or "which is empty",
                )
            return outcome
        parts = [outcome.reason, await read_words(response), redirected(response, _SETTING)]
        return replace(outcome, reason="; ".join(filter(None, parts)))
