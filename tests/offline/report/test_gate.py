from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest
from ragmeter.alerts.rules import RuleError
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.offline.report.gate import (
    GateResult,
    check_gate,
    load_gate,
    render_junit,
)
from ragmeter.offline.report.run import ScoredRun
from ragmeter.offline.report.summary import ReportColumn, build_report

from tests.crash import RAGMETER
from tests.waiting import PATIENCE


def scored_trace(trace_id: str, results: list[Score]) -> ScoredTrace:
    return ScoredTrace(trace_id, "bot", 1e9, "ok", results)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*RAGMETER, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def column(values: Sequence[float | None], metric: str = "faithfulness") -> ReportColumn:
    """A run with a judged score a trace; None is a trace that the judge failed on."""
    run = ScoredRun("run")
    for number, value in enumerate(values):
        state = ScoreState.UNSCORED if value is None else ScoreState.SCORED
        reason = "judge_timeout" if value is None else None
        score = Score(metric, "judge", state, value, reason)
        run.add(scored_trace(f"t{number}", [score]), None)
    return build_report([run], paired_by="trace_id").columns[0]


def rules_file(folder: Path, **changes: object) -> str:
    rule = {
        "name": "Faithful",
        "severity": "critical",
        "metric": "faithfulness",
        "scorer": "judge",
        "op": "<",
        "threshold": 0.8,
        "window": "1h",
        "min_samples": 20,
        **changes,
    }
    path = folder / "gate.yaml"
    path.write_text(json.dumps({"rules": [rule]}))
    return str(path)


def check(folder: Path, values: Sequence[float | None], **changes: object) -> GateResult:
    return check_gate(load_gate(rules_file(folder, **changes)), column(values))


def test_a_gate_fails_on_what_chance_does_not_explain(tmp_path: Path) -> None:
    assert check(tmp_path, [1.0] * 100).passed
    failed = check(tmp_path, [1.0, 0.0] * 50)
    assert not failed.passed
    (one,) = failed.checks
    assert one.outcome == "failed"
    assert one.text.startswith("faithfulness by judge is 0.500 [")
    assert len(one.traces) == 5
    assert {int(name[1:]) % 2 for name in one.traces} == {1}  # those that scored 0


def test_few_questions_do_not_fail_by_their_mean(tmp_path: Path) -> None:
    few = [1.0] * 7 + [0.0] * 3
    lenient = check(tmp_path, few)
    assert lenient.passed
    assert lenient.checks[0].text.endswith("the mean misses it, the interval does not exclude it")


def test_what_is_asked_for_and_has_no_value_does_not_pass(tmp_path: Path) -> None:
    unscored = check(tmp_path, [None] * 10)
    assert not unscored.passed
    assert unscored.checks[0].text == "faithfulness by judge has no value (10 unscored)"
    absent = check(tmp_path, [1.0] * 100, metric="groundedness")
    assert not absent.passed
    assert absent.checks[0].text == "the file has no result of groundedness by judge"


def test_results_without_a_value_do_not_excuse_the_others(tmp_path: Path) -> None:
    many = check(tmp_path, [1.0] * 80 + [None] * 20)
    assert not many.passed
    assert many.checks[0].text == "faithfulness by judge: 20 % of the results have no value"
    # by the bounds of everything the missing results could have been, the upper end is .84
    assert not check(tmp_path, [0.75] * 91 + [None] * 9).passed
    assert check(tmp_path, [1.0] * 95 + [None] * 5).passed


def test_a_warning_does_not_fail_the_gate(tmp_path: Path) -> None:
    result = check(tmp_path, [0.0] * 100, severity="warning")
    assert result.passed
    assert result.lines()[0].startswith("failed       Faithful (warning): ")
    assert result.lines()[-1] == "gate gate.yaml passed: 1 failed"


def test_a_profile_checks_what_the_file_measures_and_names_the_rest() -> None:
    result = check_gate(load_gate("balanced"), column([0.0] * 100))
    assert [check.rule for check in result.checks] == ["RagFaithfulnessLow"]
    assert not result.passed
    assert "RagGroundednessLow" in result.unused
    assert check_gate(load_gate("quiet"), column([0.84] * 100)).passed
    assert not check_gate(load_gate("sensitive"), column([0.84] * 100)).passed
    assert not check_gate(load_gate("balanced"), column([0.5], "claims")).passed


