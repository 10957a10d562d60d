"""Waiting for what other tasks, threads and processes do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ragmeter.core.errors import QueueFull
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.intake import IntakeItem

__all__ = ["PATIENCE", "accept_in_turn", "stop_agent", "until", "until_async"]

PATIENCE = 300.0
"""Seconds a test waits for what a quiet machine does at once. Nothing is measured by it: it ends a
wait for what never comes, and a machine that lends its processors to others for minutes must not.
Half of the limit of a test (pyproject.toml): before that it says what it waited for."""


REST = 4.0
"""Times as long as a look took is the pause after it, up to a second: a look is often a scrape, and
what is waited for should not have to render it for most of the time."""


def until(what: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.05) -> None:
    """Wait until `what()` is true; `pause` is the shortest between two looks."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if what():
            return
        now = time.monotonic()
        assert now < end, "it did not come to that"
        time.sleep(max(pause, min(REST * (now - began), 1.0)))


async def until_async(what: Callable[[], object], seconds: float = PATIENCE) -> None:
    """`until` within an event loop; TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not what():  # noqa: ASYNC110 (what is waited for has no event to set)
            await asyncio.sleep(0.005)


def stop_agent(agent: EmbeddedAgent, seconds: float) -> None:
    """Stop it; on a busy machine the last commit may come later than in `seconds`, and another
    agent could not have the state file until then."""
    agent.stop(seconds)
    until(lambda: not agent._worker._thread.is_alive())
    agent._store.close()


def accept_in_turn(agent: EmbeddedAgent, items: Sequence[IntakeItem], source: str) -> None:
    """Hand items over as a reader of files does: no further ahead than traces wait in memory."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            agent.accept(items, source)
            return
        except QueueFull:
            assert time.monotonic() < end, "the queue stays full"
            time.sleep(0.01)
