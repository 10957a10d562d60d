"""The gate of a pipeline: alert rules applied to a scored file as a whole.

A rule asks of a file what it asks of a window in production. It is tested on the end of the 95 %
interval that gives the service the benefit of the doubt, whatever the rule's own
`statistic`: a handful of questions then fails no release by chance. Critical rules are required;
the others warn. `min_samples` is not applied, since an interval already says how much is known.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ragmeter.alerts.conditions import ConditionValue, condition_holds
from ragmeter.alerts.rules import RULE_PROFILES, AlertRule, RuleError, load_rules
from ragmeter.console.terminal import check_output_path
from ragmeter.core.files import load_yaml, write_atomically
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import JUDGE_SCORER, REFERENCE_SCORER
from ragmeter.metrics.canary.specs import canary_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.report.run import RunSeries
from ragmeter.offline.report.summary import ReportColumn, format_metric_value, metric_title

GateOutcome = Literal["passed", "failed", "not measured", "not checked"]

_MAX_UNSCORED = 0.1  # the threshold of RagUnscoredElevated: more can hide a failure
_MAX_TRACES = 5  # worst traces named by a failed check
_MAX_ID = 80  # characters of a trace id that are shown
_BENEFIT_OF_THE_DOUBT = {"<": "upper", "<=": "upper", ">": "lower", ">=": "lower"}


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of a gate.

    Args:
        name: Profile or file that they come from.
        rules: Rules on a metric or a latency.
        asked: True if each rule must be measured; False leaves out what the file does not measure.
        unanswerable: Rules of a file on what scored traces do not tell.
    """

    name: str
    rules: Sequence[AlertRule]
    asked: bool
    unanswerable: Sequence[AlertRule] = ()


@dataclass(frozen=True, slots=True)
class GateOptions:
    """How a run is gated, and what is written of it.

    Args:
        junit: File for JUnit XML.
    """

    gate: Gate
    junit: Path | None = None

    def check_outputs(self, read: Sequence[Path]) -> None:
        """Check that the output is no file that is read.

        Raises:
            UsageError: It is.
        """
        if self.junit is not None:
            check_output_path("--junit", self.junit, read)

    def run(self, column: ReportColumn) -> GateResult:
        """Check a run, write the file and return the result.

        Raises:
            OSError: The file cannot be written.
        """
        result = check_gate(self.gate, column)
        if self.junit is not None:
            write_atomically(self.junit, render_junit(result))
        return result


@dataclass(frozen=True, slots=True)
class GateCheck:
    """What came of one rule.

    Args:
        required: Whether the gate fails with it.
        text: What was measured, against which threshold.
        traces: Ids of the worst traces, worst first.
    """

    rule: str
    required: bool
    outcome: GateOutcome
    text: str
    traces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GateResult:
    """The checks of a gate; `unused` names rules on metrics that the file has no result of."""

    gate: str
    checks: Sequence[GateCheck]
    unused: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """True if something was checked and every required check passed."""
        done = any(check.outcome in ("passed", "failed") for check in self.checks)
        return done and all(check.outcome == "passed" for check in self.checks if check.required)

    def lines(self) -> list[str]:
        """Return the result as lines for the terminal."""
        lines = []
        for check in self.checks:
            needed = "" if check.required or check.outcome == "passed" else " (warning)"
            worst = f"; worst: {', '.join(check.traces)}" if check.traces else ""
            lines.append(f"{check.outcome:12} {check.rule}{needed}: {check.text}{worst}")
        if self.unused:
            lines.append(f"not in the file, not checked: {', '.join(self.unused)}")
        counted = Counter(check.outcome for check in self.checks)
        summary = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counted.items()))
        state = "passed" if self.passed else "FAILED"
        lines.append(f"gate {self.gate} {state}: {summary or 'nothing was measured'}")
        return lines


def load_gate(wanted: str) -> Gate:
    """Load the gate that a profile or a rules file describes.

    A profile stands for the default rules with its thresholds, and for those of `gate_rules.yaml`.
    A file holds rules in the format of docs/alerts.md; an entry with the name of one of these
    changes that rule.

    Raises:
        RuleError: The file cannot be read, a rule is invalid, or no rule can be checked.
    """
    own = [load_yaml(__package__, "gate_rules.yaml")]
    if wanted in RULE_PROFILES:
        rules = load_rules(profile=wanted, brought=own, metrics=metric_specs())
        asked = False
    else:
        if not Path(wanted).exists():
            profiles = ", ".join(RULE_PROFILES)
            raise RuleError(f"{wanted}: neither a profile ({profiles}) nor a rules file")
        rules = load_rules(wanted, brought=own, metrics=metric_specs())
        defaults = {rule.name: rule for rule in load_rules(brought=own)}
        rules = [rule for rule in rules if defaults.get(rule.name) != rule]
        asked = True
    usable = [rule for rule in rules if _obstacle(rule) is None]
    if not usable:
        raise RuleError(f"{wanted}: no rule has a threshold on a metric or a latency")
    rest = [rule for rule in rules if _obstacle(rule) is not None] if asked else []
    return Gate(bound_label(Path(wanted).name, _MAX_ID), usable, asked, rest)


def _obstacle(rule: AlertRule) -> str | None:
    """Return what a rule asks that a file cannot answer; None for a rule that can be checked."""
    obstacles = {
        "absence of traces": rule.absence,
        "results without a value": rule.unscored is not None,
        "a change against a longer window": rule.relative_to is not None,
        "segments one by one": rule.segment is not None,
    }
    return next((text for text, present in obstacles.items() if present), None)


