from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from ragmeter.scorers.llm.served_model import (
    ABSENT,
    MAX_IDENTITIES,
    MAX_IN_TURN,
    PAUSE,
    ServedModel,
    ServedModelHistory,
)

from tests.scorers.judge.asking import Clock
from tests.tables import each_row

A, B, C = (ServedModel("m", name) for name in "abc")


class Judged:
    """Epochs on a clock that goes on by `step` seconds a reply."""

    def __init__(self, state: object = None, step: float = 1.0) -> None:
        self.clock = Clock()
        self.step = step
        self.epochs = ServedModelHistory(self.clock, state)

    def hear(self, replies: Iterable[ServedModel]) -> list[ServedModel]:
        found = []
        for reply in replies:
            self.clock.now += self.step
            found.append(self.epochs.observe(reply))
            assert found[-1] == self.epochs.current
        return found


def changes(found: list[ServedModel]) -> list[ServedModel]:
    """The first of each run of equal ones."""
    return [one for n, one in enumerate(found) if n == 0 or one != found[n - 1]]


@each_row("seed", range(10))
@each_row(
    ("count", "step"),  # one of eight may well be missed for the 20 replies of a slow absence
    [(2, 0.01), (3, 0.01), (8, 0.01), (2, 1.0), (3, 1.0), (8, 1.0), (2, PAUSE), (2, 3600.0)],
)
def test_builds_in_turn_are_one_epoch_after_the_first_replies(
    seed: int, count: int, step: float
) -> None:
    rng = random.Random(seed)
    builds = [ServedModel("m", f"fp{n}") for n in range(count)]
    replies = rng.choices(builds, k=3000)
    found = Judged(step=step).hear(replies)
    first = max(replies.index(one) for one in builds)
    assert set(found[first:]) == {replies[first]}
    # the scores of every build are in that series, in their proportions: no selection
    assert set(Counter(replies[first:])) == set(builds)


def test_a_new_build_or_model_is_an_epoch_at_once() -> None:
    judged = Judged()
    other = ServedModel("m2", "a")
    assert changes(judged.hear([A] * 5 + [B] * 5 + [other] * 5)) == [A, B, other]


def test_a_lone_reply_of_another_costs_two_events_and_no_more() -> None:
    found = Judged().hear([A] * 900 + [B] + [A] * 3000)
    assert changes(found) == [A, B, A]
    assert found[900:].index(A) == ABSENT + 1


@pytest.mark.parametrize("step", [0.5, 5.0, 300.0])
def test_the_way_back_is_seen_after_an_absence_of_use(step: float) -> None:
    judged = Judged(step=step)
    assert set(judged.hear([A] * 50)) == {A}
    assert set(judged.hear([B] * 10)) == {B}
    back = judged.hear([A] * 3000)
    assert changes(back) == [B, A]
    assert back.index(A) == ABSENT // min(step, PAUSE)
    assert changes(judged.hear([B] * 3000)) == [B]  # by then it was absent


def test_who_returns_after_an_absence_begins_an_epoch() -> None:
    judged = Judged()
    assert changes(judged.hear([A, B] * 9)) == [A, B]
    assert changes(judged.hear([B] * 900)) == [B]
    assert changes(judged.hear([A, B] * 500)) == [A]


def test_nobody_is_absent_after_a_quiet_night() -> None:
    judged = Judged()
    judged.hear([A, B] * 50)
    for _ in range(10):
        judged.clock.now += 36_000
        assert set(judged.hear([A, B] * 50)) == {B}


@pytest.mark.parametrize("step", [0.01, 1.0, 3600.0])
def test_a_server_that_makes_them_up_says_nothing(
    step: float, caplog: pytest.LogCaptureFixture
) -> None:
    judged = Judged(step=step)
    found = judged.hear(ServedModel("m", f"fp{n}") for n in range(5000))
    assert set(found[MAX_IN_TURN:]) == {ServedModel("m")}
    assert caplog.text.count("system_fingerprints") == 1
    state = judged.epochs.state()
    assert len(state["known"]) <= MAX_IDENTITIES
    assert len(state["replies"]) <= MAX_IDENTITIES
    again = Judged(state, step)
    assert set(again.hear(ServedModel("m", f"again{n}") for n in range(100))) == {ServedModel("m")}
    # another model beside it keeps its builds
    assert changes(again.hear([ServedModel("n", "a")] * 5)) == [ServedModel("n", "a")]


def test_it_is_believed_again_when_it_stops() -> None:
    judged = Judged()
    judged.hear(ServedModel("m", f"fp{n}") for n in range(50))
    found = judged.hear([A, B] * 1000)
    assert changes(found) in (
        [ServedModel("m"), A],
        [ServedModel("m"), B],
        [ServedModel("m"), A, B],
    )
    assert set(found[int(ABSENT) + 2 :]) <= {A, B}


def test_eight_or_nine_builds_do_not_switch_to_and_fro() -> None:
    rng = random.Random(1)
    builds = [ServedModel("m", f"fp{n}") for n in range(9)]
    judged = Judged()
    judged.hear(builds * 5)
    weights = [1.0] * 8 + [1 / 1000]  # the ninth is absent most of the time
    assert set(judged.hear(rng.choices(builds, weights, k=20_000))) == {ServedModel("m")}


def test_made_up_models_say_nothing_either() -> None:
    found = Judged().hear(ServedModel(f"m{n}", "fp") for n in range(500))
    assert set(found[MAX_IN_TURN:]) == {ServedModel()}


@each_row("seed", range(5))
def test_a_restart_goes_on_with_the_same_epoch(seed: int) -> None:
    rng = random.Random(seed)
    before = Judged()
    before.hear([C] * 3)
    before.hear([B] * 900)  # by now C is absent
    before.hear([A, B] * 10)
    state = json.loads(json.dumps(before.epochs.state()))
    after = Judged(state)
    assert after.epochs.current == A
    assert set(after.hear(rng.choices([A, B], k=500))) == {A}
    assert changes(after.hear([C] * 3)) == [C]
    gone = Judged(state)  # the build of that name went in the meantime
    assert changes(gone.hear([B] * 900)) == [A, B]


@each_row(
    "state",
    [
        3,
        [],
        {},
        {"current": None, "known": [["m", "a"]]},
        {"current": ["m"], "known": 3},
        {"current": [1, 2]},
        {"model": "m", "system_fingerprint": "a"},
    ],
)
def test_a_state_of_another_shape_is_no_state(state: object) -> None:
    judged = Judged(state)
    assert judged.epochs.current is None
    assert judged.hear([A]) == [A]


@pytest.mark.parametrize("known", [3, None, {}, [3, [], ["m", 1], None]])
def test_damaged_parts_of_a_state_are_left_out(known: object) -> None:
    judged = Judged({"current": ["m", "a"], "known": known, "replies": known})
    assert judged.hear([A] * 3) == [A] * 3
    assert judged.hear([B]) == [B]


def test_a_clock_that_goes_back_does_no_harm() -> None:
    judged = Judged(step=-5.0)
    assert changes(judged.hear([A, B] * 300)) == [A, B]
