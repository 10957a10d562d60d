"""PromQL expressions and Prometheus rules as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.core.durations import parse_whole_seconds

RuleTree = dict[str, Any]  # a rule as it stands in the file

# `increase` of whole numbers is no whole number, for it is stretched to the ends of the window:
# "at least 20" is "more than 19.5".
HALF = 0.5

MINUTE = 60
# Seconds for which a rule that only Prometheus has keeps firing: as those on an hour.
KEEP = 15 * MINUTE

TARGET = "job, instance"  # the labels that tell one agent from another

GROWTH_WINDOW = "15m"

# Counters whose series begin with their first event, which `increase` does not see.
COUNTERS = (
    "ragmeter_traces_received_total",
    "ragmeter_dead_letters_total",
    "ragmeter_otlp_spans_total",
    "ragmeter_otlp_traces_total",
    "ragmeter_results_exported_total",
    "ragmeter_notifications_total",
    "ragmeter_redaction_failures_total",
    "ragmeter_state_quarantined_total",
    "ragmeter_judge_requests_total",
    "ragmeter_kafka_deleted_unread_total",
)
# Counters that begin at nothing with each process. The others are restored from the state of an
# embedded agent, so that the first value of them may be the sum of weeks.
OF_PROCESS = frozenset(("ragmeter_kafka_deleted_unread_total",))


def alerting_rule(
    name: str,
    expr: str,
    *,
    for_: float,
    keep: float,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> RuleTree:
    """Build an alerting rule; `for_` and `keep` (keep_firing_for) are in seconds.

    Annotations are templates, labels and the runbook link are texts; an empty link is left out.
    """
    tree: RuleTree = {"alert": name, "expr": expr}
    if for_:
        tree["for"] = f"{for_:.0f}s"
    if keep:  # Prometheus 2.42 or newer
        tree["keep_firing_for"] = f"{keep:.0f}s"
    tree["labels"] = {key: escape_template(text) for key, text in labels.items()}
    tree["annotations"] = {
        key: escape_template(text) if key == "runbook_url" else text
        for key, text in annotations.items()
        if text
    }
    return tree


def growth_series(counter: str) -> str:
    """Return the recorded series of what a counter has grown by in `GROWTH_WINDOW`."""
    return f"instance:{counter.removesuffix('_total')}:increase{GROWTH_WINDOW}"


def growth_recordings() -> list[RuleTree]:
    """Record the growth of the counters.

    A series that was not there 15 minutes ago has grown by all that it shows, if its agent was
    there and thus counted from nothing; a newly found agent may have counted for weeks.
    """
    there = f"last_over_time(ragmeter_build_info[5m] offset {GROWTH_WINDOW})"
    # A worker that comes back after an outage under a new address finds its losses at once.
    started = f"process_start_time_seconds > time() - {parse_whole_seconds(GROWTH_WINDOW)}"
    return [
        {
            "record": growth_series(name),
            "expr": f"({name} unless last_over_time({name}[5m] offset {GROWTH_WINDOW}))"
            f" and on ({TARGET}) {f'({there} or {started})' if name in OF_PROCESS else there}"
            f" or increase({name}[{GROWTH_WINDOW}])",
        }
        for name in COUNTERS
    ]


def quote(text: str) -> str:
    """Write a text as a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def escape_template(text: str) -> str:
    """Escape a text for labels and annotations, which Prometheus expands as templates."""
    return text.replace("{{", '{{ "{{" }}')
