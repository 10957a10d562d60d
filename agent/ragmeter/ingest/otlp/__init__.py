"""OTLP requests in protobuf or JSON to spans and log events.

Decoding raises nothing but `UndecodableBody`: in a readable body, a record that is broken or too
much costs only itself and is counted by reason. `ragmeter.ingest.conventions` reads their meaning.
"""

from __future__ import annotations

from ragmeter.ingest.otlp.json_format import decode_json
from ragmeter.ingest.otlp.protobuf import decode_protobuf
from ragmeter.ingest.otlp.reader import DecodedRequest, OtlpLimits

_DEFAULTS = OtlpLimits()


def decode_traces(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """Decode an `ExportTraceServiceRequest`; raise `UndecodableBody` if nothing can be read."""
    return (decode_json if json else decode_protobuf)(body, limits, logs=False)


def decode_logs(body: bytes, *, json: bool, limits: OtlpLimits = _DEFAULTS) -> DecodedRequest:
    """Decode an `ExportLogsServiceRequest`; raise `UndecodableBody` if nothing can be read."""
    return (decode_json if json else decode_protobuf)(body, limits, logs=True)
