"""A receiver that is down, full or back again, over real HTTP. Delays are short."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from aiohttp import web

from tests.exporters.otel.collector import plain, serve
from tests.exporters.otel.running import FULL_BATCHES, answering, awaited, exporting
from tests.exporters.otel.scores import done
from tests.ports import free_port
from tests.waiting import until_async


@awaited
async def test_what_is_put_arrives_in_batches() -> None:
    async with serve() as found, exporting(found.url) as (exporter, agent):
        exporter.put(done(number=25))
        await until_async(lambda: agent.counted() == {"sent": 25})
        names = [plain(one.attributes)["ragmeter.trace_id"] for one in found.records]
        assert names == [f"t-1-{n}" for n in range(25)]
        assert len(found.raw) <= 4  # those that were put while it sent the first wait for no batch


@awaited
async def test_a_batch_is_waited_for_but_not_for_long() -> None:
    async with (
        serve() as found,
        exporting(found.url, limits={"linger_seconds": 2}) as (exporter, _),
    ):
        for _ in range(3):
            exporter.put(done())
            await asyncio.sleep(0.01)
        await until_async(lambda: bool(found.raw))
        assert len(found.records) == 3


@awaited
async def test_a_receiver_that_comes_back_gets_what_waited() -> None:
    port = free_port()
    async with exporting(f"http://127.0.0.1:{port}") as (exporter, agent):
        exporter.put(done(number=25))
        await asyncio.sleep(0.1)
        assert agent.counted() == {}
        async with serve(port=port) as found:
            await until_async(lambda: agent.counted() == {"sent": 25})
            assert len(found.records) == 25


@awaited
async def test_a_dead_receiver_costs_a_bounded_queue_and_every_loss_is_counted() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with exporting(url, limits={"queue": 30, "timeout_seconds": 0.5}) as (exporter, agent):
        exporter.put(done(number=100))  # at once: a busy machine would send between two of them
        assert agent.counted()["queue_full"] >= 100 - 30 - 10
        await until_async(lambda: sum(agent.counted().values()) == 100)
    assert agent.counted()["gave_up"] >= 30
    assert set(agent.counted()) == {"queue_full", "gave_up"}


@awaited
async def test_too_many_requests_is_waited_out() -> None:
    times: list[float] = []
    replies = answering(web.Response(status=429, headers={"Retry-After": "1"}))

    async def reply(number: int) -> web.Response:
        times.append(time.monotonic())
        return await replies(number)

    async with (
        serve(reply) as found,
        exporting(found.url, limits=FULL_BATCHES) as (exporter, agent),
    ):
        exporter.put(done(number=10))
        await until_async(lambda: agent.counted() == {"sent": 10})
        assert times[1] - times[0] >= 0.99
        assert len(times) == 2


@awaited
async def test_a_mistaken_retry_after_does_not_end_the_export() -> None:
    refusal = web.Response(status=503, headers={"Retry-After": "999999999"})
    async with (
        serve(answering(refusal)) as found,
        exporting(found.url, limits=FULL_BATCHES) as (exporter, agent),
    ):
        exporter.put(done(number=20))
        await until_async(lambda: agent.counted() == {"gave_up": 10, "sent": 10})


@awaited
async def test_an_outage_is_two_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    limits = {**FULL_BATCHES, "timeout_seconds": 0.5}
    reply = answering(*[web.Response(status=503) for _ in range(3)])
    async with serve(reply) as found, exporting(found.url, limits=limits) as (exporter, agent):
        exporter.put(done(number=40))
        await until_async(lambda: agent.counted() == {"gave_up": 30, "sent": 10})
    lines = [r.getMessage() for r in caplog.records if r.name != "asyncio"]
    assert len(lines) == 2
    assert "HTTP 503" in lines[0]
    assert "again" in lines[1]


@awaited
async def test_the_end_sends_what_waits() -> None:
    async with serve() as found:
        async with exporting(found.url, limits={"linger_seconds": 60}) as (exporter, agent):
            exporter.put(done(number=5))
            await asyncio.sleep(0.05)
            assert agent.counted() == {}
            await exporter.stop(within=30)  # what it takes is the machine's affair
        assert len(found.records) == 5
        assert agent.counted() == {"sent": 5}


@awaited
async def test_the_end_waits_for_no_receiver_that_hangs() -> None:
    async with serve(answering(*[30.0] * 9)) as found:
        began = time.monotonic()
        async with exporting(found.url, limits={"timeout_seconds": 30}) as (exporter, agent):
            exporter.put(done(number=25))
            await until_async(lambda: bool(found.raw))
        assert time.monotonic() - began < 15  # half of what it waits for an answer
        assert agent.counted() == {"not_sent": 25}
        await asyncio.sleep(0.1)
        assert agent.counted() == {"not_sent": 25}


@awaited
async def test_the_end_does_not_wait_out_the_retries_of_a_receiver_that_is_down() -> None:
    async with exporting(f"http://127.0.0.1:{free_port()}") as (exporter, agent):
        exporter.put(done(number=25))
        await asyncio.sleep(0.05)
    assert agent.counted() == {"not_sent": 25}
