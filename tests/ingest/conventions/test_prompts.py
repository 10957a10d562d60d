"""The question in a prompt that tells the model what to do with it."""

from __future__ import annotations

from ragmeter.ingest.conventions.prompts import cut_prompt

from tests.tables import each_row

Q = "How long do refunds take?"
CRITERIA = "\n\nThis is the expected criteria for your final answer: short.\nyou MUST.\n\nThought:"


@each_row(
    ("prompt", "question"),
    [
        (f"Answer the customer's question: {Q}", Q),
        (f"Respond to the user's message: '{Q}'. Conversation history:\n.", Q),
        (f'Please answer the following question with the sources: "{Q}"', Q),
        ("Answer the question: 'What's the limit?'. Be brief.", "What's the limit?"),
        (f"\nCurrent Task: {Q}{CRITERIA}", Q),
        (f"\nCurrent Task: Answer this query: {Q}\n\nCite.{CRITERIA}", Q),
        (f"\nCurrent Task: Sum up our policy.{CRITERIA}", "Sum up our policy."),
        # what only looks like an instruction
        ("Answer: is a refund possible", "Answer: is a refund possible"),
        (
            "Can I answer the question in the form later?",
            "Can I answer the question in the form later?",
        ),
    ],
)
def test_the_question_of_an_instruction(prompt: str, question: str) -> None:
    assert cut_prompt(prompt, (), True) == question


def test_a_user_is_taken_at_their_word() -> None:
    text = f"Answer the question: {Q}"
    assert cut_prompt(text, (), False) == text
