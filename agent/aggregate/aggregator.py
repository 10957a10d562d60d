"""The aggregator of one worker: scored traces in, windows, counters and alerts out; its changes as rows for a store.

The aggregate half: scored traces in, windows, counters and alerts out. Pure.

Time is event time. Rules are evaluated at fixed steps of it, at the first event beyond each
step, so the same traces in the same order give the same alerts whatever the wall clock, the
batching or the restarts in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ragmeter.aggregate.accounting import ResultAccounting
from ragmeter.aggregate.consistency import AnswerMemory
from ragmeter.aggregate.drift_detection import DriftDetection
from ragmeter.aggregate.index_events import IndexEvent
from ragmeter.aggregate.indexes import Indexes, IndexOutcome
from ragmeter.aggregate.objective_events import build_objectives, objective_events
from ragmeter.aggregate.wordings import embeds_answers, wording_mode
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.engine import AlertEngine
from ragmeter.alerts.error_budgets import ErrorBudgets
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.clocks import parse_whole_seconds, parse_window
from ragmeter.core.counters import CounterKey, Counters, Exemplar, GaugeSample
from ragmeter.core.label_bounds import LabelBounds
from ragmeter.core.score import HashedWording, Score, ScoredTrace
from ragmeter.core.series import FingerprintRegistry
from ragmeter.core.tiers import MetricScorer
from ragmeter.core.vectors import AnswerVectors
from ragmeter.metrics.canary.scores import expected_canary_pairs, is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.metrics.registry import METRICS
from ragmeter.sampling.control import ControlLearner, SamplingControl
from ragmeter.windows.state import BucketRow
from ragmeter.windows.windows import Windows

# Chosen on three latency mixes: `histogram_quantile` errs by at most 1 % at p50, 10 % at p95 and
# 5 % at p99; the client library's default edges err by 23 % at p95 and 67 % at p99.
DURATION_EDGES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 30, 60)

# Across a gap without traces the rules are stepped through the longest window and this much more
# event time, then time jumps: by then every window is empty and every alert has ended.
_AFTER_WINDOWS = 2 * 3600


class AppliedTrace(NamedTuple):
    """A scored trace as the aggregator counted it.

    Args:
        trace: The trace under its bounded service and stage names. Its `wording` is that of an
            answer that is remembered, and None for others.
        segments: The `tag=value` segments it was counted in; none if it came too late.
        alerts: The alerts that fired or resolved on the way to its time.
    """

    trace: ScoredTrace
    segments: tuple[str, ...]
    alerts: list[Alert]


class Aggregator:
    """Windows, counters and alerts of all services, by one clock.

    `expected` are the (metric, scorer) pairs that each trace has a result for. Canaries have those
    of `ragmeter.metrics.canary.scores.expected_of`: they enter the windows of their service in series
    of their own, and neither its traffic, times and costs nor what is learnt from traffic.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[tuple[str, str]],
    ) -> None:
        limits = settings.limits
        self.windows = Windows(
            settings.windows,
            specs=METRICS,
            min_samples=limits.min_samples,
            name_worst=True,
            worst_of={rule.segment for rule in rules if rule.segment},
        )
        self.counters = Counters()
        of_canaries = expected_canary_pairs(
            settings.judge.k, expected, settings.judge.budget.canaries > 0
        )
        self._accounting = ResultAccounting(self.counters, expected, of_canaries)
        self.waiting = self._accounting.pending
        """Results that a slow tier still owes, by (metric, scorer)."""
        spans = [
            seconds
            for rule in rules
            if rule.burn is not None
            for seconds in (parse_whole_seconds(rule.window), rule.burn.seconds)
        ]
        # one more than named services: `__other__`
        self.budgets = ErrorBudgets(
            build_objectives(settings.slos), spans, max_services=limits.services + 1
        )
        self.engine = AlertEngine(rules, budgets=self.budgets)
        self.drift = DriftDetection(settings.drift, self.windows, self.engine.drift, self.counters)
        self._bounds = LabelBounds(
            limits.services, limits.segment_values, limits.label_chars, self._overflow
        )
        self.indexing = Indexes(
            limits.services, limits.label_chars, lambda: self._overflow("index")
        )
        self.consistency = AnswerMemory(
            settings.consistency.queries,
            {name: parse_window(name) for name in settings.windows},
            limits.min_samples,
            wording_mode(settings.consistency, settings.privacy),
            settings.consistency.embeddings.near
            if embeds_answers(settings.consistency, settings.privacy)
            else None,
        )
        self._segments = settings.segments
        self._learner = ControlLearner(settings.sampling)
        self._slos = settings.slos
        self._step = settings.alerts.evaluation_seconds
        self._longest_gap = max(map(parse_window, settings.windows)) + _AFTER_WINDOWS
        self._next_step: float | None = None
        self._evaluated = -1  # `windows.changes` at the last evaluation
        self._fingerprints = FingerprintRegistry()
        self.windows.current = self._fingerprints.current

    def _overflow(self, label: str) -> None:
        self.counters.inc("ragmeter_label_overflow_total", (("label", label),))

    def label(self, service: str) -> str:
        """The bounded name that a service has in the windows, `__other__` where it has none."""
        return self._bounds.service(service, admit=False)

    def control(self, turn: int) -> SamplingControl:
        """What the score half should know in this turn, when all earlier ones were applied."""
        return self._learner.at(turn)

    def resample(self, settings: SamplingSettings) -> None:
        """Other settings of what is `low` and `rare`."""
        self._learner.update(settings)

    def apply(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer] = (), turn: int = 0
    ) -> AppliedTrace:
        """Count one scored trace, after moving event time to it.

        Args:
            scored: A trace that was never applied before; it is not changed.
            pending: The pairs whose results a slow tier will `finish`.
            turn: The batch that the trace belongs to (see `ragmeter.sampling.control`).
        """
        alerts = self.advance(scored.timestamp)
        if scored.canary:
            return self._apply_canary(scored, pending, alerts)
        trace, segments, late = self._add_to_windows(scored, turn)
        self._accounting.count_trace()
        if late:
            self._accounting.count_late(pending)
        else:
            self._accounting.add_pending(pending)
            self.drift.observe(trace)
        remembered = self._remember_answer(trace)
        self._count_operations(trace)
        self._count_objectives(trace)
        if trace.wording and not remembered:
            trace = replace(trace, wording=None)
        return AppliedTrace(trace, segments, alerts)

    def _remember_answer(self, trace: ScoredTrace) -> bool:
        """Remember the answer, to compare it with others to the same question."""
        wording, now = trace.wording, self.windows.now
        if wording is None:
            outcome: str = trace.wording_reason
        elif now is None:
            outcome = "late"
        else:
            outcome = self.consistency.add(trace.service, wording, trace.timestamp, now)
        if outcome:
            self.counters.inc("ragmeter_consistency_answers_total", (("outcome", outcome),))
        return wording is not None and outcome == "kept"

    def embedded(
        self,
        service: str,
        wording: HashedWording | str,
        at: float,
        context: str,
        found: AnswerVectors | str,
    ) -> None:
        """Count what came of the embedding of an answer that was remembered at `at`: vectors, or
        why there are none. `context`: see `Memory.embed`."""
        outcome = found if isinstance(found, str) else "embedded"
        self.counters.inc("ragmeter_consistency_embeddings_total", (("outcome", outcome),))
        if isinstance(found, AnswerVectors) and isinstance(wording, HashedWording):
            self.consistency.embed(self.label(service), wording, at, context, found)

    def _apply_canary(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer], alerts: list[Alert]
    ) -> AppliedTrace:
        """Count what its reference and the judge say of a canary, and nothing else: its results are
        further ones of the service, without a trace that was seen, timed or paid for."""
        results = [score for score in scored.results if is_canary_scorer(score.scorer)]
        bare = replace(scored, results=results, timings={}, partial=True)
        bare, segments, late = self._add_to_windows(bare)
        self._accounting.count_canary()
        if late:
            self._accounting.count_late(pending)
        else:
            self._accounting.add_pending(pending)
        self._count_objectives(bare)
        status = (("service", bare.service), ("status", scored.status))
        self.counters.inc("rag_canaries_total", status)
        return AppliedTrace(replace(scored, service=bare.service), segments, alerts)

    def finish(self, scored: ScoredTrace) -> ScoredTrace:
        """Count the results of a slow tier for a trace that was applied before.

        They enter the buckets of the trace's own time.

        Args:
            scored: The results, with `partial` set; it is not changed.

        Returns:
            The same under its bounded names.
        """
        self._accounting.remove_pending(scored.results)
        trace, _, _ = self._add_to_windows(scored)
        self._count_objectives(trace)
        return trace

    def index(self, event: IndexEvent, at: float) -> IndexOutcome:
        """Count what an indexing job says, at Unix time `at`. It moves no event time: a job may end
        while nobody asks anything."""
        outcome = self.indexing.add(event, at)
        self.counters.inc("ragmeter_index_events_total", (("outcome", outcome),))
        return outcome

    def amend(
        self, counted: ScoredTrace | None, found: ScoredTrace, segments: Sequence[str]
    ) -> bool:
        """Count what labels say of a trace that was applied before, in place of what they had said
        by then. Both are partial and under the names that the trace was placed by; a result that
        is corrected is counted as another one. Whether there is a window for it."""
        if self.windows.too_late(found.timestamp):
            return False
        self._accounting.count_unexpected(found.results)
        self._accounting.count_final(found.results)
        if counted is not None and counted.results:
            self.windows.retract(counted, found.service, segments)
        if found.results:
            self.windows.add(found, found.service, segments)
        return True

    def lose(self, results: Sequence[Score]) -> None:
        """Count results that were owed for a trace that nobody can read any more."""
        self._accounting.remove_pending(results)
        self._accounting.count_final(results)

    def add_extra(self, scored: ScoredTrace) -> None:
        """Count results that no trace of the queue owes (probes of a judge)."""
        self._accounting.count_unexpected(scored.results)
        self._add_to_windows(scored)

    def _add_to_windows(
        self, scored: ScoredTrace, turn: int | None = None
    ) -> tuple[ScoredTrace, tuple[str, ...], bool]:
        """Add the results of a trace to the windows; `turn` is None unless it is a new trace.

        Returns the trace under its bounded names, its segments, and whether it is too late.
        """
        late = self.windows.too_late(scored.timestamp)
        trace = self._bound_names(scored, late)
        if late:
            self._accounting.count_late((score.metric, score.scorer) for score in trace.results)
            return trace, (), True
        segments = [
            self._bounds.segment(trace.service, tag, trace.tags[tag])
            for tag in self._segments
            if tag in trace.tags
        ]
        self._accounting.count_final(trace.results)
        counted = trace
        if trace.partial:  # only slow tiers have fingerprints
            counted = replace(trace, results=[self._in_series(score) for score in trace.results])
        self.windows.add(counted, trace.service, segments)
        if turn is not None:
            self._learner.observe(counted, trace.service, segments, turn)
        return trace, tuple(segments), False

    def _bound_names(self, scored: ScoredTrace, late: bool) -> ScoredTrace:
        """Bound the names of the service and the stages; a copy only if one of them changes."""
        service, timings = scored.service, scored.timings
        # A late trace has no window, so it takes no slot from other services. Rules look for
        # probes by name: their service needs no slot.
        if service != PROBE_SERVICE:
            service = self._bounds.service(service, admit=not late)
        if not late and not all(map(self._bounds.fits, timings)):
            timings = {self._bounds.bound(stage): value for stage, value in timings.items()}
        if service == scored.service and timings is scored.timings:
            return scored
        return replace(scored, service=service, timings=timings)

    def _in_series(self, score: Score) -> Score:
        """The score under the name of the series that its fingerprint belongs to."""
        name, changed = self._fingerprints.assign_series(score)
        if changed:
            labels = (("metric", score.metric), ("scorer", score.scorer))
            self.counters.inc("ragmeter_instrument_changes_total", labels)
        return score if name == score.scorer else replace(score, scorer=name)

    def _count_operations(self, scored: ScoredTrace) -> None:
        counters, label = self.counters, ("service", scored.service)
        counters.inc("rag_traces_total", (label, ("status", scored.status)))
        for direction, tokens in (("input", scored.input_tokens), ("output", scored.output_tokens)):
            if tokens:
                counters.inc("rag_tokens_total", (label, ("direction", direction)), tokens)
        if scored.cost_usd:
            counters.inc("rag_cost_usd_total", (label,), scored.cost_usd)
        total = scored.timings.get("total")
        if total is not None:
            exemplar = Exemplar(scored.trace_id, total, scored.timestamp)
            counters.observe(
                "rag_trace_duration_seconds", (label,), total, DURATION_EDGES, exemplar
            )

    def _count_objectives(self, scored: ScoredTrace) -> None:
        """One count for both who read it: counters for Prometheus, budgets for our own rules."""
        for event in objective_events(scored, self._slos):
            key = (("service", scored.service), ("slo", event.slo))
            weight = event.weight / WEIGHT_ONE
            bad = weight if event.bad else 0.0
            self.counters.inc("rag_slo_events_total", key, weight)
            # a series that starts at 0 loses no first increase to `rate()`
            self.counters.inc("rag_slo_bad_events_total", key, bad)
            self.counters.inc("rag_slo_bad_events_squared_total", key, bad * bad)
            self.budgets.add(scored.service, event.slo, scored.timestamp, event.weight, event.bad)

    def advance(self, now: float) -> list[Alert]:
        """Move event time to `now`, evaluating the rules at every step in between."""
        transitions: list[Alert] = []
        if self._next_step is not None:
            last = min(now, self._next_step + self._longest_gap)
            while self._next_step <= last:
                transitions += self.drift.advance(self._next_step)
                self.windows.advance(self._next_step)
                self.budgets.advance(self._next_step)
                # without alerts that wait for their time, the same windows say the same again:
                # a night without traffic is 234 expiries, not 6,240 evaluations
                if self.engine.waiting or self.windows.changes != self._evaluated:
                    moved = self.engine.evaluate(self.windows, self._next_step)
                    transitions += [*moved, *self.drift.apply_alert_changes(moved, self._next_step)]
                    self._evaluated = self.windows.changes
                    self._forget_gone()
                self._next_step += self._step
        if self._next_step is None or self._next_step <= now:
            self._next_step = math.floor(now / self._step) * self._step + self._step
            self.drift.skip(now)
        self.windows.advance(now)
        self.budgets.advance(now)
        self.consistency.advance(now)
        return transitions

    def promote(self, service: str | None) -> tuple[dict[str, Any], list[Alert]] | None:
        """What is normal at the event time reached becomes the drift baseline of a service, or of
        all. What came of it, and the alerts that ended; None where the service is not watched."""
        return self.drift.promote(service, self.windows.now)

    def _forget_gone(self) -> None:
        """Free the places and counters of services and fingerprints that every window has
        forgotten. At the steps of event time only: when it happens must not depend on batches."""
        gone = self._bounds.retain_services(self.windows.services())
        for service in gone:
            self.counters.forget("service", service)
        if gone:
            kept = self.windows.services()
            self.drift.keep(kept)
            self._learner.retain_services(kept)
        for service in self._bounds.services_with_full_segments():
            self._bounds.retain_segments(service, self.windows.segments(service))
        if self._fingerprints.full:
            services = self.windows.services()
            self._fingerprints.retain(
                {pair for one in services for pair in self.windows.series(one)}
            )

    def settle(self) -> None:
        """Bring the counters of results up to what was applied; once for many traces."""
        self._accounting.flush_counters()
        if self.windows.ignored_stages:
            label = (("label", "stage"),)
            self.counters.inc("ragmeter_label_overflow_total", label, self.windows.ignored_stages)
            self.windows.ignored_stages = 0

    def gauges(self) -> list[GaugeSample]:
        """What is known of indexes and of repeated questions; how the detectors are, and the
        alerts that found no room."""
        lost = float(self.engine.overflow + self.engine.drift.overflow)
        return [
            *self.indexing.gauges(),
            *self.consistency.gauges(),
            *self.drift.gauges(),
            ("ragmeter_alerts_refused", (), lost),
        ]

    def drain(self) -> dict[str, Any]:
        """The large parts of the state that changed since the last call, by name; each replaces
        the one of its name. Before `dump`."""
        return {
            **self.drift.drain(),
            **self._learner.drain(),
            **self.indexing.drain(),
            **self.consistency.drain(),
        }

    def dump(self) -> dict[str, Any]:
        """What a restart needs besides counters and windows, which hold the event time, and what
        `drain` has given."""
        return {
            "alerts": self.engine.dump(),
            "labels": self._bounds.dump(),
            "fingerprints": self._fingerprints.dump(),
            "drift": self.drift.dump(),
            "control": self._learner.dump(),
            "indexing": self.indexing.dump(),
            "consistency": self.consistency.dump(),
            "next_step": self._next_step,
            "evaluated": self._evaluated == self.windows.changes,
        }

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of `dump`, after `windows.load`."""
        if "alerts" not in state:
            return
        self.engine.load(state["alerts"])
        self._bounds.load(state["labels"])
        self._fingerprints.load(state.get("fingerprints", []))
        self.drift.load(state)
        self._learner.load(state)
        self.indexing.load(state)
        self.consistency.load(state)
        if self.windows.now is not None:
            self.consistency.advance(self.windows.now)
        self._next_step = state["next_step"]
        if state["evaluated"]:
            self._evaluated = self.windows.changes


class AggregatorChanges(NamedTuple):
    """A bucket or counter of None is deleted; a part of `meta` replaces the one of its name."""

    buckets: Sequence[BucketRow]
    counters: Sequence[tuple[CounterKey, float | None]]
    meta: dict[str, Any]


def take_changes(aggregator: Aggregator) -> AggregatorChanges:
    """All that changed since the last call. What was taken counts as saved: if writing it fails,
    the aggregator must be given up and restored anew."""
    return AggregatorChanges(
        [*aggregator.windows.drain(), *aggregator.budgets.drain()],
        aggregator.counters.drain(),
        {**aggregator.drain(), **aggregator.dump()},
    )


def restore_aggregator(
    aggregator: Aggregator,
    buckets: Sequence[BucketRow],
    counters: Iterable[tuple[CounterKey, float]],
    meta: Mapping[str, Any],
) -> None:
    """Everything that was ever taken and not replaced or deleted, into a new aggregator. Raises
    ValueError, KeyError, TypeError or AssertionError for what makes no sense."""
    # the rows of the error budgets have negative widths
    aggregator.windows.load([row for row in buckets if row[2] >= 0])
    aggregator.budgets.load([row for row in buckets if row[2] < 0], aggregator.windows.now)
    aggregator.counters.load(counters)
    aggregator.load(dict(meta))


def evidence_trace_ids(aggregator: Aggregator) -> set[tuple[str, str]]:
    """(service, trace id) whose text to keep: what the page shows or may show next, and what
    alerts name."""
    windows = aggregator.windows
    shown = {
        (service, trace_id)
        for service in windows.services()
        for trace_id in windows.worst_ids(service)
    }
    alerts = aggregator.engine.alerts()
    return shown | {(alert.service, name) for alert in alerts for name in alert.worst}
