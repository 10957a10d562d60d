"""Notifications that wait: when each may leave, and what is written of it."""

from __future__ import annotations

from ragmeter.aggregate.service_state import Outbox
from ragmeter.store.rows import OutboxItem


def item(name: str, key: str = "k") -> OutboxItem:
    return OutboxItem(name, key, "{}", 1.0)


def test_nothing_is_due_before_its_step_is_durable() -> None:
    outbox = Outbox()
    outbox.add([item("a"), item("b", "other")])
    added, _ = outbox.drain()
    assert outbox.due(2.0, 10) == []
    outbox.settle()
    assert [one.id for one in outbox.due(2.0, 10)] == ["a", "b"]
    outbox.add([item("c")])
    assert [one.id for one in outbox.due(2.0, 10)] == ["a", "b"]
    again = Outbox(added)
    assert [one.id for one in again.due(2.0, 10)] == ["a", "b"]


def test_items_of_one_key_keep_their_order_and_others_do_not_wait_for_them() -> None:
    outbox = Outbox([item("a1", "a"), item("a2", "a"), item("b1", "b")])
    assert [one.id for one in outbox.due(5.0, 10)] == ["a1", "b1"]
    outbox.retry("a1", 60.0)
    assert [one.id for one in outbox.due(5.0, 10)] == ["b1"]
    assert outbox.due(61.0, 1)[0].attempts == 1
    outbox.done("a1")
    assert [one.id for one in outbox.due(61.0, 10)] == ["a2", "b1"]


def test_what_was_added_and_delivered_is_drained_once() -> None:
    outbox = Outbox([item("old")])
    assert not outbox.changed
    outbox.add([item("old"), item("new")])
    outbox.done("old")
    outbox.done("unknown")
    assert outbox.changed
    assert outbox.drain() == ([item("new")], ["old"])
    assert not outbox.changed
    assert outbox.drain() == ([], [])
