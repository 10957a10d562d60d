"""Publish to live readers what the agent does with traces.

How spans became requests is for `ragmeter inspect --live`, scores of traces for `ragmeter tail`.
Publishing never waits: lines that a listener does not take in time are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ragmeter.core.errors import Unavailable
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.requests.extraction import ExtractedRequests, FieldOrigin
from ragmeter.trace import Trace

MAX_LISTENERS = 4  # of a feed: each makes the closing or the commits of traces somewhat slower
_MAX_QUEUED_LINES = 256  # of a slow listener
_MAX_RESULTS = 64  # traces of a commit whose scores are published: nobody reads more in a second


class TooManyListeners(Unavailable):
    """A feed has `MAX_LISTENERS` listeners already."""


def grade_fields(trace: Trace) -> dict[str, str]:
    """Return for each field that is read from spans `right`, `guessed` or `missing`."""
    present = {
        "query": trace.query is not None,
        "passages": trace.passages is not None,
        "answer": trace.answer is not None,
        "tokens": trace.usage is not None and trace.usage.input_tokens is not None,
        "model": trace.model is not None,
        "finish_reason": trace.finish_reason is not None,
        "session": "session" in trace.tags,
    }
    guessed = trace.guessed or {}
    return {
        name: ("guessed" if name in guessed else "right") if there else "missing"
        for name, there in present.items()
    }


def describe_request(
    trace: dict[str, Any], origins: Mapping[str, Sequence[FieldOrigin]], grades: Mapping[str, str]
) -> dict[str, Any]:
    """Return a native trace with the spans and grades of its fields, as JSON-able values."""
    return {
        "trace": trace,
        "grades": grades,
        "from": {name: [asdict(origin) for origin in spans] for name, spans in origins.items()},
    }


class _Listener:
    """JSON lines for one listener in an event loop; `missed` counts the dropped ones."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED_LINES)
        self.missed = 0

    async def next(self) -> bytes:
        return await self._lines.get()

    def put(self, line: bytes) -> None:
        """Add a line, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._put, line)

    def _put(self, line: bytes) -> None:
        try:
            self._lines.put_nowait(line)
        except asyncio.QueueFull:
            self.missed += 1


class LiveFeed:
    """Lines for live readers of an agent. Safe to use from several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._listeners: tuple[_Listener, ...] = ()

    @contextlib.contextmanager
    def listening(self) -> Iterator[_Listener]:
        """Yield a new listener in the running event loop.

        Raises:
            TooManyListeners: No more may listen.
        """
        listener = _Listener(asyncio.get_running_loop())
        with self._mutex:
            if len(self._listeners) >= MAX_LISTENERS:
                raise TooManyListeners(f"too many live readers: {MAX_LISTENERS} are connected")
            self._listeners = (*self._listeners, listener)
        try:
            yield listener
        finally:
            with self._mutex:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

    @property
    def listened(self) -> bool:
        """Tell whether somebody listens."""
        return bool(self._listeners)

    def _send(self, items: Sequence[Mapping[str, Any]], missed: int = 0) -> None:
        for item in items:
            line = json.dumps(item, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            for listener in self._listeners:
                listener.put(line)
        for listener in self._listeners:
            listener.missed += missed


class LiveInspection(LiveFeed):
    """The live inspectors of an agent."""

    def __init__(self, content: ContentPolicy) -> None:
        super().__init__()
        self._content = content

    def publish(self, extracted: ExtractedRequests) -> None:
        """Send the requests of a trace to all listeners, or why there are none.

        Nothing is sent of what was not inspected: nobody listened when it was read.
        """
        if not (self._listeners and extracted.inspected):
            return
        items = []
        for trace, origins in zip(extracted.traces, extracted.origins, strict=True):
            document = {"trace": trace.model_dump(mode="json", exclude_none=True), "results": []}
            shown = self._content.document(document)["trace"]
            items.append(describe_request(shown, origins, grade_fields(trace)))
        items += [asdict(one) for one in extracted.not_requests]
        self._send(items)


def _public_score(score: Score) -> dict[str, Any]:
    document = score.to_dict()
    document.pop("detail", None)  # it may quote the trace
    return document


class LiveResults(LiveFeed):
    """The readers of the scores of traces: their values, without any text."""

    def publish(self, traces: Sequence[ScoredTrace]) -> None:
        """Send the scores of traces that are committed to all listeners."""
        if not self._listeners:
            return
        items = [
            {
                "trace_id": trace.trace_id,
                "service": trace.service,
                "timestamp": trace.timestamp,
                "status": trace.status,
                "partial": trace.partial,
                "results": [_public_score(score) for score in trace.results],
            }
            for trace in traces[:_MAX_RESULTS]
        ]
        self._send(items, missed=len(traces) - len(items))
