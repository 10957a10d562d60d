"""Which scores are exported, and what an exported score says.

A result is an event of the OTel GenAI conventions. Its uid is a hash of service, trace, metric and
scorer: a batch that was sent twice because its reply was lost carries the same uids twice, so a
receiver can tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from ragmeter.aggregate.evidence import CUT_MARK
from ragmeter.core.metric_specs import find_spec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.ingest.spans import replace_surrogates
from ragmeter.metrics.registry import metric_specs
from ragmeter.trace import Trace

# What was sampled out or shed has been judged by nobody; what does not apply says nothing new.
EXPORTED_STATES = frozenset((ScoreState.SCORED, ScoreState.UNSCORED))
MAX_EXPLANATION = 500  # characters: a sentence or two; the whole is on the page of the trace


class ResultSelection:
    """The scores that are exported.

    Without `texts` no explanations are sent, which quote the trace.
    """

    def __init__(self, *, texts: bool = True) -> None:
        self._texts = texts

    def wants(self, score: Score) -> bool:
        """Return whether a score is exported."""
        return score.state in EXPORTED_STATES

    def attributes(self, trace: Trace, scored: ScoredTrace) -> Iterator[dict[str, str | float]]:
        """Yield the attributes of each exported score of a trace."""
        for score in scored.results:
            if self.wants(score):
                explanation = _explanation(score.detail) if self._texts else None
                yield _attributes(trace, score, explanation)


def _attributes(trace: Trace, score: Score, explanation: str | None) -> dict[str, str | float]:
    unscored = score.state is ScoreState.UNSCORED
    pairs: dict[str, str | float | None] = {
        "gen_ai.evaluation.name": score.metric,
        "gen_ai.evaluation.score.value": None if score.value is None else float(score.value),
        "gen_ai.evaluation.score.label": _label(score),
        "gen_ai.evaluation.explanation": explanation,
        "error.type": (score.reason or "_OTHER") if unscored else None,
        "log.record.uid": _uid(trace, score),
        # what no convention has a name for
        "ragmeter.service": trace.service,
        "ragmeter.trace_id": trace.trace_id,
        "ragmeter.scorer": score.scorer,
        "ragmeter.state": str(score.state),
        "ragmeter.reason": score.reason,
        "ragmeter.fingerprint": score.fingerprint,
        "ragmeter.probability": float(score.probability),
    }
    return {
        name: replace_surrogates(value) if isinstance(value, str) else value
        for name, value in pairs.items()
        if value is not None
    }


def _label(score: Score) -> str | None:
    """Return `pass` or `fail` of a metric that is a yes or no with a better side.

    A mean has no label: alert rules define where good begins.
    """
    spec = find_spec(metric_specs(), score.metric)
    if spec is None or spec.kind != "ratio" or spec.good is None or score.value not in (0, 1):
        return None
    return "pass" if (score.value == 1) == (spec.good == "higher") else "fail"


def _uid(trace: Trace, score: Score) -> str:
    about = (trace.service, trace.trace_id, score.metric, score.scorer, score.fingerprint)
    return blake2b(ascii(about).encode(), digest_size=24, person=b"ragmeter").hexdigest()


def _explanation(detail: dict[str, Any] | None) -> str | None:
    """Return the details of a score as JSON text, cut to `MAX_EXPLANATION` characters."""
    if not detail:
        return None
    text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= MAX_EXPLANATION else text[:MAX_EXPLANATION] + CUT_MARK
