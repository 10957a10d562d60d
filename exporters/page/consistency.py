"""How much answers to one question differ, as a table: similarities by window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.metrics.consistency import EMBEDDING, SIMILARITIES
from exporters.page.markup import Markup, el, join
from exporters.page.tables import box

if TYPE_CHECKING:
    from agent.consistency.agreement import Agreement
    from agent.consistency.memory import Compared

__all__ = ["consistency_table"]

SPOKEN = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "embedding": "Embeddings (cosine)",
}


def consistency_table(compared: dict[str, Compared], windows: Sequence[str]) -> Markup | None:
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
            [_cell(compared[window].by.get(name)) for window in windows],
        )
        for name in SIMILARITIES
        if name != EMBEDDING or any(name in found.by for found in compared.values())
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
    return join(title, box("Answers to one question", table))


def _cell(found: Agreement | None) -> Markup:
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
