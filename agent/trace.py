"""The words of the domain: what comes in (`Trace`) and what crosses the seam (`ScoredTrace`).

`Trace` is the native schema `ragmeter.trace/1`. It is lenient where production data is untidy
(unknown fields, numbers as ids, nulls) and strict where a number would otherwise lie (NaN,
negative durations, a sampling probability outside (0, 1]).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

__all__ = [
    "CANARY",
    "MISSING_FIELDS",
    "MISSING_REASONS",
    "SCHEMA",
    "Calculation",
    "Citation",
    "ConflictRule",
    "FactCheck",
    "Frame",
    "Message",
    "Passage",
    "Reference",
    "Sampling",
    "Score",
    "ScoredTrace",
    "SpanRef",
    "State",
    "Status",
    "Support",
    "Trace",
    "Usage",
    "Wording",
]

SCHEMA = "ragmeter.trace/1"

MAX_ID = 512  # characters; longer ids are a mistake of the sender, and ids reach labels and URLs
MAX_TAGS = 64
MAX_TAG_TEXT = 256  # characters of a tag's value: tags become label values, never prose

CANARY = "ragmeter.canary"
"""The tag that marks a canary whose reference is elsewhere; under that name also in baggage and on
spans. A bare `canary` is what many call a release that few users get."""

MISSING_FIELDS = ("query", "passages", "answer")
"""What `Trace.missing` may name."""

MISSING_REASONS = frozenset(
    (
        "answer_truncated",
        "content_hidden",
        "no_answer_captured",
        "no_passages_captured",
        "no_query_captured",
        "not_captured",
        "passages_id_only",
        "passages_truncated",
        "query_truncated",
        "redaction_failed",
        "resolver_error",
        "resolver_timeout",
    )
)
"""Why a field is missing: these and no others, because reasons become label values."""

Status = Literal["ok", "error", "timeout"]


def _tags(value: object) -> dict[str, str]:
    """Scalars as text, bounded in number and length; whatever is nested is dropped."""
    if not isinstance(value, dict):
        return {}
    tags: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, bool):
            text = "true" if item else "false"
        elif isinstance(item, str | int | float):
            text = str(item)
        else:
            continue
        tags[str(key)[:MAX_TAG_TEXT]] = text[:MAX_TAG_TEXT]
        if len(tags) == MAX_TAGS:
            break
    return tags


def _missing(value: object) -> dict[str, str]:
    """Known fields with known reasons. Another reason is `not_captured`: dropping it would turn
    content that is hidden into content that is empty."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, str] = {}
    for field_name in MISSING_FIELDS:
        reason = value.get(field_name)
        if reason is not None and reason is not False:
            known = isinstance(reason, str) and reason in MISSING_REASONS
            found[field_name] = str(reason) if known else "not_captured"
    return found


def _span(value: object) -> object:
    """Ids of OpenTelemetry in hex; None where they are not, zeros (its "no id") included: a trace
    is worth more than the link to its span."""
    if not isinstance(value, dict):
        return value if isinstance(value, SpanRef) else None
    ids = [str(value.get(name)).lower() for name in ("trace_id", "span_id")]
    for text, digits in zip(ids, (32, 16), strict=True):
        if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) or not text.strip("0"):
            return None
    return {"trace_id": ids[0], "span_id": ids[1]}


def _text(value: object) -> object:
    """An error object becomes its JSON text, so that its words are not lost."""
    return json.dumps(value, default=str) if isinstance(value, dict | list) else value


def _utc(value: datetime) -> datetime:
    if not 1970 <= value.year <= 2200:  # at the ends of the calendar arithmetic overflows
        raise ValueError("a time between the years 1970 and 2200 is needed")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]  # sums of such never overflow
Tokens = Annotated[int, Field(ge=0, le=2**53)]  # beyond it a float skips whole numbers
Tag = Annotated[str, AfterValidator(lambda text: text[:MAX_TAG_TEXT])]
Timestamp = Annotated[datetime, AfterValidator(_utc)]
Tags = Annotated[dict[str, str], BeforeValidator(_tags)]
Missing = Annotated[dict[str, str], BeforeValidator(_missing)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        protected_namespaces=(),
    )


class Passage(_Model):
    """One retrieved passage, in rank order. `text` may be absent where only ids are traced."""

    id: Id
    text: str | None = None
    rank: int | None = None
    score: float | None = None
    metadata: dict[str, Any] | None = None


