"""The records of the scores topic: scored traces, feedback and index events, as JSON.

A record of scored traces holds those of one service out of one batch of one source partition, with
the offset of each. Pairs of metric and scorer stand in it once, and a result that is a plain value
is that number, so that a trace takes some 400 bytes. Both ends are ours: whatever does not fit is
refused. Feedback carries hashes in place of the ids of trace and passages, and no text.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from ragmeter.aggregate.feedback_records import FeedbackLabels
from ragmeter.aggregate.index_events import IndexEvent
from ragmeter.aggregate.wordings import is_valid_wording
from ragmeter.core.arithmetic import AnswerVectors, is_packed_vector
from ragmeter.core.errors import RagmeterError, UnknownVersion
from ragmeter.core.feedback import MAX_PASSAGES
from ragmeter.core.score import HashedWording, Score, ScoredTrace, ScoreState
from ragmeter.offline.scored_lines import MAX_FINGERPRINT, MAX_STRATUM
from ragmeter.store.pending import NewFeedback
from ragmeter.trace import GUESSED_FIELDS, MAX_ID, MAX_TAGS, Status, Trace

SCORE_VERSION = 2
UPGRADE = (
    "set kafka.group and kafka.topics.scores to new names, make them with `ragmeter kafka init`,"
    " and the workers score again what the topic of the traces still holds"
)
# Prefixes that tell the kinds of records apart: no other kind begins with them.
_FEEDBACK_PREFIX = b'{"v":1,"labelled":'
_INDEX_PREFIX = b'{"v":1,"index_at":'

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
_MAX_RESULTS = 256
_MAX_NAME = 128  # characters of a metric or scorer: both become labels
_MAX_SECONDS = 1e9
_MAX_TIME = 7.3e9  # the year 2201, as for traces
PASSAGE_KEY_CHARS = 16  # characters of the hash of a passage's id
_STATES = tuple(ScoreState)  # in the order of the wire
_FLOATS, _TEXTS = frozenset({float}), frozenset({str})
_STATUSES = frozenset(get_args(Status))
_GUESSED = frozenset(GUESSED_FIELDS)
_PLAIN = (None,) * 3  # of a result without more than a value, or a reason for none
_MISSING: tuple[Any, ...] = (None,) * 8  # fields at the end of a result that are left out


class BadRecord(RagmeterError, ValueError):
    """Data that is no record of ours; `reason` is a metric label, the text says more."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"{reason}: {why}"[:_MAX_ERROR_TEXT])
        self.reason = reason


