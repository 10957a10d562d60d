"""Sum the traces of one service, segment combination and time slot into a bucket (the hot path).

Adding a trace appends it to one list, whatever the number of windows, segments and metrics. The
sums are made when somebody reads, a column of scores at a time; because they are exact, when that
happens changes nothing. Scores are grouped by their inclusion probability, so a weight is turned
into its sums once per group. What was drawn from a stratum is summed in `framed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add, attrgetter, mul

from ragmeter.core.arithmetic import MAX_VALUE, VALUE_BITS, VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.buckets import Bucket, SeriesKey, SeriesSlots
from ragmeter.windows.failures import FailureCounts, failed_worst_key, failure_reason
from ragmeter.windows.log_histogram import SparseLogHistogram, cell_index
from ragmeter.windows.sums import (
    DEFAULT_STRATUM,
    StrataSums,
    add_scored,
    add_stratum_result,
    add_stratum_traces,
    empty_sums,
    stratum_key,
)
from ragmeter.windows.worst import (
    LATENCY_METRIC,
    WORST_PER_BUCKET,
    WorstEntry,
    insert_entry,
    tie_break,
)

_SMALL_COLUMN = 8
"""Up to so many traces a plain loop is faster than columns."""

_SCORED, _NOT_APPLICABLE, _SAMPLED_OUT = (
    ScoreState.SCORED,
    ScoreState.NOT_APPLICABLE,
    ScoreState.SAMPLED_OUT,
)
_SHED, _UNSCORED = ScoreState.SHED, ScoreState.UNSCORED
_metric, _scorer = attrgetter("metric"), attrgetter("scorer")
_state, _stratum = attrgetter("state"), attrgetter("stratum")
_probability, _value = attrgetter("probability"), attrgetter("value")


def build_bucket(traces: Sequence[ScoredTrace], slots: SeriesSlots) -> Bucket:
    """The sums of `traces`. A score whose value cannot be averaged (none, not finite, beyond
    1e15) or whose probability is outside (0, 1] counts as unscored: it is a fault of a scorer,
    and it must neither poison the sums nor stop them."""
    make = _BucketBuilder(slots)
    if len(traces) <= _SMALL_COLUMN:
        make.rows(traces)
    else:
        for key, scores, owners in group_scores(traces):
            make.column(key, scores, owners)
    for trace in traces:
        if trace.pending:
            make.owed(trace)
    make.slowest(traces)
    bucket = make.bucket()
    bucket.seen = sum(not trace.partial for trace in traces)
    _add_timings(bucket, traces)
    return bucket


def group_scores(
    traces: Sequence[ScoredTrace],
) -> Iterator[tuple[SeriesKey, Sequence[Score], Sequence[ScoredTrace]]]:
    """Scores by (metric, scorer), each with its trace."""
    rows = [trace.results for trace in traces]
    if len(set(map(len, rows))) == 1:
        # Almost always every trace has the same scores in the same order.
        columns = list(zip(*rows, strict=True))
        keys = [(set(map(_metric, column)), set(map(_scorer, column))) for column in columns]
        if all(len(metrics) == 1 and len(scorers) == 1 for metrics, scorers in keys):
            for (metrics, scorers), column in zip(keys, columns, strict=True):
                yield (metrics.pop(), scorers.pop()), column, traces
            return
    found: dict[SeriesKey, tuple[list[Score], list[ScoredTrace]]] = {}
    for trace in traces:
        for score in trace.results:
            key = (score.metric, score.scorer)
            scores, owners = found.setdefault(key, ([], []))
            scores.append(score)
            owners.append(trace)
    for key, (scores, owners) in found.items():
        yield key, scores, owners


def _is_valid(score: Score) -> bool:
    value = score.value
    return value is not None and -MAX_VALUE <= value <= MAX_VALUE and 0 < score.probability <= 1


class _BucketBuilder:
    """Fills a bucket's sums and worst traces."""

    def __init__(self, slots: SeriesSlots) -> None:
        self._slots = slots
        self._counts = [0] * slots.size
        self._ties: dict[str, int] = {}
        self._weighted: dict[int, list[int]] = {}
        self._strata: dict[int, StrataSums] = {}
        self._worst: dict[SeriesKey, list[WorstEntry]] = {}
        self._failures: FailureCounts = {}

    def _column(self, key: SeriesKey) -> tuple[int, int, float]:
        column = self._slots.column(key)
        missing = self._slots.size - len(self._counts)
        if missing:
            self._counts += [0] * missing
        return column

    def rows(self, traces: Sequence[ScoredTrace]) -> None:
        """Trace by trace: written out in one loop, for this is the price of sparse traffic."""
        counts, columns = self._counts, self._slots.columns
        for trace in traces:
            for score in trace.results:
                key = (score.metric, score.scorer)
                place, sign, bar = columns.get(key) or self._column(key)
                if score.stratum:
                    self._framed(key, [score], [trace])
                    counts = self._counts
                    continue
                state = score.state
                value = score.value
                if state is _SCORED and value is not None and _is_valid(score):
                    y = round(value * VALUE_ONE)
                    if score.probability == 1.0:
                        counts[place + 4] += 1
                        counts[place + 5] += y
                        counts[place + 6] += y * y
                    else:
                        self._sum(place, score.probability, 1, y, y * y)
                    if sign and sign * value <= bar:
                        self._keep(key, sign * value, trace)
                elif state is _NOT_APPLICABLE:
                    counts[place] += 1
                elif state is _SAMPLED_OUT:
                    counts[place + 1] += 1
                elif state is _SHED:
                    counts[place + 3] += 1
                else:
                    counts[place + 2] += 1
                    self._failed(score, trace)

    def column(
        self, key: SeriesKey, scores: Sequence[Score], traces: Sequence[ScoredTrace]
    ) -> None:
        place, sign, bar = self._column(key)
        if any(map(_stratum, scores)):
            scores, traces = self._framed(key, scores, traces)
            if not scores:
                return
        counts = self._counts
        asked = scores, traces
        states = list(map(_state, scores))
        total = len(states)
        if states.count(_SCORED) != total:
            for offset, state in ((0, _NOT_APPLICABLE), (1, _SAMPLED_OUT), (3, _SHED)):
                found = states.count(state)
                counts[place + offset] += found
                total -= found
            live = [i for i, state in enumerate(states) if state is _SCORED]
            scores, traces = [scores[i] for i in live], [traces[i] for i in live]
        values: list[float] = list(map(_value, scores))
        probabilities = set(map(_probability, scores))
        if not _all_valid(values, probabilities):
            live = [i for i, score in enumerate(scores) if _is_valid(score)]
            scores, traces = [scores[i] for i in live], [traces[i] for i in live]
            values = [values[i] for i in live]
            probabilities = {score.probability for score in scores}
        counts[place + 2] += total - len(values)
        if total > len(values):
            for score, trace in zip(*asked, strict=True):
                if score.state is _UNSCORED or (score.state is _SCORED and not _is_valid(score)):
                    self._failed(score, trace)
        if len(probabilities) == 1:
            self._sum(place, probabilities.pop(), len(values), *_sum_powers(values))
        else:
            for p in probabilities:
                some = [
                    v for v, score in zip(values, scores, strict=True) if score.probability == p
                ]
                self._sum(place, p, len(some), *_sum_powers(some))
        if values and sign:
            self._keep_some(key, [sign * value for value in values], bar, traces)

    def owed(self, trace: ScoredTrace) -> None:
        """The strata of results that a slow tier will bring."""
        for metric, scorer, stratum, cheap in trace.pending:
            strata = self._strata.setdefault(self._column((metric, scorer))[0], {})
            add_stratum_traces(strata, stratum_key(stratum, cheap), trace.probability, [cheap])

    def _framed(
        self, key: SeriesKey, scores: Sequence[Score], traces: Sequence[ScoredTrace]
    ) -> tuple[list[Score], list[ScoredTrace]]:
        """Sum the scores that belong to a sampling stratum; gives back the others."""
        others: tuple[list[Score], list[ScoredTrace]] = [], []
        place, sign, bar = self._column(key)
        name, _, version = key[1].partition("@")
        whole = self._column((key[0], name))[0] if version else place
        strata = self._strata.setdefault(place, {})
        found: dict[tuple[str, float], list[float | None]] = {}
        counts = [0, 0, 0, 0]
        for score, trace in zip(scores, traces, strict=True):
            if not score.stratum:
                others[0].append(score)
                others[1].append(trace)
                continue
            cheap = score.cheap
            stratum = stratum_key(score.stratum, cheap)
            if not trace.partial:
                group = (stratum, trace.probability)
                if group in found:
                    found[group].append(cheap)
                else:
                    found[group] = [cheap]
            state = score.state
            if state is _SAMPLED_OUT:
                counts[1] += 1
                continue
            if state is _SCORED and not _is_valid(score):
                state = ScoreState.UNSCORED
            add_stratum_result(strata.setdefault(stratum, empty_sums()), score, state)
            if state is _SCORED and sign and sign * score.value <= bar:  # type: ignore[operator]
                self._keep(key, sign * score.value, trace)  # type: ignore[operator]
            elif state is not _SCORED:
                counts[0 if state is _NOT_APPLICABLE else 3 if state is _SHED else 2] += 1
                if state is _UNSCORED:
                    self._failed(score, trace)
        for (stratum, probability), cheaps in found.items():
            add_stratum_traces(self._strata.setdefault(whole, {}), stratum, probability, cheaps)
        self._counts[place : place + 4] = map(add, self._counts[place : place + 4], counts)
        return others

    def _sum(self, place: int, probability: float, n: int, y: int, yy: int) -> None:
        w = WEIGHT_ONE if probability == 1.0 else weight_units(probability)
        if w == WEIGHT_ONE:
            counts = self._counts
            counts[place + 4] += n
            counts[place + 5] += y
            counts[place + 6] += yy
        else:
            add_scored(self._weighted.setdefault(place, empty_sums()), w, y, yy, n)

    def _keep_some(
        self, key: SeriesKey, ranks: list[float], bar: float, traces: Sequence[ScoredTrace]
    ) -> None:
        if min(ranks) > bar:
            return
        if len(ranks) > WORST_PER_BUCKET:
            bar = min(bar, sorted(ranks)[WORST_PER_BUCKET - 1])
        for rank, trace in zip(ranks, traces, strict=True):
            if rank <= bar:
                self._keep(key, rank, trace)

    def slowest(self, traces: Sequence[ScoredTrace]) -> None:
        """The slowest traces of each stage."""
        stages: dict[str, tuple[list[float], list[ScoredTrace]]] = {}
        for trace in traces:
            for stage, seconds in trace.timings.items():
                if seconds >= 0:
                    ranks, owners = stages.setdefault(stage, ([], []))
                    ranks.append(-seconds)
                    owners.append(trace)
        for stage, (ranks, owners) in stages.items():
            self._keep_some((LATENCY_METRIC, stage), ranks, 0.0, owners)

    def _failed(self, score: Score, trace: ScoredTrace) -> None:
        """Count a result without a usable value, where that is a fault, and name its trace."""
        reason = failure_reason(score)
        if reason is None:
            return
        key = (score.metric, score.scorer.partition("@")[0])
        reasons = self._failures.setdefault(key, {})
        reasons[reason] = reasons.get(reason, 0) + 1
        self._keep(failed_worst_key(*key), -1.0, trace)

    def _keep(self, key: SeriesKey, rank: float, trace: ScoredTrace) -> None:
        entries = self._worst.get(key)
        if entries is None:
            entries = self._worst[key] = []
        trace_id = trace.trace_id
        tie = self._ties.get(trace_id)
        if tie is None:
            tie = self._ties[trace_id] = tie_break(trace_id)
        if len(entries) < WORST_PER_BUCKET or (rank, tie) <= entries[-1][:2]:
            insert_entry(entries, WorstEntry(rank, tie, trace_id, trace.timestamp))

    def bucket(self) -> Bucket:
        bucket = Bucket()
        bucket.counts = self._counts
        bucket.strata = {place: strata for place, strata in self._strata.items() if strata}
        for place, sums in self._weighted.items():
            bucket.strata.setdefault(place, {})[DEFAULT_STRATUM] = sums
        bucket.worst.update(self._worst)
        bucket.failures = self._failures or None
        return bucket


