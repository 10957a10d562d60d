from __future__ import annotations

from ragmeter.core.feedback import ANSWER_LABELS, AnswerLabels
from ragmeter.core.score import NoScore
from ragmeter.metrics.labelled import LABEL_BY_METRIC, score_answer_labels
from ragmeter.metrics.registry import metric_families, metric_specs

from tests.tables import each_row

NOT_LABELLED = NoScore("not_labelled")
METRIC_OF = {label: metric for metric, label in LABEL_BY_METRIC.items()}


def test_each_metric_is_the_share_of_its_label() -> None:
    # every label in turn is alone in being yes, as far as the others allow it
    for label in ANSWER_LABELS:
        yes = {name: name == label for name in ANSWER_LABELS}
        yes["unsupported_claim_present"] |= yes["contradicted_claim_present"]
        yes["source_cited"] |= yes["fabricated_source"]
        found = score_answer_labels(AnswerLabels(**yes))
        for name in ANSWER_LABELS:
            value = found[METRIC_OF[name]]
            if name == "fabricated_source" and not yes["source_cited"]:
                assert value == NoScore("no_citations", applies=False)
            else:
                assert value == float(yes[name]), (label, name)


def test_fabrication_is_of_those_that_cite() -> None:
    # the cited subset of pragmata's tests: cited 1, 0, 1 and fabricated 1, -, 0
    answers = [
        AnswerLabels(source_cited=True, fabricated_source=True),
        AnswerLabels(source_cited=False),
        AnswerLabels(source_cited=True, fabricated_source=False),
    ]
    values = [score_answer_labels(one)["citation_fabricated"] for one in answers]
    assert values == [1.0, NoScore("no_citations", applies=False), 0.0]
    assert [score_answer_labels(one)["citation_presence"] for one in answers] == [1.0, 0.0, 1.0]
    # whether this one cites, nobody has said: as a 0 it would count as one that does
    unknown = score_answer_labels(AnswerLabels(fabricated_source=False))
    assert unknown["citation_fabricated"] == NOT_LABELLED


def test_what_is_not_labelled_is_no_zero() -> None:
    assert set(score_answer_labels(AnswerLabels()).values()) == {NOT_LABELLED}
    found = score_answer_labels(AnswerLabels(helpful=False))
    assert found.pop("helpfulness") == 0.0
    assert set(found.values()) == {NOT_LABELLED}
    assert (
        score_answer_labels(AnswerLabels(source_cited=True))["citation_fabricated"] == NOT_LABELLED
    )


@each_row("label", ANSWER_LABELS)
def test_a_label_alone_says_what_follows_from_it(label: str) -> None:
    found = score_answer_labels(AnswerLabels(**{label: True}))
    known = {metric for metric, value in found.items() if value == 1.0}
    follows = {"contradiction": {"unsupported_claim"}, "citation_fabricated": {"citation_presence"}}
    metric = METRIC_OF[label]
    assert known == {metric} | follows.get(metric, set())


def test_every_metric_has_a_spec() -> None:
    assert {spec.name for spec in metric_families()["labelled_answers"]} == LABEL_BY_METRIC.keys()
    assert {metric_specs()[name].kind for name in LABEL_BY_METRIC} == {"ratio"}
    assert {spec.kind for spec in metric_families()["labelled_answers"]} == {"ratio"}
    assert {
        spec.name for spec in metric_families()["labelled_answers"] if spec.good == "lower"
    } == {
        "unsupported_claim",
        "contradiction",
        "incompleteness",
        "unsafe_content",
        "citation_fabricated",
    }
    assert metric_specs()["citation_fabricated"].good == "lower"
