"""The section `consistency:`: answers to the same question, compared."""

from __future__ import annotations

from pydantic import Field

from agent.settings.section import Names, Section

__all__ = ["Consistency"]


class Consistency(Section):
    enabled: bool = Field(
        True,
        description="compare answers to the same question; with `privacy.content: none` it is off",
    )
    queries: int = Field(
        200,
        ge=10,
        le=2_000,
        description="different questions of a service that are remembered, up to 5 kB each",
    )
    tags: Names = Field(
        [],
        description="tags that must be equal, too, for two questions to be the same: `tenant`,"
        " where each has documents of its own",
    )
