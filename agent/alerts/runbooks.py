"""Which page of docs/runbooks says what to do about an alert, and the link to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.alerts.drift import DRIFT, JUDGE_CHANGED
from agent.alerts.rules import Rule

__all__ = ["BASE", "PAGES", "link", "with_runbooks"]

BASE = "docs/runbooks"
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
    "judge-verdicts.md": ("RagJudgesDisagree", "RagJudgeDrift", "RagJudgePoor", JUDGE_CHANGED),
    "drift.md": (DRIFT,),
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

PAGES: Mapping[str, str] = {name: page for page, names in _BY_PAGE.items() for name in names}
"""The page by the name of the alert."""

INDEX = "README.md"
"""For an alert of a rule that somebody else wrote: how any alert is read."""


def link(alert: str, base: str = BASE) -> str:
    """Where to read about an alert."""
    return f"{base.rstrip('/')}/{PAGES.get(alert, INDEX)}"


def with_runbooks(rules: Iterable[Rule], base: str = BASE) -> list[Rule]:
    """The rules, each with a link; one that a rule brings along stays."""
    return [
        rule if rule.runbook else rule.model_copy(update={"runbook": link(rule.name, base)})
        for rule in rules
    ]
