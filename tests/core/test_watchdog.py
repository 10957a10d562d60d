"""Work that waits while nothing moves is seen; rest is not."""

from __future__ import annotations

from ragmeter.core.process import MAX_CHECK_SECONDS, Watchdog, is_unready


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_that_nobody_does_is_seen() -> None:
    clock = Clock()
    stalls: Watchdog[str] = Watchdog(clock)
    assert stalls.update({"queue": 4}) == {"queue": 0}
    for turn in range(1, 5):
        clock.now += 10
        assert stalls.update({"queue": 4}) == {"queue": 10 * turn}
    assert stalls.update({"queue": 5}) == {"queue": 0}
    clock.now += 5
    assert stalls.update({"queue": 5}) == {"queue": 5}
    assert stalls.update({"queue": 5}, common=1) == {"queue": 0}, "all had a reason to wait"


def test_rest_is_no_stall() -> None:
    clock = Clock()
    stalls: Watchdog[str] = Watchdog(clock)
    for _ in range(3):
        assert stalls.update({"queue": 4}) == {"queue": 0}
        clock.now += 1000
        assert stalls.update({"queue": None}) == {}
        clock.now += 1000
    assert stalls.update({}) == {}


def test_one_that_stands_still_among_others_is_seen_first() -> None:
    clock = Clock()
    stalls: Watchdog[str] = Watchdog(clock)
    for turn in range(5):
        found = stalls.update({"moving": turn, "still": 4})
        assert next(iter(found.items())) == ("still" if turn else "moving", 10 * turn)
        assert found["moving"] == 0
        clock.now += 10
    assert stalls.update({"moving": 9}) == {"moving": 0}, "somebody else has the other now"
    assert stalls.update({"moving": 9, "still": 4})["still"] == 0


def test_a_process_that_stood_still_as_a_whole_has_not_stalled() -> None:
    clock = Clock()
    stalls: Watchdog[str] = Watchdog(clock)
    stalls.update({"queue": 4})
    clock.now += 3600
    assert stalls.update({"queue": 4}) == {"queue": MAX_CHECK_SECONDS}


def test_readiness_goes_long_before_the_process() -> None:
    assert not is_unready(30, 120)
    assert is_unready(30.1, 120)
