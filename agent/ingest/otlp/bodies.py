"""Decode OTLP/HTTP request bodies in either form and encode the response bodies.

OTLP requests of spans and of log records, in protobuf or JSON, to `Span`s and `LogEvent`s.

Nothing that a body holds raises anything but `Undecodable`; what is broken or too much in a body
that can be read costs itself, counted by reason. Meaning is `ragmeter.ingest.conventions.registry`' matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic_core import to_json

from ragmeter.ingest.otlp import json_requests, protobuf
from ragmeter.ingest.otlp.limits import DecodedRequest, OtlpLimits
from ragmeter.ingest.otlp.protobuf import Status

_DEFAULTS = OtlpLimits()


def decode_traces(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """The spans of an `ExportTraceServiceRequest`. Raises `Undecodable`."""
    return (
        json_requests.decode_json_spans(body, limits)
        if json
        else protobuf.decode_protobuf_spans(body, limits)
    )


def decode_logs(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """The events of an `ExportLogsServiceRequest`. Raises `Undecodable`."""
    return (
        json_requests.decode_json_logs(body, limits)
        if json
        else protobuf.decode_protobuf_logs(body, limits)
    )


BodyForm = Literal["protobuf", "json"]

_TYPES: dict[BodyForm, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}
_FORMS: dict[str, BodyForm] = {
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",  # some senders' name for it
    "application/json": "json",
}
# google.rpc.Code by HTTP status, as the mapping of gRPC to HTTP has it; 2 is UNKNOWN
_CODES = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    405: 12,
    408: 4,
    413: 3,
    415: 3,
    429: 8,
    500: 13,
    503: 14,
}
MAX_MESSAGE = 1_000  # characters


@dataclass(frozen=True, slots=True)
class OtlpResponse:
    """The body of an answer and its Content-Type."""

    body: bytes
    content_type: str


def parse_content_type(header: str | None) -> BodyForm | None:
    """The form that a Content-Type names, None for one that OTLP does not have (415)."""
    return _FORMS.get((header or "").partition(";")[0].strip().lower())


def _reply(form: BodyForm, message: Message, plain: object) -> OtlpResponse:
    body = message.SerializeToString() if form == "protobuf" else to_json(plain)
    return OtlpResponse(body, _TYPES[form])


def encode_success(
    form: BodyForm, *, logs: bool = False, rejected: int = 0, message: str = ""
) -> OtlpResponse:
    """The body of a 200: empty, or what was not taken and will not be however often it is sent."""
    answer = ExportLogsServiceResponse() if logs else ExportTraceServiceResponse()
    if not rejected and not message:
        return _reply(form, answer, {})
    message = message[:MAX_MESSAGE]
    part = {"errorMessage": message} if message else {}
    if isinstance(answer, ExportLogsServiceResponse):
        answer.partial_success.rejected_log_records = rejected
        part["rejectedLogRecords"] = str(rejected)
    else:
        answer.partial_success.rejected_spans = rejected
        part["rejectedSpans"] = str(rejected)
    answer.partial_success.error_message = message
    return _reply(form, answer, {"partialSuccess": part})


def encode_failure(form: BodyForm, status: int, message: str) -> OtlpResponse:
    """The body of a refusal with that HTTP status: a google.rpc.Status."""
    code = _CODES.get(status, 2)
    message = message[:MAX_MESSAGE]
    return _reply(form, Status(code=code, message=message), {"code": code, "message": message})
