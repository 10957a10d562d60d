"""The question that an alert asks of whoever compares segments, and the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ragmeter.windows.windows import Windows


class Explanation(NamedTuple):
    """The causes of a change in words, and the segment that got worse; both may be empty.

    `segment` changed more than the others or is new. One whose share alone has moved is in the
    text only: nothing is wrong within it.
    """

    segment: str = ""
    text: str = ""


class WorseSeries(NamedTuple):
    """A series of a service that is in trouble in a window.

    Args:
        scorer: The scorer; of `LATENCY_METRIC` the stage.
        limit: Of a latency: the traces above it, in seconds, are the bad ones.
        failures: Whether it is the share of results without a value, which got higher.
        above: Whether higher is worse.
    """

    service: str
    metric: str
    scorer: str
    window: str
    limit: float
    above: bool
    failures: bool


Explain = Callable[[Windows, WorseSeries], Explanation]
"""Explains by segments what moved a series into trouble."""


def explain_nothing(windows: Windows, series: WorseSeries) -> Explanation:
    """Explain nothing: nobody compares segments."""
    return Explanation()
