"""Which scores go out, and what is kept of each until it is sent: bounded, and no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.config import ConfigError
from agent.evidence import CUT
from agent.metrics import METRICS
from agent.metrics.names import base, spec_of
from agent.metrics.results import BUILTIN
from agent.metrics.spec import Tier
from agent.settings.results import ResultsExport
from agent.trace import Score, ScoredTrace, SpanRef, State, Trace

__all__ = ["Result", "Selection", "tier_of"]

MODEL_SCORERS = frozenset(("hhem", "hhem_fulltext"))
"""Scorers of the model tier. By name: their module needs an extra that may not be installed."""


def tier_of(scorer: str) -> Tier:
    """The tier that a scorer belongs to."""
    if scorer == BUILTIN:
        return "cheap"
    return "model" if scorer in MODEL_SCORERS else "judge"


@dataclass(slots=True)  # frozen would take three times as long to make
class Result:
    """One score on its way out; it is never changed. `at` is when it was known, in nanoseconds of
    Unix time."""

    trace_id: str
    service: str
    span: SpanRef | None
    metric: str
    scorer: str
    state: State
    value: float | None
    reason: str | None
    probability: float
    fingerprint: str | None
    explanation: str | None
    at: int

    @property
    def label(self) -> str | None:
        """`pass` or `fail` where a metric says one of two things and one of them is better. A
        mean has no label: where good begins is for alert rules to say."""
        if self.state is State.NOT_APPLICABLE:
            return str(self.state)
        spec = spec_of(METRICS, self.metric)
        if spec is None or spec.kind != "ratio" or spec.good is None or self.value not in (0, 1):
            return None
        return "pass" if (self.value == 1) == (spec.good == "higher") else "fail"


class Selection:
    """What the settings want to be sent; without `texts` no explanation. ConfigError for a metric
    or scorer that nobody knows: a typing mistake would else be silence."""

    def __init__(self, settings: ResultsExport, *, texts: bool = True) -> None:
        known = {scorer for spec in METRICS.values() for scorer in spec.scorers}
        wrong = [name for name in settings.metrics if spec_of(METRICS, name) is None]
        wrong += [name for name in settings.scorers if name not in known]
        if wrong:
            raise ConfigError(f"results_export: no such metric or scorer: {', '.join(wrong)}")
        self._metrics = frozenset(settings.metrics)
        self._scorers = frozenset(settings.scorers)
        self._tiers = frozenset(settings.tiers)
        self._states = frozenset(settings.states)
        self._chars = settings.explanation_chars if texts else 0

    def wants(self, score: Score) -> bool:
        return (
            score.state in self._states
            and (
                not self._metrics
                or score.metric in self._metrics
                or base(score.metric) in self._metrics
            )
            and (not self._scorers or score.scorer in self._scorers)
            and (not self._tiers or tier_of(score.scorer) in self._tiers)
        )

    def of(self, trace: Trace, scored: ScoredTrace, at: int) -> Iterator[Result]:
        """What goes out of the results of one trace."""
        for score in scored.results:
            if self.wants(score):
                yield Result(
                    trace_id=trace.trace_id,
                    service=trace.service,
                    span=trace.span,
                    metric=score.metric,
                    scorer=score.scorer,
                    state=score.state,
                    value=score.value,
                    reason=score.reason,
                    probability=score.probability,
                    fingerprint=score.fingerprint,
                    explanation=self._explained(score.detail),
                    at=at,
                )

    def _explained(self, detail: dict[str, Any] | None) -> str | None:
        """The details of a score as JSON text, cut to the configured length."""
        if not detail or not self._chars:
            return None
        text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"), default=str)
        return text if len(text) <= self._chars else text[: self._chars] + CUT
