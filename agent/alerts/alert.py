"""The alert record and the text of its summary.

The words of an alert: templates with fixed named fields, and the sentence used without one.

Template text is the operator's, field values come from traces. `str.format` would let a template
walk into objects and let a value's braces act as a template, so fields are replaced in one pass
and values are never read again.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

Severity = Literal["critical", "warning"]
AlertState = Literal["pending", "firing", "resolved"]


def alert_id(rule: str, service: str, segment: str = "") -> str:
    """The same 16 hex digits for the same rule, service and segment, in every process."""
    # Length-prefixed, so that ("a", "bc") and ("ab", "c") differ whatever the names hold.
    text = "".join(f"{len(part)}:{part}" for part in (rule, service, segment))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True)
class Alert:
    """One alert. All times are event time in Unix seconds.

    `value`, `lower` and `upper` are the estimate and its 95 % interval as last read; None before
    the first reading or where the reading has no interval. `metric` is `latency` for a latency
    rule and `traces` for an absence rule; `scorer` is then empty. `labels` and `annotations` come
    from the rule (a latency rule adds `stage` and `quantile` to the labels).

    `baseline` is what the value was before, None where nobody knows; `top_segment` the segment
    that is behind it, empty where none stands out, with `top_segment_words`; `fingerprint` that of
    the judge or model that scores.

    `drift` is what only an alarm of a drift detector has (`ragmeter.alerts.drift_alerts.evidence`): `since`
    is then the estimated time of the change, `threshold` that of the detector's statistic.
    `unscored` is what only a rule on results without a value has: how many by reason, the most
    frequent first. `value` is then their share, of the results of `metric` by `scorer`.
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
    value: float | None
    lower: float | None
    upper: float | None
    threshold: float
    samples: int
    effective_samples: float
    since: float
    fired_at: float | None
    resolved_at: float | None
    updated_at: float
    summary: str
    worst: list[str] = field(default_factory=list)
    no_data: bool = False
    statistic: str = "value"
    op: str = ">"
    reason: str = ""  # why it resolved, where it was not the condition that ended
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    runbook: str = ""
    baseline: float | None = None
    top_segment: str = ""
    top_segment_words: str = ""
    fingerprint: str = ""
    unscored: dict[str, int] | None = None
    drift: dict[str, Any] | None = None

    def copy(self) -> Alert:
        """A copy that shares nothing that changes."""
        return replace(
            self,
            worst=list(self.worst),
            labels=dict(self.labels),
            annotations=dict(self.annotations),
            unscored=None if self.unscored is None else dict(self.unscored),
            drift=None if self.drift is None else dict(self.drift),
        )

    def to_dict(self) -> dict[str, Any]:
        """Every field, JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Alert:
        """The inverse of `to_dict`; keys that this version does not know are left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


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
    "slo",
    "objective",
    "factor",
    "burn_rate",
    "short",
    "short_value",
    "errors",
    "budget_spent",
    "baseline",
    "top_segment",
    "fingerprint",
    "reason",
)
"""What may stand between braces in a template."""

_BURN_NOTES = (
    *("objective", "factor", "burn_rate", "short", "short_value", "errors", "budget_spent"),
)
"""What `conditions.read_burn` notes of a burn rule's reading."""

_MAX_FIELD = 200  # characters of one value: a service name is a label, never prose
_MAX_TEXT = 1_000  # characters of a finished text: what chat receivers show without folding

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")


