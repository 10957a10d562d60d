from __future__ import annotations

from typing import Any

import pytest
from ragmeter.metrics.canary import retrieval
from ragmeter.metrics.canary.retrieval import any_match, match_supports, split_headings
from ragmeter.trace import Passage, Support

from tests.tables import each_row

PASSAGE = Passage(
    id="p",
    text="There is no  built-in string\nsort in Go.",
    metadata={
        "rel_path": "Software/LeetCode Tips.md",
        "heading_path": "# Go > ## Tips  &  Oddities",
    },
)


def matches(passage: Passage, support: Support) -> bool | None:
    ((found,),) = match_supports([passage], [support])
    return found


def matches_any(passage: Passage, supports: list[Support]) -> bool | None:
    return any_match(match_supports([passage], supports)[0])


def passage(**metadata: Any) -> Passage:
    return Passage(id="p", text="words", metadata=metadata)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Guide>##  Set-up > ### On  Linux ", ["Guide", "Set-up", "On Linux"]),
        ("C# > F#", ["C#", "F#"]),
        (" > ", []),
        ("", []),
    ],
)
def test_headings(text: str, found: list[str]) -> None:
    assert split_headings(text) == found


@each_row(
    ("support", "found"),
    [
        ({"rel_path": "Software/LeetCode Tips.md"}, True),
        ({"rel_path": "./Software/LeetCode Tips.md", "heading_path": "Go"}, True),
        ({"rel_path": "Software/LeetCode Tips.md", "heading_path": "Go > Tips & Oddities"}, True),
        (
            {"rel_path": "Software/LeetCode Tips.md", "heading_path": "Go > Tips & Oddities > x"},
            False,
        ),
        ({"rel_path": "Software/LeetCode Tips.md", "heading_path": "Tips & Oddities"}, False),
        ({"rel_path": "Software/LeetCode Tips.md", "heading_path": "G"}, False),  # no whole heading
        ({"rel_path": "software/leetcode tips.md"}, False),
        ({"rel_path": "Software/LeetCode Tips.md", "snippet": "NO built-in string sort"}, True),
        ({"rel_path": "Software/LeetCode Tips.md", "snippet": "no sort"}, False),
        ({"snippet": "string sort"}, True),
        ({"heading_path": "Go"}, True),
        ({}, None),
        ({"snippet": " ", "heading_path": ">"}, None),
    ],
)
def test_a_place_is_document_heading_and_snippet(
    support: dict[str, str], found: bool | None
) -> None:
    assert matches(PASSAGE, Support(**support)) is found


def test_what_a_passage_does_not_say_is_unknown() -> None:
    place = Support(rel_path="a.md", heading_path="Go", snippet="words")
    assert matches(Passage(id="p", text="words"), place) is None
    assert matches(passage(rel_path="a.md"), place) is None
    assert matches(passage(rel_path="b.md"), place) is False  # whatever else it does not say
    assert matches(passage(rel_path="a.md", heading_path=""), place) is False  # above any heading
    assert matches(passage(rel_path="a.md", heading_path=["Go", "Tips"]), place) is True
    assert matches(passage(rel_path=7, heading_path={"a": 1}), place) is None
    bare = Passage(id="p", metadata={"rel_path": "a.md", "heading_path": "Go"})
    assert matches(bare, place) is None


def test_decomposed_names_are_the_same() -> None:
    assert matches(passage(rel_path="Cafe\u0301.md"), Support(rel_path="Café.md")) is True


def test_any_place() -> None:
    here, there = Support(rel_path="a.md"), Support(rel_path="b.md", heading_path="x")
    assert matches_any(passage(rel_path="a.md"), [there, here]) is True
    assert matches_any(passage(rel_path="c.md"), [there, here]) is False
    assert matches_any(passage(rel_path="b.md"), [there, here]) is None
    assert matches_any(passage(rel_path="a.md"), []) is False


def test_a_snippet_is_the_same_in_every_form_of_unicode() -> None:
    decomposed = Passage(id="p", text="Im CAFE\u0301 um die Ecke")
    assert matches(decomposed, Support(snippet="caf\u00e9 um")) is True


def test_a_text_is_read_once_for_all_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference comes from anyone: with each pair read anew, 200 supports against 50 passages of
    10 kB took seconds."""
    reads = []

    def folded(text: str) -> str:
        reads.append(text)
        return text

    monkeypatch.setattr(retrieval, "_folded", folded)
    passages = [Passage(id=str(n), text=f"text {n}") for n in range(5)]
    supports = [Support(snippet=f"snippet {n}") for n in range(7)]
    assert match_supports(passages, supports) == [[False] * 7] * 5
    assert sorted(reads) == sorted(
        [*(p.text or "" for p in passages), *(s.snippet or "" for s in supports)]
    )
