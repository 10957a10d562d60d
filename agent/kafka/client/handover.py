"""Hands a message from Faust's consumer to its stream without four tasks for it.

Faust 0.15 runs the callback of every message as a task beside three others that wait for the flow
to be suspended, the consumer to stop, or to crash: some 100 us a message, more than the rest of the
way. The callback of a message nearly always ends at once, for it only puts the message into a queue
with room. So it is begun in place, and only where it does wait are the tasks made, with what is
left of it.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple

from faust import Service

__all__ = ["QuickHandover"]


class _Results(NamedTuple):
    """As Faust's `WaitResults`, which it does not give away."""

    done: list[Any]
    results: list[Any]
    stopped: bool


class QuickHandover(Service):
    """Of a consumer; to be mixed in before Faust's class."""

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109
        first = coros[0]
        if timeout is not None or not isinstance(first, Coroutine) or self.should_stop:
            return await super().wait_first(*coros, timeout=timeout)
        try:
            blocked = first.send(None)
        except StopIteration as end:
            for other in coros[1:]:
                if isinstance(other, Coroutine):
                    other.close()
            return _Results([first], [end.value], False)
        except BaseException:
            for other in coros[1:]:
                if isinstance(other, Coroutine):
                    other.close()
            raise
        return await super().wait_first(_rest(first, blocked), *coros[1:])


async def _rest(begun: Coroutine[Any, Any, Any], blocked: Any) -> Any:
    """What is left of a coroutine that waits for `blocked`."""
    return await _driven(begun, blocked)


@types.coroutine
def _driven(begun: Coroutine[Any, Any, Any], blocked: Any) -> Generator[Any, Any, Any]:
    while True:
        error, value = None, None
        try:
            value = yield blocked
        except BaseException as raised:
            error = raised
        try:
            blocked = begun.send(value) if error is None else begun.throw(error)
        except StopIteration as end:
            return end.value
