"""The tier `embedding`: embed questions and answers for the comparison of answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ragmeter.aggregate.wordings import embedding_excerpt, embeds_answers
from ragmeter.config.privacy import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.core.vectors import AnswerVectors, pack_vector
from ragmeter.scorers.llm.embeddings import EmbeddingClient, EmbeddingFailed
from ragmeter.trace import Trace

log = logging.getLogger("ragmeter.embeddings")


class AnswerEmbedder:
    """One request a trace, with its question and its answer. `Pausing` while the server is down:
    traces wait in the state file then."""

    tier: Tier = "embedding"
    pairs: Sequence[MetricScorer] = ()

    def __init__(self, asked: EmbeddingClient) -> None:
        self._asked = asked
        self._served: str | None = None

    @property
    def paused(self) -> bool:
        return self._asked.is_down

    @property
    def trying(self) -> bool:
        return self._asked.takes_trial

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        return []

    async def embed(self, trace: Trace) -> AnswerVectors | str:
        """The vectors of a trace that has question and answer, or why there are none."""
        texts = [embedding_excerpt(trace.query or ""), embedding_excerpt(trace.answer or "")]
        try:
            found = await self._asked.embed(texts)
        except EmbeddingFailed as error:
            log.debug("no embedding of trace %r: %s", trace.trace_id[:80], error)
            return error.trouble
        if self._served not in (None, found.served):
            log.warning("another model makes the embeddings: older ones are not compared with them")
        self._served = found.served
        model = f"{self._asked.model}/{found.served}"
        question, answer = found.vectors
        return AnswerVectors(pack_vector(question, model), pack_vector(answer, model))

    def gauges(self) -> list[GaugeSample]:
        return [("ragmeter_embeddings_up", (), float(not self._asked.is_down))]

    async def __aenter__(self) -> AnswerEmbedder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._asked.aclose()


def build_answer_embedder(
    settings: ConsistencySettings, privacy: PrivacySettings
) -> AnswerEmbedder | None:
    """None where nothing is to be embedded."""
    if embeds_answers(settings, privacy):
        return AnswerEmbedder(EmbeddingClient(settings.embeddings))
    if settings.embeddings.base_url is not None:
        why = "consistency is off" if not settings.enabled else "privacy.content is not full"
        log.warning("answers are not embedded: %s", why)
    return None
