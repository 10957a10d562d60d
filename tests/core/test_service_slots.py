"""Numbers for services, and the parts of a saved state that go by them."""

from __future__ import annotations

from ragmeter.core.label_bounds import ServiceSlots


def test_a_service_keeps_its_place_and_a_free_one_is_given_again() -> None:
    places = ServiceSlots()
    assert [places.slot_of(name) for name in ("a", "b", "c", "b")] == [0, 1, 2, 1]
    places.retain(["a", "c"])
    assert [places.slot_of(name) for name in ("d", "e", "c")] == [1, 3, 2]


def test_places_come_back_from_what_was_dumped() -> None:
    places, other = ServiceSlots(), ServiceSlots()
    for name in ("a", "b"):
        places.slot_of(name)
    other.load(places.dump())
    assert (other.slot_of("c"), other.slot_of("b")) == (2, 1)


def test_parts_are_those_of_services_that_still_have_their_place() -> None:
    places = ServiceSlots()
    places.load({"a": 0, "b": 1, "c": 12})
    state = {
        "drift": {"service": "a"},  # the small part has no place
        "drift.0": {"service": "a", "x": 1},
        "drift.1": {"service": "gone", "x": 2},
        "drift.2": {"service": "gone"},
        "drift.12.3": [["c", 4]],
        "drift.0.7": [["a", 5]],
        "other.0": {"service": "a"},
        "wall_time": 3.0,
    }
    assert list(places.saved_states(state, "drift")) == [("a", {"service": "a", "x": 1})]
    assert [found for found in places.saved_entries(state, "drift") if found[1]] == [
        ("c", "3", [["c", 4]]),
        ("a", "7", [["a", 5]]),
    ]


def test_a_service_that_has_no_part_is_left_out() -> None:
    places = ServiceSlots()
    places.slot_of("a")
    assert list(places.saved_states({}, "drift")) == []
