"""An incident opens, gets worse and is over: a message each, and no all-clear before it is over."""

from __future__ import annotations

import random
import re

import pytest
from ragmeter.parts.incidents.lifecycle import runbook_of

from tests.exporters.alerts import make
from tests.parts.incidents.stage import Stage

CALM = 120  # minutes


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.run(CALM)
    return made


def test_an_incident_has_one_message_when_it_opens_and_one_when_it_is_over(stage: Stage) -> None:
    stage.run(6, refused=0.4)
    stage.fire()
    stage.run(30, refused=0.4)
    assert stage.notified() == [(CALM + 7, "page", "open", "refusals")]
    stage.run(10)
    stage.resolve()
    stage.run(40)
    opened, over = stage.messages
    assert over[1].state == "over"
    assert CALM + 36 + 14 <= over[0] <= CALM + 36 + 20, "it was back for 15 minutes"
    assert opened[1].id == over[1].id
    assert stage.states() in ([], ["over"])


def test_since_is_when_the_number_moved_not_when_the_rule_became_true(stage: Stage) -> None:
    stage.run(12, refused=0.5)
    stage.fire(since=stage.now, window="1h")
    stage.run(1, refused=0.5)
    ((_, opened),) = stage.messages
    assert abs(opened.since - stage.now + 13 * 60) <= 180


def test_a_rule_that_ends_while_the_number_is_off_is_no_all_clear(stage: Stage) -> None:
    """The bad hour enters the day that the rule compares with: it ended at .76, usual .95."""
    stage.run(6, refused=0.3)
    stage.fire()
    stage.run(5, refused=0.3)
    stage.resolve()
    stage.run(120, refused=0.3)
    assert [state for _, _, state, _ in stage.notified()] == ["open"]
    assert stage.states() == ["open"]
    stage.run(30)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over"]


def test_an_outage_that_lasts_is_not_over_though_every_rule_has_ended(stage: Stage) -> None:
    """A total outage of retrieval: .544 answered, and the rule resolved at +48 minutes."""
    stage.run(6, refused=0.55)
    stage.fire()
    stage.run(42, refused=0.55)
    stage.resolve()
    stage.run(300, refused=0.55)
    assert [state for _, _, state, _ in stage.notified()] == ["open"], "not after hours either"
    assert stage.states() == ["open"]


def test_what_comes_back_before_its_signal_has_ended_is_told_again(stage: Stage) -> None:
    """A detector holds on for longer than the number is off: it must not be deaf meanwhile."""
    stage.run(6, refused=0.5)
    stage.fire()
    stage.run(24, refused=0.5)
    stage.run(40)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over"]
    stage.run(30, refused=0.4)
    (_, first), _, (again, second) = stage.messages
    assert (second.state, second.severity, second.id) == ("open", "page", first.id)
    assert second.worsened_at is not None
    assert CALM + 70 < again <= CALM + 90
    stage.run(10)
    stage.resolve()
    stage.run(30)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over", "open", "over"]


def test_a_small_fault_is_not_over_by_luck(stage: Stage) -> None:
    """A quarter of an hour of 3 % has no failure now and then."""
    stage.run(10, errors=0.035)
    stage.fire(rule="Errors", metric="error", severity="warning", value=0.035, baseline=0.0)
    stage.run(60, errors=0.035)
    stage.run(15)
    assert [state for _, _, state, _ in stage.notified()] == ["open"]
    assert stage.states() == ["open"]
    stage.run(240)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over"]


def test_no_traffic_is_a_state_of_its_own_and_no_all_clear(stage: Stage) -> None:
    stage.run(6, refused=0.5)
    stage.fire()
    stage.run(10, refused=0.5)
    stage.alerts["AnsweredLow"].no_data = True
    stage.run(20, requests=0)
    assert stage.states() == ["no traffic"]
    stage.resolve(reason="no data, so not known to be over")
    stage.run(30, requests=0)
    assert stage.states() == ["no traffic"]
    assert "No traffic now" in stage.book.incidents()[0].summary
    stage.run(20, refused=0.5)
    assert stage.states() == ["open"]
    stage.run(40)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over"]


