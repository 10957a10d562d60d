"""Pages of parts, whose templates lie beside their code, in the frame of all pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.aggregate.agent_view import AgentView

from ragmeter_exporters.page.rendering import NAME, render_part_page
from ragmeter_exporters.page.texts import one_line
from ragmeter_exporters.page.traces import trace_parts, trace_view
from ragmeter_exporters.page.views import base_view


class PartPageMaker:
    """Makes pages of an agent; a `ragmeter.parts.contract.PartPages`."""

    def __init__(self, agent: AgentView) -> None:
        self._agent = agent

    def page(
        self,
        template: str,
        title: str,
        context: Mapping[str, Any],
        trace: tuple[str, str] | None = None,
    ) -> str:
        """Render a template (`package:name`); `page` is a kept trace in it."""
        view = None if trace is None else trace_view(self._agent, *trace)
        # the marks of scorers only: what they find in numbers is shown where a trace is explained
        page = None if view is None else trace_parts(view, mark_numbers=False)
        return render_part_page(
            template,
            f"{one_line(title)} · {NAME}",
            base_view(self._agent),
            page=page,
            **context,
        )