def check_gate(gate: Gate, column: ReportColumn) -> GateResult:
    """Check a run, with all of its series, against a gate."""
    checks = []
    unused = []
    for rule in gate.rules:
        covered = any(map(rule.covers, column.run.services))
        check_rule = _check_latency if rule.latency else _check_metric
        found = list(check_rule(rule, column)) if covered else []
        checks += found
        if found:
            continue
        if gate.asked:
            text = f"the file has no result of {' by '.join(filter(None, rule.watched))}"
            if not covered:
                text = "the file has no trace of the services of this rule"
            checks.append(_missing(rule, text))
        else:
            unused.append(rule.name)
    for rule in gate.unanswerable:
        text = f"a file cannot answer for {_obstacle(rule)}; the running agent checks this rule"
        checks.append(GateCheck(rule.name, False, "not checked", text))
    return GateResult(gate.name, checks, unused)


def _is_required(rule: AlertRule) -> bool:
    return rule.severity == "critical"


def _check_metric(rule: AlertRule, column: ReportColumn) -> Iterator[GateCheck]:
    """Check a rule on each series of its metric: of traffic, of canaries, of each judge."""
    if rule.metric is None:
        raise RuntimeError("metric is missing")
    # what a reference leaves to a judge is `canary/judge`
    judge = JUDGE_SCORER if rule.scorer == REFERENCE_SCORER else rule.scorer
    scorers = (rule.scorer, canary_scorer(judge))
    found = [s for s in column.series if s.metric == rule.metric and s.scorer in scorers]
    if found and rule.scorer == REFERENCE_SCORER:  # one of the two has what the other leaves
        current = {
            one.scorer: one for one in reversed(found)
        }  # a scorer's current version is first
        found = [max(current.values(), key=lambda one: len(one.scores))]
    versions = Counter(series.scorer for series in found)
    for series in found:
        name = f"{metric_title(rule.metric)} by {series.scorer}"
        if versions[series.scorer] > 1:
            name += f" @{bound_label(series.fingerprint, 12)}"
        yield _check_series(rule, name, series)


def _check_series(rule: AlertRule, name: str, series: RunSeries) -> GateCheck:
    estimate = series.estimate
    if estimate is None:
        counted = ", ".join(f"{n:,} {s.replace('_', ' ')}" for s, n in series.states.items() if n)
        return _missing(rule, f"{name} has no value ({counted})")
    if estimate.unscored > _MAX_UNSCORED:
        share = f"{100 * estimate.unscored:.0f} % of the results have no value"
        return _missing(rule, f"{name}: {share}")
    # of the scored traces alone: what is missing must not excuse what was measured
    plain = series.plain
    ends = (plain.lower, plain.upper) if plain else (estimate.lower, estimate.upper)
    value = _measured(estimate.value, *ends, estimate.samples)
    worst = [bound_label(one.trace_id, _MAX_ID) for one in series.worst[:_MAX_TRACES]]
    return _check_value(rule=rule, name=name, value=value, spec=series.spec, worst=worst)


def _missing(rule: AlertRule, text: str) -> GateCheck:
    return GateCheck(rule.name, _is_required(rule), "not measured", text)


def _check_latency(rule: AlertRule, column: ReportColumn) -> Iterator[GateCheck]:
    if rule.latency is None:
        raise RuntimeError("latency is missing")
    for stage, quantiles in column.latency:
        for one in quantiles:
            if (stage, one.quantile) == (rule.latency.stage, rule.latency.quantile):
                name = f"p{100 * one.quantile:g} of {bound_label(stage, _MAX_ID)} seconds"
                value = _measured(one.value, one.lower, one.upper, one.samples)
                yield _check_value(rule=rule, name=name, value=value, spec=None, worst=())


def _measured(
    value: float, lower: float | None, upper: float | None, samples: int
) -> ConditionValue:
    """Return a value that is tested by its mean; the rule has the threshold."""
    return ConditionValue(
        tested=value, value=value, lower=lower, upper=upper, samples=samples, effective_samples=0.0
    )


def _check_value(
    rule: AlertRule,
    name: str,
    value: ConditionValue,
    spec: MetricSpec | None,
    worst: Sequence[str],
) -> GateCheck:
    def shown(number: float) -> str:
        return f"{number:.3g}" if spec is None else format_metric_value(number, spec)

    text = f"{name} is {shown(value.value)}"
    tested: float | None = getattr(value, _BENEFIT_OF_THE_DOUBT[rule.op])
    if value.lower is not None and value.upper is not None:
        text += f" [{shown(value.lower)}, {shown(value.upper)}]"
    limit = "at least" if rule.op.startswith("<") else "at most"
    text += f" of {value.samples:,} traces, wanted {limit} {shown(rule.threshold)}"
    if tested is None:
        return _missing(rule, f"{text}; too few traces for an interval")
    failed = condition_holds(rule, replace(value, tested=tested))
    if not failed and condition_holds(rule, value):
        text += "; the mean misses it, the interval does not exclude it"
    return GateCheck(
        rule=rule.name,
        required=_is_required(rule),
        outcome="failed" if failed else "passed",
        text=text,
        traces=worst if failed else (),
    )


def render_junit(result: GateResult) -> bytes:
    """Render a result as JUnit XML: a test case for each check; a warning is a skipped one."""
    suite = ElementTree.Element("testsuite", name=f"ragmeter gate {result.gate}")
    failures = skipped = 0
    for check in result.checks:
        case = ElementTree.SubElement(suite, "testcase", classname="ragmeter.gate", name=check.rule)
        if check.outcome == "passed":
            continue
        failures += check.required
        skipped += not check.required
        kind = "failure" if check.required else "skipped"
        element = ElementTree.SubElement(case, kind, message=_printable(check.text))
        element.text = _printable("\n".join(check.traces))
    suite.set("tests", str(len(result.checks)))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skipped))
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _printable(text: str) -> str:
    """Replace what XML 1.0 cannot hold."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
