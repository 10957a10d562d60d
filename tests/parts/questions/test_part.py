"""The part as its contract has it, and what it says of a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import PARTS
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.answer_texts import format_source_change
from ragmeter.parts.questions.catalogue import QUESTIONS
from ragmeter.parts.questions.part import QuestionsPart
from ragmeter_exporters.families import part_families

from tests.exporters.fakes import alert
from tests.parts.questions.samples import HOUR, START, Questions, request, scored


def stream(
    number: int, *, start: float = START, seconds: float = HOUR, **changes: object
) -> Iterator[ScoredTrace]:
    for at in range(number):
        yield request(int(start) + at, start + at * seconds / number, **changes)


def judged(number: int, at: float, value: float | None, **changes: object) -> ScoredTrace:
    """A request that the judge drew at .1: `value` is the share of supported claims."""
    cheap = 0.56 + number % 21 / 100
    state = ScoreState.UNSCORED if value is None else ScoreState.SCORED
    verdict = Score(
        "faithfulness",
        "judge",
        state,
        value,
        probability=0.1,
        stratum="rest:3",
        cheap=cheap,
    )
    return request(number, at, results=[verdict], **changes)


def half_judged(number: int, failing: int = 0) -> Iterator[ScoredTrace]:
    """`number` requests of an hour, of which the judge drew each tenth and finds 80 % grounded."""
    for at in range(number):
        when = START + at * HOUR / number
        if at % 10:
            out = Score("faithfulness", "judge", ScoreState.SAMPLED_OUT, stratum="rest:3")
            yield request(at, when, results=[out])
        elif at // 10 < failing:
            yield judged(at, when, None)
        else:
            yield judged(at, when, 0.5 if at % 50 == 0 else 1.0)


def test_it_is_listed() -> None:
    assert QuestionsPart in PARTS


def test_its_samples_have_the_labels_that_it_declares() -> None:
    questions = Questions(segments=["model"], goals={"grounded": 0.9})
    questions.apply(stream(200, seconds=5 * HOUR, tags={"model": "m"}))
    questions.apply(half_judged_later())
    families = {family.name: family for family in part_families((QuestionsPart,))}
    questions.answers()
    for name, labels, value in questions.aggregator.parts.samples():
        assert families[name].labels == tuple(label for label, _ in labels)
        assert isinstance(value, float)


def half_judged_later() -> Iterator[ScoredTrace]:
    for trace in half_judged(400):
        yield trace._replace(
            timestamp=trace.timestamp + 5 * HOUR, trace_id=f"later {trace.trace_id}"
        )


def test_its_rows_restore_it() -> None:
    questions = Questions(segments=["model"])
    questions.apply(half_judged(400))
    before = dict(questions.answers())
    again = questions.again()
    after = dict(again.answers())
    assert before.pop("fast") != after.pop("fast")  # times are in the windows, which have own rows
    assert after == before
    assert before["grounded"].level is not None
    assert again.aggregator.parts.changes() == ({}, [])


def test_what_it_says_does_not_depend_on_how_the_traces_are_divided() -> None:
    one, other = Questions(), Questions()
    traces = list(half_judged(400))
    one.apply(traces, run=1)
    other.apply(traces, run=len(traces))
    assert one.answers() == other.answers()
    assert one.aggregator.parts.changes() == other.aggregator.parts.changes()


def test_rows_that_make_no_sense_are_refused() -> None:
    questions = Questions()
    questions.apply(stream(20))
    questions.aggregator.settle()
    rows, _ = questions.aggregator.parts.changes()
    name = next(name for name in rows if "traffic" in name)
    broken = {name: {**rows[name], "moments": [1e9, 1.0]}}
    with pytest.raises(ValueError, match="make no sense"):
        Questions().aggregator.parts.restore(broken)


def test_every_question_is_answered_in_order() -> None:
    questions = Questions()
    questions.apply(stream(20))
    assert list(questions.answers()) == [question.name for question in QUESTIONS]
    assert questions.answers("nobody") == {}


def test_errors_timeouts_and_empty_answers_do_not_work() -> None:
    questions = Questions()
    questions.apply(stream(85))
    failing = [
        request(1001, START + HOUR - 9, status="error"),
        request(1002, START + HOUR - 9, status="timeout"),
        request(1003, START + HOUR - 9, results=[scored("empty_answer", 1.0)]),
    ]
    questions.apply(failing)
    works = questions.answers()["works"]
    assert works.level is not None
    assert works.level.value == pytest.approx(85 / 88)
    assert works.source == "every request"
    assert works.level.lower < works.level.value < (works.level.upper or 0)


def test_a_cheap_score_has_a_movement_and_never_a_level() -> None:
    questions = Questions()
    questions.apply(stream(600, seconds=6 * HOUR))
    worse = [
        trace._replace(results=[scored("grounding", 0.2), *trace.results[2:]])
        for trace in stream(100, start=START + 6 * HOUR)
    ]
    questions.apply(worse)
    for name in ("grounded", "retrieved", "cited"):
        assert questions.answers()[name].level is None
    grounded = questions.answers()["grounded"]
    assert grounded.movement is not None
    assert grounded.movement.change == pytest.approx(-46, abs=2)
    assert grounded.state == "moved"
    assert "no level" in grounded.note
    gauges = {name for name, *_ in questions.aggregator.parts.samples()}
    assert "rag_grounded_ratio" not in gauges
    assert "rag_grounded_change_points" in gauges


def asked_over_and_over(number: int, fall: float, *, start: float) -> Iterator[ScoredTrace]:
    """Requests of forty questions without a tenant, each of which has a level of its own."""
    for trace in stream(number, start=start, seconds=number / 120 * HOUR):
        at = int(trace.trace_id.removeprefix("t-"))
        cheap = 0.3 + 0.015 * (at % 40) + at % 7 / 100 - fall
        question = f"q{at % 40}"
        yield trace._replace(
            results=[scored("grounding", cheap)], cluster=question, tenant=question
        )


@pytest.mark.parametrize(("fall", "state"), [(0.2, "moved"), (0.0, "good")])
def test_questions_asked_over_and_over_tell_a_movement(fall: float, state: str) -> None:
    """What each question is like at all times tells of the level, and says nothing of a change."""
    questions = Questions()
    questions.apply(asked_over_and_over(720, 0.0, start=START))
    questions.apply(asked_over_and_over(120, fall, start=START + 6 * HOUR))
    grounded = questions.answers()["grounded"]
    assert grounded.movement is not None
    assert grounded.movement.change == pytest.approx(-100 * fall, abs=2)
    assert grounded.movement.lower <= -100 * fall <= grounded.movement.upper
    assert grounded.movement.upper - grounded.movement.lower < 20
    assert grounded.state == state


def test_a_movement_that_cannot_be_is_not_told() -> None:
    """The built-in rules find fewer refusals than usual where the judge has never found one."""
    questions = Questions()
    for trace in stream(700, seconds=7 * HOUR):
        refused = trace.timestamp < START + 6 * HOUR and int(trace.trace_id[2:]) % 5 == 0
        verdict = replace(scored("answered", 1.0, "judge"), probability=0.5, stratum="rest:1")
        questions.apply(
            [trace._replace(results=[scored("answered", 0.0 if refused else 1.0), verdict])]
        )
    answered = questions.answers()["answered"]
    assert answered.level is not None
    assert (answered.level.source, answered.usual, answered.movement) == ("judge", 1.0, None)


def test_the_refusals_that_rules_find_are_a_level() -> None:
    questions = Questions()
    questions.apply(stream(100))
    answered = questions.answers()["answered"]
    assert answered.level is not None
    assert answered.level.source == "builtin"


def test_a_judge_gives_the_level_with_its_interval() -> None:
    questions = Questions()
    questions.apply(half_judged(2000))
    grounded = questions.answers()["grounded"]
    level = grounded.level
    assert level is not None
    assert level.upper is not None
    assert level.value == pytest.approx(0.8, abs=0.03)
    assert level.samples == 200
    assert level.upper - level.lower < 0.15
    assert grounded.source == "200 verdicts of the judge"


def test_what_a_judge_could_not_judge_widens_the_interval_and_is_no_zero() -> None:
    whole, failing = Questions(), Questions()
    whole.apply(half_judged(2000))
    failing.apply(half_judged(2000, failing=40))
    one, other = whole.answers()["grounded"].level, failing.answers()["grounded"].level
    assert one is not None
    assert other is not None
    assert other.value == pytest.approx(one.value, abs=0.05)
    assert other.lower < one.lower - 0.1
    assert other.samples == 160


def test_nothing_is_printed_of_fewer_than_five_independent_values() -> None:
    questions = Questions()
    questions.apply(stream(4))
    answers = questions.answers()
    assert all(answers[name].level is None for name in ("works", "answered", "grounded"))
    assert answers["works"].state == "not enough"


def test_sessions_widen_the_interval() -> None:
    alone, together = Questions(), Questions()
    bad = [trace._replace(status="error") if at % 60 < 6 else trace for at, trace in hour()]
    alone.apply(bad)
    together.apply(
        trace._replace(cluster=f"s{at // 6}", tenant=f"s{at // 6}") for at, trace in enumerate(bad)
    )
    one, other = alone.answers()["works"].level, together.answers()["works"].level
    assert one is not None
    assert other is not None
    assert other.value == one.value
    assert other.worth < one.worth
    assert other.lower < one.lower


def hour() -> Iterator[tuple[int, ScoredTrace]]:
    return enumerate(stream(240))


def test_a_missed_goal_is_bad_only_beyond_doubt() -> None:
    questions = Questions(goals={"answered": 0.95, "works": 0.5})
    refusals = [
        trace._replace(results=[scored("answered", float(at % 10 > 0)), *trace.results[1:]])
        for at, trace in hour()
    ]
    questions.apply(refusals[:30])
    assert questions.answers()["answered"].state == "good"
    questions = Questions(goals={"answered": 0.95})
    questions.apply(refusals)
    assert questions.answers()["answered"].state == "bad"
    assert questions.answers()["answered"].goal == 0.95
    assert questions.answers()["fast"].goal == 10.0


@pytest.mark.parametrize(
    ("goals", "notified"),
    [
        ({"grounding": 0.9}, "'grounding' is no question: one of works"),
        ({"grounded": 1.5}, "grounded: a number above 0 and below 1"),
        ({"fast": 0}, "fast: a number above 0"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(goals: dict[str, float], notified: str) -> None:
    with pytest.raises(ValidationError, match=notified):
        Questions(goals=goals)


def firing(since: float, **changes: Any) -> Alert:
    base = alert(service="bot", metric="error", severity="critical")
    return replace(base, since=since, **changes)


def test_the_usual_is_frozen_at_the_onset_of_an_incident() -> None:
    questions = Questions()
    questions.apply(stream(400, seconds=8 * HOUR))
    onset = START + 8 * HOUR
    questions.part.hear([firing(onset)], onset)
    broken = stream(200, start=onset, seconds=4 * HOUR, status="error")
    questions.apply(broken)
    works = questions.answers()["works"]
    assert works.usual == 1.0
    assert works.state == "bad"
    questions.part.hear([firing(onset, state="resolved")], onset + 4 * HOUR)
    questions.apply([request(9_999, onset + 4 * HOUR + 60)])
    usual = questions.answers()["works"].usual
    assert usual is not None
    assert usual < 0.9


def test_the_source_of_a_number_changes_at_most_once_a_day() -> None:
    questions = Questions()
    questions.apply(half_judged(2000))
    assert questions.answers()["grounded"].level is not None

    def labelled(at: float) -> Iterator[ScoredTrace]:
        for number in range(400):
            label = scored("grounding", 1.0, "people", probability=0.5, stratum="people")
            yield request(number, at + number, results=[label], trace_id=f"l-{at}-{number}")

    questions.apply(labelled(START + HOUR))
    level = questions.answers()["grounded"].level
    assert level is not None
    assert level.source == "labels"
    # the first choice was mended; now a day passes first
    questions.apply(half_judged_at(START + 3 * HOUR))
    level = questions.answers()["grounded"].level
    assert level is not None
    assert level.source == "labels"


def labelled_day(start: float) -> Iterator[ScoredTrace]:
    for number in range(400):
        label = scored("grounding", 1.0, "people", probability=0.5, stratum="people")
        at = start + number * HOUR / 400
        yield request(number, at, results=[label], trace_id=f"day {start} {number}")


def test_a_source_that_switches_is_a_mark_and_its_first_choice_is_none() -> None:
    questions = Questions()
    questions.apply(half_judged(2000))
    questions.apply(half_judged_at(START + 20 * HOUR))
    questions.answers()
    assert questions.part.source_changes("bot") == []
    at = START + 30 * HOUR
    questions.apply(labelled_day(at))
    questions.answers()
    (change,) = questions.part.source_changes("bot")
    assert (change.question, change.source, change.before) == ("grounded", "labels", "judge")
    assert at < change.at <= at + HOUR
    assert format_source_change(change) == "measured by labels instead of the judge"
    rows, _ = questions.aggregator.parts.changes()
    again = Questions()
    again.aggregator.parts.restore(rows)
    assert again.part.source_changes("bot") == [change]


def test_a_source_that_is_mended_in_the_first_hour_is_no_switch() -> None:
    questions = Questions()
    questions.apply(half_judged(2000))
    questions.apply(labelled_day(START + 0.2 * HOUR))
    level = questions.answers()["grounded"].level
    assert level is not None
    assert level.source == "labels"
    assert questions.part.source_changes("bot") == []


def test_since_when_samples_are_complete_is_saved_with_the_samples() -> None:
    questions = Questions()
    questions.part._samples._limit = 100
    questions.apply(half_judged(400))
    questions.answers()
    questions.aggregator.parts.changes()
    # the next choice of sources is minutes away: only samples change, and some are dropped
    held = [judged(20_000 + number, START + HOUR - 5, 1.0) for number in range(120)]
    questions.apply(held)
    questions.aggregator.settle()
    rows, _ = questions.aggregator.parts.changes()
    complete = questions.part._samples.complete_from("bot")
    assert complete > START
    assert rows['questions/["complete", "bot"]'] == {"complete_from": complete}
    assert questions.aggregator.parts.changes() == ({}, [])
    questions.part.retain(())
    assert 'questions/["complete", "bot"]' in questions.aggregator.parts.changes()[1]


def half_judged_at(start: float) -> Iterator[ScoredTrace]:
    for trace in half_judged(2000):
        yield trace._replace(
            timestamp=trace.timestamp - START + start, trace_id=f"{start} {trace.trace_id}"
        )


def test_two_versions_of_a_judge_are_never_averaged() -> None:
    questions = Questions()
    traces = [
        trace._replace(
            results=[
                replace(score, fingerprint="new" if at >= 1000 else "old")
                if score.scorer == "judge" and score.state is ScoreState.SCORED
                else score
                for score in trace.results
            ]
        )
        for at, trace in enumerate(half_judged(2000))
    ]
    questions.apply(traces)
    assert questions.answers()["grounded"].level is None


def test_a_new_prompt_is_a_change_and_a_new_tenant_is_none() -> None:
    questions = Questions(segments=["prompt_version", "tenant"])
    old = {"prompt_version": "v12", "tenant": "a"}
    new = {"prompt_version": "v13", "tenant": "b"}
    questions.apply(stream(100, seconds=4 * HOUR, tags=old))
    at = START + 4 * HOUR
    questions.apply(stream(100, start=at, tags=new, status="error"))
    questions.answers()
    (change,) = questions.part.tag_changes("bot")
    assert (change.tag, change.value) == ("prompt_version", "v13")
    assert change.at == pytest.approx(at, abs=60)
    rows = {answer.question: (a, b) for answer, a, b in questions.part.before_and_after("bot", at)}
    before, after = rows["works"]
    assert before is not None
    assert after is not None
    assert before.value == 1.0
    assert after.value < 0.1


def test_a_segment_that_is_worse_is_marked() -> None:
    questions = Questions(segments=["tenant"])
    for at, trace in hour():
        tenant = "b" if at % 4 == 0 else "a"
        failed = tenant == "b" and at % 8 == 0
        questions.apply(
            [trace._replace(tags={"tenant": tenant}, status="error" if failed else "ok")]
        )
    questions.answers()
    found = {(one.segment, one.question): one for one in questions.part.segment_answers("bot")}
    assert found["tenant=b", "works"].moved
    assert not found["tenant=a", "works"].moved
    assert found["tenant=b", "works"].level.value == pytest.approx(0.5)


def test_good_events_are_counted_for_slo_tools() -> None:
    questions = Questions()
    questions.apply(stream(40))
    questions.apply([request(777, START + HOUR, status="error", timings={"total": 30.0})])
    questions.aggregator.settle()
    counted = dict(questions.aggregator.counters.items())

    def of(name: str, question: str) -> float:
        return counted[name, (("service", "bot"), ("question", question))]

    assert of("rag_question_events_total", "works") == 41
    assert of("rag_question_good_total", "works") == 40
    assert of("rag_question_good_total", "fast") == 40


def test_a_service_that_left_every_window_is_forgotten() -> None:
    questions = Questions(segments=["model"])
    questions.apply(half_judged(400))
    questions.aggregator.settle()
    rows, _ = questions.aggregator.parts.changes()
    questions.part.retain([])
    _, deleted = questions.aggregator.parts.changes()
    assert set(deleted) == set(rows)
    assert questions.answers() == {}
    assert all(json.loads(name.partition("/")[2])[1] == "bot" for name in deleted)
