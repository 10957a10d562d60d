"""Records of a worker with other settings than this one's."""

from __future__ import annotations

from collections.abc import Sequence

from agent.counters import Counters
from agent.tiers import Pair
from agent.trace import Score, ScoredTrace, State

__all__ = ["reconcile"]


def reconcile(scored: ScoredTrace, expected: Sequence[Pair], counters: Counters) -> None:
    """While settings change, workers with other scorers send what this one does not expect: it is
    dropped, and what is missing is said to be. Else a trace would be seen, and in no state."""
    pairs = [(score.metric, score.scorer) for score in scored.results]
    if pairs == expected:
        return
    found, known = set(pairs), set(expected)
    if found - known:
        scored.results = [
            score for score in scored.results if (score.metric, score.scorer) in known
        ]
        unexpected = len(pairs) - len(scored.results)
        counters.inc("ragmeter_unexpected_results_total", by=unexpected)
    if known - found:
        scored.results += [
            Score(*pair, State.UNSCORED, reason="not_configured", probability=scored.probability)
            for pair in expected
            if pair not in found
        ]
