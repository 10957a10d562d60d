"""Explain why a series of a running agent is in trouble."""

from __future__ import annotations

from ragmeter.alerts.explanation import Explanation, WorseSeries
from ragmeter.parts.segments.sources import largest_segments
from ragmeter.parts.segments.story import compare_segments, explain_change
from ragmeter.windows.contrasts import SHARE, CellPair, series_kind
from ragmeter.windows.failures import FailedShare
from ragmeter.windows.shares import share_above, share_sums
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import LATENCY_METRIC


def explain_worse(windows: Windows, series: WorseSeries) -> Explanation:
    """Explain by segments what moved a series into trouble (`story`).

    Without a known past the segment is named that is worst, if it is so beyond chance.
    """
    largest = largest_segments(windows, series.service, series.window)
    if not largest:
        return Explanation()
    of_scores = not series.failures and series.metric != LATENCY_METRIC
    kind = series_kind(series.metric, series.scorer) if of_scores else SHARE
    found = compare_segments(largest, lambda name: _cells(windows, name, series), kind)
    return explain_change(found, 1 if series.above else -1) if found else Explanation()


def _cells(windows: Windows, segment: str, series: WorseSeries) -> CellPair:
    """Return the sums of a segment before the window and in it."""
    if series.metric == LATENCY_METRIC:
        stage = (series.service, segment, series.scorer, series.window)
        return (
            share_above(windows.histogram_before(*stage), series.limit),
            share_above(windows.histogram(*stage), series.limit),
        )
    args = (series.service, segment, series.metric, series.scorer, series.window)
    if series.failures:
        return _share(windows.failed_before(*args)), _share(windows.failed(*args))
    return windows.sums_before(*args), windows.cell(*args)


def _share(failed: FailedShare | None) -> ScoreSums | None:
    return share_sums(failed.value, failed.effective_samples) if failed else None
