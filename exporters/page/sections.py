"""Sections of the service page: segment breakdown, answer consistency and indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.exporters.page.markup import Child, Markup, el, join, one_line
from ragmeter.exporters.page.numbers import (
    THIN,
    format_count,
    format_interval,
    format_time,
    format_value,
)
from ragmeter.exporters.page.tables import LABEL, metric_words, scroll_box
from ragmeter.metrics.consistency import EMBEDDING_SIMILARITY, SIMILARITIES
from ragmeter.metrics.registry import METRICS

if TYPE_CHECKING:
    from ragmeter.aggregate.consistency import Agreement, AnswerComparison
    from ragmeter.aggregate.indexes import IndexVersion
    from ragmeter.breakdown.breakdown import Breakdown
    from ragmeter.breakdown.contrasts import Contrast, Contribution, MeanSample
    from ragmeter.breakdown.segment_rows import SegmentComparison, SeriesBreakdown

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
    rows, hidden = _series_rows(found)
    parts: list[Child] = [heading, el("p", _comparisons_text(found, hidden), class_="note")]
    if rows:
        head = el("tr", [_th(name, at) for at, name in enumerate(_column_names(past is not None))])
        table = el("table", el("thead", head), rows, class_="stick")
        parts.append(
            scroll_box(f"What moved by segment of {one_line(found.service, LABEL)}", table)
        )
    return parts


def _comparisons_text(found: Breakdown, hidden: int) -> str:
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


def _column_names(past: bool) -> tuple[str, ...]:
    if past:
        return ("Segment", "Share", "Before", "Now", "Change", "Adds to the mean", "Finding")
    return ("Segment", "Share", "Now", "From the rest", "Pulls the mean", "Finding")


def _th(name: str, at: int) -> Markup:
    return el("th", name, scope="col", class_="n" if at and name != "Finding" else None)


def _series_rows(found: Breakdown) -> tuple[list[Markup], int]:
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
        spec = METRICS[base_name(series.metric)]
        name = el(
            "th", metric_words(series.metric), el("small", series.scorer.partition("@")[0]),
            scope="row", class_="name",
        )  # fmt: skip
        body = [_segment_row(name, series.whole, spec, series.past)]
        for row in rows:
            label = el("th", _segment(row.segment), scope="row", class_="long")
            body.append(_segment_row(label, row, spec, series.past))
        bodies.append(el("tbody", body))
    return bodies, hidden


def _shown(series: SeriesBreakdown) -> Iterator[SegmentComparison]:
    """Findings, and of a mean that has moved the segments that add most; that is their order."""
    for tag in series.tags:
        for place, row in enumerate(tag.rows):
            if row.reported or (series.whole.moved and place < TOP and not row.too_few):
                yield row


def _segment(segment: str) -> str:
    tag, _, held = segment.partition("=")
    return one_line(segment, LABEL) if held else f"no {one_line(tag, LABEL)}"


def _segment_row(name: Markup, row: SegmentComparison, spec: MetricSpec, past: bool) -> Markup:
    cells: list[Child] = [name, el("td", _shares(row, past), class_="n")]
    if past:
        cells.append(_side(row.before, spec))
    cells.append(_side(row.now, spec))
    # what is new has no change of its own: how far it is from the rest is what was compared
    cells.append(_difference(row.change if past else row.unlike, spec))
    cells.append(_difference(row.added, spec))
    mark = el("b", row.finding) if row.reported and row.stands_out else row.finding or "—"
    cells.append(el("td", mark, el("small", _q(row)) if row.reported else None))
    return el("tr", cells)


def _q(row: SegmentComparison) -> str:
    """The largest of those that the finding rests on."""
    pairs = ((row.moved, row.q_change), (row.stands_out, row.q_unlike))
    q = max(q for found, q in pairs if found and q is not None)
    return f"q {q:.2g}" if q >= 1e-4 else "q < 0.0001"


def _shares(row: SegmentComparison, past: bool) -> str:
    now = _share_percent(row.share)
    if not past:
        return now
    return f"{_share_percent(row.share_before or 0.0)} → {now}"


def _share_percent(share: float) -> str:
    return f"{100 * share:.1f}{THIN}%" if 0 < share < 0.1 else f"{100 * share:.0f}{THIN}%"


def _side(sample: MeanSample | None, spec: MetricSpec) -> Markup:
    if sample is None:
        return el("td", "—", class_="n")
    if not sample.enough:
        return el("td", "—", el("small", f"too few: {sample.scored:,}"), class_="n")
    return el(
        "td",
        el("b", format_value(sample.value, spec)),
        el("small", format_interval(sample.lower, sample.upper, spec)),
        class_="n",
        title=f"{sample.scored:,} scored traces, {format_count(sample.effective)} effective",
    )


def _difference(found: Contrast | Contribution | None, spec: MetricSpec) -> Markup:
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


SPOKEN = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "embedding": "Embeddings (cosine)",
}


def consistency_table(
    compared: dict[str, AnswerComparison], windows: Sequence[str]
) -> Markup | None:
    """Nothing where no question was asked again."""
    if not any(found.several for found in compared.values()):
        return None
    head = el(
        "tr",
        el("th", "Similarity", scope="col"),
        [el("th", name, scope="col", class_="n") for name in windows],
    )
    rows = [
        el(
            "tr",
            el("th", SPOKEN[name], scope="row", class_="name"),
            [_similarity_cell(compared[window].by.get(name)) for window in windows],
        )
        for name in SIMILARITIES
        if name != EMBEDDING_SIMILARITY or any(name in found.by for found in compared.values())
    ]
    numbers = el(
        "tr",
        el("th", "Questions", el("small", "asked again, and once"), scope="row", class_="name"),
        [
            el("td", f"{compared[name].several:,}", el("small", f"{compared[name].single:,}"),
               class_="n")
            for name in windows
        ],
    )  # fmt: skip
    table = el("table", el("thead", head), el("tbody", [*rows, numbers]), class_="stick")
    title = el("h3", "Answers to one question ", el("small", "1: word by word the same"))
    return join(title, scroll_box("Answers to one question", table))


def _similarity_cell(found: Agreement | None) -> Markup:
    if found is None:
        return el("td", "—", class_="n", title="too few questions were asked again")
    title = f"{found.queries:,} questions"
    if found.variation is not None:
        title += f"; coefficient of variation {found.variation:.2f}"
    return el(
        "td",
        el("b", f"{found.mean:.2f}"),
        el("small", f"{found.lower:.2f}–{found.upper:.2f}"),
        class_="n",
        title=title,
    )


MAX_INDEX_ROWS = 60  # versions on one page; the rest are in /metrics
MAX_INDEX_REASONS = 3  # of skipped chunks, the most frequent
INDEX_COLUMNS = (
    "Index",
    "Version",
    "Made with",
    "Documents",
    "Without a chunk",
    "Chunks",
    "Skipped",
)
INDEX_TOKEN_STATISTICS = ("min", "mean", "p95", "max")


def indexes_section(versions: Sequence[IndexVersion]) -> Markup | None:
    """Nothing where no job has said anything."""
    if not versions:
        return None
    head = el(
        "tr",
        [
            el("th", name, scope="col", class_="n" if at > 2 else None)
            for at, name in enumerate(INDEX_COLUMNS)
        ],
        [el("th", f"Tokens {name}", scope="col", class_="n") for name in INDEX_TOKEN_STATISTICS],
    )
    body = [_index_row(one) for one in versions[:MAX_INDEX_ROWS]]
    more = len(versions) - len(body)
    note = f" · {more} more not shown" if more else ""
    return el(
        "section",
        el("h2", "Indexes ", el("small", f"as their jobs report them{note}")),
        scroll_box("Indexes", el("table", el("thead", head), el("tbody", body), class_="stick")),
    )


def _index_row(one: IndexVersion) -> Markup:
    build, tokens = one.build, one.build.tokens
    made = [" + ".join(name for name in way if name) for way in build.pipelines]
    state = "latest" if one.current else "before"
    reasons = sorted(build.skipped.items(), key=lambda item: (-item[1], item[0]))[
        :MAX_INDEX_REASONS
    ]
    why = ", ".join(f"{one_line(reason, 30)} {number:,}" for reason, number in reasons)
    numbers = (
        float(tokens.smallest) if tokens.number else None,
        tokens.mean,
        tokens.quantile(0.95),
        float(tokens.largest) if tokens.number else None,
    )
    return el(
        "tr",
        el("th", one_line(one.name, LABEL), el("small", one_line(one.service, LABEL)),
           scope="row", class_="long"),
        el("td", one_line(one.version, LABEL), el("small", f"{state}, {format_time(build.last)}"),
           class_="long"),
        el("td", [el("div", one_line(text, LABEL)) for text in made] or "—", class_="long"),
        el("td", f"{build.processed:,}", class_="n"),
        el("td", _index_percent(build.no_chunk_ratio), class_="n"),
        el("td", f"{build.attempted:,}", class_="n"),
        el("td", _index_percent(build.skipped_ratio), el("small", why) if why else None, class_="n"),
        [el("td", "—" if number is None else format_count(number), class_="n") for number in numbers],
    )  # fmt: skip


def _index_percent(share: float | None) -> str:
    return "—" if share is None else f"{100 * share:.1f}{THIN}%"
