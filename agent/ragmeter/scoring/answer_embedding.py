"""The tier `embedding`: embed questions and answers for the comparison of answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ragmeter.aggregate.wordings import embedding_excerpt, embeds_answers
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.arithmetic import AnswerVectors, pack_vector
from ragmeter.core.counters import GaugeSample
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.scorers.llm.embeddings import EmbeddingClient, EmbeddingFailed
from ragmeter.trace import Trace

log = logging.getLogger(__name__)


class AnswerEmbedder:
    """Embeds the question and the answer of a trace in one request.

    While the server is down it is paused (see `PausableScorer`): traces wait in the state file.
    """

    tier: Tier = "embedding"
    pairs: Sequence[MetricScorer] = ()

    def __init__(self, client: EmbeddingClient) -> None:
        self._client = client
        self._served: str | None = None

    @property
    def paused(self) -> bool:
        """Whether the server is down."""
        return self._client.is_down

    @property
    def trying(self) -> bool:
        """Whether one trace taken now would find out if the server is still down."""
        return self._client.takes_trial

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Return no scores: the tier brings vectors only."""
        return []

    async def embed(self, trace: Trace) -> AnswerVectors | str:
        """Return the vectors of a trace that has question and answer, or a reason for a label."""
        texts = [embedding_excerpt(trace.query or ""), embedding_excerpt(trace.answer or "")]
        try:
            reply = await self._client.embed(texts)
        except EmbeddingFailed as error:
            log.debug("no embedding of trace %r: %s", trace.trace_id[:80], error)
            return error.trouble
        if self._served not in (None, reply.served):
            log.warning("another model makes the embeddings: older ones are not compared with them")
        self._served = reply.served
        model = f"{self._client.model}/{reply.served}"
        question, answer = reply.vectors
        return AnswerVectors(pack_vector(question, model), pack_vector(answer, model))

    def gauges(self) -> list[GaugeSample]:
        """Return whether the server is up."""
        return [("ragmeter_embeddings_up", (), float(not self._client.is_down))]

    async def __aenter__(self) -> AnswerEmbedder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


def build_answer_embedder(
    settings: ConsistencySettings, privacy: PrivacySettings
) -> AnswerEmbedder | None:
    """Build the embedder of the configured endpoint; None if answers are not embedded."""
    if embeds_answers(settings, privacy):
        return AnswerEmbedder(EmbeddingClient(settings.embeddings))
    if settings.embeddings.base_url is not None:
        why = "consistency is off" if not settings.enabled else "privacy.content is not full"
        log.warning("answers are not embedded: %s", why)
    return None
