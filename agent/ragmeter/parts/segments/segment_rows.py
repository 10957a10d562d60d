"""One series by segment: estimates, differences and contributions from exact sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragmeter.windows.contrasts import (
    Contrast,
    Contribution,
    MeanSample,
    SeriesKind,
    compare_means,
    contribution_to_change,
    contribution_to_level,
    estimate_sample,
)
from ragmeter.windows.sums import ScoreSums


@dataclass(slots=True)
class SegmentComparison:
    """One segment compared with its past and with the rest.

    Args:
        segment: `tag=value`; `tag=` is the traffic without the tag, "" the whole service.
        change: The difference from its own past.
        unlike: How much more than the rest it has changed; without a past to compare with, how far
            it is from the rest.
        added: What it adds to the change of the whole, or how far it pulls the whole from the rest.
        q_change: The adjusted p value of `change`; `q_unlike` is that of `unlike`.
    """

    segment: str
    now: MeanSample | None
    before: MeanSample | None
    share: float
    share_before: float | None
    change: Contrast | None = None
    unlike: Contrast | None = None
    added: Contribution | None = None
    new: bool = False
    q_change: float | None = None
    q_unlike: float | None = None
    moved: bool = False
    stands_out: bool = False

    @property
    def label(self) -> str:
        """The segment in words: `tag=value`, or `no tag` for the traffic without the tag."""
        tag, _, value = self.segment.partition("=")
        return self.segment if value else f"no {tag}"

    @property
    def largest_q(self) -> float:
        """The largest adjusted p value that its findings rest on; 0 without any."""
        pairs = ((self.moved, self.q_change), (self.stands_out, self.q_unlike))
        return max((q for found, q in pairs if found and q is not None), default=0.0)

    @property
    def rate(self) -> float:
        """The part of the whole's change that its own change makes."""
        return self.added.rate if self.added else 0.0

    @property
    def mix(self) -> float:
        """The part of the whole's change that the change of its share makes."""
        return self.added.mix if self.added else 0.0

    @property
    def gone(self) -> bool:
        """Whether it has no traffic any more."""
        return self.now is None

    @property
    def too_few(self) -> bool:
        """Whether it has too few samples for any comparison."""
        compared = self.change is not None or self.unlike is not None
        sides = [side for side in (self.now, self.before) if side is not None]
        return not (compared or self.gone) and not all(side.enough for side in sides)

    @property
    def finding(self) -> str:
        """A description of the findings; empty without any."""
        if self.too_few:
            return "too few"
        findings = ["gone"] if self.gone else ["new"] if self.new else []
        findings += ["moved"] if self.moved else []
        findings += ["unlike the rest"] if self.stands_out else []
        return ", ".join(findings)

    @property
    def reported(self) -> bool:
        """Whether it is worth a line of its own."""
        # If one segment has moved, those that have not are unlike the rest: a finding, and no news.
        return self.moved or (self.stands_out and self.change is None)

    @property
    def order(self) -> tuple[int, float]:
        """The sort key: by findings, then by what it adds; the largest comes first."""
        rank = 2 * self.reported + (self.reported and self.stands_out)
        return -rank, -abs(self.added.value) if self.added else 1.0


@dataclass(slots=True)
class TagBreakdown:
    """The segments of a tag.

    `rate` and `mix` are the sums of theirs, Kitagawa's terms. `unattributed` is what they leave of
    the change of the mean: what segments of too few samples add, and what strata weigh otherwise
    within a segment than over all.
    """

    name: str
    rows: list[SegmentComparison]
    unattributed: float

    @property
    def rate(self) -> float:
        """The part of the change that is within the segments."""
        return sum(row.rate for row in self.rows)

    @property
    def mix(self) -> float:
        """The part of the change that is a shift of shares."""
        return sum(row.mix for row in self.rows)


@dataclass(slots=True)
class SeriesBreakdown:
    """One metric by one scorer, against the past if `past`, else each segment against the rest."""

    metric: str
    scorer: str
    past: bool
    whole: SegmentComparison
    tags: list[TagBreakdown] = field(default_factory=list)

    @property
    def rows(self) -> list[SegmentComparison]:
        """The whole service and the segments of all tags."""
        return [self.whole, *(row for tag in self.tags for row in tag.rows)]


# The sums of one period by segment; the segment "" is the whole service.
PeriodSums = Mapping[str, ScoreSums | None]


