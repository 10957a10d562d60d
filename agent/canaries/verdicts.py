"""The verdict on a canary answer, and the embedding similarity of the answer to its reference.

How near an answer is to the right one in meaning: cosine of two embeddings, by an
OpenAI-compatible endpoint. It is asked by the runner and not by the agent: canaries are few.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from pydantic import SecretStr

from ragmeter.canaries.suite import CanaryQuestion, CanarySuite
from ragmeter.config.scoring import EmbeddingSettings
from ragmeter.core.arithmetic import cosine_similarity
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.registry import metric_specs
from ragmeter.scorers.llm.embeddings import EmbeddingClient, EmbeddingFailed
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.canary")

MAX_CHARS = 30_000  # of a text; what is longer has no similarity rather than that of a part


class AnswerSimilarity:
    """`base_url` with its `/v1`. To be closed. `http`: a client of the caller's, for tests."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str | None = None,
        *,
        seconds: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        # not validated: a URL of the command line that cannot be used fails at the first request
        settings = EmbeddingSettings.model_construct(
            base_url=base_url,
            model=model,
            api_key=None if key is None else SecretStr(key),
            timeout_seconds=seconds,
            retries=1,
        )
        self._asked = EmbeddingClient(settings, http=http)
        self._failing = False

    async def close(self) -> None:
        await self._asked.aclose()

    async def measure(self, trace: Trace) -> Trace:
        """The trace with the similarity in its reference, where it can be had."""
        reference = trace.reference
        if reference is None or reference.answerable is False or trace.status != "ok":
            return trace
        texts = [trace.answer or "", reference.answer or ""]
        if not all(text.strip() and len(text) <= MAX_CHARS for text in texts):
            return trace
        try:
            # not patient: a round of questions must not wait for a server that is down
            answer, right = (await self._asked.embed(texts, patient=False)).vectors
        except EmbeddingFailed as error:
            if not self._failing:
                log.error("no embeddings (%s): answer_correctness is missing", error.trouble)
            self._failing = True
            return trace
        self._failing = False
        found = cosine_similarity(answer, right)
        reference = reference.model_copy(update={"similarity": found})
        return trace.model_copy(update={"reference": reference})


_REQUIRED_VALUES = {
    "canary_failed": 0.0,
    "fact_checks": 1.0,
    "calculation": 1.0,
    "abstention_accuracy": 1.0,
    "conflict_handled": 1.0,
}
"""What every question must reach, where its reference says anything of it. The other metrics are
degrees: they have a threshold where `expect` gives one."""


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """`failed` says in words what was not reached."""

    question: str
    required: bool
    seconds: float
    failed: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failed


def evaluate_canary(
    suite: CanarySuite, question: CanaryQuestion, trace: Trace, scores: list[Score]
) -> CanaryVerdict:
    """`scores` are those of the trace against its reference."""
    found = {score.metric: score for score in scores}
    seconds = float((trace.timings or {}).get("total") or 0.0)
    if trace.status != "ok":
        why = f"{trace.status}: {trace.error}" if trace.error else trace.status
        return CanaryVerdict(question.id, question.required, seconds, [why])
    asked: Mapping[str, float] = suite.expect | question.expect
    failed = [
        text
        for name, threshold in {**_REQUIRED_VALUES, **asked}.items()
        if (text := _describe_miss(name, threshold, found.get(name), name in question.expect))
        is not None
    ]
    return CanaryVerdict(question.id, question.required, seconds, failed)


def _describe_miss(name: str, threshold: float, score: Score | None, asked: bool) -> str | None:
    """Where nobody could give the value that is asked for, it is not reached either. What does not
    apply is no miss, unless it was asked for of this very question."""
    if score is None:  # a cut-off that `judge.k` does not have
        return f"{name} is not measured"
    if score.state is ScoreState.NOT_APPLICABLE:
        return f"{name} does not apply ({score.reason})" if asked else None
    if score.value is None:
        return f"{name} could not be scored ({score.reason})"
    spec = metric_specs()[base_name(name)]
    worse = score.value > threshold if spec.good == "lower" else score.value < threshold
    if not worse:
        return None
    named = (score.detail or {}).get("failed")
    which = f" (failed: {', '.join(named)})" if named else ""
    return f"{name} {score.value:.3g}, wanted {threshold:.3g}{which}"
