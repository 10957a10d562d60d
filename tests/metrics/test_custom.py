from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.core.feedback import RESERVED_SCORERS
from ragmeter.core.score import NoScore, Score, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_cheap
from ragmeter.metrics.canary.scores import reference_pairs, score_canary
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.custom import (
    CANARY_CUSTOM_SCORER,
    CUSTOM_SCORER,
    CustomMetric,
    metric,
)
from ragmeter.metrics.registry import custom_metrics, metric_specs
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import CANARY, Trace
from ragmeter_exporters.families import all_families

from tests.metrics.help import trace
from tests.tables import each_row

Install = Callable[[CustomMetric], None]

SPEC: dict[str, Any] = {
    "name": "shouting",
    "kind": "mean",
    "meaning": "share of capitals",
    "formula": "capitals / letters",
    "needs": "answer text",
    "source": "we",
}


def own(value: Any, **changes: Any) -> CustomMetric:
    """A metric that always gives `value`; an exception is raised."""

    @metric(**{**SPEC, **changes})
    def formula(trace: Trace) -> float | NoScore:
        if isinstance(value, BaseException):
            raise value
        return value  # type: ignore[no-any-return]

    return formula


def score(value: Any, **changes: Any) -> tuple[ScoreState, float | None, str | None]:
    found = own(value, **changes).score(trace())
    return found.state, found.value, found.reason


@each_row("value", [0, 1, True, 0.25, Fraction(1, 4)])
def test_any_number_in_the_range_is_a_value(value: Any) -> None:
    assert score(value) == (ScoreState.SCORED, float(value), None)


@each_row(
    "value",
    [float("nan"), float("inf"), -0.1, 1.1, None, "0.5", [0.5], 1j, NoScore],
    ids=repr,
)
def test_what_is_no_value_is_unscored_and_never_0(value: Any) -> None:
    assert score(value) == (ScoreState.UNSCORED, None, "bad_value")


def test_a_ratio_is_0_or_1() -> None:
    assert score(0.5, kind="ratio") == (ScoreState.UNSCORED, None, "bad_value")
    assert score(1.0, kind="ratio") == (ScoreState.SCORED, 1.0, None)


def test_without_an_upper_bound_there_is_still_one_of_sense() -> None:
    assert score(1e14, high=None) == (ScoreState.SCORED, 1e14, None)
    assert score(1e16, high=None) == (ScoreState.UNSCORED, None, "bad_value")


def test_gaps_say_why_and_their_reasons_are_bounded() -> None:
    assert score(NoScore("no_text")) == (ScoreState.UNSCORED, None, "no_text")
    assert score(NoScore("error", applies=False)) == (ScoreState.NOT_APPLICABLE, None, "error")
    for reason in ("", "With spaces", "x" * 41, 'a"b', None, "ä"):
        assert score(NoScore(reason)) == (ScoreState.UNSCORED, None, "other")  # type: ignore[arg-type]
    numbers = iter(range(100))

    @metric(**SPEC)
    def formula(trace: Trace) -> float | NoScore:
        return NoScore(f"reason_{next(numbers)}")

    reasons = [formula.score(trace()).reason for _ in range(20)]
    assert len(set(reasons)) == 17
    assert reasons[16:] == ["other"] * 4


@pytest.mark.parametrize("error", [RuntimeError("x"), RecursionError(), SystemExit(3)], ids=repr)
def test_one_that_raises_leaves_the_others_alone(
    error: BaseException, install_metric: Install, caplog: pytest.LogCaptureFixture
) -> None:
    before = score_cheap(PreparedTrace(trace()))
    install_metric(own(error, name="broken"))
    install_metric(own(0.5))
    after = score_cheap(PreparedTrace(trace()))
    assert after[: len(before)] == before
    assert after[len(before) :] == [
        Score("broken", CUSTOM_SCORER, ScoreState.UNSCORED, None, "internal_error", 1.0),
        Score("shouting", CUSTOM_SCORER, ScoreState.SCORED, 0.5, None, 1.0),
    ]
    assert "metric broken failed on trace 't'" in caplog.text
    score_cheap(PreparedTrace(trace()))
    assert caplog.text.count("metric broken failed") == 1, "once by kind of error"


