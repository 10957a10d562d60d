"""The embedded agent: sources, scoring, aggregation and the state file in one process.

    arrivals -> accept (durable) -> queue -> score -> aggregate -> commit (durable)

`EmbeddedAgent.accept` may be called from any thread; the worker does the rest. The clock does two
things only: it sets a timestamp from the future back to its arrival, and, once live traffic has
been seen, it moves event time on while nothing arrives.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ragmeter.aggregate.agent_view import AgentHealth, ServicesView
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.aggregate.service_state import ServiceState
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import FUTURE_SECONDS, Clocks
from ragmeter.core.counters import CounterKey, Counters, GaugeSample
from ragmeter.core.dedupe import dedupe_gauges
from ragmeter.core.errors import StateUnavailable
from ragmeter.core.process import Watchdog, is_unready
from ragmeter.embedded.intake import Intake
from ragmeter.embedded.passage_resolution import PassageResolution
from ragmeter.embedded.trace_closer import SOURCE as OTLP
from ragmeter.embedded.trace_closer import TraceCloser
from ragmeter.embedded.worker import SentDocuments, Worker
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.live_inspection import LiveInspection, LiveResults
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import ExtractedRequests, extract_requests
from ragmeter.ingest.spans import Span
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import Document, Part
from ragmeter.scoring.slow_tiers import MakeTiers, SlowTiers
from ragmeter.store.pending import OpenSpanTable
from ragmeter.store.rows import StoreOptions
from ragmeter.store.sqlite import SqliteStore, add_counts
from ragmeter.windows.windows import Windows

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.02  # between two checks of the `wait` methods


class EmbeddedAgent(ServicesView):
    """The running agent; for the exporters it is an `AgentView`.

    Args:
        live: Whether event time follows the clock from the start; in a replay it follows the
            events until the first live trace.
        parts: The features of a service.

    Raises:
        StateError: The state file cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        *,
        live: bool = True,
        clocks: Clocks = Clocks(),  # noqa: B008
        tiers: MakeTiers = lambda saved: SlowTiers(),
        outputs: AgentOutputs = AgentOutputs(),  # noqa: B008
        parts: PartKinds = (),
    ) -> None:
        self._part_kinds = parts
        self._settings = settings
        self._limits = settings.limits
        self._clock = clocks.wall
        self.segments = tuple(settings.segments)
        self.redactor = Redactor(settings.privacy)
        content = ContentPolicy(settings.privacy)
        self._store = SqliteStore(
            settings.state.path,
            StoreOptions(
                horizon=settings.limits.dedupe_hours * 3600,
                overwrite=not content.full,
            ),
            warn=log.error,
        )
        self._dead_letters = DeadLetters(settings.state.dead_letters, self.redactor, content)
        self.results = LiveResults()
        outputs = replace(outputs, on_scores=self.results.publish)
        self._worker = Worker(
            settings,
            rules,
            self._store,
            self._dead_letters,
            clocks=clocks,
            tiers=tiers,
            outputs=outputs,
            parts=parts,
        )
        self._worker.draws.live = live
        trace_bytes = settings.limits.trace_bytes
        self._resolution = PassageResolution(
            settings=settings.resolvers,
            store=self._store,
            redactor=self.redactor,
            limit=trace_bytes,
            write=self._worker.write,
        )
        intake = Intake(
            self._store,
            self._dead_letters,
            settings.limits,
            self._clock,
            self.redactor,
            self._resolution,
            self._worker.run_counted,
            self._on_accepted,
        )
        self.accept = intake.accept
        self.room = intake.room
        self.inspection = LiveInspection(content)
        spans = OpenSpanTable(self._store)
        ids = spans.ids()
        self.assembly = OpenTraces(
            settings.otlp, spans, self._worker.write, clock=clocks.wall, monotonic=clocks.monotonic
        )
        self._watchdog: Watchdog[str] = Watchdog(clocks.monotonic)
        self._stalled: dict[str, float] = {}
        self._closer = TraceCloser(
            assembly=self.assembly,
            store=spans,
            intake=intake,
            extract=self._extract,
            limit=trace_bytes,
            written=ids & self._dead_letters.written_from(OTLP, min(ids)) if ids else set(),
            on_damage=self._worker.mark_damaged,
        )

    @property
    def part_kinds(self) -> PartKinds:
        """The features of a service."""
        return self._part_kinds

    def _extract(self, spans: Sequence[Span]) -> ExtractedRequests:
        extracted = extract_requests(spans, self._settings.otlp, inspected=self.inspection.listened)
        extracted.traces = self.redactor.extracted(extracted.traces, extracted.counts)
        self.inspection.publish(extracted)
        return extracted

    def start(self) -> None:
        """Start the threads of the agent."""
        self._worker.start()
        self._resolution.start(self._worker.wake)
        self._closer.start()

    def stop(self, timeout: float) -> bool:
        """Finish what is queued within `timeout` seconds and close the state file.

        Returns whether the queue was emptied; what is left in it stays durable.
        """
        closed = self._closer.stop()
        closed = self._resolution.stop() and closed
        ended = self._worker.stop(timeout) and closed
        emptied = self._store.depth == 0
        if ended:
            self._store.close()
        return emptied

    def _wait_while(self, waiting: Callable[[], bool], stopped: Callable[[], bool]) -> None:
        while waiting() and not (self.fatal or stopped()):
            time.sleep(_POLL_SECONDS)

    def _draws_pending(self) -> bool:
        return any(self._worker.draws.pending.values())

    def wait_idle(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when nothing waits any more, the agent has died or `stopped` returns True."""
        store = self._store
        self._wait_while(
            lambda: bool(store.depth or store.held_count or self._draws_pending()), stopped
        )

    def wait_replayed(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Return when all that is in now is counted, the agent has died or `stopped` returns True.

        In a replay that includes the slow tiers. Beside live traffic some of their draws are
        always pending, and all of them while a judge is down: the next file cannot wait for that.
        """
        for table in ("held", "inbox"):  # in this order: held traces join the queue
            last = self._store.last_id(table)
            self._wait_while(lambda: self._store.has_waiting(table, last), stopped)  # noqa: B023
        self._wait_while(lambda: not self._worker.draws.live and self._draws_pending(), stopped)

    @property
    def fatal(self) -> str | None:
        """Why the agent has died; the process should end with a failure."""
        return self._worker.fatal or self._closer.fatal or self._resolution.fatal

    def states(self) -> Sequence[ServiceState]:
        """Return the only state. Hold `lock()`."""
        return (self._worker.state,)

    @property
    def windows(self) -> Windows:
        """The windows of all services. Hold `lock()`."""
        return self._worker.aggregator.windows

    @property
    def counters(self) -> Counters:
        """The counters. Hold `lock()`."""
        return self._worker.aggregator.counters

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """The number of pending results by metric and scorer."""
        return self._worker.aggregator.accounting.pending

    def instruments(self) -> Sequence[Mapping[str, str]]:
        """Return the labels of each judge as it is served now."""
        return self._worker.draws.tiers.judges.labels()

    def gauges(self) -> Sequence[GaugeSample]:
        """Return the gauges of the agent. Hold `lock()`."""
        held = ("ragmeter_held_traces", (), float(self._store.held_count))
        horizon = self._settings.limits.dedupe_hours * 3600  # the file has room for all ids
        dedupe = dedupe_gauges(dict.fromkeys(self.windows.services(), horizon), horizon)
        return [*self._worker.gauges(), *self.assembly.gauges(), held, *dedupe]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock to hold while reading, with the counters up to date."""
        with self._worker.lock:
            self._worker.aggregator.settle()
            yield

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        """Return a kept trace under `trace` and its scores under `results`, or None."""
        body = self._store.evidence(service, trace_id)
        return json.loads(body) if body else None

    def position(self, source: str) -> int:
        """Return how far a source has been read."""
        return self._store.position(source)

    def dead_letters_from(self, source: str, position: int) -> set[int]:
        """Return the positions from `position` on at which a source had dead letters."""
        return self._dead_letters.written_from(source, position)

    def health(self) -> AgentHealth:
        """Return whether the agent is ready, and how far behind it is."""
        now = self._clock()
        waiting = self._store.depth
        oldest = self._worker.oldest_received
        event = self._worker.state.time.event
        limit = self._limits.stalled_seconds
        problems = (
            self.fatal,
            self._worker.refused,
            self._worker.problem,
            self._closer.problem,
            *(_still(*item) for item in self._stalled.items() if is_unready(item[1], limit)),
            self._describe_future_time(now),
        )
        lag = None
        if event is not None and self._worker.draws.live:
            lag = max(0.0, now - event) if waiting else 0.0
        return AgentHealth(
            problems=tuple(problem for problem in problems if problem),
            queue_depth=waiting,
            pending=self._worker.draws.pending,
            oldest_unprocessed_seconds=max(0.0, now - oldest) if oldest and waiting else 0.0,
            processing_lag_seconds=lag,
        )

    def check_stalled(self) -> str | None:
        """Return what has not moved for `limits.stalled_seconds` although work waits.

        Call it every second or so; if something has stalled, the process should end.
        """
        held = self._store.held_count
        self._stalled = self._watchdog.update(
            {
                **self._worker.progress(),
                "the closing of traces": self._closer.heartbeat.count,
                "the resolving of passages": self._resolution.heartbeat.count if held else None,
            }
        )
        limit = self._limits.stalled_seconds
        return next((_still(*item) for item in self._stalled.items() if item[1] > limit), None)

    def _describe_future_time(self, now: float) -> str | None:
        """Return the problem of an event time ahead of the clock, if there is one."""
        event = self._worker.state.time.event
        if not self._worker.draws.live or event is None:
            return None
        ahead = event - now - FUTURE_SECONDS
        if ahead <= 0:
            return None
        return (
            f"event time is {ahead / 3600:.1f} hours ahead of the clock (a replayed trace was dated"
            " in the future, or the clock was ahead at a start): live traces come late to the short"
            " windows, and to all if it is more; move the state file aside or use --fresh"
        )

    def resample(self, settings: SamplingSettings) -> None:
        """Draw by other rates and strata from the next trace on: no estimate jumps."""
        self._worker.resample(settings)

    def redact(self, settings: PrivacySettings) -> None:
        """Redact by other rules from the next trace on."""
        self.redactor.update(settings)

    def promote(self, service: str | None) -> dict[str, Any]:
        """Make the current values the drift baselines of a service or of all, durable on return.

        Raises:
            ragmeter.embedded.commands.UnknownService: There are no baselines for it.
            StateUnavailable: The agent ends or cannot write.
        """
        if self.fatal or self._worker.ended:
            raise StateUnavailable(self.fatal or "the agent is stopping")
        return self._worker.promotions.submit(service)

    def _on_accepted(self, live: bool) -> None:
        if live and not self._worker.draws.live:
            self._worker.draws.live = True
            if problem := self._describe_future_time(self._clock()):
                log.error("%s", problem)
        self._worker.wake()
        self._resolution.wake()

    def receive(
        self,
        part: str,
        documents: Sequence[Document],
        source: str,
        *,
        live: bool = True,
        counts: Mapping[CounterKey, float] | None = None,
    ) -> list[str]:
        """Have a part count documents, durable on return, and return their outcomes.

        Args:
            part: The name of the part.
            documents: The documents.
            source: Where they come from, as in the label `source` of counters.
            live: Whether the clock bounds their times; those of a file are believed.
            counts: Counts of the source, which are durable even if nothing else is.

        Raises:
            StateUnavailable: The agent ends or cannot write; the call may be repeated.
        """
        if self._worker.ended:
            raise StateUnavailable(self.fatal or "the agent is stopping")

        def add() -> Mapping[CounterKey, float]:
            with self._store.transaction() as db:
                add_counts(db, counts or {})
            return counts or {}

        if counts:
            self._worker.write(add)
        elif self.fatal:
            raise StateUnavailable(self.fatal)
        if not documents:
            return []
        return self._worker.documents.submit(SentDocuments(part, documents, source, live))

    def receive_at(self, place: Part[Any], documents: Sequence[Document], source: str) -> list[str]:
        """Have a part count documents, as `receive`; there is one state only."""
        return self.receive(place.name, documents, source)


def _still(thread: str, seconds: float) -> str:
    return f"{thread} has not moved for {seconds:.0f} s although work waits"
