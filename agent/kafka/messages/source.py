"""Where a message was read; what is made of it names that, so that it counts once."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Source"]


class Source(NamedTuple):
    """`epoch` counts how often the topic was made anew."""

    epoch: int
    partition: int
    offset: int
