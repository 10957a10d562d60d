"""The hot path: traces of one service, segment combination and finest bucket, not yet folded.

Adding a trace appends it to one list, whatever the number of windows, segments and metrics. The
sums are made when somebody reads, a column of scores at a time; because they are exact, when that
happens changes nothing. Scores are grouped by their inclusion probability, so a weight is turned
into its sums once per group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter, mul

from agent.trace import Score, ScoredTrace, State
from agent.windows.bucket import Bucket, SeriesKey, Slots
from agent.windows.exact import VALUE_BITS, VALUE_ONE, WEIGHT_ONE, weight
from agent.windows.loghist import Sketch, cell_of
from agent.windows.sums import DEFAULT_STRATUM, WIDTH, add_scored, empty_sums
from agent.windows.worst import KEEP, Entry, keep, tie_break

__all__ = ["Direction", "make_bucket"]

Direction = Callable[[str], tuple[int, float]]
"""By metric: what `worst.direction` says of its spec."""

MAX_VALUE = 1e15
"""Beyond it a value is no measurement, and the mean of a window could overflow a float."""

FEW = 3
"""Up to so many traces a plain loop is faster than columns."""

_SCORED, _NOT_APPLICABLE, _SAMPLED_OUT = State.SCORED, State.NOT_APPLICABLE, State.SAMPLED_OUT
_SHED = State.SHED
_metric, _scorer = attrgetter("metric"), attrgetter("scorer")


def make_bucket(traces: Sequence[ScoredTrace], slots: Slots, direction: Direction) -> Bucket:
    """The sums of `traces`. A score whose value cannot be averaged (none, not finite, beyond
    1e15) or whose probability is outside (0, 1] counts as unscored: it is a fault of a scorer,
    and it must neither poison the sums nor stop them."""
    bucket = Bucket()
    bucket.seen = len(traces)
    make = _Maker(bucket, slots, direction)
    if len(traces) <= FEW:
        for trace in traces:
            for score in trace.results:
                make.one((score.metric, score.scorer), score, trace)
    else:
        for key, scores, owners in _columns(traces):
            make.column(key, scores, owners)
    make.finish()
    _add_timings(bucket, traces)
    return bucket


def _columns(
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


def _valid(score: Score) -> bool:
    value = score.value
    return value is not None and abs(value) <= MAX_VALUE and 0 < score.probability <= 1


class _Maker:
    """Fills a bucket's sums and worst traces."""

    __slots__ = ("_bucket", "_counts", "_direction", "_slots", "_ties", "_weighted")

    def __init__(self, bucket: Bucket, slots: Slots, direction: Direction) -> None:
        self._bucket = bucket
        self._counts = bucket.counts
        self._slots = slots
        self._direction = direction
        self._ties: dict[str, int] = {}
        self._weighted: dict[int, list[int]] = {}

    def _place(self, key: SeriesKey) -> int:
        place = self._slots.place(key)
        missing = place + WIDTH - len(self._counts)
        if missing > 0:
            self._counts += [0] * missing
        return place

    def one(self, key: SeriesKey, score: Score, trace: ScoredTrace) -> None:
        place, counts, state = self._place(key), self._counts, score.state
        if state is _SCORED and _valid(score):
            value: float = score.value  # type: ignore[assignment]  # just checked
            y = round(value * VALUE_ONE)
            self._sum(place, score.probability, 1, y, y * y)
            sign, bar = self._direction(score.metric)
            if sign and sign * value <= bar:
                self._keep(key, sign, value, trace)
        elif state is _NOT_APPLICABLE:
            counts[place] += 1
        elif state is _SAMPLED_OUT:
            counts[place + 1] += 1
        elif state is _SHED:
            counts[place + 3] += 1
        else:
            counts[place + 2] += 1

    def column(
        self, key: SeriesKey, scores: Sequence[Score], traces: Sequence[ScoredTrace]
    ) -> None:
        place, counts = self._place(key), self._counts
        states = [score.state for score in scores]
        total = len(states)
        if states.count(_SCORED) != total:
            for offset, state in ((0, _NOT_APPLICABLE), (1, _SAMPLED_OUT), (3, _SHED)):
                found = states.count(state)
                counts[place + offset] += found
                total -= found
            live = [i for i, state in enumerate(states) if state is _SCORED]
            scores, traces = [scores[i] for i in live], [traces[i] for i in live]
        values: list[float] = [score.value for score in scores]  # type: ignore[misc]
        probabilities = {score.probability for score in scores}
        if not _sound(values, probabilities):
            live = [i for i, score in enumerate(scores) if _valid(score)]
            scores, traces = [scores[i] for i in live], [traces[i] for i in live]
            values = [values[i] for i in live]
            probabilities = {score.probability for score in scores}
        counts[place + 2] += total - len(values)
        if len(probabilities) == 1:
            self._sum(place, probabilities.pop(), len(values), *_powers(values))
        else:
            for p in probabilities:
                some = [
                    v for v, score in zip(values, scores, strict=True) if score.probability == p
                ]
                self._sum(place, p, len(some), *_powers(some))
        if values:
            self._keep_some(key, values, traces)

    def _sum(self, place: int, probability: float, n: int, y: int, yy: int) -> None:
        w = WEIGHT_ONE if probability == 1.0 else weight(probability)
        if w == WEIGHT_ONE:
            counts = self._counts
            counts[place + 4] += n
            counts[place + 5] += y
            counts[place + 6] += yy
        else:
            add_scored(self._weighted.setdefault(place, empty_sums()), w, y, yy, n)

    def _keep_some(
        self, key: SeriesKey, values: list[float], traces: Sequence[ScoredTrace]
    ) -> None:
        sign, bar = self._direction(key[0])
        if not sign:
            return
        ranks = values if sign == 1 else [-value for value in values]
        if min(ranks) > bar:
            return
        if len(ranks) > KEEP:
            bar = min(bar, nsmallest(KEEP, ranks)[-1])
        for rank, trace in zip(ranks, traces, strict=True):
            if rank <= bar:
                self._keep(key, sign, sign * rank, trace)

    def _keep(self, key: SeriesKey, sign: int, value: float, trace: ScoredTrace) -> None:
        entries = self._bucket.worst.setdefault(key, [])
        trace_id = trace.trace_id
        tie = self._ties.get(trace_id)
        if tie is None:
            tie = self._ties[trace_id] = tie_break(trace_id)
        rank = sign * value
        if len(entries) == KEEP and (rank, tie) > entries[-1][:2]:
            return
        keep(entries, Entry(rank, tie, trace_id, trace.timestamp, value))

    def finish(self) -> None:
        self._bucket.strata = {
            place: {DEFAULT_STRATUM: sums} for place, sums in self._weighted.items()
        }


