"""The same answer in other formats, negated, and with other numbers: real answers, all changed."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from ragmeter.metrics.answer_text import parse_answer

from tests.metrics.help import outcome
from tests.tables import each_row

DATA = Path(__file__).parents[1] / "data"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LIST_SIGN = re.compile(r"\s*(?:[-*•]+|\d{1,2}[.)])\s+")
# A full stop that ends no sentence: another format has no way to show that.
_ABBREVIATED = re.compile(
    r"(?:\b[A-Z]|Mr|Mrs|Dr|St|U\.S|a\.m|p\.m|No|Inc|Jr|vs|Gov|Sen|Rep|^\d+)\.$"
)


class Row(NamedTuple):
    query: str
    passages: list[dict[str, str]]
    answer: str
    good: bool

    def grounding(self, answer: str) -> float | None:
        return outcome("grounding", query=self.query, passages=self.passages, answer=answer)[1]


def rows() -> Iterator[Row]:
    for name in ("mtrag_grounding", "clapnq_generators", "ragtruth_answers"):
        with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                for one in row["answers"].values() if "answers" in row else [row]:
                    text = one.get("answer") or one["text"]
                    yield Row(row["query"], row["passages"], text, not one["hallucinated"])


ROWS = list(rows())


def sentences(answer: str) -> list[str]:
    lines = [_LIST_SIGN.sub("", line, count=1).strip() for line in answer.split("\n")]
    return [one for line in lines if line for one in _SENTENCE_END.split(line)]


@cache
def comparable() -> list[tuple[Row, list[str]]]:
    """Answers of whole sentences, which alone can be written as prose."""
    found = [(row, sentences(row.answer)) for row in ROWS]
    return [
        (row, parts)
        for row, parts in found
        if len(parts) >= 2
        and all(one[-1] in ".!?" and not _ABBREVIATED.search(one) for one in parts)
    ]


def bare(sentence: str) -> str:
    return sentence.removesuffix(".")


def bold(sentence: str) -> str:
    first, _, rest = sentence.partition(" ")
    return f"**{first}** {rest}"


def cells(sentence: str) -> str:
    words = sentence.split()
    third = max(1, len(words) // 3)
    return f"| {' '.join(words[:third])} | {' '.join(words[third:])} |"


def numbered(parts: list[str], form: str, between: str = "\n") -> str:
    return between.join(form.format(number, one) for number, one in enumerate(parts, 1))


FORMATS: dict[str, Callable[[list[str]], str]] = {
    "lines": "\n".join,
    "paragraphs": "\n\n".join,
    "bullets": lambda parts: "\n".join(f"- {one}" for one in parts),
    "bullets without full stops": lambda parts: "\n".join(f"* {bare(one)}" for one in parts),
    "numbered": lambda parts: numbered(parts, "{}. {}"),
    "numbered, bold": lambda parts: numbered([bold(one) for one in parts], "{}. {}"),
    "bold numbers": lambda parts: numbered(parts, "**{}.** {}"),
    "brackets": lambda parts: numbered(parts, "({}) {}", " "),
    "numbered in a line": lambda parts: numbered(parts, "{}. {}", " "),
    "numbers on lines of their own": lambda parts: numbered(parts, "{}.\n{}"),
    "steps": lambda parts: numbered(parts, "**Step {}:** {}"),
    "bold sentences": lambda parts: " ".join(f"**{one}**" for one in parts),
    "italics": lambda parts: " ".join(f"_{one}_" for one in parts),
    "quotation": lambda parts: "\n".join(f"> {one}" for one in parts),
    "table": lambda parts: numbered(parts, "| {} | {} |").join(["| # | Fact |\n|---|---|\n", ""]),
    "table of two": lambda parts: "\n".join(["| A | B |", "| --- | :-: |", *map(cells, parts)]),
    "citations": lambda parts: " ".join(f"{bare(one)} [1]." for one in parts),
    "citations after": lambda parts: " ".join(f"{one} [1][2]" for one in parts),
    "citations of OpenAI": lambda parts: " ".join(f"{bare(one)}【1†source】." for one in parts),
    "footnotes": lambda parts: " ".join(f"{one}[^1]" for one in parts),
    "superscripts": lambda parts: " ".join(f"{one}<sup>1</sup>" for one in parts),
    "links": lambda parts: " ".join(f"{bare(one)} [1](https://a.example/1)." for one in parts),
    "sources": lambda parts: f"{' '.join(parts)}\n\n## Sources\n[1] The handbook of the zoo",
}


@cache
def groundings_of_prose() -> list[float | None]:
    return [row.grounding(" ".join(parts)) for row, parts in comparable()]


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_does_not_change_the_grounding(name: str) -> None:
    differences = []
    for (row, parts), prose in zip(comparable(), groundings_of_prose(), strict=True):
        other = row.grounding(FORMATS[name](parts))
        assert (prose is None) == (other is None), parts
        if prose is not None and other is not None:
            differences.append(abs(prose - other))
    assert len(differences) > 60
    assert max(differences) <= 0.03


@each_row("name", FORMATS)
def test_mini_reads_the_same_text_in_every_format(name: str) -> None:
    for _, parts in comparable():
        prose, other = (
            parse_answer(FORMATS[form](parts)).plain.split() for form in ("lines", name)
        )
        if "without full stops" in name or name.startswith("citations") or name == "links":
            prose, other = (" ".join(one).replace(".", "").split() for one in (prose, other))
        assert other == prose


def test_the_plain_text_keeps_the_offsets() -> None:
    text = (
        "Sure! Here is it:\n\n1. **Reset** it [1].\n- Wait an *hour*.\n\n## Sources\n[1] A handbook"
    )
    plain = parse_answer(text).plain
    assert plain.split() == ["Reset", "it", ".", "Wait", "an", "hour", "."]
    assert all(plain[at] in (" ", text[at]) for at in range(len(plain)))


def test_a_number_of_a_list_is_neither_a_sentence_nor_a_number() -> None:
    for text in ("2.", "**2.**", "- 2.", "1.\n2.", "(2)", "Step 2:", "2️⃣", "| 1 | 2 |\n|---|---|"):
        found = parse_answer(f"{text}\nOpen the settings.")
        assert [claim.text for claim in found.claims] == ["Open the settings."], text
        assert found.read.numbers == [], text
    found = parse_answer("The steps are: 1. open the settings 2. click on Reset 3. wait")
    assert found.read.numbers == []
    # and a number that a sentence states stays one
    found = parse_answer("He lives in room 1. She lives in room 2. It has 3 windows.")
    assert [form for form, _ in found.read.numbers] == ["1", "2", "3"]
    assert len(found.claims) == 3


def test_the_head_and_the_row_numbers_of_a_table_claim_nothing() -> None:
    found = parse_answer("| # | Plan | Price |\n|---|:--|--:|\n| 1 | Basic | 5 |\n| 2 | Pro | 9 |")
    assert [claim.text for claim in found.claims] == ["Basic 5", "Pro 9"]
    assert [form for form, _ in found.read.numbers] == ["5", "9"]
    assert found.read.names == []


def test_places_of_sentences_are_those_of_the_answer_as_given() -> None:
    answer = "**Open** the [settings](https://a.example/b). 1. _Wait_ for 5 s [1]."
    found = parse_answer(answer)
    assert "settings" in found.claims[0].text
    assert "example" not in found.claims[0].text
    for claim in found.claims:
        assert claim.text.split()[0] in answer[claim.start : claim.end]


_NUMBER = re.compile(r"(?<![\w.,:$-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w:)]|[.,]\d|\.\s)")
_VERB = re.compile(r"\b(?:is|are|was|were|can|will|should|must|may|could)\b(?! not\b|n't)")


def negated(answer: str, rng: random.Random) -> str | None:
    verbs = list(_VERB.finditer(answer))
    if not verbs:
        return None
    at = rng.choice(verbs).end()
    return f"{answer[:at]} not{answer[at:]}"


def renumbered(answer: str, rng: random.Random) -> str | None:
    numbers = list(_NUMBER.finditer(answer))
    if not numbers:
        return None
    one = rng.choice(numbers)
    digits = [str((int(c) + rng.randint(1, 8)) % 9 + 1) if c.isdigit() else c for c in one.group()]
    return answer[: one.start()] + "".join(digits) + answer[one.end() :]


@pytest.mark.parametrize(
    ("change", "share"), [(negated, 0.88), (renumbered, 0.85)], ids=["negated", "renumbered"]
)
def test_a_changed_answer_scores_lower_than_the_true_one(
    change: Callable[[str, random.Random], str | None], share: float
) -> None:
    """Words cannot tell every change: the shares are those of docs/metrics.md, less a margin."""
    rng = random.Random(1)
    drops = []
    for row in ROWS:
        false = change(row.answer, rng) if row.good else None
        if false is None or false == row.answer:
            continue
        before, after = row.grounding(row.answer), row.grounding(false)
        if before is not None and after is not None:
            drops.append(before - after)
    assert len(drops) > 40
    assert sum(drop > 0 for drop in drops) >= share * len(drops)
    assert sum(drops) / len(drops) > 0.01


@each_row(
    "marker",
    [
        " [1].",
        " (Quelle 1).",
        "（来源：1）.",
        " (p. 3).",
        " (pages 3-4).",
        " (manual.pdf, page 3).",
        " (1).",
        " ⁽¹⁾.",
        " 〔1〕.",
        " 「1」.",
    ],
)
def test_a_citation_is_no_claim(marker: str) -> None:
    answer = "Refunds are paid within 14 days after the warehouse has received the parcel"
    passages = [{"id": "kb", "text": answer + "."}]
    plain, cited = (
        outcome("grounding", query="How long?", passages=passages, answer=answer + end)[1]
        for end in (".", marker)
    )
    assert plain is not None
    assert cited == pytest.approx(plain, abs=0.02)
