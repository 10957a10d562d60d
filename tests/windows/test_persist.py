from __future__ import annotations

import json

import pytest
from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.buckets import SeriesSlots
from ragmeter.windows.saved_buckets import (
    BUCKET_VERSION,
    decode_bucket,
    decode_clock,
    encode_bucket,
    encode_clock,
)

from tests.tables import each_row
from tests.windows.helpers import SPECS, trace

TRACES = [
    trace(1, 0, {"error": 1.0, "tokens": 9_000.0}, timings={"total": 0.5}),
    trace(2, 1, {"error": 0.0, "grounding": 0.3}, probability=0.3),
    trace(3, 2, {"relevance": 1.2}, timings={"total": 0.0, "retrieval": 0.1}),
]


def test_a_bucket_comes_back_byte_for_byte_whatever_the_order_of_the_series() -> None:
    slots = SeriesSlots(SPECS)
    data = encode_bucket(build_bucket(TRACES, slots), slots)
    other = SeriesSlots(SPECS)
    for metric in sorted(SPECS, reverse=True):
        other.column((metric, "builtin"))
    assert encode_bucket(decode_bucket(data, other), other) == data


def test_the_clock_comes_back() -> None:
    assert decode_clock(encode_clock(1_700_000_000.125)) == 1_700_000_000.125


@pytest.mark.parametrize("data", [b"", bytes([BUCKET_VERSION + 1]) + b"[]", b"\x80pickle"])
def test_another_version_is_named(data: bytes) -> None:
    with pytest.raises(ValueError, match="version"):
        decode_bucket(data, SeriesSlots(SPECS))


@each_row(
    "content",
    ["[", "[]", "{}", "3", "[1,[],[]]", '[1,[["a","b",[1],[]]],[],[]]', '[1,[],[["total"]],[]]'],
)
def test_damaged_content_is_a_value_error(content: str) -> None:
    data = bytes([BUCKET_VERSION]) + content.encode()
    with pytest.raises(ValueError, match="window state"):
        decode_bucket(data, SeriesSlots(SPECS))


def test_what_is_written_is_plain_json() -> None:
    slots = SeriesSlots(SPECS)
    data = encode_bucket(build_bucket(TRACES, slots), slots)
    assert json.loads(data[1:])[0] == len(TRACES)
