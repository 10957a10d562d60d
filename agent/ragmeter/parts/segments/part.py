"""The part `segments`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ragmeter.alerts.explanation import Explanation, WorseSeries
from ragmeter.config.settings import Settings
from ragmeter.core.durations import main_window
from ragmeter.parts.contract import PageHome, Part, PartContext, PartHome, PartPages
from ragmeter.parts.segments.breakdown import BreakdownOptions, service_breakdown
from ragmeter.parts.segments.files import break_down_files
from ragmeter.parts.segments.page_table import breakdown_table
from ragmeter.parts.segments.sources import largest_segments
from ragmeter.parts.segments.story import compare_segments, explain_change
from ragmeter.parts.segments.worse import explain_worse
from ragmeter.parts.views import ComparedWith, Explainer, SegmentTables
from ragmeter.windows.contrasts import CellPair, SeriesKind
from ragmeter.windows.windows import Windows

if TYPE_CHECKING:
    from rich.console import RenderableType


class SegmentsPart(Part[None], Explainer, SegmentTables):
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

    @classmethod
    def routes(cls, settings: Settings, home: PartHome, pages: PartPages) -> Iterable[Any]:
        """Return the route of the breakdown as JSON."""
        from ragmeter.parts.segments.api import segments_route  # late: it needs aiohttp

        return [segments_route(home, settings)]

    @classmethod
    def page(cls, home: PageHome, service: str | None) -> Mapping[str, Any] | None:
        """Return the table of what moved by segment; None for all services, or without segments."""
        if service is None:
            return None
        with home.lock():
            segments = home.windows.segments(service)
            window = main_window(home.windows.names)
        if not segments:
            return None
        table = breakdown_table(service_breakdown(home, service, window))
        return {"service": service, "window": window, "table": table}

    @classmethod
    def break_down_files(
        cls,
        files: Sequence[Windows],
        *,
        tags: Sequence[str],
        service: str | None,
        metric: str | None,
        against: ComparedWith | None,
        say: Callable[[str], None],
    ) -> dict[str, Any]:
        """Break down the last file against the first, or one file alone."""
        return break_down_files(
            files=files,
            tags=tags,
            service=service,
            options=BreakdownOptions(metric, against),
            say=say,
        )

    @classmethod
    def show_breakdown(
        cls, breakdown: Mapping[str, Any], window: str | None, every: bool
    ) -> RenderableType:
        """Return the table of a service, or a line that says what was compared."""
        # late: an agent shows no table on a terminal
        from rich.text import Text

        from ragmeter.parts.segments.terminal_table import build_segments_table, describe_breakdown

        table = build_segments_table(breakdown, window, every)
        return Text(describe_breakdown(breakdown, window)) if table is None else table
