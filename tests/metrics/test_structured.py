from __future__ import annotations

import json

from ragmeter.metrics.structured import (
    RecordConflicts,
    find_conflicts,
    looks_structured,
    read_entries,
    read_record,
    spread_camel_case,
)

RECORD = json.dumps(
    {
        "name": "Pizza Place",
        "hours": {"Monday": "9:0-17:0", "Tuesday": "9:0-17:0", "Sunday": "11:0-14:30"},
        "attributes": {
            "RestaurantsReservations": True,
            "OutdoorSeating": False,
            "RestaurantsDelivery": None,
        },
    }
)


def check(answer: str) -> RecordConflicts:
    return find_conflicts(read_record([read_entries(spread_camel_case(RECORD))]), answer)


def test_structured_text_is_recognised() -> None:
    assert looks_structured(RECORD)
    assert not looks_structured('He said: "no", and left. It was 5:30.')


def test_a_denied_flag_told_as_true_is_a_conflict() -> None:
    assert check("It offers outdoor seating.").denied >= 1
    assert check("It does not offer outdoor seating.").denied == 0
    assert check("It doesn't take reservations.").denied >= 1
    assert check("It takes reservations.").agreed >= 1


def test_a_no_holds_through_a_list_but_not_beyond_but() -> None:
    assert check("It does not offer music, valet or outdoor seating.").denied == 0
    assert check("It has no music, but it offers outdoor seating.").denied >= 1


def test_an_unknown_flag_can_be_told_neither_way() -> None:
    assert check("Delivery is offered.").unknown == 1
    assert check("Delivery is not offered.").unknown == 1


def test_hours_are_compared_by_weekday() -> None:
    assert check("Open on Mondays and Tuesdays from 9 AM to 5 PM.").hours == 0
    assert check("Open on Mondays and Tuesdays from 9 AM to 5 PM.").hours_agreed == 2
    assert check("Open daily from 9 AM to 5 PM.").hours == 5  # four days unknown, Sunday wrong
    assert check("Open on Sunday from 10:00.").hours == 1
