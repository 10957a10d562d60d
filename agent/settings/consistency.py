"""The section `consistency:`: answers to the same question, compared."""

from __future__ import annotations

from pydantic import Field, model_validator

from agent.settings.judge import Endpoint
from agent.settings.section import Names, Section

__all__ = ["Consistency", "Embeddings"]


class Embeddings(Endpoint):
    """An OpenAI-compatible embeddings endpoint; without its `base_url` nothing is embedded."""

    dimensions: int | None = Field(
        None,
        ge=2,
        le=4096,
        description="length of the vectors to ask for, of models that know shorter ones; none: the"
        " model's own",
    )
    near: float | None = Field(
        None,
        ge=0.5,
        le=1,
        description="cosine from which two questions are taken for one; none: only the same words",
    )
    timeout_seconds: float = Field(20, gt=0, description="longest time for one attempt")
    concurrency: int = Field(4, ge=1, le=64, description="most calls in flight")
    retries: int = Field(2, ge=0, le=10, description="most retries of one call that failed")

    @model_validator(mode="after")
    def _complete(self) -> Embeddings:
        if self.base_url is not None and not self.model:
            raise ValueError("base_url needs model: the name of the embedding model to ask")
        if self.base_url is None and (self.model or self.api_key_file or self.near is not None):
            raise ValueError(
                "model, api_key_file and near need base_url: without it nobody is asked"
            )
        return self


MAX_NEAR = 500
"""Questions remembered where near ones are found: a new one is held against each of them, which
takes 0.15 ms a piece for vectors of 1,536 numbers (benchmarks/consistency.py)."""


class Consistency(Section):
    enabled: bool = Field(
        True,
        description="compare answers to the same question; with `privacy.content: none` it is off",
    )
    queries: int = Field(
        200,
        ge=10,
        le=2_000,
        description="different questions of a service that are remembered, up to 5 kB each, and"
        " with embeddings five vectors more",
    )
    tags: Names = Field(
        [],
        description="tags that must be equal, too, for two questions to be the same: `tenant`,"
        " where each has documents of its own",
    )
    embeddings: Embeddings = Embeddings()

    @model_validator(mode="after")
    def _bounded(self) -> Consistency:
        if self.embeddings.near is not None and self.queries > MAX_NEAR:
            raise ValueError(f"with embeddings.near at most {MAX_NEAR} queries are remembered")
        return self
