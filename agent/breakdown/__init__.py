"""Which segment moves a mean: estimates by segment, what each adds to a change, one budget of
false discoveries for all of it. Pure."""

from agent.breakdown.breakdown import Against, Breakdown, NoPast, Options, breakdown_of
from agent.breakdown.discoveries import FDR
from agent.breakdown.reading import OfFiles, OfWindow

__all__ = [
    "FDR",
    "Against",
    "Breakdown",
    "NoPast",
    "OfFiles",
    "OfWindow",
    "Options",
    "breakdown_of",
]
