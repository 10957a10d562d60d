"""Settings of the judge: which LLM is asked, how, how often, and what that may cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from agent.settings.section import Section, Share, base_url, listed

__all__ = ["Budget", "Cache", "Endpoint", "Judge", "Probes", "Second"]

Cutoff = Annotated[int, Field(ge=1, le=100)]
Family = Literal[
    "relevance",
    "answered",
    "citations",
    "nuggets",
    "claims",
    "facts",
    "context",
    "context_recall",
    "annotation",
]


class Endpoint(Section):
    """An OpenAI-compatible endpoint."""

    base_url: str | None = Field(
        None, description="base URL of an OpenAI-compatible API, with its `/v1`"
    )
    model: str | None = Field(None, description="name of the model to ask")
    api_key: SecretStr | None = Field(None, description="key of the API; from the environment")
    api_key_file: Path | None = Field(
        None, description="file with the key, read anew when the API refuses the old one"
    )

    @field_validator("base_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        return base_url(value)


class Cache(Section):
    entries: int = Field(200_000, ge=0, description="verdicts kept; 0 keeps none")
    days: float = Field(30, gt=0, description="how long a verdict is kept")


class Budget(Section):
    requests_per_minute: float | None = Field(None, gt=0, description="calls a minute; none: any")
    tokens_per_minute: float | None = Field(
        None, gt=0, description="tokens a minute, in and out together; none: any"
    )
    usd_per_day: float | None = Field(None, gt=0, description="USD a day (UTC); none: any")
    shares: dict[str, Share] = Field(
        {}, description="largest part of the budget for single services, by name"
    )
    canaries: float = Field(
        0.1, ge=0, le=1, description="largest part of the budget for canaries; 0: none is judged"
    )


class Second(Endpoint):
    share: float = Field(0.05, ge=0, le=1, description="part of the judged traces judged again")
    input_usd_per_million: float | None = Field(
        None, ge=0, description="price of a million tokens in; none: as the first judge's"
    )
    output_usd_per_million: float | None = Field(
        None, ge=0, description="price of a million tokens out; none: as the first judge's"
    )


class Probes(Section):
    hours: float = Field(24, gt=0, description="hours between two runs of the frozen probe set")
    file: Path | None = Field(None, description="JSON lines of probes in place of the bundled ones")
    enabled: bool = Field(True, description="judge the probe set while a judge is configured")


class Judge(Endpoint):
    metrics: Annotated[list[Family], BeforeValidator(listed)] = Field(
        ["relevance", "answered", "citations", "nuggets"],
        min_length=1,
        description="what the judge is asked for",
    )
    k: Annotated[list[Cutoff], BeforeValidator(listed)] = Field(
        [5], description="cut-offs of precision, average precision and nDCG", max_length=5
    )
    passages_per_call: int = Field(
        1, ge=1, le=10, description="passages graded in one call; above 1 changes the grades"
    )
    structured: Literal["auto", "schema", "prompt"] = Field(
        "auto", description="JSON schema by the server, in the prompt, or found out by trying"
    )
    temperature: float | None = Field(0, ge=0, le=2, description="none: the model's own")
    seed: int | None = Field(42, description="none: not sent")
    timeout_seconds: float = Field(60, gt=0, description="longest time for one attempt")
    concurrency: int = Field(16, ge=1, le=512, description="most calls in flight")
    retries: int = Field(3, ge=0, le=10, description="most retries of one call that failed")
    input_usd_per_million: float = Field(0, ge=0, description="price of a million tokens in")
    output_usd_per_million: float = Field(0, ge=0, description="price of a million tokens out")
    cache: Cache = Cache()
    budget: Budget = Budget()
    second: Second = Second()
    probes: Probes = Probes()

    @model_validator(mode="after")
    def _complete(self) -> Judge:
        for name, endpoint in (("", self), ("second.", self.second)):
            if endpoint.base_url is not None and not endpoint.model:
                raise ValueError(f"{name}base_url needs {name}model: the name of the model to ask")
        if self.base_url is None and (self.model or self.api_key_file):
            raise ValueError("model and api_key_file need base_url: without it no judge is asked")
        priced = self.input_usd_per_million or self.output_usd_per_million
        if self.budget.usd_per_day is not None and not priced:
            # without prices every call is free, and the budget would hold nothing
            raise ValueError(
                "budget.usd_per_day needs input_usd_per_million or output_usd_per_million"
            )
        return self
