"""What parts let others read, and do, beside what the contract says; a part may offer any of it.

`Parts.find` returns the part that offers a view, so that nobody needs its name. A view itself says
what holds where no part offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.explanation import Explanation, WorseSeries
from ragmeter.sampling.control import SamplingControl
from ragmeter.windows.contrasts import CellPair, SeriesKind
from ragmeter.windows.windows import Windows


class ControlSource:
    """What the sampler should know of the traffic."""

    def control(self, turn: int) -> SamplingControl:
        """Return the record that holds in a turn, when all earlier turns have been observed."""
        return SamplingControl()

    @property
    def latest_control(self) -> SamplingControl:
        """The record of all traces so far."""
        return SamplingControl()


class Announcer:
    """What people are told of the alerts of all parts, and when."""

    def complete(self, alerts: Iterable[Alert]) -> None:
        """Add to alerts what they are folded under, and a link to their runbook."""

    def announce(self, alerts: Sequence[Alert], now: float) -> Sequence[Alert]:
        """Return those of all alerts that are to be announced at event time `now`.

        Each has those that are folded under it.
        """
        return ()


class BaselineKeeper:
    """The baselines that series are measured against."""

    def baselines(self) -> list[dict[str, Any]]:
        """Return the baseline of each series."""
        return []

    def promote(
        self, service: str | None, at: float | None
    ) -> tuple[dict[str, Any], list[Alert]] | None:
        """Make the present, event time `at`, the baseline of one service, or of all if None.

        Returns:
            By service how many series have the baseline at once, how many learn it, and its
            version; and the alerts that ended. None if the service is not watched.
        """
        return None


class Explainer:
    """Which segments moved a mean, in words."""

    def explain_worse(self, windows: Windows, series: WorseSeries) -> Explanation:
        """Explain what moved a series into trouble."""
        return Explanation()

    def explain_change(
        self,
        windows: Windows,
        service: str,
        read: Callable[[str], CellPair],
        kind: SeriesKind,
        direction: int,
    ) -> Explanation:
        """Explain why a mean of a service has changed.

        Args:
            windows: The windows, for the segments.
            service: The service.
            read: Returns the sums of a segment before the change and since.
            kind: The kind of the series.
            direction: 1 where the mean went up, -1 where it went down.
        """
        return Explanation()
