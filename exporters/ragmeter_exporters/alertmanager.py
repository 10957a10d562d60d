"""Send incidents to the API v2 of Alertmanager and repeat them while they are open.

Every open incident is posted as an alert when it moves and every `resend` seconds with an `endsAt`
a few resends ahead, so that Alertmanager ends it by itself should this process die. One that is
over is posted with its end for 15 minutes. No queue is needed: the next round repeats everything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx
from ragmeter.aggregate.evidence import Results, quote_unsupported
from ragmeter.alerts.alert import clean_text
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.parts.incident_words import (
    EVERYWHERE,
    describe_change,
    describe_since,
    is_closed,
)
from ragmeter.parts.views import Incident
from ragmeter.server.paths import incident_path, trace_path

from ragmeter_exporters.dispatch import (
    DeliveryCount,
    DeliveryOutcome,
    classify_status,
    post_once,
)
from ragmeter_exporters.endpoint import DeliveryEndpoint
from ragmeter_exporters.replies import is_page, read_words, redirected

RESEND = 60.0  # seconds between rounds, as Prometheus' rules.alert.resend-delay
ENDS_AFTER = 4  # resends until a firing alert ends by itself: three may be lost, as with Prometheus
KEEP_RESOLVED = 900.0  # seconds of wall time for which an end is repeated, as Prometheus does
BATCH = 64  # alerts in one request, as Prometheus sends them
FIRST_RETRY = 1.0  # seconds after a failed round; doubles up to `resend`
MAX_LABEL = 256  # characters
MAX_ANNOTATION = 1_000  # characters
LINKED_TRACES = 3  # worst traces with a link of their own
TARGET = "alertmanager"

ALERT_NAME = "RagIncident"
SEVERITIES = {"page": "critical", "warning": "warning"}
"""The label `severity`, as is usual at Alertmanager."""

# Labels of a signal that are not of the rule's author.
_OF_SIGNALS = frozenset(("stage", "quantile", "kind"))

AlertBody = dict[str, Any]
Labels = tuple[tuple[str, str], ...]  # sorted pairs: the identity of an alert in Alertmanager

_API = re.compile(r"(?:/api/v[12](?:/alerts)?)?/?\Z")
_SETTING = "alerts.alertmanager_url"
# The log names these cures of a refusal, by the status of the reply.
_CURES = {
    401: f"give user and password in {_SETTING} (http://user:password@host)",
    403: f"give user and password in {_SETTING} (http://user:password@host)",
    404: f"{_SETTING} is the base URL of an Alertmanager with API v2, with its path prefix",
    405: f"{_SETTING} is the base URL of an Alertmanager with API v2, with its path prefix",
    410: f"{_SETTING} is the base URL of an Alertmanager with API v2, with its path prefix",
}

_NOT_NAME = re.compile(r"[^a-zA-Z0-9_]")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _SentAlert:
    """An incident as last sent.

    Args:
        ended: The wall time at which its end was first sent; None while it is open.
        goes_on: The incident as it goes on under other labels.
        quoted: The incident with the words that nothing supports, once they were read.
    """

    incident: Incident
    ended: float | None = None
    goes_on: Incident | None = None
    quoted: Incident | None = None


class Alertmanager:
    """Keeps an Alertmanager informed of the incidents.

    Each request is counted: (`alertmanager`, sent | refused | retry).

    Args:
        url: Base URL of the Alertmanager, with or without the path of the API.
        incidents: Returns those that are open or lately over.
        clock: Wall time.
        resend: Seconds between rounds.
        status_url: Base URL of the status page, for links; "" leaves them out.
        read_scores: Returns the scores of a worst trace, by service and id; called in a thread.

    Raises:
        ValueError: The URL cannot be used.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        incidents: Callable[[], Iterable[Incident]],
        *,
        clock: Callable[[], float],
        count: DeliveryCount,
        resend: float = RESEND,
        status_url: str = "",
        read_scores: Callable[[str, str], Results] = lambda service, trace_id: (),
    ) -> None:
        self._client = client
        self._endpoint = DeliveryEndpoint.parse(_alerts_url(url))
        self._incidents = incidents
        self._clock = clock
        self._count = count
        self._resend = resend
        self._status_url = status_url
        self._read_scores = read_scores
        self._sent: dict[Labels, _SentAlert] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Send at once: an incident moved."""
        # A fast replay may have dropped one that is over by the next round.
        self._follow()
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
        """Let `run` end. Open incidents are not resolved: another process may take over."""
        self._stopping = True
        self._wake.set()

    async def send(self) -> bool:
        """Send one round; return False where it should be repeated soon."""
        self._follow()
        await asyncio.to_thread(self._quote_worst_traces)
        now = self._clock()
        bodies = [
            alert_payload(sent, now, self._resend, self._status_url)
            for sent in self._sent.values()
            if sent.ended is None or now - sent.ended < KEEP_RESOLVED
        ]
        for start in range(0, len(bodies), BATCH):
            body = json.dumps(bodies[start : start + BATCH]).encode()
            outcome = await post_once(
                self._client, self._endpoint, body, {}, classify=self._judge_reply
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

    async def _judge_reply(self, response: httpx.Response) -> DeliveryOutcome:
        """Judge a reply by its status, and say in a failure's reason what it says and what helps.

        Alertmanager answers without a page: a login, a proxy or another program serves that one.
        """
        status = response.status_code
        outcome = classify_status(status, response.headers, self._clock())
        if outcome.kind == "sent" and not is_page(response):
            return outcome
        words = await read_words(response)
        parts = [f"HTTP {status}", words]
        if outcome.kind == "sent":
            outcome = replace(outcome, kind="retry")
            parts.append(f"a page is no Alertmanager's answer: {_CURES[404]}")
        elif to := redirected(response, _SETTING):
            parts.append(to)
        elif status == 400 and "HTTPS server" in words:
            parts.append(f"it needs https:// in {_SETTING}")
        else:
            parts.append(_CURES.get(status, ""))
        return replace(outcome, reason="; ".join(filter(None, parts)))

    def _quote_worst_traces(self) -> None:
        try:
            for sent in list(self._sent.values()):
                sent.quoted = quote_unsupported(sent.incident, self._read_scores)
        except Exception:  # an incident without quotes is better than none
            log.exception("cannot read the worst traces of an incident")

    def _follow(self) -> None:
        """Follow the incidents of the agent.

        One that was sent as firing and that is held no longer (a fast replay has forgotten it) ends
        now: otherwise it would hang until `endsAt`. One that got worse goes on under other labels,
        and what was sent before says so as it ends.
        """
        now = self._clock()
        current: set[Labels] = set()
        standing: set[Labels] = set()
        going_on: dict[str, Incident] = {}
        for incident in self._incidents():
            labels = tuple(sorted(alertmanager_labels(incident).items()))
            current.add(labels)
            sent = self._sent.get(labels)
            if not is_closed(incident):
                standing.add(labels)
                going_on[incident.id] = incident
                self._sent[labels] = _SentAlert(incident)
            elif labels not in standing and (sent is None or sent.ended is None):
                self._sent[labels] = _SentAlert(incident, now)
        for labels, sent in list(self._sent.items()):
            if labels in current:
                continue
            if sent.ended is None:
                sent.ended = now
                sent.goes_on = going_on.get(sent.incident.id)
            elif now - sent.ended >= KEEP_RESOLVED:
                del self._sent[labels]
            elif sent.goes_on is not None and sent.incident.id not in going_on:
                # it is over: the message about that is about nothing else
                del self._sent[labels]


def _alerts_url(url: str) -> str:
    """Return the resource of the alerts of a base URL, credentials and query preserved.

    The address of the API, also of the old one, and of a page (`/#/alerts`) have the same base.
    """
    base, mark, query = url.partition("#")[0].partition("?")
    return _API.sub("", base.rstrip("/"), count=1) + "/api/v2/alerts" + mark + query


def alertmanager_labels(incident: Incident) -> dict[str, str]:
    """Return the labels of an incident; those of a rule never replace ragmeter's.

    One that got worse is another alert of the same group to Alertmanager, which says nothing of
    annotations that change.
    """
    labels = {
        "alertname": ALERT_NAME,
        "incident": incident.id,
        "service": incident.service,
        "question": incident.question,
        "severity": SEVERITIES[incident.severity],
        "worsened": "" if incident.worsened_at is None else _iso(incident.worsened_at),
    }
    for signal in incident.signals:
        for name, text in signal.labels.items():
            name = _NOT_NAME.sub("_", name)[:MAX_LABEL]
            if not name or name[0].isdigit():
                name = f"_{name}"
            if name not in _OF_SIGNALS:
                labels.setdefault(name, text)
    # Alertmanager drops empty labels; without them here, equal alerts have equal keys.
    return {
        name: text for name, raw in labels.items() if (text := clean_text(raw, MAX_LABEL).strip())
    }


def alert_payload(sent: _SentAlert, now: float, resend: float, status_url: str = "") -> AlertBody:
    """Build a `postableAlert` at wall time `now`.

    Times are event time where that is possible. Event time may lie ahead of the wall clock
    (skewed senders, replays): Alertmanager takes an end in the future for "still firing" and
    refuses a start after the end, so both are held back to now.
    """
    incident = sent.incident
    told = incident.opened_at if incident.worsened_at is None else incident.worsened_at
    start = min(told, now)
    if sent.ended is None:
        end = now + ENDS_AFTER * resend
    else:
        known = sent.ended if incident.ended_at is None else incident.ended_at
        end = max(min(known, now), start)
    status_url = status_url.rstrip("/")
    body: AlertBody = {
        "labels": alertmanager_labels(incident),
        "annotations": _annotations(sent.quoted or incident, sent.goes_on, status_url),
        "startsAt": _iso(start),
        "endsAt": _iso(end),
    }
    if status_url:
        body["generatorURL"] = status_url + incident_path(incident.service, incident.id)
    return body


def _annotations(incident: Incident, goes_on: Incident | None, status_url: str) -> dict[str, str]:
    told = incident if goes_on is None else goes_on
    page = status_url and incident.service != PROBE_SERVICE  # a probe has no page
    own = {
        "title": told.title,
        "summary": told.summary,
        "since": describe_since(told, None),
        "where": told.segment or EVERYWHERE,
        "change": describe_change(told),
        "advice": told.advice,
        "state": "goes on" if goes_on is not None else told.state,
        "runbook_url": told.runbook,
        "link": status_url + incident_path(told.service, told.id) if page else "",
    }
    texts = {name: clean_text(text, MAX_ANNOTATION) for name, text in own.items()}
    texts["detail"] = _whole_texts((clean_text(line) for line in told.detail), "\n")
    for number, trace_id in enumerate(told.worst[:LINKED_TRACES], 1):
        texts[f"worst_{number}"] = _whole_texts([trace_id])
        texts[f"worst_{number}_url"] = (
            _whole_texts([status_url + trace_path(told.service, trace_id)]) if page else ""
        )
    for signal in told.signals:
        # Annotations of a rule never replace ragmeter's.
        for name, text in signal.annotations.items():
            texts.setdefault(name, clean_text(text, MAX_ANNOTATION))
    return {name: text for name, text in texts.items() if text}


def _whole_texts(texts: Iterable[str], separator: str = ", ") -> str:
    """Join as many texts as fit: half an id or link finds no trace."""
    whole = ""
    for text in texts:
        longer = f"{whole}{separator}{text}" if whole else text
        if len(longer) > MAX_ANNOTATION:
            break
        whole = longer
    return whole


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")
