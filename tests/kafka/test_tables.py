"""Rows are in the table when the broker has them, and those of a partition that left are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import faust
import pytest
from faust.types import TP

from ragmeter.kafka.state.ledger import LogRecord
from ragmeter.kafka.tables import IdempotentProducer, StateTable


class _Sends:
    """Instead of a broker: what was sent, each to be acknowledged by its future."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[None]] = []
        self.rows: list[tuple[int, Any, Any]] = []

    def __call__(self, partition: int, key: Any, value: Any, **_: Any) -> Awaitable[None]:
        self.rows.append((partition, key, value))
        future = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return future


@contextmanager
def table() -> Iterator[tuple[StateTable, _Sends]]:
    app = faust.App("t", broker="kafka://127.0.0.1:1", web_enabled=False, store="memory://")
    found = StateTable.add_to(app, "state", 4)
    sends = _Sends()
    found.send_changelog = sends  # type: ignore[assignment,method-assign]
    yield found, sends


def run(test: Callable[[StateTable, _Sends], Awaitable[None]]) -> None:
    async def main() -> None:
        with table() as (found, sends):
            await test(found, sends)

    asyncio.run(main())


def test_a_row_is_there_when_it_is_acknowledged() -> None:
    async def test(found: StateTable, sends: _Sends) -> None:
        writing = asyncio.create_task(
            found.write(1, [LogRecord(b"1/a", b"x"), LogRecord(b"1/b", b"y")])
        )
        await asyncio.sleep(0)
        assert sends.rows == [(1, b"1/a", b"x"), (1, b"1/b", b"y")], "both at once"
        sends.futures[0].set_result(None)
        await asyncio.sleep(0)
        assert dict(found.data) == {}
        sends.futures[1].set_result(None)
        await writing
        assert dict(found.data) == {b"1/a": b"x", b"1/b": b"y"}
        deleting = asyncio.create_task(
            found.write(1, [LogRecord(b"1/a", None), LogRecord(b"1/c", None)])
        )
        await asyncio.sleep(0)
        for future in sends.futures[2:]:
            future.set_result(None)
        await deleting
        assert dict(found.data) == {b"1/b": b"y"}

    run(test)


def test_a_write_that_fails_leaves_the_table_as_it_was() -> None:
    async def test(found: StateTable, sends: _Sends) -> None:
        found.data[b"1/a"] = b"old"
        writing = asyncio.create_task(
            found.write(1, [LogRecord(b"1/a", b"new"), LogRecord(b"1/b", b"y")])
        )
        await asyncio.sleep(0)
        sends.futures[0].set_result(None)
        sends.futures[1].set_exception(ConnectionError("no broker"))
        with pytest.raises(ConnectionError, match="no broker"):
            await writing
        assert dict(found.data) == {b"1/a": b"old"}

    run(test)


def test_rows_are_told_by_their_partition() -> None:
    async def test(found: StateTable, sends: _Sends) -> None:
        found.data.update({b"1/a": b"x", b"12/a": b"y", b"1/b/c": b"z"})
        assert found.by_partition() == {
            1: [(b"1/a", b"x"), (b"1/b/c", b"z")],
            12: [(b"12/a", b"y")],
        }

    run(test)


def test_what_left_or_is_read_anew_is_forgotten() -> None:
    async def test(found: StateTable, sends: _Sends) -> None:
        found.data.update({b"%d/a" % number: b"x" for number in range(5)})
        log = found.changelog_topic_name
        assert log == "t-state-changelog"
        kept = {TP(log, 0), TP("rag.scores", 1)}
        await found.on_rebalance(
            kept | {TP(log, 2)},  # assigned
            {TP(log, 3), TP("rag.scores", 4)},  # revoked
            {TP(log, 2), TP("rag.scores", 0)},  # newly assigned
            5,
        )
        assert sorted(found.data) == [b"0/a", b"1/a", b"4/a"]

    run(test)


def test_a_retry_of_the_producer_brings_nothing_back() -> None:
    extra = IdempotentProducer._settings_extra(object())  # type: ignore[arg-type]
    assert extra == {"acks": "all", "enable_idempotence": True}
