"""The versioned control record of traffic statistics that sampling needs.

The aggregate half learns it from traces and publishes it now and then; the score half draws by the
last one it has. A late record changes which traces are drawn and no estimate, since each draw
carries its probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Tags that a deployment changes.
VERSION_TAGS = ("model", "prompt_version")


@dataclass(frozen=True, slots=True)
class SamplingControl:
    """The statistics of traffic that sampling needs.

    `low` is the cut of each cheap score by service and metric, `first` the event time (Unix
    seconds) when a version (`"model=x"`) or the service itself ("") first came, `rare` the segments
    with little traffic.
    """

    version: int = 0
    low: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    first: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rare: Mapping[str, Sequence[str]] = field(default_factory=dict)
