"""The Grafana dashboard, as code; `python -m deploy.dashboards` writes its file in the chart.

Types and builders are Grafana's own (grafana-foundation-sdk). Thresholds are those of the alert
rules, metrics those of `ragmeter.metrics.registry`: what changes there changes here.
"""

from __future__ import annotations

from deploy.dashboards.files import DASHBOARDS, generated

__all__ = ["DASHBOARDS", "generated"]