def test_what_is_hidden_is_not_seen(install_metric: Install) -> None:
    @metric(**SPEC)
    def formula(trace: Trace) -> float | NoScore:
        return NoScore("no_text") if trace.answer is None else 1.0

    install_metric(formula)
    hidden = trace(missing={"answer": "content_hidden"})
    found = score_cheap(PreparedTrace(hidden))[-1]
    assert (found.state, found.reason) == (ScoreState.UNSCORED, "content_hidden")


def test_it_is_in_the_registry_and_has_its_gauges(install_metric: Install) -> None:
    mine = own(0.5)
    install_metric(mine)
    assert metric_specs()["shouting"] is mine.spec
    assert custom_metrics() == [mine]
    names = {family.name for family in all_families(PARTS)}
    assert {"rag_shouting_mean", "rag_shouting_ci_lower", "rag_shouting_unscored_ratio"} <= names


def test_a_name_is_given_once(install_metric: Install) -> None:
    install_metric(own(0.5))
    for name in ("shouting", "grounding"):
        with pytest.raises(ValueError, match=f"there is a metric '{name}' already"):
            install_metric(own(0.1, name=name))
    assert metric_specs()["grounding"].scorers != (CUSTOM_SCORER,)


@each_row(
    ("changes", "why"),
    [
        *(({"name": name}, "a name has words") for name in ("", "A", "a b", "a__b", "_a", "a-b")),
        *(({"name": name}, "a name has words") for name in ("a" * 61, "a:5", "größe", None)),
        *(({"name": name}, "taken") for name in ("x_total", "mine_at_k", "index_no_chunk")),
        ({"kind": "sum"}, "`kind` is mean or ratio"),
        ({"good": "up"}, "`good` is higher, lower or None"),
        ({"low": 1.0}, "a finite `low` below `high`"),
        ({"low": float("nan")}, "a finite `low` below `high`"),
        ({"high": float("inf")}, "a finite `low` below `high`"),
        ({"kind": "ratio", "high": 2.0}, "a ratio goes from 0 to 1"),
        ({"meaning": ""}, "`meaning` is a text"),
        ({"source": " "}, "`source` is a text"),
        ({"formula": "x" * 501}, "`formula` is a text"),
        ({"needs": "a\x1b[2J"}, "do not print"),
    ],
    ids=str,
)
def test_what_cannot_be_a_metric_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        own(0.5, **changes)


def test_no_name_meets_another_series_of_ours() -> None:
    others = {family.name for family in all_families((), {}) if family.name.startswith("rag_")}
    others |= {f"rag_{name}_unscored_ratio" for name in metric_specs()}
    for full in others:
        for end in ("mean", "ratio", "ci_lower", "ci_upper", "effective_samples"):
            if full.endswith(f"_{end}"):
                with pytest.raises(ValueError, match="taken"):
                    own(0.5, name=full.removeprefix("rag_").removesuffix(f"_{end}"))


def test_no_feedback_poses_as_one() -> None:
    assert CUSTOM_SCORER in RESERVED_SCORERS


def test_a_metric_of_canaries_scores_those_with_a_reference_alone(
    install_metric: Install,
) -> None:
    @metric(**SPEC, canaries=True)
    def formula(trace: Trace) -> float | NoScore:
        assert trace.reference is not None
        return float(trace.answer == trace.reference.answer)

    before = reference_pairs([5])
    install_metric(formula)
    assert reference_pairs([5]) == (*before, ("shouting", CANARY_CUSTOM_SCORER))
    assert [one for one in score_cheap(PreparedTrace(trace())) if one.metric == "shouting"] == []

    def last(**fields: Any) -> Score:
        found = score_canary(PreparedTrace(trace(**fields)), [5], lambda: 0.0)
        assert [(one.metric, one.scorer) for one in found] == list(reference_pairs([5]))
        return found[-1]

    assert last(answer="4", reference={"answer": "4"}).value == 1.0
    assert last(answer="5", reference={"answer": "4"}).value == 0.0
    marked = last(tags={CANARY: "true"})
    assert (marked.state, marked.reason) == (ScoreState.NOT_APPLICABLE, "no_reference")
    assert score_canary(PreparedTrace(trace()), [5], lambda: 0.0) == []
    assert is_canary_scorer(CANARY_CUSTOM_SCORER)
    scorer = Scorer()
    assert ("shouting", CANARY_CUSTOM_SCORER) in scorer.canary_pairs
    scored = scorer.score(trace(answer="4", reference={"answer": "4"})).trace.results
    assert [one.value for one in scored if one.metric == "shouting"] == [1.0]
