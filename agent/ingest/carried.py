"""Spans and log events as they lie in the state file until their trace is complete.

A body is lines of compact JSON, each after a letter that says what it is. Log events join their
spans when the trace is read: they may come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from agent.ingest.assembler import Part
from agent.ingest.bounds import TooMuch, values_over
from agent.ingest.otlp import dump_log, dump_span, load_log, load_span
from agent.ingest.own import is_own, is_result
from agent.ingest.spans import Event, LogEvent, Span

__all__ = ["MAX_VALUES", "Carried", "carry", "carry_logs", "join", "read"]

SPAN, LOG = b"S", b"L"
OVERHEAD = 200  # bytes that a span costs besides its body: in memory, its row and its index
MAX_VALUES = 500_000  # of one trace; about 100 bytes each once they are objects


class Carried(NamedTuple):
    """A part of a trace, its line, and the span itself where it is one."""

    part: Part
    line: bytes
    span: Span | None = None


def carry(spans: Iterable[Span], refused: Counter[str]) -> list[Carried]:
    """What is to be kept of these spans; counts in `refused` why others are not."""
    out: list[Carried] = []
    for span in spans:
        if is_own(span):
            refused["own"] += 1
            continue
        try:
            line = SPAN + dump_span(span)
            trace, key = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        except (ValueError, TypeError, RecursionError):  # a decoder of ours has let it through
            refused["internal_error"] += 1
            continue
        part = Part(trace, key, len(line) + OVERHEAD, not span.parent_id)
        out.append(Carried(part, line, span))
    return out


def carry_logs(events: Iterable[LogEvent], refused: Counter[str]) -> list[Carried]:
    """The same for log events. They have no id of their own: what is the same in all counts once,
    as where a sender that got no answer sends again."""
    out: list[Carried] = []
    for log in events:
        if is_result(log):
            refused["own"] += 1
            continue
        try:
            line = LOG + dump_log(log)
            trace = bytes.fromhex(log.trace_id)
        except (ValueError, TypeError, RecursionError):
            refused["internal_error"] += 1
            continue
        key = blake2b(line, digest_size=8).digest()
        out.append(Carried(Part(trace, key, len(line) + OVERHEAD, log=True), line))
    return out


def join(lines: Iterable[bytes]) -> bytes:
    """The body of one row."""
    return b"\n".join(lines)


def read(bodies: Sequence[object]) -> tuple[list[Span], Counter[tuple[str, str]]]:
    """The spans of a trace with their log events, and how many lines are lost, by signal and why.

    A body of a damaged file may be anything. Raises `TooMuch` where a trace holds more values
    than one may.
    """
    lost: Counter[tuple[str, str]] = Counter()
    spans: list[Span] = []
    logs: dict[str, list[tuple[int, bytes, Event]]] = {}
    whole = [body for body in bodies if isinstance(body, bytes)]
    lost["traces", "corrupt"] += len(bodies) - len(whole)
    # a value is a byte at least: counting them costs as much as reading them
    if sum(map(len, whole)) > MAX_VALUES and values_over(join(whole), MAX_VALUES):
        raise TooMuch(f"more than {MAX_VALUES} values in one trace")
    for body in whole:
        for line in body.split(b"\n"):
            try:
                if line[:1] == LOG:
                    log = load_log(line[1:])
                    logs.setdefault(log.span_id, []).append((log.event.time, line, log.event))
                else:
                    spans.append(load_span(line[1:]))
            except (ValueError, TypeError, RecursionError):
                lost["traces", "corrupt"] += 1
    for span in spans:
        # by time and content: the same trace, whatever came first
        for _, _, event in sorted(logs.pop(span.span_id, []), key=lambda one: one[:2]):
            span.events.append(event)
    lost["logs", "no_span"] += sum(map(len, logs.values()))
    return spans, +lost
