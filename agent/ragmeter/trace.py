"""The data model of a trace as the agent receives it: the native schema `ragmeter.trace/1`.

The model is lenient where production data is untidy (unknown fields, numbers as ids, nulls) and
strict where a number would otherwise distort estimates (NaN, negative durations, a sampling
probability outside (0, 1]).
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ragmeter.answers.cited_sources import read_nested_source, read_place, read_sources
from ragmeter.answers.json_answers import read_answer_text, read_json_sources
from ragmeter.answers.thoughts import find_thoughts, place_without, without_spans
from ragmeter.reasons import Reason

SCHEMA = "ragmeter.trace/1"

MAX_ID = 512  # characters; longer ids are a mistake of the sender, and ids reach labels and URLs
MAX_TAGS = 64
_MAX_TAG_CHARS = 256  # characters of a tag's value: tags become label values, never prose

# The tag that marks a canary whose reference is kept elsewhere; baggage and spans use this name
# too. A bare `canary` would clash with releases that only a few users get.
CANARY = "ragmeter.canary"

MISSING_FIELDS = ("query", "passages", "answer")  # the keys of `Trace.missing`

# Why a field is missing. The set is closed, because reasons become label values.
MISSING_REASONS = frozenset(
    (
        Reason.ANSWER_TRUNCATED,
        Reason.PASSAGES_TRUNCATED,
        Reason.QUERY_TRUNCATED,
        Reason.NO_ANSWER_CAPTURED,
        Reason.NO_PASSAGES_CAPTURED,
        Reason.NO_QUERY_CAPTURED,
        Reason.NOT_CAPTURED,
        Reason.CONTENT_HIDDEN,
        Reason.PASSAGES_ID_ONLY,
        Reason.PROMPT_ONLY,
        Reason.REDACTION_FAILED,
        Reason.RESOLVER_ERROR,
        Reason.RESOLVER_TIMEOUT,
    )
)

Status = Literal["ok", "error", "timeout"]

# The words of all providers for the same thing; any other word stays as it is.
_FINISH_REASONS = {
    "stop": (
        "stop",
        "end_turn",
        "stop_sequence",
        "eos",
        "eos_token",
        "complete",
        "completed",
        "finish_reason_stop",
        "end",
        "finish",
        "finished",
        "success",
    ),
    "length": (
        "length",
        "max_tokens",
        "max_output_tokens",
        "max_length",
        "model_length",
        "max_token",
        "max_new_tokens",
        "limit",
        "truncated",
        "error_limit",
        "model_context_window_exceeded",
        "token_limit",
        "max_completion_tokens",
    ),
    "content_filter": (
        "content_filter",
        "content_filtered",
        "contentfilter",
        "safety",
        "filtered",
        "blocklist",
        "prohibited_content",
        "spii",
        "recitation",
        "image_safety",
        "guardrail_intervened",
        "guardrails",
        "refusal",
        "content_policy",
        "content-filter",
        "error_toxic",
        "moderation",
        "language",
        "blocked",
    ),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "function_call", "tool-calls"),
    "error": ("error", "failed", "malformed_function_call", "other", "incomplete"),
}
# Of words that are none of these, a part that tells the same: `IMAGE_RECITATION`, `stopped_eos`.
_FINISH_BY_PART = {
    "error": re.compile(
        r"malformed|unexpected_tool|too_many_tool|network|insufficient|exception|rate_limit|(?:^|_)error"
    ),
    "content_filter": re.compile(
        r"safety|prohibited|recitation|toxic|block|guardrail|sensitive|moderat|jailbreak|refus"
        r"|content_?(?:filter|policy)|model_armor|unsafe"
    ),
    "tool_calls": re.compile(r"(?:tool|function)_?(?:calls?|use|execution)$"),
    "length": re.compile(r"length|max(?:imum)?_.*token|out_of_tokens|limit|context_window"),
    "stop": re.compile(r"^(?:stop|eos|end_?of|complet|finish)|(?:^|_)(?:eos|complete)$"),
}
_FINISH_BY_WORD = {word: reason for reason, words in _FINISH_REASONS.items() for word in words}
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_MAX_FINISH_REASON = 64  # characters; a longer text is no reason
_MAX_SOURCE = 1_000  # characters of what names the source of a citation


class Guess(StrEnum):
    """Why a field that was read from spans may be wrong."""

    CUT_FROM_PROMPT = "cut_from_prompt"
    USER_MESSAGE = "user_message"
    RETRIEVAL_QUERY = "retrieval_query"
    TOOL_ARGUMENTS = "tool_arguments"
    TOOL_RESULT = "tool_result"
    PROMPT_TEXT = "prompt_text"
    STEP_OUTPUT = "step_output"
    LAST_CALL = "last_call"
    FIRST_CHOICE = "first_choice"
    PARTIAL_USAGE = "partial_usage"
    REQUESTED_MODEL = "requested_model"


# What is read from spans and may be guessed. Session and user are there or not.
GuessedField = Literal["query", "passages", "answer", "tokens", "model"]
GUESSED_FIELDS: tuple[GuessedField, ...] = get_args(GuessedField)
_GUESSES = tuple(Guess)


def read_finish_reason(value: object) -> str | None:
    """Return a finish reason in the words of all providers alike; None for anything else."""
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_FINISH_REASON:
        return None
    word = value.strip().rpartition(".")[2]  # `FinishReason.STOP`
    word = _WORD_START.sub("_", word).lower()  # `endTurn`, of Strands in TypeScript
    word = word.removeprefix("finish_reason_")
    if word in ("none", "null", "unspecified"):
        return None
    if word in _FINISH_BY_WORD:
        return _FINISH_BY_WORD[word]
    parts = (reason for reason, part in _FINISH_BY_PART.items() if part.search(word))
    return next(parts, word)


def text_id(text: str) -> str:
    """Return the id of a passage that has none: a hash of its text, equal in every trace."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _bound_tags(value: object) -> dict[str, str]:
    """Convert scalars to text, bound number and length, and drop nested values."""
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
        tags[str(key)[:_MAX_TAG_CHARS]] = text[:_MAX_TAG_CHARS]
        if len(tags) == MAX_TAGS:
            break
    return tags


