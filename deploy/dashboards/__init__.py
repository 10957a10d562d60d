"""The two Grafana dashboards, as code; `python -m deploy.dashboards` writes them into the chart.

Types and builders are Grafana's own (grafana-foundation-sdk). They need `/metrics` alone, not
`/metrics/detail`.
"""

from __future__ import annotations

from deploy.dashboards.files import DASHBOARDS, generated

__all__ = ["DASHBOARDS", "generated"]
