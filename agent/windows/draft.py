"""The hot path: traces of one service, segment combination and finest bucket, not yet folded.

Adding a trace touches one draft, whatever the number of windows and segments; folding it into
the rings later gives the same sums because they are exact. Scores are grouped by their
inclusion probability, so a weight is turned into its fourteen sums once per group.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.trace import ScoredTrace, State
from agent.windows.bucket import Bucket, SeriesKey
from agent.windows.exact import VALUE_ONE, WEIGHT_ONE, weight
from agent.windows.loghist import Sketch, cell_of
from agent.windows.sums import DEFAULT_STRATUM, Cell, add_scored, empty_sums
from agent.windows.worst import Entry, keep, tie_break

__all__ = ["Draft"]

_SCORED, _NOT_APPLICABLE, _SAMPLED_OUT = State.SCORED, State.NOT_APPLICABLE, State.SAMPLED_OUT
_UNSCORED, _SHED = State.UNSCORED, State.SHED


class _Column:
    """One (metric, scorer): `groups` maps a probability to [n, sum y, sum y**2]."""

    __slots__ = ("bar", "groups", "not_applicable", "sampled_out", "shed", "sign", "unscored")

    def __init__(self, sign: int, bar: float) -> None:
        self.not_applicable = self.sampled_out = self.unscored = self.shed = 0
        self.groups: dict[float, list[int]] = {}
        self.sign = sign
        self.bar = bar

    def cell(self) -> Cell:
        cell = Cell()
        cell.not_applicable = self.not_applicable
        cell.sampled_out = self.sampled_out
        cell.unscored = self.unscored
        cell.shed = self.shed
        sums = empty_sums()
        for probability, (n, y, yy) in self.groups.items():
            w = weight(probability)
            if w == WEIGHT_ONE:
                cell.n += n
                cell.y += y
                cell.yy += yy
            else:
                add_scored(sums, w, y, yy, n)
        if sums[2]:
            cell.strata = {DEFAULT_STRATUM: sums}
        return cell


class Draft:
    __slots__ = ("_columns", "_direction", "_sketches", "_worst", "seen")

    def __init__(self, direction: Callable[[str], tuple[int, float]]) -> None:
        """`direction` gives by metric what `worst.direction` says of its spec."""
        self.seen = 0
        self._direction = direction
        self._columns: dict[SeriesKey, _Column] = {}
        self._sketches: dict[str, Sketch] = {}
        self._worst: dict[SeriesKey, list[Entry]] = {}

    def add(self, scored: ScoredTrace, stages: list[str]) -> None:
        """`scored` has been checked; `stages` are those of its timings to keep."""
        self.seen += 1
        columns = self._columns
        for score in scored.results:
            key = (score.metric, score.scorer)
            column = columns.get(key)
            if column is None:
                column = columns[key] = _Column(*self._direction(score.metric))
            state = score.state
            if state is _SCORED:
                value: float = score.value  # type: ignore[assignment]  # checked by the caller
                y = round(value * VALUE_ONE)
                group = column.groups.get(score.probability)
                if group is None:
                    column.groups[score.probability] = [1, y, y * y]
                else:
                    group[0] += 1
                    group[1] += y
                    group[2] += y * y
                if column.sign and column.sign * value <= column.bar:
                    self._keep(key, column, scored, value)
            elif state is _NOT_APPLICABLE:
                column.not_applicable += 1
            elif state is _SAMPLED_OUT:
                column.sampled_out += 1
            elif state is _UNSCORED:
                column.unscored += 1
            elif state is _SHED:
                column.shed += 1
        if stages:
            w = WEIGHT_ONE if scored.probability == 1.0 else weight(scored.probability)
            for stage in stages:
                sketch = self._sketches.get(stage)
                if sketch is None:
                    sketch = self._sketches[stage] = Sketch()
                sketch.add(cell_of(scored.timings[stage]), w)

    def _keep(self, key: SeriesKey, column: _Column, scored: ScoredTrace, value: float) -> None:
        entries = self._worst.get(key)
        if entries is None:
            entries = self._worst[key] = []
        trace_id = scored.trace_id
        entry = Entry(column.sign * value, tie_break(trace_id), trace_id, scored.timestamp, value)
        keep(entries, entry)
        column.bar = min(column.bar, entries[-1].rank) if len(entries) == 5 else column.bar

    def bucket(self) -> Bucket:
        """The same, in the form that rings merge. The draft is spent."""
        bucket = Bucket()
        bucket.seen = self.seen
        bucket.cells = {key: column.cell() for key, column in self._columns.items()}
        bucket.sketches = self._sketches
        bucket.worst = self._worst
        return bucket
