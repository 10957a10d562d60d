"""The bodies that `benchmarks.otlp_stages` measures: every span of the bundled samples
(`tests/data/otlp/*.otlp.jsonl*` and `wire/*.pb`), copied under other trace ids into protobuf
requests as a batching exporter sends them; a span of 114 kB; a request of 20 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.spans import AttributeValue, Span
from ragmeter.offline.inspection import _bodies

__all__ = ["START", "cases"]

DATA = Path(__file__).parents[1] / "tests" / "data" / "otlp"
START = 1_790_000_000.0


def sample_spans() -> list[Span]:
    paths = sorted([*DATA.glob("*.otlp.jsonl*"), *DATA.glob("wire/*.pb")])
    spans: dict[tuple[str, str, str], Span] = {}
    for path in paths:
        for body in _bodies(path):
            for span in decode_traces(body, json=path.suffix != ".pb").spans:
                spans.setdefault((path.name, span.trace_id, span.span_id), span)
    return list(spans.values())


def _value(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    out = AnyValue()
    if isinstance(value, list):
        out.array_value.values.extend(map(_value, value))
    elif isinstance(value, dict):
        out.kvlist_value.values.extend(_pairs(value))
    return out


def _pairs(attributes: dict[str, AttributeValue]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _wire(span: Span, trace: bytes) -> WireSpan:
    out = WireSpan(
        trace_id=trace,
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        name=span.name,
        kind=span.kind,  # type: ignore[arg-type]
        start_time_unix_nano=span.start,
        end_time_unix_nano=span.end,
        attributes=_pairs(span.attributes),
        trace_state=span.trace_state,
        dropped_attributes_count=span.dropped,
    )
    out.status.code = span.status  # type: ignore[assignment]
    out.status.message = span.status_message
    for event in span.events:
        out.events.add(
            name=event.name, time_unix_nano=event.time, attributes=_pairs(event.attributes)
        )
    return out


def body_of(spans: Sequence[Span], copies: Iterable[int]) -> bytes:
    """One request with the spans once for each of `copies`, each under trace ids of its own."""
    request = ExportTraceServiceRequest()
    groups: dict[tuple[str, str], ScopeSpans] = {}
    for copy in copies:
        for span in spans:
            key = (repr(sorted(span.resource.items())), span.scope)
            group = groups.get(key)
            if group is None:
                resource = request.resource_spans.add()
                resource.resource.attributes.extend(_pairs(span.resource))
                group = groups[key] = resource.scope_spans.add()
                group.scope.name = span.scope
            trace = copy.to_bytes(4, "big") + bytes.fromhex(span.trace_id)[4:]
            group.spans.append(_wire(span, trace))
    return request.SerializeToString()


def large_span(size: int) -> list[Span]:
    """A retriever of so many bytes beside a question and its answer: a hundred documents."""
    kind = "openinference.span.kind"
    text = "Retrieved text that an answer rests on. " * (size // 100 // 40)
    found: dict[str, AttributeValue] = {kind: "RETRIEVER", "input.value": "What holds?"}
    for number in range(100):
        prefix = f"retrieval.documents.{number}.document"
        found[f"{prefix}.id"] = str(number)
        found[f"{prefix}.content"] = f"{number} {text}"
    at = int(START * 1e9)
    trace = "0" * 8 + "ab" * 12
    ask: dict[str, AttributeValue] = {
        kind: "CHAIN",
        "input.value": "What holds?",
        "output.value": "This.",
    }
    say: dict[str, AttributeValue] = {
        kind: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "What holds?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "This.",
    }
    ids = ["1" * 16, "2" * 16, "3" * 16]
    resource: dict[str, AttributeValue] = {"service.name": "bench"}
    return [
        Span(trace, ids[0], "", "ask", 1, at, at + 90, attributes=ask, resource=resource),
        Span(
            trace, ids[1], ids[0], "look", 1, at + 1, at + 20, attributes=found, resource=resource
        ),
        Span(trace, ids[2], ids[0], "say", 1, at + 30, at + 80, attributes=say, resource=resource),
    ]


def cases(spans: int, request: int) -> dict[str, list[bytes]]:
    """The bodies by case: `spans` spans of the mix in requests of about `request`."""
    mix = sample_spans()
    each = max(1, request // len(mix))
    copies = range(1, 1 + max(1, spans // len(mix)))
    large = large_span(114_000)
    huge = len(body_of(mix, [0]))
    return {
        "sample mix": [body_of(mix, copies[at : at + each]) for at in range(0, len(copies), each)],
        "a span of 114 kB": [body_of(large, [copy]) for copy in range(1, 65)],
        "a request of 20 MB": [body_of(mix, range(1, 1 + 20_000_000 // huge))],
    }
