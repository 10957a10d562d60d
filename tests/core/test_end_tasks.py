"""Tasks that are cancelled and have to end."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest
from ragmeter.core import process
from ragmeter.core.process import end_if_cancelled, end_tasks


def test_a_task_that_swallows_cancellations_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_CANCEL_AGAIN_SECONDS", 0.01)
    swallowed: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(swallowed) == 2:
                    raise
                swallowed.append(1)

    async def go() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end_tasks([task])
        assert task.cancelled()

    asyncio.run(go())
    assert len(swallowed) == 2


def test_errors_of_the_tasks_are_nobodys_concern(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("no broker")

    async def go() -> None:
        tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60))]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        await end_tasks([])
        del tasks
        gc.collect()

    asyncio.run(go())
    assert caplog.text == ""


def test_a_task_goes_no_further_though_its_cancellation_was_swallowed() -> None:
    went_on: list[int] = []

    async def swallow() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        end_if_cancelled()
        went_on.append(1)

    async def go() -> None:
        task = asyncio.create_task(swallow())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(go())
    assert not went_on


def test_a_task_that_nobody_cancelled_goes_on() -> None:
    async def go() -> None:
        end_if_cancelled()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):  # which cancels the task, and takes that back
                await asyncio.Event().wait()
        end_if_cancelled()

    asyncio.run(go())
