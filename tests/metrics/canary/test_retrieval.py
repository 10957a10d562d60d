from __future__ import annotations

from collections.abc import Sequence

from ragmeter.core.score import NoScore
from ragmeter.metrics.canary.retrieval import (
    attribution_hit,
    conflict_handled,
    retrieval_names,
    retrieval_scores,
    scope_miss,
)
from ragmeter.trace import Passage, Reference, Support

from tests.tables import each_row

UNKNOWN = NoScore("no_anchor")
NO_SUPPORTS = NoScore("no_supports", applies=False)


def passages(names: str) -> list[Passage]:
    """A passage for each letter, from the document of that name; "?" does not say."""
    return [
        Passage(id=str(n), metadata=None if name == "?" else {"rel_path": name})
        for n, name in enumerate(names)
    ]


def supports(names: str) -> list[Support]:
    return [Support(rel_path=name) for name in names]


def reference(names: str, **fields: object) -> Reference:
    return Reference.model_validate({"supports": supports(names), **fields})


def test_by_hand() -> None:
    found = retrieval_scores(passages("xaxb"), reference("ab"), [1, 2, 4, 9])
    assert list(found) == retrieval_names([1, 2, 4, 9])
    few = NoScore("too_few_passages", applies=False)
    assert [found[f"recall_any_at_k:{k}"] for k in (1, 2, 4, 9)] == [0.0, 1.0, 1.0, 1.0]
    assert [found[f"recall_all_at_k:{k}"] for k in (1, 2, 4, 9)] == [0.0, 0.0, 1.0, 1.0]
    assert [found[f"precision_at_k:{k}"] for k in (1, 2, 4, 9)] == [0.0, 0.5, 0.5, few]
    assert [found[f"reciprocal_rank_at_k:{k}"] for k in (1, 2, 4, 9)] == [0.0, 0.5, 0.5, 0.5]


@each_row(
    ("retrieved", "groups", "found"),
    [
        ("ab", [[0, 1]], 1.0),
        ("a", [[0, 1]], 0.0),  # half of what is needed is not green
        ("c", [[0, 1], [2]], 1.0),
        ("ac", [[0, 1], [1, 2]], 0.0),
        ("abc", [], 1.0),
        ("ab", [], 0.0),
        ("a?", [[0, 1]], UNKNOWN),
        ("?c", [[0, 1], [2]], 1.0),
        ("", [[0]], 0.0),
    ],
)
def test_groups_are_alternatives(
    retrieved: str, groups: Sequence[Sequence[int]], found: float | NoScore
) -> None:
    scores = retrieval_scores(passages(retrieved), reference("abc", support_groups=groups), [5])
    assert scores["recall_all_at_k:5"] == found


def test_passages_that_do_not_say_where_they_are_from() -> None:
    found = retrieval_scores(passages("?a"), reference("a"), [1, 2])
    assert found["recall_any_at_k:1"] == found["recall_all_at_k:1"] == UNKNOWN
    assert found["recall_any_at_k:2"] == found["recall_all_at_k:2"] == 1.0
    assert found["precision_at_k:2"] == found["reciprocal_rank_at_k:2"] == UNKNOWN
    assert set(retrieval_scores(passages("??"), reference("a"), [2]).values()) == {UNKNOWN}
    scores = retrieval_scores(passages("xx?"), reference("a"), [2])
    assert scores["recall_any_at_k:2"] == 0.0  # the unknown one is not looked at


def test_what_is_not_there() -> None:
    assert set(retrieval_scores(None, reference("a"), [1]).values()) == {
        NoScore("no_passages_captured")
    }
    assert set(retrieval_scores(passages("a"), reference(""), [1]).values()) == {NO_SUPPORTS}
    # that nothing was found where there was something to find is a finding
    empty = retrieval_scores([], reference("a"), [3])
    assert empty["precision_at_k:3"] == NoScore("no_passages", applies=False)
    assert {value for name, value in empty.items() if "precision" not in name} == {0.0}