def _read_missing(value: object) -> dict[str, str]:
    """Keep known fields; an unknown reason becomes `not_captured`.

    Dropping it would turn content that is hidden into content that is empty.
    """
    if not isinstance(value, dict):
        return {}
    given = {name: value.get(name) for name in MISSING_FIELDS}
    return {
        name: reason
        if isinstance(reason, str) and reason in MISSING_REASONS
        else Reason.NOT_CAPTURED
        for name, reason in given.items()
        if reason is not None and reason is not False
    }


def _read_guessed(value: object) -> dict[GuessedField, object] | None:
    """Keep known fields with known reasons."""
    if not isinstance(value, dict):
        return None
    given = {name: value.get(name) for name in GUESSED_FIELDS}
    reasons = {name: guess for name, guess in given.items() if guess in _GUESSES}
    return reasons or None


def _read_span_ids(value: object) -> object:
    """Return valid OpenTelemetry ids in hex, else None.

    A trace is worth more than the link to its span, so bad ids (zeros mean "no id") are dropped.
    """
    if not isinstance(value, dict):
        return value if isinstance(value, SpanRef) else None
    ids = [str(value.get(name)).lower() for name in ("trace_id", "span_id")]
    for text, digits in zip(ids, (32, 16), strict=True):
        if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) or not text.strip("0"):
            return None
    return {"trace_id": ids[0], "span_id": ids[1]}


def _error_text(value: object) -> object:
    """Convert an error object to JSON text, so that its content is not lost."""
    return json.dumps(value, default=str) if isinstance(value, dict | list) else value


