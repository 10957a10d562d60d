"""Messages that a rebalance need not wait for.

Before a rebalance Faust waits, without a limit, until each message that a stream has given out is
acknowledged or forgotten by everybody. A stream itself remembers the last one that it has given
out. So what is dropped, to be delivered again, must be taken off its list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from faust.types import AppT

__all__ = ["let_go"]


def let_go(app: AppT, messages: Iterable[Any]) -> None:
    """Nothing comes of these messages here."""
    unacked = cast(Any, app.consumer).unacked
    for message in list(messages):
        unacked.discard(message)
