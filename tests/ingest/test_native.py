from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.ingest.native import (
    BodyLimitExceeded,
    DecodedTrace,
    DecodeFailure,
    decode_trace_body,
    has_values_over,
)
from ragmeter.trace import Trace

from tests.tables import each_row
from tests.traces import trace_dict, trace_line

LIMIT = 2**20


def items(body: bytes, limit: int = LIMIT) -> list[DecodedTrace | DecodeFailure]:
    return list(decode_trace_body(body, limit))


def only_bad(body: bytes, limit: int = LIMIT) -> DecodeFailure:
    (item,) = items(body, limit)
    assert isinstance(item, DecodeFailure)
    return item


def test_one_object() -> None:
    (item,) = items(trace_line(7))
    assert isinstance(item, DecodedTrace)
    assert item.trace.trace_id == "t7"


def test_pretty_printed_object_is_one_item() -> None:
    (item,) = items(json.dumps(trace_dict(), indent=2).encode())
    assert isinstance(item, DecodedTrace)


def test_array_keeps_the_good_ones() -> None:
    body = json.dumps([trace_dict(1), {"trace_id": "x"}, trace_dict(2)]).encode()
    kinds = [type(item) for item in items(body)]
    assert kinds == [DecodedTrace, DecodeFailure, DecodedTrace]


def test_an_array_of_one_keeps_its_bytes_and_breaks_as_one_of_many_does() -> None:
    (item,) = items(b" [ " + trace_line(7) + b"\n]\n")
    assert isinstance(item, DecodedTrace)
    assert item.body == trace_line(7)
    for broken in (trace_line(timestamp="never"), trace_line(extra=[1] * 200_001), b'"x"'):
        alone = only_bad(b"[" + broken + b"]")
        _, among, _ = items(b"[" + b",".join((trace_line(1), broken, trace_line(2))) + b"]")
        assert alone == among


def test_json_lines_keep_the_good_ones() -> None:
    body = trace_line(1) + b"\n\n{broken\n" + trace_line(2) + b"\r\n"
    kinds = [type(item) for item in items(body)]
    assert kinds == [DecodedTrace, DecodeFailure, DecodedTrace]


def test_a_broken_first_line_does_not_cost_the_rest() -> None:
    for poison in (b"\x00", b"[]", b"{"):
        body = poison + b"\n" + trace_line(1) + b"\n" + trace_line(2)
        assert [type(item) for item in items(body)] == [DecodeFailure, DecodedTrace, DecodedTrace]


def test_a_broken_document_over_several_lines_is_one_item() -> None:
    only_bad(json.dumps(trace_dict(), indent=2).encode()[:-3])


def test_field_and_reason_are_named() -> None:
    bad = only_bad(trace_line(timings={"total": -1}))
    assert bad.reason == "invalid_trace"
    assert bad.errors == (("timings.total", "Input should be greater than or equal to 0"),)


@each_row(
    ("change", "field"),
    [
        ({"trace_id": ""}, "trace_id"),
        ({"trace_id": "x" * 513}, "trace_id"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"status": "fine"}, "status"),
        ({"sampling": {"probability": 0}}, "sampling.probability"),
        ({"sampling": {"probability": 1.5}}, "sampling.probability"),
        ({"passages": [{"rank": 1}]}, "passages.0.id"),
        ({"passages": 3}, "passages"),
        ({"timestamp": 10**30}, "timestamp"),
        ({"usage": {"input_tokens": -3}}, "usage.input_tokens"),
    ],
)
def test_what_would_make_a_number_lie_is_refused(change: dict[str, Any], field: str) -> None:
    assert only_bad(trace_line(**change)).errors[0][0] == field


