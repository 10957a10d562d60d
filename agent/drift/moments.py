"""Moments of scores from window sums, and the comparison of segments by them.

Which segment moved most: each against the rest, with as many comparisons as there are segments.

The largest of many noisy differences is always large, so a segment is named only where its own
movement differs from that of the other traffic by more than chance among all that were compared
(Bonferroni); else it is said that all moved alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ragmeter.core.arithmetic import VALUE_ONE, WEIGHT_ONE
from ragmeter.windows.estimators import StratumMoments, stratum_moments
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.sums import ScoreSums

SEGMENT_LEVEL = 0.01
"""Chance, over all segments compared, of naming one that moved like the rest."""

MIN_SEGMENT_SAMPLES = 10
"""Samples before and after below which a segment is not compared."""


class SampleMoments(NamedTuple):
    """Effective samples, mean and variance of one sample."""

    n: float
    mean: float
    variance: float


class SegmentMove(NamedTuple):
    """The segment that moved most, by its own standard error.

    `z` is its movement in standard errors; `p` says whether it differs from that of the rest,
    adjusted for the number of segments `compared`; `contribution` is the part of the service's
    shift that its own movement makes, `share_before` and `share_after` its part of the samples.
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
        """Whether it moved differently from the rest, beyond chance."""
        return self.p <= SEGMENT_LEVEL

    def describe(self) -> str:
        """A sentence for people."""
        moved = f"{self.segment} moved most, {self.before:.3g} to {self.after:.3g}"
        if self.distinct:
            return f"{moved}, unlike the rest (p = {self.p:.1g} over {self.compared} segments)"
        return f"all segments moved alike, as far as can be told ({moved})"


def find_moved_segment(
    service: tuple[SampleMoments, SampleMoments],
    segments: Mapping[str, tuple[SampleMoments, SampleMoments]],
) -> SegmentMove | None:
    """(before, after) of the service and of each segment; None where none can be compared."""
    known = {
        name: pair
        for name, pair in segments.items()
        if min(part.n for part in pair) >= MIN_SEGMENT_SAMPLES
    }
    best: SegmentMove | None = None
    for name in sorted(known):
        move = _compare_segment(name, service, known[name], len(known))
        if best is None or abs(move.z) > abs(best.z):
            best = move
    return best


def _compare_segment(
    name: str,
    service: tuple[SampleMoments, SampleMoments],
    pair: tuple[SampleMoments, SampleMoments],
    compared: int,
) -> SegmentMove:
    (all0, all1), (own0, own1) = service, pair
    own, error = own1.mean - own0.mean, _movement_error(pair)
    rests = rest_moments(all0, own0), rest_moments(all1, own1)
    other, other_error = 0.0, 0.0
    if rests[0] is not None and rests[1] is not None:
        rest = (rests[0], rests[1])
        other, other_error = rest[1].mean - rest[0].mean, _movement_error(rest)
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


def rest_moments(whole: SampleMoments, own: SampleMoments) -> SampleMoments | None:
    """What is not in the segment; None where that is next to nothing."""
    n = whole.n - own.n
    if n < MIN_SEGMENT_SAMPLES:
        return None
    return SampleMoments(n, (whole.n * whole.mean - own.n * own.mean) / n, whole.variance)


def squared_error(part: SampleMoments) -> float:
    """The squared standard error of a mean. A variance of 0 (all values equal) is one
    pseudo-sample's worth."""
    return max(part.variance, 1e-3 / part.n) / part.n


def _movement_error(pair: tuple[SampleMoments, SampleMoments]) -> float:
    """The squared standard error of a movement."""
    return sum(map(squared_error, pair))


class BucketSource(Protocol):
    """What the monitor reads: closed buckets of event time. `Windows` is one."""

    def services(self) -> Sequence[str]: ...

    def segments(self, service: str) -> Sequence[str]: ...

    def series(self, service: str, segment: str = "") -> Sequence[tuple[str, str]]: ...

    def stages(self, service: str, segment: str = "") -> Sequence[str]: ...

    def bucket(
        self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
    ) -> ScoreSums | None: ...

    def bucket_latency(
        self, service: str, segment: str, stage: str, width: int, start: float
    ) -> LogHistogram | None: ...


class EffectiveSums(NamedTuple):
    """n effective samples with the sum and the sum of squares that they would have."""

    n: float
    total: float
    squares: float


def effective_sums(cell: ScoreSums) -> EffectiveSums | None:
    """The self-normalised (Hajek) mean with Kish's number of samples."""
    n, y, yy = cell.n, cell.y / VALUE_ONE, cell.yy / (VALUE_ONE * VALUE_ONE)
    if not cell.strata:
        return EffectiveSums(n, y, yy) if n else None
    w = w2 = float(n)
    for sums in cell.strata.values():
        w += sums[3] / WEIGHT_ONE
        w2 += sums[4] / (WEIGHT_ONE * WEIGHT_ONE)
        y += sums[5] / (WEIGHT_ONE * VALUE_ONE)
        yy += sums[11] / (VALUE_ONE * VALUE_ONE)
        n += sums[2]
    if not n:
        return None
    kish = w * w / w2
    return EffectiveSums(kish, kish * y / w, kish * yy / n)


def moments_by_stratum(
    cell: ScoreSums, all_strata: bool = True
) -> dict[str, StratumMoments] | None:
    """Moments by stratum. None without a scored trace, and, where `all_strata` are asked for, while
    one that has traces has no scored one."""
    named = cell.sums()
    scored = {name: sums for name, sums in named.items() if sums[2]}
    if not scored or (all_strata and len(scored) < len(named)):
        return None
    return {name: stratum_moments([sums])[0] for name, sums in scored.items()}


def sample_moments(cells: Iterable[ScoreSums | None]) -> SampleMoments:
    """Mean and spread over several buckets."""
    n = total = squares = 0.0
    for cell in cells:
        found = effective_sums(cell) if cell is not None else None
        if found is not None:
            n += found.n
            total += found.total
            squares += found.squares
    if not n:
        return SampleMoments(0.0, 0.0, 0.0)
    mean = total / n
    return SampleMoments(n, mean, max(0.0, squares / n - mean * mean))