@dataclass(slots=True, frozen=True)
class _PeriodEstimates:
    cells: PeriodSums
    kind: SeriesKind

    def own(self, segment: str) -> MeanSample | None:
        return estimate_sample(self.cells.get(segment), self.kind)

    def rest(self, segment: str) -> MeanSample | None:
        """Estimate all that is not of the segment."""
        whole = self.cells.get("")
        own = self.cells.get(segment)
        rest = whole if whole is None or own is None else whole.without(own)
        return estimate_sample(rest, self.kind)

    def with_untagged(self, tag: str, segments: Sequence[str]) -> _PeriodEstimates:
        """Add the traffic that is in none of the `segments`, as `tag=`."""
        whole = self.cells.get("")
        tagged = [cell for name in segments if (cell := self.cells.get(name)) is not None]
        left = whole.without(ScoreSums.total(tagged)) if whole and tagged else whole
        return replace(self, cells={**self.cells, f"{tag}=": left})


def segments_by_tag(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the segments (`tag=value`) of each tag."""
    tags: dict[str, list[str]] = {}
    for name in names:
        tags.setdefault(name.partition("=")[0], []).append(name)
    return tags


def build_series_breakdown(
    metric: str,
    scorer: str,
    kind: SeriesKind,
    tags: Mapping[str, Sequence[str]],
    now: PeriodSums,
    before: PeriodSums | None,
) -> SeriesBreakdown | None:
    """Compare the segments of each of the `tags` with their past, or without one with the rest.

    None if too few traces were scored over all, now or before.
    """
    present = _PeriodEstimates(now, kind)
    past = _PeriodEstimates(before, kind) if before is not None else None
    whole1 = present.own("")
    whole0 = past.own("") if past else None
    if whole1 is None or not whole1.enough or (past and (whole0 is None or not whole0.enough)):
        return None
    change = compare_means((whole1, whole0)) if whole0 else None
    whole = SegmentComparison(
        segment="",
        now=whole1,
        before=whole0,
        share=1.0,
        share_before=1.0 if past else None,
        change=change,
    )
    breakdown = SeriesBreakdown(metric, scorer, past is not None, whole)
    for tag, segments in tags.items():
        tagged = present.with_untagged(tag, segments)
        tagged_past = past.with_untagged(tag, segments) if past else None
        rows = [
            row
            for name in (*segments, f"{tag}=")
            if (
                row := _build_row(
                    name=name, present=tagged, past=tagged_past, whole1=whole1, whole0=whole0
                )
            )
            is not None
        ]
        if not rows:
            continue
        total = change.value if change else 0.0
        left = total - sum(row.added.value for row in rows if row.added)
        breakdown.tags.append(TagBreakdown(tag, rows, left))
    return breakdown


def _build_row(
    name: str,
    present: _PeriodEstimates,
    past: _PeriodEstimates | None,
    whole1: MeanSample,
    whole0: MeanSample | None,
) -> SegmentComparison | None:
    """Compare one segment; None if it has no traffic that the metric applies to."""
    now, before = present.own(name), past.own(name) if past else None
    if now is None and before is None:
        return None
    row = SegmentComparison(
        segment=name,
        now=now,
        before=before,
        share=now.size / whole1.size if now else 0.0,
        share_before=None,
    )
    rest1 = present.rest(name)
    has_rest = rest1 is not None and rest1.enough
    if past is None or whole0 is None:
        if now and now.enough and rest1 and has_rest:
            row.unlike = compare_means((now, rest1))
            row.added = contribution_to_level(now, rest1, whole1)
        return row
    row.share_before = before.size / whole0.size if before else 0.0
    rest0 = past.rest(name)
    if now and now.enough and before and before.enough:
        row.change = compare_means((now, before))
        if rest1 and has_rest and rest0 and rest0.enough:
            row.unlike = compare_means((now, before), (rest1, rest0))
    elif now and now.enough and rest1 and has_rest:
        row.new = True
        row.unlike = compare_means((now, rest1))
    # A side of too few samples supports no claim; one without traffic needs none, nor does the
    # little that a new segment had before.
    past_side = None if row.new else before
    if all(side is None or side.enough for side in (now, past_side)):
        row.added = contribution_to_change(now, past_side, (rest1, rest0), (whole1, whole0))
    return row
