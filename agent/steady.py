"""The wall clock of a start, going on evenly: for spans of time that no setting of the clock, nor
its correction, may stretch or cut."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["steady"]


def steady(clock: Callable[[], float], monotonic: Callable[[], float]) -> Callable[[], float]:
    """What `clock` says now, and from there on as `monotonic` goes."""
    begin = clock() - monotonic()
    return lambda: begin + monotonic()
