"""Count the results of each metric and scorer so that scored, unscored and pending add up to the traces seen.


They are gathered here by trace and brought to the counters once for many traces (`settle`): many
results of a batch end alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from ragmeter.core.counters import CounterKey, Counters
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import MetricScorer

_Result = tuple[str, str, str, str | None]
"""(metric, scorer, state, reason)"""

_result = attrgetter("metric", "scorer", "state", "reason")


def _seen_key(metric: str, scorer: str) -> CounterKey:
    return "ragmeter_seen_total", (("metric", metric), ("scorer", scorer))


class ResultAccounting:
    """`expected` are the pairs that each trace has a result for, `of_canaries` those of each
    canary."""

    def __init__(
        self,
        counters: Counters,
        expected: Iterable[MetricScorer],
        of_canaries: Iterable[MetricScorer],
    ) -> None:
        self._counters = counters
        self._results: Counter[_Result] = Counter()
        self._result_keys: dict[_Result, CounterKey] = {}
        self._of_trace = [_seen_key(*pair) for pair in expected]
        self._of_canary = [_seen_key(*pair) for pair in of_canaries]
        self._traces = self._canaries = 0
        self.pending: Counter[MetricScorer] = Counter()
        """Results that a slow tier still owes; never negative, as the exported check sees."""

    def count_trace(self) -> None:
        """A trace was seen by all that is expected of it."""
        self._traces += 1

    def count_canary(self) -> None:
        """A canary was seen by all that is expected of it."""
        self._canaries += 1

    def count_unexpected(self, results: Iterable[Score]) -> None:
        """Results of what is not expected of every trace: labels, probes."""
        for score in results:
            self._counters.inc(*_seen_key(score.metric, score.scorer))

    def count_final(self, results: Iterable[Score]) -> None:
        """Results that are in their last state."""
        self._results.update(map(_result, results))

    def count_late(self, pairs: Iterable[MetricScorer]) -> None:
        """Results that came, or would come, after every window."""
        self._results.update([(*pair, ScoreState.LATE, None) for pair in pairs])

    def add_pending(self, pairs: Sequence[MetricScorer]) -> None:
        """A slow tier will give these."""
        self.pending.update(pairs)

    def remove_pending(self, results: Iterable[Score]) -> None:
        """A slow tier owes these no more."""
        self.pending.subtract((score.metric, score.scorer) for score in results)

    def flush_counters(self) -> None:
        """Bring the counters up to what was counted."""
        for found, number in self._results.items():
            key = self._result_keys.get(found)
            if key is None:
                names = ("metric", "scorer", "state", "reason")
                labels = tuple(zip(names, (str(part or "") for part in found), strict=True))
                key = self._result_keys[found] = ("ragmeter_results_total", labels)
            self._counters.inc(*key, number)
        self._results.clear()
        for number, keys in ((self._traces, self._of_trace), (self._canaries, self._of_canary)):
            for name, labels in keys if number else ():
                self._counters.inc(name, labels, number)
        self._traces = self._canaries = 0
