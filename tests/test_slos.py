from __future__ import annotations

import pytest

from agent.config import ConfigError, Slo, load
from agent.slos import JUDGED_LAG, Event, events, objectives
from agent.trace import Score, ScoredTrace, State, Status
from agent.windows.exact import WEIGHT_ONE


def slo(**keys: object) -> Slo:
    return load(environ={}, overrides={"slos": [{"name": "one", **keys}]}).slos[0]


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
        (event,) = events(scored(status), [slo(bad=bad)])
        assert event == Event("one", WEIGHT_ONE, status in which)


def test_slow_is_over_the_objective_and_untimed_is_nothing() -> None:
    one = slo(bad="slow", seconds=2)
    assert [event.bad for event in events(scored(total=2.0), [one])] == [False]
    assert [event.bad for event in events(scored(total=2.1), [one])] == [True]
    assert events(scored(total=None), [one]) == []


@pytest.mark.parametrize(("bad", "values"), [("low", [0.3]), ("high", [0.7])])
def test_a_score_beyond_the_threshold_is_bad(bad: str, values: list[float]) -> None:
    one = slo(bad=bad, metric="grounding", threshold=0.5)
    for value in (0.3, 0.5, 0.7):
        result = Score("grounding", "builtin", State.SCORED, value)
        (event,) = events(scored("ok", result), [one])
        assert event.bad is (value in values)


def test_a_score_has_a_weight_of_its_own_and_a_status_the_traces() -> None:
    slos = [slo(bad="failed"), slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5)]
    result = Score("grounding", "hhem", State.SCORED, 0.4, probability=0.05)
    found = events(scored("ok", result, probability=0.5), slos)
    assert [event.weight for event in found] == [2 * WEIGHT_ONE, 20 * WEIGHT_ONE]


def test_only_scores_of_the_metric_and_scorer_count() -> None:
    one = slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5)
    others = [
        Score("grounding", "builtin", State.SCORED, 0.1),
        Score("answered", "hhem", State.SCORED, 0.1),
        Score("grounding", "hhem", State.SAMPLED_OUT),
        Score("grounding", "hhem", State.UNSCORED, reason="judge_failed"),
    ]
    assert events(scored("ok", *others), [one]) == []


def test_a_late_result_brings_its_own_event_and_no_second_status() -> None:
    slos = [
        slo(bad="failed"),
        slo(bad="slow", seconds=1),
        slo(bad="low", metric="grounding", scorer="hhem", threshold=0.5),
    ]
    result = Score("grounding", "hhem", State.SCORED, 0.4)
    assert len(events(scored("error"), slos)) == 2
    assert events(scored("error", result, partial=True), slos) == [Event("one", WEIGHT_ONE, True)]


def test_objectives_know_where_their_worst_traces_are_and_when_results_come() -> None:
    failed, slow, cheap, judged = objectives(
        [
            slo(bad="failed"),
            slo(bad="slow", seconds=10, objective=0.95),
            slo(bad="low", metric="grounding", threshold=0.5),
            slo(bad="low", metric="relevance", scorer="umbrela", threshold=1),
        ]
    )
    assert [one.metric for one in failed.evidence] == ["error", "timeout"]
    assert slow.target == 0.95
    assert slow.evidence == (("latency", "total", 10.0, True),)
    assert cheap.evidence == (("grounding", "builtin", 0.5, False),)
    assert [one.lag for one in (failed, slow, cheap, judged)] == [0, 0, 0, JUDGED_LAG]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"metric": "groundig"}, "'groundig' is not known"),
        ({"metric": "helpfulness", "scorer": "human"}, "labels of people come late"),
        ({"metric": "grounding", "scorer": "gpt"}, "'gpt' is not known; allowed: .*builtin"),
    ],
)
def test_what_does_not_exist_is_a_mistake(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        objectives([slo(bad="low", threshold=0.5, **keys)])


@pytest.mark.parametrize(
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
