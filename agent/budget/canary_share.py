"""How much of the judge's budget canaries may take. Pure.

Canaries are sent on purpose and judged at once, each of them, while there is something left of
their part; what comes beyond is `unscored` for the reason `budget`. They never wait for the pace of
the traffic, and a suite that has become too large, or a service that sends its own traffic with
references, takes no more than the part from it. What they spend is charged to the budget like that
of probes: the whole stays what it is, and the traffic is judged a little less, for it alone is
drawn by chance and so can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CanaryShare"]

START = 900.0
"""Seconds of income to begin with: a suite's first round (every 15 minutes by default) comes up to
a minute after a start. Not more, for a worker on Kafka begins anew at each start."""

HOUR, DAY = 3600.0, 86400.0
"""Seconds of income that are kept for later: a round comes in a burst. Of money a day's, so that a
suite once a day has all of its part; of calls an hour's, for they hold up the traffic's."""

MEMORY = 32
"""Settled canaries that the cost of one is averaged over."""


class CanaryShare:
    """One balance for each limited resource, by its place in a cost. `rates`: units a second that
    come in, of which those of the places in `daily` are kept for a day. `cost` is what a canary
    takes until the first is settled."""

    def __init__(
        self,
        rates: Mapping[int, float],
        cost: tuple[float, ...],
        daily: frozenset[int] = frozenset(),
    ) -> None:
        self._rates = dict(rates)
        self._keeps = {place: DAY if place in daily else HOUR for place in rates}
        self._balances = {place: START * rate for place, rate in rates.items()}
        self._cost = cost
        self._settled = 0
        self._pending = 0
        self._now: float | None = None

    def admit(self, now: float) -> bool:
        """A canary has come at Unix time `now`: whether it may ask. What it is expected to cost is
        committed then, and must be settled."""
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        for place, rate in self._rates.items():
            most = rate * self._keeps[place]
            self._balances[place] = min(most, self._balances[place] + rate * passed)
        # one more than there is, at most: else a part below the cost of one would admit none, ever
        if any(left <= self._pending * self._cost[p] for p, left in self._balances.items()):
            return False
        self._pending += 1
        return True

    def settle(self, cost: tuple[float, ...]) -> None:
        """A canary is done, and has taken this."""
        for place in self._balances:
            self._balances[place] -= cost[place]
        self._pending = max(0, self._pending - 1)
        self._settled += 1
        part = max(1 / self._settled, 1 / MEMORY)
        self._cost = tuple(a + part * (b - a) for a, b in zip(self._cost, cost, strict=True))

    def resize(self, factor: float, but: int) -> None:
        """All incomes `but` that of one place are others from now on, and what is left of them."""
        for place in self._rates.keys() - {but}:
            self._rates[place] *= factor
            self._balances[place] *= factor

    def dump(self, names: tuple[str, ...]) -> dict[str, Any]:
        """For JSON; `names` are those of the resources by place."""
        return {
            "now": self._now,
            "cost": list(self._cost),
            "settled": self._settled,
            "balances": {names[place]: left for place, left in self._balances.items()},
        }

    def load(
        self,
        state: Mapping[str, Any],
        names: tuple[str, ...],
        cost: tuple[float, ...],
        pending: int,
    ) -> None:
        """What `dump` gave, with its `cost` read. A resource that was not limited then begins."""
        self._now = None if state["now"] is None else float(state["now"])
        self._cost = cost
        self._settled = int(state["settled"])
        self._pending = pending
        for place in self._balances:
            if names[place] in state["balances"]:
                self._balances[place] = float(state["balances"][names[place]])
