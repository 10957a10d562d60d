"""A file into the running agent: read, accept, remember how far."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from agent.ingest.native import Bad
from agent.intake import Item, QueueFull, Unavailable
from agent.pipeline import Instrument
from agent.sources.files import STDIN, identity, read
from agent.store.rows import Progress

__all__ = ["replay"]

BATCH = 256  # items made durable in one commit


def replay(
    instrument: Instrument,
    path: Path,
    limit: int,
    *,
    progress: Callable[[int, int, int], None] = lambda items, bad, position: None,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Feed `path` from where the last run stopped; returns how many items it gave.

    `progress(items, bad, position)` is called after each batch. Waits while the queue is full or
    the state cannot be written. Raises OSError for a file that cannot be read and `Unavailable`
    when the agent has died.
    """
    source = identity(path)
    start = 0 if path == STDIN else instrument.position(source)
    written = instrument.dead_letters_from(source, start)
    items = bad = 0
    position = start
    batch: list[Item] = []

    def push() -> None:
        nonlocal items, bad
        mark = None if path == STDIN else Progress(source, position)
        while not stopped():
            try:
                instrument.accept(batch, "file", progress=mark, written=written)
                break
            except QueueFull:
                time.sleep(0.02)
            except Unavailable:
                if instrument.fatal:
                    raise
                time.sleep(0.5)
        items += len(batch)
        bad += sum(isinstance(item, Bad) for item, _ in batch)
        batch.clear()
        progress(items, bad, position)

    for item, position in read(path, limit, start):
        batch.append((item, position))
        if len(batch) >= BATCH:
            push()
            if stopped():
                return items
    if batch:
        push()
    return items
