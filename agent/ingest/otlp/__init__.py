"""OTLP requests of spans and of log records, in protobuf or JSON, to `Span`s and `LogEvent`s.

Nothing that a body holds raises anything but `Undecodable`; what is broken or too much in a body
that can be read costs itself, counted by reason. Meaning is `agent.ingest.conventions`' matter.
"""

from __future__ import annotations

from agent.ingest.otlp import json_form, protobuf
from agent.ingest.otlp.json_text import is_json
from agent.ingest.otlp.limits import Limits
from agent.ingest.otlp.result import Decoded, Undecodable
from agent.ingest.otlp.storing import dump_log, dump_span, load_log, load_span

__all__ = [
    "Decoded",
    "Limits",
    "Undecodable",
    "decode_logs",
    "decode_traces",
    "dump_log",
    "dump_span",
    "is_json",
    "load_log",
    "load_span",
]

_DEFAULTS = Limits()


def decode_traces(body: bytes, *, json: bool, limits: Limits = _DEFAULTS) -> Decoded:
    """The spans of an `ExportTraceServiceRequest`. Raises `Undecodable`."""
    return json_form.spans(body, limits) if json else protobuf.spans(body, limits)


def decode_logs(body: bytes, *, json: bool, limits: Limits = _DEFAULTS) -> Decoded:
    """The events of an `ExportLogsServiceRequest`. Raises `Undecodable`."""
    return json_form.logs(body, limits) if json else protobuf.logs(body, limits)
