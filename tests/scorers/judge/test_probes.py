from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.judge_agreement import PROBE_SERVICE, extract_verdicts
from ragmeter.metrics.registry import metric_families
from ragmeter.scorers.judge.probes import (
    RETRY_SECONDS,
    ProbeRunner,
    load_probes,
    probe_settings,
    read_probes,
)
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.scorers.llm.questions import JudgeQuestion
from ragmeter.trace import Trace
from ragmeter.windows.windows import Windows

from benchmarks.probes import probability_above, sizes, verdicts_of
from tests.scorers.judge.fakes import FakeJudge, family
from tests.tables import each_row
from tests.traces import START

SETTINGS = JudgeSettings.model_validate({"metrics": ["relevance", "answered", "citations"]})
NAMES = ["judge_probe_agreement", "judge_probe_change"]


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


def runner(
    judge: FakeJudge, clock: Callable[[], float], instrument: str = "prompts", hours: float = 24
) -> ProbeRunner:
    return ProbeRunner(
        JudgeTier(judge, SETTINGS),
        load_probes(),
        hours=hours,
        instrument=instrument,
        clock=clock,
    )


def run(probes: ProbeRunner, cost: ScoringCost | None = None) -> list[ScoredTrace]:
    return asyncio.run(probes.run(cost if cost is not None else ScoringCost()))


def mean(traces: list[ScoredTrace], metric: str) -> float:
    scores = [score for trace in traces for score in trace.results if score.metric == metric]
    values = [score.value for score in scores if score.value is not None]
    assert len(values) == len(scores), {score.reason for score in scores}
    return sum(values) / len(values)


def only(traces: list[ScoredTrace], metric: str) -> set[tuple[ScoreState, str | None]]:
    scores = [score for trace in traces for score in trace.results if score.metric == metric]
    return {(score.state, score.reason) for score in scores}


# The set ------------------------------------------------------------------------------------------


def test_every_label_of_the_set_is_about_something_that_is_asked() -> None:
    judge = FakeJudge()
    tier = JudgeTier(judge, SETTINGS)
    labels = 0
    for probe in load_probes().probes:
        given = extract_verdicts(asyncio.run(tier.score(probe.trace, ScoringCost())))
        assert set(probe.expected) <= set(given), probe.trace.trace_id
        assert len(given) == verdicts_of(probe.trace)
        labels += len(probe.expected)
    assert labels >= 120
    assert len(load_probes().probes) >= 30


def test_no_lazy_judge_agrees_with_the_set() -> None:
    """One that always says the same: the labels are spread over all there are."""
    for grade in "03":
        for support in ("full", "none"):
            for attempt in ("answered", "none"):
                replies = {"umbrela": grade, "citation-support": support, "attempted": attempt}
                traces = run(runner(FakeJudge(replies), Clock()))
                assert mean(traces, "judge_probe_agreement") < 0.8


def perfect(question: JudgeQuestion[Any]) -> str:
    """What the labels say, found by the texts of the question."""
    for probe in load_probes().probes:
        if (probe.trace.query or "") in question.user:
            for index, passage in enumerate(probe.trace.passages or []):
                if (passage.text or "") in question.user:
                    return str(probe.expected.get(f"grade:{index}", 1))
    raise AssertionError(question.user)


def test_a_judge_that_grades_as_labelled_agrees_on_grades() -> None:
    traces = run(runner(FakeJudge({"umbrela": perfect}), Clock()))
    differing = [key for trace in traces for key in (trace.results[0].detail or {})["differ"]]
    assert [key for key in differing if key.startswith("grade:")] == []
    assert differing  # it says full and answered to everything


def one_probe(expected: dict[str, Any]) -> str:
    passages = [{"id": "p", "text": "t"}]
    line = {"id": "a", "query": "q", "passages": passages, "answer": "x", "expected": expected}
    return json.dumps(line)


@each_row(
    ("line", "message"),
    [
        ("{", "line 1"),
        ('{"id": "a"}', "line 1 of the probes: query"),
        (one_probe({"attempt": "?"}), "is not one of"),
        (one_probe({"mood": "full"}), "mood"),
        ("", "empty"),
    ],
)
def test_a_mistake_in_a_file_of_probes_is_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_probes(f"{line}\n".encode())


def test_a_changed_file_has_another_version() -> None:
    one = one_probe({"grade:0": 0}) + "\n"
    found = read_probes(f"{one}\n".encode())
    assert len(found.probes) == 1
    assert found.version != load_probes().version
    with pytest.raises(ValueError, match="twice"):
        read_probes((one * 2).encode())


# Runs ---------------------------------------------------------------------------------------------


def test_the_first_run_is_the_baseline_of_the_next() -> None:
    clock = Clock()
    cost = ScoringCost()
    probes = runner(FakeJudge(), clock)
    first = run(probes, cost)
    assert cost.requests == sum(sizes())
    assert only(first, "judge_probe_change") == {(ScoreState.NOT_APPLICABLE, "first_run")}
    assert 0 < mean(first, "judge_probe_agreement") < 1
    assert all(trace.service == PROBE_SERVICE for trace in first)
    assert [(s.metric, s.scorer) for s in first[0].results] == [(name, "judge") for name in NAMES]
    clock.now += 24 * 3600
    second = run(probes)
    assert mean(second, "judge_probe_change") == 0.0
    assert {t.trace_id for t in first}.isdisjoint(t.trace_id for t in second)


