"""PromQL as text, and recording rules for the growth of counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragmeter.core.clocks import parse_whole_seconds
from ragmeter.exporters.rules.burn_rate_rules import escape_template, glob_to_regex

RuleTree = dict[str, Any]
"""A rule as it stands in the file."""

HOLD = "2m"
"""How far back the last value of a gauge counts. A failed scrape marks every series as gone, and
an alert would end. Two scrapes of a minute; not longer than the shortest `for` of the rules (2 m),
so that a single reading never fires one."""

HALF = 0.5
"""`increase` of whole numbers is no whole number: "at least 20" is "more than 19.5"."""

MINUTE = 60
KEEP = 15 * MINUTE
"""For how long a rule that only Prometheus has keeps firing: as those on an hour."""

TARGET = "job, instance"
"""What tells one agent from another."""


def _quoted(text: str) -> str:
    """A text as a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def glob_matchers(label: str, patterns: Sequence[str], after: str = "") -> list[str]:
    """The matcher of shell globs, none where they match everything; `after` is an expression that
    each may go on with."""
    if "*" in patterns:
        return []
    return [f"{label}=~{_quoted('|'.join(glob_to_regex(glob) + after for glob in patterns))}"]


def series_selector(name: str, labels: Mapping[str, str], *more: str) -> str:
    """`name{label="value",...}`; `more` are matchers as they are."""
    inner = ",".join([*(f"{label}={_quoted(value)}" for label, value in labels.items()), *more])
    return f"{name}{{{inner}}}" if inner else name


def hold_last_value(series: str, window: str = HOLD) -> str:
    """The last value of a gauge, also where the last scrape has failed."""
    return f"last_over_time({series}[{window}])"


def _promql_seconds(value: float) -> str:
    """A duration as Prometheus writes it in whole seconds."""
    return f"{value:.0f}s"


def alerting_rule(
    name: str,
    expr: str,
    *,
    for_: float,
    keep: float,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> RuleTree:
    """An alerting rule; durations in seconds. Labels and the link are texts, not templates."""
    labels = {key: escape_template(text) for key, text in labels.items()}
    link = annotations.get("runbook_url")
    if link is not None:
        annotations = {**annotations, "runbook_url": escape_template(link)}
    tree: RuleTree = {"alert": name, "expr": expr}
    if for_:
        tree["for"] = _promql_seconds(for_)
    if keep:  # Prometheus 2.42 or newer
        tree["keep_firing_for"] = _promql_seconds(keep)
    return {**tree, "labels": dict(labels), "annotations": dict(annotations)}


_GROWN = ("15m", "instance:{name}:increase15m")

COUNTERS = (
    *("ragmeter_traces_received_total", "ragmeter_dead_letters_total"),
    *("ragmeter_otlp_spans_total", "ragmeter_otlp_traces_total"),
    *("ragmeter_results_exported_total", "ragmeter_notifications_total"),
    *("ragmeter_redaction_failures_total", "ragmeter_state_quarantined_total"),
    *("ragmeter_judge_requests_total", "ragmeter_kafka_deleted_unread_total"),
)
"""Those whose series come into being with their first event, which `increase` does not see."""

OF_PROCESS = frozenset(("ragmeter_kafka_deleted_unread_total",))
"""Of these, those that begin at nothing with each process. The others are restored from the state
of an embedded agent, so that a first sight of them may be the sum of weeks."""


def growth_series(counter: str) -> str:
    """The recorded series of what a counter has grown by in 15 minutes."""
    return _GROWN[1].format(name=counter.removesuffix("_total"))


def growth_recordings() -> list[RuleTree]:
    """A series that was not there 15 minutes ago has grown by all that it shows, if its agent was
    there and thus counted from nothing; a newly found agent may have counted for weeks."""
    window = _GROWN[0]
    there = f"last_over_time(ragmeter_build_info[5m] offset {window})"
    # a worker that comes back after an outage under a new address finds its losses at once
    begun = f"({there} or process_start_time_seconds > time() - {parse_whole_seconds(window)})"
    return [
        {
            "record": growth_series(name),
            "expr": f"({name} unless last_over_time({name}[5m] offset {window}))"
            f" and on ({TARGET}) {begun if name in OF_PROCESS else there}"
            f" or increase({name}[{window}])",
        }
        for name in COUNTERS
    ]
