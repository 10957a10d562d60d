"""Open traces: which spans have come of them, kept durable until a trace is complete.

`accept` returns when what it was given is durable; `agent.closer` takes out what is complete. Ids
and sizes are in memory, and of the latest spans a copy. Whatever order spans come in, and wherever
the process is killed, each is in the state file once.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.counters import CounterKey, Counts, Gauge
from agent.ingest.assembler import Assembler, Closing, Fate, Plan
from agent.ingest.carried import Carried, join
from agent.ingest.copies import Copies
from agent.ingest.spans import Span
from agent.intake import QueueFull, Write
from agent.settings.otlp import Otlp
from agent.steady import steady
from agent.store.open_spans import OpenSpans, Row
from agent.store.sqlite import Statements

__all__ = ["LOGS", "TRACES", "Assembly", "Batch", "parts_total"]

log = logging.getLogger("ragmeter")

TRACES, LOGS = "traces", "logs"


def parts_total(signal: str, result: str) -> CounterKey:
    return "ragmeter_otlp_spans_total", (("signal", signal), ("result", result))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one request brought. `signal` is `traces` or `logs`; `refused` says of how many parts
    nothing is kept, and why. `counts` are what else is counted of it."""

    signal: str
    parts: Sequence[Carried]
    refused: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[CounterKey, float] = field(default_factory=dict)


class Assembly:
    """Safe from any thread. `clock` is wall time, so that arrivals can be kept."""

    def __init__(
        self,
        settings: Otlp,
        store: OpenSpans,
        write: Write,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._write = write
        self.now = steady(clock, monotonic)  # nothing is closed because the clock was set
        self._lock = threading.Lock()
        self._assembler = Assembler(settings)
        self._copies = Copies(settings.max_copy_bytes)
        self._forgotten: list[bytes] = []
        opened, closed, broken = store.restore()
        self._assembler.restore(opened, closed, self.now())
        if broken:
            log.error("%d rows of open spans in the state file made no sense", broken)
            write(lambda: {parts_total(TRACES, "corrupt"): broken})

    def accept(self, batches: Sequence[Batch]) -> list[Counter[Fate]]:
        """Make parts durable, once each; returns what became of those of each batch.

        Raises `QueueFull` or `Unavailable`; then nothing was accepted.
        """
        carried = [part for batch in batches for part in batch.parts]
        with self._lock:
            if self._assembler.full:
                raise QueueFull
            plan = self._assembler.plan([one.part for one in carried], self.now())
            fates, counts = _told(batches, plan)
            rows = [_row(plan, trace, at, carried) for trace, at in plan.accepted.items()]

            def add() -> Counts:
                self._store.add(rows, counts)
                return counts

            if counts:
                self._write(add)
            for trace, at in plan.accepted.items():
                parts = [carried[index] for index in at]
                self._copies.add(trace, parts, new=trace not in self._assembler)
            self._assembler.apply(plan)
        return fates

    def due(self, most: int, size: int) -> list[Closing]:
        """What is complete now; it takes no more spans. `done` is called when it is closed."""
        with self._lock:
            return self._assembler.due(self.now(), most, size)

    def copy(self, trace: bytes) -> list[Span] | None:
        """The spans of a trace that is due, once; None where they are to be read from the file."""
        with self._lock:
            return self._copies.take(trace)

    def closing(self, traces: Sequence[bytes]) -> Statements:
        """What takes the spans of these traces away and remembers that they are closed."""
        now = self.now()
        return OpenSpans.closing([(trace, now) for trace in traces], self._forgotten)

    def done(self, traces: Sequence[bytes]) -> None:
        """The statements of `closing` are durable."""
        now = self.now()
        with self._lock:
            for trace in traces:
                self._copies.take(trace)
            # gone from the file with the next ones; until then a restart merely knows more
            self._forgotten = [
                gone for trace in traces for gone in self._assembler.closed(trace, now)
            ]

    def gauges(self) -> list[Gauge]:
        return [
            ("ragmeter_otlp_open_traces", (), float(len(self._assembler))),
            ("ragmeter_otlp_open_bytes", (), float(self._assembler.size)),
        ]


def _row(plan: Plan, trace: bytes, indexes: Sequence[int], carried: Sequence[Carried]) -> Row:
    chosen = [carried[index] for index in indexes]
    return Row(
        trace,
        plan.now,
        any(one.part.root for one in chosen),
        sum(one.part.size for one in chosen),
        [one.part.key for one in chosen],
        join(one.line for one in chosen),
    )


def _told(batches: Sequence[Batch], plan: Plan) -> tuple[list[Counter[Fate]], Counts]:
    """The fates by batch, and what is counted of them."""
    fates: list[Counter[Fate]] = []
    counts: Counts = {}
    start = 0
    for batch in batches:
        end = start + len(batch.parts)
        found = Counter(plan.fates[start:end])
        fates.append(found)
        start = end
        for result, number in (*found.items(), *batch.refused.items()):
            key = parts_total(batch.signal, str(result))
            counts[key] = counts.get(key, 0) + number
        for key, by in batch.counts.items():
            counts[key] = counts.get(key, 0) + by
    return fates, counts
