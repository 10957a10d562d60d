from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from ragmeter.metrics.abstention import abstains
from ragmeter.metrics.language import (
    ENGLISH_CODE,
    READ_BY_ENGLISH,
    UNKNOWN,
    find_language_reason,
    identify_language,
    identify_passage,
)

from tests.metrics.help import outcome, trace
from tests.tables import each_row

DATA = Path(__file__).parents[1] / "data"

# The Universal Declaration of Human Rights, of articles 1 and 19.
DECLARATION = {
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit"
    " Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit"
    " begegnen.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont"
    " doués de raison et de conscience.",
    "es": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados"
    " como están de razón y conciencia, deben comportarse fraternalmente los unos con los"
    " otros.",
    "it": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono"
    " dotati di ragione e di coscienza.",
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de"
    " razão e de consciência, devem agir uns para com os outros em espírito de"
    " fraternidade.",
    "nl": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn"
    " begiftigd met verstand en geweten, en behoren zich jegens elkander in een geest van"
    " broederschap te gedragen.",
    "pl": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są"
    " oni obdarzeni rozumem i sumieniem.",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De har utrustats med"
    " förnuft och samvete och bör handla gentemot varandra i en anda av gemenskap.",
    "tr": "Herkesin düşünce ve ifade özgürlüğüne hakkı vardır. Bu hak, karışma olmaksızın"
    " düşünce edinme ve her yoldan bilgi arama hakkını içerir.",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed"
    " with reason and conscience and should act towards one another in a spirit of"
    " brotherhood.",
}


@each_row("code", DECLARATION)
def test_a_language_is_known_by_its_commonest_words(code: str) -> None:
    assert identify_language(DECLARATION[code]) == code


@each_row(
    "text",
    [
        "",
        "42",
        "Passwort zurücksetzen",
        "GmbH",
        "1. Toyota Yaris\n2. Renault Clio\n3. Fiat Panda\n4. Škoda Fabia\n5. VW Polo",
        "word " * 500,
    ],
)
def test_nothing_is_assumed_of_a_text_too_short_to_know(text: str) -> None:
    assert identify_language(text) == UNKNOWN


@pytest.mark.parametrize("text", ["密码重置", "Нажмите на кнопку.", "パスワードを忘れた"])
def test_other_scripts_are_other_languages(text: str) -> None:
    assert identify_language(text) not in READ_BY_ENGLISH


def test_records_tell_of_no_language() -> None:
    record = '{"name": "La Casa de Maria", "city": "El Bosque", "state": "CA", "x": 1}'
    assert identify_passage(record) == UNKNOWN


def test_real_english_is_hardly_ever_taken_for_another_language() -> None:
    texts = []
    for name in ("mtrag_grounding", "clapnq_generators", "ragtruth_answers"):
        with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                texts += [row["query"], *(p["text"] for p in row["passages"])]
                texts += [one["text"] for one in row.get("answers", {}).values()]
                texts += [row["answer"]] if "answer" in row else []
    found = [identify_language(text) for text in texts]
    assert len(found) > 400
    assert sum(one not in READ_BY_ENGLISH for one in found) <= len(found) / 500
    assert found.count(ENGLISH_CODE) > 0.8 * len(found)


def test_the_reason_concerns_answer_and_passages_and_the_query_of_a_short_answer() -> None:
    german = DECLARATION["de"]
    assert find_language_reason(trace()) is None
    for changes in (
        {"answer": german},
        {"passages": [{"id": "a", "text": german}]},
        {"answer": "Ja.", "query": "Wie kann ich das Passwort für die App ändern?"},
    ):
        reason = find_language_reason(trace(**changes))
        assert reason is not None
        assert (reason.reason, reason.applies) == ("language", False)


