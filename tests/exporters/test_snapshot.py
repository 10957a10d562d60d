from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from exporters.snapshot import segment_labels, split_segment, take
from tests.exporters.fakes import as_reading, everything


def test_tags_become_label_names() -> None:
    tags = ["model", "prompt-version", "prompt.version", "service", "le", "2nd", "_x", "größe"]
    assert segment_labels(tags) == {
        "model": "model",
        "prompt-version": "prompt_version",
        "prompt.version": "prompt_version_2",
        "service": "tag_service",
        "le": "tag_le",
        "2nd": "tag_2nd",
        "_x": "tag__x",
        "größe": "gr__e",
    }


@given(st.lists(st.text(max_size=8), unique=True, max_size=8))
def test_label_names_are_valid_and_differ(tags: list[str]) -> None:
    names = list(segment_labels(tags).values())
    assert len(set(names)) == len(tags)
    assert all(re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)


def test_the_value_of_a_segment_may_hold_equals_signs() -> None:
    assert split_segment("model=a=b", ["model"]) == ("model", "a=b")
    assert split_segment("a=b=c", ["a", "a=b"]) == ("a=b", "c")


def test_a_snapshot_changes_no_more() -> None:
    reading = everything()
    snapshot = take(as_reading(reading))
    before = len(snapshot.counters), snapshot.alerts[0].state
    reading.counters.inc("more")
    reading.told[0].state = "resolved"
    assert (len(snapshot.counters), snapshot.alerts[0].state) == before
