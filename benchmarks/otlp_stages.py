"""From export requests to native traces, stage by stage, beside a bare protobuf parse.

Used by `benchmarks.otlp`; the bodies are those of `benchmarks.otlp_mix`. Times are process CPU
time; each round runs all stages once, the bare parse of a body right before the others, so that a
stage and what it is compared with meet the same machine. The least of the rounds counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.inputs import OtlpSettings
from ragmeter.core.clocks import Clocks
from ragmeter.core.counters import CounterKey
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest import open_traces
from ragmeter.ingest.native import decode_trace
from ragmeter.ingest.open_spans import OpenSpanRow
from ragmeter.ingest.open_traces import OpenTraces
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.span_batches import SpanBatch
from ragmeter.ingest.stored_spans import StoredPart, read_stored_trace, serialise_spans
from ragmeter.store.pending import OpenSpanTable, closing_statements

from benchmarks.otlp_mix import START, cases

__all__ = ["run"]

# whether the spans go through a state file, and whether copies of them are kept in memory
MODES = {"memory": (False, True), "SQLite": (True, True), "SQLite, no copies": (True, False)}
TRACE_BYTES = 2**24  # a native trace's limit: nothing here is to be a dead letter for its size


_COPY_BYTES = open_traces.MAX_COPY_BYTES


class Memory:
    """What `OpenSpans` offers, without a file."""

    def __init__(self) -> None:
        self.rows: dict[bytes, list[tuple[int, bytes]]] = {}

    def add(self, rows: Iterable[OpenSpanRow], counts: object) -> None:
        for row in rows:
            self.rows.setdefault(row.trace, []).append((0, row.body))

    def bodies(self, trace: bytes) -> list[tuple[int, Any]]:
        return self.rows[trace]

    def restore(self) -> tuple[list[Any], list[Any], int]:
        return [], [], 0


def _write(do: Callable[[], Mapping[CounterKey, float]]) -> None:
    do()


class _Clock:
    """Wall time that is moved by hand, and CPU time by stage."""

    def __init__(self) -> None:
        self.at = START
        self.spent: Counter[str] = Counter()
        self._from = time.process_time()

    def now(self) -> float:
        return self.at

    def start(self) -> None:
        self._from = time.process_time()

    def lap(self, stage: str) -> None:
        now = time.process_time()
        self.spent[stage] += int((now - self._from) * 1e9)
        self._from = time.process_time()


def once(
    bodies: Sequence[bytes], durable: bool, copies: bool = True
) -> tuple[Counter[str], int, int]:
    """One round: nanoseconds by stage, spans, traces."""
    clock = _Clock()
    with TemporaryDirectory() as folder:
        paths = {"path": f"{folder}/s.sqlite"}
        open_traces.MAX_COPY_BYTES = _COPY_BYTES if copies else 0
        settings = load_settings(environ={}, overrides={"state": paths} if durable else {})
        agent = (
            EmbeddedAgent(settings, [], clocks=Clocks(clock.now, clock.now), parts=PARTS)
            if durable
            else None
        )
        store: Any = OpenSpanTable(agent._store) if agent else Memory()
        assembly = (
            agent.assembly
            if agent
            else OpenTraces(settings.otlp, store, _write, clock=clock.now, monotonic=clock.now)
        )
        try:
            return _round(bodies, clock, assembly, store, agent)
        finally:
            if agent:
                agent._store.close()


def _round(
    bodies: Sequence[bytes], clock: _Clock, assembly: OpenTraces, store: Any, agent: Any
) -> tuple[Counter[str], int, int]:
    settings = OtlpSettings()
    number = traces = 0
    for body in bodies:
        clock.start()
        ExportTraceServiceRequest.FromString(body)
        clock.lap("bare")
        spans = decode_traces(body, json=False).spans
        clock.lap("decode")
        parts: list[StoredPart] = serialise_spans(spans, Counter())
        clock.lap("carry")
        assembly.accept([SpanBatch("traces", parts)])
        clock.lap("accept")
        number += len(spans)
        del spans, parts
        clock.at += 60
        while due := assembly.due(64, 16 * 2**20):
            clock.start()
            ready: list[Any] = []
            for closing in due:
                held = assembly.copy(closing.trace)
                if held is None:
                    held, _ = read_stored_trace([row for _, row in store.bodies(closing.trace)])
                clock.lap("read")
                found = extract_requests(held, settings).traces
                clock.lap("extract")
                for one in found:
                    text = one.model_dump_json(exclude_none=True).encode()
                    ready.append((decode_trace(text, TRACE_BYTES), 0))
                clock.lap("native")
                traces += len(found)
            closed = [closing.trace for closing in due]
            if agent:
                also = closing_statements(assembly.closing(closed))
                agent.accept(ready, "otlp", live=True, written=set(), also=also, counts={})
            assembly.done(closed)
            clock.lap("hand on")
    return clock.spent, number, traces


STAGES = ("decode", "carry", "accept", "read", "extract")


def _line(name: str, seconds: float, spans: int, bare: float) -> None:
    each = seconds / spans
    print(f"  {name:34}{1 / each:12,.0f} spans/s{each * 1e6:9.1f} us/span{seconds / bare:8.1f} x")


def run(repeat: int, spans: int, request: int) -> None:
    for case, bodies in cases(spans, request).items():
        size = sum(map(len, bodies))
        rounds = {
            name: [once(bodies, *mode) for _ in range(repeat)] for name, mode in MODES.items()
        }
        _, number, traces = rounds["SQLite"][0]
        print(f"{case}: {number} spans, {traces} requests, {size / number:,.0f} bytes a span")

        def least(mode: str, *stages: str, rounds: Any = rounds) -> float:
            return float(min(sum(one[0][s] for s in stages) for one in rounds[mode]) / 1e9)

        bare = min(least(mode, "bare") for mode in MODES)
        _line("bare protobuf parse", bare, number, bare)
        for stage in ("decode", "carry", "extract"):
            _line(stage, min(least(mode, stage) for mode in MODES), number, bare)
        for mode in MODES:
            for stage in ("accept", "read"):
                _line(f"{stage} ({mode})", least(mode, stage), number, bare)
        for mode in MODES:
            _line(f"decode to extract ({mode})", least(mode, *STAGES), number, bare)
        _line(
            "... and into the queue (SQLite)",
            least("SQLite", *STAGES, "native", "hand on"),
            number,
            bare,
        )
