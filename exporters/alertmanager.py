"""Send alerts to the API v2 of Alertmanager and repeat them while they fire.

Every firing alert is posted at each transition and every `resend` seconds with an `endsAt` a few
resends ahead, so that Alertmanager ends it by itself should this process die. A resolved one is
posted with its end for 15 minutes. No queue is needed: the next round says the same again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx

from ragmeter.alerts.alert import Alert, clean_text
from ragmeter.exporters.dispatch import TIMEOUT, DeliveryCount, DeliveryEndpoint, post_once

log = logging.getLogger(__name__)

RESEND = 60.0
"""Seconds between rounds, as Prometheus' rules.alert.resend-delay."""

ENDS_AFTER = 4
"""Resends until a firing alert ends by itself: three may be lost, as with Prometheus."""

KEEP_RESOLVED = 900.0
"""Seconds of wall time for which an end is repeated, as Prometheus does."""

BATCH = 64
"""Alerts in one request, as Prometheus sends them."""

FIRST_RETRY = 1.0
"""Seconds after a failed round; doubles up to `resend`."""

MAX_LABEL = 256
MAX_ANNOTATION = 1_000

TARGET = "alertmanager"

Labels = tuple[tuple[str, str], ...]
"""Sorted label pairs: what makes an alert one and the same to Alertmanager."""

_NOT_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(slots=True)
class _SentAlert:
    """An alert as last told; `ended` is the wall time at which we first told its end."""

    alert: Alert
    ended: float | None = None


class Alertmanager:
    """Keeps one or more Alertmanagers informed of `alerts()`. Each has its own pace and retries.

    `clock` is wall time; `status_url` is the base URL of the status page, for `generatorURL`.
    Counts (`alertmanager`, sent | refused | retry), one for each request. Raises ValueError for a
    URL that cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        urls: Sequence[str],
        alerts: Callable[[], Iterable[Alert]],
        *,
        clock: Callable[[], float],
        count: DeliveryCount,
        resend: float = RESEND,
        status_url: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._client = client
        self._endpoints = [DeliveryEndpoint.parse(_api(url)) for url in urls]
        self._alerts = alerts
        self._clock = clock
        self._count = count
        self._resend = resend
        self._status_url = status_url
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._sent_alerts: dict[Labels, _SentAlert] = {}
        self._wakes = [asyncio.Event() for _ in urls]
        self._stopping = False

    @property
    def tracked_alerts(self) -> int:
        """How many alerts Alertmanager is being told of, ended ones included."""
        return len(self._sent_alerts)

    def wake(self) -> None:
        """Send at once: an alert fired or resolved."""
        self._update_alerts()  # now: a fast replay may have dropped the resolved alert by the next round
        for wake in self._wakes:
            wake.set()

    async def run(self) -> None:
        """Send rounds until `stop`, at most one request timeout after it."""
        await asyncio.gather(*(self._send_rounds(i) for i in range(len(self._endpoints))))

    def stop(self) -> None:
        """Let `run` end. Firing alerts are not resolved: another process may take over."""
        self._stopping = True
        for wake in self._wakes:
            wake.set()

    async def _send_rounds(self, index: int) -> None:
        delay = FIRST_RETRY
        while not self._stopping:
            self._wakes[index].clear()
            if await self.send(index):
                pause, delay = self._resend, FIRST_RETRY
            else:
                pause, delay = min(delay, self._resend), min(delay * 2, self._resend)
            try:
                async with asyncio.timeout(pause):
                    await self._wakes[index].wait()
            except TimeoutError:
                pass

    async def send(self, index: int = 0) -> bool:
        """One round to one Alertmanager; False where any request should be tried again."""
        self._update_alerts()
        now = self._clock()
        bodies = [
            alert_payload(told.alert, now, told.ended, self._resend, self._status_url)
            for told in self._sent_alerts.values()
            if told.ended is None or now - told.ended < KEEP_RESOLVED
        ]
        endpoint = self._endpoints[index]
        for start in range(0, len(bodies), BATCH):
            outcome = await post_once(
                self._client,
                endpoint,
                json.dumps(bodies[start : start + BATCH]).encode(),
                self._headers,
                now=self._clock,
                limit=self._timeout,
            )
            self._count(TARGET, outcome.kind)
            if outcome.kind == "sent":
                if self._stopping:
                    break
                continue
            log.warning("alerts to %s: %s (%s)", endpoint.shown, outcome.reason, outcome.kind)
            if outcome.kind == "retry":
                # The remaining batches would meet the same; the next round brings them all.
                return False
        return True

    def _update_alerts(self) -> None:
        """Bring what we tell up to date with the engine.

        An alert that we called firing and that the engine holds no longer (its labels changed, or
        a fast replay has forgotten it) ends now: otherwise it would hang until `endsAt`.
        """
        now = self._clock()
        current: set[Labels] = set()
        firing: set[Labels] = set()
        for alert in self._alerts():
            if alert.state == "pending" or alert.fired_at is None:
                continue
            labels = tuple(sorted(alertmanager_labels(alert).items()))
            current.add(labels)
            told = self._sent_alerts.get(labels)
            if alert.state == "firing":
                firing.add(labels)
                self._sent_alerts[labels] = _SentAlert(alert)
            elif labels not in firing and (told is None or told.ended is None):
                self._sent_alerts[labels] = _SentAlert(alert, now)
        for labels, told in list(self._sent_alerts.items()):
            if labels in current:
                continue
            if told.ended is None:
                told.ended = now
            elif now - told.ended >= KEEP_RESOLVED:
                del self._sent_alerts[labels]


def _api(url: str) -> str:
    """The address of the alerts resource below a base URL, credentials and query kept."""
    base, mark, query = url.partition("?")
    base = base.rstrip("/")
    if not base.endswith("/api/v2/alerts"):
        base += "/api/v2/alerts"
    return base + mark + query


def alertmanager_labels(alert: Alert) -> dict[str, str]:
    """The labels of an alert: a rule's own and the segment's never replace ragmeter's."""
    labels = {
        "alertname": alert.rule,
        "severity": alert.severity,
        "service": alert.service,
        "metric": alert.metric,
        "scorer": alert.scorer,
        "window": alert.window,
    }
    extra = dict(alert.labels)
    tag, _, value = alert.segment.partition("=")
    if tag:
        extra[tag] = value
    for name, text in extra.items():
        name = _NOT_NAME.sub("_", name)[:MAX_LABEL]
        if not name or name[0].isdigit():
            name = f"_{name}"
        while name in labels:
            name = f"segment_{name}"
        labels[name] = text
    # Alertmanager drops empty labels; without them here, equal alerts have equal keys.
    return {
        name: text for name, raw in labels.items() if (text := clean_text(raw, MAX_LABEL).strip())
    }


