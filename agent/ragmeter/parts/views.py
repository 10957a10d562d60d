"""What parts let others read, and do, beside what the contract says; a part may offer any of it.

`Parts.find` returns the part that offers a view, so that nobody needs its name. A view itself says
what holds where no part offers it.
"""

from __future__ import annotations

from typing import Any

from ragmeter.alerts.alert import Alert
from ragmeter.sampling.control import SamplingControl


class ControlSource:
    """What the sampler should know of the traffic."""

    def control(self, turn: int) -> SamplingControl:
        """Return the record that holds in a turn, when all earlier turns have been observed."""
        return SamplingControl()

    @property
    def latest_control(self) -> SamplingControl:
        """The record of all traces so far."""
        return SamplingControl()


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
