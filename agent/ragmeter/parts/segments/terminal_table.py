"""Render the JSON document of a breakdown as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import MetricSpec, spoken_name
from ragmeter.metrics.registry import metric_specs

_Json = Mapping[str, Any]

_MAX_LABEL = 60  # characters of a segment or service
_TOP_SEGMENTS = 3  # segments of a metric that are shown without a finding, by what they add


def describe_breakdown(breakdown: _Json, window: str | None) -> str:
    """Describe in one line what was compared with what, and how often.

    Args:
        breakdown: A document of `ragmeter.parts.segments.breakdown.build_document`.
        window: The window of now; None: a file.
    """
    past = breakdown["past"]
    against = f" against {past}" if past else ", each segment against the rest"
    now = f"last {window}" if window else "the last file"
    result = "nothing to compare"
    if breakdown["comparisons"]:
        number = breakdown["findings"] or "no"
        result = f"{number} findings in {breakdown['comparisons']} comparisons"
    fdr = f"false discovery rate {100 * breakdown['fdr']:g} %"
    return f"{bound_label(breakdown['service'], _MAX_LABEL)}: {now}{against}; {result} ({fdr})"


def build_segments_table(breakdown: _Json, window: str | None, every: bool) -> Table | None:
    """Build a table of each metric for the whole service, then its segments.

    Segments are those with findings and those that add most, or all of `every`. None if nothing
    could be compared.
    """
    table = Table(
        title=Text(describe_breakdown(breakdown, window), "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    past = breakdown["past"] is not None
    table.add_column("segment", overflow="fold", max_width=34)
    table.add_column("share", justify="right", no_wrap=True)
    if past:
        table.add_column("before", justify="right")
    table.add_column("now", justify="right")
    table.add_column("change" if past else "from the rest", justify="right")
    table.add_column("adds" if past else "pulls", justify="right")
    table.add_column("finding", overflow="fold")
    for series in breakdown["series"]:
        spec = metric_specs().get(series["metric"])
        rows = list(_rows_to_show(series, every))
        if not rows and not every and not series["whole"]["moved"]:
            continue
        table.add_section()
        _add_row(
            table=table, name=_name(series), row=series["whole"], spec=spec, past=past, style="bold"
        )
        for row in rows:
            _add_row(
                table=table, name=f"  {_segment(row['segment'])}", row=row, spec=spec, past=past
            )
        for tag in series["tags"]:
            left = tag["unattributed"]
            if every and past and abs(left) > 1e-9:
                cells = [f"  {bound_label(tag['tag'], 30)}: the rest of it", "", "", "", ""]
                table.add_row(*map(Text, [*cells, _step(left, spec), "small segments, strata"]))
    return table if table.row_count else None


def _rows_to_show(series: _Json, every: bool) -> Iterator[_Json]:
    # rows come in the order of findings
    moved = series["whole"]["moved"]
    for tag in series["tags"]:
        for rank, row in enumerate(tag["segments"]):
            if every or row["told"] or (moved and rank < _TOP_SEGMENTS and not row["too_few"]):
                yield row


def _add_row(
    table: Table,
    name: str,
    row: _Json,
    spec: MetricSpec | None,
    past: bool,
    style: str = "",
) -> None:
    share = _share(row["share"])
    cells = [name, f"{_share(row['share_before'])} → {share}" if past else share]
    if past:
        cells.append(_side(row["before"], spec))
    cells.append(_side(row["now"], spec))
    # what is new has no change of its own
    cells.append(_interval(row["change"] if past else row["from_rest"], spec))
    cells.append(_interval(row["contribution"], spec))
    finding = row["finding"]
    if row["told"]:
        finding = f"{finding} ({_q(row)})"
        style = "bold" if row["unlike_the_rest"] else style
    cells.append(finding)
    # as `Text`: values from traces must not be parsed as markup
    table.add_row(*(Text(cell, style) for cell in cells))


def _q(row: _Json) -> str:
    """Format the largest q value that the finding rests on."""
    pairs = ((row["moved"], row["change"]), (row["unlike_the_rest"], row["from_rest"]))
    q = max(contrast["q"] for is_finding, contrast in pairs if is_finding)
    return f"q {q:.2g}" if q >= 1e-4 else "q < 0.0001"


def _name(series: _Json) -> str:
    k = f" at {series['k']}" if "k" in series else ""
    return f"{spoken_name(series['metric'])}{k} ({bound_label(series['scorer'], 40)})"


def _segment(segment: str) -> str:
    tag, _, value = segment.partition("=")
    return bound_label(segment, _MAX_LABEL) if value else f"no {bound_label(tag, 30)}"


def _share(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _side(side: _Json | None, spec: MetricSpec | None) -> str:
    if side is None:
        return "–"
    if "value" not in side:
        return f"{side['samples']} scored"
    value: float = side["value"]
    if spec is not None and spec.kind == "ratio":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if spec is not None and spec.high is not None else f"{value:.4g}"


def _step(value: float | None, spec: MetricSpec | None) -> str:
    """Format a difference; of shares in percentage points."""
    if value is None:
        return "–"
    if spec is not None and spec.kind == "ratio":
        return f"{100 * value:+.1f} pp"
    return f"{value:+.3f}" if spec is not None and spec.high is not None else f"{value:+.3g}"


def _interval(contrast: _Json | None, spec: MetricSpec | None) -> str:
    if contrast is None or contrast["value"] is None:
        return ""
    value, lower, upper = (_step(contrast[name], spec) for name in ("value", "lower", "upper"))
    return f"{value}\n{lower.removesuffix(' pp')} … {upper}"
