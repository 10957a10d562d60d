"""The catalogue of metrics by name: the built-in families merged, users' own metrics added.

Every metric gives exactly one `Score` for every trace, whatever the trace looks like: a value, or
a state with its reason. `seen == sum(states)` rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from ragmeter.core.errors import UnusableResource
from ragmeter.core.files import load_yaml
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.metrics.canary.specs import add_canary_scorers
from ragmeter.metrics.custom import CustomMetric

ENTRY_POINT_GROUP = "ragmeter.metrics"


class OwnMetricError(UnusableResource):
    """An installed entry point that is not a metric; the message names it and its package."""


@dataclass(frozen=True, slots=True)
class MetricCatalogue:
    """All metrics of a process."""

    specs: Mapping[str, MetricSpec]
    custom: tuple[CustomMetric, ...] = ()

    def with_metric(self, metric: CustomMetric) -> MetricCatalogue:
        """Return a catalogue that has `metric`, too.

        Raises:
            ValueError: Its name is taken.
        """
        name = metric.spec.name
        if name in self.specs:
            raise ValueError(f"there is a metric {name!r} already")
        specs = MappingProxyType({**self.specs, name: metric.spec})
        return MetricCatalogue(specs, (*self.custom, metric))


@cache
def metric_catalogue() -> MetricCatalogue:
    """Return the built-in metrics and those of installed packages, which are loaded once.

    A package that does not load is an error and not left out: its gauges and rules would be
    missing, and an absent gauge looks like a quiet service.

    Raises:
        OwnMetricError: An entry point does not load, is not a metric, or has a name that is taken.
    """
    merged = _merge_families(spec for family in metric_families().values() for spec in family)
    catalogue = MetricCatalogue(
        MappingProxyType({name: add_canary_scorers(spec) for name, spec in merged.items()})
    )
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
            if not isinstance(loaded, CustomMetric):
                raise TypeError(f"not a metric, but {type(loaded).__name__}: decorate it")
            catalogue = catalogue.with_metric(loaded)
        except SystemExit as error:
            raise OwnMetricError(f"{_entry_point_label(point)}: it ends the process") from error
        except Exception as error:  # users' code raises anything
            reason = error or type(error).__name__
            raise OwnMetricError(f"{_entry_point_label(point)}: {reason}") from error
    return catalogue


def metric_specs() -> Mapping[str, MetricSpec]:
    """Return the specs of all metrics by name."""
    return metric_catalogue().specs


def custom_metrics(scorer: str | None = None) -> list[CustomMetric]:
    """Return users' own metrics, of one scorer where it is given."""
    return [one for one in metric_catalogue().custom if scorer in (None, one.scorer)]


@cache
def metric_families() -> Mapping[str, tuple[MetricSpec, ...]]:
    """Return the built-in specs by family; one name may stand in several."""
    return {
        family: tuple(
            _read_spec({**declared.get("defaults", {}), **one}) for one in declared["metrics"]
        )
        for family, declared in load_yaml(__package__, "specs.yaml").items()
    }


def _read_spec(fields: dict[str, Any]) -> MetricSpec:
    scorers = tuple(fields.pop("scorers"))
    labels = ("k",) * fields["name"].endswith("_at_k")
    return MetricSpec(**fields, scorers=scorers, labels=labels)


def _shared_fields(spec: MetricSpec) -> tuple[object, ...]:
    return spec.kind, spec.low, spec.high, spec.good, spec.unit, spec.labels


def _merge_families(specs: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    """Merge specs of the same name.

    The first one defines kind and range; the others add their scorers and how these differ.
    """
    merged: dict[str, MetricSpec] = {}
    for spec in specs:
        first = merged.setdefault(spec.name, spec)
        if first is spec:
            continue
        if _shared_fields(spec) != _shared_fields(first):
            raise ValueError(f"two specs of {spec.name} differ in kind, range, unit or labels")
        by = f"by {', '.join(spec.scorers)}"
        merged[spec.name] = replace(
            first,
            scorers=(*first.scorers, *spec.scorers),
            formula=_append_variant(first.formula, by, spec.formula),
            needs=_append_variant(first.needs, by, spec.needs),
            source=_append_variant(first.source, by, spec.source),
        )
    return merged


def _append_variant(first: str, by: str, text: str) -> str:
    return first if text == first else f"{first}; {by}: {text}"


def _entry_point_label(point: EntryPoint) -> str:
    package = f" of {point.dist.name}" if point.dist is not None else ""
    return f"metric {point.name!r} ({point.value}){package}"
