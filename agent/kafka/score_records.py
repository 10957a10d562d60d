"""The records of the scores topic: scored traces, feedback and index events, as JSON.

A scored trace is one whole `ScoredTrace` with the offset it came from; numbers are exact, and
fields at their defaults are left out. Unlike the public lines of `ragmeter score`
(`ragmeter.offline.scored_lines`), which round times and are read leniently, both ends are ours: the
decoder is the data classes' own types, and whatever does not fit them is refused. Feedback carries
hashes in place of the ids of trace and passages, and no text.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from ragmeter.aggregate.feedback_records import FeedbackLabels
from ragmeter.aggregate.index_events import IndexEvent
from ragmeter.aggregate.wordings import is_valid_wording
from ragmeter.core.errors import RagmeterError, UnknownVersion
from ragmeter.core.feedback import MAX_PASSAGES
from ragmeter.core.score import HashedWording, PendingResult, Score, ScoredTrace, ScoreState
from ragmeter.offline.scored_lines import MAX_FINGERPRINT, MAX_STRATUM
from ragmeter.store.pending import NewFeedback
from ragmeter.trace import MAX_ID, MAX_TAGS, GuessedField, Status

# A program reads its own version and the one before: workers are upgraded one by one.
SCORE_VERSION = 1
# Prefixes that tell the kinds of records apart: no other kind begins with them.
_FEEDBACK_PREFIX = b'{"v":1,"labelled":'
_INDEX_PREFIX = b'{"v":1,"index_at":'

SOURCE_LABELS = (("source", "kafka"),)  # of counters
_READ_BYTES = 2**20
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
    """Where a message was read; `epoch` counts how often its topic was made anew."""

    epoch: int
    partition: int
    offset: int


@dataclass(slots=True)
class ScoreRecord:
    """A scored trace.

    `source` is None for results that belong to no trace (of probes). `passages` are the hashes by
    which labels name passages (`ragmeter.aggregate.feedback_join`), where labels may come.
    """

    scored: ScoredTrace
    source: SourceOffset | None
    passages: tuple[str, ...] | None = None


@dataclass(slots=True)
class IndexRecord:
    """An index event; `at` is its checked time in Unix seconds."""

    event: IndexEvent
    at: float


@dataclass(slots=True)
class FeedbackRecord:
    """Feedback; `row.since` is the time of the label, for use where no event time is known."""

    row: NewFeedback
    source: SourceOffset


@dataclass
class _Version:
    v: int


@dataclass(slots=True)
class _TraceWire:
    """A scored trace under the names of the topic, which is older than those of `ScoredTrace`.

    `frame` are its pending results; `wording` is the wording or the reason why there is none.
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
    guessed: tuple[GuessedField, ...] = ()
    frame: tuple[PendingResult, ...] = ()
    wording: HashedWording | str = ""


_SHARED_FIELDS = [one.name for one in fields(_TraceWire) if one.name not in ("frame", "wording")]


def _trace_to_wire(scored: ScoredTrace) -> _TraceWire:
    shared = {name: getattr(scored, name) for name in _SHARED_FIELDS}
    wording = scored.wording_reason if scored.wording is None else scored.wording
    return _TraceWire(**shared, frame=scored.pending, wording=wording)


def _trace_from_wire(wire: _TraceWire) -> ScoredTrace:
    shared = {name: getattr(wire, name) for name in _SHARED_FIELDS}
    if isinstance(wire.wording, str):
        return ScoredTrace(**shared, pending=wire.frame, wording_reason=wire.wording)
    return ScoredTrace(**shared, pending=wire.frame, wording=wire.wording)


@dataclass(slots=True)
class _ScoreWire:
    v: int
    at: tuple[int, int, int] | None
    trace: _TraceWire
    passages: tuple[str, ...] | None = None


@dataclass
class _IndexWire:
    v: int
    index_at: Annotated[float, Field(ge=0, lt=_MAX_TIME)]
    event: IndexEvent


