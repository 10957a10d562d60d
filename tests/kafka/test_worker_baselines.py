"""Baselines of the services that a worker owns: answered when the step is durable, or not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.config.settings import Settings
from ragmeter.embedded.commands import UnknownService
from ragmeter.embedded.intake import StateUnavailable
from ragmeter.kafka.processors.aggregate import AggregateOwner
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.worker_view import WorkerView
from tests.kafka.state.partition import apply, record, state_of
from tests.traces import START
from tests.waiting import until_async

SETTINGS = Settings.model_validate({})


def watched(service: str = "bot") -> PartitionState:
    """Eight hours of traffic: enough for a baseline."""
    state = state_of(SETTINGS)
    for n in range(960):
        apply(state, [record(n, service=service, timestamp=START + 30 * n)])
    state.step()
    return state


class Owner(AggregateOwner):
    """Without a broker: a step is durable when the test says so."""

    def __init__(self, state: PartitionState, processor: Any) -> None:
        processor.build = lambda: state
        super().__init__(processor, cast(Any, None), TopicPartition("rag.scores", 0))


def view_of(processor: Any = None) -> WorkerView:
    empty = Aggregator(SETTINGS, [], []).windows
    view = WorkerView((), empty, dedupe=3600.0, problems=list)
    view.aggregate = processor
    return view


def asked(work: Callable[[WorkerView, Owner], Awaitable[Any]], state: PartitionState) -> Any:
    async def go() -> Any:
        processor: Any = SimpleNamespace(
            lock=threading.RLock(),
            owners={},
            announced=lambda: None,
            control_topic="rag.control",
        )
        owner = processor.owners[0] = Owner(state, processor)
        return await work(view_of(processor), owner)

    return asyncio.run(go())


@pytest.fixture(scope="module")
def state() -> PartitionState:
    return watched()


def test_a_promotion_is_answered_when_its_step_is_durable(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owner) -> Any:
        owner.state.step()  # under way already: without the promotion
        before = owner.state._promotions
        task = asyncio.create_task(asyncio.to_thread(view.promote, "bot"))
        await until_async(lambda: owner.state._promotions > before)
        owner.state.committed()
        await asyncio.sleep(0.1)
        assert not task.done()
        assert owner.state.changed
        owner.state.step()
        await asyncio.sleep(0.1)
        assert not task.done()
        owner.state.committed()
        return await task

    done = asked(work, state)
    assert set(done["services"]) == {"bot"}
    assert done["services"]["bot"]["version"] >= 2


def test_a_service_of_another_worker_is_refused_with_what_is_here(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owner) -> None:
        with pytest.raises(UnknownService, match="here, but bot: ask the other workers"):
            await asyncio.to_thread(view.promote, "shop")

    asked(work, state)


def lose(owner: Owner) -> None:
    cast(Any, owner.processor.owners).clear()


def reload(owner: Owner) -> None:
    owner.state = state_of(SETTINGS)


@pytest.mark.parametrize("end", [lose, reload])
def test_who_loses_the_partition_says_so(
    state: PartitionState, end: Callable[[Owner], None]
) -> None:
    async def work(view: WorkerView, owner: Owner) -> None:
        before = owner.state._promotions
        task = asyncio.create_task(asyncio.to_thread(view.promote, "bot"))
        await until_async(lambda: owner.state._promotions > before)
        end(owner)
        with pytest.raises(StateUnavailable, match="ask again"):
            await task

    asked(work, state)


def test_without_partitions_nothing_is_promised() -> None:
    with pytest.raises(StateUnavailable):
        view_of().promote(None)
    assert view_of().baselines() == []


def test_rows_of_what_is_owned_are_shown(state: PartitionState) -> None:
    async def work(view: WorkerView, owner: Owner) -> list[dict[str, Any]]:
        return await asyncio.to_thread(view.baselines)

    rows = asked(work, state)
    assert {row["service"] for row in rows} == {"bot"}
