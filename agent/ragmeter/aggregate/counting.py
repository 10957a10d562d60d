"""Count scored traces: in their windows, as results, and for the parts, which observe many at once.

Pure: it reads no clock and writes no file. Its caller moves event time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.aggregate.accounting import ResultAccounting
from ragmeter.aggregate.admission import Admission
from ragmeter.core.score import ScoredTrace
from ragmeter.core.tiers import MetricScorer
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.parts.contract import Arrival, ScoredBatch
from ragmeter.windows.windows import Windows

_FEW = 8  # traces up to which columns of results cost more than they save
_MAX_WAITING = 1024  # traces that wait to be observed: bounds memory

Arriving = tuple[ScoredTrace, Sequence[MetricScorer]]
"""A trace that was never counted, and the pairs whose results a slow tier will `finish`."""


class TraceCounting:
    """Counts scored traces of all services under bounded names.

    Canaries enter the windows of their service in series of their own. They count neither in its
    traffic, times and costs nor in what parts learn from traffic.

    Args:
        windows: The windows of all services.
        names: Admits their names.
        accounting: Counts results.
    """

    def __init__(self, windows: Windows, names: Admission, accounting: ResultAccounting) -> None:
        self.windows = windows
        self._names = names
        self._accounting = accounting
        # what the parts have not observed
        self._traces: list[ScoredTrace] = []
        self._arrivals: list[Arrival] = []
        self._canaries: list[ScoredTrace] = []
        self._later: list[Arrival] = []
        self._learned = 0  # how many of `_arrivals` the parts have learned from

    @property
    def full(self) -> bool:
        """Whether the parts must observe now, as so many traces wait for them."""
        return max(len(self._traces), self._accounting.uncounted) >= _MAX_WAITING

    def take_unlearned(self) -> Sequence[Arrival]:
        """Return the traffic that the parts have not learned from."""
        unlearned = self._arrivals[self._learned :]
        self._learned = len(self._arrivals)
        return unlearned

    def take_unobserved(self) -> ScoredBatch | None:
        """Return what the parts have not observed, or None; they have learned from all of it."""
        if not self._traces and not self._later:
            return None
        batch = ScoredBatch(
            traces=self._traces,
            arrivals=self._arrivals,
            canaries=self._canaries,
            later=self._later,
        )
        self._traces = []
        self._arrivals = []
        self._canaries = []
        self._later = []
        self._learned = 0
        return batch

    def end_of_run(self, traces: Sequence[ScoredTrace], first: int, edge: float) -> int:
        """Return where the run ends that begins with a trace: behind it at least.

        A run is of traffic of known services, between whose traces nothing changes but sums and the
        clock.

        Args:
            traces: Traces that were never counted.
            first: The number of the trace.
            edge: An event time that no run reaches.
        """
        oldest, end = self.windows.open_range()
        minute = ((self.windows.now or 0) // 60 + 1) * 60  # names are admitted by the minute
        edge = min(edge, end, minute)
        known: set[str] = set()
        for number in range(first, len(traces)):
            one = traces[number]
            if one.service not in known:
                if self._names.label(one.service) != one.service:
                    return max(number, first + 1)  # `__other__`, new, or with another name
                known.add(one.service)
            if (
                not oldest <= one.timestamp < edge
                or one.canary
                or one.partial
                or not self._names.fit(one.timings)
            ):
                return max(number, first + 1)
        return len(traces)

    def count_run(self, arriving: Sequence[Arriving]) -> list[Arrival]:
        """Count the traces of a run."""
        if len(arriving) <= _FEW:
            return [self._count_one(scored, pending) for scored, pending in arriving]
        run = [scored for scored, _ in arriving]
        now = self.windows.now
        self.windows.advance(max([one.timestamp for one in run]))
        arrivals = [Arrival(one, self._names.segments(one), one.service) for one in run]
        self._accounting.count_final_of_run(run)
        for _, pending in arriving:
            self._accounting.count_pending(pending, late=False)
        by_service: dict[str, list[Arrival]] = {}
        for arrival in arrivals:
            by_service.setdefault(arrival.sent_as, []).append(arrival)
        for service, own in by_service.items():
            self._names.see(service, now)
            self.windows.add_all([one.trace for one in own], service, [one.segments for one in own])
        self._arrivals += arrivals
        self._leave_to_parts(run)
        return arrivals

    def _count_one(self, scored: ScoredTrace, pending: Sequence[MetricScorer]) -> Arrival:
        self.windows.advance(scored.timestamp)
        late = self.windows.too_late(scored.timestamp)
        self._accounting.count_pending(pending, late)
        if scored.canary:
            # Only results of the reference and the judge count, without a trace that was seen,
            # timed or paid for.
            results = [score for score in scored.results if is_canary_scorer(score.scorer)]
            bare = scored._replace(results=results, timings={}, partial=True)
            counted = self._add_to_windows(bare)
            self._accounting.count_canary()
            self._canaries.append(counted.trace)
            self._leave_to_parts([counted.trace])
            return counted._replace(trace=scored._replace(service=counted.trace.service))
        counted = self._add_to_windows(scored, self.windows.now)
        if not late:
            self._arrivals.append(counted)
        self._leave_to_parts([counted.trace])
        return counted

    def _add_to_windows(self, scored: ScoredTrace, now: float | None = None) -> Arrival:
        """Count results in their windows; `now` is event time for traffic, None for others."""
        late = self.windows.too_late(scored.timestamp)
        trace = self._names.bound(scored, late, now)
        if late:
            self._accounting.count_late((score.metric, score.scorer) for score in trace.results)
            return Arrival(trace, (), scored.service)
        segments = self._names.segments(trace)
        self._accounting.count_final(trace.results)
        # only slow tiers have fingerprints
        counted = self._names.in_series(trace) if trace.partial else trace
        self.windows.add(counted, trace.service, segments)
        return Arrival(trace, segments, scored.service)

    def _leave_to_parts(self, traces: Sequence[ScoredTrace]) -> None:
        """Leave traces to the next observation: many of them cost little more than one."""
        self._traces += traces
        self._accounting.count_traces(traces)

    def finish(self, scored: ScoredTrace) -> ScoredTrace:
        """Count results of a slow tier in the buckets of the time of their trace.

        `scored.partial` must be set. Returns the same results under bounded names.
        """
        self._accounting.remove_pending(scored.results)
        counted = self._add_to_windows(scored)
        if not scored.canary:
            self._later.append(counted)
        self._leave_to_parts([counted.trace])
        return counted.trace

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
            self._later.append(Arrival(new, tuple(segments), new.service))
        return True

    def label(self, service: str) -> str:
        """Return the bounded name of a service in the windows, `__other__` if it has none."""
        return self._names.label(service)
