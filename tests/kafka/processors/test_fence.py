"""A commit goes through in the generation it was meant for, or is no commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP

from ragmeter.kafka.processors.durable import commit_in_generation
from tests.kafka.coordinator import App, Coordinator

HERE = TP("rag.scores", 3)


def commit(coordinator: Coordinator, seconds: float = 0.5) -> bool:
    app: Any = App(coordinator)
    return asyncio.run(commit_in_generation(app, 7, HERE, 42, seconds))


def test_the_offset_is_committed() -> None:
    coordinator = Coordinator(None)
    assert commit(coordinator)
    offset = OffsetAndMetadata(42, "")
    assert coordinator.asked == [{TopicPartition("rag.scores", 3): offset}]


def test_in_another_generation_nothing_is_asked() -> None:
    coordinator = Coordinator(generation=8)
    assert not commit(coordinator)
    assert coordinator.asked == []


@pytest.mark.parametrize(
    "error", [UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError]
)
def test_a_member_that_was_put_out_has_lost(error: type[Exception]) -> None:
    coordinator = Coordinator(error(), None)
    assert not commit(coordinator)
    assert len(coordinator.asked) == 1, "with a newer generation it would say nothing"


def test_a_coordinator_that_moves_is_asked_again() -> None:
    away = CoordinatorNotAvailableError
    coordinator = Coordinator(away(), away(), None)
    assert commit(coordinator)
    assert len(coordinator.asked) == 3


def test_what_lasts_is_raised() -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        commit(Coordinator(*(CoordinatorNotAvailableError() for _ in range(9))), 0.25)
    for error in (TopicAuthorizationFailedError(), CommitFailedError()):
        coordinator = Coordinator(error, None)
        with pytest.raises(type(error)):
            commit(coordinator)
        assert len(coordinator.asked) == 1


def test_a_coordinator_that_nobody_knows_is_not_waited_for_for_ever() -> None:
    coordinator = Coordinator()
    coordinator.known = False
    with pytest.raises(TimeoutError):
        commit(coordinator, 0.2)


def test_a_group_that_forms_anew_between_two_tries_has_lost() -> None:
    class Moving(Coordinator):
        async def _do_commit_offsets(self, assignment: object, offsets: object) -> None:
            self.generation += 1
            await super()._do_commit_offsets(assignment, offsets)

    coordinator = Moving(CoordinatorNotAvailableError(), None)
    assert not commit(coordinator)
    assert len(coordinator.asked) == 1


def test_a_rebalance_while_another_commit_holds_the_lock_has_lost() -> None:
    async def main() -> None:
        coordinator = Coordinator(None)
        app: Any = App(coordinator)
        async with coordinator._commit_lock:
            waiting = asyncio.create_task(commit_in_generation(app, 7, HERE, 42, 1))
            await asyncio.sleep(0.05)
            coordinator.generation = 8
        assert not await waiting
        assert coordinator.asked == []

    asyncio.run(main())
