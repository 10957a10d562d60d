"""Metric families of the quality metrics, made from their specs."""

from __future__ import annotations

from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from exporters.exposition import Family

__all__ = ["quality_families"]


def quality_families(spec: MetricSpec) -> tuple[Family, Family, Family, Family, Family]:
    """Point estimate, lower bound, upper bound, effective samples of one quality metric, and the
    share of traces that have none."""
    what = spec.meaning.strip().rstrip(".")
    what = what[:1].upper() + what[1:]
    over = "over the window" if spec.kind == "ratio" else "mean over the window"
    stem = f"rag_{spec.name}"
    unit = "ratio" if spec.kind == "ratio" else spec.unit

    # a version of its own has what was not built in: a judge, a model
    version = ("fingerprint",) if set(spec.scorers) - {BUILTIN} else ()
    labels = ("service", "scorer", *version, *spec.labels, "window")

    def family(name: str, text: str, unit: str = "") -> Family:
        return Family(name, "gauge", text, labels, unit, "Quality", segmented=True)

    return (
        family(spec.gauge, f"{what}; {over}.", unit),
        family(f"{stem}_ci_lower", f"Lower end of the 95% interval of {spec.gauge}.", unit),
        family(f"{stem}_ci_upper", f"Upper end of the 95% interval of {spec.gauge}.", unit),
        family(
            f"{stem}_effective_samples",
            f"Equally weighted traces that would carry as much evidence as {spec.gauge} has.",
        ),
        Family(
            f"{stem}_unscored_ratio",
            "gauge",
            f"Share of the traces that {spec.gauge} should cover and that got no value.",
            labels,
            "ratio",
            "Quality",
        ),
    )