@each_row(
    ("scope", "found"),
    [
        (None, NoScore("no_scope", applies=False)),
        (["docs"], 0.0),
        (["./docs/", "other"], 0.0),
        (["docs/a.md"], 0.0),
        (["doc", "docs/a", "other"], 1.0),
        ([], 1.0),
        ([""], 0.0),
    ],
)
def test_scope_miss(scope: list[str] | None, found: float | NoScore) -> None:
    assert scope_miss([Support(rel_path="docs/a.md"), Support(rel_path="x/b.md")], scope) == found


def test_a_scope_that_can_not_be_judged() -> None:
    assert scope_miss([], ["docs"]) == NO_SUPPORTS
    assert scope_miss([Support(snippet="x")], ["docs"]) == UNKNOWN
    mixed = [Support(rel_path="docs/a.md"), Support(snippet="x")]
    assert scope_miss(mixed, ["docs"]) == 0.0
    assert scope_miss(mixed, ["other"]) == UNKNOWN


def test_attribution_hit() -> None:
    assert attribution_hit(passages("xa"), reference("ab")) == 1.0
    assert attribution_hit(passages("xy"), reference("ab")) == 0.0
    assert attribution_hit([], reference("ab")) == 0.0
    assert attribution_hit(passages("x?"), reference("ab")) == UNKNOWN
    assert attribution_hit(passages("?a"), reference("ab")) == 1.0
    assert attribution_hit(passages("a"), reference("")) == NO_SUPPORTS
    assert attribution_hit(passages("a"), reference("a", answerable=False)) == NoScore(
        "unanswerable", applies=False
    )


def dated(**dates: str | None) -> list[dict[str, str | None]]:
    return [{"rel_path": name, "updated": date} for name, date in dates.items()]


DATED = dated(a="2024-01-01T00:00:00Z", b="2025-06-01T00:00:00Z")


@each_row(("cited", "found"), [("b", 1.0), ("ab", 1.0), ("a", 0.0), ("", 0.0), ("a?", UNKNOWN)])
def test_cite_newer(cited: str, found: float | NoScore) -> None:
    rule = Reference.model_validate({"supports": DATED, "conflict": "cite_newer"})
    assert conflict_handled(passages(cited), rule, False) == found


def test_cite_newer_needs_to_know_which_is_newer() -> None:
    for given in ([], dated(a=None, b=None), dated(a="2024-01-01T00:00:00Z", b=None)):
        rule = Reference.model_validate({"supports": given, "conflict": "cite_newer"})
        assert conflict_handled(passages("b"), rule, False) == NoScore("no_dates")


LANGUAGE = NoScore("language", applies=False)


@each_row(
    ("cited", "acknowledged", "both", "acknowledge"),
    [
        ("ab", True, 1.0, 1.0),
        ("ab", False, 1.0, 0.0),
        ("a", True, 0.0, 0.0),
        ("a?", True, UNKNOWN, UNKNOWN),
        ("a?", False, UNKNOWN, 0.0),
        ("ab", LANGUAGE, 1.0, LANGUAGE),
        ("a", LANGUAGE, 0.0, 0.0),
    ],
)
def test_both_sides_of_a_conflict(
    cited: str, acknowledged: bool | NoScore, both: float | NoScore, acknowledge: float | NoScore
) -> None:
    for rule, found in (("cite_both", both), ("acknowledge_both", acknowledge)):
        given = reference("ab", conflict=rule)
        assert conflict_handled(passages(cited), given, acknowledged) == found
    assert (
        conflict_handled(passages("a"), reference("a", conflict="cite_both"), True) == NO_SUPPORTS
    )


def test_no_conflict_no_score() -> None:
    assert conflict_handled(passages("a"), reference("ab"), True) == NoScore(
        "no_conflict", applies=False
    )
