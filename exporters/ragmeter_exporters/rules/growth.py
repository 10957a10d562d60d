"""What the counters of an agent have grown by, as recording rules."""

from __future__ import annotations

from ragmeter.alerts.promql import RuleTree
from ragmeter.core.durations import parse_whole_seconds

_TARGET = "job, instance"  # the labels that tell one agent from another

_WINDOW = "15m"

# Counters whose series begin with their first event, which `increase` does not see.
_COUNTERS = (
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
_OF_PROCESS = frozenset(("ragmeter_kafka_deleted_unread_total",))


def growth_series(counter: str) -> str:
    """Return the recorded series of what a counter has grown by in `_WINDOW`."""
    return f"instance:{counter.removesuffix('_total')}:increase{_WINDOW}"


def growth_recordings() -> list[RuleTree]:
    """Record the growth of the counters.

    A series that was not there 15 minutes ago has grown by all that it shows, if its agent was
    there and thus counted from nothing; a newly found agent may have counted for weeks.
    """
    there = f"last_over_time(ragmeter_build_info[5m] offset {_WINDOW})"
    # A worker that comes back after an outage under a new address finds its losses at once.
    started = f"process_start_time_seconds > time() - {parse_whole_seconds(_WINDOW)}"
    return [
        {
            "record": growth_series(name),
            "expr": f"({name} unless last_over_time({name}[5m] offset {_WINDOW}))"
            f" and on ({_TARGET}) {f'({there} or {started})' if name in _OF_PROCESS else there}"
            f" or increase({name}[{_WINDOW}])",
        }
        for name in _COUNTERS
    ]