def _all_valid(values: Sequence[float | None], probabilities: set[float]) -> bool:
    """Whether all are valid, found at the speed of C."""
    try:
        # Not a number compares false; a sum beyond the limit only means to look one by one.
        return sum(map(abs, values)) <= MAX_VALUE and all(0 < p <= 1 for p in probabilities)  # type: ignore[arg-type]
    except TypeError:
        return False


def _sum_powers(values: list[float]) -> tuple[int, int]:
    """(sum, sum of squares) in units."""
    ones = values.count(1.0)
    if ones + values.count(0.0) == len(values):
        return ones << VALUE_BITS, ones << (2 * VALUE_BITS)
    ys = [round(value * VALUE_ONE) for value in values]
    return sum(ys), sum(map(mul, ys, ys))


def _add_timings(bucket: Bucket, traces: Sequence[ScoredTrace]) -> None:
    """A timing is weighted by the upstream probability: every trace that arrives is timed."""
    cells: dict[tuple[str, float], list[int]] = {}
    for trace in traces:
        probability = trace.probability
        for stage, seconds in trace.timings.items():
            if seconds >= 0:  # neither not a number nor from a clock that went back
                found = cells.get((stage, probability))
                if found is None:
                    found = cells[stage, probability] = []
                found.append(cell_index(seconds))
    for (stage, probability), filled in cells.items():
        sketch = bucket.sketches.get(stage)
        if sketch is None:
            sketch = bucket.sketches[stage] = SparseLogHistogram()
        sketch.add(filled, weight_units(probability))
