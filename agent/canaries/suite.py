"""A suite: questions with their references, how the service is asked, and what its replies mean.

A mistake in it names the file, the line and the field. A field that is not known is one: a check
that is never made because of a slip would pass for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agent.canaries.places import Place
from agent.metrics import METRICS
from agent.metrics.canary.checks import check_pattern
from agent.metrics.names import base
from agent.metrics.results import REFERENCE
from agent.trace import Calculation, FactCheck, Id, Message, Reference, Support, Tags

__all__ = [
    "MAX_QUESTIONS",
    "CitationPlaces",
    "PassagePlaces",
    "Question",
    "Reply",
    "Request",
    "Suite",
]

MAX_QUESTIONS = 10_000
MAX_TEXT = 100_000  # characters of a question

_NESTED: dict[str, type[BaseModel]] = {
    "supports": Support,
    "checks": FactCheck,
    "calculation": Calculation,
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Request(_Strict):
    """How a question is asked. `{{query}}`, `{{id}}`, `{{history}}` and `{{vars.NAME}}` stand for
    what the question says; in headers `{{env.NAME}}` for a variable of the environment."""

    method: Annotated[str, Field(pattern=r"^(GET|POST|PUT)$")] = "POST"
    headers: dict[str, str] = {}
    params: dict[str, str] = Field(default={}, description="of the URL's query")
    body: Any = Field(
        default={"query": "{{query}}"}, description="sent as JSON; a text as it is; none with GET"
    )


class PassagePlaces(_Strict):
    """Where the parts of a passage stand in it. A passage may be a text as well."""

    id: Place = "id"
    text: Place = "text"
    score: Place = "score"
    metadata: Place = "metadata"
    rel_path: Place | None = None
    heading_path: Place | None = None


class CitationPlaces(_Strict):
    """Where the parts of a citation stand in it. A citation may be a passage's id as well."""

    passage_id: Place = "passage_id"
    start: Place = "start"
    end: Place = "end"


class Reply(_Strict):
    """Where the parts of the answer stand in the reply: `data.answer`, `choices[0].text`, or a JSON
    pointer `/data/answer`; `$` is the whole. Only `answer` must be there."""

    answer: Place = "answer"
    passages: Place | None = "passages"
    passage: PassagePlaces = PassagePlaces()
    citations: Place | None = "citations"
    citation: CitationPlaces = CitationPlaces()
    abstained: Place | None = "abstained"
    model: Place | None = "model"
    prompt_version: Place | None = "prompt_version"


class Question(_Strict):
    """One canary. `required`: a run fails where it does not pass."""

    id: Id = ""
    query: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
    history: list[Message] | None = None
    vars: dict[str, Any] = {}
    tags: Tags = {}
    required: bool = True
    expect: dict[str, float] = Field(
        default={}, description="the least value of a metric (the most where lower is better)"
    )
    reference: Reference

    @model_validator(mode="before")
    @classmethod
    def _with_id(cls, data: Any) -> Any:
        """Without an id the question is known by its text, wherever it stands in the suite."""
        if isinstance(data, Mapping) and data.get("id") is None:
            text = str(data.get("query"))
            mark = blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
            return {**data, "id": f"q-{mark}"}
        return data

    @field_validator("reference", mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            _no_others(data, Reference, "")
            for name, model in _NESTED.items():
                value = data.get(name)
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, Mapping):
                        _no_others(item, model, f"{name}: ")
        return data

    @field_validator("reference")
    @classmethod
    def _sound_patterns(cls, reference: Reference) -> Reference:
        for check in reference.checks:
            for pattern in check.patterns:
                check_pattern(pattern)
        return reference

    @field_validator("expect")
    @classmethod
    def _known_metrics(cls, expect: dict[str, float]) -> dict[str, float]:
        return _expected(expect)


class Suite(_Strict):
    """`name` and the tags go with every trace, as does `question`, the id."""

    service: Id
    name: Annotated[str, Field(max_length=200)] = ""
    tags: Tags = {}
    request: Request = Request()
    response: Reply = Reply()
    expect: dict[str, float] = Field(default={}, description="as of a question, for all of them")
    questions: Annotated[list[Question], Field(min_length=1, max_length=MAX_QUESTIONS)]

    @field_validator("expect")
    @classmethod
    def _known_metrics(cls, expect: dict[str, float]) -> dict[str, float]:
        return _expected(expect)

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        seen: set[str] = set()
        for question in self.questions:
            if question.id in seen:
                raise ValueError(f"two questions have the id {question.id!r}")
            seen.add(question.id)
        return self


def _no_others(data: Mapping[Any, Any], model: type[BaseModel], where: str) -> None:
    others = sorted(str(key) for key in data if key not in model.model_fields)
    if others:
        allowed = ", ".join(model.model_fields)
        raise ValueError(f"{where}{others[0]!r} is not known; allowed: {allowed}")


def _expected(expect: dict[str, float]) -> dict[str, float]:
    for name in expect:
        spec = METRICS.get(base(name))
        if spec is None or REFERENCE not in spec.scorers or spec.good is None:
            raise ValueError(f"{name!r} is no metric of canaries")
        if bool(spec.labels) != (":" in name):
            example = f"{base(name)}:5" if spec.labels else base(name)
            raise ValueError(f"{name!r}: write {example!r}")
    return expect
