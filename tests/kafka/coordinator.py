"""As much of an app and of its group's coordinator as a commit in one generation looks at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["App", "Coordinator"]


class Coordinator:
    """`answers` are what comes of the commits one after the other: None is success."""

    def __init__(self, *answers: BaseException | None, generation: int = 7) -> None:
        self.generation = generation
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.known = True
        self._commit_lock = asyncio.Lock()

    async def ensure_coordinator_known(self) -> None:
        if not self.known:
            await asyncio.sleep(3600)

    async def _do_commit_offsets(self, assignment: object, offsets: object) -> None:
        self.asked.append(offsets)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


class App:
    """As much of one as the fence looks at."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.consumer = self
        self._thread = self
        self._coordinator = coordinator
        self.consumer_generation_id = coordinator.generation

    def _ensure_consumer(self) -> App:
        return self

    async def call_thread(self, call: Callable[..., Awaitable[bool]], *args: Any) -> bool:
        return await call(*args)
