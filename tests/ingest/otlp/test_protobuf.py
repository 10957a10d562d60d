"""OTLP in protobuf: what is read, and that a broken span costs itself only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.otlp.reader import OtlpLimits, UndecodableBody
from ragmeter.ingest.spans import Span, SpanEvent

from tests.ingest.otlp.bodies import SPAN_ID, TRACE_ID, proto_span, proto_traces


def string(text: str) -> AnyValue:
    return AnyValue(string_value=text)


def pair(key: str, value: AnyValue) -> KeyValue:
    return KeyValue(key=key, value=value)


def test_every_field_of_a_span() -> None:
    inner = KeyValueList(values=[pair("role", string("user"))])
    values = {
        "text": string("a"),
        "empty": string(""),
        "int": AnyValue(int_value=-(2**63)),
        "zero": AnyValue(int_value=0),
        "float": AnyValue(double_value=0.5),
        "bool": AnyValue(bool_value=False),
        "bytes": AnyValue(bytes_value=b"x"),
        "none": AnyValue(),
        "list": AnyValue(
            array_value=ArrayValue(values=[AnyValue(kvlist_value=inner), string("b")])
        ),
    }
    wire = proto_span(
        parent_span_id=b"\x09" * 8,
        name="retrieve",
        kind=WireSpan.SPAN_KIND_CLIENT,
        start_time_unix_nano=5,
        end_time_unix_nano=2**64 - 1,
        trace_state="ot=th:8",
        status=Status(code=Status.STATUS_CODE_ERROR, message="boom"),
        attributes=[pair(key, value) for key, value in values.items()],
        dropped_attributes_count=3,
        events=[WireSpan.Event(name="e", time_unix_nano=7, attributes=[pair("k", string("v"))])],
        dropped_events_count=4,
        links=[WireSpan.Link(trace_id=b"\x01" * 16, span_id=b"\x02" * 8), WireSpan.Link()],
    )
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(pair("service.name", string("shop")))
    group = resource.scope_spans.add()
    group.scope.name, group.scope.version = "a.scope", "2"
    group.spans.append(wire)

    decoded = decode_traces(request.SerializeToString(), json=False)

    assert decoded.spans == [
        Span(
            trace_id=TRACE_ID,
            span_id=SPAN_ID,
            parent_id="09" * 8,
            name="retrieve",
            kind=3,
            start=5,
            end=2**64 - 1,
            status=2,
            status_message="boom",
            attributes={
                "text": "a",
                "empty": "",
                "int": -(2**63),
                "zero": 0,
                "float": 0.5,
                "bool": False,
                "bytes": None,
                "none": None,
                "list": [{"role": "user"}, "b"],
            },
            events=[SpanEvent("e", 7, {"k": "v"})],
            trace_state="ot=th:8",
            scope="a.scope",
            resource={"service.name": "shop"},
            dropped=7,
        )
    ]
    assert (decoded.rejected, decoded.message) == (0, "")


@pytest.mark.parametrize("parent", [b"", b"\0" * 8])
def test_a_root_has_no_parent(parent: bytes) -> None:
    (span,) = decode_traces(proto_traces(proto_span(parent_span_id=parent)), json=False).spans
    assert span.parent_id == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"trace_id": b"\0" * 16}, "bad_trace_id"),
        ({"trace_id": b"\1" * 8}, "bad_trace_id"),
        ({"span_id": b""}, "bad_span_id"),
        ({"parent_span_id": b"\1" * 16}, "bad_parent_id"),
    ],
)
def test_a_span_without_valid_ids_is_rejected_alone(fields: dict[str, Any], reason: str) -> None:
    decoded = decode_traces(proto_traces(proto_span(**fields), proto_span(name="good")), json=False)
    assert [span.name for span in decoded.spans] == ["good"]
    assert (decoded.rejected, decoded.message) == (1, f"1 {reason}")


def test_a_span_whose_text_is_no_utf8_is_rejected_alone() -> None:
    body = proto_traces(proto_span(name="a broken name"), proto_span(name="good"))
    decoded = decode_traces(body.replace(b"a broken", b"a br\xffken"), json=False)
    assert [span.name for span in decoded.spans] == ["good"]
    assert decoded.reasons == {"unreadable": 1}


def test_nesting_beyond_protobufs_own_limit_costs_the_span() -> None:
    deep = b""
    for _ in range(300):
        deep = b"\x2a" + varint(len(deep) + 4) + b"\x0a" + fixed(len(deep)) + deep
    broken = proto_span().SerializeToString() + frame(b"\x4a", frame(b"\x12", deep))
    good = proto_span(name="good").SerializeToString()
    body = frame(b"\x0a", frame(b"\x12", frame(b"\x12", broken) + frame(b"\x12", good)))
    decoded = decode_traces(body, json=False)
    assert [span.name for span in decoded.spans] == ["good"]
    assert decoded.reasons == {"unreadable": 1}


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def fixed(number: int) -> bytes:
    """A varint of three bytes."""
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])


def frame(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


@pytest.mark.parametrize(
    "body", [b"{}", b"\x0a\xff", b"\x0a\x02\x0a\x05", proto_traces(proto_span(name="x" * 50))[:-9]]
)
def test_a_body_of_which_nothing_can_be_read_is_undecodable(body: bytes) -> None:
    with pytest.raises(UndecodableBody) as caught:
        decode_traces(body, json=False)
    assert not caught.value.too_large


def test_a_broken_resource_costs_its_own_spans() -> None:
    broken = frame(b"\x0a", frame(b"\x0a", b"\x0a\x05") + frame(b"\x12", b"\x12\x00\x12\x00"))
    unframed = frame(b"\x0a", b"\x12\x09")
    decoded = decode_traces(broken + unframed + proto_traces(proto_span()), json=False)
    assert len(decoded.spans) == 1
    assert decoded.reasons == {"bad_resource": 2, "unreadable": 1}


def test_unknown_fields_and_enums_of_a_newer_version_are_passed_over() -> None:
    wire = proto_span(status=Status(code=7)).SerializeToString()  # type: ignore[arg-type]
    newer = wire + frame(b"\xfa\x3f", b"what is this") + b"\x30\x63"  # kind 99
    (span,) = decode_traces(frame(b"\x0a", frame(b"\x12", frame(b"\x12", newer))), json=False).spans
    assert (span.kind, span.status) == (0, 0)


def test_an_empty_body_is_a_request_without_spans() -> None:
    assert decode_traces(b"", json=False).spans == []


def value_of(value: AnyValue, limits: OtlpLimits) -> tuple[Any, int]:
    (span,) = decode_traces(
        proto_traces(proto_span(attributes=[pair("k", value)])), json=False, limits=limits
    ).spans
    return span.attributes["k"], span.dropped


def nested(depth: int, wrap: Callable[[AnyValue], AnyValue]) -> AnyValue:
    value = string("x")
    for _ in range(depth):
        value = wrap(value)
    return value


def test_what_is_too_deep_is_left_out_and_counted() -> None:
    def listed(inner: AnyValue) -> AnyValue:
        return AnyValue(array_value=ArrayValue(values=[inner]))

    assert value_of(nested(2, listed), OtlpLimits(depth=2)) == ([["x"]], 0)
    assert value_of(nested(3, listed), OtlpLimits(depth=2)) == ([[None]], 1)


def test_a_vector_is_left_out_like_bytes_and_not_counted() -> None:
    numbers = [AnyValue(double_value=0.5)] * 300
    assert value_of(AnyValue(array_value=ArrayValue(values=numbers)), OtlpLimits()) == (None, 0)
    few = ArrayValue(values=numbers[:256])
    assert value_of(AnyValue(array_value=few), OtlpLimits()) == ([0.5] * 256, 0)
