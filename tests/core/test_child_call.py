"""Calls of functions in a process of their own."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from ragmeter.core.child_call import ChildCallFailed, call_in_child
from ragmeter.ingest.native import MAX_VALUES, BodyLimitExceeded, iterate_lines

from tests.core.child_functions import count, end, fail_after, sleep
from tests.waiting import PATIENCE


@pytest.mark.parametrize("number", [0, 1, 500, 1201])
def test_the_items_come_in_order(number: int) -> None:
    assert call_in_child(count, number) == list(range(number))


def test_exceptions_are_raised_here() -> None:
    with pytest.raises(ValueError, match="on purpose"):
        call_in_child(fail_after, 700)
    with pytest.raises(BodyLimitExceeded, match="JSON values"):
        call_in_child(iterate_lines, b"[" + b"1," * (MAX_VALUES + 1) + b"1]", 10)


class Body(bytearray):
    """Bytes to which there are weak references."""


def test_arguments_are_freed_with_the_exception() -> None:
    body = Body(b"x")
    alive = weakref.ref(body)
    gc.disable()
    try:
        with pytest.raises(TypeError):
            call_in_child(count, body)
        del body
        assert alive() is None
    finally:
        gc.enable()


def test_a_process_that_ends_or_hangs_is_a_failure() -> None:
    with pytest.raises(ChildCallFailed):
        call_in_child(end, 1)
    begun = time.monotonic()
    with pytest.raises(ChildCallFailed):
        call_in_child(sleep, 2 * PATIENCE, seconds=0.5)
    assert time.monotonic() - begun < PATIENCE
