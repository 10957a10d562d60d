"""Alert rules: the YAML schema, its validation, and the overlay of documents.

A user's file adds rules to the defaults or changes them by name, key by key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ragmeter.alerts.alert import Severity, check_template
from ragmeter.core.durations import parse_duration, parse_whole_seconds
from ragmeter.core.errors import UsageError
from ragmeter.core.files import load_of_parts, read_yaml
from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.metrics.judge_agreement import PROBE_SERVICE

RuleProfile = Literal["sensitive", "balanced", "quiet"]
# From the strictest (alerts on small trouble) to the one that tolerates most.
RULE_PROFILES: tuple[RuleProfile, ...] = get_args(RuleProfile)

_QUANTILES = (0.5, 0.95, 0.99)  # those that windows hold

_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")  # `__` begins Prometheus' own
# Labels that every notification carries itself.
_RESERVED = frozenset({"alertname", "severity", "service", "slo", "metric", "scorer", "window"})

_KINDS = ("metric", "latency", "absence", "unscored")
_KIND_KEYS = (*_KINDS, "scorer", "statistic", "op", "threshold", "relative_to")


class RuleError(UsageError, ValueError):
    """A rule that cannot be used; the message names rule, key, value and what is allowed."""


def _threshold(value: object, info: ValidationInfo) -> object:
    """Take the entry of the profile in force if the value is a map."""
    if isinstance(value, dict):
        if set(value) != set(RULE_PROFILES):
            raise ValueError(f"a map needs exactly the keys {', '.join(RULE_PROFILES)}")
        for key in RULE_PROFILES:
            _finite(value[key])
        value = value[(info.context or {}).get("profile", "balanced")]
    return _finite(value)


def _finite(value: object) -> float:
    # A bool is an int in Python, and "0.05" in quotes is more likely a slip than a wish.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number or a map of {', '.join(RULE_PROFILES)} is needed")
    return float(value)


def _window(value: object) -> str:
    if not isinstance(value, str) or parse_duration(value) <= 0:
        raise ValueError("the name of a window like 5m, 1h or 24h is needed")
    return value


Seconds = Annotated[float, BeforeValidator(parse_duration)]
_WindowName = Annotated[str, BeforeValidator(_window)]


class _RuleModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class LatencyCondition(_RuleModel):
    """A latency quantile: `stage` as in a trace's timings, `quantile` one that windows keep."""

    stage: str = Field(default="total", min_length=1, max_length=64)
    quantile: float = 0.95

    @field_validator("quantile")
    @classmethod
    def _check_quantile(cls, value: float) -> float:
        if value not in _QUANTILES:
            raise ValueError(f"one of {', '.join(map(str, _QUANTILES))} is needed")
        return value


class UnscoredCondition(_RuleModel):
    """Results without a value through a fault of the scorer.

    `metric` and `scorer` are globs; each pair of a metric and a scorer has an alert of its own.
    """

    metric: str = Field(default="*", min_length=1, max_length=100)
    scorer: str = Field(default="*", min_length=1, max_length=100)

    def matches(self, metric: str, scorer: str) -> bool:
        """Return whether the globs match; a metric matches with or without its cut-off, too."""
        named = fnmatchcase(metric, self.metric) or fnmatchcase(base_name(metric), self.metric)
        return named and fnmatchcase(scorer, self.scorer)


