"""The part `control`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from ragmeter.parts.contract import Arrival, Part, PartContext
from ragmeter.parts.control.traffic import ControlLearner, ControlState
from ragmeter.parts.views import ControlSource
from ragmeter.sampling.control import SamplingControl


class ControlPart(Part[ControlState], ControlSource):
    """Learns the control record of sampling from the traces that arrive."""

    name = "control"
    package = __package__
    state: ClassVar[Any] = ControlState

    def __init__(self, learner: ControlLearner) -> None:
        self.learner = learner

    @classmethod
    def build(cls, context: PartContext) -> Self:
        """Build the part, which has seen no traffic."""
        return cls(ControlLearner())

    def learn(self, arrivals: Sequence[Arrival], turn: int) -> None:
        """Count the traces that arrived."""
        self.learner.observe(arrivals, turn)

    def control(self, turn: int) -> SamplingControl:
        """Return the record that holds in a turn."""
        return self.learner.at(turn)

    @property
    def latest_control(self) -> SamplingControl:
        """The record of all traces so far."""
        return self.learner.record

    def retain(self, services: Collection[str]) -> None:
        """Forget the traffic of every other service."""
        self.learner.retain(services)

    def changes(self) -> Mapping[str, ControlState | None]:
        """Return what changed of the record and of the counts of services."""
        return self.learner.changes()

    def restore(self, rows: Mapping[str, ControlState]) -> None:
        """Load the record and the counts of services."""
        self.learner.restore(rows)
