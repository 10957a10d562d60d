"""What waits for which trace."""

from __future__ import annotations

from ragmeter.aggregate.feedback_join import WaitingFeedback


def test_what_has_come_is_ready_once() -> None:
    waiting = WaitingFeedback()
    for number, trace in ((3, b"a"), (1, b"a"), (2, b"b")):
        waiting.add(number, trace, 10.0 * number)
    assert waiting.ready(9) == []
    waiting.arrived(b"a")
    waiting.arrived(b"never heard of")
    assert waiting.ready(1) == [1]
    assert waiting.ready(9) == waiting.waiting_for(b"a") == [1, 3]
    waiting.forget(1)
    assert waiting.ready(9) == [3]
    assert (len(waiting), 1 in waiting, 3 in waiting) == (2, False, True)


def test_the_oldest_and_those_that_wait_too_long() -> None:
    waiting = WaitingFeedback()
    for number, since in ((1, 30.0), (2, 10.0), (3, 20.0)):
        waiting.add(number, b"%d" % number, since)
    assert waiting.waiting_since_before(20.0) == [2]
    assert waiting.oldest(2) == [1, 2]
    for number in (1, 2, 3, 3):
        waiting.forget(number)
    assert (len(waiting), waiting.waiting_since_before(99.0), waiting.waiting_for(b"1")) == (
        0,
        [],
        [],
    )
