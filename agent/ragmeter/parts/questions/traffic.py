"""Sum what every request of a service tells, in buckets of event time; pure.

A bucket holds sums, so that those of any stretch of time are added up. The fine buckets of five
minutes reach back seven hours, for the last hour and its charts; the coarse ones of an hour reach
back two weeks, for the day, the usual and the past.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragmeter.parts.questions.clusters import SLOTS

HOUR = 3600
DAY = 24 * HOUR

FINE, COARSE = 300, HOUR  # seconds of a bucket
KEPT_FINE, KEPT_COARSE = 7 * HOUR, 14 * DAY  # seconds for which buckets are kept
KEPT_SLOTS = 26 * HOUR  # seconds for which coarse buckets know their clusters: a day and the usual

TRACKED = ("works", "answered", "uncut", "grounded", "retrieved", "cited", "cost", "fast")
"""The values that a request has: shares and cheap scores, the cost, and the logarithm of the total
time in seconds. `uncut`: whether the model ended the answer by itself."""

PLACE: Mapping[str, int] = {name: place for place, name in enumerate(TRACKED)}

INDEXED = ("grounded", "retrieved", "cited")
"""The questions of which a request has a graded cheap score, with a histogram of it."""

BINS = 10  # of a cheap score from 0 to 1
EDGES = tuple(at / BINS for at in range(1, BINS))

SHARES = TRACKED[: TRACKED.index("cost")]
"""The values of `TRACKED` that lie in 0..1."""

SLOW = 0.05
"""The part of the requests that takes longer than `fast` says."""

_CLUSTERED = TRACKED.index("fast")  # those before it have weighted values by slot

# Seconds that part the times of requests by slot: steps of the square root of 2. Of latencies whose
# logarithms have a standard deviation of .3, the slowest twentieth shares its step with as many.
_TIME_EDGES = tuple(0.1 * 2 ** (at / 2) for at in range(21))
_LOG_EDGES = np.array([math.log(edge) for edge in _TIME_EDGES])
_STEPS = len(_TIME_EDGES) + 1

_FIRST_INDEXED = TRACKED.index(INDEXED[0])

# Shapes, see `RequestSums`.
_MOMENTS = (len(TRACKED), 5)
_BINS = (len(INDEXED), BINS, 2)
_SLOTS = (2, SLOTS, _CLUSTERED, 2)
_TIMES = (2, SLOTS, _STEPS)

Numbers = NDArray[np.float64]


class BucketRange(NamedTuple):
    """The buckets of a width that begin in [start, end), in Unix seconds."""

    start: float
    end: float
    width: int

    @property
    def numbers(self) -> range:
        """The numbers of the buckets: their start divided by the width."""
        return range(math.ceil(self.start / self.width), math.ceil(self.end / self.width))


def bucket_width(seconds: float) -> int:
    """Return the width of the buckets that a stretch of so many seconds is made of."""
    return FINE if seconds <= 6 * HOUR else COARSE


def last_buckets(seconds: int, now: float) -> BucketRange:
    """Return the buckets of the last `seconds` up to event time `now`, with the open one."""
    width = bucket_width(seconds)
    end = (now // width + 1) * width
    return BucketRange(end - seconds, end, width)


class QuestionMoments(NamedTuple):
    """The sums of one question over a stretch of time, in natural units.

    Args:
        n: Number of requests with a value.
        weight: Sum of the weights, for how many requests they stand.
        mean: Weighted mean of the values.
        variance: Of a value.
        kish: Kish's effective number of requests, (sum w)**2 / sum w**2.
    """

    n: int
    weight: float
    mean: float
    variance: float
    kish: float


# A sum of weights as large as 1e300, which are allowed, may be infinite: then it tells nothing.
_may_overflow = np.errstate(over="ignore")


class RequestColumns:
    """What requests add to `RequestSums`, in their order, a row a request.

    Args:
        at: Event times in Unix seconds.
        weights: For how many requests each stands: 1 / upstream probability.
        values: By name in `TRACKED`, one a request, NaN where it has none; all of them by default.
        clusters: The slots of their sessions, users, tenants or queries.
        tenants: The slots of their tenants.
        strata: The names of the strata of the sampled tiers that each belongs to.

    Attributes:
        moments: Terms of the moments in one row, 0 where a request has no value.
        bins: Terms of the histograms with their positions.
        slots: The same of the sums by slot.
        times: The same of the times by slot, without requests of no known time.
    """

    @_may_overflow
    def __init__(
        self,
        at: Sequence[float],
        weights: Sequence[float],
        values: Mapping[str, Sequence[float]],
        clusters: Sequence[int],
        tenants: Sequence[int],
        strata: Sequence[Sequence[str]],
    ) -> None:
        self.at = at
        self.weights = weights
        self.strata = strata
        none = [math.nan] * len(at)
        given = np.array([values.get(name, none) for name in TRACKED]).T
        known = ~np.isnan(given)
        value = np.where(known, given, 0.0)
        weight = np.array(weights)[:, None] * known
        weighted = weight * value
        terms = (known, weight, weighted, weighted * value, weight * weight)
        self.moments = np.stack(terms, axis=2).reshape(len(at), -1)
        sums = np.stack((weight, weighted), axis=2)
        indexed = slice(_FIRST_INDEXED, _FIRST_INDEXED + len(INDEXED))
        bins = np.minimum(BINS - 1, (value[:, indexed] * BINS).astype(np.intp))
        self.bins = _CellTerms.of(BINS * np.arange(len(INDEXED)) + bins, sums[:, indexed])
        keys = np.array((clusters, [SLOTS + slot for slot in tenants]), dtype=np.intp).T
        by_key = sums[:, None, :_CLUSTERED].repeat(2, axis=1)
        self.slots = _CellTerms.of(keys, by_key)
        steps = np.searchsorted(_LOG_EDGES, value[:, _CLUSTERED])
        self.times = _CellTerms.of(
            _STEPS * keys + steps[:, None], weight[:, _CLUSTERED, None].repeat(2, axis=1)
        )

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Sequence[int], *, whole: bool) -> RequestColumns:
        """Return some of the requests, for the sums of a `whole` service or of a segment."""
        if len(rows) == len(self):
            return self
        taken = RequestColumns.__new__(RequestColumns)
        taken.at = [self.at[row] for row in rows]
        taken.weights = [self.weights[row] for row in rows]
        taken.strata = [self.strata[row] for row in rows]
        taken.moments = self.moments[rows]
        if not whole:
            return taken
        taken.bins = self.bins.take(rows)
        taken.slots = self.slots.take(rows)
        taken.times = self.times.take(rows)
        return taken


class _CellTerms(NamedTuple):
    """What requests add to a row of numbers: positions and terms, each of shape (requests, n)."""

    cells: NDArray[np.intp]
    terms: Numbers

    @classmethod
    def of(cls, groups: NDArray[np.intp], terms: Numbers) -> _CellTerms:
        """Return the terms of groups of numbers, whose numbers are those of `terms` in size.

        Args:
            groups: Positions of groups, shape (requests, m).
            terms: Shape (requests, m, ...).
        """
        size = math.prod(terms.shape[2:])
        cells = size * groups[:, :, None] + np.arange(size)
        return cls(cells.reshape(len(groups), -1), terms.reshape(len(groups), -1))

    def take(self, rows: Sequence[int]) -> _CellTerms:
        return _CellTerms(self.cells[rows], self.terms[rows])

    def add_to(self, numbers: array[float]) -> None:
        """Add the terms one by one, so that no sum depends on how many come at a time."""
        np.add.at(np.frombuffer(numbers), self.cells.ravel(), self.terms.ravel())


@dataclass(slots=True)
class TrafficRow:
    """A row of the state: a bucket. Arrays are saved as positions and values that are not 0."""

    moments: list[float]
    bins: list[float] = field(default_factory=list)
    slots: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    strata: dict[str, float] = field(default_factory=dict)


class RequestSums:
    """The sums of a stretch of time.

    Attributes:
        moments: Shape (questions, 5): count, weight, weighted values and squares, squared weights.
        bins: Shape (indexed questions, `BINS`, 2): weight and weighted cheap scores.
        slots: Shape (2, `SLOTS`, values, 2): weight and weighted values by slot of the cluster, and
            by slot of the tenant.
        times: Shape (2, `SLOTS`, steps): weight of the requests by slot and total time.
        strata: Weight of the requests by stratum of a sampled tier.
    """

    __slots__ = ("_bins", "_by_question", "_known", "_moments", "_slots", "_times", "strata")

    def __init__(self) -> None:
        # arrays of the standard library: one number of them is changed far faster than of numpy's
        self._moments = _zeros(_MOMENTS)
        self._bins: array[float] | None = None
        self._slots: array[float] | None = None
        self._times: array[float] | None = None
        self.strata: dict[str, float] = {}
        self._known: dict[Hashable, float] | None = None
        self._by_question: dict[str, QuestionMoments | None] | None = None  # as `of` returns them

    @property
    def known(self) -> dict[Hashable, float]:
        """What readers made of the sums, by a name of theirs; empty after a change."""
        if self._known is None:
            self._known = {}
        return self._known

    @property
    def moments(self) -> Numbers:
        """A view of the moments."""
        return np.frombuffer(self._moments).reshape(_MOMENTS)

    @property
    def raw_moments(self) -> array[float]:
        """The moments in one row."""
        return self._moments

    @property
    def bins(self) -> Numbers | None:
        """A view of the histograms."""
        return None if self._bins is None else np.frombuffer(self._bins).reshape(_BINS)

    @property
    def slots(self) -> Numbers | None:
        """A view of the sums by slot."""
        return None if self._slots is None else np.frombuffer(self._slots).reshape(_SLOTS)

    def forget_slots(self) -> None:
        """Drop the sums by slot."""
        self._known = None
        self._slots = None
        self._times = None

    @property
    def times(self) -> Numbers | None:
        """A view of the times by slot."""
        return None if self._times is None else np.frombuffer(self._times).reshape(_TIMES)

    def _forget_readings(self) -> None:
        """Drop what was made of the sums, which are about to change."""
        self._known = None
        self._by_question = None

    @_may_overflow
    def add_requests(self, requests: RequestColumns, *, whole: bool) -> None:
        """Add requests; with clusters and histograms to the sums of the `whole` service."""
        self._forget_readings()
        total = self.moments.reshape(1, -1)
        # one by one, so that no sum depends on how many requests come at a time
        total[:] = np.add.accumulate(np.concatenate((total, requests.moments)))[-1]
        if not whole:
            return
        self._bins = self._bins or _zeros(_BINS)
        requests.bins.add_to(self._bins)
        self._slots = self._slots or _zeros(_SLOTS)
        requests.slots.add_to(self._slots)
        if requests.times.terms.any():
            self._times = self._times or _zeros(_TIMES)
            requests.times.add_to(self._times)
        for weight, strata in zip(requests.weights, requests.strata, strict=True):
            for name in strata:
                self.strata[name] = self.strata.get(name, 0.0) + weight

    def add(self, other: RequestSums) -> None:
        """Add other sums."""
        self._forget_readings()
        self.moments[:] += other.moments
        if other._bins is not None:
            self._bins = self._bins or _zeros(_BINS)
            np.frombuffer(self._bins)[:] += np.frombuffer(other._bins)
        if other._slots is not None:
            self._slots = self._slots or _zeros(_SLOTS)
            np.frombuffer(self._slots)[:] += np.frombuffer(other._slots)
        if other._times is not None:
            self._times = self._times or _zeros(_TIMES)
            np.frombuffer(self._times)[:] += np.frombuffer(other._times)
        for name, weight in other.strata.items():
            self.strata[name] = self.strata.get(name, 0.0) + weight

    def copy(self) -> RequestSums:
        """Return sums that are the same and change by themselves."""
        copied = RequestSums()
        copied._moments = self._moments[:]
        copied._bins = self._bins and self._bins[:]
        copied._slots = self._slots and self._slots[:]
        copied._times = self._times and self._times[:]
        copied.strata = dict(self.strata)
        return copied

    def of(self, question: str) -> QuestionMoments | None:
        """Return the moments of a question, None without a request that has a value."""
        if self._by_question is None:
            self._by_question = {}
        if question in PLACE and question not in self._by_question:
            at = PLACE[question] * _MOMENTS[1]
            self._by_question[question] = _moments_of(*self._moments[at : at + _MOMENTS[1]])
        return self._by_question.get(question)

    def by_slot(self, question: str) -> Numbers | None:
        """Return the weights and weighted values by slot, None if not known.

        Returns:
            Shape (2, 2, `SLOTS`): of the second axis the first row is by slot of the cluster, the
            second by slot of the tenant.
        """
        if self.slots is None or PLACE[question] >= _CLUSTERED:
            return None
        return self.slots[:, :, PLACE[question]].transpose(2, 0, 1)

    def slowness(self) -> Numbers | None:
        """Return how slow the requests of each step of time are: 1 beyond the p95, 0 before it.

        The steps are those of `times`. The one that holds the p95 has the part that lies beyond.

        Returns:
            None where no time is known.
        """
        if self.times is None:
            return None
        weights = self.times[0].sum(axis=0)
        beyond = weights[::-1].cumsum()[::-1] - weights  # of the later steps
        slow = np.divide(
            SLOW * weights.sum() - beyond, weights, out=np.zeros(_STEPS), where=weights > 0
        )
        return np.asarray(np.minimum(np.maximum(slow, 0.0), 1.0))

    def slow_slots(self, slowness: Numbers) -> Numbers | None:
        """Return the weights and weighted slowness by slot, in the shape of `by_slot`.

        Args:
            slowness: Of each step of time, as `slowness` returns it of these or other sums.
        """
        if self.times is None:
            return None
        return np.array((self.times.sum(axis=2), self.times @ slowness))

    def slow_variance(self, slowness: Numbers) -> float:
        """Return the variance of the slowness of a request."""
        if self.times is None:
            return 0.0
        weights = self.times[0].sum(axis=0)
        total = weights.sum()
        mean = float(weights @ slowness / total)
        return float(weights @ (slowness - mean) ** 2 / total)

    def histogram(self, question: str) -> tuple[Numbers, Numbers]:
        """Return the weight and the mean of the cheap score of each bin with a request."""
        if self.bins is None:
            return np.empty(0), np.empty(0)
        cells = self.bins[INDEXED.index(question)]
        filled = cells[cells[:, 0] > 0]
        return filled[:, 0], filled[:, 1] / filled[:, 0]

    def dump(self) -> TrafficRow:
        """Return the row of the state."""
        return TrafficRow(
            moments=_sparse(self._moments),
            bins=_sparse(self._bins),
            slots=_sparse(self._slots),
            times=_sparse(self._times),
            strata=dict(self.strata),
        )

    @classmethod
    def load(cls, row: TrafficRow) -> RequestSums:
        """Restore what `dump` returned.

        Raises:
            ValueError: A position lies outside the sums.
        """
        sums = cls()
        _fill(sums._moments, row.moments)
        if row.bins:
            sums._bins = _zeros(_BINS)
            _fill(sums._bins, row.bins)
        if row.slots:
            sums._slots = _zeros(_SLOTS)
            _fill(sums._slots, row.slots)
        if row.times:
            sums._times = _zeros(_TIMES)
            _fill(sums._times, row.times)
        sums.strata = dict(row.strata)
        return sums


def _moments_of(
    n: float, weight: float, value: float, square: float, weight_square: float
) -> QuestionMoments | None:
    if not n:
        return None
    mean = value / weight
    return QuestionMoments(
        n=int(n),
        weight=weight,
        mean=mean,
        variance=max(0.0, square / weight - mean * mean) * n / max(1.0, n - 1),
        kish=weight * weight / weight_square,
    )


def _zeros(shape: tuple[int, ...]) -> array[float]:
    return array("d", bytes(8 * math.prod(shape)))


def _sparse(numbers: array[float] | None) -> list[float]:
    """Return positions and values that are not 0, in turn."""
    if numbers is None:
        return []
    flat = np.frombuffer(numbers)
    filled = np.flatnonzero(flat)
    pairs = np.empty(2 * len(filled))
    pairs[::2] = filled
    pairs[1::2] = flat[filled]
    found: list[float] = pairs.tolist()
    return found


def _fill(numbers: array[float], pairs: list[float]) -> None:
    at = np.array(pairs[::2], dtype=np.int64)
    flat = np.frombuffer(numbers)
    if len(pairs) % 2 or (len(at) and not (at.min() >= 0 and at.max() < len(flat))):
        raise ValueError("the sums of a bucket make no sense")
    flat[at] = pairs[1::2]


class TrafficKey(NamedTuple):
    """The name of a bucket: its width in seconds, and its start divided by that."""

    width: int
    number: int


def _by_bucket(requests: RequestColumns, width: int) -> dict[int, Sequence[int]]:
    """Return the numbers of the buckets of requests with the rows of each."""
    first, last = int(min(requests.at) // width), int(max(requests.at) // width)
    if first == last:  # nearly always
        return {first: range(len(requests))}
    rows: dict[int, list[int]] = {}
    for row, at in enumerate(requests.at):
        rows.setdefault(int(at // width), []).append(row)
    return dict(rows)


class RequestBuckets:
    """The buckets of a service, or of a segment of it (`whole` is False).

    Attributes:
        first: When the first request came, None before it.
        version: Another number after each change.
        finished: What readers made of finished buckets, by a name of theirs; emptied when one of
            them changes, or another is finished.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._buckets: dict[TrafficKey, RequestSums] = {}
        self._touched: dict[TrafficKey, None] = {}
        self._newest: dict[int, int] = {}  # by width the number of the newest bucket
        self.first: float | None = None
        self.version = 0
        self.finished: dict[Hashable, Any] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not self._buckets

    def add(self, requests: RequestColumns) -> None:
        """Count requests."""
        for width in (FINE, COARSE):
            for number, rows in _by_bucket(requests, width).items():
                own = requests.take(rows, whole=self._whole)
                key = TrafficKey(width, number)
                sums = self._buckets.get(key)
                if sums is None:
                    sums = self._buckets[key] = RequestSums()
                sums.add_requests(own, whole=self._whole)
                self._touched[key] = None
                self._reach(key)
        first = min(requests.at)
        self.first = first if self.first is None else min(self.first, first)
        self.version += 1

    def _reach(self, key: TrafficKey) -> None:
        newest = self._newest.get(key.width)
        if newest != key.number:
            self._newest[key.width] = key.number if newest is None else max(newest, key.number)
            self.finished.clear()

    def expire(self, now: float) -> None:
        """Drop the buckets that are too old at event time `now`."""
        for key in [key for key in self._buckets if self._is_over(key, now)]:
            del self._buckets[key]
            self._touched[key] = None
            self.finished.clear()
        for key, sums in self._buckets.items():
            old = key.width == COARSE and (key.number + 1) * COARSE <= now - KEPT_SLOTS
            if old and (sums.slots is not None or sums.times is not None):
                sums.forget_slots()
                self._touched[key] = None
                self.finished.clear()

    def _is_over(self, key: TrafficKey, now: float) -> bool:
        kept = KEPT_FINE if key.width == FINE else KEPT_COARSE
        return (key.number + 1) * key.width <= now - kept

    def sums(self, buckets: BucketRange) -> RequestSums:
        """Return the sums of some buckets, which are not to be changed.

        Of finished buckets alone they are the same object each time, with what readers made of it.
        """
        done, left = self.split(buckets)
        key = ("sums", buckets.width, done.start, done.stop)
        finished: RequestSums | None = self.finished.get(key)
        if finished is None:
            finished = self.finished[key] = self._sum(RequestSums(), buckets.width, done)
        return self._sum(finished.copy(), buckets.width, left) if left else finished

    def split(self, buckets: BucketRange) -> tuple[range, range]:
        """Return the numbers of the buckets that are finished, and of the others."""
        numbers = buckets.numbers
        newest = self._newest.get(buckets.width, numbers.start)
        end = min(max(newest, numbers.start), numbers.stop)
        return range(numbers.start, end), range(end, numbers.stop)

    def _sum(self, total: RequestSums, width: int, numbers: range) -> RequestSums:
        for number in numbers:
            sums = self._buckets.get(TrafficKey(width, number))
            if sums is not None:
                total.add(sums)
        return total

    def halves(self, buckets: BucketRange) -> tuple[RequestSums, RequestSums]:
        """Return the sums of every other bucket, and of those between."""
        found = (RequestSums(), RequestSums())
        for number in buckets.numbers:
            sums = self._buckets.get(TrafficKey(buckets.width, number))
            if sums is not None:
                found[number % 2].add(sums)
        return found

    def changes(self) -> dict[TrafficKey, TrafficRow | None]:
        """Return the buckets that changed since the last call, None for dropped ones."""
        touched = self._touched
        self._touched = {}
        return {key: self._buckets[key].dump() if key in self._buckets else None for key in touched}

    def restore(self, key: TrafficKey, row: TrafficRow) -> None:
        """Load a bucket.

        Raises:
            ValueError: The row makes no sense.
        """
        self._buckets[key] = RequestSums.load(row)
        self._reach(key)
        start = float(key.number * key.width)
        self.first = start if self.first is None else min(self.first, start)
        self.version += 1

    def moments(self, width: int, first: float, last: float) -> tuple[list[int], Numbers]:
        """Return the numbers and moments of the buckets that begin in [first, last)."""
        numbers = []
        found = []
        for number in BucketRange(first, last, width).numbers:
            sums = self._buckets.get(TrafficKey(width, number))
            if sums is not None:
                numbers.append(number)
                found.append(sums.raw_moments)
        if not found:
            return [], np.empty((0, *_MOMENTS))
        return numbers, np.frombuffer(b"".join(found)).reshape(-1, *_MOMENTS)

    def all_keys(self) -> Iterable[TrafficKey]:
        """Return the names of all buckets."""
        return self._buckets.keys()
