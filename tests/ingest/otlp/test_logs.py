"""Which log records become events of their spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from ragmeter.ingest.otlp import decode_logs
from ragmeter.ingest.otlp.reader import DecodedRequest, UndecodableBody
from ragmeter.ingest.spans import AttributeValue, LogEvent, SpanEvent

from tests.ingest.otlp.bodies import SPAN_ID, TRACE_ID, json_logs, proto_logs
from tests.tables import each_row

CHOICE = "gen_ai.choice"


def both(
    event_name: str = "",
    attributes: dict[str, str] | None = None,
    body: str | dict[str, str] | None = None,
    **ids: str,
) -> DecodedRequest:
    """One record decoded from protobuf and from JSON, which must give the same."""
    attributes = attributes or {}
    ids = {"trace_id": TRACE_ID, "span_id": SPAN_ID} | ids
    wire = LogRecord(
        event_name=event_name,
        time_unix_nano=5,
        observed_time_unix_nano=6,
        attributes=[KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in attributes.items()],
        **{key: bytes.fromhex(text) for key, text in ids.items()},  # type: ignore[arg-type]
    )
    plain: dict[str, Any] = {
        "eventName": event_name,
        "timeUnixNano": "5",
        "observedTimeUnixNano": "6",
        "traceId": ids["trace_id"],
        "spanId": ids["span_id"],
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }
    if isinstance(body, str):
        wire.body.string_value = body
        plain["body"] = {"stringValue": body}
    elif body is not None:
        pairs = [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in body.items()]
        wire.body.kvlist_value.CopyFrom(KeyValueList(values=pairs))
        values = [{"key": k, "value": {"stringValue": v}} for k, v in body.items()]
        plain["body"] = {"kvlistValue": {"values": values}}
    decoded = decode_logs(proto_logs(wire), json=False)
    assert decode_logs(json_logs(plain), json=True) == decoded
    return decoded


def event(name: str, attributes: Mapping[str, AttributeValue]) -> list[LogEvent]:
    return [LogEvent(TRACE_ID, SPAN_ID, SpanEvent(name, 5, dict(attributes)))]


def test_content_in_the_body() -> None:
    assert both(CHOICE, {"gen_ai.system": "x"}, {"content": "hi"}).events == event(
        CHOICE, {"gen_ai.system": "x", "content": "hi"}
    )


def test_content_in_attributes() -> None:
    name = "gen_ai.client.inference.operation.details"
    found = {"gen_ai.input.messages": "[]"}
    assert both(name, found).events == event(name, found)


def test_the_name_in_an_attribute() -> None:
    found = {"event.name": CHOICE, "a": "b"}
    assert both("", found).events == event(CHOICE, found)


def test_a_body_that_is_no_map() -> None:
    assert both(CHOICE, {}, "text").events == event(CHOICE, {"body": "text"})
    assert both(CHOICE, {"body": "kept"}, "text").events == event(CHOICE, {"body": "kept"})
    assert both(CHOICE, {"a": "attribute"}, {"a": "body"}).events == event(
        CHOICE, {"a": "attribute"}
    )


def test_an_event_named_by_its_framework() -> None:
    name = "some.framework.tracer"
    assert both(name, {}, {"input": "q"}).events == event(name, {"input": "q"})
    assert both(name, {"gen_ai.x": "q"}).events == event(name, {"gen_ai.x": "q"})


@each_row(
    "record",
    [
        {"event_name": "", "body": "a line of a log"},
        {"event_name": "OrderPlaced", "body": "a named line", "attributes": {"order": "5"}},
        {"event_name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": "x"}},
        {"event_name": CHOICE, "body": {"content": "of no span"}, "span_id": ""},
        {"event_name": CHOICE, "body": {"content": "of no trace"}, "trace_id": ""},
    ],
)
def test_lines_scores_and_what_belongs_to_no_span_are_ignored(record: dict[str, Any]) -> None:
    decoded = both(**record)
    assert (decoded.events, decoded.ignored, decoded.rejected) == ([], 1, 0)


def test_a_broken_record_is_rejected_alone() -> None:
    decoded = both(CHOICE, {}, {"content": "x"}, trace_id="01" * 4)
    assert (decoded.events, decoded.reasons) == ([], {"bad_trace_id": 1})
    good = {"eventName": CHOICE, "traceId": TRACE_ID, "spanId": SPAN_ID, "observedTimeUnixNano": 9}
    mixed = decode_logs(json_logs(5, good), json=True)
    assert mixed.events[0].event.time == 9
    assert mixed.reasons == {"unreadable": 1}


def test_a_body_of_which_nothing_can_be_read() -> None:
    for json in (True, False):
        with pytest.raises(UndecodableBody):
            decode_logs(b"\x0a\xff{", json=json)
