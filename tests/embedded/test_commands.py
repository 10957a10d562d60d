from __future__ import annotations

import threading
from typing import Any

import pytest
from ragmeter.aggregate.commands import UnknownService
from ragmeter.core.errors import StateUnavailable
from ragmeter.embedded.commands import CommandQueue

from tests.waiting import PATIENCE


def asking(
    orders: CommandQueue[str | None, Any], service: str | None, patience: float = PATIENCE
) -> tuple[Any, list[Any]]:
    """A thread that asks, and the answer that it will have had."""
    notified: list[Any] = []

    def ask() -> None:
        try:
            notified.append(orders.submit(service, patience))
        except (StateUnavailable, UnknownService) as error:
            notified.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, notified


def test_an_order_is_answered_with_what_came_of_it() -> None:
    woken = threading.Event()
    orders: CommandQueue[str | None, Any] = CommandQueue(woken.set)
    thread, notified = asking(orders, "bot")
    assert woken.wait(PATIENCE)
    orders.execute_pending(lambda service: {"service": service})
    thread.join(PATIENCE)
    assert notified == [{"service": "bot"}]


def test_an_unknown_service_is_the_callers_mistake_and_not_the_workers() -> None:
    woken = threading.Event()
    orders: CommandQueue[str | None, Any] = CommandQueue(woken.set)
    thread, notified = asking(orders, "x")
    assert woken.wait(PATIENCE)

    def promote(service: str | None) -> dict[str, Any]:
        raise UnknownService("no x")

    orders.execute_pending(promote)
    thread.join(PATIENCE)
    assert [type(one) for one in notified] == [UnknownService]


def test_what_ends_the_worker_is_told_and_goes_on() -> None:
    woken = threading.Event()
    orders: CommandQueue[str | None, Any] = CommandQueue(woken.set)
    thread, notified = asking(orders, None)
    assert woken.wait(PATIENCE)

    def promote(service: str | None) -> dict[str, Any]:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        orders.execute_pending(promote)
    thread.join(PATIENCE)
    assert [type(one) for one in notified] == [StateUnavailable]


def test_whoever_has_given_up_finds_nothing_changed() -> None:
    orders: CommandQueue[str | None, Any] = CommandQueue(lambda: None)
    with pytest.raises(StateUnavailable, match="nothing was changed"):
        orders.submit("bot", patience=0.01)

    def promote(service: str | None) -> dict[str, Any]:
        raise AssertionError(service)

    orders.execute_pending(promote)


def test_orders_to_a_worker_that_has_ended_are_refused() -> None:
    woken = threading.Event()
    orders: CommandQueue[str | None, Any] = CommandQueue(woken.set)
    thread, notified = asking(orders, None)
    assert woken.wait(PATIENCE)
    orders.reject_pending("the agent is stopping")
    thread.join(PATIENCE)
    assert [str(one) for one in notified] == ["the agent is stopping"]
