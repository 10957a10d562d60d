from __future__ import annotations

import pytest
from ragmeter.core.durations import parse_window
from ragmeter.windows.bucket_width import bucket_seconds

from tests.tables import each_row


@each_row(
    ("name", "grain"),
    [
        ("1m", 2),
        ("5m", 10),
        ("15m", 30),
        ("1h", 60),
        ("6h", 300),
        ("24h", 600),
        ("1d", 600),
        ("3d", 1800),
        ("7d", 3600),
        ("1w", 3600),
        ("1h30m", 60),
        ("1d12h", 900),
    ],
)
def test_the_grain_of_common_windows(name: str, grain: int) -> None:
    assert bucket_seconds(parse_window(name)) == grain


@each_row("minutes", range(1, 90 * 1440, 997))
def test_any_window_is_a_bounded_number_of_whole_buckets(minutes: int) -> None:
    seconds = parse_window(f"{minutes}m")
    buckets, rest = divmod(seconds, bucket_seconds(seconds))
    assert rest == 0
    assert buckets >= 30


@each_row("name", ["", "5", "m", "0m", "-5m", "5 m", "1.5h", "30s", "91d", "89d25h", "5M"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="window"):
        parse_window(name)
