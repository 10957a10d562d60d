"""Native traces of the spans of a trace that was closed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence

from ragmeter.core.counters import Counts
from ragmeter.ingest.assembler import ClosingTrace
from ragmeter.ingest.native import BodyLimitExceeded, DecodedTrace, DecodeFailure, decode_trace
from ragmeter.ingest.requests.extraction import ExtractedRequests
from ragmeter.ingest.span_batches import parts_total
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import read_stored_trace

log = logging.getLogger(__name__)


def extract_traces(
    closing: ClosingTrace,
    bodies: Callable[[], Sequence[object]],
    extract: Callable[[Sequence[Span]], ExtractedRequests],
    limit: int,
    spans: Sequence[Span] | None = None,
) -> tuple[list[DecodedTrace | DecodeFailure], Counts]:
    """Make native traces of the spans of a closed trace; bad spans cost this trace alone.

    Args:
        closing: The closed trace.
        bodies: Returns its stored lines.
        extract: Reads requests out of spans.
        limit: The most bytes of a native trace.
        spans: Its spans, where they are at hand.

    Returns:
        The traces or dead letters, and what is to be counted.
    """
    counts: Counts = {("ragmeter_otlp_traces_total", (("result", str(closing.why)),)): 1}
    try:
        if spans is None:
            spans, lost = read_stored_trace(bodies())
            for (signal, result), number in lost.items():
                counts[parts_total(signal, result)] = number
        extracted = extract(spans)
        for reason, number in extracted.dropped.items():
            counts["ragmeter_otlp_dropped_total", (("reason", reason),)] = number
        counts |= extracted.counts
        texts = [one.model_dump_json(exclude_none=True).encode() for one in extracted.traces]
        return [decode_trace(text, limit) for text in texts], counts
    except BodyLimitExceeded as error:
        failure = "too_large", str(error)
    except (sqlite3.Error, MemoryError, OSError):
        raise
    except Exception as error:
        log.exception("trace %s cannot be read; it is a dead letter", closing.trace.hex())
        failure = "internal_error", repr(error)[:200]
    lines = b"\n".join(body for body in bodies() if isinstance(body, bytes)).split(b"\n")
    # the letter before each line tells spans from log events
    raw = b"\n".join(line[1:] for line in lines)
    return [DecodeFailure(failure[0], (("", failure[1]),), raw)], counts
