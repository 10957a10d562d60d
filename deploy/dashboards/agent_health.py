"""The agents themselves, beside an application and on Kafka: is what they show the truth."""

from __future__ import annotations

from deploy.dashboards import thresholds
from deploy.dashboards.board import Board, Row
from deploy.dashboards.now import instruments
from deploy.dashboards.panels import Column, Panel, columns, lines, number
from deploy.dashboards.promql import INTERVAL, RANGE, rate, target
from deploy.dashboards.thresholds import Line, Lines
from deploy.dashboards.variables import agents, places

__all__ = ["BOARD"]

RETENTION = ("RagmeterKafkaUnreadDeleted",)
THIRD = (8, 7)
BAD = Lines((Line(1, "critical", above=True),))
WARN = Lines((Line(1, "warning", above=True),))


def _top() -> list[Panel]:
    def grown(name: str, *matchers: str) -> str:
        return f"sum(increase({target(name, *matchers)}[{RANGE}])) or vector(0)"

    return [
        number(
            "Agents not ready",
            "/readyz says why: a full disk, a worker that does not move, a clock that is ahead.",
            f"count({target('ragmeter_ready')} == 0) or vector(0)",
            limits=BAD, alerts=["RagmeterNotReady", "RagmeterDown", "RagmeterAbsent"],
        ),
        number(
            "Agents",
            "That are scraped now. One too few: Prometheus cannot reach it, or it is gone.",
            f"count({target('ragmeter_build_info')})",
            alerts=["RagmeterDown", "RagmeterAbsent"],
        ),
        number(
            "Accounting mismatch",
            "Results that are in no state. Anything but 0 is a fault of ragmeter: estimates may be"
            " wrong.",
            f"sum({target('ragmeter_accounting_mismatch')})",
            limits=BAD, alerts=["RagmeterAccountingMismatch"],
        ),
        number(
            "Dead letters",
            "Messages in the range shown that could not be read: kept, and measured by nobody.",
            grown("ragmeter_dead_letters_total"), decimals=0,
            limits=WARN, alerts=["RagmeterDeadLetters", "RagmeterDeadLettersHigh"],
        ),
        number(
            "Lost to Kafka's retention",
            "Offsets that were deleted before they were read: those traces are lost. Workers only.",
            f"sum({_lost(RANGE)}) or vector(0)", decimals=0, limits=BAD, alerts=RETENTION,
        ),
        number(
            "State files set aside",
            "Damaged state files: windows, baselines and alerts began anew.",
            grown("ragmeter_state_quarantined_total"), decimals=0,
            limits=BAD, alerts=["RagmeterStateQuarantined"],
        ),
    ]  # fmt: skip


def _way() -> list[Panel]:
    results = target("ragmeter_results_total", 'state=~"late|shed|unscored"')
    return [
        lines(
            "Traces taken per second",
            "Readable traces by where they came from, duplicates included.",
            {
                "{{instance}} {{source}}": rate(
                    "ragmeter_traces_received_total", by="instance, source"
                )
            },
            unit="reqps", size=THIRD, stacked=True,
        ),
        lines(
            "Traces that wait to be scored",
            "Accepted and durable. It grows when more comes in than is worked off; a full queue"
            " answers 429. Beyond half a queue fewer are scored by the built-in scorers. Processes"
            " that score are replaced when they end.",
            {
                "{{instance}}": target("ragmeter_queue_depth"),
                "{{instance}} processes": target("ragmeter_scorer_processes"),
                "{{instance}} replaced": (
                    f"increase({target('ragmeter_scorer_restarts_total')}[{INTERVAL}])"
                ),
            },
            size=THIRD, alerts=["RagmeterStalled"],
        ),
        lines(
            "How late the numbers are",
            "Age of the oldest trace that waits, and the clock minus the event time that is"
            " processed. Every alert comes so much later. Embedded agents only: how far workers are"
            " behind says `ragmeter kafka lag`.",
            {
                "{{instance}} oldest": target("ragmeter_oldest_unprocessed_seconds"),
                "{{instance}} lag": target("ragmeter_processing_lag_seconds"),
            },
            unit="s", size=THIRD,
            limits=thresholds.health("RagmeterLagging"),
        ),
        lines(
            "Dead letters by reason",
            "What could not be read. `ragmeter kafka dlq list` or the dead-letter file shows them.",
            {"{{reason}}": rate("ragmeter_dead_letters_total", by="reason")},
            unit="reqps", size=THIRD, stacked=True,
            alerts=["RagmeterDeadLetters", "RagmeterDeadLettersHigh"],
        ),
        lines(
            "Results that are missing, by state",
            "unscored: should have a value; shed: left out under overload, the weights corrected;"
            " late: after the last window had closed.",
            {"{{state}}": f"sum by (state) (rate({results}[{INTERVAL}]))"},
            unit="reqps", size=THIRD, stacked=True,
            alerts=["RagmeterResultsShed", "RagmeterTracesLate"],
        ),
        lines(
            "Duplicates, wrong clocks, too many labels",
            "Duplicates change nothing, within the share of dedupe_hours that is shown;"
            " timestamps from the future were set back; label values beyond their limit share"
            " __other__.",
            {
                "duplicates are known for": (
                    f"min({target('ragmeter_dedupe_window_seconds')})"
                    f" / max({target('ragmeter_dedupe_horizon_seconds')})"
                ),
                "duplicates": f"sum({_rate('ragmeter_traces_duplicate_total')})",
                "from the future": f"sum({_rate('ragmeter_clock_skew_total')})",
                "{{label}} over the limit": rate("ragmeter_label_overflow_total", by="label"),
            },
            unit="reqps", size=THIRD, alerts=["RagmeterLabelOverflow", "RagmeterDedupeShort"],
        ),
    ]  # fmt: skip


