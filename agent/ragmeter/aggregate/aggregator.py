"""The aggregator of one worker: scored traces in; windows, counters and alerts out.

Pure: it reads no clock and writes no file. Time is event time. Rules are evaluated at fixed steps
of it, at the first event beyond each step, so the same traces in the same order give the same
alerts whatever the wall clock, the batching or the restarts in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ragmeter.aggregate.accounting import ResultAccounting
from ragmeter.aggregate.admission import Admission
from ragmeter.aggregate.counting import Arriving, TraceCounting
from ragmeter.aggregate.evidence import Results
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.counters import CounterKey, Counters, GaugeSample
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import MetricScorer
from ragmeter.metrics.canary.scores import expected_canary_pairs
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartKinds, Parts
from ragmeter.parts.contract import Arrival, PartContext
from ragmeter.parts.views import Announcer, ControlSource, Incident
from ragmeter.sampling.control import SamplingControl
from ragmeter.store.rows import StateCommit
from ragmeter.windows.state import BucketRow
from ragmeter.windows.windows import Windows

_V = TypeVar("_V")


class AppliedRun(NamedTuple):
    """What the aggregator counted since the last one.

    Args:
        alerts: The alerts that fired or resolved on the way to the time of the traces.
        traces: The traces under their bounded names; a trace that came too late has no segments.
    """

    alerts: Sequence[Alert]
    traces: Sequence[Arrival]


class Aggregator:
    """Windows, counters, parts and alerts of all services, by one clock.

    Args:
        settings: The settings of the agent.
        rules: The alert rules to evaluate.
        expected: The (metric, scorer) pairs that each trace has a result for. Canaries have those
            of `ragmeter.metrics.canary.scores.expected_canary_pairs`.
        share: Part of the installation's services that is expected here.
        parts: The features of a service, see `ragmeter.parts.contract`.
        stored_scores: Returns the stored scores of a trace, of a bounded service and a trace id.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        share: float = 1.0,
        parts: PartKinds = (),
        stored_scores: Callable[[str, str], Results] = lambda service, trace_id: (),
    ) -> None:
        self.counters = Counters()
        self.names = Admission(settings, self.counters)
        self.windows = Windows(
            settings.windows,
            specs=metric_specs(),
            min_samples=settings.limits.min_samples,
            name_worst=True,
            worst_of={rule.segment for rule in rules if rule.segment},
            current=self.names.current_series,
        )
        canaries = expected_canary_pairs(
            settings.judge.k, expected, settings.judge.budget.canaries > 0
        )
        self.accounting = ResultAccounting(self.counters, expected, canaries)
        self._counting = TraceCounting(self.windows, self.names, self.accounting)
        context = PartContext(
            settings=settings,
            counters=self.counters,
            count_overflow=self.names.count_overflow,
            counted=self._counting,
            stored_scores=stored_scores,
            windows=self.windows,
            share=share,
            rules=rules,
        )
        self.parts = Parts(parts, context)
        self._notifications: list[Incident] = []
        self._step = settings.alerts.evaluation_seconds
        self._next_step: float | None = None  # a whole multiple of `_step`
        self._turn = 0

    def apply(
        self, scored: ScoredTrace, pending: Sequence[MetricScorer] = (), turn: int = 0
    ) -> AppliedRun:
        """Count one trace, as `apply_all`."""
        *steps, last = self.apply_all([scored], turn, lambda number, late: (scored, pending))
        return AppliedRun([alert for step in steps for alert in step.alerts], last.traces)

    def apply_all(
        self,
        traces: Sequence[ScoredTrace],
        turn: int = 0,
        ready: Callable[[int, bool], Arriving] | None = None,
    ) -> Iterator[AppliedRun]:
        """Count traces in runs, each after moving event time to it.

        A run is of traces of known services, between which nothing changes but sums and the clock.
        So what is counted is the same, byte for byte, however the traces are divided.

        Args:
            traces: Traces that were never applied before; they are not changed.
            turn: The stretch of the queue that they belong to (see `ControlSource`).
            ready: Returns a trace with its pending results by its number, once it is known whether
                it comes too late for every window; None: it is as it is, and nothing is pending.

        Yields:
            Each evaluation of the rules on the way, without traces, and each run.
        """
        if turn != self._turn:
            self._learn()
            self._turn = turn
        first = 0
        while first < len(traces):
            for moved in self.advance_steps(traces[first].timestamp):
                yield AppliedRun(moved, ())
            end = self._counting.end_of_run(traces, first, self._next_step or -math.inf)
            late = self.windows.too_late(traces[first].timestamp)
            run = [
                (traces[number], ()) if ready is None else ready(number, late)
                for number in range(first, end)
            ]
            arrivals = self._counting.count_run(run)
            self._settle_many()
            yield AppliedRun((), arrivals)
            first = end

    def finish(self, scored: ScoredTrace) -> ScoredTrace:
        """Count results of a slow tier, as `TraceCounting.finish`."""
        counted = self._counting.finish(scored)
        self._settle_many()
        return counted

    def add_extra(self, scored: ScoredTrace) -> None:
        """Count results that are expected of no trace: those of a judge's probes."""
        self._counting.add_extra(scored)

    def receive(self, part: str, document: Any, *, at: float, source: str) -> str:
        """Have a part count a document as of Unix time `at`, and return its outcome."""
        self._observe()  # it may be of a trace that was counted just now
        return self.parts[part].receive(document, at, source)

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
            due = min(self.windows.next_expiry(), self.parts.next_due())
            following = max(following, min(last, math.ceil(min(due, now) / self._step)))
        return following * self._step

    def _evaluate(self, at: float) -> list[Alert]:
        self.settle()
        transitions = self.parts.advance(at)
        self.windows.advance(at)
        changed = self.windows.take_changed()
        moved = self.parts.evaluate(at, changed)
        transitions += moved
        transitions += self.parts.hear(transitions, at)
        # only at the steps of event time: when slots are freed must not depend on batches
        if changed and (expired := self.names.free(self.windows)):
            self.counters.forget("service", expired)
            self.parts.retain(self.windows.services())
        self.announce(at)
        return transitions

    def announce(self, at: float) -> None:
        """Choose what to tell people at event time `at`; `take_notifications` gives it."""
        self._notifications += self.parts.find(Announcer).announce(self.parts.alerts(), at)

    def take_notifications(self) -> list[Incident]:
        """Return the incidents to tell people of since the last call."""
        taken, self._notifications = self._notifications, []
        return taken

    def view(self, view: type[_V]) -> _V:
        """Return what a part offers (`ragmeter.parts.views`), up to date with what was applied."""
        self._observe()
        return self.parts.find(view)

    def control(self, turn: int) -> SamplingControl:
        """Return the record of sampling that holds in a turn, when all before it was applied.

        Parts learn for it, and observe later: they count many turns at once at a lower cost.
        """
        self._learn()
        return self.parts.find(ControlSource).control(turn)

    def settle(self) -> None:
        """Bring parts and counters up to date with what was applied, once for many traces.

        Readers of counters call it; `changes` and each evaluation of the rules do.
        """
        self._observe()
        self.accounting.flush_counters()
        if ignored := self.windows.take_ignored_stages():
            self.names.count_overflow("stage", ignored)

    def _learn(self) -> None:
        """Have the parts learn from the traffic of this turn that is new to them."""
        if unlearned := self._counting.take_unlearned():
            self.parts.learn(unlearned, self._turn)

    def _observe(self) -> None:
        """Have the parts observe what was applied, and what that has amended."""
        self._learn()
        while (batch := self._counting.take_unobserved()) is not None:
            self.parts.observe(batch, self.windows.now)

    def _settle_many(self) -> None:
        if self._counting.full:
            self.settle()

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of parts and refused alerts."""
        refused = float(self.parts.refused_alerts)
        return [*self.parts.samples(), ("ragmeter_alerts_refused", (), refused)]

    def changes(self, whole: bool = True) -> StateCommit:
        """Return all that changed since the last call but the notifications of alerts.

        It counts as saved: if writing it fails, give the aggregator up and restore a new one.
        `whole` is that of the windows' `drain`.
        """
        self.settle()
        rows, deleted = self.parts.changes()
        state = {
            "next_step": self._next_step,
            **self.names.saved(),
        }
        return StateCommit(
            upto=0,
            buckets=self.windows.drain(whole),
            counters=self.counters.drain(),
            meta={**state, **rows},
            forget_meta=deleted,
        )

    def restore(
        self,
        buckets: Sequence[BucketRow],
        counters: Iterable[tuple[CounterKey, float]],
        meta: Mapping[str, Any],
    ) -> None:
        """Load all changes that were neither replaced nor deleted, in a new object.

        Raises:
            ValueError, KeyError, TypeError: The rows make no sense.
        """
        self.windows.load(buckets)
        self.counters.load(counters)
        if "next_step" not in meta:
            return
        self.names.restore(meta)
        self.parts.restore(meta)
        self._next_step = meta["next_step"]