def _sound(values: Sequence[float | None], probabilities: set[float]) -> bool:
    """Whether all are valid, found at the speed of C."""
    try:
        # Not a number compares false; a sum beyond the limit only means to look one by one.
        return sum(map(abs, values)) <= MAX_VALUE and all(0 < p <= 1 for p in probabilities)  # type: ignore[arg-type]
    except TypeError:
        return False


def _powers(values: list[float]) -> tuple[int, int]:
    """(sum, sum of squares) in units."""
    ones = values.count(1.0)
    if ones + values.count(0.0) == len(values):
        return ones << VALUE_BITS, ones << (2 * VALUE_BITS)
    ys = [round(value * VALUE_ONE) for value in values]
    return sum(ys), sum(map(mul, ys, ys))


def _add_timings(bucket: Bucket, traces: Sequence[ScoredTrace]) -> None:
    """A timing is weighted by the upstream probability: every trace that arrives is timed."""
    sketches = bucket.sketches
    for trace in traces:
        if trace.timings:
            w = WEIGHT_ONE if trace.probability == 1.0 else weight(trace.probability)
            for stage, seconds in trace.timings.items():
                if not seconds >= 0:  # not a number, or a clock that went back
                    continue
                sketch = sketches.get(stage)
                if sketch is None:
                    sketch = sketches[stage] = Sketch()
                sketch.add(cell_of(seconds), w)
