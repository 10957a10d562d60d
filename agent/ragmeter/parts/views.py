"""What parts let others read, and do, beside what the contract says; a part may offer any of it.

`Parts.find` returns the part that offers a view, so that nobody needs its name. A view itself says
what holds where no part offers it.
"""

from __future__ import annotations

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
