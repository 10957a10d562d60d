"""How near an answer is to the right one in meaning: cosine of two embeddings, by an
OpenAI-compatible endpoint. It is asked by the runner and not by the agent: canaries are few."""

from __future__ import annotations

import logging

import httpx
from pydantic import SecretStr

from agent.embeddings.client import Embedder, EmbeddingFailed
from agent.metrics.cosine import cosine
from agent.trace import Trace

__all__ = ["Similarity"]

log = logging.getLogger("ragmeter.canary")

MAX_CHARS = 30_000  # of a text; what is longer has no similarity rather than that of a part


class Similarity:
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
        self._asked = Embedder(
            base_url,
            model,
            api_key=None if key is None else SecretStr(key),
            seconds=seconds,
            retries=1,
            http=http,
        )
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
        found = cosine(answer, right)
        reference = reference.model_copy(update={"similarity": found})
        return trace.model_copy(update={"reference": reference})
