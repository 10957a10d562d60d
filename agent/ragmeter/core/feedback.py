"""The feedback schema: yes/no labels of a trace's passages and answer.

People, tickets or the annotation judge give them. The taxonomy is that of pragmata
(github.com/bertelsmannstift/pragmata, metrics taxonomy): three labels of every retrieved passage,
ten of the answer. Each may be missing. Contradictory labels are refused, and labels that follow
from others are filled in: a passage that is sufficient evidence is topically relevant.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ragmeter.trace import MAX_ID, Timestamp

SCHEMA = "ragmeter.feedback/1"

HUMAN = "human"  # the default scorer of feedback
ANNOTATION = "annotation"  # the scorer of the agent's annotation judge
PEOPLE = "people"  # the scorer of `ragmeter label`, which draws the traces it asks about

# The agent's own scorers; labels from outside may not enter their series.
RESERVED_SCORERS = frozenset(
    (
        "builtin",
        "judge",
        "umbrela",
        "estimate",
        "autonuggetizer",
        "hhem",
        "hhem_fulltext",
        "mini",
        "reference",
        "own",
        ANNOTATION,
    )
)

MAX_PASSAGES = 1000  # labelled in one feedback; more than any retriever returns
_SCORER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def _check_scorer(name: str) -> str:
    if name in RESERVED_SCORERS:
        raise ValueError(f"{name} is a scorer of the agent itself; choose another name")
    if not _SCORER.fullmatch(name):
        raise ValueError("letters, digits, _ . and -, at most 64 of them")
    return name


def _label(description: str) -> Any:
    return Field(default=None, description=description)


class _Labels(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # pairs of labels: if the first is yes, so is the second; if the second is no, so is the first
    implications: ClassVar[tuple[tuple[str, str], ...]] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for first, second in self.implications:
            is_first, is_second = getattr(self, first), getattr(self, second)
            if is_first and is_second is False:
                raise ValueError(f"{first} is yes, so {second} can't be no")
            # the model is frozen after validation only
            if is_first:
                object.__setattr__(self, second, True)
            elif is_second is False:
                object.__setattr__(self, first, False)
        return self

    @property
    def given(self) -> dict[str, bool]:
        """The labels that are not missing."""
        return {name: value for name, value in self if value is not None}


class PassageLabels(_Labels):
    """Labels of one retrieved passage with regard to the query; None is not labelled."""

    implications = (("evidence_sufficient", "topically_relevant"),)

    topically_relevant: bool | None = _label(
        "it says something of substance on the subject of the query"
    )
    evidence_sufficient: bool | None = _label("it is enough evidence to answer the query")
    misleading: bool | None = _label("an answer that rests on it may well be wrong or distorted")


class AnswerLabels(_Labels):
    """Labels of the answer: five against the retrieved passages, five for the query."""

    implications = (
        ("contradicted_claim_present", "unsupported_claim_present"),
        ("fabricated_source", "source_cited"),
    )

    support_present: bool | None = _label("at least one claim is supported by the passages")
    unsupported_claim_present: bool | None = _label(
        "at least one claim is not supported by the passages"
    )
    contradicted_claim_present: bool | None = _label(
        "at least one claim is contradicted by the passages"
    )
    source_cited: bool | None = _label("it cites at least one source")
    fabricated_source: bool | None = _label("it cites a source that is not among the passages")
    proper_action: bool | None = _label(
        "to answer, to ask back or to refuse was the right thing to do"
    )
    response_on_topic: bool | None = _label("it takes up what was asked, in substance")
    helpful: bool | None = _label("it brings who asked forward with what they want to do")
    incomplete: bool | None = _label("it leaves out a part that the query needs")
    unsafe_content: bool | None = _label("it holds something harmful or against policy")


CANNOT_TELL = "cannot_tell"
_Verdict = bool | Literal["cannot_tell"] | None


class Verdict(BaseModel):
    """What `ragmeter label` asks about a trace as a whole; None is not asked.

    A person who was asked and cannot tell says so: the value is missing, and the interval is
    widened by it. To leave such traces out would bend the estimate to the easy ones.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    grounded: _Verdict = _label("the passages support every claim of the answer")
    answered: _Verdict = _label("it attempts the question")
    relevant: _Verdict = _label("the passages bear on the query")

    @property
    def given(self) -> dict[str, bool | str]:
        """The labels that are not missing."""
        return {name: value for name, value in self if value is not None}


VERDICT_LABELS = tuple(Verdict.model_fields)
PASSAGE_LABELS = tuple(PassageLabels.model_fields)
ANSWER_LABELS = tuple(AnswerLabels.model_fields)

_Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class Feedback(BaseModel):
    """The labels of one scorer for one trace; `passages` is keyed by passage id."""

    model_config = ConfigDict(
        title=SCHEMA, extra="ignore", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False
    )

    trace_id: _Id
    timestamp: Timestamp = Field(description="when it was labelled; of two labels the later holds")
    scorer: Annotated[str, AfterValidator(_check_scorer)] = Field(
        default=HUMAN, description="who labelled; labels of two scorers are never mixed"
    )
    service: _Id | None = Field(
        default=None, description="the service of the trace, where it is known"
    )
    probability: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="with which it was chosen at random to be labelled, where that is so",
    )
    passages: dict[_Id, PassageLabels] = Field(default={}, max_length=MAX_PASSAGES)
    answer: AnswerLabels = AnswerLabels()
    verdict: Verdict = Verdict()

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        given = (self.answer.given, self.verdict.given)
        if not any(given) and not any(one.given for one in self.passages.values()):
            raise ValueError("there is no label in it")
        return self
