"""What indexing jobs have said, as a table: the versions of each index side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from exporters.page.markup import Markup, el, one_line
from exporters.page.numbers import THIN, count, moment
from exporters.page.tables import LABEL, box

if TYPE_CHECKING:
    from agent.indexing.indexes import Version

__all__ = ["indexes_section"]

ROWS = 60  # versions on one page; the rest are in /metrics
REASONS = 3  # of skipped chunks, the most frequent
HEAD = ("Index", "Version", "Made with", "Documents", "Without a chunk", "Chunks", "Skipped")
TOKENS = ("min", "mean", "p95", "max")


def indexes_section(versions: Sequence[Version]) -> Markup | None:
    """Nothing where no job has said anything."""
    if not versions:
        return None
    head = el(
        "tr",
        [
            el("th", name, scope="col", class_="n" if at > 2 else None)
            for at, name in enumerate(HEAD)
        ],
        [el("th", f"Tokens {name}", scope="col", class_="n") for name in TOKENS],
    )
    body = [_row(one) for one in versions[:ROWS]]
    more = len(versions) - len(body)
    note = f" · {more} more not shown" if more else ""
    return el(
        "section",
        el("h2", "Indexes ", el("small", f"as their jobs report them{note}")),
        box("Indexes", el("table", el("thead", head), el("tbody", body), class_="stick")),
    )


def _row(one: Version) -> Markup:
    build, tokens = one.build, one.build.tokens
    made = [" + ".join(name for name in way if name) for way in build.ways]
    state = "latest" if one.current else "before"
    reasons = sorted(build.skipped.items(), key=lambda item: (-item[1], item[0]))[:REASONS]
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
        el("td", one_line(one.version, LABEL), el("small", f"{state}, {moment(build.last)}"),
           class_="long"),
        el("td", [el("div", one_line(text, LABEL)) for text in made] or "—", class_="long"),
        el("td", f"{build.processed:,}", class_="n"),
        el("td", _percent(build.no_chunk_ratio), class_="n"),
        el("td", f"{build.attempted:,}", class_="n"),
        el("td", _percent(build.skipped_ratio), el("small", why) if why else None, class_="n"),
        [el("td", "—" if number is None else count(number), class_="n") for number in numbers],
    )  # fmt: skip


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{100 * share:.1f}{THIN}%"
