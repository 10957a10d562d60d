"""Every exported metric family.

The quality gauges follow from the metric catalogue; `families.yaml` declares all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragmeter.core.files import load_yaml
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import BUILTIN_SCORER, ESTIMATE_SCORER
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.custom import CUSTOM_SCORER
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartKinds, declared_families

from ragmeter_exporters.exposition import FamilyType, MetricFamily

_UNSAMPLED_SCORERS = {BUILTIN_SCORER, ESTIMATE_SCORER, CUSTOM_SCORER}  # they score every trace

_UNITS = ("seconds", "bytes", "usd", "ratio")


def all_families(
    parts: PartKinds, specs: Mapping[str, MetricSpec] | None = None
) -> list[MetricFamily]:
    """Return all families in the order in which they are exported, with those of the parts."""
    specs = metric_specs() if specs is None else specs
    quality = [family for spec in specs.values() for family in quality_families(spec)]
    return [*quality, *REQUESTS, *LATENCY, *TRAFFIC, *part_families(parts), *AGENT, *PROCESS]


def quality_families(spec: MetricSpec) -> tuple[MetricFamily, ...]:
    """Return the five families of a quality metric.

    They are the point estimate, the lower and upper end of its interval, the effective samples,
    and the share of traces without a value.
    """
    text = spec.meaning.strip().rstrip(".")
    over = "over the window" if spec.kind == "ratio" else "mean over the window"
    # A mean must say which traces are not in it: leaving out what went worst would lift it.
    left_out = re.search("not applicable [^;]+", spec.formula)
    if left_out:
        over += f"; {left_out[0]}: those traces are left out"
    unit = "ratio" if spec.kind == "ratio" else spec.unit
    # A scorer that is not built in, such as a judge or a model, has versions.
    version = ("fingerprint",) if set(spec.scorers) - {BUILTIN_SCORER, ESTIMATE_SCORER} else ()
    labels = ("service", "scorer", *version, *spec.labels, "window")
    stem = f"rag_{spec.name}"
    gauge = spec.gauge
    about = _describe_inference(spec)
    segmented = {
        gauge: (f"{text[:1].upper()}{text[1:]}; {over}.", unit),
        f"{stem}_ci_lower": (f"Lower end of the 95% interval of {gauge}, {about}.", unit),
        f"{stem}_ci_upper": (f"Upper end of the 95% interval of {gauge}, {about}.", unit),
        f"{stem}_effective_samples": (
            f"Equally weighted traces that would carry as much evidence as {gauge} has.",
            "",
        ),
    }
    unscored = f"Share of the traces that {gauge} should cover and that got no value."
    return (
        *(
            MetricFamily(
                name=name, type="gauge", help=text, labels=labels, unit=unit, segmented=True
            )
            for name, (text, unit) in segmented.items()
        ),
        MetricFamily(
            name=f"{stem}_unscored_ratio", type="gauge", help=unscored, labels=labels, unit="ratio"
        ),
    )


def _describe_inference(spec: MetricSpec) -> str:
    """Return what the interval of a metric is about: all traffic, or the process behind it."""
    scorers = {name for name in spec.scorers if not is_canary_scorer(name)}
    if not scorers:
        return "about the process behind the canaries"
    if spec.tier == "feedback":
        return "about the labelled traffic"
    if spec.name.startswith("judge_probe_"):
        return "about the frozen probe set"
    process = "about the process behind the traffic"
    traffic = "about all traffic of the window"
    if scorers <= _UNSAMPLED_SCORERS:
        return process
    if not scorers & _UNSAMPLED_SCORERS:
        return f"{traffic}, of which a sample is scored"
    own = [name for name in ("builtin", "mini") if spec.has_own_error(name) and name in scorers]
    note = f"; of {' and '.join(own)} it covers sampling, not the scorer's own error" * bool(own)
    return (
        f"{traffic} where a sample is scored, {process} where every trace is (builtin){note}"
        f"{' (docs/agreement.md)' * bool(own)}"
    )


_HISTOGRAMS = ("rag_request_duration_seconds", "ragmeter_judge_duration_seconds")


def _declare(declaration: str, text: str, *, ours: bool = True) -> MetricFamily:
    """Make a family of `name{label,label}`; the label `*` stands for the segment tags."""
    name, _, inner = declaration.partition("{")
    labels = tuple(label for label in inner.rstrip("}").split(",") if label)
    bare = name.removesuffix("_total")
    kind: FamilyType = "gauge"
    if name in _HISTOGRAMS:
        kind = "histogram"
    elif bare != name:
        kind = "counter"
    elif name.endswith("_info") and ours:  # prometheus_client writes its own infos as gauges
        kind = "info"
    return MetricFamily(
        name=name,
        type=kind,
        help=text,
        labels=tuple(label for label in labels if label != "*"),
        unit=next((unit for unit in _UNITS if bare.endswith(f"_{unit}")), ""),
        segmented="*" in labels,
        ours=ours,
    )


def part_families(parts: PartKinds) -> list[MetricFamily]:
    """Return the families that parts declare in their `families.yaml`."""
    return [
        _declare(name, text) for part in parts for name, text in declared_families(part).items()
    ]


_DECLARED = {
    section: tuple(
        _declare(name, text, ours=section != "process") for name, text in families.items()
    )
    for section, families in load_yaml(__package__, "families.yaml").items()
}

REQUESTS = _DECLARED["requests"]
LATENCY = _DECLARED["latency"]
TRAFFIC = _DECLARED["traffic"]
AGENT = _DECLARED["agent"]
PROCESS = _DECLARED["process"]
