"""Which segment moves a mean: the findings of a service, and what lies behind a mean that moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.metrics import METRICS
from agent.metrics.names import base
from agent.metrics.spec import MetricSpec
from exporters.page.markup import Child, Markup, el, one_line
from exporters.page.numbers import THIN, count, interval, value
from exporters.page.tables import LABEL, box, words

if TYPE_CHECKING:
    from agent.breakdown.breakdown import Breakdown
    from agent.breakdown.contrasts import Contrast
    from agent.breakdown.contributions import Added
    from agent.breakdown.rows import Row, Series
    from agent.breakdown.sample import Sample

__all__ = ["breakdown_section"]

TOP = 3  # segments of a tag shown without a finding, by what they add to a mean that has moved
MOST = 40  # rows of segments; the rest is in the JSON


def breakdown_section(found: Breakdown | None, window: str) -> list[Child]:
    """A heading, what was compared, and the table; nothing where there are no segments."""
    if found is None:
        return []
    past = found.past
    against = f"against {past}" if past else "each segment against the rest"
    title = "Which segment moved a mean" if past else "Which segment stands out"
    heading = el("h3", f"{title} ", el("small", f"last {window}, {against}"))
    rows, hidden = _rows(found)
    parts: list[Child] = [heading, el("p", _told(found, hidden), class_="note")]
    if rows:
        head = el("tr", [_th(name, at) for at, name in enumerate(_heads(past is not None))])
        table = el("table", el("thead", head), rows, class_="stick")
        parts.append(box(f"What moved by segment of {one_line(found.service, LABEL)}", table))
    return parts


def _told(found: Breakdown, hidden: int) -> str:
    """The budget in words."""
    if not found.comparisons:
        return "Nothing to compare yet: too few scores, or all in one segment."
    many = f"{found.comparisons:,} comparisons"
    share = f"{100 * found.fdr:g}{THIN}%"
    if not found.findings:
        return f"No difference beyond chance in {many} (at most {share} false findings)."
    more = f" {hidden} more rows are in /api/segments.json." if hidden else ""
    return (
        f"{found.findings:,} findings in {many}. Of findings made this way at most {share} are "
        f"false, over all metrics and segments together.{more}"
    )


def _heads(past: bool) -> tuple[str, ...]:
    if past:
        return ("Segment", "Share", "Before", "Now", "Change", "Adds to the mean", "Finding")
    return ("Segment", "Share", "Now", "From the rest", "Pulls the mean", "Finding")


def _th(name: str, at: int) -> Markup:
    return el("th", name, scope="col", class_="n" if at and name != "Finding" else None)


def _rows(found: Breakdown) -> tuple[list[Markup], int]:
    """A body of the table for each series, at most `MOST` rows of segments, and how many more."""
    bodies, shown, hidden = [], 0, 0
    for series in found.series:
        rows = list(_shown(series))
        if not rows and not series.whole.moved:
            continue
        room = max(0, MOST - shown)
        hidden += max(0, len(rows) - room)
        rows = rows[:room]
        shown += len(rows)
        spec = METRICS[base(series.metric)]
        name = el(
            "th", words(series.metric), el("small", series.scorer.partition("@")[0]),
            scope="row", class_="name",
        )  # fmt: skip
        body = [_row(name, series.whole, spec, series.past)]
        for row in rows:
            label = el("th", _segment(row.segment), scope="row", class_="long")
            body.append(_row(label, row, spec, series.past))
        bodies.append(el("tbody", body))
    return bodies, hidden


def _shown(series: Series) -> Iterator[Row]:
    """Findings, and of a mean that has moved the segments that add most; that is their order."""
    for tag in series.tags:
        for place, row in enumerate(tag.rows):
            if row.told or (series.whole.moved and place < TOP and not row.few):
                yield row


def _segment(segment: str) -> str:
    tag, _, held = segment.partition("=")
    return one_line(segment, LABEL) if held else f"no {one_line(tag, LABEL)}"


def _row(name: Markup, row: Row, spec: MetricSpec, past: bool) -> Markup:
    cells: list[Child] = [name, el("td", _shares(row, past), class_="n")]
    if past:
        cells.append(_side(row.before, spec))
    cells.append(_side(row.now, spec))
    # what is new has no change of its own: how far it is from the rest is what was compared
    cells.append(_step(row.change if past else row.unlike, spec))
    cells.append(_step(row.added, spec))
    mark = el("b", row.finding) if row.told and row.stands_out else row.finding or "—"
    cells.append(el("td", mark, el("small", _q(row)) if row.told else None))
    return el("tr", cells)


def _q(row: Row) -> str:
    """The largest of those that the finding rests on."""
    pairs = ((row.moved, row.q_change), (row.stands_out, row.q_unlike))
    q = max(q for found, q in pairs if found and q is not None)
    return f"q {q:.2g}" if q >= 1e-4 else "q < 0.0001"


def _shares(row: Row, past: bool) -> str:
    now = _percent(row.share)
    if not past:
        return now
    return f"{_percent(row.share_before or 0.0)} → {now}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}{THIN}%" if 0 < share < 0.1 else f"{100 * share:.0f}{THIN}%"


def _side(sample: Sample | None, spec: MetricSpec) -> Markup:
    if sample is None:
        return el("td", "—", class_="n")
    if not sample.enough:
        return el("td", "—", el("small", f"too few: {sample.scored:,}"), class_="n")
    return el(
        "td",
        el("b", value(sample.value, spec)),
        el("small", interval(sample.lower, sample.upper, spec)),
        class_="n",
        title=f"{sample.scored:,} scored traces, {count(sample.effective)} effective",
    )


def _step(found: Contrast | Added | None, spec: MetricSpec) -> Markup:
    """A difference with its interval; of shares in percentage points."""
    if found is None:
        return el("td", "—", class_="n")
    number = _signed(found.value, spec)
    low, high = _signed(found.lower, spec), _signed(found.upper, spec)
    unit = f"{THIN}pp" if spec.kind == "ratio" else ""
    return el("td", el("b", f"{number}{unit}"), el("small", f"{low} to {high}"), class_="n")


def _signed(number: float, spec: MetricSpec) -> str:
    if spec.kind == "ratio":
        return f"{100 * number:+.1f}".replace("-", "−")
    digits = ".3f" if spec.high is not None else ".3g"
    return f"{number:+{digits}}".replace("-", "−")
