"""From which stratum a trace is drawn, and how much more often than the rest. Pure.

The cheap scores are known when a slow tier draws, so what an operator wants to be judged can be
drawn more often: errors, what a new model or prompt has answered, the lowest cheap scores, rare
segments. Every stratum keeps a part of its own in the estimate (see `windows`), so none of this
bends it. A ratio is at least 1 and at most 5: from 10 on it costs more width than it ever saves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.config import Sampling
from agent.control import VERSION_TAGS, Control
from agent.trace import Score, State, Trace
from agent.windows.sums import OCTAVE

__all__ = ["REST", "STRATA", "Strata", "Stratum", "drawn_at"]

STRATA = ("error", "new", "low", "rare", "rest")
"""A trace belongs to the first that fits."""


class Stratum(NamedTuple):
    """`ratio` multiplies the sampling rate."""

    name: str
    ratio: float


REST = Stratum("rest", 1.0)


def drawn_at(name: str, rate: float) -> str:
    """The name of the part of a stratum that was drawn at about `rate`, our own share of the
    inclusion probability: `low:3` is 2**-3.

    Where a budget has lowered the rate (a burst of traffic), a few traces stand for many. How many
    there were is known, so they are a stratum of their own; left to their weights, a budget that
    follows tenfold bursts covers .87 instead of .95.
    """
    return f"{name}{OCTAVE}{max(0, round(-math.log2(rate)))}"


class Strata:
    """Decides by the settings and the last `Control`. `segments` are the tags that windows are
    kept for. Both may be replaced at any time, from any thread."""

    def __init__(
        self, settings: Sampling, segments: Sequence[str] = (), control: Control | None = None
    ) -> None:
        self._segments = tuple(segments)
        self._settings = settings
        self._control = control or Control()

    def update(self, settings: Sampling) -> None:
        """Other settings from the next trace on."""
        self._settings = settings

    def learn(self, control: Control) -> None:
        """Another record from the next trace on."""
        self._control = control

    def of(self, trace: Trace, scores: Sequence[Score], timestamp: float) -> Stratum:
        """The stratum of a trace with the scores that are known at once."""
        settings, control = self._settings, self._control
        ratios = settings.ratios
        service = trace.service
        hidden = "answer" in trace.missing  # not captured is not failed
        if trace.status != "ok" or not (hidden or (trace.answer or "").strip()):
            return Stratum("error", ratios.error)
        if self._is_new(trace, timestamp, settings, control):
            return Stratum("new", ratios.new)
        if self._is_low(scores, settings, control.low.get(service, {})):
            return Stratum("low", ratios.low)
        rare = control.rare.get(service)
        if rare and any(f"{tag}={trace.tag(tag)}" in rare for tag in self._segments):
            return Stratum("rare", ratios.rare)
        return REST

    @staticmethod
    def _is_new(trace: Trace, timestamp: float, settings: Sampling, control: Control) -> bool:
        first = control.first.get(trace.service)
        if first is None or timestamp - first.get("", timestamp) < settings.new_seconds:
            return False  # the service itself is new: all of it would be
        since = timestamp - settings.new_seconds
        for tag in VERSION_TAGS:
            value = trace.tag(tag)
            # one that the record does not know yet has come since it was made
            if value and first.get(f"{tag}={value}", timestamp) > since:
                return True
        return False

    @staticmethod
    def _is_low(scores: Sequence[Score], settings: Sampling, cuts: Mapping[str, float]) -> bool:
        return any(
            score.scorer == "builtin"
            and score.state is State.SCORED
            and score.value is not None
            and score.value < cuts[score.metric]
            for score in scores
            if score.metric in cuts and score.metric in settings.low
        )
