"""`ragmeter kafka replay`: traces of a file into the topic of the traces, at a rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.ingest.native import Bad
from agent.kafka.operator.clients import consumer, partitions_of, producer
from agent.settings import Settings
from agent.sources.files import STDIN, Source

__all__ = ["Replayed", "replay", "resume_hint"]

WINDOW = 1_000  # sends that wait for their acknowledgement; bounds what a slow broker piles up
SAY_SECONDS = 5.0
SEND_SECONDS = 70.0  # more than the producer itself tries for


@dataclass(slots=True)
class Replayed:
    """`position`: everything before it is in the topic, or was unreadable. Items come in order."""

    sent: int = 0
    bad: int = 0
    position: int = 0
    finished: bool = False


def replay(
    path: Path,
    settings: Settings,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
    start: int = 0,
    done: Replayed | None = None,
) -> Replayed:
    """`done` is kept up to date, for whoever is interrupted. Raises OSError, `Failed`."""
    done = done or Replayed()
    done.position = start
    topic, limit = settings.kafka.topics.traces, settings.limits.trace_bytes
    source = Source(path)
    waiting: deque[tuple[Any, int]] = deque()  # of a Bad: nothing to wait for

    def settle(most: int) -> None:
        """Until at most this many wait; also whatever has arrived meanwhile."""
        while waiting and (len(waiting) > most or waiting[0][0] is None or waiting[0][0].is_done):
            future, position = waiting.popleft()
            if future is not None:
                future.get(timeout=SEND_SECONDS)
                done.sent += 1
            done.position = position

    # a producer would wait for the topic to come, and a broker might even make it
    with consumer(settings.kafka) as reader:
        partitions_of(reader, [topic])
    with producer(settings.kafka, limit) as client:
        began = said = time.monotonic()
        number = 0
        for item, position in source.read(limit, start):
            if isinstance(item, Bad):
                done.bad += 1
                say(f"{source.name}, before {position}: {item.reason}; not sent")
                waiting.append((None, position))
                continue
            if rate is not None:
                due = began + number / rate
                settle(WINDOW)
                time.sleep(max(0.0, due - time.monotonic()))
            key = item.trace.trace_id.encode("utf-8", "replace")
            waiting.append((client.send(topic, item.body, key), position))
            number += 1
            settle(WINDOW)
            if time.monotonic() - said >= SAY_SECONDS:
                said = time.monotonic()
                share = f", {100 * position / source.size:.0f} %" if source.size else ""
                say(f"{done.sent} sent, {number / (said - began):.0f}/s{share}")
        client.flush(timeout=SEND_SECONDS)
        settle(0)
    done.finished = True
    return done


def resume_hint(path: Path, done: Replayed) -> str:
    """What to say where a replay ended early."""
    if path == STDIN:
        return f"{done.sent} are in the topic"
    return f"{done.sent} are in the topic; --start {done.position} goes on behind them"
