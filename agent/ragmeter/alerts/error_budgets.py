"""Error budgets: multi-window, multi-burn-rate conditions for the objectives of each service.

The condition is that of the SRE workbook ("Alerting on SLOs", table 5-8): the ratio of bad events
over a long and over a short window must exceed `factor` times what the objective allows. The long
window shows that it matters, the short one that it still goes on. Two additions: a floor on the
number of errors, and a cap on the threshold. Pure; time is event time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragmeter.alerts.budget_rings import (
    CELL_FIELDS,
    COARSE,
    FINE,
    LONGEST,
    BudgetCells,
    BudgetRings,
)
from ragmeter.core.errors import UnknownVersion
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.state import BucketRow


class BurnRateWindows(NamedTuple):
    """One line of the workbook's table: windows in seconds."""

    long: int
    short: int
    factor: float


# Page at 2 % of a 30-day budget in 1 h, page at 5 % in 6 h, ticket at 10 % in 3 d. A factor is
# share of the budget x 30 days / long window, and a short window a twelfth of the long one.
STANDARD_BURN_RATES = (
    BurnRateWindows(3600, 300, 14.4),
    BurnRateWindows(21600, 1800, 6.0),
    BurnRateWindows(259200, 21600, 1.0),
)

# Errors in the long window below which nothing fires: at 0.02 traces/s one chance error is 1.4 %
# of an hour's traces, at 99.9 % a burn rate of 14. Without the floor `benchmarks/burn.py` has 14
# false pages a month at half the budget, with it none.
MIN_ERRORS = 10.0

# The highest threshold: 14.4 x 10 % is more than everything, and could never fire.
_MAX_ERROR_RATIO = 0.5

_BUDGET_SECONDS = 30 * 86400  # the time that a budget is for

_FORMAT_VERSION = 1


def max_error_ratio(factor: float, objective: float) -> float:
    """Return the error ratio that a window must exceed: min(factor x (1 - objective), 0.5)."""
    # rounded, so that 14.4 x (1 - 0.99) is 0.144 here and in a rule file
    return round(min(factor * (1 - objective), _MAX_ERROR_RATIO), 10)


