"""`ragmeter run --feedback FILE`: a file of labels into the running agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from agent.feedback.labels import Feedback
from agent.ingest.native import Bad
from agent.intake import QueueFull, Unavailable
from agent.labelling.labelling import OUTCOMES
from agent.pipeline import Instrument
from agent.sources.feedback_file import read_feedback
from agent.sources.files import MAX_SHOWN

__all__ = ["replay_feedback"]

BATCH = 500  # items made durable in one commit


def replay_feedback(
    instrument: Instrument,
    path: Path,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> bool:
    """Hand over a file and wait until it is counted; whether anything could be read, or there was
    nothing to read. Reading it again changes nothing. Raises OSError, and `Unavailable` where the
    agent has died."""
    before = _outcomes(instrument)
    items = read_feedback(path)
    taken = bad = number = 0
    while not stopped() and (batch := list(islice(items, BATCH))):
        for item in batch:
            number += 1
            if isinstance(item, Bad):
                bad += 1
                if bad <= MAX_SHOWN:
                    why = "; ".join(f"{field or 'item'}: {why}" for field, why in item.errors)
                    say(f"{path.name}: item {number}: {item.reason}: {why}")
        taken += _hear(instrument, batch, stopped)
    instrument.wait_heard(stopped)
    after = _outcomes(instrument)
    parts = [f"{after[name] - before[name]:.0f} {name}" for name in after]
    found = [part for part in parts if not part.startswith("0 ")]
    rest = taken - sum(after[name] - before[name] for name in after)
    if rest > 0:
        found.append(f"{rest:.0f} waiting for their traces")
    if bad:
        found.append(f"{bad} unreadable")
    say(
        f"{path.name}: {taken + bad} items of feedback" + (f": {', '.join(found)}" if found else "")
    )
    return taken > 0 or bad == 0


def _hear(instrument: Instrument, batch: list[Feedback | Bad], stopped: Callable[[], bool]) -> int:
    while not stopped():
        try:
            return instrument.hear(batch, "file", live=False)
        except QueueFull:
            time.sleep(0.02)
        except Unavailable:
            if instrument.fatal:
                raise
            time.sleep(0.5)
    return 0


def _outcomes(instrument: Instrument) -> dict[str, float]:
    with instrument.lock():
        counters = instrument.counters
        return {
            name: counters.get("ragmeter_feedback_total", (("outcome", name),)) for name in OUTCOMES
        }
