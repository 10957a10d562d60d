"""Publish how spans were read to live inspectors (`ragmeter inspect --live`).

Nobody is waited for: what a listener does not take in time is missed, and counted for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.requests.extraction import ExtractedRequests, FieldOrigin
from ragmeter.trace import Trace

MAX_LISTENERS = 4  # listeners: each makes the closing of traces somewhat slower
_MAX_QUEUED_LINES = 256  # lines kept for one that is slow


class TooManyListeners(Exception):
    """As many listen as may."""


def describe_request(
    trace: dict[str, Any], origins: Mapping[str, Sequence[FieldOrigin]]
) -> dict[str, Any]:
    """JSON-able: a native trace with the spans that gave its fields."""
    return {
        "trace": trace,
        "from": {
            name: [
                {"span_id": one.span_id, "name": one.name, "convention": one.convention}
                for one in spans
            ]
            for name, spans in origins.items()
        },
    }


class _InspectionListener:
    """JSON lines for one who listens in `loop`; `missed` were not taken in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED_LINES)
        self.missed = 0

    async def next(self) -> bytes:
        return await self._lines.get()

    def put(self, line: bytes) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._put, line)

    def _put(self, line: bytes) -> None:
        try:
            self._lines.put_nowait(line)
        except asyncio.QueueFull:
            self.missed += 1


class LiveInspection:
    """Safe to use from several threads. Of texts, listeners get what `content` lets be kept."""

    def __init__(self, content: ContentPolicy) -> None:
        self._content = content
        self._mutex = threading.Lock()
        self._listeners: tuple[_InspectionListener, ...] = ()

    @contextlib.contextmanager
    def listening(self) -> Iterator[_InspectionListener]:
        """Raises `TooMany`."""
        listener = _InspectionListener(asyncio.get_running_loop())
        with self._mutex:
            if len(self._listeners) >= MAX_LISTENERS:
                raise TooManyListeners
            self._listeners = (*self._listeners, listener)
        try:
            yield listener
        finally:
            with self._mutex:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

    def publish(self, found: ExtractedRequests) -> None:
        """Tell what became of the spans of a trace."""
        listeners = self._listeners
        if not listeners:
            return
        items = [
            describe_request(self._kept(trace), origins)
            for trace, origins in zip(found.traces, found.origins, strict=True)
        ]
        items += [{"not_request": reason} for reason in found.dropped.elements()]
        for item in items:
            line = json.dumps(item, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            for listener in listeners:
                listener.put(line)

    def _kept(self, trace: Trace) -> dict[str, Any]:
        document = {"trace": trace.model_dump(mode="json", exclude_none=True), "results": []}
        kept: dict[str, Any] = self._content.document(document)["trace"]
        return kept
