"""The names under which traces are counted, bounded in their length and their number.

Services, segments and stages are named by senders; series of scorers by what a judge or a model
says of itself. A name beyond the bounds becomes `__other__`, and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters
from ragmeter.core.label_bounds import MAX_LABEL_CHARS, LabelBounds, LabelState
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.series import FingerprintRegistry, SeriesState
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.buckets import SeriesKey
from ragmeter.windows.windows import Windows

_LABELS = TypeAdapter(LabelState)
_SERIES = TypeAdapter(list[SeriesState])
_MAX_FITTING = 1_000  # names of stages that are known to fit: bounds memory


class Admission:
    """Admits names of services, segments, stages and series.

    Args:
        settings: The settings of the agent.
        counters: Where names beyond the bounds are counted.
    """

    def __init__(self, settings: Settings, counters: Counters) -> None:
        limits = settings.limits
        self._counters = counters
        self._tags = settings.segments
        self._series = FingerprintRegistry()
        self._bounds = LabelBounds(
            services=limits.services,
            segment_values=limits.segment_values,
            chars=MAX_LABEL_CHARS,
            overflow=self.count_overflow,
            reserved=limits.reserved,
        )
        self._fitting: set[str] = set()

    @property
    def current_series(self) -> Mapping[SeriesKey, str]:
        """The newest series of a scorer by (metric, scorer); it changes."""
        return self._series.current

    def count_overflow(self, label: str, by: int = 1) -> None:
        """Count values of a label beyond its limit."""
        self._counters.inc("ragmeter_label_overflow_total", (("label", label),), by)

    def label(self, service: str) -> str:
        """Return the bounded name of a service in the windows, `__other__` if it has none."""
        return self._bounds.service(service, admit=False)

    def unnamed_services(self) -> list[str]:
        """Return services that are counted as `__other__`, those with most traffic first."""
        return self._bounds.others()

    def see(self, service: str, now: float | None) -> None:
        """Note traffic of an admitted service at event time `now`."""
        self._bounds.service(service, now=now)

    def bound(self, scored: ScoredTrace, late: bool, now: float | None = None) -> ScoredTrace:
        """Bound the names of the service and the stages; a copy only if one of them changes.

        Args:
            scored: A trace.
            late: Whether it has no window, so that it takes no slot from other services.
            now: Event time for traffic, None for what else is counted.
        """
        service = scored.service
        timings = scored.timings
        # Rules look for probes by name: their service needs no slot.
        if service != PROBE_SERVICE:
            service = self._bounds.service(service, admit=not late, now=now)
        if not late and not self.fit(timings):
            timings = {self._bounds.bound(stage): value for stage, value in timings.items()}
        if service == scored.service and timings is scored.timings:
            return scored
        return scored._replace(service=service, timings=timings)

    def fit(self, stages: Iterable[str]) -> bool:
        """Return whether stages may have their names unchanged."""
        if self._fitting.issuperset(stages):
            return True
        if not all(map(self._bounds.fits, stages)):
            return False
        if len(self._fitting) >= _MAX_FITTING:
            self._fitting.clear()
        self._fitting.update(stages)
        return True

    def segments(self, trace: ScoredTrace) -> tuple[str, ...]:
        """Return the `tag=value` segments of a trace under its bounded names."""
        tags = trace.tags
        segment = self._bounds.segment
        return tuple([segment(trace.service, tag, tags[tag]) for tag in self._tags if tag in tags])

    def in_series(self, scored: ScoredTrace) -> ScoredTrace:
        """Name the scorers after the series that the fingerprints of their results belong to."""
        return scored._replace(results=[self._in_series(score) for score in scored.results])

    def _in_series(self, score: Score) -> Score:
        name, changed = self._series.assign_series(score)
        if changed:
            labels = (("metric", score.metric), ("scorer", score.scorer))
            self._counters.inc("ragmeter_instrument_changes_total", labels)
        return score if name == score.scorer else replace(score, scorer=name)

    def free(self, windows: Windows) -> list[str]:
        """Free the slots of what has left every window, and return the services among it."""
        services = windows.services()
        expired = self._bounds.retain_services(services)
        for service in self._bounds.services_with_full_segments():
            self._bounds.retain_segments(service, windows.segments(service))
        if self._series.full:
            self._series.retain({pair for service in services for pair in windows.series(service)})
        return expired

    def saved(self) -> dict[str, Any]:
        """Return what a restart goes on with, JSON-able."""
        return {
            "labels": _LABELS.dump_python(self._bounds.state(), mode="json"),
            "fingerprints": _SERIES.dump_python(self._series.state(), mode="json"),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved.

        Raises:
            ValueError: It makes no sense.
        """
        self._bounds.restore(_LABELS.validate_python(saved["labels"]))
        self._series.restore(_SERIES.validate_python(saved["fingerprints"]))
