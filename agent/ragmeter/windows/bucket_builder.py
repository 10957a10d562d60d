"""Sum the traces of one service, segment and time slot into a bucket (the hot path).

Adding a trace appends it to one list, whatever the number of windows, segments and metrics. Sums
are made when somebody reads, a column of scores at a time; they are exact, so the moment does not
matter. Scores are grouped by inclusion probability: a weight enters the sums once per group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import add, attrgetter, mul
from typing import TypeVar

from ragmeter.core.arithmetic import MAX_VALUE, VALUE_BITS, VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.buckets import Bucket, SeriesKey, SeriesSlots
from ragmeter.windows.failures import (
    TRACE_REASONS,
    FailureCounts,
    failed_worst_key,
    failure_reason,
)
from ragmeter.windows.log_histogram import SparseLogHistogram, cell_index
from ragmeter.windows.sums import (
    DEFAULT_STRATUM,
    NO_SUMS,
    StrataSums,
    StratumSums,
)
from ragmeter.windows.worst import (
    LATENCY_METRIC,
    WORST_PER_BUCKET,
    WorstEntry,
    insert_entry,
    tie_break,
)

# Up to so many traces a plain loop is faster than columns.
_SMALL_COLUMN = 8

_OwnerT = TypeVar("_OwnerT")

_SCORED = ScoreState.SCORED
_NOT_APPLICABLE = ScoreState.NOT_APPLICABLE
_SAMPLED_OUT = ScoreState.SAMPLED_OUT
_SHED = ScoreState.SHED
_UNSCORED = ScoreState.UNSCORED
_COUNTED = {_NOT_APPLICABLE: 0, _SAMPLED_OUT: 1, _SHED: 3}  # in which place of the counts
_metric = attrgetter("metric")
_scorer = attrgetter("scorer")
_state = attrgetter("state")
_stratum = attrgetter("stratum")
_probability = attrgetter("probability")
_value = attrgetter("value")


def build_bucket(traces: Sequence[ScoredTrace], slots: SeriesSlots) -> Bucket:
    """Sum traces of one owner and time slot.

    A score whose value cannot be averaged (none, not finite, beyond 1e15) or whose probability is
    outside (0, 1] counts as unscored: a faulty scorer must neither poison the sums nor stop them.
    """
    builder = _BucketBuilder(slots)
    if len(traces) <= _SMALL_COLUMN:
        builder.add_rows(traces)
    else:
        for key, scores, owners in group_scores([trace.results for trace in traces], traces):
            builder.add_column(key, scores, owners)
    for trace in traces:
        if trace.pending:
            builder.add_pending(trace)
    builder.add_slowest(traces)
    bucket = builder.finish()
    bucket.trace_count = sum(not trace.partial for trace in traces)
    _add_timings(bucket, traces)
    return bucket


def group_scores(
    results: Sequence[Sequence[Score]], owners: Sequence[_OwnerT]
) -> Iterator[tuple[SeriesKey, Sequence[Score], Sequence[_OwnerT]]]:
    """Yield ((metric, scorer), scores, the owner of each score) of every series.

    Args:
        results: The results of each owner.
        owners: Traces, or what stands for them.
    """
    if len(set(map(len, results))) == 1:
        # Almost always every trace has the same scores in the same order.
        columns = list(zip(*results, strict=True))
        if all(map(_is_series, columns)):
            for column in columns:
                yield (column[0].metric, column[0].scorer), column, owners
            return
    groups: dict[SeriesKey, tuple[list[Score], list[_OwnerT]]] = {}
    for row, owner in zip(results, owners, strict=True):
        for score in row:
            group = groups.setdefault((score.metric, score.scorer), ([], []))
            group[0].append(score)
            group[1].append(owner)
    for key, (scores, own) in groups.items():
        yield key, scores, own


def are_alike(scores: Sequence[Score]) -> bool:
    """Return whether scores are one object, which their traces share (`share_score`)."""
    return scores[0] is scores[-1] and len(set(map(id, scores))) == 1


def _is_series(column: Sequence[Score]) -> bool:
    """Return whether scores are all of one metric and scorer."""
    return are_alike(column) or (
        len(set(map(_metric, column))) == 1 and len(set(map(_scorer, column))) == 1
    )


class _BucketBuilder:
    """Collects the sums and worst traces of a bucket."""

    def __init__(self, slots: SeriesSlots) -> None:
        self._slots = slots
        self._counts = [0] * slots.size  # extended in place only: loops hold a reference
        self._ties: dict[str, int] = {}
        self._weighted: dict[int, StratumSums] = {}
        self._strata: dict[int, StrataSums] = {}
        self._worst: dict[SeriesKey, list[WorstEntry]] = {}
        self._failures: FailureCounts = {}

    def _column(self, key: SeriesKey) -> tuple[int, int, float]:
        column = self._slots.column(key)
        missing = self._slots.size - len(self._counts)
        if missing:
            self._counts += [0] * missing
        return column

    def add_rows(self, traces: Sequence[ScoredTrace]) -> None:
        """Add trace by trace, written out in one loop: sparse traffic pays this price."""
        counts = self._counts
        columns = self._slots.columns
        for trace in traces:
            for score in trace.results:
                key = (score.metric, score.scorer)
                offset, sign, bar = columns.get(key) or self._column(key)
                if score.stratum:
                    self._add_stratified(key, [score], [trace])
                    continue
                state = score.state
                value = score.value
                if state is _SCORED and value is not None and _is_valid(score):
                    y = round(value * VALUE_ONE)
                    if score.probability == 1.0:
                        counts[offset + 4] += 1
                        counts[offset + 5] += y
                        counts[offset + 6] += y * y
                    else:
                        self._add_values(
                            offset=offset, probability=score.probability, n=1, y=y, yy=y * y
                        )
                    if sign and sign * value <= bar:
                        self._add_worst(key, sign * value, trace)
                elif state is _NOT_APPLICABLE:
                    counts[offset] += 1
                elif state is _SAMPLED_OUT:
                    counts[offset + 1] += 1
                elif state is _SHED:
                    counts[offset + 3] += 1
                else:
                    counts[offset + 2] += 1
                    self._count_failure(score, trace)

    def add_column(
        self, key: SeriesKey, scores: Sequence[Score], traces: Sequence[ScoredTrace]
    ) -> None:
        offset, sign, bar = self._column(key)
        if are_alike(scores) and self._add_alike(key, scores[0], traces):
            return
        if any(map(_stratum, scores)):
            scores, traces = self._add_stratified(key, scores, traces)
            if not scores:
                return
        counts = self._counts
        column = scores, traces
        states = list(map(_state, scores))
        drawn = len(states)
        if states.count(_SCORED) != drawn:
            for state_offset, state in ((0, _NOT_APPLICABLE), (1, _SAMPLED_OUT), (3, _SHED)):
                number = states.count(state)
                counts[offset + state_offset] += number
                drawn -= number
            scored = [i for i, state in enumerate(states) if state is _SCORED]
            scores = [scores[i] for i in scored]
            traces = [traces[i] for i in scored]
        values: list[float] = list(map(_value, scores))
        probabilities = set(map(_probability, scores))
        all_valid = _all_valid(values, probabilities)
        if not all_valid:
            valid = [i for i, score in enumerate(scores) if _is_valid(score)]
            scores = [scores[i] for i in valid]
            traces = [traces[i] for i in valid]
            values = [values[i] for i in valid]
            probabilities = {score.probability for score in scores}
        counts[offset + 2] += drawn - len(values)
        if drawn > len(values):
            reasons = {score.reason for score in column[0] if score.state is _UNSCORED}
            if not (all_valid and reasons <= TRACE_REASONS):  # else no fault of ours
                self._count_failures(*column)
        if len(probabilities) == 1:
            self._add_values(offset, probabilities.pop(), len(values), *_sum_powers(values))
        else:
            for p in probabilities:
                group = [
                    v for v, score in zip(values, scores, strict=True) if score.probability == p
                ]
                self._add_values(offset, p, len(group), *_sum_powers(group))
        if values and sign:
            self._add_worst_column(key, [sign * value for value in values], bar, traces)

    def _add_alike(self, key: SeriesKey, score: Score, traces: Sequence[ScoredTrace]) -> bool:
        """Add a score that traces share; False for one that has to be added trace by trace."""
        offset, sign, bar = self._column(key)
        number = len(traces)
        value = score.value
        if score.stratum:
            if score.state is not _SAMPLED_OUT or "@" in key[1]:
                return False
            self._counts[offset + 1] += number
            arrived = Counter([trace.probability for trace in traces if not trace.partial])
            for probability, several in arrived.items():
                size = several * weight_units(probability)
                self._add_stratum(offset, score.stratum, StratumSums(size=size))
        elif score.state in _COUNTED:
            self._counts[offset + _COUNTED[score.state]] += number
        elif score.state is _UNSCORED and score.reason in TRACE_REASONS:
            self._counts[offset + 2] += number
        elif score.state is _SCORED and value is not None and _is_valid(score):
            y = round(value * VALUE_ONE)
            self._add_values(
                offset=offset,
                probability=score.probability,
                n=number,
                y=number * y,
                yy=number * y * y,
            )
            if sign:
                self._add_worst_column(key, [sign * value] * number, bar, traces)
        else:
            return False
        return True

    def add_pending(self, trace: ScoredTrace) -> None:
        """Count a trace in the strata of results that a slow tier will bring."""
        for metric, scorer, stratum in trace.pending:
            offset = self._column((metric, scorer))[0]
            size = weight_units(trace.probability)
            self._add_stratum(offset, stratum, StratumSums(size=size))

    def _add_stratum(self, offset: int, stratum: str, sums: StratumSums) -> None:
        strata = self._strata.setdefault(offset, {})
        strata[stratum] = strata.get(stratum, NO_SUMS).plus(sums)

    def _add_stratified(
        self, key: SeriesKey, scores: Sequence[Score], traces: Sequence[ScoredTrace]
    ) -> tuple[list[Score], list[ScoredTrace]]:
        """Sum the scores that belong to a sampling stratum; return the others with their traces."""
        offset, sign, bar = self._column(key)
        name, _, version = key[1].partition("@")
        plain_offset = self._column((key[0], name))[0] if version else offset
        column = list(zip(scores, traces, strict=True))
        drawn = [(score, trace) for score, trace in column if score.stratum]
        others = (
            [pair for pair in column if not pair[0].stratum] if len(drawn) < len(column) else []
        )
        arrived = Counter(
            [(score.stratum, trace.probability) for score, trace in drawn if not trace.partial]
        )
        told = [pair for pair in drawn if pair[0].state is not _SAMPLED_OUT]
        counts = [0, len(drawn) - len(told), 0, 0]
        for score, trace in told:
            state = score.state
            if state is _SCORED and not _is_valid(score):
                state = ScoreState.UNSCORED
            self._add_stratum(offset, score.stratum, StratumSums.of_result(score, state))
            if state is _SCORED and sign and sign * score.value <= bar:  # type: ignore[operator]
                self._add_worst(key, sign * score.value, trace)  # type: ignore[operator]
            elif state is not _SCORED:
                if state is _NOT_APPLICABLE:
                    counts[0] += 1
                elif state is _SHED:
                    counts[3] += 1
                else:
                    counts[2] += 1
                if state is _UNSCORED:
                    self._count_failure(score, trace)
        for (stratum, probability), number in arrived.items():
            size = number * weight_units(probability)
            self._add_stratum(plain_offset, stratum, StratumSums(size=size))
        self._counts[offset : offset + 4] = map(add, self._counts[offset : offset + 4], counts)
        return [score for score, _ in others], [trace for _, trace in others]

    def _add_values(self, offset: int, probability: float, n: int, y: int, yy: int) -> None:
        w = WEIGHT_ONE if probability == 1.0 else weight_units(probability)
        if w == WEIGHT_ONE:
            counts = self._counts
            counts[offset + 4] += n
            counts[offset + 5] += y
            counts[offset + 6] += yy
        else:
            sums = self._weighted.get(offset, NO_SUMS)
            self._weighted[offset] = sums.plus(StratumSums.of_scores(w, y, yy, n))

    def add_slowest(self, traces: Sequence[ScoredTrace]) -> None:
        """Add the slowest traces of each stage to the worst."""
        stages: dict[str, tuple[list[float], list[ScoredTrace]]] = {}
        for trace in traces:
            for stage, seconds in trace.timings.items():
                if seconds >= 0:
                    ranks, owners = stages.setdefault(stage, ([], []))
                    ranks.append(-seconds)
                    owners.append(trace)
        for stage, (ranks, owners) in stages.items():
            self._add_worst_column((LATENCY_METRIC, stage), ranks, 0.0, owners)

    def _count_failures(self, scores: Sequence[Score], traces: Sequence[ScoredTrace]) -> None:
        """Count the results of a column that should have a usable value and have none."""
        for score, trace in zip(scores, traces, strict=True):
            if score.state is _UNSCORED or (score.state is _SCORED and not _is_valid(score)):
                self._count_failure(score, trace)

    def _count_failure(self, score: Score, trace: ScoredTrace) -> None:
        """Count a result without a usable value if that is a fault, and name its trace."""
        reason = failure_reason(score)
        if reason is None:
            return
        key = (score.metric, score.scorer.partition("@")[0])
        reasons = self._failures.setdefault(key, {})
        reasons[reason] = reasons.get(reason, 0) + 1
        self._add_worst(failed_worst_key(*key), -1.0, trace)

    def _add_worst_column(
        self, key: SeriesKey, ranks: list[float], bar: float, traces: Sequence[ScoredTrace]
    ) -> None:
        if min(ranks) > bar:
            return
        if len(ranks) > WORST_PER_BUCKET:
            bar = min(bar, sorted(ranks)[WORST_PER_BUCKET - 1])
        for rank, trace in zip(ranks, traces, strict=True):
            if rank <= bar:
                self._add_worst(key, rank, trace)

    def _add_worst(self, key: SeriesKey, rank: float, trace: ScoredTrace) -> None:
        entries = self._worst.setdefault(key, [])
        trace_id = trace.trace_id
        tie = self._ties.get(trace_id)
        if tie is None:
            tie = self._ties[trace_id] = tie_break(trace_id)
        if len(entries) < WORST_PER_BUCKET or (rank, tie) <= entries[-1][:2]:
            insert_entry(entries, WorstEntry(rank, tie, trace_id, trace.timestamp))

    def finish(self) -> Bucket:
        bucket = Bucket()
        bucket.counts = self._counts
        bucket.strata = {offset: strata for offset, strata in self._strata.items() if strata}
        for offset, sums in self._weighted.items():
            bucket.strata.setdefault(offset, {})[DEFAULT_STRATUM] = sums
        bucket.worst.update(self._worst)
        bucket.failures = self._failures or None
        return bucket


def _is_valid(score: Score) -> bool:
    value = score.value
    return value is not None and -MAX_VALUE <= value <= MAX_VALUE and 0 < score.probability <= 1


def _all_valid(values: Sequence[float | None], probabilities: set[float]) -> bool:
    """Return `_is_valid` of all scores at the speed of C, or False if that is not certain."""
    try:
        # A NaN compares false, and so may a sum beyond the limit: then scores are looked at singly.
        total = sum(map(abs, values))  # type: ignore[arg-type]
    except TypeError:
        return False
    return total <= MAX_VALUE and all(0 < p <= 1 for p in probabilities)


def _sum_powers(values: list[float]) -> tuple[int, int]:
    """Return the sum in units of 2**-30 and the sum of squares in units of 2**-60."""
    ones = values.count(1.0)
    if ones + values.count(0.0) == len(values):
        return ones << VALUE_BITS, ones << (2 * VALUE_BITS)
    ys = [round(value * VALUE_ONE) for value in values]
    return sum(ys), sum(map(mul, ys, ys))


def _add_timings(bucket: Bucket, traces: Sequence[ScoredTrace]) -> None:
    """Add timings, weighted by the upstream probability: every trace that arrives is timed."""
    cells: dict[tuple[str, float], list[int]] = {}
    for trace in traces:
        probability = trace.probability
        for stage, seconds in trace.timings.items():
            if seconds >= 0:  # neither NaN nor from a clock that was set back
                cells.setdefault((stage, probability), []).append(cell_index(seconds))
    for (stage, probability), filled in cells.items():
        sketch = bucket.sketches.setdefault(stage, SparseLogHistogram())
        sketch.add(filled, weight_units(probability))
