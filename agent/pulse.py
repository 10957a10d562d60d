"""A sign of life of a thread, for `agent.stalls`: it beats as long as the thread moves."""

from __future__ import annotations

import asyncio

__all__ = ["BEAT_SECONDS", "Pulse"]

BEAT_SECONDS = 2.0  # of an event loop; a stall is a matter of many seconds


class Pulse:
    """One thread beats, any other may read `count`."""

    def __init__(self) -> None:
        self.count = 0

    def beat(self) -> None:
        self.count += 1

    async def keep(self) -> None:
        """Beat for ever, in an event loop: it stops where something holds the loop up."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_SECONDS)