def test_what_is_silent_for_a_day_is_closed_as_not_known_to_be_over(stage: Stage) -> None:
    stage.run(6, refused=0.5)
    stage.fire()
    stage.run(5, refused=0.5)
    stage.skip(15)
    stage.skip(25 * 60)
    (_, opened), (_, closed) = stage.messages
    assert closed.state == "no traffic"
    assert closed.ended_at is not None
    assert not closed.over
    assert "not known to be over" in closed.title
    assert opened.id == closed.id


def test_what_is_no_longer_measured_is_not_over(stage: Stage) -> None:
    """The judge of a metric that only the rule reads is gone, and requests go on."""
    stage.fire(rule="MyRule", metric="my_metric", scorer="mine", severity="critical")
    stage.run(5)
    stage.resolve("MyRule", "no data, so not known to be over")
    stage.run(60)
    assert stage.states() == ["not measured"]
    assert [state for _, _, state, _ in stage.notified()] == ["open"]


def test_a_rule_that_is_taken_out_closes_its_incident_without_an_all_clear(stage: Stage) -> None:
    stage.fire(rule="MyRule", metric="my_metric", scorer="mine", severity="critical")
    stage.run(5)
    stage.resolve("MyRule", "the rule is no longer in force")
    stage.run(5)
    closed = stage.messages[-1][1]
    assert (closed.state, closed.over) == ("not measured", False)
    assert closed.ended_at is not None


def test_it_gets_worse_when_a_warning_becomes_a_page(stage: Stage) -> None:
    stage.run(10, errors=0.04)
    stage.fire(rule="Errors", metric="error", severity="warning", value=0.04, baseline=0.0)
    stage.run(20, errors=0.04)
    assert stage.notified() == [(CALM + 16, "warning", "open", "errors")]
    stage.run(30, errors=0.3)
    stage.fire(rule="More", metric="error", severity="critical", value=0.3, baseline=0.0)
    stage.run(30, errors=0.3)
    assert [severity for _, severity, _, _ in stage.notified()] == ["warning", "page"]


def test_it_gets_worse_when_the_level_is_half_as_far_again(stage: Stage) -> None:
    stage.run(10, refused=0.25)
    stage.fire()
    stage.run(60, refused=0.25)
    stage.run(40, refused=0.6)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "open"]
    second, worse = stage.messages[-1]
    assert worse.worsened_at is not None
    assert CALM + 70 < second <= CALM + 100
    stage.run(60, refused=0.6)
    assert len(stage.messages) == 2, "notified once"


def test_a_warning_that_passes_within_its_wait_is_no_news(stage: Stage) -> None:
    stage.fire(rule="Errors", metric="error", severity="warning", value=0.04, baseline=0.0)
    stage.run(2)
    stage.resolve("Errors")
    stage.run(30)
    assert stage.messages == []


def test_signals_of_one_onset_are_one_incident_and_a_later_onset_is_another(stage: Stage) -> None:
    stage.run(6, errors=0.5, refused=0.4)
    stage.fire(rule="ErrorsHigh", metric="error", value=0.5, baseline=0.0)
    stage.run(2, errors=0.5, refused=0.4)
    stage.fire()
    stage.run(5, errors=0.5, refused=0.4)
    stage.fire(rule="Slow", metric="latency", severity="warning", labels={"stage": "total"})
    stage.run(20, errors=0.5, refused=0.4)
    (only,) = stage.book.incidents()
    assert {alert.rule for alert in only.signals} == {
        "ErrorsHigh",
        "AnsweredLow",
        "Slow",
    }
    assert only.kind == "errors"
    stage.run(60, errors=0.5, refused=0.05)
    stage.fire(rule="Mine", metric="my_metric", scorer="mine", severity="critical")
    stage.fire(rule="Cost", metric="cost_usd", severity="warning", window="5m", value=2.0)
    stage.run(10, errors=0.5)
    assert len(stage.book.incidents()) == 3


GOAL = {
    "rule": "RagGoalMissed",
    "statistic": "goal",
    "question": "answered",
    "metric": "answered",
    "op": "<",
    "threshold": 0.9,
    "value": 0.78,
    "lower": 0.74,
    "upper": 0.82,
    "baseline": None,
    "window": "24h",
}


