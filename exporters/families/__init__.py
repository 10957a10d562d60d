"""Every exported metric family, in one place: HELP and TYPE lines and the docs come from here."""

from __future__ import annotations

from collections.abc import Mapping

from agent.metrics import METRICS
from agent.metrics.spec import MetricSpec
from exporters.exposition import Family
from exporters.families.health import HEALTH
from exporters.families.process import PROCESS
from exporters.families.quality import quality_families
from exporters.families.service import CONSISTENCY, INDEXING
from exporters.families.traffic import LATENCY, TRAFFIC

__all__ = ["families"]


def families(specs: Mapping[str, MetricSpec] = METRICS) -> list[Family]:
    """All families, in the order in which they are exported."""
    quality = [family for spec in specs.values() for family in quality_families(spec)]
    return [*quality, *LATENCY, *TRAFFIC, *CONSISTENCY, *INDEXING, *HEALTH, *PROCESS]
