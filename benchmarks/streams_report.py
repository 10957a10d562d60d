"""What the comparison of `benchmarks.streams` found, and its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["EVERY", "REPEATS", "Row", "report"]

EVERY = 10_000
"""Samples per false alarm: ten are then expected on 100,000, in minutes. At 30 days (860,000 at
this pace: a bucket is a minute of 20) nobody could check what was realised."""

REPEATS = 5.0
"""How often an answer comes in a row, on average, in the traffic that is not independent."""


@dataclass
class Row:
    """One detector on one swap. `delays`: samples to the first alarm, None where it was missed.
    `elsewhere`: false alarms of a detector for independent traffic where answers repeat."""

    set: str
    before: str
    after: str
    signal: str
    level_before: float
    level_after: float
    repeats: float
    detector: str
    threshold: float
    false_alarms: float
    elsewhere: float | None
    delays: list[int | None]

    @property
    def missed(self) -> float:
        return sum(d is None for d in self.delays) / len(self.delays)

    def delay(self, q: float) -> float:
        """A quantile of the samples to detection; infinite where that many were missed."""
        ordered = sorted(math.inf if d is None else float(d) for d in self.delays)
        return ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)]


def _label(r: Row) -> str:
    moved = f"{r.level_before:.2f} to {r.level_after:.2f}"
    before, after = (
        name.split(" ")[0].removesuffix("-0613").removesuffix("-chat")
        for name in (r.before, r.after)
    )
    return f"{r.set}, {before} to {after}, {r.signal} {moved}"


def _cell(r: Row) -> str:
    words = [f"{d:.0f}" if d < math.inf else "–" for d in (r.delay(0.5), r.delay(0.9))]
    return " / ".join(words) + (f" ({r.missed:.0%} missed)" if r.missed else "")


def _summary(lines: Sequence[Sequence[Row]]) -> str:
    """Per detector: on how many lines its median is the lowest, and below ours fitted."""
    names = [r.detector for r in lines[0]]
    head = f"| of {len(lines)} lines, how many | " + " | ".join(names) + " |"
    out = [head, "| --- |" + " ---: |" * len(names)]
    for what, key in (("fewest samples, median", 0.5), ("fewest samples, p90", 0.9)):
        best = [min(r.delay(key) for r in line) for line in lines]
        counts = [
            sum(line[i].delay(key) == b < math.inf for line, b in zip(lines, best, strict=True))
            for i in range(len(names))
        ]
        out.append(f"| {what} | " + " | ".join(map(str, counts)) + " |")
    for own, what in ((0, "sooner than ours, median"), (1, "sooner than ours, fitted, median")):
        sooner = [
            sum(line[i].delay(0.5) < line[own].delay(0.5) for line in lines)
            for i in range(len(names))
        ]
        out.append(f"| {what} | " + " | ".join(map(str, sooner)) + " |")
    missed = [sum(line[i].missed for line in lines) / len(lines) for i in range(len(names))]
    out.append("| missed, mean | " + " | ".join(f"{m:.0%}" for m in missed) + " |")
    rates: list[tuple[str, Callable[[Row], float | None]]] = [
        (f"alarms per {EVERY} without a swap", lambda r: r.false_alarms),
        (f"the same, answers {REPEATS:.0f} times in a row", lambda r: r.elsewhere),
    ]
    for what, rate in rates:
        columns = [[rate(line[i]) for line in lines] for i in range(len(names))]
        known = [[a for a in column if a is not None] for column in columns]
        if all(known):
            cells = [f"{sum(k) / len(k):.2f} (most {max(k):.2f})" for k in known]
            out.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def _tables(lines: Sequence[Sequence[Row]], within: int) -> str:
    """Samples to detection, false alarms, and the counts from both, as Markdown."""
    names = [r.detector for r in lines[0]]
    out = []
    cells: tuple[tuple[str, Callable[[Row], str]], ...] = (
        (f"Samples to detection: median / p90 (share not found within {within})", _cell),
        (f"Alarms per {EVERY} samples without a swap", lambda r: f"{r.false_alarms:.2f}"),
    )
    if lines[0][0].elsewhere is not None:
        title = f"The same where answers come {REPEATS:.0f} times in a row on average"
        cells = (*cells, (title, lambda r: f"{r.elsewhere:.2f}"))
    for title, cell in cells:
        out += [title, "", "| swap | " + " | ".join(names) + " |"]
        out.append("| --- |" + " ---: |" * len(names))
        for line in lines:
            out.append(f"| {_label(line[0])} | " + " | ".join(map(cell, line)) + " |")
        out.append("")
    return "\n".join([*out, _summary(lines)])


def report(lines: Sequence[Sequence[Row]], within: int) -> str:
    """The tables of both orders."""
    out = []
    for repeats, title in (
        (1.0, "Answers in independent order"),
        (REPEATS, f"Answers {REPEATS:.0f} times in a row on average, thresholds fitted to that"),
    ):
        chosen = [line for line in lines if line[0].repeats == repeats]
        out += [f"### {title}", "", _tables(chosen, within), ""]
    return "\n".join(out)
