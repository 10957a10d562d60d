"""Prometheus alerts on the agent itself.

An agent is told by the labels that every scrape sets, `job` and `instance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ragmeter.alerts.rule_sets import RUNBOOK_BASE, runbook_link
from ragmeter.core.clocks import parse_duration
from ragmeter.exporters.rules.promql import (
    KEEP,
    MINUTE,
    TARGET,
    RuleTree,
    alerting_rule,
    growth_series,
)

HOUR = 3600
BY = f"sum by ({TARGET})"
AGENT = "{{ $labels.instance }}"
SHARE = "{{ $value | humanizePercentage }}"


def _share(part: str, whole: str, by: str = TARGET) -> str:
    return f"sum by ({by}) ({part}) / sum by ({by}) ({whole})"


def _most(part: str, whole: str, limit: float, least: float, by: str = TARGET) -> str:
    """More than the share `limit`, and at least so many: one of three is no trouble."""
    return f"{_share(part, whole, by)} > {limit:g} and sum by ({by}) ({part}) > {least - 0.5:g}"


@dataclass(frozen=True, slots=True)
class HealthRule:
    """`for_` and `keep` in seconds."""

    name: str
    severity: Literal["critical", "warning"]
    expr: str
    summary: str
    description: str
    for_: float = 0
    keep: float = KEEP


_LETTERS = growth_series("ragmeter_dead_letters_total")
_TAKEN = growth_series("ragmeter_traces_received_total")
_SPANS = growth_series("ragmeter_otlp_spans_total")
_CLOSED = growth_series("ragmeter_otlp_traces_total")
_SENT = growth_series("ragmeter_results_exported_total")
_TOLD = growth_series("ragmeter_notifications_total")
_CALLS = growth_series("ragmeter_judge_requests_total")
_CANARIES = "sum by (service) (increase(rag_canaries_total[1h]))"
_INPUT = f'{{__name__=~"{_LETTERS}|{_TAKEN}"}}'
WINDOW = "{window}"
"""In `RagScoresAbsent`, for the one of the configured windows that fits: see `health_rules`."""
_QUALITY = "rag_(relevance|grounding|answered|citation_precision)_effective_samples"

HEALTH_RULES = (
    # Ten minutes without a single agent: longer than a rollout of one takes.
    HealthRule(
        "RagmeterAbsent", "critical", "absent_over_time(ragmeter_build_info[10m])",
        "no ragmeter is scraped",
        "Nobody measures: no rule on quality, errors or latency can fire.",
        for_=5 * MINUTE, keep=5 * MINUTE,
    ),
    # Any target that was an agent within a day, whatever its job is called.
    HealthRule(
        "RagmeterDown", "critical",
        f"max_over_time(up[5m]) == 0 and on ({TARGET}) last_over_time(ragmeter_build_info[1d])",
        f"{AGENT}: this ragmeter cannot be scraped",
        "Traces of its services are not measured, or what is measured is not seen.",
        for_=2 * MINUTE, keep=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterNotReady", "critical", "max_over_time(ragmeter_ready[5m]) == 0",
        f"{AGENT}: ragmeter has not been ready for five minutes",
        "/readyz says why: a full disk, a worker that does not move, a clock that is ahead.",
        for_=2 * MINUTE, keep=5 * MINUTE,
    ),
    # The worker's longest pause is 5 s; by itself it exits after `limits.stalled_seconds`.
    HealthRule(
        "RagmeterStalled", "critical",
        f"min_over_time(ragmeter_queue_depth[10m]) > 0 unless on ({TARGET})"
        f" {BY} (increase(ragmeter_seen_total[10m])) > 0",
        f"{AGENT}: {{{{ $value }}}} traces wait and not one was scored for ten minutes",
        "Work waits and nothing is done.",
        for_=5 * MINUTE, keep=5 * MINUTE,
    ),
    # 300 s is the shortest window: beyond it the five-minute gauges tell what is over.
    HealthRule(
        "RagmeterLagging", "warning",
        "min_over_time(ragmeter_processing_lag_seconds[10m]) > 300",
        f"{AGENT}: traces are measured {{{{ $value | humanizeDuration }}}} late",
        "More comes in than is processed; every alert comes so much later.",
        for_=5 * MINUTE,
    ),
    # One snapshot is consistent: anything but 0 is a mistake of ours.
    HealthRule(
        "RagmeterAccountingMismatch", "critical",
        "min_over_time(ragmeter_accounting_mismatch[5m]) > 0",
        f"{AGENT}: {{{{ $value }}}} results of {{{{ $labels.metric }}}} by {{{{ $labels.scorer }}}}"
        " are unaccounted for",
        "Traces seen are not the sum over their states: a count is wrong, and so may estimates be.",
        for_=2 * MINUTE,
    ),
    HealthRule(
        "RagmeterStateQuarantined", "critical",
        f"{growth_series('ragmeter_state_quarantined_total')} > 0",
        f"{AGENT}: a damaged state file was moved aside",
        "Windows, baselines and alerts began anew; the old file is kept beside the new one.",
        keep=HOUR,
    ),
    # One is too many: what the retention took is lost for good, and no weight makes up for it.
    HealthRule(
        "RagmeterKafkaUnreadDeleted", "critical",
        f"sum by ({TARGET}, topic) ({growth_series('ragmeter_kafka_deleted_unread_total')}) > 0",
        f'{AGENT}: Kafka deleted {{{{ $value | printf "%.0f" }}}} messages of'
        " {{ $labels.topic }} before they were read",
        "They are lost: the group was further behind than the topic's retention reaches.",
        keep=HOUR,
    ),
    # One unreadable message is somebody's slip; one in a hundred is a sender that loses data.
    HealthRule(
        "RagmeterDeadLetters", "warning", _most(_LETTERS, _INPUT, 0.01, 5),
        f"{AGENT}: {SHARE} of what came in over 15m could not be read",
        "Unreadable messages are kept with their reason and measured by nobody.",
        for_=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterDeadLettersHigh", "critical", _most(_LETTERS, _INPUT, 0.1, 5),
        f"{AGENT}: {SHARE} of what came in over 15m could not be read",
        "So much is missing that the estimates may say little about the traffic.",
        for_=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterOtlpRefused", "warning",
        _most(f'{_SPANS}{{result!~"accepted|duplicate|own"}}', _SPANS, 0.01, 10),
        f"{AGENT}: {SHARE} of the spans over 15m were refused or came too late",
        "Requests are measured without these spans, or not at all.",
        for_=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterOtlpTracesCut", "warning",
        _most(f'{_CLOSED}{{result=~"age|spans|bytes|evicted"}}', _CLOSED, 0.01, 10),
        f"{AGENT}: {SHARE} of the traces of spans over 15m were closed by a limit",
        "They are measured by the spans that were there; later ones are refused.",
        for_=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterResultsExportDropped", "warning",
        _most(f'{_SENT}{{result!="sent"}}', _SENT, 0.01, 10),
        f"{AGENT}: {SHARE} of the results over 15m did not reach the tracing backend",
        "Scores are missing there; windows and alerts have them.",
        for_=5 * MINUTE,
    ),
    HealthRule(
        "RagmeterNotificationsFailing", "critical",
        f'sum by ({TARGET}, target) ({_TOLD}{{outcome=~"refused|expired|error"}}) > 0'
        f' or sum by ({TARGET}, target) ({_TOLD}{{outcome="retry"}}) > 0'
        f' unless sum by ({TARGET}, target) ({_TOLD}{{outcome="sent"}}) > 0',
        f"{AGENT}: alerts do not reach the {{{{ $labels.target }}}}",
        "The agent's own alerts are lost or late. This alert comes from Prometheus.",
        for_=5 * MINUTE,
    ),
    # What is shed is counted and the weights corrected; past a tenth the intervals grow by more
    # than a twentieth, and the judge is too slow for its share.
    HealthRule(
        "RagmeterResultsShed", "warning",
        _share(
            'increase(ragmeter_results_total{state="shed"}[15m])',
            "increase(ragmeter_seen_total[15m])",
            f"{TARGET}, scorer",
        ) + " > 0.1",
        f"{AGENT}: {SHARE} of the results by {{{{ $labels.scorer }}}} over 15m were shed",
        "Estimates stay right and their intervals widen.",
        for_=10 * MINUTE,
    ),
    HealthRule(
        "RagmeterTracesLate", "warning",
        _share(
            'increase(ragmeter_results_total{state="late"}[15m])',
            "increase(ragmeter_seen_total[15m])",
        ) + " > 0.01",
        f"{AGENT}: {SHARE} of the results over 15m came after their last window had closed",
        "They are counted and in no estimate.",
        for_=10 * MINUTE,
    ),
    HealthRule(
        "RagmeterLabelOverflow", "warning",
        "increase(ragmeter_label_overflow_total[1h]) > 0",
        f"{AGENT}: there are more values of {{{{ $labels.label }}}} than are kept",
        "The ones above the limit are measured together as __other__.",
    ),
    HealthRule(
        "RagmeterAlertsRefused", "warning", "min_over_time(ragmeter_alerts_refused[5m]) > 0",
        f"{AGENT}: {{{{ $value }}}} conditions hold without an alert: there are too many",
        "The agent holds a thousand alerts. Critical rules come first.",
        for_=2 * MINUTE,
    ),
    HealthRule(
        "RagmeterDriftSeriesRefused", "warning",
        "min_over_time(ragmeter_drift_series_refused[5m]) > 0",
        f"{AGENT}: {{{{ $value }}}} series are watched by no drift detector",
        "drift.max_series are watched already.",
        for_=2 * MINUTE,
    ),
    HealthRule(
        "RagmeterRedactionFailures", "warning",
        f"sum by ({TARGET}, rule, reason) ({growth_series('ragmeter_redaction_failures_total')}) > 0",
        f"{AGENT}: the privacy rule {{{{ $labels.rule }}}} failed ({{{{ $labels.reason }}}})",
        "The texts were dropped, so that nothing leaks; they could not be scored.",
        for_=5 * MINUTE,
    ),
    # Half of 15 minutes: a breaker opens for a minute now and then where a judge is merely slow.
    HealthRule(
        "RagmeterJudgeDown", "warning", "avg_over_time(ragmeter_judge_up[15m]) < 0.5",
        f"{AGENT}: the judge {{{{ $labels.judge }}}} is left in peace most of the time: it fails",
        "Its breaker is open: what it should judge is unscored (judge_unavailable).",
        for_=5 * MINUTE,
    ),
    # A quarter of attempts: with the default retries a call that fails all of them is then rare,
    # and still every fourth token is paid for nothing.
    HealthRule(
        "RagmeterJudgeFailing", "warning",
        _most(
            f'{_CALLS}{{outcome!~"ok|cancelled"}}', f'{_CALLS}{{outcome!="cancelled"}}', 0.25, 10,
            f"{TARGET}, judge",
        ),
        f"{AGENT}: {SHARE} of the calls to the judge {{{{ $labels.judge }}}} over 15m failed",
        "Retries hide it as long as they help; then results are unscored.",
        for_=5 * MINUTE,
    ),
    # At a tenth of the rate an interval is three times as wide: too wide for most thresholds.
    HealthRule(
        "RagmeterSamplingScaledDown", "warning",
        "max_over_time(ragmeter_sampling_scale[1h]) < 0.1",
        f"{AGENT}: only {SHARE} of the configured sample of {{{{ $labels.service }}}} goes to the"
        " {{ $labels.tier }} tier",
        "Budget or capacity leaves no more; estimates stay right and get wide.",
        for_=10 * MINUTE,
    ),
    # Not for a suite that is sent now and then: at some time of the last day canaries came for
    # three hours without a gap of an hour (18 looks in a row), and now there is one.
    HealthRule(
        "RagCanariesAbsent", "warning",
        f"{_CANARIES} < 0.5 and"
        f" max_over_time(count_over_time(({_CANARIES} > 0.5)[3h:10m])[24h:30m]) > 17.5",
        "{{ $labels.service }}: no canary for an hour, and they had come regularly",
        "Whoever sends them has stopped or cannot reach the agent: nobody asks whether answers are"
        " right.",
        for_=10 * MINUTE,
    ),
    # Of a hundred answered requests some could be scored, whatever they are about.
    HealthRule(
        "RagScoresAbsent", "warning",
        'sum by (service) (increase(rag_traces_total{status="ok",service!="_judge"}[1h])) > 99.5'
        f' unless on (service) last_over_time({{__name__=~"{_QUALITY}",window="{WINDOW}"}}[10m])',
        "{{ $labels.service }}: requests come in and none could be scored",
        "No gauge of quality has a value, so no rule on quality can fire.",
        for_=15 * MINUTE,
    ),
)  # fmt: skip


def health_rules(base: str = RUNBOOK_BASE, windows: Sequence[str] = ("1h",)) -> list[RuleTree]:
    """All of them, with the links to their runbooks. `windows` are those of the agent: one that it
    does not keep has no gauge, ever. The shortest from an hour on is read, else the longest: in a
    shorter one a hundred requests an hour may be too few."""
    lengths = sorted(windows, key=parse_duration)
    window = next((one for one in lengths if parse_duration(one) >= HOUR), lengths[-1])
    return [
        alerting_rule(
            rule.name,
            rule.expr.replace(WINDOW, window),
            for_=rule.for_,
            keep=rule.keep,
            labels={"severity": rule.severity},
            annotations={
                "summary": rule.summary,
                "description": rule.description,
                "runbook_url": runbook_link(rule.name, base),
            },
        )
        for rule in HEALTH_RULES
    ]