def _lost(over: str) -> str:
    """The series comes into being with the first loss, which `increase` alone does not see."""
    unread = target("ragmeter_kafka_deleted_unread_total")
    begun = f"max_over_time({unread}[{over}]) unless {unread} offset {over}"
    return f"{begun} or increase({unread}[{over}])"


def _rate(name: str) -> str:
    return f"rate({target(name)}[{INTERVAL}])"


def _otlp() -> list[Panel]:
    return [
        lines(
            "Spans per second by what became of them",
            "late: their trace was closed already; over_limit: too many or too large.",
            {"{{signal}} {{result}}": rate("ragmeter_otlp_spans_total", by="signal, result")},
            unit="reqps", size=THIRD, stacked=True, alerts=["RagmeterOtlpRefused"],
        ),
        lines(
            "Traces of spans by why they were closed",
            "root: complete. age, spans, bytes, evicted: a limit cut them, and they are measured"
            " by what was there.",
            {"{{result}}": rate("ragmeter_otlp_traces_total", by="result")},
            unit="reqps", size=THIRD, stacked=True, alerts=["RagmeterOtlpTracesCut"],
        ),
        lines(
            "Traces of spans that are open",
            "They wait for their root span and the last stragglers.",
            {"{{instance}}": target("ragmeter_otlp_open_traces")}, size=THIRD,
        ),
    ]  # fmt: skip


def _kafka() -> list[Panel]:
    return [
        lines(
            "Traces from Kafka per second, by worker",
            "A worker that stands still while others move has no partitions, or is stuck.",
            {
                "{{instance}}": rate(
                    "ragmeter_traces_received_total", 'source="kafka"', by="instance"
                )
            },
            unit="reqps", size=THIRD,
        ),
        lines(
            "Kafka lag, by topic, and unexpected results",
            "Seconds that the oldest message waits that a worker has read, and messages that are"
            " not committed. Results that these settings do not ask for: workers run with different"
            " settings.",
            {
                "{{topic}} seconds": f"max by (topic) ({target('ragmeter_kafka_lag_seconds')})",
                "{{topic}} messages": f"sum by (topic) ({target('ragmeter_kafka_lag_messages')})",
                "unexpected": rate("ragmeter_unexpected_results_total", by="instance"),
            },
            size=THIRD, alerts=["RagmeterKafkaLagging"],
        ),
        lines(
            "Lost to retention, by topic",
            "Offsets that Kafka had deleted before they were read. Any is a loss: lengthen the"
            " retention of the topic, or add workers.",
            {
                "{{topic}}": f"sum by (topic) ({_lost(INTERVAL)})"
            },
            size=THIRD, alerts=RETENTION,
        ),
    ]  # fmt: skip