class Citation(_Model):
    """A stretch of the answer, in characters [start, end), and the passages it cites."""

    start: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)
    passage_ids: list[str] = []


class Message(_Model):
    role: str
    text: str = ""


class SpanRef(_Model):
    """A span of OpenTelemetry, in lower-case hex: 32 and 16 digits."""

    trace_id: str
    span_id: str


class Usage(_Model):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cost_usd: float | None = Field(default=None, ge=0, le=1e9)


class Sampling(_Model):
    """What an upstream sampler says of the probability that this trace was kept."""

    probability: float = Field(default=1.0, gt=0, le=1)


class Support(_Model):
    """A place that holds the right answer or a part of it; what is None may be anything."""

    rel_path: str | None = Field(default=None, description="the document, as in passage metadata")
    heading_path: str | None = Field(
        default=None, description="`Guide > Set-up`: this heading and all below it"
    )
    snippet: str | None = Field(default=None, description="words that the passage must hold")
    updated: Timestamp | None = Field(
        default=None, description="when it was written: `cite_newer` asks for the latest"
    )


class FactCheck(_Model):
    """Passes where every pattern is found in the answer and no forbidden phrase is."""

    name: str = ""
    patterns: list[str] = Field(
        default=[], max_length=20, description="regular expressions, whatever the case of letters"
    )
    forbidden: list[str] = Field(default=[], max_length=20, description="phrases, word by word")


class Calculation(_Model):
    """A number that the answer must give, and those that it shows on the way."""

    result: float
    steps: list[float] = []
    tolerance: float = Field(default=0.0, ge=0, description="by how much a number may be off")


ConflictRule = Literal["cite_newer", "acknowledge_both", "cite_both"]


class Reference(_Model):
    """What a canary's right answer looks like: as much of it as is known."""

    answer: str | None = None
    answerable: bool | None = None
    supports: list[Support] = []
    facts: list[str] = []
    keywords: list[str] = Field(default=[], description="else they are taken from `answer`")
    items: list[str] = Field(default=[], description="of a list; else the list in `answer`")
    checks: list[FactCheck] = Field(default=[], max_length=50)
    calculation: Calculation | None = None
    support_groups: list[list[Annotated[int, Field(ge=0)]]] = Field(
        default=[], description="indices of `supports`: all of one of the groups are needed"
    )
    conflict: ConflictRule | None = Field(
        default=None, description="what to do where the supports disagree"
    )
    scope: list[str] | None = Field(
        default=None, description="the folders that were searched; None: everything was"
    )
    similarity: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="how near the answer is to `answer` in meaning, by whoever has embeddings",
    )

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        for group in self.support_groups:
            if not group or max(group) >= len(self.supports):
                raise ValueError("a support group needs indices of supports, and at least one")
        return self


class Trace(_Model):
    """One query with what was retrieved and answered.

    `passages` is None where retrieval was not captured, and empty where it found nothing: the
    two are scored differently. What `missing` names is scored by nobody, whatever text is there.
    """

    model_config = ConfigDict(title=SCHEMA)

    trace_id: Id
    service: Id
    timestamp: Timestamp = Field(description="ISO 8601 or Unix time; without a zone: UTC")
    query: str | None = None
    history: list[Message] | None = None
    passages: list[Passage] | None = None
    answer: str | None = None
    citations: list[Citation] | None = None
    abstained: bool | None = None
    status: Status = "ok"
    error: Annotated[str | None, BeforeValidator(_text)] = None
    timings: dict[str, Seconds | None] | None = Field(
        default=None, description="seconds by stage; `total` is the whole request"
    )
    usage: Usage | None = None
    model: Tag | None = None
    prompt_version: Tag | None = None
    tags: Tags = {}
    sampling: Sampling | None = None
    reference: Reference | None = None
    span: Annotated[SpanRef | None, BeforeValidator(_span)] = Field(
        default=None,
        description="the OpenTelemetry span that is this request: exported results refer to it",
    )
    missing: Missing = Field(
        default={},
        description="`query`, `passages`, `answer` that are not there, or not whole, and why: "
        + ", ".join(sorted(MISSING_REASONS)),
    )

    @property
    def probability(self) -> float:
        """The upstream inclusion probability, in (0, 1]."""
        return 1.0 if self.sampling is None else self.sampling.probability

    @property
    def canary(self) -> bool:
        """Whether the question was sent on purpose. A service that passes the mark on (the tag
        `ragmeter.canary`) keeps its own record of such a request out of what is measured of
        people's."""
        return self.reference is not None or self.tags.get(CANARY) == "true"

    def tag(self, name: str) -> str | None:
        """A tag by name; `model`, `prompt_version` and what the reference says of `answerable`
        count as tags."""
        if name == "model":
            return self.model or self.tags.get(name)
        if name == "prompt_version":
            return self.prompt_version or self.tags.get(name)
        if name == "answerable" and self.reference and self.reference.answerable is not None:
            return "true" if self.reference.answerable else "false"
        return self.tags.get(name)


