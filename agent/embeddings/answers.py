"""The answers that are compared, embedded: the tier `embedding` of the embedded agent."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.consistency.vectors import Vectors, pack
from agent.consistency.wording import embeds, excerpt
from agent.counters import Gauge
from agent.embeddings.client import Embedder, EmbeddingFailed
from agent.settings.consistency import Consistency, Embeddings
from agent.settings.privacy import Privacy
from agent.tiers import Cost, Pair, Tier
from agent.trace import Score, Trace

__all__ = ["AnswerEmbedder", "answer_embedder", "embedder"]

log = logging.getLogger("ragmeter.embeddings")


def embedder(settings: Embeddings) -> Embedder:
    """The endpoint that the settings name."""
    assert settings.base_url is not None
    assert settings.model is not None  # the settings see to it
    return Embedder(
        settings.base_url,
        settings.model,
        api_key=settings.api_key,
        api_key_file=settings.api_key_file,
        dimensions=settings.dimensions,
        seconds=settings.timeout_seconds,
        concurrency=settings.concurrency,
        retries=settings.retries,
    )


class AnswerEmbedder:
    """One request a trace, with its question and its answer. `Pausing` while the server is down:
    traces wait in the state file then."""

    tier: Tier = "embedding"
    pairs: Sequence[Pair] = ()

    def __init__(self, asked: Embedder) -> None:
        self._asked = asked
        self._served: str | None = None

    @property
    def paused(self) -> bool:
        return self._asked.is_down

    @property
    def trying(self) -> bool:
        return self._asked.takes_trial

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        return []

    async def embed(self, trace: Trace) -> Vectors | str:
        """The vectors of a trace that has question and answer, or why there are none."""
        texts = [excerpt(trace.query or ""), excerpt(trace.answer or "")]
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
        return Vectors(pack(question, model), pack(answer, model))

    def gauges(self) -> list[Gauge]:
        return [("ragmeter_embeddings_up", (), float(not self._asked.is_down))]

    async def __aenter__(self) -> AnswerEmbedder:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._asked.aclose()


def answer_embedder(settings: Consistency, privacy: Privacy) -> AnswerEmbedder | None:
    """None where nothing is to be embedded."""
    if embeds(settings, privacy):
        return AnswerEmbedder(embedder(settings.embeddings))
    if settings.embeddings.base_url is not None:
        why = "consistency is off" if not settings.enabled else "privacy.content is not full"
        log.warning("answers are not embedded: %s", why)
    return None
