from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from ragmeter.metrics import grounding
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.grounding_features import (
    ANSWER_FEATURES,
    CONTRADICTIONS,
)
from ragmeter.metrics.text_index import PassageIndex, QueryText

from tests.metrics.help import outcome, score_of, trace
from tests.tables import each_row

EXTRACT = Path(__file__).parents[1] / "data" / "mtrag_grounding.jsonl.gz"


def reading(passage: str, answer: str, query: str = "") -> dict[str, float]:
    pages = PassageIndex.read([passage])
    text = parse_answer(answer)
    asked = QueryText.read(query)
    got = compare_texts(pages, text, asked).extract_features()
    return dict(zip(ANSWER_FEATURES, got.values, strict=True))


def test_a_copied_answer_has_nothing_novel() -> None:
    text = "The warehouse ships parcels every Tuesday morning."
    f = reading(text, text)
    assert f["uncovered"] == f["novel"] == f["bigrams"] == f["worst_local"] == 0.0
    assert f["copied3"] == -1.0  # warehouse ships parcels tuesday morning: one stretch of five
    assert f["copied5"] == -1.0


def test_novel_words_numbers_and_names_are_counted() -> None:
    f = reading("Parcels leave on Tuesday.", "Parcels leave on Friday with Zorblatt for 45 euros.")
    assert f["novel_numbers"] == pytest.approx(0.6931, abs=1e-3)  # log(1 + 1): 45
    assert f["novel_names"] == pytest.approx(1.0986, abs=1e-3)  # log(1 + 2): Friday, Zorblatt
    assert f["novel"] == pytest.approx(1.6094, abs=1e-3)  # log(1 + 4): and euros, 45


def test_words_of_the_query_are_not_novel() -> None:
    with_query = reading("Parcels leave.", "Zorblatt parcels leave.", "Where is Zorblatt?")
    assert with_query["novel"] == 0.0
    assert with_query["uncovered_by_passages"] > 0.0


@each_row(
    ("passage", "answer", "novel"),
    [
        ("It costs 1,000 euros.", "It costs 1000 euros.", 0),
        ("Open till 17:30.", "Open till 5:30 PM.", 0),
        ("Open till 17.", "Open till 5 PM.", 0),
        ("It costs 10 euros.", "It costs 12 euros.", 1),
        ("Built in 2019.", "1. Built in 2019.", 0),
        ("Rated 4.0 stars.", "Rated 4.5 stars.", 1),
    ],
)
def test_numbers_meet_in_their_forms(passage: str, answer: str, novel: int) -> None:
    assert (reading(passage, answer)["novel_numbers"] > 0) == bool(novel)


def test_words_that_stand_far_apart_support_less() -> None:
    near = "The blue engine overheats above ninety degrees. " + "Other words follow here. " * 30
    far = near.replace("overheats", "runs") + "The red pump overheats sometimes."
    claim = "The blue engine overheats."
    assert reading(far, claim)["worst_local"] > reading(near, claim)["worst_local"]


_LEAFLET = (
    "The pump does not start while the lid is open. Its filter was washed in May. Nothing about"
    " the fan belt changed. The seal was never replaced, although the old manual asks for it."
)


def test_a_negation_of_the_passage_must_not_be_lost() -> None:
    passages = [{"id": "a", "text": _LEAFLET}]
    false = "The pump does start while the lid is open."
    true = false.replace("does", "does not")
    values = [outcome("grounding", passages=passages, answer=one)[1] for one in (true, false)]
    assert values[0] is not None
    assert values[1] is not None
    assert values[1] < values[0]


def contradictions(answer: str) -> dict[str, float]:
    passages = [{"id": "a", "text": _LEAFLET}]
    features, _ = grounding.grounding_features(trace(passages=passages, answer=answer))
    return dict(zip(CONTRADICTIONS, features.contradictions, strict=True))


@each_row(
    ("answer", "lost"),
    [
        ("The pump starts while the lid is open.", True),
        ("The pump does not start while the lid is open.", False),
        ("The seal was replaced, although the manual asks for it.", True),
        ("The filter was washed in May.", False),  # no negation there
        ("The pump was washed in May.", False),  # too few of the denied words
        ("The lid of the pump is open.", False),  # without the word that is denied
    ],
)
def test_only_what_a_passage_denies_counts_as_a_lost_negation(answer: str, lost: bool) -> None:
    assert (contradictions(answer)["lost_negations"] > 0.2) == lost


@pytest.mark.parametrize(
    ("answer", "refuted"),
    [
        ("The filter was not washed in May.", True),
        ("The pump does not start while the lid is open.", False),
        ("The engineer did not paint the door.", False),  # the passage says nothing of it
    ],
)
def test_only_what_a_passage_affirms_counts_as_refuted(answer: str, refuted: bool) -> None:
    assert (contradictions(answer)["refuted_negations"] > 0.2) == refuted


