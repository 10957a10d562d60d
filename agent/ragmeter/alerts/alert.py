"""The alert record, and the text of its summary and annotations.

An operator writes templates with named fields; field values come from traces. `str.format` would
let a template reach into objects and let a value's braces act as a template, so fields are
replaced in one pass and values are never expanded again.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from ragmeter.core.metric_specs import spoken_name

Severity = Literal["critical", "warning"]
AlertState = Literal["pending", "firing", "resolved"]


# The fields that a template may name between braces.
TEMPLATE_FIELDS = (
    "rule",
    "severity",
    "service",
    "segment",
    "metric",
    "scorer",
    "statistic",
    "op",
    "window",
    "stage",
    "quantile",
    "value",
    "lower",
    "upper",
    "threshold",
    "samples",
    "effective_samples",
    "worst",
    "baseline",
    "top_segment",
    "fingerprint",
    "reason",
)
_LABEL_FIELDS = ("service", "segment", "metric", "scorer", "top_segment", "fingerprint")
_RULE_FIELDS = ("rule", "severity", "statistic", "op", "window")
_NUMBER_FIELDS = ("value", "lower", "upper", "threshold", "effective_samples", "baseline")

# Seconds of event time that a resolved alert is kept, so that senders can repeat it. Prometheus
# keeps its resolved alerts for 15 minutes too.
KEEP_RESOLVED = 900.0

MAX_ALERTS = 1_000  # of rules, and of a part, that are held at once

MAX_WORST = 5  # traces that an alert names

_MAX_FIELD = 200  # characters of one value: a service name is a label, never prose
_MAX_TEXT = 1_000  # characters of a finished text: what chat receivers show without folding

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")


@dataclass(slots=True, kw_only=True)
class Alert:
    """One alert. All times are event time in Unix seconds.

    Args:
        segment: The `tag=value` segment; empty: the whole service.
        metric: The metric; `latency` or `traces` for other kinds of rules.
        scorer: The scorer; empty if `metric` is none.
        value: The last estimate, with its 95 % interval `lower` to `upper`; None before the first
            one, or if it has no interval.
        since: When the condition began; of a drift alert the estimated time of the change.
        worst: Ids of the worst traces, the worst first.
        reason: Why it resolved, if not because its condition ended.
        labels: Those of the rule; a latency rule adds `stage` and `quantile`.
        baseline: The value before; None if it is unknown.
        top_segment: The segment that is behind it, with `top_segment_words`; empty if none
            stands out.
        fingerprint: That of the judge or model that scores.
        unscored: Only of a rule on results without a value: how many by reason, the most frequent
            first. `value` is then their share of the results of `metric` by `scorer`.
        drift: Only of a drift alert: details of the detector; `threshold` is then that of the
            detector's statistic.
        question: The question that it tells of; empty if none, or if only the metric says so.
        harm: The estimated share of all answers that are hurt beyond the usual; None: not known.
    """

    id: str
    rule: str
    severity: Severity
    state: AlertState
    service: str
    segment: str
    metric: str
    scorer: str
    window: str
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    threshold: float
    samples: int = 0
    effective_samples: float = 0.0
    since: float
    fired_at: float | None = None
    resolved_at: float | None = None
    updated_at: float
    summary: str = ""
    worst: list[str] = field(default_factory=list)
    no_data: bool = False
    statistic: str = "value"
    op: str = ">"
    reason: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    runbook: str = ""
    baseline: float | None = None
    top_segment: str = ""
    top_segment_words: str = ""
    fingerprint: str = ""
    unscored: dict[str, int] | None = None
    drift: dict[str, Any] | None = None
    question: str = ""
    harm: float | None = None

    def name_worst(self, trace_ids: Iterable[str]) -> None:
        """Name traces, the worst first, until there are `MAX_WORST`.

        Those named before stay: messages already sent link to them, and a trace that no alert
        names is deleted.
        """
        self.worst = list(dict.fromkeys([*self.worst, *trace_ids]))[:MAX_WORST]

    def resolve(self, reason: str, now: float) -> None:
        """End the alert at event time `now`; the summary is left to the caller."""
        self.state = "resolved"
        self.reason = reason
        self.resolved_at = self.updated_at = now

    def is_expired(self, now: float) -> bool:
        """Return whether it resolved at least `KEEP_RESOLVED` seconds ago."""
        return self.resolved_at is not None and now - self.resolved_at >= KEEP_RESOLVED

    def copy(self) -> Alert:
        """Return a copy that shares nothing that changes."""
        return replace(
            self,
            worst=list(self.worst),
            labels=dict(self.labels),
            annotations=dict(self.annotations),
            unscored=None if self.unscored is None else dict(self.unscored),
            drift=None if self.drift is None else dict(self.drift),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every field, JSON-able."""
        copy = self.copy()
        return {item.name: getattr(copy, item.name) for item in fields(copy)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Alert:
        """Return the alert of a `to_dict`."""
        return cls(**data)


def alert_id(rule: str, service: str, segment: str = "") -> str:
    """Return the same 16 hex digits for the same arguments in every process."""
    # Length-prefixed, so that ("a", "bc") and ("ab", "c") differ whatever the names hold.
    text = "".join(f"{len(name)}:{name}" for name in (rule, service, segment))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def clean_text(text: str, limit: int = _MAX_FIELD) -> str:
    """Return text that cannot break a line, move a cursor, turn its direction, or grow.

    Every character of the Unicode classes C* (controls, formats such as the direction overrides,
    surrogates, unassigned) and every line or paragraph separator becomes a space.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        " " if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" else char
        for char in text
    )


def check_template(text: str) -> str:
    """Return the template itself.

    Raises:
        ValueError: It has a single brace or an unknown field.
    """
    for match in _TOKEN.finditer(text):
        name = match.group(1)
        if name is None:
            if match.group() in "{}":
                raise ValueError("a single brace; write {{ or }} for a brace of the text")
        elif name not in TEMPLATE_FIELDS:
            raise ValueError(f"unknown field {{{name}}}; allowed: {', '.join(TEMPLATE_FIELDS)}")
    return text


def fill_template(template: str, values: Mapping[str, str], limit: int = _MAX_TEXT) -> str:
    """Replace each `{name}` of the template by its value and `{{` by a brace; bound the text."""

    def replace_token(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group()[0] if name is None else values.get(name, "")

    return clean_text(_TOKEN.sub(replace_token, template), limit)


def format_number(value: float | None) -> str:
    """Format with three significant digits, without an exponent; `-` for None."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def format_days(days: float) -> str:
    """Format how rare a statistic is by chance; a bound needs no more than two digits."""
    if days > 3650:
        return "10 years"
    rounded = round(days, 1 - math.floor(math.log10(days))) if days > 0 else 0.0
    return f"{rounded:.{1 if days < 10 else 0}f} days"


def template_values(alert: Alert) -> dict[str, str]:
    """Return the fields of a template as cleaned text."""
    return {
        **{name: clean_text(getattr(alert, name)) for name in _LABEL_FIELDS},
        **{name: getattr(alert, name) for name in _RULE_FIELDS},
        **{name: format_number(getattr(alert, name)) for name in _NUMBER_FIELDS},
        "stage": clean_text(alert.labels.get("stage", "")),
        "quantile": alert.labels.get("quantile", ""),
        "samples": str(alert.samples),
        "worst": clean_text(", ".join(alert.worst), _MAX_TEXT),
        "reason": clean_text(next(iter(alert.unscored or {}), "")),
    }


def _spoken_values(alert: Alert) -> dict[str, str]:
    """Return the fields of a sentence: annotations may name series, sentences speak to people."""
    return template_values(alert) | {"metric": clean_text(spoken_name(alert.metric))}


def render_summary(alert: Alert, template: str = "") -> str:
    """Return the summary of an alert: its value, then what its state adds."""
    text = fill_template(template, _spoken_values(alert)) if template else _describe_value(alert)
    if alert.state == "resolved":
        text = f"Resolved: {text}"
        if alert.reason:
            text += f" ({alert.reason})"
    elif alert.no_data:
        text += " (no traffic now: the last known value)"
    return clean_text(text, _MAX_TEXT)


def _describe_value(alert: Alert) -> str:
    """Describe the value in one plain sentence, for a rule without a template."""
    values = _spoken_values(alert)
    where = values["service"] + (f" ({values['segment']})" if alert.segment else "")
    if alert.metric == "traces":
        count = "no traces" if not alert.value else f"{alert.value:.0f} traces"
        return f"{where}: {count} in the last {alert.window}"
    if alert.unscored is not None:
        why = f", most often {values['reason']}" if values["reason"] else ""
        return (
            f"{where}: the share of results of {values['metric']} by {values['scorer']} "
            f"that failed is {values['value']} over {alert.window}{why} (95 % interval "
            f"{values['lower']} to {values['upper']}, {alert.samples} results); "
            f"rule: {alert.statistic} {alert.op} {values['threshold']}"
        )
    subject = values["metric"]
    unit = ""
    interval = ""
    if alert.metric == "latency":
        quantile = float(alert.labels.get("quantile", "0"))
        subject = f"{values['stage']} latency p{quantile * 100:g}"
        unit = " s"
    if alert.lower is not None and alert.upper is not None:
        interval = f"95 % interval {values['lower']} to {values['upper']}, "
    return (
        f"{where}: {subject} over {alert.window} is {values['value']}{unit} "
        f"({interval}{alert.samples} samples);"
        f" rule: {alert.statistic} {alert.op} {values['threshold']}{unit}"
    )
