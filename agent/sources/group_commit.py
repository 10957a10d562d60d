"""One commit for all requests that wait: an fsync each would cap a sidecar at a few hundred
requests a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["GroupCommit"]

T = TypeVar("T")
R = TypeVar("R")


class GroupCommit(Generic[T, R]):
    """`write` makes what several requests brought durable, in a thread, and returns a result for
    each. A group is at most `most` in size, or one request."""

    def __init__(self, write: Callable[[Sequence[T]], Sequence[R]], most: int) -> None:
        self._write = write
        self._most = most
        self._waiting: list[tuple[T, int, asyncio.Future[R]]] = []
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """The size of all that waits."""
        return sum(size for _, size, _ in self._waiting)

    async def commit(self, item: T, size: int) -> R:
        """The result of `write`; raises what it raised."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        self._some.set()
        return await future

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                group = [self._waiting.pop(0)]
                size = group[0][1]
                while self._waiting and size + self._waiting[0][1] <= self._most:
                    group.append(self._waiting.pop(0))
                    size += group[-1][1]
                await self._commit(group)

    async def _commit(self, group: Sequence[tuple[T, int, asyncio.Future[R]]]) -> None:
        try:
            results = await asyncio.to_thread(self._write, [item for item, _, _ in group])
        except Exception as error:
            for _, _, future in group:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, _, future), result in zip(group, results, strict=True):
            if not future.done():  # the client may have gone; what it sent is kept all the same
                future.set_result(result)
