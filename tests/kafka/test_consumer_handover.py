"""A message is handed over as Faust does it, whether its callback waits or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faust import Service

from ragmeter.kafka.consumer import DirectHandover


class Plain(Service):
    """Faust's way."""


class Quick(DirectHandover, Service):
    """Ours."""


def run(test: Callable[[Service], Awaitable[Any]], kind: type[Service]) -> Any:
    async def main() -> Any:
        return await test(kind())

    return asyncio.run(main())


both = pytest.mark.parametrize("kind", [Plain, Quick])


def test_a_callback_that_ends_at_once_makes_no_task() -> None:
    async def test(service: Service) -> tuple[list[Any], int]:
        async def callback() -> str:
            return f"in {len(asyncio.all_tasks())} tasks"

        suspended = asyncio.Event()
        found = await service.wait_first(callback(), suspended.wait())
        return found.results, len(asyncio.all_tasks())

    assert run(test, Quick) == (["in 1 tasks"], 1)
    assert run(test, Plain)[0] == ["in 5 tasks"]


@both
def test_a_callback_that_waits_is_waited_for(kind: type[Service]) -> None:
    async def test(service: Service) -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        queue.put_nowait(1)
        said = []

        async def callback() -> str:
            for number in (2, 3):
                await queue.put(number)  # full each time
                said.append(f"put {number}")
            return "done"

        waiting = asyncio.create_task(service.wait_first(callback(), asyncio.Event().wait()))
        for _ in range(3):
            await asyncio.sleep(0.01)
            said.append(f"got {queue.get_nowait()}")
        found = await waiting
        return [*said, *found.results, found.stopped]

    expected = ["got 1", "put 2", "got 2", "put 3", "got 3", "done", False]
    assert run(test, kind) == expected


@both
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_callback_raises_is_raised(kind: type[Service], waits: bool) -> None:
    async def test(service: Service) -> None:
        async def callback() -> None:
            if waits:
                await asyncio.sleep(0.01)
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await service.wait_first(callback(), asyncio.Event().wait())

    run(test, kind)


@both
def test_a_callback_that_waits_is_let_go_when_the_flow_is_suspended(kind: type[Service]) -> None:
    async def test(service: Service) -> list[str]:
        suspended, said = asyncio.Event(), []

        async def callback() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                said.append("cancelled")
                raise

        asyncio.get_running_loop().call_later(0.01, suspended.set)
        found = await service.wait_first(callback(), suspended.wait())
        await asyncio.sleep(0.01)
        return [*said, f"{len(found.done)} ended"]

    assert run(test, kind) == ["cancelled", "1 ended"]


@both
def test_a_consumer_that_stops_lets_go(kind: type[Service]) -> None:
    async def test(service: Service) -> bool:
        asyncio.get_running_loop().call_later(0.01, service._stopped.set)
        found = await service.wait_first(asyncio.sleep(60), asyncio.Event().wait())
        return found.stopped

    assert run(test, kind) is True
