"""OTLP in JSON, as the standard has it and as senders write it."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.otlp.json_format import is_json_body
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.spans import Span, SpanEvent

from tests.ingest.otlp.bodies import SPAN_ID, TRACE_ID, json_span, json_traces, proto_traces
from tests.tables import each_row


def one(**fields: Any) -> Span:
    (span,) = decode_traces(json_traces(json_span(**fields)), json=True).spans
    return span


def attribute(value: Any) -> Any:
    return one(attributes=[{"key": "k", "value": value}]).attributes["k"]


def test_every_field_of_a_span() -> None:
    span = {
        "traceId": TRACE_ID.upper(),
        "spanId": SPAN_ID,
        "parentSpanId": "09" * 8,
        "name": "retrieve",
        "kind": 3,
        "startTimeUnixNano": "5",
        "endTimeUnixNano": 6,
        "traceState": "ot=th:8",
        "flags": 256,
        "status": {"code": 2, "message": "boom"},
        "attributes": [{"key": "text", "value": {"stringValue": "a"}}],
        "droppedAttributesCount": 3,
        "events": [
            {
                "name": "e",
                "timeUnixNano": "7",
                "attributes": [{"key": "k", "value": {"intValue": "8"}}],
                "droppedAttributesCount": 1,
            }
        ],
        "droppedEventsCount": "4",
        "links": [{"traceId": "01" * 16, "spanId": "02" * 8}, {"traceId": "?"}, 5],
    }
    request = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]
                },
                "scopeSpans": [{"scope": {"name": "a.scope", "version": "2"}, "spans": [span]}],
                "schemaUrl": "unknown fields are passed over",
            }
        ]
    }
    decoded = decode_traces(json.dumps(request).encode(), json=True)
    assert decoded.spans == [
        Span(
            trace_id=TRACE_ID,
            span_id=SPAN_ID,
            parent_id="09" * 8,
            name="retrieve",
            kind=3,
            start=5,
            end=6,
            status=2,
            status_message="boom",
            attributes={"text": "a"},
            events=[SpanEvent("e", 7, {"k": 8})],
            trace_state="ot=th:8",
            scope="a.scope",
            resource={"service.name": "shop"},
            dropped=8,
        )
    ]
    assert (decoded.rejected, decoded.message) == (0, "")


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", ["=", ""])
def test_ids_in_base64(encode: Any, padding: str) -> None:
    raw = bytes.fromhex("fb" * 16)  # has + and / in it, or - and _
    texts = [encode(raw[:size]).decode().replace("=", padding) for size in (16, 8)]
    span = one(traceId=texts[0], spanId=texts[1], parentSpanId=texts[1])
    assert (span.trace_id, span.span_id, span.parent_id) == ("fb" * 16, "fb" * 8, "fb" * 8)


@each_row(
    ("fields", "reason"),
    [
        ({"traceId": "0" * 32}, "bad_trace_id"),
        ({"traceId": "AAAAAAAAAAAAAAAAAAAAAA=="}, "bad_trace_id"),
        ({"traceId": "g" * 32}, "bad_trace_id"),
        ({"traceId": "ab" * 15 + " a"}, "bad_trace_id"),
        ({"traceId": "é" * 22}, "bad_trace_id"),
        ({"traceId": 5}, "bad_trace_id"),
        ({"traceId": None}, "bad_trace_id"),
        ({"spanId": TRACE_ID}, "bad_span_id"),
        ({"parentSpanId": "nonsense"}, "bad_parent_id"),
        ({"parentSpanId": {}}, "bad_parent_id"),
    ],
)
def test_a_span_without_valid_ids_is_rejected_alone(fields: dict[str, Any], reason: str) -> None:
    body = json_traces(json_span() | fields, json_span(name="good"), 5, [], None)
    decoded = decode_traces(body, json=True)
    assert [span.name for span in decoded.spans] == ["good"]
    assert decoded.reasons == {reason: 1, "unreadable": 3}
    assert decoded.rejected == 4
    assert decoded.message == f"3 unreadable, 1 {reason}"


@pytest.mark.parametrize("parent", [None, "", "0" * 16])
def test_a_root_has_no_parent(parent: Any) -> None:
    assert one(parentSpanId=parent).parent_id == ""


@each_row(
    ("kind", "read"),
    [
        ("SPAN_KIND_CLIENT", 3),
        ("client", 3),
        ("3", 3),
        (3.0, 3),
        (99, 0),
        (-1, 0),
        ("SPAN_KIND_NEW", 0),
        (None, 0),
        ([], 0),
        (True, 1),
    ],
)
def test_kinds(kind: Any, read: int) -> None:
    assert one(kind=kind).kind == read


@each_row("code", [2, "2", "STATUS_CODE_ERROR", "error", 2.0])
def test_status_codes(code: Any) -> None:
    assert one(status={"code": code}).status == 2


@each_row(
    ("time", "read"),
    [
        ("1722866602559872000", 1722866602559872000),
        (1722866602559872000, 1722866602559872000),
        (1.722866602559872e18, 1722866602559872000),
        ("1.722866602559872e18", 1722866602559872000),
        ({"low": 1559437312, "high": 401134671}, (401134671 << 32) + 1559437312),
        ({"low": -1, "high": 0}, 2**32 - 1),
        (-5, 0),
        (2**64, 0),
        ("9" * 1000, 0),
        ("NaN", 0),
        ("soon", 0),
        (None, 0),
        ([], 0),
        ({}, 0),
    ],
)
def test_times(time: Any, read: int) -> None:
    assert one(startTimeUnixNano=time).start == read


@each_row(
    ("value", "read"),
    [
        ({"stringValue": "a"}, "a"),
        ({"stringValue": ""}, ""),
        ({"stringValue": 5}, "5"),
        ({"stringValue": []}, None),
        ({"intValue": "12"}, 12),
        ({"intValue": 12}, 12),
        ({"intValue": 12.0}, 12),
        ({"intValue": "1e3"}, 1000),
        ({"intValue": str(2**63)}, None),
        ({"intValue": "many"}, None),
        ({"doubleValue": 0.5}, 0.5),
        ({"doubleValue": "0.5"}, 0.5),
        ({"doubleValue": 5}, 5.0),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "-Infinity"}, -math.inf),
        ({"doubleValue": {}}, None),
        ({"boolValue": True}, True),
        ({"boolValue": "false"}, False),
        ({"boolValue": 1}, True),
        ({"bytesValue": "AAAA"}, None),
        ({"arrayValue": {"values": [{"intValue": 1}, {}]}}, [1, None]),
        ({"arrayValue": {}}, []),
        ({"arrayValue": [{"intValue": 1}]}, [1]),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({"kvlistValue": {}}, {}),
        ({"array_value": {"values": [{"string_value": "a"}]}}, ["a"]),
        ({"newValue": 5}, None),
        ({}, None),
        (None, None),
        ("bare", "bare"),
        (10**30, None),
        ([1], None),
    ],
)
def test_values(value: Any, read: Any) -> None:
    found = attribute(value)
    assert found == read
    assert type(found) is type(read)


def test_not_a_number() -> None:
    assert math.isnan(attribute({"doubleValue": "NaN"}))
    body = json_traces(json_span(attributes=[{"key": "k", "value": {"doubleValue": math.nan}}]))
    assert b"NaN" in body  # illegal JSON that Python writes
    assert math.isnan(decode_traces(body, json=True).spans[0].attributes["k"])  # type: ignore[arg-type]


def test_broken_attributes_are_left_out_and_counted() -> None:
    span = one(attributes=[5, {"value": {}}, {"key": 7}, {"key": "k"}, None])
    assert (span.attributes, span.dropped) == ({"k": None}, 4)
    assert one(attributes={"a": 1}).dropped == 1
    assert one(attributes=None, events=None, links={}, status=[]).dropped == 0
    assert one(events=[5]).dropped == 1


def test_of_keys_that_occur_twice_the_last_value_counts() -> None:
    pairs = [{"key": "k", "value": {"intValue": n}} for n in (1, 2)]
    assert one(attributes=pairs).attributes == {"k": 2}
    body = json_traces(json_span(name="first")).replace(b'"first"', b'"first", "name": "second"')
    assert decode_traces(body, json=True).spans[0].name == "second"


def test_names_in_snake_case() -> None:
    span = {
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "parent_span_id": "09" * 8,
        "start_time_unix_nano": 5,
        "end_time_unix_nano": 6,
        "trace_state": "a=b",
        "dropped_attributes_count": 1,
        "dropped_events_count": 1,
        "events": [{"time_unix_nano": 7}],
    }
    body = {"resource_spans": [{"scope_spans": [{"spans": [span]}]}]}
    (read,) = decode_traces(json.dumps(body).encode(), json=True).spans
    assert (read.parent_id, read.start, read.end, read.trace_state) == ("09" * 8, 5, 6, "a=b")
    assert (read.dropped, read.events[0].time) == (2, 7)


def test_tempos_older_names() -> None:
    body = {
        "batches": [
            {
                "instrumentationLibrarySpans": [
                    {"instrumentationLibrary": {"name": "old"}, "spans": [json_span()]}
                ]
            }
        ]
    }
    (span,) = decode_traces(json.dumps(body).encode(), json=True).spans
    assert span.scope == "old"


@each_row(
    ("written", "read"),
    [
        (b"cut \\ud83d", "cut \ufffd"),
        (b"\\ud83d\\ud83d\\ude00 \\ude00", "\ufffd😀 \ufffd"),
        (b"\\uD83D\\uDE00 and \\\\ud83d \\udfff", "😀 and \\ud83d \ufffd"),
        (b"no \xff utf-8", "no \ufffd utf-8"),
        (b"a raw \x01\n feed", "a raw    feed"),
    ],
)
def test_texts_that_json_forbids_are_mended(written: bytes, read: str) -> None:
    body = json_traces(json_span(name="THE NAME")).replace(b"THE NAME", written)
    assert decode_traces(body, json=True).spans[0].name == read


@each_row("body", [b"", b"{", b"[]", b"5", b"null", b'{"resourceSpans": {}}', b"\n"])
def test_a_body_of_which_nothing_can_be_read_is_undecodable(body: bytes) -> None:
    with pytest.raises(UndecodableBody) as caught:
        decode_traces(body, json=True)
    assert caught.value.reason == "bad_json"


@pytest.mark.parametrize("body", [b"{}", b'{"resourceSpans": null}', b'\xef\xbb\xbf{"new": [1]}'])
def test_a_request_without_spans(body: bytes) -> None:
    decoded = decode_traces(body, json=True)
    assert (decoded.spans, decoded.rejected) == ([], 0)


def test_broken_groups_cost_themselves() -> None:
    body = {"resourceSpans": [5, {"scopeSpans": [None, {"spans": [json_span()]}, {"spans": 5}]}]}
    decoded = decode_traces(json.dumps(body).encode(), json=True)
    assert len(decoded.spans) == 1
    assert decoded.reasons == {"unreadable": 2}


def test_the_form_of_a_body_is_told_by_its_beginning() -> None:
    assert is_json_body(b'{"resourceSpans":[]}')
    assert is_json_body(b"\xef\xbb\xbf {}")
    assert not is_json_body(b"")
    assert not is_json_body(proto_traces())
    assert not is_json_body(b"\n{" + b"\n\x79" + bytes(121))  # a protobuf message of 123 bytes
