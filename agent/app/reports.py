"""Supply the commands that work on files with the pages that the exporters draw."""

from __future__ import annotations

from ragmeter.exporters.report_page import render_report_page
from ragmeter.offline.report.summary import ScoreReport


def render_report(report: ScoreReport) -> str:
    """Render a score report as one self-contained HTML page."""
    return render_report_page(report)
