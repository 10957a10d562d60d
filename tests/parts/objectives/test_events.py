from __future__ import annotations

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.loader import ConfigError
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.contract import section_of
from ragmeter.parts.objectives.events import (
    ObjectiveEvent,
    check_objectives,
    objective_events,
)
from ragmeter.parts.objectives.settings import ObjectivesSettings, SloSettings
from ragmeter.trace import Status

from tests.tables import each_row


def slo(**keys: object) -> SloSettings:
    settings = load_settings(environ={}, overrides={"slos": [{"name": "one", **keys}]})
    return section_of(settings, ObjectivesSettings).slos[0]


def scored(
    status: Status = "ok",
    *results: Score,
    total: float | None = 1.0,
    probability: float = 1.0,
    partial: bool = False,
) -> ScoredTrace:
    timings = {} if total is None else {"total": total}
    return ScoredTrace(
        "t", "bot", 0.0, status, list(results), probability, timings, partial=partial
    )


@pytest.mark.parametrize(
    ("bad", "which"),
    [
        ("failed", {"error", "timeout"}),
        ("error", {"error"}),
        ("timeout", {"timeout"}),
    ],
)
def test_a_status_is_bad_for_the_objectives_it_breaks(bad: str, which: set[str]) -> None:
    for status in ("ok", "error", "timeout"):
        (event,) = objective_events(scored(status), [slo(bad=bad)])
        assert event == ObjectiveEvent("one", WEIGHT_ONE, status in which)


def test_slow_is_over_the_objective_and_untimed_is_nothing() -> None:
    one = slo(bad="slow", seconds=2)
    assert [event.bad for event in objective_events(scored(total=2.0), [one])] == [False]
    assert [event.bad for event in objective_events(scored(total=2.1), [one])] == [True]
    assert objective_events(scored(total=None), [one]) == []


@pytest.mark.parametrize(("bad", "values"), [("low", [0.3]), ("high", [0.7])])
def test_a_score_beyond_the_threshold_is_bad(bad: str, values: list[float]) -> None:
    one = slo(bad=bad, metric="grounding", threshold=0.5)
    for value in (0.3, 0.5, 0.7):
        result = Score("grounding", "builtin", ScoreState.SCORED, value)
        (event,) = objective_events(scored("ok", result), [one])
        assert event.bad is (value in values)


def test_a_score_has_a_weight_of_its_own_and_a_status_the_traces() -> None:
    slos = [slo(bad="failed"), slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5)]
    result = Score("grounding", "hhem", ScoreState.SCORED, 0.4, probability=0.05)
    found = objective_events(scored("ok", result, probability=0.5), slos)
    assert [event.weight for event in found] == [2 * WEIGHT_ONE, 20 * WEIGHT_ONE]


def test_only_scores_of_the_metric_and_scorer_count() -> None:
    one = slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5)
    others = [
        Score("grounding", "builtin", ScoreState.SCORED, 0.1),
        Score("answered", "hhem", ScoreState.SCORED, 0.1),
        Score("grounding", "hhem", ScoreState.SAMPLED_OUT),
        Score("grounding", "hhem", ScoreState.UNSCORED, reason="judge_failed"),
    ]
    assert objective_events(scored("ok", *others), [one]) == []


def test_a_late_result_brings_its_own_event_and_no_second_status() -> None:
    slos = [
        slo(bad="failed"),
        slo(bad="slow", seconds=1),
        slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5),
    ]
    result = Score("grounding", "hhem", ScoreState.SCORED, 0.4)
    assert len(objective_events(scored("error"), slos)) == 2
    assert objective_events(scored("error", result, partial=True), slos) == [
        ObjectiveEvent("one", WEIGHT_ONE, True)
    ]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"metric": "groundig"}, "'groundig' is not known"),
        ({"metric": "helpfulness", "scorer": "human"}, "labels of people come late"),
        ({"metric": "grounding", "scorer": "people"}, "labels of people come late"),
        ({"metric": "grounding", "scorer": "gpt"}, "'gpt' is not known; allowed: .*builtin"),
    ],
)
def test_what_does_not_exist_is_a_mistake(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_objectives([slo(bad="low", threshold=0.5, **keys)])


@each_row(
    ("keys", "words"),
    [
        ({"bad": "low"}, "`low` needs `metric` and `threshold`"),
        ({"bad": "high", "metric": "grounding"}, "`high` needs"),
        ({"bad": "failed", "metric": "grounding"}, "`failed` takes no"),
        ({"bad": "failed", "objective": 1}, "less than 1"),
        ({"bad": "broken"}, "'failed', 'error'"),
    ],
)
def test_settings_that_make_no_sense_name_themselves(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        slo(**keys)
