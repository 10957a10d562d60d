"""How near an answer is to the right one in meaning: cosine of two embeddings, by an
OpenAI-compatible endpoint. It is asked by the runner and not by the agent: canaries are few."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from operator import mul

import httpx

from agent.trace import Trace

__all__ = ["Similarity", "cosine"]

log = logging.getLogger("ragmeter.canary")

MAX_CHARS = 30_000  # of a text; what is longer has no similarity rather than that of a part


def cosine(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Within 0 and 1: opposite meanings are no nearer than none. None where there is no angle."""
    if len(one) != len(other):
        return None
    size = math.hypot(*one) * math.hypot(*other)
    found = sum(map(mul, one, other)) / size if size else math.nan
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else None


class Similarity:
    """`base_url` with its `/v1`. To be closed."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str | None = None,
        *,
        seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._client = httpx.AsyncClient(timeout=seconds, headers=headers, transport=transport)
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._model = model
        self._failing = False

    async def close(self) -> None:
        await self._client.aclose()

    async def measure(self, trace: Trace) -> Trace:
        """The trace with the similarity in its reference, where it can be had."""
        reference = trace.reference
        if reference is None or reference.answerable is False or trace.status != "ok":
            return trace
        texts = [trace.answer or "", reference.answer or ""]
        if not all(text.strip() and len(text) <= MAX_CHARS for text in texts):
            return trace
        try:
            reply = await self._client.post(self._url, json={"model": self._model, "input": texts})
            reply.raise_for_status()
            rows = sorted(reply.json()["data"], key=lambda row: row["index"])
            found = cosine(*(list(map(float, row["embedding"])) for row in rows))
        except (httpx.HTTPError, ValueError, TypeError, KeyError, RecursionError) as error:
            if not self._failing:
                log.error("no embeddings (%s): answer_correctness is missing", type(error).__name__)
            self._failing = True
            return trace
        self._failing = False
        reference = reference.model_copy(update={"similarity": found})
        return trace.model_copy(update={"reference": reference})