def _beside() -> list[Panel]:
    """What comes in beside traces."""
    return [
        lines(
            "Feedback by outcome",
            "joined is as it should be. unmatched: labels for traces that never came, or that came"
            " before the horizon.",
            {
                "received: {{source}}": rate("ragmeter_feedback_received_total", by="source"),
                "{{outcome}}": rate("ragmeter_feedback_total", by="outcome"),
            },
            unit="reqps", size=(6, 7),
        ),
        lines(
            "Feedback that waits, traces it can join",
            "Forgotten for want of room: raise feedback.traces, or labels for them are lost.",
            {
                "{{instance}} waiting": target("ragmeter_feedback_waiting"),
                "{{instance}} traces": target("ragmeter_feedback_traces"),
                "{{instance}} forgotten": rate(
                    "ragmeter_feedback_traces_shed_total", by="instance"
                ),
            },
            size=(6, 7),
        ),
    ]  # fmt: skip


def _out() -> list[Panel]:
    return [
        lines(
            "Alert notifications by outcome",
            "To Alertmanager and webhooks. retry that stays: the receiver is away; refused,"
            " expired, error: a notification is lost.",
            {"{{target}} {{outcome}}": rate("ragmeter_notifications_total", by="target, outcome")},
            unit="reqps", size=(6, 7), stacked=True, alerts=["RagmeterNotificationsFailing"],
        ),
        lines(
            "Results sent to the tracing backend",
            "All but sent were dropped: scores are missing there, windows and alerts have them.",
            {"{{result}}": rate("ragmeter_results_exported_total", by="result")},
            unit="reqps", size=(6, 7), stacked=True, alerts=["RagmeterResultsExportDropped"],
        ),
        lines(
            "Redaction",
            "Findings of privacy rules that were replaced, and texts dropped because a rule could"
            " not be applied.",
            {
                "{{rule}}": rate("ragmeter_redactions_total", by="rule"),
                "{{rule}} failed: {{reason}}": rate(
                    "ragmeter_redaction_failures_total", by="rule, reason"
                ),
            },
            unit="reqps", size=(6, 7), alerts=["RagmeterRedactionFailures"],
        ),
        lines(
            "Refused at the door",
            "Requests and connections that a port did not take, by why. wrong_token, certificate,"
            " tls: somebody has old credentials, or none; host, origin: another site asks; slow,"
            " connections: a limit.",
            {"{{port}} {{reason}}": rate("ragmeter_http_refused_total", by="port, reason")},
            unit="reqps", size=(6, 7), stacked=True,
        ),
    ]  # fmt: skip


def _process() -> list[Panel]:
    return [
        lines(
            "Memory",
            "Resident. It is bounded by settings; growth without new services is a fault.",
            {"{{instance}}": target("process_resident_memory_bytes")},
            unit="bytes", size=(6, 7),
        ),
        lines(
            "CPU, cores",
            "docs/performance.md says what a trace costs.",
            {"{{instance}}": f"rate({target('process_cpu_seconds_total')}[{INTERVAL}])"},
            size=(6, 7), decimals=2,
        ),
        lines(
            "Refused for their number",
            "Alerts and drift series beyond their limits: what holds is not told, what is there is"
            " not watched.",
            {
                "{{instance}} alerts": target("ragmeter_alerts_refused"),
                "{{instance}} drift series": target("ragmeter_drift_series_refused"),
            },
            size=(6, 7), alerts=["RagmeterAlertsRefused", "RagmeterDriftSeriesRefused"],
        ),
        columns(
            "Versions",
            "More than one: a rollout is on its way, or stuck.",
            [
                Column("Version", label="version"),
                Column(
                    "Agents", f"count by (version) ({target('ragmeter_build_info')})", decimals=0
                ),
            ],
            size=(6, 7), sort="Version",
        ),
    ]  # fmt: skip


BOARD = Board(
    "agent",
    "Agent health",
    "The agents themselves, embedded and on Kafka: ready, in time, losing nothing.",
    [*agents(), *places()],
    [
        Row("", _top()),
        Row("", [instruments()]),
        Row("The way of a trace", _way(), empty="Nothing of this has happened"),
        Row("What goes out, and what is hidden", _out(), empty="Nothing goes out, or is hidden"),
        Row("Process", _process()),
        Row(
            "With OpenTelemetry spans",
            _otlp(),
            empty="No span came in (POST /v1/traces)",
            folded=True,
        ),
        Row("With workers on Kafka", _kafka(), empty="No worker on Kafka", folded=True),
        Row(
            "With feedback",
            _beside(),
            empty="No feedback",
            folded=True,
        ),
    ],
    services=False,
)
