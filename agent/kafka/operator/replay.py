"""`ragmeter kafka replay`: traces of a file into the topic of the traces, at a rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agent.kafka.operator.clients import consumer, partitions_of, producer
from agent.replay.moving import Moving
from agent.replay.pace import Pace
from agent.replay.traffic import Replayed, Telling, traffic
from agent.settings import Settings
from agent.sources.files import Source

__all__ = ["replay"]

WINDOW = 1_000  # sends that wait for their acknowledgement; bounds what a slow broker piles up
SEND_SECONDS = 70.0  # more than the producer itself tries for


def replay(
    source: Source,
    settings: Settings,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
    moving: Moving | None = None,
    done: Replayed | None = None,
) -> Replayed:
    """Send traces from `done.position` on. `done` is kept up to date, for whoever is interrupted.
    Raises OSError, `Failed`.
    """
    done = done or Replayed()
    telling = Telling(source, done, say)
    topic, limit = settings.kafka.topics.traces, settings.limits.trace_bytes
    waiting: deque[tuple[Any, int]] = deque()

    def settle(most: int) -> None:
        """Until at most this many wait; also whatever has arrived meanwhile."""
        while waiting and (len(waiting) > most or waiting[0][0].is_done):
            future, position = waiting.popleft()
            future.get(timeout=SEND_SECONDS)
            done.sent += 1
            done.position = position
        telling.progress()

    pace = Pace(rate, time.monotonic, time.sleep)
    # a producer would wait for the topic to come, and a broker might even make it
    with consumer(settings.kafka) as reader:
        partitions_of(reader, [topic])
    with producer(settings.kafka, limit) as client:
        items = traffic(source, limit, done, telling, pace=pace, moving=moving or Moving())
        for found in items:
            if found is not None:
                item, position = found
                key = item.trace.trace_id.encode("utf-8", "replace")
                waiting.append((client.send(topic, item.body, key), position))
            settle(WINDOW)
        client.flush(timeout=SEND_SECONDS)
        settle(0)
    done.finished = True
    return done