_Offset = Annotated[int, Field(ge=0)]


@dataclass
class _FeedbackWire:
    v: int
    labelled: Annotated[float, Field(ge=0, lt=_MAX_TIME)]
    at: tuple[_Offset, _Offset, _Offset]
    trace: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    service: Annotated[str, Field(min_length=1, max_length=MAX_ID)]
    scorer: Annotated[str, Field(min_length=1, max_length=64)]
    word: str


_VERSION = TypeAdapter(_Version)
_SCORE_WIRE = TypeAdapter(_ScoreWire)
_INDEX_WIRE = TypeAdapter(_IndexWire)
_FEEDBACK_WIRE = TypeAdapter(_FeedbackWire)
_DETAIL = TypeAdapter(dict[str, object])


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


def encode_score(record: ScoreRecord) -> bytes:
    """Return the JSON of a scored trace; details of scores above `MAX_DETAIL` bytes are left out.

    Raises:
        RecordTooLarge: The record exceeds `MAX_BYTES`.
        BadRecord: The record could not be read back, because of a defect of ours.
    """
    scored = record.scored
    if any(score.detail for score in scored.results):
        scored = replace(scored, results=[_without_large_detail(one) for one in scored.results])
    _check(scored, record.source, record.passages)
    wire = _ScoreWire(SCORE_VERSION, record.source, _trace_to_wire(scored), record.passages)
    data = _SCORE_WIRE.dump_json(wire, exclude_defaults=True)
    if len(data) > MAX_BYTES:
        raise RecordTooLarge(len(data), MAX_BYTES)
    return data


def _without_large_detail(score: Score) -> Score:
    if not score.detail or len(_DETAIL.dump_json(score.detail)) <= MAX_DETAIL:
        return score
    return replace(score, detail=None)


def encode_index(raw: bytes, at: float) -> bytes:
    """Return the record of an index event, given the JSON of a valid event as it came."""
    return _INDEX_PREFIX + json.dumps(at).encode() + b',"event":' + raw + b"}"


def encode_feedback(record: FeedbackRecord) -> bytes:
    """Return the JSON of feedback."""
    row = record.row
    tree = {
        "at": record.source,
        "trace": row.trace.hex(),
        "service": row.service,
        "scorer": row.scorer,
        "word": row.body,
    }
    rest = json.dumps(tree, separators=(",", ":")).encode()
    return _FEEDBACK_PREFIX + json.dumps(row.since).encode() + b"," + rest[1:]


def decode_scores_message(
    data: bytes, limit: int = _READ_BYTES
) -> ScoreRecord | IndexRecord | FeedbackRecord:
    """Decode any message of the topic; raises as `decode_score`."""
    if data.startswith(_FEEDBACK_PREFIX) and len(data) <= limit:
        return _decode_feedback(data)
    if data.startswith(_INDEX_PREFIX) and len(data) <= limit:
        return _decode_index(data)
    return decode_score(data, limit)


def decode_score(data: bytes, limit: int = _READ_BYTES) -> ScoreRecord:
    """Decode a scored trace of up to `limit` bytes.

    Raises:
        BadRecord: The data is no scored trace.
        UnknownVersion: A newer program wrote the record, and only that can read it.
    """
    if len(data) > limit:
        raise RecordTooLarge(len(data), limit)
    try:
        wire = _SCORE_WIRE.validate_json(data, strict=True)
    except ValidationError as error:
        refuse_newer(data, SCORE_VERSION, "a score record")
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = "invalid_json" if first["type"] == "json_invalid" else "invalid_record"
        raise BadRecord(reason, f"{where} {first['msg']}".strip()) from None
    if wire.v != SCORE_VERSION:
        refuse_newer(data, SCORE_VERSION, "a score record")
        raise BadRecord("invalid_record", f"version {wire.v}")
    source = None if wire.at is None else SourceOffset(*wire.at)
    scored = _trace_from_wire(wire.trace)
    _check(scored, source, wire.passages)
    return ScoreRecord(scored, source, wire.passages)


