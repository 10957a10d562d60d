"""Decode OTLP/HTTP request bodies in either form, and encode the response bodies.

Requests of spans and of log records, in protobuf or JSON, become `Span`s and `LogEvent`s. Decoding
raises nothing but `UndecodableBody`: in a readable body, a record that is broken or too much
costs only itself and is counted by reason. `ragmeter.ingest.conventions` reads their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic_core import to_json

from ragmeter.ingest.otlp.json_format import decode_json
from ragmeter.ingest.otlp.protobuf import Status, decode_protobuf
from ragmeter.ingest.otlp.reader import DecodedRequest, OtlpLimits

_DEFAULTS = OtlpLimits()
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
    413: 3,
    415: 3,
    401: 16,
    403: 7,
    404: 5,
    405: 12,
    408: 4,
    429: 8,
    500: 13,
    503: 14,
}
MAX_MESSAGE = 1_000  # characters


@dataclass(frozen=True, slots=True)
class OtlpResponse:
    """The body of a response and its Content-Type."""

    body: bytes
    content_type: str


def decode_traces(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """Decode an `ExportTraceServiceRequest`; raise `UndecodableBody` if nothing can be read."""
    return (decode_json if json else decode_protobuf)(body, limits, logs=False)


def decode_logs(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """Decode an `ExportLogsServiceRequest`; raise `UndecodableBody` if nothing can be read."""
    return (decode_json if json else decode_protobuf)(body, limits, logs=True)


def parse_content_type(header: str | None) -> BodyForm | None:
    """Return the form that a Content-Type names, None for one that OTLP does not have (415)."""
    return _FORMS.get((header or "").partition(";")[0].strip().lower())


def encode_success(
    form: BodyForm, *, logs: bool = False, rejected: int = 0, message: str = ""
) -> OtlpResponse:
    """Encode the body of a 200, empty or with the number of records that are rejected for good."""
    response = ExportLogsServiceResponse() if logs else ExportTraceServiceResponse()
    if rejected or message:
        name = "rejected_log_records" if logs else "rejected_spans"
        setattr(response.partial_success, name, rejected)
        response.partial_success.error_message = message[:MAX_MESSAGE]
    return _encode(form, response)


def encode_failure(form: BodyForm, status: int, message: str) -> OtlpResponse:
    """Encode the body of a response with that HTTP status as a google.rpc.Status."""
    return _encode(form, Status(code=_CODES.get(status, 2), message=message[:MAX_MESSAGE]))


def _encode(form: BodyForm, message: Message) -> OtlpResponse:
    body = message.SerializeToString() if form == "protobuf" else to_json(MessageToDict(message))
    return OtlpResponse(body, _TYPES[form])
