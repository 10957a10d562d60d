"""The records of the scores topic: scored traces, feedback and documents of parts, as JSON.

A record of scored traces holds those of one service out of one batch of one source partition, with
the offset of each. Pairs of metric and scorer stand in it once, and a result that is a plain value
is that number, so that a trace takes some 400 bytes. Both ends are ours: what does not fit the
types of the wire is neither written nor read. Feedback carries hashes in place of the ids of trace
and passages, and no text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from ragmeter.aggregate.feedback_records import FeedbackLabels
from ragmeter.core.errors import DataError, UnknownVersion
from ragmeter.core.feedback import MAX_PASSAGES
from ragmeter.core.score import PendingResult, Score, ScoredTrace, ScoreState
from ragmeter.ingest.native import DecodeFailure
from ragmeter.offline.scored_lines import MAX_FINGERPRINT, MAX_STRATUM
from ragmeter.parts.contract import Document, DocumentKind
from ragmeter.store.pending import NewFeedback
from ragmeter.trace import MAX_TAGS, GuessedField, Id, Status, Tokens, Trace

SCORE_VERSION = 1
START_ANEW = (
    "set kafka.group and kafka.topics.prefix to new names, kafka.topics.traces to the old one, make"
    " the topics with `ragmeter kafka init`, and the workers score again what that of the traces"
    " still holds"
)
# Prefixes that tell the kinds of records apart: no other kind begins with them.
_FEEDBACK_PREFIX = b'{"v":1,"labelled":'
_DOCUMENT_PREFIX = b'{"v":1,"part":'

SOURCE_LABELS = (("source", "kafka"),)  # of counters
_READ_BYTES = 2**20
RECORD_BYTES = 512 * 2**10  # of a record with more than one trace
# Written of one record; more is read. Kafka takes a megabyte by default, and a record becomes a row
# of the state as it is (`ragmeter.kafka.state.rows`), under a key with both ids in ASCII: of 512
# characters each, up to 12 bytes for one.
MAX_BYTES = _READ_BYTES - 64 * 2**10
# Bytes of the detail of one score (grades, nuggets, pairs), which only a page shows. A larger one
# is left out: with 30 scores a record then stays under the megabyte that Kafka takes by default.
MAX_DETAIL = 4096
_MAX_ERROR_TEXT = 200
_STATES = tuple(ScoreState)  # in the order of the wire

T = TypeVar("T")


class BadRecord(DataError, ValueError):
    """Data that is no record of ours; `failure` says why."""

    def __init__(self, failure: DecodeFailure) -> None:
        super().__init__(f"{failure.reason}: {failure.errors[0]}"[:_MAX_ERROR_TEXT])
        self.failure = failure

    @classmethod
    def of(cls, why: str, reason: str = "invalid_record") -> BadRecord:
        """Return the error of a record as a whole."""
        return cls(DecodeFailure.of_whole(reason, why[:_MAX_ERROR_TEXT], b""))


class RecordTooLarge(BadRecord):
    """A record larger than its topic or the state takes."""


class SourceOffset(NamedTuple):
    """Where a message was read."""

    partition: int
    offset: int


@dataclass(slots=True)
class ScoreRecord:
    """A scored trace.

    `source` is None for results that belong to no trace (of probes). `passages` are the hashes by
    which labels name passages (`ragmeter.aggregate.feedback_join`), where labels may come.
    `load` returns the trace, where results are exported; it is not sent.
    """

    scored: ScoredTrace
    source: SourceOffset | None
    passages: tuple[str, ...] | None = None
    load: Callable[[], Trace] | None = field(default=None, compare=False, repr=False)


def _check_distinct(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    if len(set(pairs)) < len(pairs):
        raise ValueError("two results of one metric and scorer")
    return pairs


_MAX_NAME = 128  # characters of a metric, a scorer or a reason: they become labels
_Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]
_Time = Annotated[float, Field(ge=0, lt=7.3e9)]  # up to the year 2201, as for traces
_Amount = Annotated[float, Field(ge=0, le=1e9)]
_Probability = Annotated[float, Field(gt=0, le=1)]
_Natural = Annotated[int, Field(ge=0)]
_Pairs = Annotated[
    tuple[tuple[_Name, _Name], ...], Field(max_length=256), AfterValidator(_check_distinct)
]


@dataclass(slots=True)
class DocumentRecord:
    """A document that a part reads; `at` is its checked time in Unix seconds."""

    part: str
    document: Document
    at: float


@dataclass
class _DocumentWire:
    v: int
    part: _Name
    at: _Time
    document: Any


@dataclass
class _RareFields:
    partial: bool = False
    canary: bool = False
    guessed: tuple[GuessedField, ...] = ()
    pending: tuple[PendingResult, ...] = ()
    passages: (  # the beginnings of hashes
        Annotated[
            tuple[Annotated[str, Field(min_length=16, max_length=16)], ...],
            Field(max_length=MAX_PASSAGES),
        ]
        | None
    ) = None


class _TraceWire(NamedTuple):
    trace_id: Id
    offset: int  # after that of the record
    timestamp: _Time
    status: Status
    probability: _Probability
    timings: dict[str, _Amount] | int
    # two names are ours: `model` and `prompt_version` are tags beside those of the trace
    tags: Annotated[dict[str, str], Field(max_length=MAX_TAGS + 2)] | int
    input_tokens: Tokens | None
    output_tokens: Tokens | None
    cost_usd: _Amount | None
    pairs: int
    results: list[Any]  # numbers, or lists as `_ResultWire`
    rare: _RareFields | None = None


class _ResultWire(NamedTuple):
    state: Annotated[int, Field(ge=0, lt=len(_STATES))]
    reason: str | None = None
    value: float | None = None
    probability: _Probability | None = None  # None: that of the trace
    stratum: Annotated[str, Field(max_length=MAX_STRATUM)] | None = None
    cheap: float | None = None
    fingerprint: Annotated[str, Field(max_length=MAX_FINGERPRINT)] | None = None
    detail: dict[str, Any] | None = None


@dataclass
class _ScoresWire:
    v: int
    service: Id
    at: tuple[_Natural, _Natural] | None
    pairs: list[_Pairs]
    traces: list[_TraceWire]


@dataclass
class _Version:
    v: int


@dataclass
class _FeedbackWire:
    v: int
    labelled: _Time
    trace: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    service: Id
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    word: str


_VERSION = TypeAdapter(_Version)
_SCORES_WIRE = TypeAdapter(_ScoresWire)
_TRACE_WIRE = TypeAdapter(_TraceWire)
_RESULT_WIRE = TypeAdapter(_ResultWire, config=ConfigDict(strict=True, allow_inf_nan=False))
_PAIRS_WIRE = TypeAdapter(_Pairs)
_DOCUMENT_WIRE = TypeAdapter(_DocumentWire)
_FEEDBACK_WIRE = TypeAdapter(_FeedbackWire)


def refuse_other_version(data: bytes, version: int, what: str, remedy: str = "") -> None:
    """Raise `UnknownVersion` for JSON whose field `v` is another version; pass anything else."""
    try:
        found = _VERSION.validate_json(data, strict=True).v
    except ValidationError:
        return
    if found != version:
        raise UnknownVersion(
            f"{what} of format version {found}; this program reads version {version}"
            f"{remedy and f': {remedy}'}"
        )


def read_wire(wire: TypeAdapter[T], data: bytes, *, strict: bool = True) -> T:
    """Return JSON as a type of the wire; raise `BadRecord` for what does not fit it."""
    try:
        return wire.validate_json(data, strict=strict)
    except ValidationError as error:
        raise BadRecord(DecodeFailure.of_validation("invalid_record", error, data)) from None


def encode_scores(records: Iterable[ScoreRecord], limit: int = RECORD_BYTES) -> list[bytes]:
    """Return records of scored traces of one service and source, each up to about `limit` bytes.

    Details of scores above `MAX_DETAIL` bytes are left out.

    Raises:
        RecordTooLarge: A trace alone exceeds `MAX_BYTES`.
        BadRecord: A trace could not be read back, because of a defect of ours.
    """
    found: list[bytes] = []
    first: ScoreRecord | None = None
    pairs: dict[tuple[tuple[str, str], ...], int] = {}
    rows: list[str] = []
    size = 0
    for record in records:
        row = "" if first is None else _trace_to_wire(record, first.source, pairs)
        if first is None or size + len(row) > limit:
            if first is not None:
                found.append(_finish(first, pairs, rows))
            first = record
            pairs = {}
            rows = []
            size = 0
            row = _trace_to_wire(record, record.source, pairs)
        rows.append(row)
        size += len(row) + 1
    return found if first is None else [*found, _finish(first, pairs, rows)]


def encode_score(record: ScoreRecord) -> bytes:
    """Return the record of a single trace; raises as `encode_scores`."""
    return encode_scores([record])[0]


_dump = json.JSONEncoder(separators=(",", ":")).encode


def _finish(first: ScoreRecord, pairs: Iterable[object], rows: Iterable[str]) -> bytes:
    head = {
        "v": SCORE_VERSION,
        "service": first.scored.service,
        "at": first.source,
        "pairs": list(pairs),
    }
    data = f'{_dump(head)[:-1]},"traces":[{",".join(rows)}]}}'.encode()
    if len(data) > MAX_BYTES:
        raise RecordTooLarge.of(f"{len(data)} bytes; the limit is {MAX_BYTES}", "too_large")
    return data


def _trace_to_wire(
    record: ScoreRecord, base: SourceOffset | None, known: dict[tuple[tuple[str, str], ...], int]
) -> str:
    """Return a trace as JSON; `known` are the pairs of its record, with their numbers."""
    scored = record.scored
    source = record.source
    pairs = tuple([(score.metric, score.scorer) for score in scored.results])
    try:
        if pairs not in known:
            known[_PAIRS_WIRE.validate_python(pairs)] = len(known)
        row = [
            scored.trace_id,
            0 if base is None or source is None else source.offset - base.offset,
            scored.timestamp,
            scored.status,
            scored.probability,
            scored.timings or 0,
            scored.tags or 0,
            scored.input_tokens,
            scored.output_tokens,
            scored.cost_usd,
            known[pairs],
            [_result_to_wire(score, scored.probability) for score in scored.results],
            *_rare_fields(record),
        ]
        _TRACE_WIRE.validate_python(row)
    except ValidationError as error:
        raise BadRecord(DecodeFailure.of_validation("invalid_record", error, b"")) from None
    return _dump(row)


def _result_to_wire(score: Score, probability: float) -> object:
    value = score.value
    detail = score.detail
    if (
        score.probability == probability
        and detail is None
        and score.fingerprint is None
        and score.cheap is None
        and not score.stratum
    ):
        if value is None:
            if score.state is not ScoreState.SCORED:
                return _STATES.index(score.state), score.reason
        elif score.state is ScoreState.SCORED and score.reason is None and math.isfinite(value):
            return value
    if detail and len(_dump(detail)) > MAX_DETAIL:
        detail = None
    row: tuple[Any, ...] = (
        _STATES.index(score.state),
        score.reason,
        value,
        None if score.probability == probability else score.probability,
        score.stratum or None,
        score.cheap,
        score.fingerprint,
        detail,
    )
    _read_result(row)
    while row[-1] is None:
        row = row[:-1]
    return row


def _rare_fields(record: ScoreRecord) -> list[dict[str, object]]:
    scored = record.scored
    rare: dict[str, object] = {}
    if scored.partial:
        rare["partial"] = True
    if scored.canary:
        rare["canary"] = True
    if scored.guessed:
        rare["guessed"] = scored.guessed
    if scored.pending:
        rare["pending"] = scored.pending
    if record.passages is not None:
        rare["passages"] = record.passages
    return [rare] if rare else []


def encode_document(part: str, raw: bytes, at: float) -> bytes:
    """Return the record of a document, given the JSON of a valid one as it came."""
    head = _DOCUMENT_PREFIX + json.dumps(part).encode() + b',"at":' + json.dumps(at).encode()
    return head + b',"document":' + raw + b"}"


def encode_feedback(row: NewFeedback) -> bytes:
    """Return the JSON of feedback; `since` is the time of the label.

    That time counts where no event time is known.
    """
    # programs before this one want an offset
    tree = {"at": [0, 0, 0], "trace": row.trace.hex(), "service": row.service}
    rest = _dump({**tree, "scorer": row.scorer, "word": row.body}).encode()
    return _FEEDBACK_PREFIX + json.dumps(row.since).encode() + b"," + rest[1:]


def decode_scores_message(
    data: bytes,
    kinds: Mapping[str, DocumentKind] = MappingProxyType({}),
    limit: int = _READ_BYTES,
) -> list[ScoreRecord] | DocumentRecord | NewFeedback:
    """Decode any message of the topic; raises as `decode_scores`.

    Args:
        data: The message.
        kinds: The kinds of documents that parts read, by the name of the part.
        limit: Bytes of a message that is read.
    """
    if data.startswith(_FEEDBACK_PREFIX) and len(data) <= limit:
        feedback = read_wire(_FEEDBACK_WIRE, data, strict=False)
        try:
            FeedbackLabels.load(feedback.word)  # checked here, and not where a lock is held
        except (ValueError, TypeError):
            raise BadRecord.of("the labels of the feedback are invalid") from None
        fields = feedback.service, feedback.scorer, feedback.labelled, feedback.word
        return NewFeedback(bytes.fromhex(feedback.trace), *fields)
    if data.startswith(_DOCUMENT_PREFIX) and len(data) <= limit:
        return _read_document(read_wire(_DOCUMENT_WIRE, data, strict=False), kinds)
    return decode_scores(data, limit)


def _read_document(wire: _DocumentWire, kinds: Mapping[str, DocumentKind]) -> DocumentRecord:
    kind = kinds.get(wire.part)
    if kind is None:
        raise BadRecord.of(f"no part {wire.part!r} reads documents")
    document = kind.decode(to_json(wire.document))
    if isinstance(document, DecodeFailure):
        raise BadRecord(document)
    return DocumentRecord(wire.part, document, wire.at)


def decode_scores(data: bytes, limit: int = _READ_BYTES) -> list[ScoreRecord]:
    """Decode the scored traces of a record of up to `limit` bytes.

    Raises:
        BadRecord: The data is no record of scored traces.
        UnknownVersion: Another program wrote the record, and only that can read it.
    """
    if len(data) > limit:
        raise RecordTooLarge.of(f"{len(data)} bytes; the limit is {limit}", "too_large")
    try:
        wire = read_wire(_SCORES_WIRE, data)
        if wire.v != SCORE_VERSION:
            raise BadRecord.of(f"version {wire.v}")
        return _read_traces(wire)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        refuse_other_version(data, SCORE_VERSION, "a score record", START_ANEW)
        if isinstance(error, BadRecord):
            raise
        raise BadRecord.of(repr(error)) from None


def decode_score(data: bytes, limit: int = _READ_BYTES) -> ScoreRecord:
    """Decode the record of a single trace; raises as `decode_scores`."""
    records = decode_scores(data, limit)
    if len(records) != 1:
        raise BadRecord.of(f"{len(records)} traces")
    return records[0]


def _read_traces(wire: _ScoresWire) -> list[ScoreRecord]:
    alike: dict[tuple[int, float], list[int]] = {}  # traces by number of pairs and probability
    for number, row in enumerate(wire.traces):
        alike.setdefault((row.pairs, row.probability), []).append(number)
    results: list[list[Score]] = [[] for _ in wire.traces]
    for (which, probability), numbers in alike.items():
        wires = zip(*[wire.traces[number].results for number in numbers], strict=True)
        columns = [
            _read_column(pair, column, probability)
            for pair, column in zip(wire.pairs[which], wires, strict=True)
        ]
        for number, scores in zip(numbers, zip(*columns, strict=True), strict=False):
            results[number] += scores
    return [
        _read_trace(wire, row, scores) for row, scores in zip(wire.traces, results, strict=True)
    ]


def _read_column(pair: tuple[str, str], wires: Sequence[Any], probability: float) -> list[Score]:
    """Return the results of one pair; those that are equal are one object."""
    keys: Sequence[Any] = wires
    if list in set(map(type, wires)):
        keys = [tuple(wire) if isinstance(wire, list) else wire for wire in wires]
    try:
        known = {key: _result_from_wire(pair, key, probability) for key in set(keys)}
    except TypeError:  # one has a detail
        return [_result_from_wire(pair, key, probability) for key in keys]
    return list(map(known.__getitem__, keys))


def _result_from_wire(pair: tuple[str, str], wire: Any, probability: float) -> Score:
    if not isinstance(wire, tuple):
        if isinstance(wire, bool) or not math.isfinite(wire):
            raise ValueError("a value is a finite number")
        return Score(*pair, ScoreState.SCORED, float(wire), None, probability)
    row = _read_result(wire)
    return Score(
        *pair,
        _STATES[row.state],
        row.value,
        row.reason,
        row.probability or probability,
        row.detail,
        row.fingerprint,
        row.stratum or "",
        row.cheap,
    )


def _read_result(wire: tuple[Any, ...]) -> _ResultWire:
    row = _RESULT_WIRE.validate_python(wire)
    if (row.value is not None) != (_STATES[row.state] is ScoreState.SCORED):
        raise BadRecord.of("a value if and only if it is scored")
    return row


def _read_trace(record: _ScoresWire, row: _TraceWire, results: list[Score]) -> ScoreRecord:
    rare = row.rare or _RareFields()
    source = record.at and SourceOffset(record.at[0], record.at[1] + row.offset)
    scored = ScoredTrace(
        trace_id=row.trace_id,
        service=record.service,
        timestamp=row.timestamp,
        status=row.status,
        results=results,
        probability=row.probability,
        timings=row.timings or {},  # type: ignore[arg-type]
        tags=row.tags or {},  # type: ignore[arg-type]
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        partial=rare.partial,
        canary=rare.canary,
        pending=rare.pending,
        guessed=rare.guessed,
    )
    return ScoreRecord(scored, source, rare.passages)