def _to_utc(value: datetime) -> datetime:
    if not 1970 <= value.year <= 2200:  # at the ends of the calendar arithmetic overflows
        raise ValueError("a time between the years 1970 and 2200 is needed")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]  # bounded so that sums never overflow
Tokens = Annotated[int, Field(ge=0, le=2**53)]  # beyond it a float skips whole numbers
Tag = Annotated[str, AfterValidator(lambda text: text[:_MAX_TAG_CHARS])]
Timestamp = Annotated[datetime, AfterValidator(_to_utc)]
Tags = Annotated[dict[str, str], BeforeValidator(_bound_tags)]
Missing = Annotated[dict[str, str], BeforeValidator(_read_missing)]


class _TraceModel(BaseModel):
    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        protected_namespaces=(),
    )


class Passage(_TraceModel):
    """One retrieved passage; `text` may be absent where only ids are traced."""

    id: Id
    text: str | None = None
    rank: int | None = None
    score: float | None = None
    metadata: dict[str, Any] | None = None


def _bounded_name(value: object) -> object:
    """Cut what a provider says of a source: a passage is found by its beginning."""
    return value[:_MAX_SOURCE] if isinstance(value, str) else value


_SourceText = Annotated[str | None, BeforeValidator(_bounded_name)]


class CitedSource(_TraceModel):
    """A source as a provider names it, which is looked for among the passages.

    Args:
        index: Its position among the documents of the request, from 0.
        text: The words of the source that are cited.
    """

    id: _SourceText = None
    url: _SourceText = None
    title: _SourceText = None
    index: int | None = Field(default=None, ge=0)
    text: _SourceText = None


def _is_named_source(value: object) -> bool:
    return isinstance(value, CitedSource) or (
        isinstance(value, dict) and value.keys() <= CitedSource.model_fields.keys()
    )


class Citation(_TraceModel):
    """A span of the answer, in characters [start, end), and the passages it cites.

    An unknown one of `passage_ids` is a fabricated citation; one of `sources` that is no passage
    leaves the citation metrics without a value.
    """

    start: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)
    passage_ids: list[str] = []
    sources: list[CitedSource] = []

    @model_validator(mode="before")
    @classmethod
    def _read_provider(cls, data: Any) -> Any:
        """Take a citation as a provider gives it, whose sources have other names."""
        if not isinstance(data, dict) or "passage_ids" in data:
            return data
        named = data.get("sources")
        if isinstance(named, list) and all(_is_named_source(one) for one in named):
            return data
        start, end = read_place(data)
        return {**data, "start": start, "end": end, "sources": read_sources(data)}


def _moved_citation(citation: Citation, spans: list[tuple[int, int]]) -> Citation | None:
    """Return a citation in the text without these spans; None for one within them."""
    places = [
        None if place is None else place_without(place, spans)
        for place in (citation.start, citation.end)
    ]
    start, end = places
    if citation.start is not None and citation.end is not None and start == end:
        return None
    return citation.model_copy(update={"start": start, "end": end})


def _citation_within(citation: Citation, given: str, text: str) -> Citation:
    """Return a citation of an answer that is JSON in the text of its field.

    Where the places are not those of the text as it stands in the JSON, they are already its own;
    beyond it, the citation stands for the whole.
    """
    start, end = citation.start, citation.end
    if start is None or end is None:
        return citation
    offset = given.find(text)
    if offset >= 0 and offset <= start and end <= offset + len(text):
        return citation.model_copy(update={"start": start - offset, "end": end - offset})
    if end <= len(text):
        return citation
    return citation.model_copy(update={"start": None, "end": None})


def json_citations(given: str, text: str) -> list[Citation]:
    """Return the citations in other fields of an answer that is JSON, whose text is `text`."""
    return [
        Citation(start=start, end=end, sources=[_named_source(one) for one in sources])
        for start, end, sources in read_json_sources(given, text)
    ]


