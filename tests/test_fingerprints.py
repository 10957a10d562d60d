from __future__ import annotations

import json

import pytest

from agent.fingerprints import MAX_FINGERPRINTS, OTHER, Fingerprints, split_scorer
from agent.trace import Score, State

PAIR = ("relevance", "umbrela")


def by(fingerprint: str | None, metric: str = "relevance") -> Score:
    return Score(metric, "umbrela", State.SCORED, 2.0, fingerprint=fingerprint)


def test_the_newest_fingerprint_is_current_and_a_new_one_is_told() -> None:
    marks = Fingerprints()
    assert marks.series(by(None)) == ("umbrela", False)
    assert marks.series(by("f1")) == ("umbrela@f1", False)  # the first changes nothing
    assert marks.series(by("f2")) == ("umbrela@f2", True)
    assert marks.series(by("f2")) == ("umbrela@f2", False)
    assert marks.series(by(None)) == ("umbrela", False)
    assert marks.series(by("f1")) == ("umbrela@f1", False)  # back to what is known
    assert marks.current == {PAIR: "umbrela@f1"}


@pytest.mark.parametrize(
    ("series", "parts"), [("umbrela@f1", ("umbrela", "f1")), ("builtin", ("builtin", ""))]
)
def test_the_name_of_a_series_is_read_back(series: str, parts: tuple[str, str]) -> None:
    assert split_scorer(series) == parts


def test_beyond_the_bound_all_share_one_series() -> None:
    marks = Fingerprints()
    for number in range(MAX_FINGERPRINTS):
        assert not marks.full
        marks.series(by(f"f{number}"))
    assert marks.full
    assert marks.series(by("one more")) == (f"umbrela@{OTHER}", True)
    assert marks.series(by("and one more")) == (f"umbrela@{OTHER}", False)
    assert marks.series(by("f0")) == ("umbrela@f0", False)


def test_what_no_window_holds_makes_room() -> None:
    """A judge that changes each month must not end in one series for all that is to come."""
    marks = Fingerprints()
    for number in range(MAX_FINGERPRINTS + 5):
        marks.series(by(f"f{number}"))
    marks.series(by("f3"))
    marks.keep({("relevance", "umbrela@f2"), ("answered", "umbrela@f1")})
    assert not marks.full
    assert marks.dump() == [["relevance", "umbrela", ["f2", "f3"], "umbrela@f3"]]
    assert marks.series(by("new")) == ("umbrela@new", True)


def test_a_restart_goes_on_where_it_was() -> None:
    marks, again = Fingerprints(), Fingerprints()
    for mark in ("f1", "f2"):
        marks.series(by(mark))
    current = again.current  # windows hold on to it
    again.load(json.loads(json.dumps(marks.dump())))
    assert current == {PAIR: "umbrela@f2"}
    assert again.series(by("f1")) == ("umbrela@f1", False)
    assert again.series(by("f3")) == ("umbrela@f3", True)
