"""The part `drift`: it watches the questions of every service, and tells where one moves.

It looks at whole minutes of event time, so that batches and restarts change nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ragmeter.alerts.alert import MAX_WORST, Alert
from ragmeter.core.durations import parse_window
from ragmeter.core.score import BUILTIN_SCORER
from ragmeter.parts.contract import Event, Part, PartContext, ScoredBatch
from ragmeter.parts.drift.detector import (
    DAY,
    FINE,
    HOUR,
    KEPT_FINE,
    KEPT_HOURS,
    YOUNG_DAYS,
    BucketSums,
    Deviation,
    Extremes,
    SeriesSpec,
    TrafficSums,
    Usual,
    UsualColumns,
    WindowScores,
    count_odd_hours,
    estimate_onset,
    find_worst,
    learn_usual,
    score_windows,
    usual_columns,
    usual_end,
)
from ragmeter.parts.drift.settings import DriftDetectionSettings, DriftPartSettings
from ragmeter.parts.drift.signals import (
    BACK_SECONDS,
    Standing,
    begin,
    describe,
    end,
    estimate_harm,
    is_back,
    is_worse,
    judge_severity,
    measure_recent,
    measure_since,
)
from ragmeter.parts.views import BaselineKeeper, RequestHistory, RequestSeries
from ragmeter.windows.log_histogram import LogHistogram, cell_index
from ragmeter.windows.windows import Windows

MINUTE = 60.0

# After so long without a request everything was read: a night without traffic costs no looks.
_SILENCE = 7 * HOUR

# Without a request for so long a number is not known to be back.
_QUIET = 900.0

# Requests after which a look is taken at the next minute, and not only at the next five.
_MANY = 4

# The metrics that a series of failures is made of; the alert is about the most frequent one.
_FAILURES: Mapping[str, tuple[str, ...]] = {
    "works": ("error", "timeout", "empty_answer"),
    "uncut": ("cut_answer", "filtered_answer"),
}

_METRICS: Mapping[str, tuple[str, str]] = {
    "works": ("error", BUILTIN_SCORER),
    "fast": ("latency", ""),
    "answered": ("answered", BUILTIN_SCORER),
    "uncut": ("cut_answer", BUILTIN_SCORER),
    "grounded": ("grounding", BUILTIN_SCORER),
    "retrieved": ("relevance", BUILTIN_SCORER),
    "cited": ("citation_precision", BUILTIN_SCORER),
    "cost": ("cost_usd", BUILTIN_SCORER),
}
"""The metric and scorer that the alert on a question is about."""


def _reference(mean: float) -> Usual:
    return Usual(
        mean=mean,
        variance=mean * (1 - mean),
        worth=100.0,
        levels=(mean,) * 48,
        days=0.0,
    )


# What a question is compared with before anything is known of a service. One failed question of
# thirty whose client tries twice more makes 8.5 % of requests: that may be usual, more is not.
# Of the questions to DelucionQA's assistant 88 % were answered, to the mixed ones of MTRAG-UN 60 %.
# Cheap scores have no level: between tasks their means are as far apart as half of the answers
# hallucinated moves one (docs/drift.md).
_REFERENCES = {"works": _reference(0.90), "answered": _reference(0.70)}
_ODD = 0.05  # a first usual that is so much worse than that is not believed on its first day


@dataclass(slots=True)
class ServiceDrift:
    """What is saved of a service.

    Args:
        standing: The series that are away from their usual.
        ended: Alerts that lately ended.
        past: By series, the times (from, to) of the last two weeks that are no usual.
        learned_from: Since when requests count for the usual.
        extremes: By series, what calm days have reached.
    """

    standing: dict[str, Standing] = field(default_factory=dict)
    ended: list[Alert] = field(default_factory=list)
    past: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    learned_from: float = 0.0
    extremes: dict[str, Extremes] = field(default_factory=dict)


@dataclass(slots=True)
class DriftClock:
    """What is saved of no one service.

    Args:
        next: The next look; None before the first request.
        heard: By service, the time of its latest request.
        fresh: By service, how many requests came since its last look.
    """

    next: float | None = None
    heard: dict[str, float] = field(default_factory=dict)
    fresh: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class LearnedUsual:
    """What the closed hours of a service tell, learned once an hour.

    Args:
        hour: When it was learned: the beginning of that hour, in Unix seconds.
        usual: By series; those of which too little is known are absent.
        design: The design effect of each series.
    """

    hour: float
    usual: dict[str, Usual]
    design: dict[str, float]


DriftState = DriftClock | ServiceDrift | LearnedUsual
"""A row of the state."""

_CLOCK = "clock"
_SERVICE = "service/"
_USUAL = "usual/"


def specs(settings: DriftDetectionSettings) -> tuple[SeriesSpec, ...]:
    """Return the series that are watched."""
    least = settings.least
    return (
        SeriesSpec("works", -1, least["works"], failures=True),
        SeriesSpec("fast", 1, math.log(1 + least["fast"])),
        SeriesSpec("answered", -1, least["answered"]),
        SeriesSpec("uncut", -1, least["uncut"], failures=True),
        SeriesSpec("grounded", -1, least["grounded"]),
        SeriesSpec("retrieved", -1, least["retrieved"]),
        SeriesSpec("cited", -1, least["cited"]),
        SeriesSpec("cost", 1, 0.0, relative=least["cost"]),
    )


class DriftPart(Part[DriftState], BaselineKeeper):
    """Watches the questions of all services.

    Args:
        settings: Whether to watch, and which change matters.
        windows: The windows, for worst traces and times.
        history: Returns the sums of requests.
    """

    name = "drift"
    package = __package__
    settings = DriftPartSettings
    state: ClassVar[Any] = DriftState

    def __init__(
        self,
        settings: DriftDetectionSettings,
        windows: Windows,
        history: Callable[[], RequestHistory],
    ) -> None:
        self.enabled = settings.enabled
        self._specs = specs(settings)
        self._windows = windows
        self._history = history
        self._clock = DriftClock()
        self._services: dict[str, ServiceDrift] = {}
        self._learned: dict[str, LearnedUsual] = {}
        self._columns: dict[str, UsualColumns] = {}  # what was learned, as arrays
        self._touched: dict[str, None] = {}
        self._relearned: dict[str, None] = {}
        self._clock_changed = False

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which watches nothing yet."""
        return cls(
            context.section(DriftPartSettings).drift,
            context.windows,
            lambda: context.find(RequestHistory),
        )

    def observe(self, run: ScoredBatch, now: float | None) -> None:
        """Note which services have requests."""
        if not self.enabled or not run.arrivals:
            return
        if self._clock.next is None:
            self._skip(run.arrivals[0].trace.timestamp)
        heard, fresh = self._clock.heard, self._clock.fresh
        for arrival in run.arrivals:
            trace = arrival.trace
            heard[trace.service] = max(heard.get(trace.service, -math.inf), trace.timestamp)
            fresh[trace.service] = fresh.get(trace.service, 0) + 1
        self._clock_changed = True

    def advance(self, now: float) -> Sequence[Event]:
        """Look at every whole minute up to event time `now`, and return moved alerts."""
        moved: list[Alert] = []
        for at in self._due(now):
            self._windows.advance(at)
            for service in sorted(self._clock.heard):
                if self._is_due(service, at):
                    self._clock.fresh.pop(service, None)
                    moved += self._look(service, at)
            for service, drift in self._services.items():
                kept = [alert for alert in drift.ended if not alert.is_expired(at)]
                if len(kept) < len(drift.ended):
                    drift.ended = kept
                    self._touched[service] = None
        return moved

    def _is_due(self, service: str, at: float) -> bool:
        """Return whether a look at a service can find anything that is worth its time.

        One costs as much as scoring two requests.
        """
        drift = self._services.get(service)
        if drift is not None and drift.standing:
            return True
        fresh = self._clock.fresh.get(service, 0)
        return fresh >= _MANY or (fresh > 0 and at % FINE == 0)

    def _due(self, until: float) -> Iterator[float]:
        while self._clock.next is not None and self._clock.next <= until:
            at = self._clock.next
            if at > self._latest + _SILENCE:
                self._skip(until)
                return
            self._clock.next += MINUTE
            self._clock_changed = True
            yield at

    @property
    def _latest(self) -> float:
        return max(self._clock.heard.values(), default=-math.inf)

    def _skip(self, to: float) -> None:
        """Go on with the first whole minute after `to`: event time begins or jumps."""
        if self._clock.next is None or self._clock.next <= to:
            self._clock.next = math.floor(to / MINUTE) * MINUTE + MINUTE
            self._clock_changed = True

    def next_due(self) -> float:
        """Return the event time of the next look if no request comes."""
        due = self._clock.next
        if not self.enabled or due is None or due > self._latest + _SILENCE:
            return math.inf
        if any(drift.standing for drift in self._services.values()):
            return due
        fresh = max(self._clock.fresh.values(), default=0)
        if fresh >= _MANY:
            return due
        return math.ceil(due / FINE) * FINE if fresh else math.inf

    def _look(self, service: str, now: float) -> list[Alert]:
        """Look at a service at event time `now`, and return what moved."""
        drift = self._services.setdefault(service, ServiceDrift())
        known = self._learned.get(service)
        hour = now // HOUR * HOUR
        if known is None or known.hour != hour:
            known = self._learned[service] = self._learn(service, drift, hour)
            self._relearned[service] = None
            self._columns.pop(service, None)
        history = self._history()
        sums = _sums_of(
            self._specs,
            fine=history.request_sums(service, FINE, now - KEPT_FINE, now),
            hours=history.request_sums(service, HOUR, now - DAY, now),
            design=known.design,
            now=now,
        )
        if sums is None:
            return []
        for place, spec in enumerate(self._specs):
            for begun, over in drift.past.get(spec.name, []):
                if over > now - DAY and spec.name not in drift.standing:
                    sums = sums.without(place, begun, over)
        columns = self._columns.get(service)
        if columns is None:
            columns = self._columns[service] = self._usual_columns(known)
        scores = score_windows(sums, columns)
        moved: list[Alert] = []
        for place, spec in enumerate(self._specs):
            standing = drift.standing.get(spec.name)
            if standing is not None:
                moved += self._follow(
                    service, drift, spec=spec, sums=sums.of(place), standing=standing, now=now
                )
                continue
            moved += self._search(
                service, drift, place=place, sums=sums, scores=scores, known=known, now=now
            )
        return moved

    def _usual_columns(self, known: LearnedUsual) -> UsualColumns:
        """Return the usual of all series, or the reference until theirs is known."""
        return usual_columns(self._specs, _REFERENCES | known.usual)

    def _learn(self, service: str, drift: ServiceDrift, hour: float) -> LearnedUsual:
        """Learn the usual of each series from the hours before `hour`, without what is none."""
        history = self._history()
        first = max(hour - KEPT_HOURS, drift.learned_from)
        hours = history.request_sums(service, HOUR, first, hour)
        if hours is not None:
            last = usual_end(float(hours.starts[0]), hour)
            hours = history.request_sums(service, HOUR, first, last)
        design = history.design_effects(service, HOUR, hour - DAY, hour)
        largest = max(design.values(), default=1.0)
        usual: dict[str, Usual] = {}
        for spec in self._specs:
            if hours is None or spec.name not in hours.names:
                continue
            past = drift.past.get(spec.name, [])
            kept = np.ones(len(hours.starts), dtype=bool)
            for begun, over in past:
                kept &= (hours.starts + HOUR <= begun) | (hours.starts >= over)
            own = design.get(spec.name, 1.0)
            if spec.name in ("fast", "cost"):
                own = largest  # of a change of theirs it is not known: take the most of the shares
            starts = hours.starts[kept]
            sums = hours.sums[kept, hours.names.index(spec.name)]
            odd = count_odd_hours(spec, sums, own) if len(sums) <= 24 else 0
            if odd:
                span = (float(starts[0]), float(starts[odd - 1]) + HOUR)
                past = drift.past[spec.name] = [*past, span]
                self._touched[service] = None
            found = learn_usual(starts[odd:], sums[odd:], own)
            if found is not None and not _is_odd(found, _REFERENCES.get(spec.name)):
                usual[spec.name] = found
            recent = [span for span in past if span[1] > hour - KEPT_HOURS]
            if len(recent) < len(past):
                drift.past[spec.name] = recent
                self._touched[service] = None
        return LearnedUsual(hour, usual, {**dict.fromkeys(("fast", "cost"), largest), **design})

    def _search(
        self,
        service: str,
        drift: ServiceDrift,
        *,
        place: int,
        sums: TrafficSums,
        scores: WindowScores,
        known: LearnedUsual,
        now: float,
    ) -> list[Alert]:
        """Look for a series that leaves its usual."""
        spec = self._specs[place]
        usual = known.usual.get(spec.name, _REFERENCES.get(spec.name))
        if usual is None:
            return []
        day = int(now // DAY)
        extremes = drift.extremes.get(spec.name, Extremes())
        young = usual.days < YOUNG_DAYS
        finding = find_worst(spec, place, scores=scores, young=young, highest=extremes.highest(day))
        if finding is not None and spec.failures:
            # Retries of one question fail together, as the clusters of this window tell: before
            # the first failures of a service nothing else did.
            sums = self._with_own_design(service, place, sums, finding.seconds)
            scores = score_windows(sums, self._columns[service])
            finding = find_worst(
                spec, place, scores=scores, young=young, highest=extremes.highest(day)
            )
        if finding is None:
            if extremes.note(day, scores.score[:, place].tolist()):
                drift.extremes[spec.name] = extremes
                self._touched[service] = None
            return []
        own = sums.of(place)
        onset = estimate_onset(spec, own, usual)
        extremes.drop_from(int(onset[0] // DAY))
        metric, scorer = _METRICS[spec.name]
        if spec.failures:
            metric = self._main_failure(service, _FAILURES[spec.name])
        standing = begin(
            spec,
            service=service,
            metric=metric,
            scorer=scorer,
            finding=finding,
            usual=usual,
            onset=onset,
            window=self._window_since(onset[0], now),
            now=now,
        )
        drift.standing[spec.name] = standing
        self._refresh(spec, standing, own, recent=finding, now=now)
        self._touched[service] = None
        return [standing.alert.copy()]

    def _with_own_design(
        self, service: str, place: int, sums: TrafficSums, seconds: int
    ) -> TrafficSums:
        """Return sums with the design effect of a window of a series, if that is larger."""
        width = FINE if seconds <= KEPT_FINE else HOUR
        first = sums.now // width * width - (seconds - width)
        found = self._history().design_effects(service, width, first, sums.now)
        design = sums.design.copy()
        design[place] = max(design[place], found.get(self._specs[place].name, 1.0))
        return sums._replace(design=design)

    def _window_since(self, since: float, now: float) -> str:
        """Return the shortest window that reaches back to a time, else the longest."""
        names = sorted(self._windows.names, key=parse_window)
        return next((name for name in names if parse_window(name) >= now - since), names[-1])

    def _main_failure(self, service: str, metrics: Sequence[str]) -> str:
        def share(metric: str) -> float:
            for window in self._windows.names:
                found = self._windows.estimate(
                    service=service,
                    segment="",
                    metric=metric,
                    scorer=BUILTIN_SCORER,
                    window=window,
                )
                if found is not None:
                    return found.value
            return 0.0

        return max(metrics, key=share)

    def _refresh(
        self,
        spec: SeriesSpec,
        standing: Standing,
        sums: BucketSums,
        *,
        recent: Deviation,
        now: float,
    ) -> None:
        """Have the alert say what the number is since the onset, and how bad that is."""
        alert = standing.alert
        level = measure_since(spec, standing, sums, now) or recent
        describe(spec, standing, level, now)
        # what is bad now counts, and so does what has been bad all the time
        worst = max(level, recent, key=lambda one: one.distance)
        harm = estimate_harm(spec, worst.distance)
        lower = estimate_harm(spec, worst.distance - 1.64 * worst.error)
        if spec.name == "fast":
            harm = lower = self._slow_share(alert, now)
        alert.harm = harm
        if judge_severity(harm, lower) == "critical":
            alert.severity = "critical"
        metric, scorer = alert.metric, alert.scorer
        if metric == "latency":
            scorer = "total"
        traces = self._windows.worst(
            service=alert.service,
            metric=metric,
            scorer=scorer,
            window=alert.window,
            limit=4 * MAX_WORST,
        )
        alert.name_worst(
            trace.trace_id for trace in traces if trace.timestamp >= alert.since - FINE
        )

    def _slow_share(self, alert: Alert, now: float) -> float:
        """Return the share of requests that are far slower than all but one of twenty were.

        It sets the alert to the p95 of the times, too.
        """
        since = alert.since // FINE * FINE
        before = self._total_times(alert.service, DAY, (since // DAY - 1) * DAY)
        for hours in range(1, 25):
            if before is not None and before.n >= 50:
                break
            part = self._total_times(alert.service, HOUR, (since // HOUR - hours) * HOUR)
            before = _merge(before, part)
        after = None
        at = max(since, now // FINE * FINE - 6 * HOUR)
        while at < now:
            after = _merge(after, self._total_times(alert.service, FINE, at))
            at += FINE
        if before is None or after is None:
            return 0.0
        for _, usual, _, _ in before.limits((0.95,)):
            alert.baseline = usual
            for _, value, lower, upper in after.limits((0.95,)):
                alert.value = value
                alert.lower = lower
                alert.upper = upper
            return max(0.0, _share_above(after, 1.5 * usual) - _share_above(before, 1.5 * usual))
        return 0.0

    def _total_times(self, service: str, width: int, start: float) -> LogHistogram | None:
        """Return the total times of the requests of one bucket."""
        return self._windows.bucket_latency(
            service=service,
            segment="",
            stage="total",
            width=width,
            start=start,
        )

    def _follow(
        self,
        service: str,
        drift: ServiceDrift,
        *,
        spec: SeriesSpec,
        sums: BucketSums,
        standing: Standing,
        now: float,
    ) -> list[Alert]:
        """Follow a series that is away from its usual."""
        alert = standing.alert
        heard = self._clock.heard.get(service, -math.inf)
        quiet = now - heard > _QUIET
        recent = None if quiet else measure_recent(spec, standing, sums)
        self._touched[service] = None
        alert.no_data = quiet
        if recent is None:
            standing.back_since = None
            return []
        if is_back(spec, standing, recent):
            if standing.back_since is None:
                standing.back_since = now
            if now - standing.back_since >= BACK_SECONDS:
                return [self._end(service, spec.name, "", now)]
            return []
        standing.back_since = None
        severity = alert.severity
        self._refresh(spec, standing, sums, recent=recent, now=now)
        if now - (alert.fired_at or now) < BACK_SECONDS:
            # the window that found it still held requests from before the onset
            standing.told = max(standing.told, recent.distance)
        worse = is_worse(standing, recent)
        if worse:
            standing.told = recent.distance
        return [alert.copy()] if worse or severity != alert.severity else []

    def _end(self, service: str, series: str, reason: str, now: float) -> Alert:
        drift = self._services[service]
        standing = drift.standing.pop(series)
        alert = end(standing, reason, now)
        drift.ended = [one for one in drift.ended if one.id != alert.id] + [alert]
        drift.past.setdefault(series, []).append((alert.since, now))
        self._forget_usual(service)  # what ended now is no usual
        self._touched[service] = None
        return alert.copy()

    def baselines(self) -> list[dict[str, Any]]:
        """Return the usual of each series of each service, or that it is not known yet."""
        return [
            self._baseline(service, drift, spec.name)
            for service, drift in sorted(self._services.items())
            for spec in self._specs
        ]

    def _baseline(self, service: str, drift: ServiceDrift, series: str) -> dict[str, Any]:
        learned = self._learned.get(service)
        usual = None if learned is None else learned.usual.get(series)
        state = "learning" if usual is None else "watched"
        return {
            "service": service,
            "question": series,
            "usual": None if usual is None else usual.mean,
            "requests": 0.0 if usual is None else usual.worth,
            "days": 0.0 if usual is None else usual.days,
            "since": drift.learned_from or None,
            "state": "away" if series in drift.standing else state,
        }

    def promote(
        self, service: str | None, at: float | None
    ) -> tuple[dict[str, Any], list[Alert]] | None:
        """Learn the usual of a service, or of all, from event time `at` on."""
        if service is not None and service not in self._services:
            return None
        moved: list[Alert] = []
        names = sorted(self._services) if service is None else [service]
        for name in names:
            if at is None:
                raise RuntimeError("a watched service has had a request")
            drift = self._services[name]
            for series in list(drift.standing):
                moved.append(self._end(name, series, "no longer compared with that usual", at))
            drift.learned_from = at // HOUR * HOUR + HOUR
            drift.extremes = {}
            self._forget_usual(name)
            self._touched[name] = None
        return {"at": at, "services": {name: {} for name in names}}, moved

    def retain(self, services: Collection[str]) -> None:
        """Forget every other service."""
        for name in [one for one in self._clock.heard if one not in services]:
            del self._clock.heard[name]
            self._clock.fresh.pop(name, None)
            self._clock_changed = True
        for name in [one for one in self._services if one not in services]:
            del self._services[name]
            self._forget_usual(name)
            self._touched[name] = None

    def _forget_usual(self, service: str) -> None:
        """Have the usual of a service learned anew at the next look."""
        self._columns.pop(service, None)
        if self._learned.pop(service, None) is not None:
            self._relearned[service] = None

    def alerts(self) -> Sequence[Alert]:
        """Return copies of the alerts: those of series that are away, and those lately over."""
        found = []
        for _, drift in sorted(self._services.items()):
            standing = {one.alert.id: one.alert for one in drift.standing.values()}
            ended = [alert for alert in drift.ended if alert.id not in standing]
            found += [alert.copy() for alert in (*standing.values(), *ended)]
        return found

    def changes(self) -> Mapping[str, DriftState | None]:
        """Return the rows that changed since the last call."""
        touched, self._touched = self._touched, {}
        rows: dict[str, DriftState | None] = {
            f"{_SERVICE}{json.dumps(name)}": self._services.get(name) for name in touched
        }
        relearned, self._relearned = self._relearned, {}
        for name in relearned:
            rows[f"{_USUAL}{json.dumps(name)}"] = self._learned.get(name)
        if self._clock_changed:
            self._clock_changed = False
            rows[_CLOCK] = self._clock
        return rows

    def restore(self, rows: Mapping[str, DriftState]) -> None:
        """Load what was saved."""
        for name, row in rows.items():
            if isinstance(row, DriftClock):
                self._clock = row
            elif isinstance(row, LearnedUsual):
                self._learned[json.loads(name.removeprefix(_USUAL))] = row
            else:
                self._services[json.loads(name.removeprefix(_SERVICE))] = row


def _is_odd(usual: Usual, reference: Usual | None) -> bool:
    """Return whether a first day looks like a fault."""
    return reference is not None and usual.days < 1 and usual.mean < reference.mean - _ODD


def _merge(first: LogHistogram | None, second: LogHistogram | None) -> LogHistogram | None:
    """Return the times of both, the first one changed."""
    if first is None or second is None:
        return second if first is None else first
    first.merge(second)
    return first


def _share_above(hist: LogHistogram, seconds: float) -> float:
    return sum(hist.counts[cell_index(seconds) + 1 :]) / sum(hist.counts)


def _sums_of(
    specs: Sequence[SeriesSpec],
    *,
    fine: RequestSeries | None,
    hours: RequestSeries | None,
    design: Mapping[str, float],
    now: float,
) -> TrafficSums | None:
    """Return the sums of the series that are watched, None without requests in the last day."""
    if hours is None:
        return None
    places = [hours.names.index(spec.name) for spec in specs]
    return TrafficSums(
        now=now,
        fine_starts=np.empty(0) if fine is None else fine.starts,
        fine=np.empty((0, len(places), 5)) if fine is None else fine.sums[:, places],
        hour_starts=hours.starts,
        hours=hours.sums[:, places],
        design=np.array([design.get(spec.name, 1.0) for spec in specs]),
    )