class State(StrEnum):
    """Where a (trace, metric) pair ends: in exactly one of these."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    SAMPLED_OUT = "sampled_out"
    UNSCORED = "unscored"
    SHED = "shed"
    LATE = "late"


@dataclass(slots=True)
class Score:
    """One result: `value` is there if and only if `state` is `scored`.

    `probability` is the inclusion probability pi in (0, 1] under which the value was taken, all
    causes multiplied; an estimate weights the value by 1/pi. `fingerprint` says which version of
    a judge or model gave the value: another one starts another series. The name of a metric with
    a cut-off ends in it: `precision_at_k:5`.

    Results of a tier that samples carry, whatever their state, the `stratum` that the trace was
    drawn from, and as `cheap` what the built-in scorer says of the same metric, if it does.
    """

    metric: str
    scorer: str
    state: State
    value: float | None = None
    reason: str | None = None
    probability: float = 1.0
    detail: dict[str, Any] | None = None
    fingerprint: str | None = None
    stratum: str = ""
    cheap: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The public JSON form: absent fields are left out."""
        name, _, k = self.metric.partition(":")
        out: dict[str, Any] = {"metric": name, "scorer": self.scorer, "state": str(self.state)}
        if k:
            out["k"] = int(k)
        if self.value is not None:
            out["value"] = self.value
        if self.reason is not None:
            out["reason"] = self.reason
        if self.state is State.SCORED or self.stratum:
            out["probability"] = self.probability
        if self.stratum:
            out["stratum"] = self.stratum
        if self.cheap is not None:
            out["cheap"] = self.cheap
        if self.fingerprint is not None:
            out["fingerprint"] = self.fingerprint
        if self.detail:
            out["detail"] = self.detail
        return out


@dataclass(frozen=True, slots=True)
class Wording:
    """What stands for a question and its answer where answers are compared, without their text
    (`agent.consistency.wording`): a hash in hex, and hashes of the words in base64."""

    query: str
    words: str


Frame = tuple[str, str, str, float | None]
"""(metric, scorer, stratum, cheap score) of a result that is still owed."""


@dataclass(slots=True)
class ScoredTrace:
    """What the score half hands to the aggregate half: no text of the trace, only numbers.

    `timestamp` is event time in Unix seconds; `timings` are seconds by stage. `probability` is
    the upstream one: operational counts are weighted by its inverse. A `partial` one brings
    further results of a trace that was handed over before. `frame` says what those will be: a
    trace belongs to its stratum from the start, however long a judge takes over it. A `canary` is
    no traffic: only what its reference says is counted, apart from everything else.
    """

    trace_id: str
    service: str
    timestamp: float
    status: Status
    results: list[Score]
    probability: float = 1.0
    timings: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    partial: bool = False
    canary: bool = False
    frame: list[Frame] = field(default_factory=list)
    wording: Wording | str = ""
    """Or why there is none; empty: nobody asks."""

    def to_dict(self) -> dict[str, Any]:
        """The line that `ragmeter score` writes."""
        out: dict[str, Any] = {
            "trace_id": self.trace_id,
            "service": self.service,
            "timestamp": datetime.fromtimestamp(self.timestamp, UTC)
            .isoformat()
            .replace("+00:00", "Z"),
            "status": self.status,
            "results": [score.to_dict() for score in self.results],
        }
        # what a backtest of operational rules and objectives needs besides the results
        if self.timings:
            out["timings"] = self.timings
        if self.probability != 1:
            out["probability"] = self.probability
        if self.tags:
            out["tags"] = self.tags
        if self.canary:
            out["canary"] = True
        return out
