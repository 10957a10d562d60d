"""The words of an alert: templates with fixed named fields, and the sentence used without one.

Template text is the operator's, field values come from traces. `str.format` would let a template
walk into objects and let a value's braces act as a template, so fields are replaced in one pass
and values are never read again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from agent.alerts.alert import Alert

__all__ = ["FIELDS", "check_template", "clean", "fill", "number", "render", "sentence"]

FIELDS = (
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

BURN_NOTES = (
    *("objective", "factor", "burn_rate", "short", "short_value", "errors", "budget_spent"),
)
"""What `conditions.read_burn` notes of a burn rule's reading."""

MAX_FIELD = 200  # characters of one value: a service name is a label, never prose
MAX_TEXT = 1_000  # characters of a finished text: what chat receivers show without folding

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")


def clean(text: str, limit: int = MAX_FIELD) -> str:
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
        elif name not in FIELDS:
            raise ValueError(f"unknown field {{{name}}}; allowed: {', '.join(FIELDS)}")
    return text


def fill(template: str, values: Mapping[str, str], limit: int = MAX_TEXT) -> str:
    """The template with each `{name}` replaced by its value, `{{` by a brace; bounded."""

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group()[0] if name is None else values.get(name, "")

    return clean(_TOKEN.sub(put, template), limit)


def number(value: float | None) -> str:
    """Three significant digits, plain; `-` for None."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def values(alert: Alert) -> dict[str, str]:
    """The fields of a template as cleaned text."""
    return {
        "rule": alert.rule,
        "severity": alert.severity,
        "service": clean(alert.service),
        "segment": clean(alert.segment),
        "metric": clean(alert.metric),
        "scorer": clean(alert.scorer),
        "statistic": alert.statistic,
        "op": alert.op,
        "window": alert.window,
        "stage": clean(alert.labels.get("stage", "")),
        "quantile": alert.labels.get("quantile", ""),
        "value": number(alert.value),
        "lower": number(alert.lower),
        "upper": number(alert.upper),
        "threshold": number(alert.threshold),
        "samples": str(alert.samples),
        "effective_samples": number(alert.effective_samples),
        "worst": clean(", ".join(alert.worst), MAX_TEXT),
        "slo": clean(_slo(alert)),
        "baseline": number(alert.baseline),
        "top_segment": clean(alert.top_segment),
        "fingerprint": clean(alert.fingerprint),
        "reason": clean(next(iter(alert.unscored or {}), "")),
        # what only a burn rule has is kept in its annotations
        **{name: alert.annotations.get(name, "") for name in BURN_NOTES},
    }


def _slo(alert: Alert) -> str:
    tag, _, name = alert.segment.partition("=")
    return name if alert.metric == "error_budget" and tag == "slo" else ""


def _subject(alert: Alert) -> str:
    if alert.metric != "latency":
        return clean(alert.metric)
    quantile = float(alert.labels.get("quantile", "0"))
    return f"{clean(alert.labels.get('stage', ''))} latency p{quantile * 100:g}"


_BOUND = {"value": "", "lower": " with its lower bound", "upper": " with its upper bound"}


def sentence(alert: Alert) -> str:
    """The reading in one plain sentence, used where the rule has no template."""
    where = clean(alert.service) + (f" ({clean(alert.segment)})" if alert.segment else "")
    if alert.metric == "traces":
        count = "no traces" if not alert.value else f"{alert.value:.0f} traces"
        return f"{where}: {count} in the last {alert.window}"
    if alert.metric == "error_budget":
        told = values(alert)
        return (
            f"{clean(alert.service)}: {told['slo']} uses up its error budget {told['burn_rate']} "
            f"times too fast: {told['value']} of the events were bad over {alert.window} and "
            f"{told['short_value']} over {told['short']}, above {told['threshold']} "
            f"({told['errors']} errors, objective {told['objective']})"
        )
    if alert.unscored is not None:
        told = values(alert)
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
        else f"95 % interval {number(alert.lower)} to {number(alert.upper)}, "
    )
    return (
        f"{where}: {_subject(alert)} over {alert.window} is {number(alert.value)}{unit} "
        f"({interval}{alert.samples} samples);"
        f" rule: {alert.statistic} {alert.op} {number(alert.threshold)}{unit}"
    )


def render(alert: Alert, template: str = "") -> str:
    """The summary of an alert as it stands: the reading, then what its state adds."""
    text = fill(template, values(alert)) if template else sentence(alert)
    if alert.state == "resolved":
        text = f"Resolved: {text}"
        if alert.reason:
            text += f" ({alert.reason})"
    elif alert.no_data:
        text += " (no data now: the reading is the last known one)"
    return clean(text, MAX_TEXT)
