"""The aggregator of one worker: scored traces in; windows, counters and alerts out.

Pure: it reads no clock and writes no file. Time is event time. Rules are evaluated at fixed steps
of it, at the first event beyond each step, so the same traces in the same order give the same
alerts whatever the wall clock, the batching or the restarts in between. `take_changes` gives what
changed as rows for a store, `restore_aggregator` reads such rows back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

from ragmeter.aggregate.accounting import ResultAccounting
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.engine import AlertEngine
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, Counters, GaugeSample
from ragmeter.core.label_bounds import MAX_LABEL_CHARS, LabelBounds
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.series import FingerprintRegistry
from ragmeter.core.tiers import MetricScorer
from ragmeter.metrics.canary.scores import expected_canary_pairs
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartKinds, Parts
from ragmeter.parts.contract import Arrival, PartContext, ScoredBatch
from ragmeter.parts.views import BaselineKeeper, ControlSource
from ragmeter.sampling.control import SamplingControl
from ragmeter.store.rows import StateCommit
from ragmeter.windows.bucket_builder import group_scores
from ragmeter.windows.state import BucketRow
from ragmeter.windows.windows import Windows

IDLE_SECONDS = 1.0  # how often event time moves on while nothing arrives
SAVE_IDLE_SECONDS = 60.0  # how often event time is written down when nothing else changed
_FEW = 8  # traces up to which columns of results cost more than they save
_MAX_UNCOUNTED = 1024  # traces that wait for `settle`: bounds memory


class AppliedTrace(NamedTuple):
    """A scored trace as the aggregator counted it.

    Args:
        trace: The trace under its bounded service and stage names.
        segments: The `tag=value` segments it was counted in; none if it came too late.
        alerts: The alerts that fired or resolved on the way to its time.
    """

    trace: ScoredTrace
    segments: tuple[str, ...]
    alerts: list[Alert]


class Aggregator:
    """Windows, counters and alerts of all services, by one clock.

    Canaries enter the windows of their service in series of their own. They count neither in its
    traffic, times and costs nor in what the sampler learns from traffic.

    Args:
        settings: The settings of the agent.
        rules: The alert rules to evaluate.
        expected: The (metric, scorer) pairs that each trace has a result for. Canaries have those
            of `ragmeter.metrics.canary.scores.expected_canary_pairs`.
        share: Part of the installation's services that is expected here, for the allowance of
            false drift alarms.
        parts: The features of a service, see `ragmeter.parts.contract`.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        share: float = 1.0,
        parts: PartKinds = (),
    ) -> None:
        limits = settings.limits
        self._fingerprints = FingerprintRegistry()
        self.windows = Windows(
            settings.windows,
            specs=metric_specs(),
            min_samples=limits.min_samples,
            name_worst=True,
            worst_of={rule.segment for rule in rules if rule.segment},
            current=self._fingerprints.current,
        )
        self.counters = Counters()
        canary_pairs = expected_canary_pairs(
            settings.judge.k, expected, settings.judge.budget.canaries > 0
        )
        self._accounting = ResultAccounting(self.counters, expected, canary_pairs)
        self._uncounted: list[ScoredTrace] = []
        # what the parts have not observed
        self._unobserved: list[ScoredTrace] = []
        self._arrivals: list[Arrival] = []
        self._turn = 0
        self.waiting = self._accounting.pending
        self._bounds = LabelBounds(
            services=limits.services,
            segment_values=limits.segment_values,
            chars=MAX_LABEL_CHARS,
            overflow=self._overflow,
            reserved=limits.reserved,
        )
        context = PartContext(
            settings=settings,
            counters=self.counters,
            count_overflow=self._overflow,
            windows=self.windows,
            share=share,
        )
        self.parts = Parts(parts, context)
        self.engine = AlertEngine(
            rules, runbooks=settings.alerts.runbook_base, others=self.parts.alerts
        )
        self._segments = settings.segments
        self._step = settings.alerts.evaluation_seconds
        self._next_step: float | None = None  # a whole multiple of `_step`

    def apply(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer] = (), turn: int = 0
    ) -> AppliedTrace:
        """Count one scored trace, after moving event time to it.

        Args:
            scored: A trace that was never applied before; it is not changed.
            pending: The pairs whose results a slow tier will `finish`.
            turn: The stretch of the queue that the trace belongs to (see `ControlSource`).
        """
        alerts = [] if self.is_past(scored.timestamp) else self.advance(scored.timestamp)
        if scored.canary:
            return self._apply_canary(scored, pending, alerts)
        if turn != self._turn:
            self._observe()
            self._turn = turn
        trace, segments, late = self._add_to_windows(scored, traffic=True)
        self._accounting.count_pending(pending, late)
        if not late:
            self._arrivals.append(Arrival(trace, segments))
        self._count_later(trace)
        return AppliedTrace(trace, segments, alerts)

    def apply_all(self, traces: Sequence[ScoredTrace]) -> Iterator[list[AppliedTrace]]:
        """Do as `apply` with each trace, at a third of the cost, and yield them in runs.

        A run is of traces of one service, between which nothing changes but sums and the clock. So
        what is counted is the same, byte for byte, however the traces are divided.
        """
        first = 0
        while first < len(traces):
            alerts = self.advance(traces[first].timestamp)
            end = self._end_of_run(traces, first)
            run = traces[first:end]
            first = end
            if len(run) > _FEW:
                yield self._apply_run(run, alerts)
            else:
                applied = [self.apply(scored) for scored in run]
                yield [applied[0]._replace(alerts=alerts), *applied[1:]]

    def _end_of_run(self, traces: Sequence[ScoredTrace], first: int) -> int:
        service = traces[first].service
        bounds = self._bounds
        oldest, edge = self.windows.open_range()
        edge = min(
            edge,
            self._next_step or -math.inf,
            ((self.windows.now or 0) // 60 + 1) * 60,  # names are admitted by the minute
        )
        if bounds.service(service, admit=False) != service:
            return first + 1  # `__other__`, new, or with another name
        stages: set[str] = set()
        for number in range(first, len(traces)):
            one = traces[number]
            if not oldest <= one.timestamp < edge or one.service != service or one.canary:
                return max(number, first + 1)
            if one.partial:
                return max(number, first + 1)
            if not stages.issuperset(one.timings):
                stages.update(one.timings)
                if not all(map(bounds.fits, stages)):
                    return max(number, first + 1)
        return len(traces)

    def _apply_run(self, run: Sequence[ScoredTrace], alerts: list[Alert]) -> list[AppliedTrace]:
        service = run[0].service
        self._bounds.service(service, now=self.windows.now)
        self.advance(max([one.timestamp for one in run]))
        segments: list[tuple[str, ...]] = [()] * len(run)
        if self._segments:
            segments = [self._bound_segments(one) for one in run]
        for pair, scores, _ in group_scores(run):
            self._accounting.count_column(pair, scores)
        self.windows.add_all(run, service, segments)
        self._arrivals += map(Arrival, run, segments)
        self._unobserved += run
        self._uncounted += run
        if len(self._uncounted) >= _MAX_UNCOUNTED:
            self.settle()
        first, *others = map(AppliedTrace, run, segments, repeat([]))
        return [first._replace(alerts=alerts), *others]

    def _bound_segments(self, trace: ScoredTrace) -> tuple[str, ...]:
        service = trace.service
        tags = trace.tags
        bound = self._bounds.segment
        return tuple([bound(service, tag, tags[tag]) for tag in self._segments if tag in tags])

    def _apply_canary(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer], alerts: list[Alert]
    ) -> AppliedTrace:
        # Only results of the reference and the judge count, without a trace that was seen, timed
        # or paid for.
        results = [score for score in scored.results if is_canary_scorer(score.scorer)]
        bare = scored._replace(results=results, timings={}, partial=True)
        bare, segments, late = self._add_to_windows(bare)
        self._accounting.count_canary()
        self._accounting.count_pending(pending, late)
        self._count_later(bare)
        status = (("service", bare.service), ("status", scored.status))
        self.counters.inc("rag_canaries_total", status)
        return AppliedTrace(scored._replace(service=bare.service), segments, alerts)

    def finish(self, scored: ScoredTrace) -> ScoredTrace:
        """Count results of a slow tier in the buckets of the time of their trace.

        `scored.partial` must be set. Returns the same results under bounded names.
        """
        self._accounting.remove_pending(scored.results)
        trace, _, _ = self._add_to_windows(scored)
        self._count_later(trace)
        return trace

    def lose(self, results: Sequence[Score]) -> None:
        """Count pending results of a trace that cannot be read any more."""
        self._accounting.remove_pending(results)
        self._accounting.count_final(results)

    def add_extra(self, scored: ScoredTrace) -> None:
        """Count results that are expected of no trace: those of a judge's probes."""
        self._accounting.count_unexpected(scored.results)
        self._add_to_windows(scored)

    def amend(self, old: ScoredTrace, new: ScoredTrace, segments: Sequence[str]) -> bool:
        """Replace results of people's labels for a trace that was counted in `segments`.

        Both are partial and under bounded names; a corrected result counts as another one. Returns
        False if no window reaches back to the trace.
        """
        if self.windows.too_late(new.timestamp):
            return False
        self._accounting.count_unexpected(new.results)
        self._accounting.count_final(new.results)
        if old.results:
            self.windows.retract(old, new.service, segments)
        if new.results:
            self.windows.add(new, new.service, segments)
        return True

    def _add_to_windows(
        self, scored: ScoredTrace, traffic: bool = False
    ) -> tuple[ScoredTrace, tuple[str, ...], bool]:
        """Return the trace under its bounded names, its segments, and whether it is too late."""
        late = self.windows.too_late(scored.timestamp)
        trace = self._bound_names(scored, late, self.windows.now if traffic else None)
        if late:
            self._accounting.count_late((score.metric, score.scorer) for score in trace.results)
            return trace, (), True
        segments = self._bound_segments(trace)
        self._accounting.count_final(trace.results)
        counted = trace
        if trace.partial:  # only slow tiers have fingerprints
            counted = trace._replace(results=[self._in_series(score) for score in trace.results])
        self.windows.add(counted, trace.service, segments)
        return trace, segments, False

    def _bound_names(self, scored: ScoredTrace, late: bool, now: float | None) -> ScoredTrace:
        """Bound the names of the service and the stages; a copy only if one of them changes.

        `now` is event time for traffic, None for what else is counted.
        """
        service = scored.service
        timings = scored.timings
        # A late trace has no window, so it takes no slot from other services. Rules look for
        # probes by name: their service needs no slot.
        if service != PROBE_SERVICE:
            service = self._bounds.service(service, admit=not late, now=now)
        if not late and not all(map(self._bounds.fits, timings)):
            timings = {self._bounds.bound(stage): value for stage, value in timings.items()}
        if service == scored.service and timings is scored.timings:
            return scored
        return scored._replace(service=service, timings=timings)

    def _in_series(self, score: Score) -> Score:
        """Name the scorer after the series that the score's fingerprint belongs to."""
        name, changed = self._fingerprints.assign_series(score)
        if changed:
            labels = (("metric", score.metric), ("scorer", score.scorer))
            self.counters.inc("ragmeter_instrument_changes_total", labels)
        return score if name == score.scorer else replace(score, scorer=name)

    def _count_later(self, scored: ScoredTrace) -> None:
        """Count a trace at the next `settle`: many of them cost little more than one."""
        self._uncounted.append(scored)
        self._unobserved.append(scored)
        if len(self._uncounted) >= _MAX_UNCOUNTED:
            self.settle()

    def is_past(self, now: float) -> bool:
        """Return whether event time has come to `now`, so that `advance` would change nothing."""
        reached = self.windows.now
        return reached is not None and now <= reached and now < (self._next_step or 0.0)

    def advance(self, now: float) -> list[Alert]:
        """Move event time to `now`, evaluate the rules at every step, and return moved alerts."""
        return [alert for moved in self.advance_steps(now) for alert in moved]

    def advance_steps(self, now: float) -> Iterator[list[Alert]]:
        """Do as `advance`, and yield the moved alerts after each evaluation of the rules.

        In a gap between two traces nothing changes but time. So the rules are evaluated only at the
        steps at which something can change: traces leave a window, a duration of a rule runs out,
        a part is due; and at the last one. What they give is what every step would give.
        """
        if self._next_step is None:
            self._next_step = (math.floor(now / self._step) + 1) * self._step
        while self._next_step <= now:
            at = self._next_step
            moved = self._evaluate(at)
            self._next_step = self._following_step(at, now)
            yield moved
        self.windows.advance(now)

    def _following_step(self, at: float, now: float) -> float:
        following = round(at / self._step) + 1
        last = math.floor(now / self._step)
        if following < last:
            due = min(self.windows.next_expiry(), self.engine.next_due(at), self.parts.next_due())
            following = max(following, min(last, math.ceil(min(due, now) / self._step)))
        return following * self._step

    def _evaluate(self, at: float) -> list[Alert]:
        self.settle()
        transitions = self.parts.advance(at)
        self.windows.advance(at)
        changed = self.windows.take_changed()
        moved = self.engine.evaluate(self.windows, at, changed)
        transitions += [*moved, *self.parts.hear(moved, at)]
        if changed:
            self._free_slots()
        self.engine.fold(at)
        return transitions

    def _free_slots(self) -> None:
        """Free slots and counters of services and fingerprints that have left every window."""
        # only at the steps of event time: when it happens must not depend on batches
        services = self.windows.services()
        expired = self._bounds.retain_services(services)
        if expired:
            self.counters.forget("service", expired)
            self.parts.retain(services)
        for service in self._bounds.services_with_full_segments():
            self._bounds.retain_segments(service, self.windows.segments(service))
        if self._fingerprints.full:
            self._fingerprints.retain(
                {pair for service in services for pair in self.windows.series(service)}
            )

    def promote(self, service: str | None) -> tuple[dict[str, Any], list[Alert]] | None:
        """Make the present the baseline of a service, or of all: `BaselineKeeper.promote`."""
        self._observe()
        promoted = self.parts.find(BaselineKeeper).promote(service, self.windows.now)
        if promoted is not None and self.windows.now is not None:
            self.engine.fold(self.windows.now)
        return promoted

    def label(self, service: str) -> str:
        """Return the bounded name of a service in the windows, `__other__` if it has none."""
        return self._bounds.service(service, admit=False)

    def unnamed_services(self) -> list[str]:
        """Return services that are counted as `__other__`, those with most traffic first."""
        return self._bounds.others()

    def control(self, turn: int) -> SamplingControl:
        """Return what the sampler should know in this turn, after all earlier ones."""
        self._observe()
        return self.parts.find(ControlSource).control(turn)

    @property
    def latest_control(self) -> SamplingControl:
        """What the sampler should know of all traces so far."""
        self._observe()
        return self.parts.find(ControlSource).latest_control

    def resample(self, settings: SamplingSettings) -> None:
        """Follow other rates and strata from the next trace on."""
        self._observe()
        self.parts.resample(settings)

    def settle(self) -> None:
        """Bring the counters up to date with what was applied, once for many traces.

        Readers of counters call it; `take_changes` and each evaluation of the rules do.
        """
        self._observe()
        traces, self._uncounted = self._uncounted, []
        if traces:
            self._accounting.count_traces([scored for scored in traces if not scored.partial])
        self._accounting.flush_counters()
        if ignored := self.windows.take_ignored_stages():
            self._overflow("stage", ignored)

    def _observe(self) -> None:
        """Have the parts observe what was applied."""
        traces, self._unobserved = self._unobserved, []
        arrivals, self._arrivals = self._arrivals, []
        if traces or arrivals:
            self.parts.observe(ScoredBatch(traces, arrivals, self._turn), self.windows.now)

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of parts and refused alerts."""
        refused = float(self.engine.overflow + self.parts.refused_alerts)
        return [*self.parts.samples(), ("ragmeter_alerts_refused", (), refused)]

    def _overflow(self, label: str, by: int = 1) -> None:
        self.counters.inc("ragmeter_label_overflow_total", (("label", label),), by)

    def dump(self) -> dict[str, Any]:
        """Return the small part of the state, JSON-able; counters and windows are saved apart."""
        return {
            "alerts": self.engine.dump(),
            "labels": self._bounds.dump(),
            "fingerprints": self._fingerprints.dump(),
            "next_step": self._next_step,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `dump` and the parts gave; call it after `windows.load`."""
        if "alerts" not in state:
            return
        self.engine.load(state["alerts"])
        self._bounds.load(state["labels"])
        self._fingerprints.load(state["fingerprints"])
        self.parts.restore(state)
        self._next_step = state["next_step"]


