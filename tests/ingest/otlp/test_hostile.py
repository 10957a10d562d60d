"""Bodies made to cost memory or time: each is refused, or costs what its limit says."""

from __future__ import annotations

import json as jsonlib

import pytest
from ragmeter.ingest.otlp import decode_logs, decode_traces, json_format, protobuf
from ragmeter.ingest.otlp.json_format import MAX_TREE
from ragmeter.ingest.otlp.protobuf import MAX_GROUPS, MAX_MESSAGES, MAX_SPAN_MESSAGES
from ragmeter.ingest.otlp.reader import DecodedRequest, OtlpLimits, UndecodableBody

from tests.ingest.otlp.bodies import SPAN_ID, TRACE_ID, json_span, json_traces
from tests.ingest.otlp.test_protobuf import frame

IDS = frame(b"\x0a", bytes.fromhex(TRACE_ID)) + frame(b"\x12", bytes.fromhex(SPAN_ID))
MILLION = 1_000_000


def spans(content: bytes) -> bytes:
    return frame(b"\x0a", frame(b"\x12", content))


def pair(key: bytes, value: bytes) -> bytes:
    return frame(b"\x4a", frame(b"\x0a", key) + frame(b"\x12", value))


def listed(spans: bytes) -> bytes:
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + spans + b"]}]}]}"


