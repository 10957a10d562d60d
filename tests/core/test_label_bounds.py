from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragmeter.core.label_bounds import OTHER_LABEL, LabelBounds, bound_label


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
    said: list[str] = []
    bounds = LabelBounds(2, 1, 50, said.append)
    assert [bounds.service(name) for name in ("a", "b", "c", "a")] == ["a", "b", OTHER_LABEL, "a"]
    assert bounds.segment("a", "model", "x") == "model=x"
    assert bounds.segment("a", "model", "y") == f"model={OTHER_LABEL}"
    assert said == ["service", "model"]


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
    assert len(str(bounds.dump())) < 100


def test_a_segment_value_without_data_frees_its_place() -> None:
    bounds = LabelBounds(1, 2, 50, lambda label: None)
    for version in ("v1", "v2"):
        bounds.segment("a", "prompt", version)
    assert bounds.services_with_full_segments() == ["a"]
    bounds.retain_segments("a", ["prompt=v2"])
    assert bounds.segment("a", "prompt", "v3") == "prompt=v3"
    assert bounds.services_with_full_segments() == ["a"]


def test_dump_and_load() -> None:
    bounds = LabelBounds(2, 1, 50, lambda label: None)
    bounds.service("a")
    bounds.segment("a", "model", "x")
    again = LabelBounds(2, 1, 50, lambda label: None)
    again.load(bounds.dump())
    assert again.dump() == bounds.dump()
    assert again.segment("a", "model", "y") == f"model={OTHER_LABEL}"
