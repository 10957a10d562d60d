"""Let several threads call pure functions: with values of their own, or in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

_Value = TypeVar("_Value")
_Parameters = ParamSpec("_Parameters")


class PerThread(Generic[_Value]):
    """A value of each thread's own, made when the thread first asks for it.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._own = threading.local()

    def get(self) -> _Value:
        """Return the value of this thread."""
        try:
            found: _Value = self._own.value
        except AttributeError:
            found = self._own.value = self._make()
        return found


def one_at_a_time(function: Callable[_Parameters, _Value]) -> Callable[_Parameters, _Value]:
    """Return the function so that it runs in one thread at a time; others wait for their turn.

    It may call itself.
    """
    lock = threading.RLock()

    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Value:
        with lock:
            return function(*args, **kwargs)

    return call
