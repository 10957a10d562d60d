"""Whatever the bytes are, a decoder gives spans or `Undecodable`, and what it gives is sound."""

from __future__ import annotations

import contextlib
import json
import math
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragmeter.ingest.otlp import decode_logs, decode_traces
from ragmeter.ingest.otlp.json_format import is_json_body
from ragmeter.ingest.otlp.reader import DecodedRequest, OtlpLimits, UndecodableBody
from ragmeter.ingest.spans import AttributeValue
from ragmeter.ingest.stored_spans import dump_log_event, dump_span, load_log_event, load_span

from tests.ingest.otlp.bodies import SPAN_ID, TRACE_ID, WIRE

LIMITS = OtlpLimits(spans=50, values=2_000, span_values=500, attributes=40, events=20, depth=5)
BODIES = [
    *(path.read_bytes() for path in sorted(WIRE.glob("*.pb"))),
    *(WIRE / "genai.jsonl").read_bytes().splitlines(),
    *(path.read_bytes() for path in sorted(WIRE.glob("*.json"))),
]
slow_is_fine = settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)


def check_value(value: AttributeValue, depth: int) -> int:
    """How many values are in it."""
    assert value is None or isinstance(value, str | bool | int | float | list | dict)
    if isinstance(value, int):
        assert -(2**63) <= value < 2**63
    if isinstance(value, str):
        value.encode()
    inner: list[Any] = []
    if isinstance(value, list):
        inner = value
    elif isinstance(value, dict):
        assert all(type(key) is str for key in value)
        inner = list(value.values())
    assert not inner or depth > 0
    return 1 + sum(check_value(part, depth - 1) for part in inner)


def check_id(text: str, size: int) -> None:
    assert len(text) == 2 * size
    assert bytes.fromhex(text).hex() == text
    assert text.strip("0")


def check(decoded: DecodedRequest) -> None:
    assert decoded.rejected == sum(decoded.reasons.values())
    assert bool(decoded.message) == bool(decoded.rejected)
    assert len(decoded.spans) <= LIMITS.spans
    values = 0
    for span in decoded.spans:
        check_id(span.trace_id, 16)
        check_id(span.span_id, 8)
        if span.parent_id:
            check_id(span.parent_id, 8)
        assert 0 <= span.kind <= 5
        assert 0 <= span.status <= 2
        assert 0 <= span.start < 2**64
        assert 0 <= span.end < 2**64
        assert len(span.attributes) <= LIMITS.attributes
        assert len(span.events) <= LIMITS.events
        for attributes in (span.attributes, *(event.attributes for event in span.events)):
            values += sum(check_value(value, LIMITS.depth) for value in attributes.values())
        assert repr(load_span(dump_span(span))) == repr(span)
    assert values <= LIMITS.values
    for log in decoded.events:
        check_id(log.trace_id, 16)
        check_id(log.span_id, 8)
        assert log.event.name
        assert repr(load_log_event(dump_log_event(log))) == repr(log)


def try_all(body: bytes) -> None:
    is_json_body(body)
    for decode in (decode_traces, decode_logs):
        for form in (False, True):
            with contextlib.suppress(UndecodableBody):
                check(decode(body, json=form, limits=LIMITS))


@slow_is_fine
@given(st.binary(max_size=300))
def test_random_bytes(body: bytes) -> None:
    try_all(body)


@slow_is_fine
@given(st.sampled_from(BODIES), st.randoms(use_true_random=False), st.integers(1, 20))
def test_real_bodies_with_bytes_changed(body: bytes, rng: random.Random, changes: int) -> None:
    broken = bytearray(body)
    for _ in range(changes):
        at = rng.randrange(len(broken))
        match rng.randrange(4):
            case 0:
                broken[at] = rng.randrange(256)
            case 1:
                del broken[at : at + rng.randrange(1, 40)]
            case 2:
                start = rng.randrange(len(broken))
                broken[at:at] = broken[start : start + rng.randrange(1, 200)]
            case _:
                broken[at] ^= 1 << rng.randrange(8)
        if not broken:
            break
    try_all(bytes(broken))


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([TRACE_ID, SPAN_ID, "NaN", "5", "1e9", "AAAAAAAAAAA=", "SPAN_KIND_CLIENT"]),
)
KEYS = st.sampled_from(
    [
        "resourceSpans",
        "batches",
        "scopeSpans",
        "spans",
        "resource",
        "scope",
        "attributes",
        "key",
        "value",
        "stringValue",
        "intValue",
        "doubleValue",
        "boolValue",
        "bytesValue",
        "arrayValue",
        "kvlistValue",
        "values",
        "traceId",
        "spanId",
        "parentSpanId",
        "kind",
        "startTimeUnixNano",
        "status",
        "code",
        "message",
        "events",
        "links",
        "name",
        "low",
        "droppedAttributesCount",
        "resourceLogs",
        "scopeLogs",
        "logRecords",
        "eventName",
        "body",
    ]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
ANY_VALUE: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=2),
    lambda inner: st.one_of(
        st.builds(lambda held: {"arrayValue": {"values": held}}, st.lists(inner, max_size=4)),
        st.builds(
            lambda held: {"kvlistValue": {"values": [{"key": "k", "value": v} for v in held]}},
            st.lists(inner, max_size=4),
        ),
    ),
)
ATTRIBUTES = st.lists(
    st.builds(lambda key, value: {"key": key, "value": value}, st.text(max_size=3), ANY_VALUE)
    | ANYTHING,
    max_size=6,
)
RECORD = st.fixed_dictionaries(
    {"traceId": st.just(TRACE_ID) | SCALARS, "spanId": st.just(SPAN_ID) | SCALARS},
    optional={
        "attributes": ATTRIBUTES | ANYTHING,
        "events": st.lists(st.builds(lambda a: {"name": "e", "attributes": a}, ATTRIBUTES)),
        "links": ANYTHING,
        "status": ANYTHING,
        "kind": SCALARS,
        "parentSpanId": SCALARS,
        "startTimeUnixNano": SCALARS,
        "droppedEventsCount": SCALARS,
        "eventName": st.just("gen_ai.choice") | SCALARS,
        "body": ANY_VALUE | ANYTHING,
    },
)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


@slow_is_fine
@given(ANYTHING)
def test_json_of_our_words_in_any_order(value: Any) -> None:
    try_all(dumped(value))


@settings(slow_is_fine, max_examples=25)  # making one takes 50 ms
@given(st.lists(RECORD | ANYTHING, max_size=5))
def test_json_of_nearly_the_right_shape(records: list[Any]) -> None:
    try_all(dumped({"resourceSpans": [{"scopeSpans": [{"spans": records}]}]}))
    try_all(dumped({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}))


def test_the_checks_see_what_is_wrong() -> None:
    assert check_value([1, {"a": math.nan}], 2) == 4
