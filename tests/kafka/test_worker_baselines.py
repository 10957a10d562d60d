"""Baselines of the services that a worker owns: answered when the step is durable, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.commands import UnknownService
from ragmeter.app.parts import AgentSettings
from ragmeter.core.counters import Counters
from ragmeter.core.errors import StateUnavailable
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.worker_view import ProcessReadings, WorkerView

from tests.kafka.state.partition import Owned, apply, record, state_of
from tests.traces import START
from tests.waiting import until_async

SETTINGS = AgentSettings.model_validate({"alerts": {"evaluation_seconds": 300}})


def watched(service: str = "bot") -> PartitionState:
    """Eight hours of traffic: enough for a baseline."""
    state = state_of(SETTINGS)
    apply(state, [record(n, service=service, timestamp=START + 30 * n) for n in range(960)])
    state.step()
    return state


def view_of(owned: Owned) -> WorkerView:
    empty = Aggregator(SETTINGS, [], []).windows
    return WorkerView(SETTINGS, cast(Any, owned), empty, Counters(), readings=ProcessReadings(list))


def asked(work: Callable[[WorkerView, Owned], Awaitable[Any]], state: PartitionState) -> Any:
    async def go() -> Any:
        owner = Owned({0: state})
        return await work(view_of(owner), owner)

    return asyncio.run(go())


@pytest.fixture(scope="module")
def state() -> PartitionState:
    return watched()


def test_a_promotion_is_answered_when_its_step_is_durable(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owned) -> Any:
        owner.held[0].step()  # under way already: without the promotion
        before = owner.held[0]._commands
        task = asyncio.create_task(asyncio.to_thread(view.promote, "bot"))
        await until_async(lambda: owner.held[0]._commands > before)
        owner.held[0].committed()
        await asyncio.sleep(0.1)
        assert not task.done()
        assert owner.held[0].changed
        owner.held[0].step()
        await asyncio.sleep(0.1)
        assert not task.done()
        owner.held[0].committed()
        return await task

    done = asked(work, state)
    assert set(done["services"]) == {"bot"}


def test_a_service_of_another_worker_is_refused_with_what_is_here(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owned) -> None:
        with pytest.raises(UnknownService, match="here, but bot: ask the other workers"):
            await asyncio.to_thread(view.promote, "shop")

    asked(work, state)


def lose(owner: Owned) -> None:
    owner.held.clear()


def reload(owner: Owned) -> None:
    owner.held[0] = state_of(SETTINGS)


@pytest.mark.parametrize("end", [lose, reload])
def test_who_loses_the_partition_says_so(
    state: PartitionState, end: Callable[[Owned], None]
) -> None:
    async def work(view: WorkerView, owner: Owned) -> None:
        before = owner.held[0]._commands
        task = asyncio.create_task(asyncio.to_thread(view.promote, "bot"))
        await until_async(lambda: owner.held[0]._commands > before)
        end(owner)
        with pytest.raises(StateUnavailable, match="ask again"):
            await task

    asked(work, state)


def test_without_partitions_nothing_is_promised() -> None:
    with pytest.raises(StateUnavailable):
        view_of(Owned()).promote(None)
    assert view_of(Owned()).baselines() == []


def test_rows_of_what_is_owned_are_shown(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owned) -> list[dict[str, Any]]:
        return await asyncio.to_thread(view.baselines)

    rows = asked(work, state)
    assert {row["service"] for row in rows} == {"bot"}
