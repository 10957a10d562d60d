"""By how much counters have grown, those included that came into being with their first event."""

from __future__ import annotations

from agent.alerts.durations import whole_seconds
from exporters.rules.promql import TARGET, Tree

__all__ = ["COUNTERS", "OF_PROCESS", "grown", "recorded"]

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


def grown(counter: str) -> str:
    """The recorded series of what a counter has grown by in 15 minutes."""
    return _GROWN[1].format(name=counter.removesuffix("_total"))


def recorded() -> list[Tree]:
    """A series that was not there 15 minutes ago has grown by all that it shows, if its agent was
    there and thus counted from nothing; a newly found agent may have counted for weeks."""
    window = _GROWN[0]
    there = f"last_over_time(ragmeter_build_info[5m] offset {window})"
    # a worker that comes back after an outage under a new address finds its losses at once
    begun = f"({there} or process_start_time_seconds > time() - {whole_seconds(window)})"
    return [
        {
            "record": grown(name),
            "expr": f"({name} unless last_over_time({name}[5m] offset {window}))"
            f" and on ({TARGET}) {begun if name in OF_PROCESS else there}"
            f" or increase({name}[{window}])",
        }
        for name in COUNTERS
    ]