class ObjectiveEvidence(NamedTuple):
    """The series in the windows of traces that broke an objective: `metric` beyond `limit`."""

    metric: str
    scorer: str
    limit: float
    above: bool = True


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective.

    Args:
        target: The share of events that should be good, 0..1.
        lag: How many seconds before now windows end: for results that come late, where the bad
            ones come later.
    """

    name: str
    target: float
    lag: int = 0
    evidence: tuple[ObjectiveEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class BurnRateValue:
    """The value of a burn-rate condition: the ratios of both windows, and whether it holds.

    `lower` and `upper` are the 95 % interval of the long ratio; `errors` are the effective errors
    in the long window.
    """

    objective: float
    threshold: float
    ratio: float
    short_ratio: float
    lower: float
    upper: float
    samples: int
    effective_samples: float
    errors: float
    holds: bool

    @property
    def rate(self) -> float:
        """How many times faster than the objective allows, over the long window."""
        return self.ratio / (1 - self.objective)


class ErrorBudgets:
    """The events of every objective of every service, three days of them.

    A service takes up to 200 kB for each objective (`benchmarks/burn.py`).

    Args:
        spans: The windows that `burn` will be asked for, in seconds.
        max_services: How many services are held: another one takes the place of the one that is
            silent for longest.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        spans: Iterable[int] = (),
        *,
        max_services: int = 101,
    ) -> None:
        self._objectives = {objective.name: objective for objective in objectives}
        standard = {seconds for windows in STANDARD_BURN_RATES for seconds in windows[:2]}
        self._spans = sorted(standard | set(spans))
        self._max = max_services
        self._services: dict[str, dict[str, BudgetRings]] = {}
        self._removed: set[tuple[str, int, int]] = set()
        self._changed: set[str] = set()  # services with events since `take_changed`
        self._now: float | None = None
        self._swept = 0.0

    @property
    def next_sweep(self) -> float:
        """The event time from which `advance` drops silent services again."""
        return self._swept + COARSE

    def advance(self, now: float) -> None:
        """Move event time to `now`; an earlier time than before changes nothing."""
        if self._now is None or now > self._now:
            self._now = now
            if now >= self.next_sweep:
                self._swept = now
                for service in [
                    s for s in self._services if now - self._newest(s) > LONGEST + COARSE
                ]:
                    self._drop(service)

    def add(
        self, service: str, name: str, timestamp: float, weight: int, bad: bool, count: int = 1
    ) -> None:
        """Count events of `weight` units each for an objective; one from ahead moves event time."""
        objective = self._objectives[name]
        self.advance(timestamp)
        assert self._now is not None
        if self._now - timestamp > LONGEST:
            return
        if service not in self._services and len(self._services) >= self._max:
            self._drop(min(self._services, key=lambda other: (self._newest(other), other)))
        own = self._services.setdefault(service, {})
        rings = own.get(name)
        if rings is None:
            rings = own[name] = BudgetRings(self._spans, objective.lag)
        rings.advance(self._now)
        rings.add(timestamp, weight, bad, count)
        self._changed.add(service)

    def take_changed(self) -> set[str]:
        """Return the services with events since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def may_burn(self, service: str, name: str, long: int, short: int, min_errors: float) -> bool:
        """Return whether `burn` might hold now, or later if no more events come.

        It needs errors in both windows, and at least as many as effective ones.
        """
        rings = self._services.get(service, {}).get(name)
        if rings is None or self._now is None:
            return False
        rings.advance(self._now)
        if rings.ahead:
            return True
        over, now = rings.sums(long), rings.sums(short)
        return now.bad > 0 and over.bad >= min_errors

    def has_samples(self, service: str, name: str, span: int) -> bool:
        """Return whether a window of so many seconds has events, or will have some that came."""
        rings = self._services.get(service, {}).get(name)
        if rings is None or self._now is None:
            return False
        rings.advance(self._now)
        return rings.ahead or rings.sums(span).samples > 0

    def services(self) -> list[str]:
        """Return the services that have events."""
        return sorted(self._services)

    def names(self, service: str) -> list[str]:
        """Return the objectives that a service has events of."""
        return sorted(self._services.get(service, ()))

    def evidence(self, name: str) -> tuple[ObjectiveEvidence, ...]:
        """Return where the windows hold traces that broke an objective, if it still exists."""
        objective = self._objectives.get(name)
        return objective.evidence if objective is not None else ()

    def burn(
        self,
        service: str,
        name: str,
        long: int,
        short: int,
        factor: float,
        min_errors: float = MIN_ERRORS,
    ) -> BurnRateValue | None:
        """Return the condition at the time last given to `advance`; None if a window is empty.

        The budget must be used up `factor` times too fast over windows of `long` and of `short`
        seconds, with at least `min_errors` effective errors.
        """
        rings = self._services.get(service, {}).get(name)
        if rings is None or self._now is None:
            return None
        rings.advance(self._now)
        over, now = rings.sums(long), rings.sums(short)
        if not over.samples or not now.samples:
            return None
        objective = self._objectives[name]
        threshold = max_error_ratio(factor, objective.target)
        lower, upper = wilson_interval(over.ratio, over.effective_samples)
        holds = min(over.ratio, now.ratio) > threshold and over.effective_errors >= min_errors
        return BurnRateValue(
            *(objective.target, threshold, over.ratio, now.ratio, lower, upper),
            *(over.samples, over.effective_samples, over.effective_errors, holds),
        )

    def ratio_before(self, service: str, name: str, long: int) -> float | None:
        """Return the ratio of bad events in the three days without their last `long` seconds."""
        rings = self._services.get(service, {}).get(name)
        if rings is None or long >= LONGEST:
            return None
        past, now = rings.sums(LONGEST), rings.sums(long)
        weight = past.weight - now.weight
        # the two rings have their edges apart: what is left may be next to nothing
        if past.samples <= now.samples or weight <= 0:
            return None
        return min(1.0, max(0.0, (past.bad - now.bad) / weight))

    def spent_share(self, service: str, name: str) -> float | None:
        """Return the share of a 30-day budget that the last three days have used up.

        It assumes that all 30 days have as much traffic. A service that is younger counts since
        its first event.
        """
        rings = self._services.get(service, {}).get(name)
        oldest = rings.oldest if rings is not None else None
        if rings is None or oldest is None or self._now is None:
            return None
        covered = min(max(self._now - oldest, COARSE), LONGEST)
        rate = rings.sums(LONGEST).ratio / (1 - self._objectives[name].target)
        return rate * covered / _BUDGET_SECONDS

    def drain(self) -> list[BucketRow]:
        """Return the rows that changed since the last call.

        A row is a bucket of a service with all its objectives. Its width is negative, so that it
        can be stored among the rows of the windows.
        """
        changed, self._removed = self._removed, set()
        for service, own in self._services.items():
            for rings in own.values():
                rings.fold()
                changed.update((service, width, index) for width, index in rings.dirty)
                rings.dirty.clear()
        return [
            (service, "", -width, index * width, self._encode_bucket(service, width, index))
            for service, width, index in sorted(changed)
        ]

    def _encode_bucket(self, service: str, width: int, index: int) -> bytes | None:
        content = {
            name: cells
            for name, rings in sorted(self._services.get(service, {}).items())
            if (cells := rings.cells(width, index)) is not None
        }
        if not content:
            return None
        return bytes([_FORMAT_VERSION]) + json.dumps(content, separators=(",", ":")).encode()

    def load(self, rows: Iterable[BucketRow], now: float | None) -> None:
        """Continue from what `drain` gave, at the event time of the save.

        Rows of other widths and objectives that no longer exist are left out.

        Raises:
            UnknownVersion: A row is of another format version.
            ValueError: A row is malformed.
        """
        self._services, self._now = {}, now
        for service, _, width, start, data in rows:
            if width not in (-FINE, -COARSE) or data is None or now is None:
                continue
            for name, cells in _decode_cells(data).items():
                objective = self._objectives.get(name)
                if objective is None:
                    self._removed.add((service, -width, start // -width))  # write it without
                    continue
                own = self._services.setdefault(service, {})
                rings = own.get(name)
                if rings is None:
                    rings = own[name] = BudgetRings(self._spans, objective.lag)
                    rings.advance(now)
                rings.restore(-width, start // -width, cells)
        self._changed.update(self._services)

    def _newest(self, service: str) -> int:
        return max((rings.newest for rings in self._services[service].values()), default=0)

    def _drop(self, service: str) -> None:
        for rings in self._services.pop(service).values():
            self._removed.update((service, width, index) for width, index, _ in rings.rows())
            self._removed.update((service, width, index) for width, index in rings.dirty)


def _decode_cells(data: bytes) -> dict[str, BudgetCells]:
    if data[:1] != bytes([_FORMAT_VERSION]):
        raise UnknownVersion("error budgets of another format version")
    try:
        content: dict[str, BudgetCells] = json.loads(data[1:])
        if not all(
            len(cells) == CELL_FIELDS and all(type(cell) is int for cell in cells)
            for cells in content.values()
        ):
            raise ValueError("wrong sums")
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"a bucket of error budgets that cannot be read: {error}") from None
    return content
