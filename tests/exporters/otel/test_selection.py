from __future__ import annotations

from typing import Any

import pytest
from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.scorers.hhem import tier
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, read_manifest
from ragmeter_exporters.otel.encoding import MODEL_SCORERS, ResultSelection, tier_of_scorer

from tests.exporters.otel.scores import done, score

SCORES = [
    score("grounding", 0.5),
    score("grounding", 0.6, scorer="hhem"),
    score("precision_at_k:5", 0.4, scorer="umbrela"),
    score("answered", 1.0, scorer="judge"),
    score("relevance", None),
    score("relevance", None, state=ScoreState.NOT_APPLICABLE),
    score("grounding", None, scorer="hhem_fulltext", state=ScoreState.SAMPLED_OUT),
    score("answered", None, scorer="umbrela", state=ScoreState.SHED),
]


def chosen(*scores: Score, **settings: Any) -> list[tuple[str, str]]:
    selection = ResultSelection(ResultsExportSettings.model_validate(settings))
    found = selection.of(*done(*(scores or SCORES))[0], 1)
    return [(one.metric, one.scorer) for one in found]


def test_every_score_goes_out_and_nothing_that_is_none() -> None:
    """What was sampled out or shed has been judged by nobody."""
    assert chosen() == [(one.metric, one.scorer) for one in SCORES[:5]]


@pytest.mark.parametrize(
    ("settings", "which"),
    [
        ({"metrics": ["grounding"]}, [0, 1]),
        ({"metrics": ["precision_at_k"]}, [2]),
        ({"metrics": ["precision_at_k:5"]}, [2]),
        ({"metrics": ["precision_at_k:1"]}, []),
        ({"scorers": ["umbrela", "judge"]}, [2, 3]),
        ({"tiers": ["cheap"]}, [0, 4]),
        ({"tiers": ["model"]}, [1]),
        ({"tiers": ["judge"], "metrics": ["answered"]}, [3]),
        ({"states": ["scored"], "tiers": ["cheap"]}, [0]),
        ({"states": ["not_applicable"]}, [5]),
    ],
)
def test_filters_narrow_it(settings: dict[str, Any], which: list[int]) -> None:
    assert chosen(**settings) == [(SCORES[n].metric, SCORES[n].scorer) for n in which]


@pytest.mark.parametrize("wrong", [{"metrics": ["groundign"]}, {"scorers": ["jugde"]}])
def test_a_name_that_nobody_knows_is_a_mistake(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong.values()))[0]):
        ResultSelection(ResultsExportSettings.model_validate(wrong))


def test_an_explanation_is_bounded() -> None:
    long = score(detail={"nuggets": ["€" * 1000] * 20})

    def explained(chars: int) -> str | None:
        selection = ResultSelection(ResultsExportSettings(explanation_chars=chars))
        return next(selection.of(*done(long)[0], 1)).explanation

    assert explained(0) is None
    assert explained(100) == '{"nuggets":["' + "€" * 87 + " … [cut]"


def test_the_scorers_of_the_model_tier_are_those() -> None:
    mini = read_manifest(BUNDLED_FOLDER).name
    assert {tier.HHEM, tier.FULLTEXT, mini} == MODEL_SCORERS
    assert (tier_of_scorer("builtin"), tier_of_scorer("hhem"), tier_of_scorer("judge")) == (
        "cheap",
        "model",
        "judge",
    )
