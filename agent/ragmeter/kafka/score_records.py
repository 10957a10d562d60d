"""The records of scored traces, as JSON.

A record holds the scored traces of one service out of one batch of one source partition, with the
offset of each. Pairs of metric and scorer stand in it once, and a result that is a plain value is
that number, so that a trace takes some 400 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from ragmeter.core.feedback import MAX_PASSAGES
from ragmeter.core.score import (
    CLUSTER_PATTERN,
    MAX_FINGERPRINT,
    MAX_STRATUM,
    PendingResult,
    Score,
    ScoredTrace,
    ScoreState,
)
from ragmeter.ingest.native import DecodeFailure
from ragmeter.kafka.wire import (
    READ_BYTES,
    BadRecord,
    EventTime,
    Name,
    RecordTooLarge,
    read_wire,
    refuse_other_version,
)
from ragmeter.trace import MAX_TAGS, GuessedField, Id, Status, Tokens, Trace

SCORE_VERSION = 1
START_ANEW = (
    "set kafka.group and kafka.topics.prefix to new names, kafka.topics.traces to the old one, make"
    " the topics with `ragmeter kafka init`, and the workers score again what that of the traces"
    " still holds"
)

SOURCE_LABELS = (("source", "kafka"),)  # of counters
RECORD_BYTES = 512 * 2**10  # of a record with more than one trace
# Written of one record; more is read. Kafka takes a megabyte by default, and a record becomes a row
# of the state as it is (`ragmeter.kafka.state.rows`), under a key with both ids in ASCII: of 512
# characters each, up to 12 bytes for one.
MAX_BYTES = READ_BYTES - 64 * 2**10
# Bytes of the detail of one score (grades, nuggets, pairs), which only a page shows. A larger one
# is left out: with 30 scores a record then stays under the megabyte that Kafka takes by default.
MAX_DETAIL = 4096
_STATES = tuple(ScoreState)  # in the order of the wire


class SourceOffset(NamedTuple):
    """The place where a message was read."""

    partition: int
    offset: int


@dataclass(slots=True)
class ScoreRecord:
    """A scored trace.

    `source` is None for results that belong to no trace (of probes).
    `trace` is there where results are exported; it is not sent.
    """

    scored: ScoredTrace
    source: SourceOffset | None
    trace: Trace | None = field(default=None, compare=False, repr=False)


def _check_distinct(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    if len(set(pairs)) < len(pairs):
        raise ValueError("two results of one metric and scorer")
    return pairs


_Amount = Annotated[float, Field(ge=0, le=1e9)]
_Probability = Annotated[float, Field(gt=0, le=1)]
_Natural = Annotated[int, Field(ge=0)]
_ClusterHash = Annotated[str, Field(pattern=CLUSTER_PATTERN)]
_Pairs = Annotated[
    tuple[tuple[Name, Name], ...], Field(max_length=256), AfterValidator(_check_distinct)
]


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
    cluster: _ClusterHash = ""
    tenant: _ClusterHash | None = None  # None: the cluster


class _TraceWire(NamedTuple):
    trace_id: Id
    offset: int  # after that of the record
    timestamp: EventTime
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


_SCORES_WIRE = TypeAdapter(_ScoresWire)
_TRACE_WIRE = TypeAdapter(_TraceWire)
_RESULT_WIRE = TypeAdapter(_ResultWire, config=ConfigDict(strict=True, allow_inf_nan=False))
_PAIRS_WIRE = TypeAdapter(_Pairs)


def encode_scores(records: Iterable[ScoreRecord], limit: int = RECORD_BYTES) -> list[bytes]:
    """Return records of scored traces of one service and source, each up to about `limit` bytes.

    Details of scores are left out that are above `MAX_DETAIL` bytes or cannot be read back: a
    judge may send half of a surrogate pair.

    Raises:
        RecordTooLarge: A trace alone exceeds `MAX_BYTES`.
        BadRecord: A trace could not be read back, because of a defect of ours.
    """
    found: list[bytes] = []
    first: ScoreRecord | None = None
    pairs: dict[tuple[tuple[str, str], ...], int] = {}
    rows: list[bytes] = []
    size = 0
    for record in records:
        row = b"" if first is None else _trace_to_wire(record, first.source, pairs)
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


def _finish(first: ScoreRecord, pairs: Iterable[object], rows: Iterable[bytes]) -> bytes:
    head = {
        "v": SCORE_VERSION,
        "service": first.scored.service,
        "at": first.source,
        "pairs": list(pairs),
    }
    data = b'%b,"traces":[%b]}' % (_to_json(head)[:-1], b",".join(rows))
    if len(data) > MAX_BYTES:
        raise RecordTooLarge.of(f"{len(data)} bytes; the limit is {MAX_BYTES}", "too_large")
    return data


def _trace_to_wire(
    record: ScoreRecord, base: SourceOffset | None, known: dict[tuple[tuple[str, str], ...], int]
) -> bytes:
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
    return _to_json(row)


def _to_json(value: object) -> bytes:
    """Return compact JSON; raise `BadRecord` where that cannot be written so that it is read."""
    try:
        return to_json(value)
    except ValueError as error:
        raise BadRecord.of(str(error)) from None


def _fits(detail: dict[str, Any]) -> bool:
    try:
        return len(to_json(detail)) <= MAX_DETAIL
    except ValueError:
        return False


def _result_to_wire(score: Score, probability: float) -> object:
    value = score.value
    detail = score.detail
    reason = score.reason
    if reason is not None:
        reason = str(reason)  # of a member of an enumeration: that takes `to_json` 3 us
    if (
        score.probability == probability
        and detail is None
        and score.fingerprint is None
        and score.cheap is None
        and not score.stratum
    ):
        if value is None:
            if score.state is not ScoreState.SCORED:
                return _STATES.index(score.state), reason
        elif score.state is ScoreState.SCORED and reason is None and math.isfinite(value):
            return value
    if detail and not _fits(detail):
        detail = None
    row: tuple[Any, ...] = (
        _STATES.index(score.state),
        reason,
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
    if scored.passages is not None:
        rare["passages"] = scored.passages
    if scored.cluster:
        rare["cluster"] = scored.cluster
    if scored.tenant != scored.cluster:
        rare["tenant"] = scored.tenant
    return [rare] if rare else []


def decode_scores(data: bytes, limit: int = READ_BYTES) -> list[ScoreRecord]:
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


def decode_score(data: bytes, limit: int = READ_BYTES) -> ScoreRecord:
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
        passages=rare.passages,
        cluster=rare.cluster,
        tenant=rare.cluster if rare.tenant is None else rare.tenant,
    )
    return ScoreRecord(scored, source)
