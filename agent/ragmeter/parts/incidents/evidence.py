"""Evidence of an alert: the value before, the segment behind it, the fingerprint, the worst traces.

The value before is read when the condition begins, since later the trouble itself is in it. The
segment is looked for when the alert fires, or as soon after as one stands out: that costs two sums
of each segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from ragmeter.alerts.alert import MAX_WORST, Alert
from ragmeter.alerts.explanation import Explain, Explanation, WorseSeries
from ragmeter.alerts.rules import AlertRule
from ragmeter.core.durations import parse_duration
from ragmeter.core.series import split_scorer
from ragmeter.windows.failures import failed_worst_key
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import LATENCY_METRIC

_MIN_RESULTS = 20  # of which a share of failed ones is a value before


class EvidenceSeries(NamedTuple):
    """A series that an alert is about: its traces beyond `limit` are the bad ones."""

    metric: str
    scorer: str
    limit: float
    above: bool = True


@dataclass(frozen=True, slots=True)
class EvidenceReader:
    """Reads the evidence of alerts of rules.

    Args:
        explain: Explains by segments what moved a series into trouble.
    """

    windows: Windows
    explain: Explain

    def find_baseline(self, rule: AlertRule, alert: Alert) -> float | None:
        """Return the value before: that of the longest window without the rule's own."""
        windows = self.windows
        service = alert.service
        window = alert.window
        if rule.absence:
            longest = max(windows.names, key=parse_duration)
            if longest == window:
                return None
            share = parse_duration(window) / parse_duration(longest)
            return windows.count_traces(service, "", longest) * share
        if rule.latency is not None:
            quantile = rule.latency.quantile
            hist = windows.histogram_before(service, alert.segment, rule.latency.stage, window)
            # as of all quantiles: one that has a sample beyond it
            return hist.quantile(quantile) if hist and hist.n * (1 - quantile) >= 1 else None
        pair = (alert.metric, alert.scorer)
        if rule.unscored is not None:
            failed = windows.failed_before(service, "", *pair, window)
            return failed.value if failed and failed.samples >= _MIN_RESULTS else None
        return windows.value_before(service, alert.segment, *pair, window)

    def find_worst_traces(self, rule: AlertRule, alert: Alert) -> list[str]:
        """Return the ids of the worst traces, of several kinds (error, timeout) in turn.

        A trace on the good side of the limit is left out: where three of a hundred traces failed,
        the fourth worst is a success and no evidence.
        """
        kinds = [
            [
                trace.trace_id
                for trace in self.windows.worst(
                    alert.service,
                    kind.metric,
                    kind.scorer,
                    rule.window,
                    MAX_WORST,
                    segment=alert.segment,
                )
                if (trace.value > kind.limit if kind.above else trace.value < kind.limit)
            ]
            for kind in self._evidence_series(rule, alert)
        ]
        ids = [trace_id for row in zip_longest(*kinds) for trace_id in row if trace_id is not None]
        return list(dict.fromkeys(ids))[:MAX_WORST]

    def find_fingerprint(self, rule: AlertRule, alert: Alert) -> str:
        """Return the fingerprint of the judge or model that scores now; empty if it has none."""
        series = [(one.metric, one.scorer) for one in self._evidence_series(rule, alert)]
        if rule.unscored is not None:
            series = [(alert.metric, alert.scorer)]
        marks = (split_scorer(self.windows.current_scorer(*pair))[1] for pair in series)
        return next(filter(None, marks), "")

    def find_origin(self, rule: AlertRule, alert: Alert) -> Explanation:
        """Explain by segments what moved the value into trouble.

        Of an alert on a segment it is that segment.
        """
        if rule.segment is not None:
            return Explanation(alert.segment)
        series = next(iter(self._evidence_series(rule, alert)), None)
        if series is None:
            return Explanation()
        failures = rule.unscored is not None
        if failures:
            series = EvidenceSeries(alert.metric, alert.scorer, 0.0)
        worse = WorseSeries(
            service=alert.service,
            metric=series.metric,
            scorer=series.scorer,
            window=rule.window,
            limit=series.limit,
            above=series.above,
            failures=failures,
        )
        return self.explain(self.windows, worse)

    def _evidence_series(self, rule: AlertRule, alert: Alert) -> Iterable[EvidenceSeries]:
        """Return the series that an alert is about, and beyond which limit it is bad."""
        above = rule.op in (">", ">=")
        if rule.absence:
            return ()
        if rule.unscored is not None:
            return (EvidenceSeries(*failed_worst_key(alert.metric, alert.scorer), 0.0),)
        if rule.latency is not None:
            return (EvidenceSeries(LATENCY_METRIC, rule.latency.stage, rule.threshold, above),)
        # the alert's own threshold: that of a rule with `relative_to` is a multiple
        limit = rule.threshold if rule.relative_to is None else alert.threshold
        return (EvidenceSeries(alert.metric, alert.scorer, limit, above),)