@each_row(
    ("change", "expected"),
    [
        ({"usage": {"input_tokens": "1811", "cost_usd": "0.5"}}, {"usage.input_tokens": 1811}),
        ({"status": None, "tags": None, "timings": None}, {"status": "ok", "tags": {}}),
        ({"status": "SUCCESS"}, {"status": "ok"}),
        ({"status": "failed"}, {"status": "error"}),
        ({"status": "Timed out"}, {"status": "timeout"}),
        ({"timestamp": 1_795_292_102_123}, {"timestamp": "2026-11-21T20:15:02.123000+00:00"}),
        ({"timestamp": 1_795_292_102_123_456}, {"timestamp": "2026-11-21T20:15:02.123456+00:00"}),
        (
            {"timestamp": 1_795_292_102_123_456_789},
            {"timestamp": "2026-11-21T20:15:02.123456+00:00"},
        ),
        (
            {"timestamp": "1795292102123456789"},
            {"timestamp": "2026-11-21T20:15:02.123456+00:00"},
        ),
        (
            {"passages": ["Refunds take 14 days.", "Labels are free."]},
            {"passages.0.text": "Refunds take 14 days.", "passages.1.id": "c09e52720c57d34e"},
        ),
        (
            {"passages": [{"content": "Refunds take 14 days.", "source": "a.md"}]},
            {"passages.0.text": "Refunds take 14 days.", "passages.0.metadata.source": "a.md"},
        ),
        (
            {"passages": [[{"_id": "d1", "text": "a"}], [{"chunk_id": 2, "text": "b"}]]},
            {"passages.0.id": "d1", "passages.1.id": "2"},
        ),
        ({"passages": {"id": "d1", "text": "a"}}, {"passages.0.id": "d1"}),
    ],
)
def test_a_value_of_another_form_and_one_meaning_is_read(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    line = trace_line(**change)
    for body in (line, b"[" + line + b", 1]"):
        item = items(body)[0]
        assert isinstance(item, DecodedTrace)
        assert Trace.model_validate_json(item.body) == item.trace
        assert {path: _value(item.trace, path) for path in expected} == expected


def _value(trace: Trace, path: str) -> Any:
    value: Any = trace.model_dump(mode="python")
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value.isoformat() if isinstance(value, datetime) else value


def test_half_a_pair_of_surrogates_costs_one_character() -> None:
    line = trace_line(answer="bad X end \\ud83d").replace(b"X", b"\\ud83d").replace(b"Y", b"")
    for body in (line, b"[" + line + b"]", line + b"\n" + line):
        for item in items(body):
            assert isinstance(item, DecodedTrace)
            assert item.trace.answer == "bad \ufffd end \\ud83d"


def test_a_table_is_named() -> None:
    bad = only_bad(b"trace_id,service,query\n")
    assert "CSV" in bad.errors[0][1]


def test_nan_is_refused_in_numbers() -> None:
    bad = only_bad(trace_line(timings={"total": float("nan")}))
    assert bad.errors[0][0] == "timings.total"


def test_unknown_fields_and_untidy_tags_are_no_error() -> None:
    (item,) = items(trace_line(surprise=[1], tags={"n": 3, "ok": True, "deep": {"a": 1}}))
    assert isinstance(item, DecodedTrace)
    assert item.trace.tags == {"n": "3", "ok": "true"}


def test_a_time_without_zone_is_utc() -> None:
    (item,) = items(trace_line(timestamp="2026-11-21T20:15:02"))
    assert isinstance(item, DecodedTrace)
    assert item.trace.timestamp.isoformat() == "2026-11-21T20:15:02+00:00"


def test_trace_over_the_limit_is_refused() -> None:
    assert only_bad(trace_line(), limit=50).reason == "too_large"


@each_row("body", [b"", b"  \n ", b"[1,", b"nonsense", b"\xff\xfe", b"null"])
def test_no_json_is_one_bad_item(body: bytes) -> None:
    assert only_bad(body).errors


def test_deep_nesting_is_bad_not_fatal() -> None:
    assert isinstance(items(b"[" * 100_000)[0], DecodeFailure)


def test_good_items_of_an_array_can_be_read_again() -> None:
    body = json.dumps([trace_dict(passages=[{"id": "a", "metadata": {"x": float("nan")}}])])
    (item,) = items(body.encode())
    assert isinstance(item, DecodedTrace)
    (again,) = items(item.body)
    assert isinstance(again, DecodedTrace)


def test_a_byte_order_mark_is_skipped_and_utf_16_named() -> None:
    (item,) = items(b"\xef\xbb\xbf" + trace_line(7))
    assert isinstance(item, DecodedTrace)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        assert "UTF-16" in only_bad(trace_line(7).decode().encode(encoding)).errors[0][1]


def test_another_encoding_is_named_with_its_first_byte() -> None:
    failure = only_bad('{"query": "Müller"}'.encode("cp1252"))
    assert failure.reason == "invalid_json"
    assert failure.errors == (("", "not UTF-8: byte 0xfc at position 12"),)


@each_row(
    ("body", "what"),
    [
        (b"[" + b"1," * 10 + b"1]", "10 items"),
        (b"1\n" * 10 + b"{}", "10 items"),
        (b"[[" + b"{}," * 999_999 + b"{}]]", "1000000 JSON values"),
        (b'{"a":' + b"[" * 1_000_000 + b"\n{}", "1000000 JSON values"),
        (b"{}" + b"\n" * 1_000_001 + b"{}", "1000000 lines"),
    ],
)
def test_a_body_of_too_much_is_refused_as_a_whole(body: bytes, what: str) -> None:
    with pytest.raises(BodyLimitExceeded, match=what):
        list(decode_trace_body(body, LIMIT, most=10))


def test_commas_in_texts_are_no_values() -> None:
    text = '1,2,[3],"x' * 30_000
    (item,) = items(trace_line(answer=text))
    assert isinstance(item, DecodedTrace)
    assert not has_values_over(json.dumps([text] * 10).encode(), 200)
    assert has_values_over(json.dumps([text] * 10).encode(), 5)
    assert has_values_over(b"[1,1,1", 2)
    assert not has_values_over(b'[1,"1,1,1\\', 3)  # a string that never ends


def test_a_trace_of_too_many_values_is_too_large() -> None:
    for body in (trace_line(extra=[1] * 200_001), json.dumps([trace_dict(extra=[1] * 200_001)])):
        bad = only_bad(body if isinstance(body, bytes) else body.encode())
        assert bad.reason == "too_large"
        assert "200000 JSON values" in bad.errors[0][1]


def test_very_many_mistakes_are_counted_and_not_listed() -> None:
    bad = only_bad(trace_line(passages=[1] * 50_000))
    assert bad.errors == (("", "50000 values are wrong"),)


@pytest.mark.parametrize("value", [1, None, "x", [{}]])
def test_what_is_no_object_is_no_trace(value: object) -> None:
    bad = only_bad(json.dumps([value]).encode())
    assert (bad.reason, bad.errors) == ("invalid_trace", (("", "Input should be an object"),))


@given(st.binary(max_size=300))
def test_any_bytes_give_items_and_never_raise(body: bytes) -> None:
    assert all(isinstance(item, DecodedTrace | DecodeFailure) for item in items(body))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_value_in_any_field_never_raises(value: object) -> None:
    for field in trace_dict():
        body = json.dumps({**trace_dict(), field: value}).encode()
        assert len(items(body)) == 1