def _named_source(value: str | dict[str, Any]) -> CitedSource:
    if isinstance(value, str):
        return CitedSource(id=value)
    return CitedSource(**read_nested_source(value))


class Message(_TraceModel):
    """One earlier message of the conversation."""

    role: str
    text: str = ""


class SpanRef(_TraceModel):
    """A reference to an OpenTelemetry span, in lower-case hex (32 and 16 digits)."""

    trace_id: str
    span_id: str


class Usage(_TraceModel):
    """Tokens and cost of the request; `cached_input_tokens` are a part of `input_tokens`."""

    input_tokens: Tokens | None = None
    cached_input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cost_usd: float | None = Field(default=None, ge=0, le=1e9)


class Sampling(_TraceModel):
    """The probability with which an upstream sampler kept this trace."""

    probability: float = Field(default=1.0, gt=0, le=1)


class Support(_TraceModel):
    """A source that holds the right answer or a part of it; a None field matches anything."""

    rel_path: str | None = Field(default=None, description="the document, as in passage metadata")
    heading_path: str | None = Field(
        default=None, description="`Guide > Set-up`: this heading and all below it"
    )
    snippet: str | None = Field(default=None, description="words that the passage must hold")
    updated: Timestamp | None = Field(
        default=None, description="when it was written: `cite_newer` asks for the latest"
    )


class FactCheck(_TraceModel):
    """A check that passes if every pattern matches the answer and no forbidden phrase occurs."""

    name: str = ""
    patterns: list[str] = Field(
        default=[], max_length=20, description="regular expressions, whatever the case of letters"
    )
    forbidden: list[str] = Field(default=[], max_length=20, description="phrases, word by word")


class Calculation(_TraceModel):
    """A number that the answer must give, and the intermediate results it should show."""

    result: float
    steps: list[float] = []
    tolerance: float = Field(default=0.0, ge=0, description="by how much a number may be off")


ConflictRule = Literal["cite_newer", "acknowledge_both", "cite_both"]


class Reference(_TraceModel):
    """The expected answer of a canary, as far as it is known."""

    answer: str | None = None
    other_answers: list[str] = Field(
        default=[], max_length=50, description="further right answers; the best match counts"
    )
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
        description="how near the answer is to a right one in meaning, by whoever has embeddings",
    )
    similarity_failed: bool = Field(
        default=False, description="it was asked for and could not be measured"
    )
    judged_facts: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="how far the answer states a right one without keywords, by a judge",
    )
    judge_failed: bool = Field(
        default=False, description="the judge was asked for it and gave no verdict"
    )

    @model_validator(mode="before")
    @classmethod
    def _split_answers(cls, data: Any) -> Any:
        """Take several right answers: the first is `answer`, the rest `other_answers`."""
        if isinstance(data, dict) and isinstance(data.get("answer"), list) and data["answer"]:
            first, *rest = data["answer"]
            return {**data, "answer": first, "other_answers": rest}
        return data

    @property
    def right_answers(self) -> list[str]:
        """All right answers that have text."""
        return [text for text in (self.answer or "", *self.other_answers) if text.strip()]

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        for group in self.support_groups:
            if not group or max(group) >= len(self.supports):
                raise ValueError("a support group needs indices of supports, and at least one")
        return self


