"""The part `segments`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from ragmeter.alerts.explanation import Explanation, WorseSeries
from ragmeter.parts.contract import Part, PartContext
from ragmeter.parts.segments.sources import largest_segments
from ragmeter.parts.segments.story import compare_segments, explain_change
from ragmeter.parts.segments.worse import explain_worse
from ragmeter.parts.views import Explainer
from ragmeter.windows.contrasts import CellPair, SeriesKind
from ragmeter.windows.windows import Windows


class SegmentsPart(Part[None], Explainer):
    """Tells which segments moved the means of a service; it has no state."""

    name = "segments"
    package = __package__
    state: ClassVar[Any] = None

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part."""
        return cls()

    def explain_worse(self, windows: Windows, series: WorseSeries) -> Explanation:
        """Explain what moved a series into trouble."""
        return explain_worse(windows, series)

    def explain_change(
        self,
        windows: Windows,
        service: str,
        read: Callable[[str], CellPair],
        kind: SeriesKind,
        direction: int,
    ) -> Explanation:
        """Explain by the segments with most traffic why a mean of a service has changed."""
        names = largest_segments(windows, service, windows.names[-1])
        series = compare_segments(names, read, kind)
        return explain_change(series, direction) if series else Explanation()
