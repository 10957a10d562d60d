"""What the tests of calls in a child call there: a module that imports little, as it should."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator


def count(number: int) -> Iterator[int]:
    print("this is no part of the answer")
    yield from range(number)


def fail_after(number: int) -> Iterator[int]:
    yield from range(number)
    raise ValueError("on purpose")


def end(_: int) -> Iterator[int]:
    yield 1
    os._exit(0)


def sleep(seconds: float) -> Iterator[int]:
    time.sleep(seconds)
    yield 1