# More than is allowed of each kind, in as few bytes as it can be written. The limits are made a
# hundredth of what they are, and so the bodies; `benchmarks/otlp.py` takes them whole.
MANY = 50_000
TOO_LARGE = {
    "resources": (b"\x0a\x00" * MANY, False),
    "scopes": (frame(b"\x0a", b"\x12\x00" * MANY), False),
    "spans": (spans(b"\x12\x00" * MANY), False),
    "long tags": (spans(b"\x92\x00\x00" * MANY), False),
    "long lengths": (spans(b"\x12\x80\x00" * MANY), False),
    "empty objects": (listed(b"{}," * MANY + b"{}"), True),
    "keys": (b'{"x":{' + b'"a":1,' * MANY + b'"a":1}}', True),
    "depth": (b'{"a":[' * MANY, True),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_body_of_more_parts_than_one_may_have_is_refused_before_it_is_built(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, json = TOO_LARGE[name]
    monkeypatch.setattr(protobuf, "MAX_MESSAGES", MAX_MESSAGES // 100)
    monkeypatch.setattr(json_format, "MAX_TREE", MAX_TREE // 100)
    monkeypatch.setattr(protobuf, "Layer", None)
    monkeypatch.setattr(json_format, "from_json", None)
    with pytest.raises(UndecodableBody) as caught:
        decode_traces(body, json=json)
    assert caught.value.too_large


def test_marks_in_texts_are_not_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_format, "MAX_TREE", MAX_TREE // 100)
    text = "[{,}]" * MANY + '"\\'
    (span,) = decode_traces(json_traces(json_span(status={"message": text})), json=True).spans
    assert text.startswith(span.status_message)


def test_a_body_of_more_resources_than_one_may_have_is_refused() -> None:
    with pytest.raises(UndecodableBody) as caught:
        decode_traces(b"\x0a\x00" * (MAX_GROUPS + 1), json=False)
    assert caught.value.too_large


@pytest.mark.parametrize("field", [b"\x4a", b"\x5a", b"\x6a"])  # attributes, events, links
def test_a_span_of_more_parts_than_one_may_have_costs_itself(field: bytes) -> None:
    bad = frame(b"\x12", IDS + (field + b"\x00") * (2 * MAX_SPAN_MESSAGES + 9))
    decoded = decode_traces(spans(bad + frame(b"\x12", IDS)), json=False)
    assert (len(decoded.spans), decoded.reasons) == (1, {"too_large": 1})


@pytest.mark.parametrize("field", [b"\x4a", b"\x5a"])
def test_parts_beyond_a_limit_are_left_out_and_counted(field: bytes) -> None:
    limits = OtlpLimits(attributes=10, events=10)
    (span,) = decode_traces(
        spans(frame(b"\x12", IDS + (field + b"\x00") * 25)), json=False, limits=limits
    ).spans
    assert span.dropped == 15
    assert len(span.attributes) <= 10
    assert len(span.events) in (0, 10)


def both(attributes: int, limits: OtlpLimits, copies: int = 1) -> list[DecodedRequest]:
    """Spans of so many attributes, decoded in both forms, which must give the same."""
    names = [f"key{number}" for number in range(attributes)]
    values = [{"key": name, "value": {"stringValue": "x" * 10}} for name in names]
    span = IDS + b"".join(pair(name.encode(), frame(b"\x0a", b"x" * 10)) for name in names)
    return [
        decode_traces(spans(frame(b"\x12", span) * copies), json=False, limits=limits),
        decode_traces(
            json_traces(*[json_span(attributes=values)] * copies), json=True, limits=limits
        ),
    ]


def test_limits_of_a_span() -> None:
    for limits in (OtlpLimits(attributes=3), OtlpLimits(span_values=3)):
        for decoded in both(5, limits):
            (span,) = decoded.spans
            assert (list(span.attributes), span.dropped) == (["key0", "key1", "key2"], 2)


def test_text_beyond_the_limit_costs_whole_attributes_never_the_end_of_one() -> None:
    for decoded in both(5, OtlpLimits(text=35)):  # an attribute is 14 characters
        (span,) = decoded.spans
        assert (list(span.attributes), span.dropped) == (["key0", "key1"], 3)


def test_limits_of_a_request() -> None:
    for decoded in both(5, OtlpLimits(spans=2), copies=5):
        assert (len(decoded.spans), decoded.message) == (2, "3 too_many_spans")
    for decoded in both(5, OtlpLimits(values=10), copies=5):
        assert (len(decoded.spans), decoded.message) == (2, "3 too_many_values")


def test_a_resource_is_cut_to_what_may_be_stored_with_every_span() -> None:
    value = {"stringValue": "x" * 20_000}
    attributes = [{"key": "long", "value": value}, {"key": "service.name", "value": "shop"}]
    body = json_traces(json_span()).replace(
        b'"scopeSpans"',
        b'"resource":{"attributes":%b},"scopeSpans"' % jsonlib.dumps(attributes).encode(),
    )
    (span,) = decode_traces(body, json=True).spans
    assert (span.resource, span.dropped) == ({"service.name": "shop"}, 0)


def test_deep_json_is_refused() -> None:
    for body in (b"[" * 5_000, listed(b'{"a":' * 5_000), listed(b"[" * 500 + b"]" * 500)):
        with pytest.raises(UndecodableBody):
            decode_traces(body, json=True)


def test_numbers_of_a_million_digits() -> None:
    digits = b"9" * MILLION
    for text in (b'"' + digits + b'"', b'"1e' + digits + b'"'):
        field = b'"startTimeUnixNano": "TIME"'
        body = json_traces(json_span(startTimeUnixNano="TIME"))
        assert field in body
        (span,) = decode_traces(body.replace(b'"TIME"', text), json=True).spans
        assert span.start == 0
    with pytest.raises(UndecodableBody):
        decode_traces(listed(b'{"kind":' + digits + b"}"), json=True)


def test_halves_of_pairs_without_end_are_refused() -> None:
    with pytest.raises(UndecodableBody):
        decode_traces(b'{"x":"' + b"\\ud83d" * 300_000 + b'"}', json=True)
    decoded = decode_logs(b'{"x":"' + b"\\" * 2 * MILLION + b'\xff"}', json=True)
    assert not decoded.rejected


def test_a_span_of_a_megabyte_is_read_whole() -> None:
    text = b"A line of a passage.\n\n" * 50_000
    (span,) = decode_traces(
        spans(frame(b"\x12", IDS + pair(b"k", frame(b"\x0a", text)))), json=False
    ).spans
    assert (span.attributes, span.dropped) == ({"k": text.decode()}, 0)