def alert_payload(
    alert: Alert, now: float, ended: float | None, resend: float, status_url: str = ""
) -> dict[str, Any]:
    """One alert as `postableAlert`; `ended` is when (wall time) its end was noticed, if it ended.

    Times are event time where that is possible. Event time may lie ahead of the wall clock
    (skewed senders, replays): Alertmanager takes an end in the future for "still firing" and
    refuses a start after the end, so both are held back to now.
    """
    start = min(alert.fired_at if alert.fired_at is not None else alert.since, now)
    if ended is None:
        end = now + ENDS_AFTER * resend
    else:
        known = alert.resolved_at if alert.resolved_at is not None else ended
        end = max(min(known, now), start)
    body: dict[str, Any] = {
        "labels": alertmanager_labels(alert),
        "annotations": _annotations(alert),
        "startsAt": _iso(start),
        "endsAt": _iso(end),
    }
    if status_url:
        # As the page's own links: one path segment, and no lone surrogate.
        name = quote(alert.service.encode("utf-8", "replace"), safe="")
        body["generatorURL"] = f"{status_url.rstrip('/')}/service/{name}"
    return body


def _annotations(alert: Alert) -> dict[str, str]:
    raw = {
        "summary": alert.summary,
        "value": _number(alert.value),
        "ci_lower": _number(alert.lower),
        "ci_upper": _number(alert.upper),
        "threshold": f"{alert.statistic} {alert.op} {_number(alert.threshold)}",
        "samples": str(alert.samples),
        "effective_samples": _number(alert.effective_samples),
        "baseline": _number(alert.baseline),
        "since": _iso(alert.since),
        "top_segment": alert.top_segment,
        "judge_fingerprint": alert.fingerprint,
        "reasons": _reasons(alert),
        "worst_traces": _ids(alert.worst),
        "no_data": "true" if alert.no_data else "",
        "runbook_url": alert.runbook,
        **_drift(alert),
        **{name: text for name, text in alert.annotations.items() if name not in _OWN},
    }
    return {name: clean_text(text, MAX_ANNOTATION) for name, text in raw.items() if text}


def _drift(alert: Alert) -> dict[str, str]:
    """What a drift detector knows beside the reading; the times in UTC."""
    found = alert.drift
    if found is None:
        return {}
    return {
        "statistic": _number(found["statistic"]),
        "since_earliest": _iso(found["since_earliest"]),
        "since_latest": _iso(found["since_latest"]),
        "cause": found["cause"],
        "provisional": "true" if found["provisional"] else "",
    }


_OWN = frozenset(
    {
        "summary",
        "value",
        "ci_lower",
        "ci_upper",
        "threshold",
        "samples",
        "effective_samples",
        "worst_traces",
        "no_data",
        "runbook_url",
        "baseline",
        "statistic",
        "since",
        "since_earliest",
        "since_latest",
        "top_segment",
        "judge_fingerprint",
        "reasons",
        "cause",
        "provisional",
    }
)
"""Annotations that a rule's own never replace."""


def _reasons(alert: Alert) -> str:
    """`judge_timeout 12, unparsable 3`"""
    return ", ".join(f"{name} {number}" for name, number in (alert.unscored or {}).items())


def _ids(worst: Sequence[str]) -> str:
    """As many whole ids as fit: half an id finds no trace."""
    text = ""
    for trace_id in worst:
        longer = f"{text}, {trace_id}" if text else trace_id
        if len(longer) > MAX_ANNOTATION:
            break
        text = longer
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
