"""A message of the traces tells its form by its header, the settings or its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.kafka.span_records import MessageEncoding, detect_encoding, is_logs, message_encoding

from tests.ingest.building import DATA
from tests.kafka.otlp_bodies import as_json, as_proto, rag_run
from tests.tables import each_row
from tests.traces import trace_line


@each_row("path", sorted(DATA.rglob("*.*")), ids=lambda path: path.name)
def test_real_requests_are_told_from_traces(path: Path) -> None:
    if path.suffix == ".pb":
        assert detect_encoding(path.read_bytes()) is MessageEncoding.PROTO
    elif path.suffix == ".jsonl":
        for line in path.read_bytes().splitlines():
            assert detect_encoding(line) is MessageEncoding.JSON
    elif "otlp" in path.name and path.suffix == ".json":
        assert detect_encoding(path.read_bytes()) is MessageEncoding.JSON


def test_a_trace_is_one_whatever_is_around_it_or_in_it() -> None:
    line = trace_line(1)
    for body in (line, b"\n" + line, b"  \n" + line, b"\xef\xbb\xbf" + line):
        assert detect_encoding(body) is MessageEncoding.NATIVE
    tree = json.loads(line)
    more: dict[str, Any]
    for more in ({"metadata": {"resourceSpans": []}}, {"query": '{"resourceSpans": []}'}):
        assert detect_encoding(json.dumps({**tree, **more}).encode()) is MessageEncoding.NATIVE


def test_no_length_of_a_request_makes_it_look_like_a_trace() -> None:
    """A first resource of 123 bytes is `{` after the line feed."""
    lengths = set()
    for size in range(200):
        request = ExportTraceServiceRequest()
        one = request.resource_spans.add().scope_spans.add().spans.add(name="x" * size)
        one.trace_id, one.span_id = b"\x7b" * 16, b"\x22" * 8
        body = request.SerializeToString()
        lengths.add(body[1])
        assert detect_encoding(body) is MessageEncoding.PROTO
    assert ord("{") in lengths


@each_row(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"x",
        b"\x00\x01",
        b"{}",
        b'{"batch": 1}',
        b'{"a": "resourceSpans"}',
    ],
)
def test_what_is_neither_is_refused_as_a_trace(body: bytes) -> None:
    assert detect_encoding(body) is MessageEncoding.NATIVE
    assert isinstance(decode_trace(body, 1000), DecodeFailure)


def test_the_header_goes_before_the_settings_and_those_before_the_content() -> None:
    spans = rag_run(1, "bot")
    proto = as_proto(spans)
    assert message_encoding(proto, None, "auto") is MessageEncoding.PROTO
    assert message_encoding(proto, None, "otlp_json") is MessageEncoding.JSON
    assert message_encoding(b"{}", [], "otlp_proto") is MessageEncoding.PROTO
    assert (
        message_encoding(proto, [("encoding", b"native")], "otlp_proto") is MessageEncoding.NATIVE
    )
    assert message_encoding(proto, {"encoding": b"otlp_json"}, "auto") is MessageEncoding.JSON
    assert message_encoding(proto, [("encoding", b"\xffgzip")], "auto") is MessageEncoding.PROTO


def test_log_records_are_told_from_spans_in_json() -> None:
    assert not is_logs(as_json(rag_run(1, "bot")))
    assert is_logs(b'\n { "resourceLogs" : []}')
    assert is_logs(b'{"resource_logs":[]}')