def take_changes(aggregator: Aggregator, whole: bool = True) -> StateCommit:
    """Return all that changed since the last call but the notifications of alerts.

    It counts as saved: if writing it fails, give the aggregator up and restore a new one. `whole`
    is that of the windows' `drain`.
    """
    aggregator.settle()
    buckets = aggregator.windows.drain(whole)
    rows, deleted = aggregator.parts.changes()
    return StateCommit(
        upto=0,
        buckets=buckets,
        counters=aggregator.counters.drain(),
        meta={**aggregator.dump(), **rows},
        forget_meta=deleted,
    )


def restore_aggregator(
    aggregator: Aggregator,
    buckets: Sequence[BucketRow],
    counters: Iterable[tuple[CounterKey, float]],
    meta: Mapping[str, Any],
) -> None:
    """Load all changes that were taken and neither replaced nor deleted into a new aggregator.

    Raises:
        ValueError, KeyError, TypeError: The rows make no sense.
    """
    aggregator.windows.load(buckets)
    aggregator.counters.load(counters)
    aggregator.load(dict(meta))


def evidence_trace_ids(aggregator: Aggregator) -> set[tuple[str, str]]:
    """Return (service, trace id) of the traces that the page or an alert may show."""
    windows = aggregator.windows
    shown = {
        (service, trace_id)
        for service in windows.services()
        for trace_id in windows.worst_ids(service)
    }
    alerts = aggregator.engine.alerts()
    return shown | {(alert.service, name) for alert in alerts for name in alert.worst}