REFUSALS = {
    "de": [
        "Das weiß ich leider nicht.",
        "Dazu kann ich leider nichts sagen.",
        "Ich bin nicht in der Lage, das zu beantworten.",
        "Die bereitgestellten Dokumente enthalten keine Informationen zum Preis.",
        "Zu diesem Thema liegen mir leider keine Informationen vor.",
        "In den bereitgestellten Passagen wird die Rückgabefrist nicht genannt.",
        "Das kann ich Ihnen nicht sagen.",
    ],
    "fr": [
        "Je ne sais pas.",
        "Les documents fournis ne mentionnent pas le prix.",
        "Je n'ai pas trouvé de réponse dans vos notes.",
        "Aucun des documents ne traite de ce sujet.",
        "Désolé, je ne peux pas répondre à cette question.",
    ],
    "es": [
        "No lo sé.",
        "Los documentos proporcionados no mencionan el precio.",
        "No he encontrado ninguna respuesta en tus notas.",
        "La información proporcionada no permite responder a la pregunta.",
        "No se menciona en el texto.",
    ],
    "it": [
        "Non lo so.",
        "I documenti forniti non menzionano il prezzo.",
        "Non ho trovato alcuna risposta nei tuoi appunti.",
        "Le informazioni fornite non permettono di rispondere.",
        "Mi dispiace, non posso aiutarti.",
    ],
    "pt": [
        "Não sei.",
        "Os documentos fornecidos não mencionam o preço.",
        "Não encontrei nenhuma resposta nas suas notas.",
        "As informações fornecidas não permitem responder.",
        "Desculpe, não posso responder a essa pergunta.",
    ],
    "nl": [
        "Ik weet het niet.",
        "De verstrekte documenten vermelden de prijs niet.",
        "Ik heb geen antwoord gevonden in je notities.",
        "Het spijt me, daar kan ik niet mee helpen.",
        "Dit wordt niet genoemd in de tekst.",
        "De documenten bevatten deze informatie niet.",
        "Helaas beschik ik niet over deze gegevens.",
        "Daar kan ik helaas niets over zeggen.",
        "Dit staat niet in de documenten.",
        "In de context wordt hierover niets vermeld.",
    ],
    "pl": [
        "Nie wiem.",
        "Dostarczone dokumenty nie wspominają o cenie.",
        "Nie znalazłem odpowiedzi w twoich notatkach.",
        "Podane informacje nie pozwalają odpowiedzieć na pytanie.",
        "Niestety nie mogę w tym pomóc.",
    ],
}


@each_row("code", REFUSALS)
def test_refusals_are_recognised_in_seven_more_languages(code: str) -> None:
    assert [text for text in REFUSALS[code] if not abstains(text)] == []


@each_row(
    "answer",
    [
        "De retourtermijn is 30 dagen, niet 14.",
        "U kunt het product niet na 30 dagen terugsturen.",
        "De garantie staat niet los van de koop.",
        "Het abonnement bevat geen verzendkosten.",
        "Das Gerät kann nicht im Freien betrieben werden.",
        "Nichts davon ist kostenpflichtig.",
        "Il prodotto non può essere restituito dopo 30 giorni.",
    ],
)
def test_an_answer_that_denies_something_is_no_refusal(answer: str) -> None:
    assert not abstains(answer)


@pytest.mark.parametrize("answer", [REFUSALS["de"][0], REFUSALS["de"][1]])
def test_a_short_german_refusal_is_neither_answered_nor_grounded(answer: str) -> None:
    question = "Wie kann ich das Passwort für die App ändern?"
    assert outcome("answered", answer=answer, query=question) == ("scored", 0.0, None)
    assert outcome("grounding", answer=answer, query=question)[::2] == (
        "not_applicable",
        "no_answer",
    )


@each_row(
    "answer",
    [
        *(text for code, text in DECLARATION.items() if code != "en"),
        "Nein, die Garantie umfasst keine Schäden durch Wasser.",
        "Non, le retour n'est pas gratuit après trente jours.",
        "No, el envío no es gratuito.",
        "No, la spedizione non è gratuita.",
        "Não, o envio não é gratuito.",
        "Nee, de verzending is niet gratis.",
        "Nie, wysyłka nie jest darmowa.",
        "Öffnen Sie das Gerät nicht, bevor es abgekühlt ist.",
    ],
)
def test_answers_in_other_languages_answer(answer: str) -> None:
    assert not abstains(answer)


@each_row(
    "answer",
    [
        "The provided notes do not mention the salary.",
        "None of the retrieved documents discuss parental leave.",
        "No relevant passages were found.",
        "That information isn't in my notes.",
        "Your notes don't appear to cover this topic.",
        "The documentation makes no mention of that setting.",
    ],
)
def test_english_refusals_that_speak_of_notes_and_of_what_was_found(answer: str) -> None:
    assert abstains(answer)


def test_not_knowing_why_is_no_refusal_of_what_follows() -> None:
    assert not abstains("I don't know why people ask, but the salary is 90k.")
    assert abstains("I don't know why people ask that.")