class Trace(_TraceModel):
    """One query with the retrieved passages and the answer.

    Args:
        trace_id: Id of the request, unique within its service.
        timestamp: Event time in UTC.
        passages: Retrieved passages in rank order; None where retrieval was not captured, empty
            where it found nothing. The two are scored differently.
        timings: Seconds by stage; `total` is the whole request.
        sampling: Decision of an upstream sampler; estimates weight by its inverse probability.
        reference: The expected answer; its presence makes the trace a canary.
        missing: Fields that were not captured, with the reason; they are not scored even if they
            have a text.
        guessed: Fields that were taken from a span that may hold something else, with the reason;
            they are scored, and counted.

    The answer is kept without thoughts (`<think>` and its kin); one of thoughts alone is empty.
    One that is JSON, or a raw reply with marks around it, is kept as it came and scored by the text
    that the user read (`answer_text`).
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
    error: Annotated[str | None, BeforeValidator(_error_text)] = None
    timings: dict[str, Seconds | None] | None = Field(
        default=None, description="seconds by stage; `total` is the whole request"
    )
    usage: Usage | None = None
    model: Tag | None = None
    finish_reason: Annotated[str | None, BeforeValidator(read_finish_reason)] = Field(
        default=None,
        description="why the model ended the answer: `stop`, `length` (it was cut off), "
        "`content_filter`, or the sender's own word",
    )
    prompt_version: Tag | None = None
    tags: Tags = Field(default_factory=dict)
    sampling: Sampling | None = None
    reference: Reference | None = None
    span: Annotated[SpanRef | None, BeforeValidator(_read_span_ids)] = Field(
        default=None,
        description="the OpenTelemetry span that is this request: exported results refer to it",
    )
    missing: Missing = Field(
        default_factory=dict,
        description="`query`, `passages`, `answer` that are not there, or not whole, and why: "
        + ", ".join(sorted(MISSING_REASONS)),
    )
    guessed: Annotated[dict[GuessedField, Guess] | None, BeforeValidator(_read_guessed)] = Field(
        default=None,
        description="fields read from spans that may be wrong, and why: " + ", ".join(_GUESSES),
    )

    @model_validator(mode="after")
    def _leave_out_thoughts(self) -> Self:
        """Keep of the answer what the user read, whatever sent it: no thoughts of a model."""
        spans = find_thoughts(self.answer) if self.answer else []
        if self.answer is not None and spans:
            # a frozen model is filled in while it is validated, and never after
            object.__setattr__(self, "answer", without_spans(self.answer, spans))
            if self.citations:
                moved = [_moved_citation(citation, spans) for citation in self.citations]
                kept = [citation for citation in moved if citation is not None]
                object.__setattr__(self, "citations", kept)
        return self

    @property
    def probability(self) -> float:
        """The upstream inclusion probability, in (0, 1]."""
        return 1.0 if self.sampling is None else self.sampling.probability

    @property
    def answer_text(self) -> str | None:
        """The text that is scored: what the user read of JSON, or of a raw reply of a model."""
        return self.answer if not self.answer else read_answer_text(self.answer)

    def as_read(self) -> Trace:
        """Return the trace with the answer that is scored; citations move with its text."""
        text = self.answer_text
        if text is None or text == self.answer:
            return self
        given = self.answer or ""
        moved = [_citation_within(citation, given, text) for citation in self.citations or ()]
        return self.model_copy(
            update={"answer": text, "citations": moved or json_citations(given, text) or None}
        )

    @property
    def canary(self) -> bool:
        """Whether the query is a test query.

        A service that passes the tag `ragmeter.canary` on keeps its own record of such a request
        out of the measurement of real traffic.
        """
        return self.reference is not None or self.tags.get(CANARY) == "true"

    @property
    def failed(self) -> bool:
        """Whether the request failed or brought no answer; one not captured counts as brought."""
        unseen = "answer" in self.missing
        return self.status != "ok" or not (unseen or (self.answer_text or "").strip())

    def tag(self, name: str) -> str | None:
        """Return a tag by name.

        `model`, `finish_reason`, `prompt_version` and the reference's `answerable` count as tags.
        """
        if name == "finish_reason":
            return self.finish_reason or self.tags.get(name)
        if name == "model":
            return self.model or self.tags.get(name)
        if name == "prompt_version":
            return self.prompt_version or self.tags.get(name)
        if name == "answerable" and self.reference and self.reference.answerable is not None:
            return "true" if self.reference.answerable else "false"
        return self.tags.get(name)
