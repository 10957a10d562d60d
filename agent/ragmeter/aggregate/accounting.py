"""Count traces, their operational figures and the results of each metric and scorer.

For each metric and scorer the results by state and the pending ones add up to the traces seen; an
exported check compares the two. Results are gathered here and brought to the counters once for
many traces, since many results of a batch end alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from ragmeter.core.counters import DURATION_EDGES, CounterKey, Counters, Exemplar
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.reasons import Reason
from ragmeter.windows.bucket_builder import are_alike, group_scores

_RESULT_FIELDS = ("metric", "scorer", "state", "reason")
_result_of = attrgetter(*_RESULT_FIELDS)
_end_of = attrgetter("state", "reason")
_state_of = attrgetter("state")
_reason_of = attrgetter("reason")


class ResultAccounting:
    """Counts of results, and of the traces and canaries that are to have them.

    Args:
        counters: Where the counts go.
        expected: The pairs that each trace has a result for; `canary_pairs` likewise.
    """

    def __init__(
        self,
        counters: Counters,
        expected: Iterable[MetricScorer],
        canary_pairs: Iterable[MetricScorer],
    ) -> None:
        self._counters = counters
        self._results: Counter[tuple[str, str, str, str | None]] = Counter()
        # results that `_results` lacks: of single traces, and of runs, whose traces are alike
        self._final: list[Sequence[Score]] = []
        self._final_of_runs: list[Sequence[Score]] = []
        self._traces: list[ScoredTrace] = []  # that the counters lack
        self._result_keys: dict[tuple[str, str, str, str | None], CounterKey] = {}
        self._trace_keys = [_seen_key(*pair) for pair in expected]
        self._canary_keys = [_seen_key(*pair) for pair in canary_pairs]
        self.pending: Counter[MetricScorer] = Counter()  # results that slow tiers have yet to give

    def count_traces(self, traces: Iterable[ScoredTrace]) -> None:
        """Count traces as seen for every expected pair, and their operational figures."""
        self._traces += [scored for scored in traces if not scored.partial]

    @property
    def uncounted(self) -> int:
        """How many traces wait for `flush_counters`."""
        return len(self._traces)

    def count_canary(self) -> None:
        """Count one canary as seen for every pair of a canary."""
        for key in self._canary_keys:
            self._counters.inc(*key)

    def count_unexpected(self, results: Iterable[Score]) -> None:
        """Count results as seen that are not expected of every trace: labels and probes."""
        for score in results:
            self._counters.inc(*_seen_key(score.metric, score.scorer))

    def count_final(self, results: Sequence[Score]) -> None:
        """Count results of a trace that are in their last state, and are not changed any more."""
        self._final.append(results)

    def count_final_of_run(self, traces: Sequence[ScoredTrace]) -> None:
        """Do as `count_final` with the results of traces that nearly all have the same pairs."""
        self._final_of_runs += [trace.results for trace in traces]

    def count_late(self, pairs: Iterable[MetricScorer]) -> None:
        """Count results that came, or would come, after every window."""
        self._results.update([(*pair, ScoreState.LATE, None) for pair in pairs])

    def count_pending(self, pairs: Sequence[MetricScorer], late: bool) -> None:
        """Count results that a slow tier will give for a trace; `late` ones count at once."""
        if late:
            self.count_late(pairs)
        else:
            self.pending.update(pairs)

    def remove_pending(self, results: Iterable[Score]) -> None:
        """Count results as no longer pending."""
        self.pending.subtract((score.metric, score.scorer) for score in results)

    def lose(self, results: Sequence[Score]) -> None:
        """Count pending results of a trace that cannot be read any more."""
        self.remove_pending(results)
        self.count_final(results)

    def flush_counters(self) -> None:
        """Bring the counters up to date with what was counted."""
        traces, self._traces = self._traces, []
        if traces:
            for name, labels in self._trace_keys:
                self._counters.inc(name, labels, len(traces))
            _count_operations(self._counters, traces)
        final, self._final = self._final, []
        self._results.update(map(_result_of, chain.from_iterable(final)))
        runs, self._final_of_runs = self._final_of_runs, []
        for pair, scores, _ in group_scores(runs, runs):
            for end, number in _count_ends(scores):
                self._results[(*pair, *end)] += number
        for result, number in self._results.items():
            key = self._result_keys.get(result)
            if key is None:
                texts = (str(value or "") for value in result)
                labels = tuple(zip(_RESULT_FIELDS, texts, strict=True))
                key = self._result_keys[result] = ("ragmeter_results_total", labels)
            self._counters.inc(*key, number)
        self._results.clear()


def _count_ends(scores: Sequence[Score]) -> Iterable[tuple[tuple[ScoreState, str | None], int]]:
    """Return how many scores end in each state for each reason."""
    if are_alike(scores):
        return [((scores[0].state, scores[0].reason), len(scores))]
    states, reasons = set(map(_state_of, scores)), set(map(_reason_of, scores))
    if len(states) == len(reasons) == 1:  # mostly; a set of each is far faster than pairs
        return [((states.pop(), reasons.pop()), len(scores))]
    return Counter(map(_end_of, scores)).items()


def _count_operations(counters: Counters, traces: Sequence[ScoredTrace]) -> None:
    """Count the status, tokens, cost and duration of traces."""
    sums: Counter[CounterKey] = Counter()
    durations: dict[str, list[Exemplar]] = {}
    for scored in traces:
        label = ("service", scored.service)
        sums["rag_requests_total", (label, ("status", scored.status))] += 1
        if scored.input_tokens:
            sums["rag_tokens_total", (label, ("direction", "input"))] += scored.input_tokens
        if scored.output_tokens:
            sums["rag_tokens_total", (label, ("direction", "output"))] += scored.output_tokens
        if scored.cost_usd:
            counters.inc("rag_cost_usd_total", (label,), scored.cost_usd)
        for field in scored.guessed:
            sums["rag_guessed_fields_total", (label, ("field", field))] += 1
        if Reason.LANGUAGE in map(_reason_of, scored.results):
            sums["rag_left_out_traces_total", (label, ("reason", Reason.LANGUAGE))] += 1
        total = scored.timings.get("total")
        if total is not None:
            exemplar = Exemplar(scored.trace_id, total, scored.timestamp)
            durations.setdefault(scored.service, []).append(exemplar)
    for key, by in sums.items():
        counters.inc(*key, by)
    for service, exemplars in durations.items():
        values = [exemplar.value for exemplar in exemplars]
        labels = (("service", service),)
        counters.observe("rag_request_duration_seconds", labels, values, DURATION_EDGES, exemplars)


def _seen_key(metric: str, scorer: str) -> CounterKey:
    return "ragmeter_seen_total", (("metric", metric), ("scorer", scorer))
