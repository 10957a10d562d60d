"""The box plots of a report as PNG, drawn by matplotlib (to be deleted)."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING

from ragmeter.core.label_bounds import bound_label
from ragmeter.exporters.report_page import (
    BoxPlotLane,
    axis_domain,
    describe_lane,
)
from ragmeter.offline.report.summary import ScoreReport, metric_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
WIDE, LANE, HEAD = 6.2, 0.42, 1.05  # inches: of a panel, of a run in it, of its title and axis
DPI = 150
NAME = 26  # characters of a run's name
MAX_PANELS = 40  # a picture that is opened as a whole; the page has them all
TEXT = 4_000  # characters of the description inside the file

INK, SOFT, ACCENT, BAND, MEAN = "#1a1e23", "#58616c", "#0a5a94", "#cfe0ec", "#b02f06"


class MissingLibrary(Exception):
    """The library that draws is not installed."""


def draw_png(report: ScoreReport) -> bytes:
    """A panel for each metric and scorer, a lane for each run. The same report gives the same
    bytes with the same library. Raises `NoLibrary`."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibrary("a PNG needs matplotlib: pip install 'ragmeter[report]'") from None
    panels = [
        (key, [BoxPlotLane(bound_label(column.name, NAME), s) for column in report.columns
               for s in column.find(key)])
        for key in report.keys[:MAX_PANELS]
    ]  # fmt: skip
    rows = max(1, math.ceil(len(panels) / COLUMNS))
    lanes = max((len(found) for _, found in panels), default=1)
    tall = rows * (HEAD + LANE * lanes) + 1.1
    # names come from outside: "$" starts no formula, and a sign that the font lacks is a box
    with (
        matplotlib.rc_context({"text.parse_math": False, "font.family": "DejaVu Sans"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDE * COLUMNS, tall), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, COLUMNS, squeeze=False)
        for at, axes in enumerate(grid.flat):
            if at < len(panels):
                _panel(axes, *panels[at])
            else:
                axes.set_visible(False)
        left = len(report.keys) - len(panels)
        more = f"; {left} more metrics are on the page" if left else ""
        figure.suptitle(
            "Box: quartiles and median (black). Whiskers: furthest score within 1.5 lengths of the"
            f" box (Tukey).\nRings: beyond. Diamond: mean with its 95 % interval{more}.",
            fontsize=9, color=SOFT,
        )  # fmt: skip
        out = io.BytesIO()
        said = [f"{metric_title(key[0])} ({key[1]}): {describe_lane(lane)}" for key, found in panels
                for lane in found]  # fmt: skip
        about = {"Software": "ragmeter", "Description": _latin("\n".join(said))}
        figure.savefig(out, format="png", metadata=about)
    return out.getvalue()


def _latin(text: str) -> str:
    """What the text chunks of a PNG can hold."""
    return text[:TEXT].encode("latin-1", "replace").decode("latin-1")


def _panel(axes: Axes, key: tuple[str, str], lanes: list[BoxPlotLane]) -> None:
    spec = lanes[0].series.spec
    low, high = axis_domain(lanes)
    names, boxes, places = [], [], []
    for place, lane in enumerate(lanes):
        box, found = lane.series.box, lane.series.estimate
        names.append(f"{lane.name}\nn = {box.n:,}" if box else f"{lane.name}\nnothing scored")
        if box is None or found is None:
            continue
        if spec.kind != "ratio":
            places.append(place)
            boxes.append(
                {"med": box.median, "q1": box.q1, "q3": box.q3, "whislo": box.low,
                 "whishi": box.high, "fliers": list(box.outliers)}
            )  # fmt: skip
        # the interval holds its mean, but for the last bit of rounding
        below, above = max(0.0, found.value - found.lower), max(0.0, found.upper - found.value)
        axes.errorbar(
            found.value, place, xerr=[[below], [above]], fmt="D", color=MEAN, markersize=5,
            elinewidth=2.2, capsize=3, zorder=5,
        )  # fmt: skip
    if boxes:
        axes.bxp(
            boxes, positions=places, widths=0.5, orientation="horizontal", patch_artist=True,
            manage_ticks=False, boxprops={"facecolor": BAND, "edgecolor": ACCENT},
            medianprops={"color": INK, "linewidth": 2}, whiskerprops={"color": SOFT},
            capprops={"color": SOFT},
            flierprops={"marker": "o", "markersize": 3.5, "markerfacecolor": "none",
                        "markeredgecolor": SOFT},
        )  # fmt: skip
    axes.set_yticks(range(len(lanes)), names, fontsize=8)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    edge = (high - low) * 0.02
    axes.set_xlim(low - edge, high + edge)
    if spec.kind == "ratio":
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#e9ebed")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    better = {"higher": ", higher is better", "lower": ", lower is better", None: ""}[spec.good]
    axes.set_title(f"{metric_title(key[0])} ({key[1]}{better})", fontsize=10, loc="left", color=INK)
