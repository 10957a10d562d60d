"""The windows as the drift monitor reads them."""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.core.feedback import RESERVED_SCORERS
from ragmeter.core.series import split_scorer
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.windows import Windows


class WatchedSeries:
    """Every series of the windows once, under the name of its scorer.

    The scores of an older version of an instrument get no new data, and assisted estimates are
    made of the same sums, so neither is watched.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.stages = windows.stages
        self.bucket = windows.bucket
        self.bucket_latency = windows.bucket_latency

    def services(self) -> Sequence[str]:
        """Return the services that are watched."""
        # probes are no traffic, and a rule watches them
        return [name for name in self._windows.services() if name != PROBE_SERVICE]

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        """Return each (metric, scorer) that is watched."""
        # Each series takes a share of the false alarms that all share. The few questions of
        # canaries are no sample of anything; which traces people label when is no matter of
        # chance, and labels are corrected.
        return [
            (metric, scorer)
            for metric, scorer in self._windows.series(service, segment)
            if not is_assisted(scorer)
            and not split_scorer(scorer)[1]
            and not is_canary_scorer(scorer)
            and scorer in RESERVED_SCORERS
        ]
