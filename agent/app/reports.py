"""Supply the commands that work on files with the pages and pictures that the exporters draw."""

from __future__ import annotations

from ragmeter.exporters.report_page import render_report_page
from ragmeter.exporters.timeline import render_timeline
from ragmeter.offline.report.summary import ScoreReport
from ragmeter.offline.timeline import Timeline


def render_report(report: ScoreReport) -> str:
    """Render a score report as one self-contained HTML page."""
    return render_report_page(report)


def render_backtest(timeline: Timeline) -> str:
    """Render the timeline of a backtest as an SVG file."""
    return render_timeline(timeline)