class RecordTooLarge(BadRecord):
    """A record larger than its topic or the state takes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__("too_large", f"{size} bytes; the limit is {limit}")


class SourceOffset(NamedTuple):
    """Where a message was read."""

    partition: int
    offset: int


class AnswerEmbedding(NamedTuple):
    """The vectors of an answer or the reason for none; `context` as `AnswerMemory.embed` has it."""

    context: str
    vectors: AnswerVectors | str


@dataclass(slots=True)
class ScoreRecord:
    """A scored trace.

    `source` is None for results that belong to no trace (of probes). `passages` are the hashes by
    which labels name passages (`ragmeter.aggregate.feedback_join`), where labels may come.
    `embedding` is that of an answer whose words are sent, where answers are embedded. `load`
    returns the trace, where results are exported; it is not sent.
    """

    scored: ScoredTrace
    source: SourceOffset | None
    passages: tuple[str, ...] | None = None
    embedding: AnswerEmbedding | None = None
    load: Callable[[], Trace] | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class IndexRecord:
    """An index event; `at` is its checked time in Unix seconds."""

    event: IndexEvent
    at: float


@dataclass
class _Version:
    v: int


@dataclass
class _IndexWire:
    v: int
    index_at: Annotated[float, Field(ge=0, lt=_MAX_TIME)]
    event: IndexEvent


@dataclass
class _FeedbackWire:
    v: int
    labelled: Annotated[float, Field(ge=0, lt=_MAX_TIME)]
    trace: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    service: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    word: str


_VERSION = TypeAdapter(_Version)
_INDEX_WIRE = TypeAdapter(_IndexWire)
_FEEDBACK_WIRE = TypeAdapter(_FeedbackWire)


def refuse_newer(data: bytes, newest: int, what: str) -> None:
    """Raise `UnknownVersion` for JSON whose field `v` is above `newest`; pass anything else."""
    try:
        version = _VERSION.validate_json(data, strict=True).v
    except ValidationError:
        return
    if version > newest:
        raise UnknownVersion(
            f"{what} of format version {version}; this program reads up to {newest}"
        )


def encode_scores(records: Iterable[ScoreRecord], limit: int = RECORD_BYTES) -> list[bytes]:
    """Return records of scored traces of one service and source, each up to about `limit` bytes.

    Details of scores above `MAX_DETAIL` bytes are left out.

    Raises:
        RecordTooLarge: A trace alone exceeds `MAX_BYTES`.
        BadRecord: A trace could not be read back, because of a defect of ours.
    """
    found: list[bytes] = []
    writer: _ScoresWriter | None = None
    for record in records:
        if writer is None or not writer.add(record, limit):
            if writer is not None:
                found.append(writer.finish())
            writer = _ScoresWriter(record)
            writer.add(record, limit)
    return found if writer is None else [*found, writer.finish()]


def encode_score(record: ScoreRecord) -> bytes:
    """Return the record of a single trace; raises as `encode_scores`."""
    return encode_scores([record])[0]


class _ScoresWriter:
    """One record in the making."""

    def __init__(self, first: ScoreRecord) -> None:
        self._service = first.scored.service
        self._source = first.source
        self._pairs: dict[tuple[tuple[str, str], ...], int] = {}
        self._rows: list[str] = []
        self._size = 0

    def add(self, record: ScoreRecord, limit: int) -> bool:
        """Add a trace unless the record becomes too large with it."""
        scored = record.scored
        problem = _trace_problem(scored)
        if record.source is not None and min(record.source) < 0:
            problem = "the source is below 0"
        if problem is not None:
            raise BadRecord("invalid_record", problem)
        pairs = tuple([(score.metric, score.scorer) for score in scored.results])
        number = self._pairs.get(pairs)
        if number is None:
            _check_pairs(pairs)
            number = self._pairs[pairs] = len(self._pairs)
        base, source = self._source, record.source
        row = _dump(
            [
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
                number,
                [_result_to_wire(score, scored.probability) for score in scored.results],
                *_rare_fields(record),
            ]
        )
        if self._rows and self._size + len(row) > limit:
            return False
        self._rows.append(row)
        self._size += len(row) + 1
        return True

    def finish(self) -> bytes:
        """Return the record."""
        head = _dump(
            {
                "v": SCORE_VERSION,
                "service": self._service,
                "at": self._source and (0, *self._source),  # programs before this one want three
                "pairs": list(self._pairs),
            }
        )
        data = f'{head[:-1]},"traces":[{",".join(self._rows)}]}}'.encode()
        if len(data) > MAX_BYTES:
            raise RecordTooLarge(len(data), MAX_BYTES)
        return data


_dump = json.JSONEncoder(separators=(",", ":")).encode


def _result_to_wire(score: Score, probability: float) -> object:
    value = score.value
    if (
        score.probability == probability
        and (score.detail, score.fingerprint, score.cheap) == _PLAIN
        and not score.stratum
    ):
        if value is None:
            if score.state is not ScoreState.SCORED:
                return _STATES.index(score.state), score.reason
        elif score.state is ScoreState.SCORED and score.reason is None and math.isfinite(value):
            return value
    _check_result(score)
    detail = score.detail
    if detail and len(_dump(detail)) > MAX_DETAIL:
        detail = None
    row = [
        _STATES.index(score.state),
        score.reason,
        score.value,
        None if score.probability == probability else score.probability,
        score.stratum or None,
        score.cheap,
        score.fingerprint,
        detail,
    ]
    while row[-1] is None:
        row.pop()
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
    if scored.wording is not None:
        rare["wording"] = [scored.wording.query, scored.wording.words]
    elif scored.wording_reason:
        rare["wording"] = scored.wording_reason
    if record.passages is not None:
        if not _are_passage_keys(record.passages):
            raise BadRecord("invalid_record", "the hashes of passages are invalid")
        rare["passages"] = record.passages
    if record.embedding is not None:
        context, vectors = record.embedding
        rare["embedding"] = [context, *([vectors] if isinstance(vectors, str) else vectors)]
    return [rare] if rare else []


def _are_passage_keys(keys: Sequence[str]) -> bool:
    return len(keys) <= MAX_PASSAGES and all(len(key) == PASSAGE_KEY_CHARS for key in keys)


def encode_index(raw: bytes, at: float) -> bytes:
    """Return the record of an index event, given the JSON of a valid event as it came."""
    return _INDEX_PREFIX + json.dumps(at).encode() + b',"event":' + raw + b"}"


def encode_feedback(row: NewFeedback) -> bytes:
    """Return the JSON of feedback; `since` is the time of the label.

    That time counts where no event time is known.
    """
    # programs before this one want an offset
    tree = {"at": [0, 0, 0], "trace": row.trace.hex(), "service": row.service}
    rest = _dump({**tree, "scorer": row.scorer, "word": row.body}).encode()
    return _FEEDBACK_PREFIX + json.dumps(row.since).encode() + b"," + rest[1:]


def decode_scores_message(
    data: bytes, limit: int = _READ_BYTES
) -> list[ScoreRecord] | IndexRecord | NewFeedback:
    """Decode any message of the topic; raises as `decode_scores`."""
    if data.startswith(_FEEDBACK_PREFIX) and len(data) <= limit:
        return _decode_feedback(data)
    if data.startswith(_INDEX_PREFIX) and len(data) <= limit:
        return _decode_index(data)
    return decode_scores(data, limit)


def decode_scores(data: bytes, limit: int = _READ_BYTES) -> list[ScoreRecord]:
    """Decode the scored traces of a record of up to `limit` bytes.

    Raises:
        BadRecord: The data is no record of scored traces.
        UnknownVersion: Another program wrote the record, and only that can read it.
    """
    if len(data) > limit:
        raise RecordTooLarge(len(data), limit)
    try:
        wire = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadRecord("invalid_json", "no JSON") from None
    version = wire.get("v") if isinstance(wire, dict) else None
    if version == 1 and "trace" in wire:
        raise UnknownVersion(
            "the scores topic holds records of format version 1, of the program before this one:"
            f" {UPGRADE}"
        )
    if version != SCORE_VERSION:
        refuse_newer(data, SCORE_VERSION, "a score record")
        raise BadRecord("invalid_record", f"version {version!r}"[:_MAX_ERROR_TEXT])
    try:
        return _read_traces(wire)
    except BadRecord:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise BadRecord("invalid_record", repr(error)) from None


def decode_score(data: bytes, limit: int = _READ_BYTES) -> ScoreRecord:
    """Decode the record of a single trace; raises as `decode_scores`."""
    records = decode_scores(data, limit)
    if len(records) != 1:
        raise BadRecord("invalid_record", f"{len(records)} traces")
    return records[0]


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _read_traces(wire: dict[str, Any]) -> list[ScoreRecord]:
    service, at = _text(wire["service"]), wire["at"]
    base = None if at is None else SourceOffset(*map(operator.index, at[1:]))
    if base is not None and min(base) < 0:
        raise BadRecord("invalid_record", "the source is below 0")
    pairs = [[(_text(metric), _text(scorer)) for metric, scorer in one] for one in wire["pairs"]]
    for one in pairs:
        _check_pairs(one)
    rows = wire["traces"]
    alike: dict[tuple[int, float], list[int]] = {}  # traces by number of pairs and probability
    for number, row in enumerate(rows):
        alike.setdefault((row[10], row[4]), []).append(number)
    results: list[list[Score]] = [[] for _ in rows]
    for (which, probability), numbers in alike.items():
        wires = zip(*[rows[number][11] for number in numbers], strict=True)
        columns = [
            _read_column(pair, column, probability)
            for pair, column in zip(pairs[which], wires, strict=True)
        ]
        for number, scores in zip(numbers, zip(*columns, strict=True), strict=False):
            results[number] += scores
    return [
        _read_trace(service, base, scores, *row) for scores, row in zip(results, rows, strict=True)
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


def _read_trace(
    service: str,
    base: SourceOffset | None,
    results: list[Score],
    trace_id: str,
    delta: int,
    timestamp: float,
    status: Status,
    probability: float,
    timings: Any,
    tags: Any,
    input_tokens: int | None,
    output_tokens: int | None,
    cost_usd: float | None,
    _pairs: int,
    _results: list[Any],
    rare: Any = None,
) -> ScoreRecord:
    rare = rare or {}
    if timings and not _FLOATS.issuperset(map(type, timings.values())):
        timings = {name: float(seconds) for name, seconds in timings.items()}
    if tags and not _TEXTS.issuperset(map(type, tags.values())):
        raise BadRecord("invalid_record", "a tag is no text")
    wording = rare.get("wording", "")
    passages = rare.get("passages")
    scored = ScoredTrace(
        _text(trace_id),
        service,
        timestamp,
        status,
        results,
        probability,
        timings or {},
        tags or {},
        None if input_tokens is None else operator.index(input_tokens),
        None if output_tokens is None else operator.index(output_tokens),
        cost_usd,
        rare.get("partial") is True,
        rare.get("canary") is True,
        tuple((*map(_text, one[:3]), one[3]) for one in rare.get("pending", ())),
        None if isinstance(wording, str) else HashedWording(*map(_text, wording)),
        wording if isinstance(wording, str) else "",
        tuple(rare.get("guessed", ())),
    )
    if not _GUESSED.issuperset(scored.guessed):
        raise BadRecord("invalid_record", "an unknown guess")
    if status not in _STATUSES:
        raise BadRecord("invalid_record", "an unknown status")
    problem = _trace_problem(scored)
    if passages is not None and not _are_passage_keys(list(map(_text, passages))):
        problem = "the hashes of passages are invalid"
    if problem is not None:
        raise BadRecord("invalid_record", problem)
    source = None
    if base is not None:
        source = SourceOffset(base.partition, base.offset + operator.index(delta))
    embedding = rare.get("embedding")
    return ScoreRecord(
        scored,
        source,
        None if passages is None else tuple(passages),
        None if embedding is None else _read_embedding(*map(_text, embedding)),
    )


def _read_embedding(context: str, *vectors: str) -> AnswerEmbedding:
    if len(vectors) == 1 and len(vectors[0]) <= _MAX_NAME:
        return AnswerEmbedding(context, vectors[0])
    bytes.fromhex(context)
    if not all(map(is_packed_vector, vectors)):
        raise BadRecord("invalid_record", "the embedding is invalid")
    return AnswerEmbedding(context, AnswerVectors(*vectors))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is needed")
    return value


def _result_from_wire(pair: tuple[str, str], wire: Any, probability: float) -> Score:
    if not isinstance(wire, tuple):
        if wire is True or wire is False:
            raise TypeError("a value is a number")
        return Score(pair[0], pair[1], ScoreState.SCORED, float(wire), None, probability)
    fields = wire + _MISSING[len(wire) :]
    state, reason, value, own, stratum, cheap, fingerprint, detail = fields
    for text in (reason, fingerprint):
        if text is not None:
            _text(text)
    if detail is not None and not isinstance(detail, dict):
        raise TypeError("a detail is an object")
    score = Score(
        *pair,
        _STATES[state],
        None if value is None else float(value),
        reason,
        probability if own is None else own,
        detail,
        fingerprint,
        _text(stratum or ""),
        None if cheap is None else float(cheap),
    )
    _check_result(score)
    return score


def _decode_index(data: bytes) -> IndexRecord:
    try:
        wire = _INDEX_WIRE.validate_json(data)
    except ValidationError as error:
        why = f"{error.error_count()} values of an index event are wrong"
        raise BadRecord("invalid_record", why) from None
    _ = wire.event.tokens  # parsed here, and not where a lock is held
    return IndexRecord(wire.event, wire.index_at)


def _decode_feedback(data: bytes) -> NewFeedback:
    try:
        wire = _FEEDBACK_WIRE.validate_json(data)
        FeedbackLabels.load(wire.word)  # checked here, and not where a lock is held
    except ValidationError as error:
        why = f"{error.error_count()} values of feedback are wrong"
        raise BadRecord("invalid_record", why) from None
    except (ValueError, TypeError):
        raise BadRecord("invalid_record", "the labels of the feedback cannot be read") from None
    trace = bytes.fromhex(wire.trace)
    return NewFeedback(trace, wire.service, wire.scorer, wire.labelled, wire.word)


def _trace_problem(scored: ScoredTrace) -> str | None:
    """Return what is wrong with a trace, apart from its results."""
    if not (0 < len(scored.trace_id) <= MAX_ID and 0 < len(scored.service) <= MAX_ID):
        return f"ids have 1 to {MAX_ID} characters"
    if not 0 <= scored.timestamp < _MAX_TIME:
        return "the time is out of range"
    if not 0 < scored.probability <= 1:
        return "the probability is not in (0, 1]"
    for seconds in scored.timings.values():
        if not 0 <= seconds <= _MAX_SECONDS:
            return "a timing is out of range"
    if scored.cost_usd is not None and not 0 <= scored.cost_usd <= _MAX_SECONDS:
        return "the cost is out of range"
    if min(scored.input_tokens or 0, scored.output_tokens or 0) < 0:
        return "a number of tokens is below 0"
    wording = scored.wording
    if len(scored.wording_reason) > _MAX_NAME or (wording and not is_valid_wording(wording)):
        return "the wording is invalid"
    # two names are ours: `model` and `prompt_version` are tags beside those of the trace
    if len(scored.tags) > MAX_TAGS + 2:
        return "too many tags"
    return None


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Check what the results of a trace are about, once for all traces with the same."""
    if len(pairs) > _MAX_RESULTS:
        raise BadRecord("invalid_record", "too many results")
    if len(set(pairs)) < len(pairs):
        raise BadRecord("invalid_record", "two results of one metric and scorer")
    if not all(0 < len(name) <= _MAX_NAME for pair in pairs for name in pair):
        raise BadRecord("invalid_record", "a metric or scorer without a name")


def _check_result(score: Score) -> None:
    problem = None
    if not 0 < score.probability <= 1:
        problem = "the probability is not in (0, 1]"
    elif (score.value is not None) != (score.state is ScoreState.SCORED):
        problem = "a value if and only if it is scored"
    elif not all(value is None or math.isfinite(value) for value in (score.value, score.cheap)):
        problem = "the value is not finite"
    elif len(score.stratum) > MAX_STRATUM or len(score.fingerprint or "") > MAX_FINGERPRINT:
        problem = "a long stratum or fingerprint"
    if problem is not None:
        raise BadRecord("invalid_record", f"{score.metric}: {problem}")
