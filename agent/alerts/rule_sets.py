"""The rules in force: defaults, rules of own metrics and the user file, with links to runbooks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ragmeter.alerts.drift_alerts import DRIFT_RULE, JUDGE_CHANGED_RULE
from ragmeter.alerts.rules import AlertRule, RuleError, load_rules
from ragmeter.config.settings import Settings
from ragmeter.metrics.custom import CUSTOM_METRICS, CustomMetric
from ragmeter.metrics.registry import METRICS

RUNBOOK_BASE = "docs/runbooks"
"""Where the pages are in the repository. Whoever publishes them sets `alerts.runbook_url`."""

_BY_PAGE: Mapping[str, tuple[str, ...]] = {
    "errors.md": ("RagErrorsHigh", "RagErrorsElevated"),
    "timeouts.md": ("RagTimeoutsHigh", "RagTimeoutsElevated"),
    "empty-answers.md": ("RagEmptyAnswersHigh", "RagEmptyAnswersElevated"),
    "latency.md": ("RagLatencyHigh", "RagLatencyElevated"),
    "relevance.md": ("RagRelevanceLow", "RagContextRelevancyLow"),
    "grounding.md": ("RagGroundingLow",),
    "answered.md": ("RagAnsweredLow",),
    "citation-support.md": ("RagCitationSupportLow",),
    "faithfulness.md": ("RagFaithfulnessLow",),
    "groundedness.md": ("RagGroundednessLow",),
    "answer-correctness.md": ("RagAnswerCorrectnessLow", "RagCanaryFactsWrong"),
    "canaries.md": ("RagCanariesFailing", "RagCanariesAbsent"),
    "error-budget.md": (
        *("RagErrorBudgetBurnFast", "RagErrorBudgetBurnSlow", "RagErrorBudgetBurnTicket"),
    ),
    "unscored.md": ("RagUnscoredHigh", "RagUnscoredElevated"),
    "judge-verdicts.md": ("RagJudgesDisagree", "RagJudgeDrift", "RagJudgePoor", JUDGE_CHANGED_RULE),
    "drift.md": (DRIFT_RULE,),
    "absence.md": ("RagTracesAbsent", "RagScoresAbsent"),
    "agent-down.md": ("RagmeterAbsent", "RagmeterDown"),
    "agent-not-ready.md": ("RagmeterNotReady",),
    "agent-stalled.md": ("RagmeterStalled", "RagmeterLagging"),
    "accounting.md": ("RagmeterAccountingMismatch",),
    "state-quarantined.md": ("RagmeterStateQuarantined",),
    "dead-letters.md": ("RagmeterDeadLetters", "RagmeterDeadLettersHigh"),
    "kafka-retention.md": ("RagmeterKafkaUnreadDeleted",),
    "otlp.md": ("RagmeterOtlpRefused", "RagmeterOtlpTracesCut"),
    "results-export.md": ("RagmeterResultsExportDropped",),
    "notifications.md": ("RagmeterNotificationsFailing",),
    "shed-and-late.md": ("RagmeterResultsShed", "RagmeterTracesLate"),
    "limits.md": (
        *("RagmeterLabelOverflow", "RagmeterAlertsRefused", "RagmeterDriftSeriesRefused"),
    ),
    "redaction.md": ("RagmeterRedactionFailures",),
    "judge-down.md": ("RagmeterJudgeDown", "RagmeterJudgeFailing"),
    "sampling.md": ("RagmeterSamplingScaledDown",),
}

RUNBOOK_PAGES: Mapping[str, str] = {
    name: page for page, names in _BY_PAGE.items() for name in names
}
"""The page by the name of the alert."""

_RUNBOOK_INDEX = "README.md"
"""For an alert of a rule that somebody else wrote: how any alert is read."""


def runbook_link(alert: str, base: str = RUNBOOK_BASE) -> str:
    """Where to read about an alert."""
    return f"{base.rstrip('/')}/{RUNBOOK_PAGES.get(alert, _RUNBOOK_INDEX)}"


def with_runbooks(rules: Iterable[AlertRule], base: str = RUNBOOK_BASE) -> list[AlertRule]:
    """The rules, each with a link; one that a rule brings along stays."""
    return [
        rule if rule.runbook else rule.model_copy(update={"runbook": runbook_link(rule.name, base)})
        for rule in rules
    ]


_log = logging.getLogger("ragmeter.rules")

RESERVED_PREFIX = "Rag"
"""What the names of our rules begin with."""


def load_configured_rules(settings: Settings) -> list[AlertRule]:
    """Raises `RuleError` for a mistake in a rule.

    Users' own metrics may bring rules along; the user's file lies over those, too.

    A default rule on a window that is not configured is left out, and said so; a user's is a
    mistake. Rules without a runbook get ours, where `alerts.runbook_url` says where they are.
    """
    alerts = settings.alerts
    rules = load_rules(
        alerts.rules,
        profile=alerts.profile,
        brought=[_rules_of_own_metrics(CUSTOM_METRICS)],
        metrics=METRICS,
        segments=settings.segments,
    )
    defaults = {rule.name: rule for rule in load_default_rules(alerts.profile)}
    kept = []
    for rule in rules:
        if rule.burn is not None or rule.window in settings.windows:
            kept.append(rule)
        elif defaults.get(rule.name) == rule:
            _log.warning("rule %s is off: there is no window %s", rule.name, rule.window)
        else:
            allowed = ", ".join(settings.windows)
            raise RuleError(f"rule {rule.name!r}: window {rule.window!r} is not one of {allowed}")
    return with_runbooks(kept, alerts.runbook_url) if alerts.runbook_url else kept


def load_default_rules(profile: str = "balanced") -> list[AlertRule]:
    """The rules that hold without a file of the user's. Raises `RuleError`."""
    return load_rules(profile=profile, brought=[_rules_of_own_metrics(CUSTOM_METRICS)])


def describe_rule(rule: AlertRule) -> str:
    """A rule about a metric in one line."""
    of = "" if rule.statistic == "value" else f"{rule.statistic} end "
    return (
        f"{rule.name}: {rule.severity} if {of}{rule.op} {rule.threshold:g} over {rule.window}"
        f" ({rule.scorer})"
    )


def _rules_of_own_metrics(metrics: Iterable[CustomMetric]) -> dict[str, object]:
    """The rules that users' own metrics bring along, each about its own metric, as a document."""
    entries: list[object] = []
    for metric in metrics:
        about = {"metric": metric.spec.name, "scorer": metric.scorer}
        for rule in metric.rules:
            other = {key: rule[key] for key in about if rule.get(key, about[key]) != about[key]}
            if other:
                raise RuleError(f"metric {metric.spec.name!r} brings a rule about another: {other}")
            if str(rule.get("name")).startswith(RESERVED_PREFIX):
                raise RuleError(
                    f"metric {metric.spec.name!r} brings rule {rule['name']!r}: names that begin"
                    f" with {RESERVED_PREFIX} are those of ragmeter"
                )
            entries.append({**rule, **about})
    return {"rules": entries}