def test_the_kinds_of_failure_add_up_to_the_share_of_the_title(stage: Stage) -> None:
    def fail(errors: int, timeouts: int) -> None:
        stage.ask(10 - errors - timeouts)
        stage.ask(errors, scores={"error": 1.0})
        stage.ask(timeouts, scores={"timeout": 1.0})
        stage.minute += 1
        stage.look()

    for _ in range(6):
        fail(2, 1)
    stage.fire(rule="ErrorsHigh", metric="error", severity="critical", baseline=0.0)
    shown = set()
    for minute in range(40):  # between two searches for the cause it gets worse
        fail(2, 1) if minute < 12 else fail(4, 3)
        (incident,) = stage.book.incidents()
        if incident.kind == "failures":
            (whole,) = re.findall(r"(\d+) % of requests fail", incident.title)
            errors, timeouts = re.findall(r"(?:rrors|imeouts) (\d+) %", incident.summary)
            assert abs(int(errors) + int(timeouts) - int(whole)) <= 1, "rounded"
            shown.add(whole)
    assert len(shown) > 3


def test_a_missed_goal_pages_says_both_numbers_and_ends_when_it_is_met(stage: Stage) -> None:
    stage.run(120, refused=0.22)
    stage.fire(**GOAL)
    stage.run(30, refused=0.22)
    (_, notified) = stage.messages[0]
    assert (notified.severity, notified.kind, notified.question) == ("page", "refusals", "answered")
    assert notified.title == "bot: 22 % of questions are refused"
    assert notified.summary.startswith("Answered 78 % (74-82), goal 90 % since ")
    assert "Goal missed: answered at least 90 %, is 78 % over 24h." in notified.detail
    assert notified.detail[-1] == "Ends when the goal has not been missed beyond doubt for 15 min."
    assert len(stage.messages) == 1
    stage.resolve("RagGoalMissed")
    stage.run(5)
    assert [state for _, _, state, _ in stage.notified()] == ["open", "over"]


def test_a_goal_is_evidence_where_the_question_is_away_from_its_usual(stage: Stage) -> None:
    """It raises the warning to a page, and holds it no longer than the number is away."""
    stage.run(120)
    stage.run(10, refused=0.12)
    stage.fire(rule="RagDrift", severity="warning", value=0.88)
    stage.run(10, refused=0.12)
    stage.fire(**GOAL)
    stage.run(30, refused=0.12)
    (only,) = stage.book.incidents()
    assert [(severity, state) for _, severity, state, _ in stage.notified()] == [
        ("warning", "open"),
        ("page", "open"),
    ]
    assert [one.rule for one in only.signals] == ["RagDrift", "RagGoalMissed"]
    assert any(line.startswith("Goal missed: answered at least 90 %") for line in only.detail)
    stage.run(60)
    stage.resolve("RagDrift")
    stage.run(20)
    assert stage.states() == ["over"], "though the goal of a day is still missed"
    stage.run(60)
    assert len(stage.messages) == 3, "and it opens no other"


def test_a_change_within_ten_minutes_is_named_and_one_hours_before_is_not() -> None:
    stage = Stage()
    stage.run(CALM, tags={"prompt_version": "v11", "model": "a"})
    stage.run(120, tags={"prompt_version": "v12", "model": "a"})
    stage.run(8, refused=0.5, tags={"prompt_version": "v12", "model": "b"})
    stage.fire()
    stage.run(10, refused=0.5, tags={"prompt_version": "v12", "model": "b"})
    ((_, opened),) = stage.messages
    change = stage.book.incidents()[0].change
    assert change is not None
    assert (change.tag, change.value) == ("model", "b")
    assert abs(change.at - opened.since) <= 600
    calm = Stage()
    calm.run(CALM, tags={"prompt_version": "v11"})
    calm.run(120, tags={"prompt_version": "v12"})
    calm.run(8, refused=0.5, tags={"prompt_version": "v12"})
    calm.fire()
    calm.run(10, refused=0.5, tags={"prompt_version": "v12"})
    assert calm.book.incidents()[0].change is None


