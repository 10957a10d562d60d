"""Every form of citation markers that docs/traces.md lists, and what only looks like one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.files import parse_yaml
from ragmeter.metrics import citation_markers
from ragmeter.metrics.citations import Citations, resolve_citations
from ragmeter.metrics.kernel import MARKER_FORMS

from tests.metrics.help import outcome, trace
from tests.tables import each_row

ROOT = Path(__file__).parents[2]
FORMS = parse_yaml((ROOT / "tests/data/citation_forms.yaml").read_bytes())
CLAIM = "The warranty is 24 months from the date of purchase"
PASSAGES: list[dict[str, Any]] = [
    {
        "id": "d1",
        "text": "The warranty period for the Aurora kettle is 24 months from the date of purchase.",
        "metadata": {"source": "docs/manual.pdf", "page": 3, "url": "https://kb.example/doc/1"},
    },
    {
        "id": "d2",
        "text": "To register the kettle, open the app, choose Settings and scan the code.",
        "metadata": {"source": "Setup Guide.md", "page": "7", "url": "https://kb.example/doc/2"},
    },
    {
        "id": "d3",
        "text": "The kettle holds 1.7 litres and weighs 1.2 kilograms.",
        "metadata": {"file_name": "specs.html", "page": 12, "url": "https://kb.example/doc/3"},
    },
]
# Beside those of the forms, markers that name what cannot be resolved, and what only looks like one
MARKED = (
    "(Smith et al., 2019)",
    "Smith (2020) argues",
    "citeturn0search1",
    "One may take it back to the shop*1. It is sold in most of the shops*2.",
    "One may take it back to the shop@1. It is sold in most of the shops →2.",
    "doi:10.1000/1",
    "DOI: 10.1000/1",
    "(RFC 2616)",
    "347 U.S. 483",
    "(42 U.S.C. 1983)",
    "(§ 433 BGB)",
    "(ibid.)",
    "{{sfn|Smith}}",
    "years.12 The",
    "word*.",
    "*1",
    "@1",
    "→1",
    "(d1, d2)",
    "( d1 ;d2 )",
    "(manual.PDF)",
    "(#1)",
    "(e.g. this)",
    "Sources:\n- manual.pdf",
    "source 1",
    "&#91;1&#93;",
    "`[1]`",
    "$^{[1]}$",
    '"sources": ["d1"]',
    "##0$$",
    "~~1==",
    "— manual.pdf",
    "— Source 2.",
    "\ue202turn0search0",
    "\\ue202turn0search0",
    "(Setup Guide > Register)",
    "(00:12:45)",
    "[1]: https://kb.example/doc/1",
    "The answer is so.",
    "and",
    ".",
    "\n",
)
READ = [(case[0], case[1]) for form in FORMS["read"] for case in form["answers"]]


def cited(answer: str) -> Citations:
    return resolve_citations(trace(answer=answer, passages=PASSAGES))


def found(answer: str) -> Citations:
    return cited(answer.format(CLAIM))


def scored(metric: str, answer: str) -> tuple[str, float | None, str | None]:
    return outcome(metric, answer=answer.format(CLAIM), passages=PASSAGES)


@each_row(("answer", "cites"), READ + [tuple(c) for c in FORMS["from_zero"]])
def test_a_form_is_read(answer: str, cites: list[int]) -> None:
    citations = found(answer)
    assert [index + 1 for mark in citations.marks for index in mark.passages] == cites
    assert citations.dangling == 0
    assert citations.unread == []


@each_row("answer", FORMS["dangling"])
def test_a_form_that_names_no_passage_dangles(answer: str) -> None:
    assert scored("citation_presence", answer)[1] == 1.0
    assert scored("citation_fabricated", answer)[1] == 1.0


@each_row("answer", FORMS["unread"])
def test_a_marker_that_is_not_understood_leaves_no_value(answer: str) -> None:
    for metric in ("citation_presence", "citation_fabricated", "citation_recall", "citation_f1"):
        assert scored(metric, answer) == ("unscored", None, "citations_not_read")


@each_row("answer", FORMS["none"])
def test_what_is_no_citation_is_not_read_as_one(answer: str) -> None:
    citations = resolve_citations(trace(answer=answer, passages=PASSAGES))
    assert (citations.marks, citations.unread) == ([], [])


def test_the_forms_stand_in_the_docs() -> None:
    text = (ROOT / "docs/traces.md").read_text("utf-8")
    for form in FORMS["read"]:
        assert f"| {form['form']} | {form['shown']} |" in text


@each_row(
    "answer",
    [
        "{} ①.",
        "{}①.",
        "{} ⑴.",
        "{}⁽¹⁾.",
        "{} ^1^.",
        "{}^1^.",
        "{} |1|.",
        "{} ||1||.",
        "{} {{1}}.",
        "{} <1>.",
        "{} <|1|>.",
        "{} ⟨1⟩.",
        "{} (#1).",
        "{}. #1.",
        "{}. #1, #2",
        "{} (S1).",
        "{} (S1, S2).",
        "{} ‖1‖.",
        "{} ⓵.",
        "{}. ⓵",
        "{} 1️⃣.",
        "{} «1».",
        "{} [📄1].",
        "{} &lt;1&gt;.",
        "{} `[1]`.",
        "{} (d1).",
        "{} (d1, d2).",
        "{} (Manual, p. 3).",
        "{} (siehe Dokument 1).",
        "{} (according to document 2).",
        "{} (https://kb.example/doc/2).",
        '{} [[2]](https://kb.example/doc/2 "Guide").',
        "{} {{{{cite:1}}}}.",
        "{} {{{{cite web|url=https://kb.example/doc/1|title=Manual}}}}.",
        "{} <source_2>.",
        "{} \\footnote{{manual.pdf}}.",
        "{} 《manual.pdf》.",
        "{}¹⁻³.",
        "{} (see [1] and [2]).",
        "{} :cite[1].",
        "{} ‹d1›.",
        "{} «d2».",
        "{} (ref d2).",
        "{} @d1.",
        "{} <src>d1</src>.",
        "{} <source_id>d1</source_id>.",
        "{} [manual.pdf](https://kb.example/doc/1).",
        "{} 📄 manual.pdf.",
        '{}.\n\n```json\n{{"sources": ["d1", "d2"]}}\n```',
    ],
)
def test_a_marker_says_nothing(answer: str) -> None:
    plain = scored("grounding", "{}.")[1]
    assert plain is not None
    assert scored("grounding", answer)[1] == pytest.approx(plain, abs=0.01)
    # a number that may be of something else is a claim, of little weight
    assert scored("grounding", "{} #1.")[1] == pytest.approx(plain, abs=0.05)
    assert (scored("grounding", "{} and is ranked #7.")[1] or 0) < plain - 0.1


class _AllForms:
    """Says of every text that it may hold every form."""

    def read(self, text: str) -> int:
        return sum(MARKER_FORMS.values())


def _of_markers(rng: random.Random) -> str:
    """Return a text of markers, of words that stand beside them, and of their signs."""
    signs = "[](){}<>|#^*@~`:.,;/1 20dpm§¹⁽①†‡«»‹›「」【】（）→📄\u20e3\u2016\u00a0："
    pieces = [rng.choice(MARKED) for _ in range(rng.randrange(1, 8))]
    pieces += rng.choices(signs, k=rng.randrange(12))
    rng.shuffle(pieces)
    return rng.choice(["", " ", "\n"]).join(pieces)


def test_no_marker_is_missed_where_only_some_forms_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(3)
    answers = [answer.format(CLAIM) for answer, _ in READ]
    answers += [_of_markers(rng) for _ in range(800)]
    seen = [cited(answer) for answer in answers]
    monkeypatch.setattr(citation_markers, "_SIGNS", _AllForms())
    assert seen == [cited(answer) for answer in answers]
    assert sum(bool(one.marks or one.unread) for one in seen) > len(READ)


@pytest.mark.parametrize(
    "answer",
    [
        "The warranty is 24 months; it begins on the day of purchase, says the shop.",
        "Yes (for example, when it is new), no (i.e. never): 3.5 litres at 20:15.",
        "An in-house resource, 5% of all; the document says so in other words.",
    ],
)
def test_an_answer_without_signs_of_markers_is_read_by_no_pattern(answer: str) -> None:
    assert citation_markers._SIGNS.read(answer) == 0


@each_row(
    ("pages", "passages"),
    [
        ("pages 3-5", [0, 1, 2]),
        ("pp. 4–9", [1, 2]),
        ("p. 4", [1]),
        ("pages 3-999999", [0]),
    ],
)
def test_a_range_of_pages_cites_each_of_them(pages: str, passages: list[int]) -> None:
    manual = [
        {
            "id": f"d{page}",
            "text": f"Page {page}.",
            "metadata": {"file": "manual.pdf", "page": page},
        }
        for page in (3, 4, 5)
    ]
    found = resolve_citations(trace(answer=f"{CLAIM} (manual.pdf, {pages}).", passages=manual))
    assert sorted(index for mark in found.marks for index in mark.passages) == passages


@each_row(
    ("passage", "reads"),
    [
        ({"metadata": {"url": "https://www.youtube.com/watch?v=a"}}, True),
        ({"metadata": {"start": 750.5}}, True),
        ({"metadata": {"timestamp": "00:12:30"}}, True),
        ({"id": "talk.mp3"}, True),
        ({"text": "[00:12:30] Anna: Fill the kettle."}, True),
        ({"metadata": {"timestamp": "2026-11-21T20:15:02Z"}}, False),
        ({"text": "The race began at 12:30."}, False),
    ],
)
def test_a_time_cites_where_passages_are_of_recordings(
    passage: dict[str, Any], reads: bool
) -> None:
    given = [{"id": "talk", "text": "Fill the kettle.", **passage}]
    for time in ("(02:08:17)", "(starting at 12:30)", "(12m30s)"):
        found = resolve_citations(trace(answer=f"One fills the kettle {time}.", passages=given))
        assert bool(found.unread) is reads
        assert found.marks == []


@each_row(
    ("cited", "index"),
    [
        ("[3f2b8c1e]", [0]),
        ("[chunk_a7c0ff]", [1]),
        ("[a7c0ffee…]", [1]),
        ("[3f2b8]", []),
        ("[3f2b9c1e]", []),
        ("(PMID: 31978945)", [2]),
    ],
)
def test_a_shortened_id_cites_its_passage(cited: str, index: list[int]) -> None:
    ids = ("3f2b8c1e-9d4a-4b7c-8e21-0a1b2c3d4e5f", "chunk_a7c0ffee12344abc", "PMID:31978945")
    given = [{"id": one, "text": "The plan has 3 seats."} for one in ids]
    found = resolve_citations(trace(answer=f"The plan has 3 seats {cited}.", passages=given))
    assert [one for mark in found.marks for one in mark.passages] == index
