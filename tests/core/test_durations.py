from __future__ import annotations

import pytest
from ragmeter.core.durations import parse_duration

from tests.tables import each_row


@each_row(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h", 3600), ("2d", 172_800), ("1h30m", 5400), (0, 0), ("0s", 0)],
)
def test_durations_are_read(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@each_row(
    "text", ["", "5", 5, 5.0, None, False, True, "m", "5 m", "-5m", "30s5m", "1.5h", "9" * 50 + "s"]
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)
