"""What a sender of OTLP/HTTP is answered, in the form it sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic_core import to_json

from agent.ingest.otlp.layers import Status

__all__ = ["Form", "Reply", "content_type", "failure", "success"]

Form = Literal["protobuf", "json"]

_TYPES: dict[Form, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}
_FORMS: dict[str, Form] = {
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
class Reply:
    """The body of an answer and its Content-Type."""

    body: bytes
    content_type: str


def content_type(header: str | None) -> Form | None:
    """The form that a Content-Type names, None for one that OTLP does not have (415)."""
    return _FORMS.get((header or "").partition(";")[0].strip().lower())


def _reply(form: Form, message: Message, plain: object) -> Reply:
    body = message.SerializeToString() if form == "protobuf" else to_json(plain)
    return Reply(body, _TYPES[form])


def success(form: Form, *, logs: bool = False, rejected: int = 0, message: str = "") -> Reply:
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


def failure(form: Form, status: int, message: str) -> Reply:
    """The body of a refusal with that HTTP status: a google.rpc.Status."""
    code = _CODES.get(status, 2)
    message = message[:MAX_MESSAGE]
    return _reply(form, Status(code=code, message=message), {"code": code, "message": message})
