"""Lines of the log that anybody can cause."""

from __future__ import annotations

from ragmeter.core.report_pace import REPORT_SECONDS, ReportPace


def test_each_reason_has_a_line_a_minute() -> None:
    now = [0.0]
    pace = ReportPace(lambda: now[0])
    assert [pace.is_due(reason) for reason in ("a", "a", "b", "a")] == [True, False, True, False]
    now[0] = REPORT_SECONDS - 1
    assert not pace.is_due("a")
    now[0] = REPORT_SECONDS
    assert pace.is_due("a")
    assert not pace.is_due("a")


def test_reasons_that_a_client_makes_up_are_bounded() -> None:
    pace = ReportPace(lambda: 0.0)
    assert sum(pace.is_due(f"reason {number}") for number in range(1_000)) == 20


def test_reasons_of_long_ago_take_no_place() -> None:
    now = [0.0]
    pace = ReportPace(lambda: now[0], 600.0)
    for number in range(1_000):
        pace.is_due(f"reason {number}")
    now[0] = 599.0
    assert not pace.is_due("another")
    now[0] = 600.0
    assert pace.is_due("another")
    assert not pace.is_due("another")
