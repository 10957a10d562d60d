"""The lag of consumer groups, measured now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from ragmeter.kafka.owners import PASSING

_LAG_SECONDS = 2.0


class Measured(Protocol):
    """What knows how far it is behind."""

    async def measure(self) -> None:
        """Measure it anew."""


async def follow_lag(answered: Callable[[], None], *groups: Measured) -> None:
    """Measure the lag of groups now and then, and call `answered` after it, until cancelled.

    Where the brokers do not answer, the last values stay, and `answered` is not called.
    """
    while True:
        with contextlib.suppress(*PASSING):
            async with asyncio.timeout(3 * _LAG_SECONDS):  # a busy worker takes seconds for it
                for group in groups:
                    await group.measure()
            answered()
        await asyncio.sleep(_LAG_SECONDS)
