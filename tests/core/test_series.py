from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pydantic import TypeAdapter
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.series import (
    CONFIRMING_SCORES,
    MAX_FINGERPRINTS,
    OTHER_FINGERPRINT,
    FingerprintRegistry,
    SeriesState,
    is_overflow_series,
    split_scorer,
)

from tests.tables import each_row

PAIR = ("relevance", "umbrela")


def by(fingerprint: str | None, metric: str = "relevance") -> Score:
    return Score(metric, "umbrela", ScoreState.SCORED, 2.0, fingerprint=fingerprint)


def notified(marks: FingerprintRegistry, fingerprints: Iterable[str | None]) -> int:
    return sum(marks.assign_series(by(fingerprint))[1] for fingerprint in fingerprints)


def test_what_comes_without_the_current_in_between_is_current_and_told() -> None:
    marks = FingerprintRegistry()
    assert marks.assign_series(by(None)) == ("umbrela", False)
    assert marks.assign_series(by("f1")) == ("umbrela@f1", False)  # the first changes nothing
    assert marks.current == {PAIR: "umbrela@f1"}
    for _ in range(CONFIRMING_SCORES - 1):
        assert marks.assign_series(by("f2")) == ("umbrela@f2", False)
        assert marks.assign_series(by(None)) == ("umbrela", False)
    assert marks.current == {PAIR: "umbrela@f1"}
    assert marks.assign_series(by("f2")) == ("umbrela@f2", True)
    assert marks.current == {PAIR: "umbrela@f2"}
    assert notified(marks, ["f2"] * 50) == 0
    assert notified(marks, ["f1"] * 50) == 1  # also back to what is known
    assert marks.current == {PAIR: "umbrela@f1"}


@each_row("seed", range(20))
def test_results_under_way_at_a_change_make_one_event_in_any_order(seed: int) -> None:
    """16 traces in flight: some by the old judge, some by both, in the order that chance gives."""
    rng = random.Random(seed)
    flight = ["f1"] * 6 + [f"both{n}" for n in range(4)] + ["f2"] * 6
    rng.shuffle(flight)
    marks = FingerprintRegistry()
    late = ["f2"] * 40 + ["f1", "both5"] + ["f2"] * 40
    assert notified(marks, ["f1"] * 100 + flight + late) == 1
    assert marks.current == {PAIR: "umbrela@f2"}


@pytest.mark.parametrize(
    ("series", "parts"), [("umbrela@f1", ("umbrela", "f1")), ("builtin", ("builtin", ""))]
)
def test_the_name_of_a_series_is_read_back(series: str, parts: tuple[str, str]) -> None:
    assert split_scorer(series) == parts


def test_beyond_the_bound_all_share_one_series() -> None:
    marks = FingerprintRegistry()
    for number in range(MAX_FINGERPRINTS):
        assert not marks.full
        marks.assign_series(by(f"f{number}"))
    assert marks.full
    assert notified(marks, ["one more"] * 50) == 0
    assert marks.current == {PAIR: "umbrela@f0"}  # a mixture is never current
    assert is_overflow_series(marks.assign_series(by("one more"))[0])
    assert not is_overflow_series("umbrela@f0")
    assert not is_overflow_series("umbrela")
    assert marks.assign_series(by("and one more")) == (f"umbrela@{OTHER_FINGERPRINT}", False)
    assert marks.assign_series(by("f0")) == ("umbrela@f0", False)


def test_what_no_window_holds_makes_room() -> None:
    """A judge that changes each month must not end in one series for all that is to come."""
    marks = FingerprintRegistry()
    for number in range(MAX_FINGERPRINTS + 5):
        marks.assign_series(by(f"f{number}"))
    notified(marks, ["f3"] * CONFIRMING_SCORES + ["f2", "f4"])
    marks.retain({("relevance", "umbrela@f2"), ("answered", "umbrela@f1")})
    assert not marks.full
    (kept,) = marks.state()
    assert (kept.seen, kept.current, kept.since) == (["f2", "f3"], "umbrela@f3", {"f2": 1})
    assert marks.assign_series(by("new")) == ("umbrela@new", False)


def test_a_restart_goes_on_where_it_was() -> None:
    marks, again = FingerprintRegistry(), FingerprintRegistry()
    notified(marks, ["f1"] + ["f2"] * CONFIRMING_SCORES + ["f1"] * (CONFIRMING_SCORES - 1))
    current = again.current  # windows hold on to it
    states = TypeAdapter(list[SeriesState])
    again.restore(states.validate_json(states.dump_json(marks.state())))
    assert current == {PAIR: "umbrela@f2"}
    assert again.assign_series(by("f1")) == ("umbrela@f1", True)
    assert current == {PAIR: "umbrela@f1"}