def test_no_more_answers_are_hurt_than_the_segment_has() -> None:
    """Swapped answers fall further than bad ones usually do: the detector takes 4 of 10 for 6."""
    stage = Stage()

    def minutes(count: int, new: float) -> None:
        for _ in range(count):
            stage.ask(6, tags={"model": "v1"}, scores={"grounding": 0.62})
            stage.ask(4, tags={"model": "v2" if new else "v1"}, scores={"grounding": new or 0.62})
            stage.run(1, requests=0)

    minutes(CALM, 0.0)
    begun = stage.now
    minutes(8, 0.04)
    stage.fire_drift(
        begun - 240,
        begun - 600,
        begun + 60,
        metric="grounding",
        value=0.39,
        baseline=0.62,
        harm=0.58,
    )
    minutes(2, 0.04)
    (_, notified) = stage.messages[0]
    assert (notified.segment, notified.severity) == ("model=v2", "page")
    assert notified.harm == pytest.approx(0.4)
    assert any(
        line.startswith("Effect: up to 40 % of all answers are hurt") for line in notified.detail
    )
    assert notified.since == begun, (
        "when the new model came, which the interval of the onset allows"
    )
    assert notified.summary.startswith(
        "Support by passages 62 -> 4 of 100 since 02:00 UTC, for model v2"
    )
    assert notified.summary.count("model v2") == 1


def test_a_tenant_whose_answers_cost_more_is_named_in_the_title() -> None:
    """As one that waits or fails is on the scripted day."""
    stage = Stage()

    def minutes(count: int, cost: float) -> None:
        for _ in range(count):
            stage.ask(7, tags={"tenant": "acme"}, scores={"cost_usd": 0.001})
            stage.ask(3, tags={"tenant": "globex"}, scores={"cost_usd": cost})
            stage.run(1, requests=0)

    minutes(CALM, 0.001)
    begun = stage.now
    minutes(10, 0.004)
    stage.fire_drift(
        begun,
        begun - 120,
        begun + 120,
        severity="warning",
        metric="cost_usd",
        value=0.0019,
        baseline=0.001,
    )
    minutes(10, 0.004)
    (_, notified) = stage.messages[0]
    assert notified.title == "bot: cost per answer is 4.0 times as high for tenant globex"
    assert "for tenant globex (30 % of requests). Others as usual." in notified.summary


def test_the_share_of_a_segment_that_a_rule_watches_is_said(stage: Stage) -> None:
    for _ in range(8):
        stage.ask(3, errors=1.0, tags={"tenant": "a"})
        stage.run(1, requests=7, tags={"tenant": "b"})
    stage.fire(rule="Errors", metric="error", value=1.0, baseline=0.0, segment="tenant=a")
    stage.run(1)
    assert "for tenant a (" in stage.messages[0][1].summary
    assert "(0 % of requests)" not in stage.messages[0][1].summary


def play(seed: int, *, restarts: bool) -> list[tuple[int, str, str, str]]:
    rng = random.Random(seed)
    stage = Stage(restarts=restarts)
    stage.run(120)
    for _ in range(12):
        event = rng.choice(["fire", "resolve", "errors", "silence", "bad", "calm"])
        if event == "fire":
            stage.fire(severity=rng.choice(["critical", "warning"]))
        elif event == "errors":
            stage.fire(rule="Errors", metric="error", severity="warning", value=0.1, baseline=0.0)
        elif event == "resolve" and stage.alerts:
            stage.resolve(rng.choice(sorted(stage.alerts)), rng.choice(["", "no data"]))
        if event == "silence":
            stage.run(rng.choice([5, 30]), requests=0)
        else:
            bad = event == "bad"
            stage.run(rng.choice([3, 12, 40]), refused=0.5 if bad else 0.05)
    return stage.notified()


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_at_every_step_changes_no_message(seed: int) -> None:
    notified = play(seed, restarts=False)
    assert play(seed, restarts=True) == notified


def test_the_runbook_is_that_of_what_users_suffer_unless_the_rule_has_its_own() -> None:
    base = "https://wiki.example/runbooks"
    drift = make(rule="RagDrift", runbook=f"{base}/drift.md")
    assert runbook_of("same_passages", drift) == f"{base}/retrieval.md"
    assert runbook_of("rule", drift) == f"{base}/drift.md"
    assert runbook_of("errors", make(runbook="https://own.example/e")) == "https://own.example/e"
    assert runbook_of("errors", make(runbook="")) == ""
