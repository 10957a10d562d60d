"""Tallies of `benchmarks.acceptance`: coverage, bias and width by cell, and the table of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import NamedTuple

from benchmarks.acceptance_cases import Floats, Generator

START = 1_760_054_400.0  # seconds: when the simulated traffic begins
GAUGES = ("5m", "1h", "24h")
LEAST = 8  # judged traces that a reported gauge is expected to hold
Z_95 = NormalDist().inv_cdf(0.975)


def uniform_width(rng: Generator, values: Floats, n: int, *, finite: bool = True) -> float:
    """The width of Wilson's interval on a uniform sample of n of these values, all in [0, 1].

    It is about the mean of the values (`finite`), or of the process that they come from.
    """
    total = len(values)
    if finite and n >= total:
        return 0.0
    mean = float(values[rng.permutation(total)[:n]].mean())
    size = n / (1 - n / total) if finite else n
    half = math.sqrt(max(0.0, mean * (1 - mean)) / size + Z_95**2 / (4 * size**2))
    return 2 * Z_95 * half / (1 + Z_95**2 / size)


class Cell(NamedTuple):
    """What windows are counted together; `kind` is that of the metric, `series` that of scorers."""

    row: str
    kind: str
    series: str
    gauge: str
    population: str
    judged: int


@dataclass(slots=True)
class Tally:
    """Sums over windows: of one cell, or of the overlapping windows of one run."""

    windows: int = 0
    covered: int = 0
    bias: float = 0.0
    width: float = 0.0
    plain: float = 0.0
    judged: int = 0

    def add(
        self, truth: float, interval: tuple[float, float, float], judged: int, plain: float
    ) -> None:
        value, lower, upper = interval
        self.windows += 1
        self.covered += lower - 1e-9 <= truth <= upper + 1e-9
        self.bias += value - truth
        self.width += upper - lower
        self.plain += plain
        self.judged += judged

    @property
    def coverage(self) -> float:
        return self.covered / self.windows

    @property
    def error(self) -> float:
        """The binomial standard error of a coverage of .95."""
        return math.sqrt(0.95 * 0.05 / self.windows)

    def to_dict(self) -> dict[str, float]:
        return {
            "windows": self.windows,
            "samples": round(self.judged / self.windows, 1),
            "coverage": round(self.coverage, 4),
            "error": round(self.error, 4),
            "bias": round(self.bias / self.windows, 5),
            "width": round(self.width / self.windows, 4),
            "of_uniform": round(self.width / self.plain, 3) if self.plain else math.nan,
        }


@dataclass(slots=True)
class Report:
    """Tallies by cell, and of each run by line of the table and by its gauges ("" is all)."""

    cells: dict[Cell, Tally] = field(default_factory=dict)
    lines: dict[tuple[str, str, str], dict[str, list[Tally]]] = field(default_factory=dict)
    _run: dict[tuple[tuple[str, str, str], str], Tally] = field(default_factory=dict)

    def add(
        self,
        cell: Cell,
        truth: float,
        interval: tuple[float, float, float],
        judged: int,
        plain: float,
    ) -> None:
        line = (cell.row, cell.kind, cell.series)
        for tally in (
            self.cells.setdefault(cell, Tally()),
            self._run.setdefault((line, cell.gauge), Tally()),
            self._run.setdefault((line, ""), Tally()),
        ):
            tally.add(truth, interval, judged, plain)

    def close_run(self) -> None:
        """End a run: runs are independent, the windows of one overlap."""
        for (line, gauge), tally in self._run.items():
            self.lines.setdefault(line, {}).setdefault(gauge, []).append(tally)
        self._run.clear()

    def table(self) -> list[str]:
        """Return a Markdown table with a line for each row, kind of metric and series."""
        table = [
            "| case | metrics | series | coverage of 5m | 1h | 24h | worst cell (judged) | bias"
            " | width | of uniform |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | ---: | ---: |",
        ]
        for line, gauges in self.lines.items():
            cells = [(cell, tally) for cell, tally in self.cells.items() if cell[:3] == line]
            cell, worst = min(cells, key=lambda item: item[1].coverage)
            runs = gauges[""]
            width, plain = sum(run.width for run in runs), sum(run.plain for run in runs)
            table.append(
                f"| {' | '.join(line)}"
                f" | {' | '.join(_ratio(gauges.get(g, ()), 'covered') for g in GAUGES)}"
                f" | {worst.coverage:.3f} ({worst.error:.3f}) {cell.gauge}, {cell.population}"
                f" ({cell.judged}) | {_ratio(runs, 'bias', '+.4f')}"
                f" | {width / sum(run.windows for run in runs):.3f}"
                f" | {width / plain if plain else math.nan:.2f} |"
            )
        return table


def _ratio(runs: Sequence[Tally], name: str, form: str = ".3f") -> str:
    """Return a mean over windows with its standard error, from runs (no less than binomial)."""
    if not runs:
        return ""
    total = sum(run.windows for run in runs)
    mean = sum(getattr(run, name) for run in runs) / total
    apart = sum((getattr(run, name) - mean * run.windows) ** 2 for run in runs)
    error = math.sqrt(apart * len(runs) / max(1, len(runs) - 1)) / total
    if name == "covered":
        error = max(error, math.sqrt(mean * (1 - mean) / total))
    return f"{mean:{form}} ({error:{form[1:] if form[0] == '+' else form}})"
