"""Moments of scores from window sums, and the comparison of segments by them.

The largest of many noisy differences is always large. So a segment is named only if its movement
differs from that of the other traffic by more than chance among all compared (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from ragmeter.core.arithmetic import VALUE_ONE, WEIGHT_ONE
from ragmeter.drift.alarms import AlarmKind
from ragmeter.drift.baseline import DAY, HOUR, MINUTE
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import ScoreSums, StratumMoments, stratum_moments

# Chance, over all segments compared, of naming one that moved like the rest.
SEGMENT_LEVEL = 0.01

# Samples before and after below which a segment is not compared.
MIN_SEGMENT_SAMPLES = 10

# Segments compared: each costs some 150 buckets, and an alarm comes once in a month.
_MAX_COMPARED_SEGMENTS = 64

# Seconds of the longest window's buckets: a day of them is there to compare with.
_COARSE_WIDTH = 600


class BucketSource(Protocol):
    """Closed buckets of event time, as the monitor reads them; `Windows` is one."""

    def services(self) -> Sequence[str]:
        """Return the services with traffic."""

    def segments(self, service: str) -> Sequence[str]:
        """Return the segments of a service with traffic."""

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]:
        """Return each (metric, scorer) with traffic."""

    def stages(self, service: str, segment: str = "") -> Sequence[str]:
        """Return the latency stages with traffic."""

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None:
        """Return the sums of [start, start + width), None without any."""

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None:
        """Return the latency histogram of [start, start + width), None without samples."""


class SampleMoments(NamedTuple):
    """The effective number of samples, their mean and the variance of one sample."""

    n: float
    mean: float
    variance: float


class EffectiveSums(NamedTuple):
    """n effective samples with the sum and the sum of squares that they would have."""

    n: float
    total: float
    squares: float


def effective_sums(cell: ScoreSums) -> EffectiveSums | None:
    """Return sums that give the self-normalised (Hajek) mean with Kish's number of samples.

    Returns:
        The sums, None without a scored trace.
    """
    n, y, yy = cell.n, cell.y / VALUE_ONE, cell.yy / (VALUE_ONE * VALUE_ONE)
    if not cell.strata:
        return EffectiveSums(n, y, yy) if n else None
    w = w2 = float(n)
    for sums in cell.strata.values():
        w += sums.w / WEIGHT_ONE
        w2 += sums.w2 / (WEIGHT_ONE * WEIGHT_ONE)
        y += sums.wy / (WEIGHT_ONE * VALUE_ONE)
        yy += sums.yy / (VALUE_ONE * VALUE_ONE)
        n += sums.n
    if not n:
        return None
    kish = w * w / w2
    return EffectiveSums(kish, kish * y / w, kish * yy / n)


def sample_moments(cells: Iterable[ScoreSums | None]) -> SampleMoments:
    """Return the moments over several buckets, all zero without a scored trace."""
    n = total = squares = 0.0
    for cell in cells:
        sums = effective_sums(cell) if cell is not None else None
        if sums is not None:
            n += sums.n
            total += sums.total
            squares += sums.squares
    if not n:
        return SampleMoments(0.0, 0.0, 0.0)
    mean = total / n
    return SampleMoments(n, mean, max(0.0, squares / n - mean * mean))


def rest_moments(whole: SampleMoments, own: SampleMoments) -> SampleMoments | None:
    """Return the moments outside a segment, None with fewer than `MIN_SEGMENT_SAMPLES` there."""
    n = whole.n - own.n
    if n < MIN_SEGMENT_SAMPLES:
        return None
    return SampleMoments(n, (whole.n * whole.mean - own.n * own.mean) / n, whole.variance)


def squared_error(moments: SampleMoments) -> float:
    """Return the squared standard error of a mean.

    A variance of 0 (all values equal) counts as one pseudo-sample's worth.
    """
    return max(moments.variance, 1e-3 / moments.n) / moments.n


def moments_by_stratum(
    cell: ScoreSums, all_strata: bool = True
) -> dict[str, StratumMoments] | None:
    """Return the moments of each stratum with a scored trace.

    Args:
        cell: Sums of a series.
        all_strata: Return None while a stratum with traces has no scored one.

    Returns:
        Moments by name of stratum, None without a scored trace.
    """
    strata = cell.sums()
    scored = {name: sums for name, sums in strata.items() if sums.n}
    if not scored or (all_strata and len(scored) < len(strata)):
        return None
    return {name: stratum_moments(sums) for name, sums in scored.items()}


class SegmentMove(NamedTuple):
    """The segment that moved most, by its own standard error.

    `before` and `after` are its means, `z` its movement in standard errors. `p` tells whether that
    differs from the rest's, adjusted for the number of segments `compared`. `contribution` is the
    part of the service's shift that its own movement makes, `share_before` and `share_after` its
    part (0..1) of the samples.
    """

    segment: str
    before: float
    after: float
    contribution: float
    share_before: float
    share_after: float
    z: float
    p: float
    compared: int

    @property
    def distinct(self) -> bool:
        """True if it moved differently from the rest, beyond chance."""
        return self.p <= SEGMENT_LEVEL

    def describe(self) -> str:
        """Describe the movement in a sentence."""
        moved = f"{self.segment} moved most, {self.before:.3g} to {self.after:.3g}"
        if self.distinct:
            return f"{moved}, unlike the rest (p = {self.p:.1g} over {self.compared} segments)"
        return f"all segments moved alike, as far as can be told ({moved})"


_Movement = tuple[SampleMoments, SampleMoments]  # (before, after)


def find_moved_segment(
    service: tuple[SampleMoments, SampleMoments],
    segments: Mapping[str, tuple[SampleMoments, SampleMoments]],
) -> SegmentMove | None:
    """Find the segment that moved most.

    Args:
        service: Moments of the service (before, after).
        segments: The same of each segment by name.

    Returns:
        The movement, None if no segment has enough samples.
    """
    comparable = {
        name: movement
        for name, movement in segments.items()
        if min(moments.n for moments in movement) >= MIN_SEGMENT_SAMPLES
    }
    moves = [
        _compare_segment(name, service, comparable[name], len(comparable))
        for name in sorted(comparable)
    ]
    return max(moves, key=lambda move: abs(move.z), default=None)


def _compare_segment(
    name: str, service: _Movement, movement: _Movement, compared: int
) -> SegmentMove:
    (all0, all1), (own0, own1) = service, movement
    own, error = own1.mean - own0.mean, sum(map(squared_error, movement))
    rest0, rest1 = rest_moments(all0, own0), rest_moments(all1, own1)
    other, other_error = 0.0, 0.0
    if rest0 is not None and rest1 is not None:
        other, other_error = rest1.mean - rest0.mean, squared_error(rest0) + squared_error(rest1)
    apart = abs(own - other) / math.sqrt(error + other_error)
    return SegmentMove(
        segment=name,
        before=own0.mean,
        after=own1.mean,
        contribution=min(1.0, own1.n / all1.n) * own,
        share_before=min(1.0, own0.n / all0.n),
        share_after=min(1.0, own1.n / all1.n),
        z=own / math.sqrt(error),
        p=min(1.0, compared * math.erfc(apart / math.sqrt(2))),
        compared=compared,
    )


def find_segment_of_alarm(
    source: BucketSource,
    key: tuple[str, str, str],
    kind: AlarmKind,
    since: float,
    at: float,
    cell: int,
) -> SegmentMove | None:
    """Find the segment that moved most between the day before a change and the time since.

    Args:
        source: Closed buckets.
        key: (service, metric or stage, scorer) of the alarm.
        kind: Kind of the alarm; judge drift has no segment, since all share the judge.
        since: Time of the change, Unix seconds.
        at: Time of the alarm, Unix seconds.
        cell: For latency the histogram cell from which on samples count as above the edge.

    Returns:
        The movement, None if there is no segment to compare.
    """
    if kind == "judge":
        return None
    names = [name for name in source.segments(key[0]) if name][:_MAX_COMPARED_SEGMENTS]
    if not names:
        return None
    coarse_start = since - since % _COARSE_WIDTH
    before = list(_bucket_times(coarse_start - DAY, coarse_start))
    fine = since - since % (MINUTE if at - since < HOUR * 0.75 else _COARSE_WIDTH)
    after = list(_bucket_times(fine, at - at % MINUTE))

    def movement(segment: str) -> _Movement:
        if kind == "latency":
            args = (source, key[0], segment, key[1], cell)
            return _latency_moments(*args, before), _latency_moments(*args, after)
        return (
            sample_moments(source.bucket(key[0], segment, *key[1:], *time) for time in before),
            sample_moments(source.bucket(key[0], segment, *key[1:], *time) for time in after),
        )

    return find_moved_segment(movement(""), {name: movement(name) for name in names})


def _bucket_times(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Cut a time into (width, start) of coarse buckets, and minutes at its ends."""
    while start + MINUTE <= end:
        coarse = start % _COARSE_WIDTH == 0 and start + _COARSE_WIDTH <= end
        width = _COARSE_WIDTH if coarse else MINUTE
        yield width, start
        start += width


def _latency_moments(
    source: BucketSource,
    service: str,
    segment: str,
    stage: str,
    cell: int,
    times: Iterable[tuple[int, float]],
) -> SampleMoments:
    """Return the moments of the share of samples from `cell` on."""
    n = above = 0.0
    for width, start in times:
        hist = source.bucket_latency(service, segment, stage, width, start)
        if hist is not None and hist.n:
            total = sum(hist.counts)
            kish = total * total / hist.w2
            n += kish
            above += kish * sum(hist.counts[cell:]) / total
    share = above / n if n else 0.0
    return SampleMoments(n, share, share * (1 - share))