def clean_text(text: str, limit: int = _MAX_FIELD) -> str:
    """Text that cannot break a line, move a cursor, turn the reading direction, or grow.

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
    """The template itself, or ValueError naming what stands between braces and may not."""
    for match in _TOKEN.finditer(text):
        name = match.group(1)
        if name is None:
            if match.group() in "{}":
                raise ValueError("a single brace; write {{ or }} for a brace of the text")
        elif name not in TEMPLATE_FIELDS:
            raise ValueError(f"unknown field {{{name}}}; allowed: {', '.join(TEMPLATE_FIELDS)}")
    return text


def fill_template(template: str, values: Mapping[str, str], limit: int = _MAX_TEXT) -> str:
    """The template with each `{name}` replaced by its value, `{{` by a brace; bounded."""

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group()[0] if name is None else values.get(name, "")

    return clean_text(_TOKEN.sub(put, template), limit)


def format_number(value: float | None) -> str:
    """Three significant digits, plain; `-` for None."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def template_values(alert: Alert) -> dict[str, str]:
    """The fields of a template as cleaned text."""
    return {
        "rule": alert.rule,
        "severity": alert.severity,
        "service": clean_text(alert.service),
        "segment": clean_text(alert.segment),
        "metric": clean_text(alert.metric),
        "scorer": clean_text(alert.scorer),
        "statistic": alert.statistic,
        "op": alert.op,
        "window": alert.window,
        "stage": clean_text(alert.labels.get("stage", "")),
        "quantile": alert.labels.get("quantile", ""),
        "value": format_number(alert.value),
        "lower": format_number(alert.lower),
        "upper": format_number(alert.upper),
        "threshold": format_number(alert.threshold),
        "samples": str(alert.samples),
        "effective_samples": format_number(alert.effective_samples),
        "worst": clean_text(", ".join(alert.worst), _MAX_TEXT),
        "slo": clean_text(_slo(alert)),
        "baseline": format_number(alert.baseline),
        "top_segment": clean_text(alert.top_segment),
        "fingerprint": clean_text(alert.fingerprint),
        "reason": clean_text(next(iter(alert.unscored or {}), "")),
        # what only a burn rule has is kept in its annotations
        **{name: alert.annotations.get(name, "") for name in _BURN_NOTES},
    }


def _slo(alert: Alert) -> str:
    tag, _, name = alert.segment.partition("=")
    return name if alert.metric == "error_budget" and tag == "slo" else ""


def _subject(alert: Alert) -> str:
    if alert.metric != "latency":
        return clean_text(alert.metric)
    quantile = float(alert.labels.get("quantile", "0"))
    return f"{clean_text(alert.labels.get('stage', ''))} latency p{quantile * 100:g}"


_BOUND = {"value": "", "lower": " with its lower bound", "upper": " with its upper bound"}


def _describe_value(alert: Alert) -> str:
    """The reading in one plain sentence, used where the rule has no template."""
    where = clean_text(alert.service) + (f" ({clean_text(alert.segment)})" if alert.segment else "")
    if alert.metric == "traces":
        count = "no traces" if not alert.value else f"{alert.value:.0f} traces"
        return f"{where}: {count} in the last {alert.window}"
    if alert.metric == "error_budget":
        told = template_values(alert)
        return (
            f"{clean_text(alert.service)}: {told['slo']} uses up its error budget {told['burn_rate']} "
            f"times too fast: {told['value']} of the events were bad over {alert.window} and "
            f"{told['short_value']} over {told['short']}, above {told['threshold']} "
            f"({told['errors']} errors, objective {told['objective']})"
        )
    if alert.unscored is not None:
        told = template_values(alert)
        why = f", most often {told['reason']}" if told["reason"] else ""
        return (
            f"{where}: {told['value']} of the results of {told['metric']} by {told['scorer']} over "
            f"{alert.window} got no value{why} (95 % interval {told['lower']} to {told['upper']}, "
            f"{alert.samples} results); rule: {alert.statistic} {alert.op} {told['threshold']}"
        )
    unit = " s" if alert.metric == "latency" else ""
    interval = (
        ""
        if alert.lower is None or alert.upper is None
        else f"95 % interval {format_number(alert.lower)} to {format_number(alert.upper)}, "
    )
    return (
        f"{where}: {_subject(alert)} over {alert.window} is {format_number(alert.value)}{unit} "
        f"({interval}{alert.samples} samples);"
        f" rule: {alert.statistic} {alert.op} {format_number(alert.threshold)}{unit}"
    )


def render_summary(alert: Alert, template: str = "") -> str:
    """The summary of an alert as it stands: the reading, then what its state adds."""
    text = fill_template(template, template_values(alert)) if template else _describe_value(alert)
    if alert.state == "resolved":
        text = f"Resolved: {text}"
        if alert.reason:
            text += f" ({alert.reason})"
    elif alert.no_data:
        text += " (no data now: the reading is the last known one)"
    return clean_text(text, _MAX_TEXT)
