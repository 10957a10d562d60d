"""OTLP requests as the Collector's kafka exporter writes them: protobuf, or JSON with hex ids."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.spans import Span
from ragmeter.trace import Trace

from tests.ingest.building import DATA, Run, documents, messages

__all__ = ["as_json", "as_proto", "expected_natives", "rag_run", "samples_spans", "spread"]

KIND = "openinference.span.kind"
PASSAGE = "Click Forgot password on the login page to reset it."


def rag_run(n: int, service: str) -> list[Span]:
    """A request with retriever and model, children first and the root last, as an SDK ends them."""
    run = Run(f"{random.Random(n).getrandbits(128) | 1:032x}", service=service)
    at = n * 0.5
    answer = "" if n % 23 == 0 else f"Click Forgot password {n}."
    content = {"input.value": f"How do I reset it ({n})?", "output.value": answer}
    root = run.span(
        "query", None, (at, at + 2), {KIND: "CHAIN", **content}, status=2 * (n % 17 == 0)
    )
    run.span("retrieve", root, (at, at + 1), {KIND: "RETRIEVER", **documents(PASSAGE, f"no {n}")})
    run.span("llm", root, (at + 1, at + 2), {KIND: "LLM", **messages("reset?", answer)})
    return [*run.spans[1:], root]


def samples_spans() -> list[Span]:
    """Of real frameworks."""
    found: list[Span] = []
    for path in sorted(DATA.glob("*.otlp.jsonl")):
        for line in path.read_bytes().splitlines():
            found += decode_traces(line, json=True).spans
    return found


def spread(
    runs: Iterable[Sequence[Span]], rng: random.Random, *, by_id: bool, size: int = 8
) -> list[tuple[bytes | None, list[Span]]]:
    """Batches as a Collector sends them, with the key of the message: of several traces each, a
    trace over several of them; or `by_id`, as with `partition_traces_by_id`."""
    batches: list[tuple[bytes | None, list[Span]]] = []
    waiting: list[Span] = []
    for spans in runs:
        cut = rng.randrange(len(spans))
        if by_id:
            key = spans[0].trace_id.encode()
            batches += [(key, list(part)) for part in (spans[:cut], spans[cut:]) if part]
            continue
        waiting += spans
        while len(waiting) >= size:
            batches.append((None, waiting[:size]))
            waiting = waiting[size:]
    return [*batches, (None, waiting)] if waiting else batches


def expected_natives(spans: Sequence[Span], otlp: OtlpSettings) -> list[Trace]:
    return extract_requests(spans, otlp).traces


def as_proto(spans: Iterable[Span]) -> bytes:
    return _request(spans).SerializeToString()


def as_json(spans: Iterable[Span]) -> bytes:
    """As the Collector's marshaller: camel case, ids in hex, 64-bit integers as text."""
    tree = MessageToDict(_request(spans), use_integers_for_enums=True)
    for resource in tree["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                _hex(span)
    return json.dumps(tree).encode()


def _hex(span: dict[str, Any]) -> None:
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in span:
            span[name] = base64.b64decode(span[name]).hex()


def _request(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    for span in spans:
        resource = request.resource_spans.add()
        resource.resource.attributes.extend(_pairs(span.resource))
        scope = resource.scope_spans.add()
        scope.scope.name = span.scope
        one = scope.spans.add(
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_id),
            name=span.name,
            kind=span.kind,
            start_time_unix_nano=span.start,
            end_time_unix_nano=span.end,
            attributes=_pairs(span.attributes),
            trace_state=span.trace_state,
        )
        one.status.code = span.status  # type: ignore[assignment]
        one.status.message = span.status_message
        for event in span.events:
            one.events.add(
                name=event.name, time_unix_nano=event.time, attributes=_pairs(event.attributes)
            )
    return request


def _pairs(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in values.items()]


def _value(value: Any) -> AnyValue:
    found = AnyValue()
    if isinstance(value, bool):
        found.bool_value = value
    elif isinstance(value, int):
        found.int_value = value
    elif isinstance(value, float):
        found.double_value = value
    elif isinstance(value, str):
        found.string_value = value
    elif isinstance(value, list):
        found.array_value.values.extend(map(_value, value))
    elif isinstance(value, dict):
        found.kvlist_value.values.extend(_pairs(value))
    return found
