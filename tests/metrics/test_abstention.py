from __future__ import annotations

from ragmeter.metrics.abstention import abstains, has_further_claims

from tests.metrics.help import outcome
from tests.tables import each_row


@each_row(
    "answer",
    [
        "I do not know.",
        "I'm sorry, but I don't have that information.",
        "I’m sorry, but I can’t help with that request.",
        "The provided documents do not mention the price of the premium plan.",
        "There is no information about refunds in the given context.",
        "The answer is not provided in the passages. However, call support.",
        "Unfortunately, the manual does not specify how to change the bulb.",
        "Sorry, I cannot answer that.",
        "I cannot provide instructions on how to do that, as it is not appropriate.",
        "Which TV series are you talking about?",
        "There are many seasons. Which one are you talking about?",
    ],
)
def test_refusals_and_not_knowing_are_no_answers(answer: str) -> None:
    assert abstains(answer)
    assert outcome("answered", answer=answer) == ("scored", 0.0, None)


@each_row(
    "answer",
    [
        "Open Settings and click Forgot password.",
        "I'm really sorry to hear that your dog is ill. A vet can help you.",
        "As an AI, I don't have personal beliefs, but mangos are fruits.",
        "No. Refunds are not paid for opened parcels.",
        "Yes, it smokes because of a coal fire. However, I don't know if it can be climbed.",
        "Do not open the cover before the machine has cooled down.",
        "You can reset it under Settings. Is there anything else I can help you with?",
    ],
)
def test_answers_with_a_no_in_them_still_answer(answer: str) -> None:
    assert not abstains(answer)
    assert outcome("answered", answer=answer)[1] == 1.0


def test_the_upstream_flag_wins_over_the_rules() -> None:
    assert outcome("answered", abstained=True)[1] == 0.0
    assert outcome("answered", abstained=False, answer="I do not know.")[1] == 1.0


def test_states_of_answered() -> None:
    assert outcome("answered", answer="") == ("scored", 0.0, None)
    assert outcome("answered", answer=None) == ("unscored", None, "no_text")
    assert outcome("answered", status="error") == ("not_applicable", None, "error")
    assert outcome("answered", status="timeout") == ("not_applicable", None, "timeout")


def test_answers_in_a_language_without_rules_are_not_measured() -> None:
    swedish = "Öppna inställningarna och klicka på knappen för att återställa lösenordet."
    assert outcome("answered", answer=swedish) == ("not_applicable", None, "language")
    assert outcome("answered", answer="打开设置，然后点击忘记密码。")[2] == "language"


def test_an_abstention_that_goes_on_claiming_is_still_checked() -> None:
    bare = "The documents do not mention parental leave."
    more = bare + " However, employees usually get sixteen weeks of paid leave, " * 4
    assert not has_further_claims(bare)
    assert has_further_claims(more)
    assert outcome("grounding", answer=bare) == ("not_applicable", None, "no_answer")
    assert outcome("grounding", answer=more)[0] == "scored"
    assert outcome("answered", answer=more)[1] == 0.0