def test_a_judge_that_changes_its_mind_is_seen() -> None:
    judge = FakeJudge()
    clock = Clock()
    probes = runner(judge, clock)
    run(probes)
    judge.replies = {"umbrela": "1"}
    later = run(probes)
    assert mean(later, "judge_probe_change") > 0.4
    detail = later[0].results[1].detail
    assert detail is not None
    assert detail["differ"] == {"grade:0": [2, 1], "grade:1": [2, 1]}
    # the baseline stays that of the first run: a change does not wear off
    assert mean(run(probes), "judge_probe_change") > 0.4


def test_another_served_model_with_the_same_verdicts_is_no_drift() -> None:
    judge = FakeJudge()
    clock = Clock()
    probes = runner(judge, clock)
    run(probes)
    judge.fingerprints = dict.fromkeys(("umbrela", "attempted", "citation-support"), "e" * 12)
    assert mean(run(probes), "judge_probe_change") == 0.0


def test_a_failed_call_is_unscored_with_its_reason_and_no_change() -> None:
    judge = FakeJudge()
    clock = Clock()
    probes = runner(judge, clock)
    run(probes)
    judge.fails = lambda question: "judge_timeout"
    failed = run(probes)
    for metric in NAMES:
        assert only(failed, metric) == {(ScoreState.UNSCORED, "judge_timeout")}
    assert not probes.due
    clock.now += RETRY_SECONDS
    assert probes.due  # and not a day later
    judge.fails = lambda question: "x" if family(question) == "umbrela" else None
    assert mean(run(probes), "judge_probe_change") == 0.0


def test_what_failed_in_the_first_run_gets_its_baseline_later() -> None:
    judge = FakeJudge()
    clock = Clock()
    judge.fails = lambda question: "x" if family(question) == "umbrela" else None
    probes = runner(judge, clock)
    run(probes)
    judge.fails = lambda question: None
    run(probes)
    judge.replies = {"umbrela": "0"}
    assert mean(run(probes), "judge_probe_change") > 0.4


def test_a_judge_that_breaks_leaves_a_reason() -> None:
    class Broken(JudgeTier):
        async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
            raise RuntimeError("broken")

    tier = Broken(FakeJudge(), SETTINGS)
    probes = ProbeRunner(tier, load_probes(), hours=24, instrument="", clock=Clock())
    assert only(run(probes), NAMES[0]) == {(ScoreState.UNSCORED, "internal_error")}


def test_the_schedule_and_the_baseline_survive_a_restart() -> None:
    judge = FakeJudge()
    clock = Clock()
    probes = runner(judge, clock)
    assert probes.due
    run(probes)
    assert not probes.due
    state = json.loads(json.dumps(probes.dump()))
    again = runner(judge, clock)
    again.load(state)
    assert not again.due
    clock.now += 24 * 3600
    assert again.due
    assert mean(run(again), "judge_probe_change") == 0.0
    other = runner(judge, clock, instrument="other prompts")
    other.load(state)
    assert other.due
    assert only(run(other), "judge_probe_change") == {(ScoreState.NOT_APPLICABLE, "first_run")}


def test_a_clock_that_was_wrong_puts_no_run_off_for_years() -> None:
    clock = Clock()
    clock.now += 10 * 365 * 86400
    probes = runner(FakeJudge(), clock)
    run(probes)
    clock.now = START
    again = runner(FakeJudge(), clock)
    again.load(probes.dump())
    clock.now += 24 * 3600
    assert again.due


def test_windows_take_probes_like_any_service() -> None:
    clock = Clock()
    windows = Windows(
        ["24h"], specs={spec.name: spec for spec in metric_families()["judge_agreement"]}
    )
    for trace in run(runner(FakeJudge(), clock)):
        windows.add(trace, trace.service)
    found = windows.estimate(PROBE_SERVICE, "", "judge_probe_agreement", "judge", "24h")
    assert found is not None
    assert found.samples == len(load_probes().probes)


def test_probes_need_something_comparable_to_ask() -> None:
    base = {"base_url": "https://one.example/v1", "model": "one"}
    found = probe_settings(JudgeSettings.model_validate(base))
    assert found is not None
    assert found.metrics == ["relevance", "answered", "citations"]
    assert probe_settings(JudgeSettings.model_validate({**base, "metrics": ["nuggets"]})) is None
    assert (
        probe_settings(JudgeSettings.model_validate({**base, "probes": {"enabled": False}})) is None
    )


def test_the_alarm_is_quiet_at_one_per_cent_and_sure_at_ten() -> None:
    counts = sizes()
    assert probability_above(0.05, 0.01, counts) < 0.005
    assert probability_above(0.05, 0.10, counts) > 0.95
    # against the plain binomial: of one probe with five verdicts
    assert probability_above(0.3, 0.1, [5]) == pytest.approx(
        1 - 0.9**5 - 5 * 0.1 * 0.9**4, rel=1e-9
    )