def test_rules_of_a_file_change_the_default_of_their_name(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text("rules: [{name: RagFaithfulnessLow, threshold: 0.2}]")
    gate = load_gate(str(path))
    assert [(rule.name, rule.threshold) for rule in gate.rules] == [("RagFaithfulnessLow", 0.2)]
    path.write_text("rules: [{name: Silent, severity: warning, absence: true, window: 1h}]")
    with pytest.raises(RuleError, match="no rule has a threshold on a metric or a latency"):
        load_gate(str(path))


def test_rules_that_a_file_cannot_answer_are_named_as_not_checked(tmp_path: Path) -> None:
    usable = json.loads(Path(rules_file(tmp_path)).read_text())["rules"]
    asking = {"op": "<", "threshold": 0.5, "window": "1h", "severity": "critical"}
    path = tmp_path / "gate.yaml"
    path.write_text(
        json.dumps(
            {
                "rules": [
                    *usable,
                    {"name": "Silent", "severity": "critical", "absence": True, "window": "1h"},
                    {"name": "Tenants", "metric": "error", "segment": "tenant", **asking},
                    {
                        "name": "Lower",
                        "metric": "error",
                        "statistic": "lower",
                        "relative_to": "24h",
                        **asking,
                    },
                    {"name": "Failing", "unscored": {}, **asking},
                ]
            }
        )
    )
    result = check_gate(load_gate(str(path)), column([1.0] * 100))
    assert result.passed  # warnings: the thresholds on what was measured hold
    assert [(one.rule, one.outcome) for one in result.checks] == [
        ("Faithful", "passed"),
        *((name, "not checked") for name in ("Silent", "Tenants", "Lower", "Failing")),
    ]
    assert result.lines()[1] == (
        "not checked  Silent (warning): a file cannot answer for absence of traces; the running"
        " agent checks this rule"
    )
    assert result.lines()[-1] == "gate gate.yaml passed: 4 not checked, 1 passed"
    assert ElementTree.fromstring(render_junit(result)).get("skipped") == "4"


def test_a_rule_on_other_services_is_not_measured(tmp_path: Path) -> None:
    result = check(tmp_path, [1.0] * 100, services=["shop-*"])
    assert not result.passed
    assert result.checks[0].text == "the file has no trace of the services of this rule"
    assert check(tmp_path, [1.0] * 100, services=["shop-*", "b*"]).passed


def test_each_judge_and_the_canaries_are_checked_apart(tmp_path: Path) -> None:
    run = ScoredRun("run")
    for number in range(120):
        old = number < 60
        scores = [
            Score(
                "faithfulness",
                "judge",
                ScoreState.SCORED,
                0.1 if old else 1.0,
                fingerprint="old" if old else "new",
            ),
            Score("faithfulness", "canary/judge", ScoreState.SCORED, 1.0),
        ]
        run.add(scored_trace(f"t{number}", scores), None)
    shown = build_report([run], paired_by="trace_id").columns[0]
    result = check_gate(load_gate(rules_file(tmp_path)), shown)
    assert {(one.text.partition(" is ")[0], one.outcome) for one in result.checks} == {
        ("faithfulness by judge @new", "passed"),
        ("faithfulness by judge @old", "failed"),
        ("faithfulness by canary/judge", "passed"),
    }
    assert not result.passed


def test_junit_survives_hostile_ids(tmp_path: Path) -> None:
    run = ScoredRun("run")
    for number in range(50):
        score = Score("faithfulness", "judge", ScoreState.SCORED, 0.0)
        run.add(scored_trace(f"<b>|`\x1b[31m\u202e{number}", [score]), None)
    shown = build_report([run], paired_by="trace_id").columns[0]
    result = check_gate(load_gate(rules_file(tmp_path)), shown)
    suite = ElementTree.fromstring(render_junit(result))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("1", "1", "0")
    assert suite.find("testcase/failure") is not None


@pytest.mark.slow
def test_the_command_exits_by_the_gate(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    rows = [
        {"trace_id": f"t{n}", "service": "s", "timestamp": n, "status": "error" if n % 2 else "ok"}
        for n in range(60)
    ]
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = tmp_path / "scores.jsonl"
    assert run_command("score", str(traces), "-o", str(scores)).returncode == 0
    junit = tmp_path / "gate.xml"
    failed = run_command("report", str(scores), "--gate", "balanced", "--junit", str(junit))
    assert failed.returncode == 1
    assert "failed       RunErrors: error by builtin is 50.0 %" in failed.stderr
    assert "; worst: t" in failed.stderr
    assert "gate balanced FAILED" in failed.stderr
    assert ElementTree.parse(junit).getroot().get("failures") in ("1", "2")
    calm = rules_file(tmp_path, metric="error", scorer="builtin", op=">", threshold=0.9)
    assert run_command("report", str(scores), "--gate", calm).returncode == 0
    before = scores.read_bytes()
    for read in (scores, Path(calm)):
        refused = run_command("report", str(scores), "--gate", calm, "--junit", str(read))
        assert refused.returncode == 2
        assert "is what is read" in refused.stderr
    assert scores.read_bytes() == before
    wrong = run_command("report", str(scores), "--gate", "strict")
    assert wrong.returncode == 2
    assert "strict" in wrong.stderr
    assert run_command("report", str(scores), "--junit", str(junit)).returncode == 2


@pytest.mark.parametrize("judged", [0, 1, 19, 20])
def test_a_rule_on_the_reference_checks_what_it_leaves_to_the_judge(
    tmp_path: Path, judged: int
) -> None:
    """Whoever has scored more: the other one has those that the judge failed on."""
    run = ScoredRun("run")
    for number in range(20):
        by_judge = number < judged
        own = Score("abstention_accuracy", "reference", ScoreState.NOT_APPLICABLE, None, "judged")
        other = Score("abstention_accuracy", "canary/judge", ScoreState.SCORED, 1.0)
        if not by_judge:
            own = Score("abstention_accuracy", "reference", ScoreState.SCORED, 0.0)
            other.state = ScoreState.UNSCORED
            other.value = None
            other.reason = "judge_timeout"
        run.add(scored_trace(f"t{number}", [own, other]), None)
    column = build_report([run], paired_by="trace_id").columns[0]
    rule = {"metric": "abstention_accuracy", "scorer": "reference", "threshold": 0.5}
    (found,) = check_gate(load_gate(rules_file(tmp_path, **rule)), column).checks
    assert (found.outcome == "passed") == (judged > 10)


def test_a_mistyped_profile_is_told_which_there_are() -> None:
    with pytest.raises(RuleError, match=r"balenced: neither a profile \(sensitive, balanced"):
        load_gate("balenced")