def _decode_index(data: bytes) -> IndexRecord:
    try:
        wire = _INDEX_WIRE.validate_json(data)
    except ValidationError as error:
        why = f"{error.error_count()} values of an index event are wrong"
        raise BadRecord("invalid_record", why) from None
    _ = wire.event.tokens  # parsed here, and not where a lock is held
    return IndexRecord(wire.event, wire.index_at)


def _decode_feedback(data: bytes) -> FeedbackRecord:
    try:
        wire = _FEEDBACK_WIRE.validate_json(data)
        FeedbackLabels.load(wire.word)  # checked here, and not where a lock is held
    except ValidationError as error:
        why = f"{error.error_count()} values of feedback are wrong"
        raise BadRecord("invalid_record", why) from None
    except (ValueError, TypeError):
        raise BadRecord("invalid_record", "the labels of the feedback cannot be read") from None
    trace = bytes.fromhex(wire.trace)
    row = NewFeedback(trace, wire.service, wire.scorer, wire.labelled, wire.word)
    return FeedbackRecord(row, SourceOffset(*wire.at))


def _check(
    scored: ScoredTrace, source: SourceOffset | None, passages: tuple[str, ...] | None = None
) -> None:
    """Check what the types do not express. Raises `BadRecord`."""
    problem = _trace_problem(scored)
    if source is not None and min(source) < 0:
        problem = "the source is below 0"
    if passages and (
        len(passages) > MAX_PASSAGES or {len(key) for key in passages} != {PASSAGE_KEY_CHARS}
    ):
        problem = "the hashes of passages are invalid"
    if problem is not None:
        raise BadRecord("invalid_record", problem)


def _trace_problem(scored: ScoredTrace) -> str | None:
    if not (0 < len(scored.trace_id) <= MAX_ID and 0 < len(scored.service) <= MAX_ID):
        return f"ids have 1 to {MAX_ID} characters"
    if not 0 <= scored.timestamp < _MAX_TIME:
        return "the time is out of range"
    if not 0 < scored.probability <= 1:
        return "the probability is not in (0, 1]"
    if not all(0 <= seconds <= _MAX_SECONDS for seconds in scored.timings.values()):
        return "a timing is out of range"
    if scored.cost_usd is not None and not 0 <= scored.cost_usd <= _MAX_SECONDS:
        return "the cost is out of range"
    if min(scored.input_tokens or 0, scored.output_tokens or 0) < 0:
        return "a number of tokens is below 0"
    wording = scored.wording
    if len(scored.wording_reason) > _MAX_NAME or (wording and not is_valid_wording(wording)):
        return "the wording is invalid"
    # two names are ours: `model` and `prompt_version` are tags beside those of the trace
    if len(scored.tags) > MAX_TAGS + 2 or len(scored.results) > _MAX_RESULTS:
        return "too many tags or results"
    if len({(score.metric, score.scorer) for score in scored.results}) < len(scored.results):
        return "two results of one metric and scorer"
    return next(filter(None, map(_score_problem, scored.results)), None)


def _score_problem(score: Score) -> str | None:
    if not (0 < len(score.metric) <= _MAX_NAME and 0 < len(score.scorer) <= _MAX_NAME):
        return "a metric or scorer without a name"
    if not 0 < score.probability <= 1:
        return f"{score.metric}: the probability is not in (0, 1]"
    if (score.value is not None) != (score.state is ScoreState.SCORED):
        return f"{score.metric}: a value if and only if it is scored"
    if not all(value is None or math.isfinite(value) for value in (score.value, score.cheap)):
        return f"{score.metric}: the value is not finite"
    if len(score.stratum) > MAX_STRATUM or len(score.fingerprint or "") > MAX_FINGERPRINT:
        return f"{score.metric}: a long stratum or fingerprint"
    return None