@each_row(
    ("answer", "misplaced"),
    [
        ("The 12 pumps took 340 litres.", 0),
        ("The 340 pumps took 12 litres.", 2),
        ("The 117 pumps took 340 litres.", 1),
        ("Twelve pumps took 340 litres.", 0),
        ("Each pump took 12 of them.", 0),  # no other number is beside these words
    ],
)
@each_row("record", [False, True])
def test_numbers_beside_the_words_of_others_are_misplaced(
    answer: str, misplaced: int, record: bool
) -> None:
    text = "Twelve pumps ran; 12 pumps needed 340 litres of oil."
    if record:
        text = json.dumps({"name": "Plant", "city": "Ulm", "note": text})
    passages = [{"id": "a", "text": text}]
    features, _ = grounding.grounding_features(trace(passages=passages, answer=answer))
    assert features.contradictions[-1] == pytest.approx(math.log1p(misplaced))


def test_an_invented_answer_scores_below_a_copied_one() -> None:
    good = score_of("grounding")
    bad = score_of(
        "grounding",
        answer="Call the Zorblatt hotline at 555-0199 and pay 45 euros to Mr. Quux in Berlin.",
    )
    assert good.value is not None
    assert bad.value is not None
    assert bad.value < 0.5 < good.value


def test_detail_names_the_worst_sentence_and_what_is_novel() -> None:
    answer = "Open Settings and click Forgot password. Then pay 45 euros to Mr Quux in Berlin."
    detail = score_of("grounding", answer=answer).detail
    assert detail is not None
    assert detail["worst_sentence"]["index"] == 1
    assert detail["worst_sentence"]["text"].startswith("Then pay 45")
    assert detail["novel_numbers"] == ["45"]
    assert "berlin" in detail["novel_names"]


def test_detail_is_bounded() -> None:
    detail = score_of("grounding", answer="zorb " * 500 + "9 8 7 6 5 " * 100).detail
    assert detail is not None
    assert len(detail["worst_sentence"]["text"]) <= 200
    assert len(detail["novel_numbers"]) <= 10


def test_states_of_grounding() -> None:
    assert outcome("grounding", passages=None) == ("unscored", None, "no_passages_captured")
    assert outcome("grounding", passages=[]) == ("not_applicable", None, "no_passages")
    assert outcome("grounding", passages=[{"id": "a"}]) == ("unscored", None, "no_text")
    assert outcome("grounding", answer=None) == ("unscored", None, "no_text")
    assert outcome("grounding", answer=" ") == ("not_applicable", None, "empty_answer")
    assert outcome("grounding", answer="I do not know.") == ("not_applicable", None, "no_answer")
    assert outcome("grounding", abstained=True) == ("not_applicable", None, "no_answer")
    assert outcome("grounding", status="error") == ("not_applicable", None, "error")
    assert outcome("grounding", answer="It is so.") == ("not_applicable", None, "no_claims")


def test_what_is_not_english_has_no_grounding_and_no_relevance() -> None:
    chinese = [{"id": "a", "text": "要重置密码，请打开设置，然后点击忘记密码。"}]
    german = [{"id": "a", "text": "Um das Passwort zu ändern, öffnen Sie die Einstellungen."}]
    reply = "Öffnen Sie die Einstellungen und klicken Sie auf den Link für das Passwort."
    none = ("not_applicable", None, "language")
    for passages in (chinese, german):
        assert outcome("grounding", passages=passages) == none
        assert outcome("relevance", passages=passages) == none
    assert outcome("grounding", answer=reply) == none
    assert outcome("relevance", query="Wie kann ich das Passwort für die App ändern?") == none
    # too short to know: its question tells, else nothing is assumed
    assert outcome("grounding", answer="Passwort: Settings.")[0] == "scored"
    question = "Wie kann ich das Passwort für die App ändern?"
    assert outcome("grounding", answer="Passwort: Settings.", query=question) == none


def test_agreement_with_people_on_a_real_extract_holds() -> None:
    with gzip.open(EXTRACT, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    good: list[float] = []
    bad: list[float] = []
    for row in rows:
        got, _ = grounding.grounding_features(
            trace(query=row["query"], passages=row["passages"], answer=row["answer"])
        )
        (bad if row["hallucinated"] else good).append(grounding.grounding_probability(got))
    pairs = [(g, b) for g in good for b in bad]
    auroc = sum(g > b for g, b in pairs) / len(pairs)
    # The model has seen these rows in fitting, so this guards against breakage only; honest
    # figures are in docs/agreement.md.
    assert len(bad) >= 15
    assert auroc > 0.92