class AlertRule(_RuleModel):
    """One rule, with the threshold of its profile and its durations in seconds.

    With `relative_to` the threshold is a multiple of what the metric is over that longer window.
    """

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")
    severity: Severity
    enabled: bool = True
    metric: str | None = Field(default=None, min_length=1, max_length=100)
    scorer: str = Field(default="builtin", min_length=1, max_length=100)
    latency: LatencyCondition | None = None
    absence: bool = False
    unscored: UnscoredCondition | None = None
    statistic: Literal["value", "lower", "upper"] = "value"
    op: Literal["<", "<=", ">", ">="] = ">"
    threshold: Annotated[float, BeforeValidator(_threshold)] = 0.0
    relative_to: _WindowName | None = None
    window: _WindowName
    for_: Seconds = Field(default=0.0, alias="for")
    keep_firing_for: Seconds = 0.0
    # 15 minutes: longer than a restart or a lull, short enough that nobody looks at a dead number.
    no_data_for: Seconds = 900.0
    services: tuple[str, ...] = Field(default=("*",), min_length=1)
    segment: str | None = Field(default=None, min_length=1, max_length=100)
    min_samples: int = Field(default=0, ge=0)
    labels: dict[str, str] = {}
    summary: str = Field(default="", max_length=1000)
    annotations: dict[str, str] = {}
    runbook: str = Field(default="", max_length=500)

    @field_validator("labels", "annotations")
    @classmethod
    def _check_names(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, text in value.items():
            if not _LABEL.fullmatch(name):
                raise ValueError(f"{name!r} is not a label name ({_LABEL.pattern})")
            if info.field_name == "labels" and name in _RESERVED:
                raise ValueError(f"{name!r} is set by ragmeter itself; choose another name")
            if info.field_name == "annotations":
                check_template(text)
        return value

    @field_validator("summary")
    @classmethod
    def _check_summary(cls, value: str) -> str:
        return check_template(value)

    @field_validator("runbook")
    @classmethod
    def _check_runbook(cls, value: str) -> str:
        if value and not value.startswith(("https://", "http://")):
            raise ValueError("a link that starts with https:// or http:// is needed")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> AlertRule:
        kinds = [name for name in _KINDS if getattr(self, name)]
        if len(kinds) != 1:
            given_kinds = " and ".join(kinds) or "none of them"
            raise ValueError(f"exactly one of {', '.join(_KINDS)} is needed, found {given_kinds}")
        given = self.model_fields_set
        if self.absence:
            extra = sorted(given & {"scorer", "statistic", "op", "threshold", "segment"})
            if extra:
                raise ValueError(f"an absence rule takes no {', '.join(extra)}")
        elif not {"op", "threshold"} <= given:
            missing = sorted({"op", "threshold"} - given)
            raise ValueError(f"missing {' and '.join(missing)}")
        if self.relative_to is not None:
            if self.metric is None or self.statistic == "value":
                raise ValueError("relative_to needs a metric, and lower or upper as statistic")
            if parse_duration(self.relative_to) <= self.seconds:
                raise ValueError(f"relative_to {self.relative_to!r} must be longer than window")
        if self.latency and "scorer" in given:
            raise ValueError("a latency rule takes no scorer")
        if self.unscored and (extra := sorted(given & {"scorer", "segment"})):
            raise ValueError(f"an unscored rule takes no {', '.join(extra)} beside it")
        return self

    @property
    def seconds(self) -> float:
        """The length of its window in seconds."""
        return float(parse_whole_seconds(self.window))

    @property
    def tag(self) -> str:
        """The tag of the segments of its alerts."""
        return self.segment or ""

    def watches(self, metric: str, scorer: str, unscored: bool) -> bool:
        """Return whether an alert on this series still belongs to this rule."""
        if self.unscored is not None or unscored:
            return unscored and self.unscored is not None and self.unscored.matches(metric, scorer)
        return self.watched == (metric, scorer)

    @property
    def watched(self) -> tuple[str, str]:
        """The (metric, scorer) of its alerts; those of an unscored rule have their own."""
        if self.metric is not None:
            return self.metric, self.scorer
        return ("latency", "") if self.latency is not None else ("traces", "")

    def covers(self, service: str) -> bool:
        """Return whether the name of a service matches one of the globs."""
        # Probes are no traffic: a pause between two runs is no absence, unless a rule names them.
        if self.absence and service == PROBE_SERVICE and PROBE_SERVICE not in self.services:
            return False
        return any(fnmatchcase(service, glob) for glob in self.services)


def load_rules(
    path: Path | str | None = None,
    *,
    profile: str = "balanced",
    defaults: bool = True,
    brought: Sequence[object] = (),
    metrics: Mapping[str, MetricSpec] | None = None,
    segments: Sequence[str] | None = None,
) -> list[AlertRule]:
    """Load the enabled rules from the defaults, the documents `brought` and a file, in this order.

    Args:
        path: The user's file, if any.
        profile: The profile that chooses thresholds.
        defaults: Whether to begin with the default rules.
        brought: Documents between the defaults and the file.
        metrics: The metrics that exist; if given, a rule may name no other one.
        segments: The segment tags that exist, likewise.

    Raises:
        RuleError: The file cannot be read or a rule is invalid.
    """
    layers: list[object] = []
    if defaults:
        layers += default_documents()
    layers += brought
    if path is not None:
        try:
            layers.append(read_yaml(Path(path)))
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
            # ValueError: no UTF-8, a date that is none, a number of thousands of digits
            why = getattr(error, "strerror", None) or error  # its text would name the file again
            raise RuleError(f"rules file {path}: {why}") from error
    return parse_rules(layers, profile=profile, metrics=metrics, segments=segments)


def default_documents() -> list[Any]:
    """Load the default rules as documents, one of each part that has some."""
    return load_of_parts("rules.yaml")


def parse_rules(
    layers: Sequence[object],
    *,
    profile: str = "balanced",
    metrics: Mapping[str, MetricSpec] | None = None,
    segments: Sequence[str] | None = None,
) -> list[AlertRule]:
    """Return the enabled rules of documents; later ones override earlier ones key by key."""
    if profile not in RULE_PROFILES:
        raise RuleError(
            f"alert profile {profile!r} is not known; allowed: {', '.join(RULE_PROFILES)}"
        )
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for name, entry in _entries_of(layer).items():
            merged[name] = _overlay(merged.get(name, {}), entry)
    rules = [_validate(entry, profile) for entry in merged.values()]
    for rule in rules:
        _check_existence(rule, metrics, segments)
    return [rule for rule in rules if rule.enabled]


def _entries_of(layer: object) -> dict[str, dict[str, Any]]:
    if layer is None:  # an empty file
        return {}
    if not isinstance(layer, dict) or set(layer) - {"rules"}:
        raise RuleError("a rules file holds one key, `rules`, with a list of rules")
    rules = layer.get("rules") or []
    if not isinstance(rules, list):
        raise RuleError("`rules` is a list of rules")
    entries: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(rules):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise RuleError(f"rule number {index + 1}: key name: a text is needed")
        if name in entries:
            raise RuleError(f"rule {name!r}: key name: there are two rules of this name")
        entries[name] = entry
    return entries


def _overlay(base: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Override a base; an entry of another kind drops the keys of the kind of the base."""
    kinds = [name for name in _KINDS if entry.get(name)]
    if kinds and not any(base.get(name) for name in kinds):
        base = {key: value for key, value in base.items() if key not in _KIND_KEYS}
    return {**base, **entry}


def _validate(entry: dict[str, Any], profile: str) -> AlertRule:
    try:
        return AlertRule.model_validate(entry, context={"profile": profile})
    except ValidationError as error:
        raise RuleError("\n".join(_explain(entry, item) for item in error.errors())) from error


def _explain(entry: dict[str, Any], item: Any) -> str:
    """Describe one mistake in one line, in the terms of the file."""
    where = ".".join(str(part) for part in item["loc"])
    head = f"rule {entry['name']!r}" + (f": key {where}" if where else "")
    kind = item["type"]
    context = item.get("ctx", {})
    shown = repr(item["input"])
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    if kind == "missing":
        return f"{head}: is missing"
    if kind == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {
            "latency": LatencyCondition,
            "unscored": UnscoredCondition,
        }
        model = models.get(where.partition(".")[0], AlertRule) if "." in where else AlertRule
        keys = ", ".join(sorted(f.alias or n for n, f in model.model_fields.items()))
        return f"{head}: is not known; allowed: {keys}"
    if kind == "literal_error":
        return f"{head}: {shown} is not allowed; allowed: {context['expected']}"
    text = str(context["error"]) if "error" in context else item["msg"]
    return f"{head}: {text}" if not where else f"{head}: {shown} is not allowed: {text}"


def _check_existence(
    rule: AlertRule,
    metrics: Mapping[str, MetricSpec] | None,
    segments: Sequence[str] | None,
) -> None:
    def check(key: str, value: str, allowed: Sequence[str] | None) -> None:
        if allowed is not None and value not in allowed:
            names = ", ".join(allowed) or "none"
            raise RuleError(
                f"rule {rule.name!r}: key {key}: {value!r} is not known; allowed: {names}"
            )

    if not rule.enabled:
        return
    if rule.segment is not None:
        check("segment", rule.segment, segments)
    if rule.unscored is not None and metrics is not None:
        pairs = [(name, scorer) for name, spec in metrics.items() for scorer in spec.scorers]
        if not any(rule.unscored.matches(*pair) for pair in pairs):
            raise RuleError(
                f"rule {rule.name!r}: key unscored: no metric {rule.unscored.metric!r} has a "
                f"scorer {rule.unscored.scorer!r}"
            )
    if rule.metric is not None and metrics is not None:
        check("metric", base_name(rule.metric), sorted(metrics))
        check("scorer", rule.scorer, metrics[base_name(rule.metric)].scorers)
