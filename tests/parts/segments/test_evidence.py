"""What alerts bring along, over the real windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule, UnscoredCondition, load_rules
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter.parts.segments.worse import explain_worse
from ragmeter.windows.windows import Windows

from tests.parts.incidents.fakes import restarted, rule
from tests.tables import each_row
from tests.windows.helpers import BASE, SPECS

HOUR = 3600.0


def trace(
    number: int, at: float, results: Iterable[Score] = (), seconds: float | None = None
) -> ScoredTrace:
    timings = {} if seconds is None else {"total": seconds}
    return ScoredTrace(f"t{number}", "bot", BASE + at, "ok", list(results), timings=timings)


def error(bad: bool) -> Score:
    return Score("error", "builtin", ScoreState.SCORED, float(bad))


def judged(number: int, value: float) -> Score:
    return Score("grounding", "judge@new", ScoreState.SCORED, value)


def failed(reason: str = "judge_timeout") -> Score:
    return Score("grounding", "judge", ScoreState.UNSCORED, None, reason)


def drive(
    made: Sequence[AlertRule],
    traces: Iterable[tuple[ScoredTrace, Sequence[str]]],
    until: float,
    restart: bool = False,
    step: float = 60.0,
) -> tuple[list[Alert], AlertEngine]:
    current = {("grounding", "judge"): "judge@new"}
    windows = Windows(specs=SPECS, worst_of=["model"], current=current)
    engine = AlertEngine(made, explain=explain_worse)
    moved: list[Alert] = []
    due = BASE + step

    def evaluate(now: float) -> None:
        nonlocal due, engine
        while due <= now:
            windows.advance(due)
            moved.extend(engine.evaluate(windows, due))
            if restart:
                engine = restarted(engine, AlertEngine(made, explain=explain_worse))
            due += step

    for one, segments in traces:
        evaluate(one.timestamp)
        windows.add(one, "bot", segments)
    evaluate(BASE + until)
    return moved, engine


def outage(bad: str = "model=b") -> Iterable[tuple[ScoredTrace, Sequence[str]]]:
    """Every 4 s a trace, by two models and two tenants in turn; 2 % of errors; after two hours
    all of one segment fail."""
    for i in range(2250):
        at = i * 4.0
        tags = [f"model={'ab'[i % 2]}", f"tenant={'xy'[i // 2 % 2]}"]
        fails = i % 50 == 0 or (at >= 2 * HOUR and bad in tags)
        yield trace(i, at, [error(fails)], 9.0 if fails else 1.0 + i % 10 / 10), tags


@pytest.mark.parametrize("bad", ["model=b", "tenant=x"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_threshold_says_what_it_was_before_and_where_it_moved(bad: str, restart: bool) -> None:
    moved, _ = drive([rule(**{"for": "2m"})], outage(bad), 2.5 * HOUR, restart=restart)
    (alert,) = moved
    assert alert.baseline == pytest.approx(0.02, abs=0.002)
    assert alert.top_segment == bad
    assert f"{bad} changed more than the others, 0" in alert.top_segment_words
    assert len(set(alert.worst)) == 5
    assert alert.fingerprint == ""
    assert alert.since == pytest.approx(BASE + 2 * HOUR + 60, abs=61)


def test_the_baseline_stays_while_the_trouble_fills_every_window() -> None:
    _, engine = drive([rule()], outage(), 2.5 * HOUR)
    (alert,) = engine.alerts()
    assert alert.value is not None
    assert alert.value > 0.4
    assert alert.baseline == pytest.approx(0.02, abs=0.002)


def test_where_nothing_was_before_the_worst_segment_is_named_and_only_beyond_chance() -> None:
    traces = [
        (trace(i, i, [error(i % 2 == 0)]), [f"model={'ab'[i % 2]}", f"tenant={'xyz'[i % 3]}"])
        for i in range(200)
    ]
    (alert,), _ = drive([rule()], traces, 240, step=240)
    assert alert.baseline is None
    assert alert.top_segment == "model=a"
    assert "model=a is at 1, the rest at 0" in alert.top_segment_words
    alike = [(one, [name for name in tags if "tenant" in name]) for one, tags in traces]
    (alert,), _ = drive([rule()], alike, 240, step=240)
    assert (alert.top_segment, alert.top_segment_words) == ("", "")


def test_all_segments_that_move_alike_name_none() -> None:
    def all_fail() -> Iterable[tuple[ScoredTrace, Sequence[str]]]:
        for i in range(2250):
            fails = i % 50 == 0 or (i * 4.0 >= 2 * HOUR and i // 4 % 2 == 0)
            yield trace(i, i * 4.0, [error(fails)]), [f"model={'ab'[i % 2]}"]

    alert = drive([rule(**{"for": "5m"})], all_fail(), 2.2 * HOUR)[0][0]
    # 37 traces of each: too few to say that they moved alike
    assert (alert.top_segment, alert.top_segment_words) == ("", "")


def test_an_alert_on_a_segment_names_its_own_traces() -> None:
    moved, _ = drive([rule(segment="model")], outage(), 2.5 * HOUR)
    (alert,) = moved
    assert (alert.segment, alert.top_segment) == ("model=b", "model=b")
    assert alert.baseline == pytest.approx(0.0, abs=0.001)  # each 50th trace is model a's
    assert alert.worst
    assert all(int(name[1:]) % 2 == 1 for name in alert.worst)


def test_latency_says_what_it_was_before_and_where() -> None:
    made = rule(latency={"stage": "total", "quantile": 0.95}, op=">", threshold=5)
    (fired,), engine = drive([made], outage(), 2.5 * HOUR)
    (alert,) = engine.alerts()
    assert fired.top_segment == "", "three slow traces name no segment"
    assert fired.baseline == alert.baseline == pytest.approx(1.9, rel=0.02)
    assert alert.top_segment == "model=b"
    assert all(int(name[1:]) % 2 == 1 or int(name[1:]) % 50 == 0 for name in alert.worst)


def test_silence_says_how_many_traces_are_usual() -> None:
    made = rule(absence=True, window="5m", min_samples=100)
    traces = [(trace(i, i * 20.0), ()) for i in range(360)]  # two hours: 15 in five minutes
    (alert,), _ = drive([made], traces, 2.5 * HOUR)
    assert alert.baseline == pytest.approx(360 * 300 / 86400)
    assert alert.worst == []


def judge_fails(
    share: float, reason: str = "judge_timeout", state: ScoreState = ScoreState.UNSCORED
) -> Iterable[tuple[ScoredTrace, Sequence[str]]]:
    """A judged trace every 20 s for four hours; in the second hour this share of them fails, all
    of one model where it is at most a half."""
    bad = 0
    for i in range(720):
        at = i * 20.0
        fails = HOUR <= at < 2 * HOUR and i % 10 < share * 10
        score = failed(reason) if fails else judged(i, 0.9)
        if fails:
            score.state = state
            bad += 1
        yield trace(i, at, [score]), [f"model={'ab'[i % 10 < 5]}"]


UNSCORED = [one for one in load_rules() if one.unscored is not None]


@pytest.mark.parametrize("restart", [False, True])
def test_failed_results_fire_and_resolve(restart: bool) -> None:
    moved, _ = drive(UNSCORED, judge_fails(0.5), 4 * HOUR, restart=restart)
    notified = [(a.rule, a.state, round((a.updated_at - BASE) / 60)) for a in moved]
    by_rule = {name: [x[1:] for x in notified if x[0] == name] for name in {x[0] for x in notified}}
    # an hour's window: a tenth is reached (for certain) within some 20 minutes, a quarter within
    # some 40; both are over an hour after the end, and stay for a quarter of an hour
    (fired, at), (resolved, until) = by_rule["RagUnscoredElevated"]
    assert (fired, resolved) == ("firing", "resolved")
    assert 60 + 10 < at < 60 + 35
    assert 120 + 30 < until < 120 + 60 + 15
    (fired, high), (resolved, over) = by_rule["RagUnscoredHigh"]
    assert at < high < 60 + 60
    assert 120 < over < until
    alert = moved[0]
    assert (alert.metric, alert.scorer, alert.segment) == ("grounding", "judge", "")
    assert alert.unscored is not None
    assert list(alert.unscored) == ["judge_timeout"]
    assert alert.baseline == 0.0
    assert alert.fingerprint == "new"
    assert alert.top_segment == "model=b"
    assert "most often judge_timeout" in alert.summary
    assert alert.effective_samples == alert.samples > 20
    for name in alert.worst:
        number = int(name[1:])
        assert number % 10 < 5
        assert 180 <= number < 360
    assert len(alert.worst) == 5


@each_row(
    ("reason", "state"),
    [
        ("no_text", ScoreState.UNSCORED),
        ("no_passages_captured", ScoreState.UNSCORED),
        ("not_reported", ScoreState.UNSCORED),
        ("judge_error", ScoreState.NOT_APPLICABLE),
        ("judge_error", ScoreState.SAMPLED_OUT),
        ("judge_error", ScoreState.SHED),
    ],
)
def test_what_did_not_fail_is_no_failure(reason: str, state: ScoreState) -> None:
    moved, engine = drive(UNSCORED, judge_fails(1.0, reason, state), 4 * HOUR)
    assert moved == engine.alerts() == []


def test_each_metric_and_scorer_has_an_alert_of_its_own() -> None:
    def both() -> Iterable[tuple[ScoredTrace, Sequence[str]]]:
        for i in range(360):
            results = [
                failed(),
                Score("relevance", "umbrela", ScoreState.UNSCORED, None, "unparsable"),
            ]
            yield trace(i, i * 20.0, results), ()

    moved, engine = drive(UNSCORED, both(), 2 * HOUR)
    assert {(a.rule, a.metric, a.scorer) for a in moved} == {
        (rule_, metric, scorer)
        for rule_ in ("RagUnscoredHigh", "RagUnscoredElevated")
        for metric, scorer in (("grounding", "judge"), ("relevance", "umbrela"))
    }
    assert len({a.id for a in engine.alerts()}) == 4
    globs = UnscoredCondition(metric="rel*", scorer="umb*")
    only = [UNSCORED[0].model_copy(update={"unscored": globs})]
    moved, _ = drive(only, both(), 2 * HOUR)
    assert {(a.metric, a.scorer) for a in moved} == {("relevance", "umbrela")}


def test_few_results_are_no_data() -> None:
    traces = [(trace(i, i * 300.0, [failed()]), ()) for i in range(24)]  # 12 an hour
    moved, _ = drive(UNSCORED, traces, 2 * HOUR)
    assert moved == []
