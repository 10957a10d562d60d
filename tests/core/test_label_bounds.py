from __future__ import annotations

from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from ragmeter.core.label_bounds import OTHER_LABEL, LabelBounds, LabelState, bound_label
from ragmeter.core.name_admission import AdmissionState, NameAdmission

_T = TypeVar("_T")


def test_long_values_are_cut_and_stay_apart() -> None:
    one, two = bound_label("a" * 500 + "1", 40), bound_label("a" * 500 + "2", 40)
    assert len(one) == len(two) == 40
    assert one != two


def test_control_characters_become_spaces() -> None:
    assert bound_label("a\nb\x1b[31m\u202ec", 40) == "a b [31m c"


@given(st.text(), st.integers(8, 200))
def test_any_text_becomes_a_printable_label_within_the_limit(text: str, limit: int) -> None:
    label = bound_label(text, limit)
    assert 0 < len(label) <= limit
    assert not any(ord(char) < 32 for char in label)


def test_over_the_number_everything_is_other_and_counted() -> None:
    reported: list[str] = []
    bounds = LabelBounds(2, 1, 50, reported.append)
    assert [bounds.service(name) for name in ("a", "b", "c", "a")] == ["a", "b", OTHER_LABEL, "a"]
    assert bounds.segment("a", "model", "x") == "model=x"
    assert bounds.segment("a", "model", "y") == f"model={OTHER_LABEL}"
    assert reported == ["service", "model"]


def test_a_service_without_data_frees_its_place() -> None:
    bounds = LabelBounds(1, 1, 50, lambda label: None)
    bounds.service("old")
    assert bounds.service("new") == OTHER_LABEL
    assert bounds.retain_services([]) == ["old"]
    assert bounds.service("new") == "new"


def test_a_late_trace_takes_no_place() -> None:
    bounds = LabelBounds(1, 1, 50, lambda label: None)
    assert bounds.service("old", admit=False) == OTHER_LABEL
    assert bounds.service("new") == "new"
    assert bounds.service("new", admit=False) == "new"


def test_what_is_kept_of_a_value_is_bounded() -> None:
    bounds = LabelBounds(1, 5, 20, lambda label: None)
    bounds.segment("a", "model", "m" * 1_000_000)
    assert len(str(bounds.state().segments)) < 100


def test_a_segment_value_without_data_frees_its_place() -> None:
    bounds = LabelBounds(1, 2, 50, lambda label: None)
    for version in ("v1", "v2"):
        bounds.segment("a", "prompt", version)
    assert bounds.services_with_full_segments() == ["a"]
    bounds.retain_segments("a", ["prompt=v2"])
    assert bounds.segment("a", "prompt", "v3") == "prompt=v3"
    assert bounds.services_with_full_segments() == ["a"]


def saved_again(kind: type[_T], state: _T) -> _T:
    """A state as it comes back from JSON."""
    adapter = TypeAdapter(kind)
    return adapter.validate_json(adapter.dump_json(state))


def test_a_state_is_restored() -> None:
    bounds = LabelBounds(2, 1, 50, lambda label: None)
    bounds.service("a")
    bounds.segment("a", "model", "x")
    again = LabelBounds(2, 1, 50, lambda label: None)
    again.restore(saved_again(LabelState, bounds.state()))
    assert again.state() == bounds.state()
    assert again.segment("a", "model", "y") == f"model={OTHER_LABEL}"


MINUTE = 60.0


def squatted(limit: int = 100) -> NameAdmission:
    names = NameAdmission(limit)
    for number in range(limit):
        assert names.admit(f"made-up-{number}", 0.0)
    return names


def test_made_up_names_keep_a_service_out_for_minutes_and_not_for_a_day() -> None:
    names = squatted()
    seen = [names.admit("honest", second) for second in range(0, 300, 5)]
    assert not any(seen[:12])
    assert seen.index(True) * 5 <= 180
    assert names.admit("honest", None)


def test_a_flood_of_new_names_hides_no_service_that_keeps_sending() -> None:
    names = squatted()
    for second in range(600):
        for number in range(20):
            assert not names.admit(f"flood-{second}-{number}", float(second))
        if names.admit("honest", float(second)):
            break
    assert second < 360
    assert len(names.state.waiting) <= 200


def test_a_name_of_two_minutes_takes_no_place_however_silent_the_others_are() -> None:
    names = squatted(1)
    day = 24 * 60 * MINUTE  # after which nothing is left of what was seen of the other
    assert not names.admit("made-up-again", day)
    assert not names.admit("made-up-again", day + MINUTE)
    assert names.admit("made-up-again", day + 2 * MINUTE)


def test_those_who_keep_sending_keep_their_places() -> None:
    names = NameAdmission(2)
    for minute in range(500):
        for name in ("one", "two", "late"):
            assert names.admit(name, minute * MINUTE) is (name != "late")


def test_few_at_a_time_lose_their_places() -> None:
    names = squatted(8)
    for minute in range(1, 60):
        for number in range(8):
            names.admit(f"steady-{number}", minute * MINUTE)
    leaving = set(names.state.leaving)
    assert len(names.state.admitted) == 8
    assert len(leaving) == 2
    assert names.retain([*names.state.admitted]) == leaving
    for minute in range(60, 65):
        for number in range(8):
            names.admit(f"steady-{number}", minute * MINUTE)
    assert sum(name.startswith("steady") for name in names.state.admitted) == 4


def test_reserved_services_always_have_a_place() -> None:
    bounds = LabelBounds(1, 1, 50, lambda label: None, ["mine", "yours"])
    assert [bounds.service(name) for name in ("a", "b", "mine", "yours")] == [
        "a",
        OTHER_LABEL,
        "mine",
        "yours",
    ]
    for minute in range(10):
        bounds.service("c", now=minute * MINUTE)
    assert [bounds.service(name) for name in ("a", "c", "mine")] == [OTHER_LABEL, "c", "mine"]


def test_others_are_named_those_with_most_traffic_over_time_first() -> None:
    bounds = LabelBounds(1, 1, 50, lambda label: None)
    for minute in range(3):
        bounds.service("first", now=minute * MINUTE)
        bounds.service("often\n", now=minute * MINUTE)
    for _ in range(100):
        bounds.service("at once", now=2 * MINUTE)
    assert bounds.others() == ["often", "at once"]


def test_saved_evidence_is_restored() -> None:
    names = squatted(2)
    names.admit("new", 10.0)
    again = NameAdmission(2)
    again.state = saved_again(AdmissionState, names.state)
    assert again.state == names.state
