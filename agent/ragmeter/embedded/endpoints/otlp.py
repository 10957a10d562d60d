"""The OTLP/HTTP endpoints `/v1/traces` and `/v1/logs`; `/v1/metrics` takes and drops.

Requests are protobuf or JSON, plain or gzip; the response has the form of the request. As OTLP
asks, the status is 200 even if some spans were refused (`partial_success`: it would not help to
send them again), 400, 413 or 415 for requests that must not be sent again, and 429 or 503 with
`Retry-After` for those that should.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from aiohttp import hdrs, web
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic_core import to_json

from ragmeter.core.errors import Unavailable
from ragmeter.core.label_bounds import excerpt
from ragmeter.core.report_pace import ReportPace
from ragmeter.embedded.endpoints.request_bodies import (
    LARGE_BODY,
    BodyReader,
    GroupCommit,
    RequestRefused,
    defer_continue,
    deferral_status,
    finish_deferral,
)
from ragmeter.ingest.assembler import PartFate
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.otlp.json_format import is_json_body
from ragmeter.ingest.otlp.protobuf import Status
from ragmeter.ingest.otlp.reader import UndecodableBody
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.span_batches import (
    LOGS,
    SILENT_STATUSES,
    TRACES,
    BodyForm,
    SpanBatch,
    decode_batch,
    make_batch,
)
from ragmeter.ingest.stored_spans import DecodeSummary, StoredPart, iterate_parts
from ragmeter.server.connections import GRPC_CURE

log = logging.getLogger(__name__)

# An application that is told one address for all signals sends its metrics here too, and would log
# every other answer than 200.
_METRICS = "metrics"
_PATHS = {"/v1/traces": TRACES, "/v1/logs": LOGS, "/v1/metrics": _METRICS}
_GROUP = 10_000  # spans in one shared commit: 5 to 50 MB, and under 0.2 s
_PIECE = 2_500  # spans of one request in one commit: others wait for no longer than 0.05 s
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
    429: 8,
    500: 13,
    503: 14,
}
MAX_MESSAGE = 1_000  # characters
_LOGGED_CHARS = 200  # of a message, which names a header or a place in the body


class OtlpEndpoint:
    """The endpoints for spans and log events."""

    def __init__(
        self, assembly: OpenTraces, bodies: BodyReader, redactor: Redactor | None = None
    ) -> None:
        self._redactor = redactor or Redactor()
        self._bodies = bodies
        self._group = GroupCommit(assembly.accept, _GROUP)
        self._pace = ReportPace()
        self.start = self._group.start
        self.stop = self._group.stop

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        for path in _PATHS:
            app.router.add_post(path, self._handle, expect_handler=defer_continue)

    async def _handle(self, request: web.Request) -> web.Response:
        form: BodyForm | None = "json"  # a request that is no OTLP gets a readable response
        try:
            form = _declared_form(request)
            async with self._bodies.read(request) as body:
                if form is None:
                    form = "json" if is_json_body(body) else "protobuf"
                batch, broken = await self._decode(_PATHS[request.path], form, body)
                if broken is not None:
                    why = f"{broken}{_hint(form, body)}"
                    await self._store(batch)
                    self._tell(request, why)
                    return failure(form, 413 if broken.too_large else 400, why)
                return await self._respond(form, batch)
        except RequestRefused as refused:
            self._tell(request, str(refused))
            return await self._refuse(_PATHS[request.path], form or "protobuf", refused)
        except Unavailable as error:
            response = failure(form or "protobuf", deferral_status(error), str(error))
            finish_deferral(response, error)
            return response

    def _tell(self, request: web.Request, why: str) -> None:
        """Say once a minute why requests are refused: exporters log the status alone."""
        if self._pace.is_due(why.partition(":")[0]):
            sender = request.remote or "a client"
            log.warning("OTLP from %s is refused: %s", sender, excerpt(why, _LOGGED_CHARS))

    async def _refuse(self, signal: str, form: BodyForm, refused: RequestRefused) -> web.Response:
        with suppress(Unavailable):
            await self._group.commit(SpanBatch(signal, [], {"undecodable": 1}), 0)
        response = failure(form, refused.status, str(refused))
        response.force_close()  # the rest of the body is not read
        return response

    async def _decode(
        self, signal: str, form: BodyForm, body: bytes
    ) -> tuple[SpanBatch, UndecodableBody | None]:
        if signal == _METRICS:
            return SpanBatch(signal, [], {"not_read": 1}), None
        if len(body) < LARGE_BODY:
            decode = partial(decode_batch, signal, form, redactor=self._redactor)
            return await self._bodies.decode(decode, body)
        *parts, summary = await self._bodies.decode_apart(
            iterate_parts, body, self._redactor.settings, signal == LOGS, form == "json"
        )
        if not isinstance(summary, DecodeSummary):
            raise RuntimeError("not of the expected type")
        return make_batch(signal, cast(list[StoredPart], parts), summary)

    async def _store(self, batch: SpanBatch) -> Counter[PartFate]:
        fates: Counter[PartFate] = Counter()
        for part in _split(batch):
            fates += await self._group.commit(part, len(part.parts))
        return fates

    async def _respond(self, form: BodyForm, batch: SpanBatch) -> web.Response:
        fates = await self._store(batch)
        rejected = Counter(batch.refused)
        rejected[str(PartFate.OVER_LIMIT)] += fates[PartFate.OVER_LIMIT]
        for reason in SILENT_STATUSES:
            del rejected[reason]
        reasons = ", ".join(f"{number} {reason}" for reason, number in (+rejected).most_common())
        logs = batch.signal == LOGS
        number = rejected.total()
        return success(form, logs=logs, rejected=number, message=reasons)


def _hint(form: BodyForm, body: bytes) -> str:
    """Return what the sender of a body has to say of it, where its start tells what it is."""
    if body.startswith(b"\x1f\x8b"):
        return "; it is gzip: send Content-Encoding: gzip"
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return "; it is zstd: send Content-Encoding: zstd"
    if body[:1] == b"\0" and int.from_bytes(body[1:5]) == len(body) - 5:
        return f"; it is a message of gRPC: {GRPC_CURE}"
    if form == "protobuf" and is_json_body(body):
        return "; it is JSON: send Content-Type: application/json"
    if form == "json" and body.startswith(b"\n"):
        return "; protobuf needs Content-Type: application/x-protobuf"
    return ""


def _split(batch: SpanBatch) -> Iterator[SpanBatch]:
    """Yield batches of at most `_PIECE` parts.

    Where the second fails, the sender sends all of them again, and each part still counts once.
    Parts of a trace stay together, so that it is not closed between two of them.
    """
    parts = batch.parts
    if len(parts) > _PIECE:
        parts = sorted(parts, key=lambda part: part.part.trace)
    yield replace(batch, parts=parts[:_PIECE])
    for begin in range(_PIECE, len(parts), _PIECE):
        yield SpanBatch(batch.signal, parts[begin : begin + _PIECE])


def success(
    form: BodyForm, *, logs: bool = False, rejected: int = 0, message: str = ""
) -> web.Response:
    """Return a 200, empty or with the number of records that are rejected for good."""
    reply = ExportLogsServiceResponse() if logs else ExportTraceServiceResponse()
    if rejected or message:
        name = "rejected_log_records" if logs else "rejected_spans"
        setattr(reply.partial_success, name, rejected)
        reply.partial_success.error_message = message[:MAX_MESSAGE]
    return _response(form, 200, reply)


def failure(form: BodyForm, status: int, message: str) -> web.Response:
    """Return a response of that HTTP status, with a google.rpc.Status."""
    reply = Status(code=_CODES.get(status, 2), message=message[:MAX_MESSAGE])
    return _response(form, status, reply)


def _response(form: BodyForm, status: int, reply: Message) -> web.Response:
    body = reply.SerializeToString() if form == "protobuf" else to_json(MessageToDict(reply))
    kind = "application/x-protobuf" if form == "protobuf" else "application/json"
    return web.Response(status=status, body=body, headers={hdrs.CONTENT_TYPE: kind})


def parse_content_type(header: str | None) -> BodyForm | None:
    """Return the form that a Content-Type names, None for one that OTLP does not have (415)."""
    return _FORMS.get((header or "").partition(";")[0].strip().lower())


def _declared_form(request: web.Request) -> BodyForm | None:
    """Return the form of the Content-Type; None if there is none. May raise `RequestRefused`."""
    header = request.headers.get(hdrs.CONTENT_TYPE)
    if header is None:
        return None
    form = parse_content_type(header)
    if form is None:
        wanted = "application/x-protobuf or application/json"
        cure = f"; {GRPC_CURE}" if "grpc" in header.lower() else ""
        raise RequestRefused(415, f"Content-Type {header[:80]!r}: send {wanted}{cure}")
    return form
