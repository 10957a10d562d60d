from __future__ import annotations

from ragmeter.core.clocks import EventClock


def test_nothing_is_known_before_the_first_event() -> None:
    assert EventClock().now(5.0) is None


def test_it_moves_on_from_where_the_events_left_it() -> None:
    time = EventClock()
    time.observe(1_000.0, tick=50.0)
    assert time.now(50.0) == 1_000.0
    assert time.now(80.0) == 1_030.0
    assert time.now(40.0) == 1_000.0  # never back


def test_an_earlier_event_changes_nothing() -> None:
    time = EventClock()
    time.observe(1_000.0, tick=50.0)
    time.observe(900.0, tick=60.0)
    assert time.now(60.0) == 1_010.0


def test_a_restart_counts_the_time_that_the_agent_was_down() -> None:
    time = EventClock()
    time.restore(1_000.0, down=300.0, tick=7.0)
    assert time.now(8.0) == 1_301.0
    time.restore(1_000.0, down=-300.0, tick=7.0)  # the wall clock was set back
    assert time.now(7.0) == 1_000.0
