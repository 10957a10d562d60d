"""Jobs in the background, which begin anew when they fail."""

from __future__ import annotations

import asyncio
import time

import pytest
from ragmeter.core.process import run_jobs

from tests.waiting import until_async


def test_a_job_that_fails_is_told_of_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    begun = []

    async def job() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise ConnectionError("no broker")
        await asyncio.Event().wait()

    async def go() -> None:
        async with run_jobs([job], pause=0.01):
            await until_async(lambda: len(begun) == 3)

    asyncio.run(go())
    assert caplog.text.count("ConnectionError('no broker')") == 1, "the same again in a minute"


def test_a_defect_is_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    begun = []

    async def job() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise ValueError("a defect")
        await asyncio.Event().wait()

    async def go() -> None:
        async with run_jobs([job], pause=0.01):
            await until_async(lambda: len(begun) == 3)

    asyncio.run(go())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_the_end_does_not_wait_for_a_job_that_cannot_end() -> None:
    async def stubborn(end: asyncio.Event) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    async def go() -> float:
        end = asyncio.Event()
        async with run_jobs([lambda: stubborn(end)], end=0.1):
            await asyncio.sleep(0.05)
            start = time.monotonic()
        waited = time.monotonic() - start
        end.set()
        await asyncio.sleep(0.05)
        return waited

    assert asyncio.run(go()) < 60


def test_without_jobs_there_is_nothing_to_wait_for() -> None:
    async def go() -> None:
        async with run_jobs([]):
            pass

    asyncio.run(go())


def test_a_failure_is_told_in_the_words_of_who_runs_the_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def job() -> None:
        raise ConnectionError("no broker")

    async def go() -> None:
        async with run_jobs([job], pause=60, explain=lambda error: f"start it: {error}"):
            await until_async(lambda: "start it: no broker" in caplog.text)

    asyncio.run(go())
