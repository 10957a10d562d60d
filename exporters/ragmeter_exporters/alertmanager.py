"""Send alerts to the API v2 of Alertmanager and repeat them while they fire.

Every firing alert is posted at each transition and every `resend` seconds with an `endsAt` a few
resends ahead, so that Alertmanager ends it by itself should this process die. A resolved one is
posted with its end for 15 minutes. No queue is needed: the next round repeats everything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from ragmeter.aggregate.evidence import Results, quote_unsupported
from ragmeter.alerts.alert import Alert, clean_text
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.server.client import service_path, trace_path

from ragmeter_exporters.dispatch import (
    DeliveryCount,
    DeliveryEndpoint,
    post_once,
    status_classifier,
)

RESEND = 60.0  # seconds between rounds, as Prometheus' rules.alert.resend-delay
ENDS_AFTER = 4  # resends until a firing alert ends by itself: three may be lost, as with Prometheus
KEEP_RESOLVED = 900.0  # seconds of wall time for which an end is repeated, as Prometheus does
BATCH = 64  # alerts in one request, as Prometheus sends them
FIRST_RETRY = 1.0  # seconds after a failed round; doubles up to `resend`
MAX_LABEL = 256  # characters
MAX_ANNOTATION = 1_000  # characters
LINKED_TRACES = 3  # worst traces with a link of their own
TARGET = "alertmanager"

Labels = tuple[tuple[str, str], ...]  # sorted pairs: the identity of an alert in Alertmanager

_NOT_NAME = re.compile(r"[^a-zA-Z0-9_]")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _SentAlert:
    """An alert as last sent; `ended` is the wall time at which its end was first sent."""

    alert: Alert
    ended: float | None = None


class Alertmanager:
    """Keeps an Alertmanager informed of the alerts.

    Each request is counted: (`alertmanager`, sent | refused | retry).

    Args:
        url: Base URL of the Alertmanager, with or without the path of the API.
        clock: Wall time.
        resend: Seconds between rounds.
        status_url: Base URL of the status page, for `generatorURL`; "" leaves it out.
        read_scores: Returns the scores of a worst trace, by service and id; called in a thread.

    Raises:
        ValueError: The URL cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        alerts: Callable[[], Iterable[Alert]],
        *,
        clock: Callable[[], float],
        count: DeliveryCount,
        resend: float = RESEND,
        status_url: str = "",
        read_scores: Callable[[str, str], Results] = lambda service, trace_id: (),
    ) -> None:
        self._client = client
        self._endpoint = DeliveryEndpoint.parse(_alerts_url(url))
        self._alerts = alerts
        self._clock = clock
        self._classify = status_classifier(clock)
        self._count = count
        self._resend = resend
        self._status_url = status_url
        self._read_scores = read_scores
        self._sent_alerts: dict[Labels, _SentAlert] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Send at once: an alert fired or resolved."""
        # A fast replay may have dropped the resolved alert by the next round.
        self._update_alerts()
        self._wake.set()

    async def run(self) -> None:
        """Send rounds until `stop`, at most one request timeout after it."""
        delay = FIRST_RETRY
        while not self._stopping:
            self._wake.clear()
            if await self.send():
                pause = self._resend
                delay = FIRST_RETRY
            else:
                pause = min(delay, self._resend)
                delay = min(delay * 2, self._resend)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """Let `run` end. Firing alerts are not resolved: another process may take over."""
        self._stopping = True
        self._wake.set()

    async def send(self) -> bool:
        """Send one round; return False where it should be repeated soon."""
        self._update_alerts()
        await asyncio.to_thread(self._quote_worst_traces)
        now = self._clock()
        bodies = [
            alert_payload(
                alert=sent.alert,
                now=now,
                ended=sent.ended,
                resend=self._resend,
                status_url=self._status_url,
            )
            for sent in self._sent_alerts.values()
            if sent.ended is None or now - sent.ended < KEEP_RESOLVED
        ]
        for start in range(0, len(bodies), BATCH):
            body = json.dumps(bodies[start : start + BATCH]).encode()
            outcome = await post_once(
                self._client, self._endpoint, body, {}, classify=self._classify
            )
            self._count(TARGET, outcome.kind)
            if outcome.kind == "sent":
                if self._stopping:
                    break
                continue
            log.warning("alerts to %s: %s (%s)", self._endpoint.shown, outcome.reason, outcome.kind)
            if outcome.kind == "retry":
                # The remaining batches would meet the same; the next round brings them all.
                return False
        return True

    def _quote_worst_traces(self) -> None:
        try:
            for sent in list(self._sent_alerts.values()):
                if sent.ended is None:
                    quote_unsupported(sent.alert, self._read_scores)
        except Exception:  # an alert without quotes is better than none
            log.exception("cannot read the worst traces of an alert")

    def _update_alerts(self) -> None:
        """Follow the state of the engine.

        An alert that was sent as firing and that the engine holds no longer (its labels changed,
        or a fast replay has forgotten it) ends now: otherwise it would hang until `endsAt`.
        """
        now = self._clock()
        current: set[Labels] = set()
        firing: set[Labels] = set()
        for alert in self._alerts():
            if alert.state == "pending" or alert.fired_at is None:
                continue
            labels = tuple(sorted(alertmanager_labels(alert).items()))
            current.add(labels)
            sent = self._sent_alerts.get(labels)
            if alert.state == "firing":
                firing.add(labels)
                self._sent_alerts[labels] = _SentAlert(alert)
            elif labels not in firing and (sent is None or sent.ended is None):
                self._sent_alerts[labels] = _SentAlert(alert, now)
        for labels, sent in list(self._sent_alerts.items()):
            if labels in current:
                continue
            if sent.ended is None:
                sent.ended = now
            elif now - sent.ended >= KEEP_RESOLVED:
                del self._sent_alerts[labels]


def _alerts_url(url: str) -> str:
    """Return the resource of the alerts below a base URL, credentials and query preserved."""
    base, mark, query = url.partition("?")
    base = base.rstrip("/")
    if not base.endswith("/api/v2/alerts"):
        base += "/api/v2/alerts"
    return base + mark + query


def alertmanager_labels(alert: Alert) -> dict[str, str]:
    """Return the labels of an alert; those of a rule or segment never replace ragmeter's."""
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
    """Build a `postableAlert` at wall time `now`; `ended` is None while the alert fires.

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
    status_url = status_url.rstrip("/")
    body: dict[str, Any] = {
        "labels": alertmanager_labels(alert),
        "annotations": _annotations(alert, status_url),
        "startsAt": _iso(start),
        "endsAt": _iso(end),
    }
    if status_url:
        body["generatorURL"] = status_url + service_path(alert.service)
    return body


def _annotations(alert: Alert, status_url: str) -> dict[str, str]:
    drift = alert.drift or {}
    own = {
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
        "segments": alert.top_segment_words,
        "judge_fingerprint": alert.fingerprint,
        "reasons": ", ".join(f"{name} {n}" for name, n in (alert.unscored or {}).items()),
        "worst_traces": _whole_ids(alert.worst),
        "no_data": "true" if alert.no_data else "",
        "runbook_url": alert.runbook,
        "statistic": _number(drift.get("statistic")),
        "expected_days": _number(drift.get("expected_days")),
        "since_earliest": _iso(drift.get("since_earliest")),
        "since_latest": _iso(drift.get("since_latest")),
        "cause": drift.get("cause", ""),
        "provisional": "true" if drift.get("provisional") else "",
    }
    linked = status_url and alert.service != PROBE_SERVICE  # a probe has no page
    for number, trace_id in enumerate(alert.worst[:LINKED_TRACES], 1):
        own[f"worst_{number}"] = _whole_ids([trace_id])
        own[f"worst_{number}_url"] = (
            _whole_ids([status_url + trace_path(alert.service, trace_id)]) if linked else ""
        )
    # Annotations of the rule never replace ragmeter's.
    others = {name: text for name, text in alert.annotations.items() if name not in own}
    return {
        name: clean_text(text, MAX_ANNOTATION) for name, text in {**own, **others}.items() if text
    }


def _whole_ids(trace_ids: Sequence[str]) -> str:
    """Join as many ids or links as fit: half an id finds no trace."""
    text = ""
    for trace_id in trace_ids:
        longer = f"{text}, {trace_id}" if text else trace_id
        if len(longer) > MAX_ANNOTATION:
            break
        text = longer
    return text


def _number(value: float | None) -> str:
    # what a reader can take in; a count keeps its digits
    return "" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.6g}"


def _iso(timestamp: float | None) -> str:
    if timestamp is None:
        return ""
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")
