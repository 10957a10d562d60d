"""Results as OTLP requests: log events of the OTel GenAI conventions, spans of OpenInference.

Ids are made from what a result is about, not at random: a batch that was sent twice because its
answer was lost carries the same ids twice, and a receiver can tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from agent import __version__
from agent.ingest.own import EVALUATOR, KIND, RESULT_EVENT, SCOPE, SERVICE
from agent.trace import State
from exporters.otel.results import Result, tier_of

__all__ = ["Encode", "logs_request", "rejected_logs", "rejected_spans", "spans_request"]

Encode = Callable[[Sequence[Result]], bytes]

Plain = str | float | None

PREFIX = "evaluations.0.evaluation."

UNIQUE = frozenset(
    (
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.explanation",
        "log.record.uid",
        f"{PREFIX}score",
        f"{PREFIX}explanation",
        f"{PREFIX}metadata",
    )
)
"""What differs from one result to the next."""


def logs_request(results: Sequence[Result]) -> bytes:
    """The body for `/v1/logs`."""
    scope = ScopeLogs(scope=_scope(), log_records=[_record(one) for one in results])
    groups = [ResourceLogs(resource=_resource(), scope_logs=[scope])]
    return ExportLogsServiceRequest(resource_logs=groups).SerializeToString()


def spans_request(results: Sequence[Result]) -> bytes:
    """The body for `/v1/traces`. Results that name no span are left out: such a span must link to
    its target."""
    spans = [_span(one) for one in results if one.span is not None]
    scope = ScopeSpans(scope=_scope(), spans=spans)
    groups = [ResourceSpans(resource=_resource(), scope_spans=[scope])]
    return ExportTraceServiceRequest(resource_spans=groups).SerializeToString()


def rejected_logs(reply: bytes) -> tuple[int, str]:
    """How many records the receiver did not take, and its words. DecodeError."""
    partial = ExportLogsServiceResponse.FromString(reply).partial_success
    return partial.rejected_log_records, partial.error_message


def rejected_spans(reply: bytes) -> tuple[int, str]:
    """How many spans the receiver did not take, and its words. DecodeError."""
    partial = ExportTraceServiceResponse.FromString(reply).partial_success
    return partial.rejected_spans, partial.error_message


def _resource() -> Resource:
    about = {"service.name": SERVICE, "service.version": __version__}
    return Resource(attributes=_attributes(about.items()))


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name=SCOPE, version=__version__)


def _attributes(pairs: Iterable[tuple[str, Plain]]) -> list[KeyValue]:
    """What is None is left out."""
    return [
        _pair(name, value) if name in UNIQUE else _again(name, value)
        for name, value in pairs
        if value is not None
    ]


def _pair(name: str, value: str | float) -> KeyValue:
    pair = KeyValue(key=name)  # setting the value is three times as fast as giving it
    if isinstance(value, str):
        pair.value.string_value = _sound(value)
    else:
        pair.value.double_value = value
    return pair


_again = lru_cache(4096)(_pair)
"""Most pairs come again and again: 4,096 hold those of a busy agent, and the ids of a trace for
its next results."""


def _sound(text: str) -> str:
    """Without lone surrogates: JSON may hold them, protobuf takes none."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _mark(result: Result) -> bytes:
    """24 bytes that are the same for the same score of the same trace."""
    about = (result.service, result.trace_id, result.metric, result.scorer, result.fingerprint)
    return blake2b(ascii(about).encode(), digest_size=24, person=b"ragmeter").digest()


def _ours(result: Result) -> dict[str, Plain]:
    """What no convention has a name for."""
    return {
        "ragmeter.service": result.service,
        "ragmeter.trace_id": result.trace_id,
        "ragmeter.scorer": result.scorer,
        "ragmeter.state": str(result.state),
        "ragmeter.reason": result.reason,
        "ragmeter.fingerprint": result.fingerprint,
        "ragmeter.probability": result.probability,
    }


def _error(result: Result) -> str | None:
    """`error.type` of a result that should have a value and has none."""
    return (result.reason or "_OTHER") if result.state is State.UNSCORED else None


def _record(result: Result) -> LogRecord:
    about: Mapping[str, Plain] = {
        "gen_ai.evaluation.name": result.metric,
        "gen_ai.evaluation.score.value": result.value,
        "gen_ai.evaluation.score.label": result.label,
        "gen_ai.evaluation.explanation": result.explanation,
        "error.type": _error(result),
        "log.record.uid": _mark(result).hex(),
        **_ours(result),
    }
    record = LogRecord(
        time_unix_nano=result.at,
        observed_time_unix_nano=result.at,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=RESULT_EVENT,
        attributes=_attributes(about.items()),
    )
    if result.span is not None:
        record.trace_id = bytes.fromhex(result.span.trace_id)
        record.span_id = bytes.fromhex(result.span.span_id)
    return record


def _span(result: Result) -> Span:
    assert result.span is not None
    mark = _mark(result)
    by = result.scorer + (f"@{result.fingerprint}" if result.fingerprint else "")
    error = _error(result)
    one = {
        "name": result.metric,
        "score": result.value,
        "label": result.label,
        # an evaluation needs a score, a label or an explanation
        "explanation": f"unscored: {error}" if error else result.explanation,
        "annotator_kind": "LLM" if tier_of(result.scorer) == "judge" else "CODE",
        "identifier": by,
        # what tools that keep evaluations and drop spans still see
        "metadata": json.dumps({k: v for k, v in _ours(result).items() if v is not None}),
    }
    about: Mapping[str, Plain] = {
        KIND: EVALUATOR,
        **{PREFIX + name: value for name, value in one.items()},
        "error.type": error,
        **_ours(result),
    }
    target = Span.Link(
        trace_id=bytes.fromhex(result.span.trace_id), span_id=bytes.fromhex(result.span.span_id)
    )
    return Span(
        trace_id=mark[:16],
        span_id=mark[16:],
        name=_sound(f"{result.metric} evaluation"),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=result.at,
        end_time_unix_nano=result.at,
        attributes=_attributes(about.items()),
        links=[target],
        status=Status(code=Status.STATUS_CODE_ERROR, message=_sound(error))
        if error
        else Status(code=Status.STATUS_CODE_OK),
    )
