"""What crosses the topic of the scores: one whole `ScoredTrace` a record, and where it came from;
or an index event or feedback (`agent.kafka.messages.feedback_records`), which go to the partition
of their service this way.

JSON, every number to the last bit; fields at their defaults are left out. It is not the public line
of `ragmeter score` (`agent.scored_input`), which rounds times and is lenient: here both ends are
ours, so the one decoder is the data classes' own types, and whatever does not fit them is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from agent.consistency.wording import sound
from agent.errors import UnknownVersion
from agent.feedback.labels import MAX_PASSAGES
from agent.indexing.event import IndexEvent
from agent.kafka.messages.bad_record import BadRecord, TooLarge
from agent.kafka.messages.feedback_records import FEEDBACK, FeedbackRecord, decode_feedback
from agent.kafka.messages.source import Source
from agent.scored_input import MAX_FINGERPRINT, MAX_STRATUM
from agent.trace import MAX_ID, MAX_TAGS, Score, ScoredTrace, State

__all__ = [
    "MAX_BYTES",
    "MAX_DETAIL",
    "VERSION",
    "BadRecord",
    "IndexRecord",
    "ScoreRecord",
    "TooLarge",
    "decode_any",
    "decode_record",
    "encode_index",
    "encode_record",
]

VERSION = 1
"""A program reads its own version and the one before: workers are upgraded one by one."""

READ_BYTES = 2**20
MAX_BYTES = READ_BYTES - 64 * 2**10
"""Written of one record; more is read. Kafka takes a megabyte by default, and a record becomes a
row of the state as it is (`agent.kafka.state.kept_evidence`), under a key with both ids in ASCII:
of 512 characters each, up to 12 bytes for one."""

MAX_DETAIL = 4096
"""Bytes of the detail of one score (grades, nuggets, pairs), which only a page shows. A larger one
is left out: with 30 scores a record then stays under the megabyte that Kafka takes by default."""

MAX_RESULTS = 256
MAX_NAME = 128  # characters of a metric or scorer: both become labels
MAX_SECONDS = 1e9
KEY = 16  # characters of the hash of a passage's id


@dataclass(slots=True)
class ScoreRecord:
    """`source` is where the trace was read; None for results that no trace owes (of probes).
    `passages`: hashes that labels name them by (`agent.labelling.placed`), where labels may
    come."""

    scored: ScoredTrace
    source: Source | None
    passages: tuple[str, ...] | None = None


@dataclass(slots=True)
class IndexRecord:
    """An index event on its way to the partition of its service; `at` is its time, in Unix seconds,
    after the clock check."""

    event: IndexEvent
    at: float


@dataclass(slots=True)
class _Wire:
    v: int
    at: tuple[int, int, int] | None
    trace: ScoredTrace
    passages: tuple[str, ...] | None = None


_WIRE = TypeAdapter(_Wire)
_DETAIL = TypeAdapter(dict[str, object])


def encode_record(record: ScoreRecord) -> bytes:
    """Raises `TooLarge`, or ValueError for a record that could not be read back: a mistake of
    ours."""
    scored = record.scored
    if any(score.detail for score in scored.results):
        scored = replace(scored, results=[_bounded(score) for score in scored.results])
    _check(scored, record.source, record.passages)
    wire = _Wire(VERSION, record.source, scored, record.passages)
    data = _WIRE.dump_json(wire, exclude_defaults=True)
    if len(data) > MAX_BYTES:
        raise TooLarge(len(data), MAX_BYTES)
    return data


def _bounded(score: Score) -> Score:
    if not score.detail or len(_DETAIL.dump_json(score.detail)) <= MAX_DETAIL:
        return score
    return replace(score, detail=None)


INDEX = b'{"v":1,"index_at":'
"""What the record of an index event begins with, and no other does."""


@dataclass
class _IndexWire:
    v: int
    index_at: Annotated[float, Field(ge=0, lt=7.3e9)]  # to the year 2201
    event: IndexEvent


_INDEX = TypeAdapter(_IndexWire)


def encode_index(raw: bytes, at: float) -> bytes:
    """`raw` is a sound event, as it came."""
    return INDEX + json.dumps(at).encode() + b',"event":' + raw + b"}"


def _decode_index(data: bytes) -> IndexRecord:
    try:
        wire = _INDEX.validate_json(data)
    except ValidationError as error:
        why = f"{error.error_count()} values of an index event are wrong"
        raise BadRecord("invalid_record", why) from None
    _ = wire.event.tokens  # here, and not where a lock is held
    return IndexRecord(wire.event, wire.index_at)


def decode_any(data: bytes, limit: int = READ_BYTES) -> ScoreRecord | IndexRecord | FeedbackRecord:
    """Whatever the topic has; raises what `decode_record` does."""
    if data.startswith(FEEDBACK) and len(data) <= limit:
        return decode_feedback(data)
    if data.startswith(INDEX) and len(data) <= limit:
        return _decode_index(data)
    return decode_record(data, limit)


def decode_record(data: bytes, limit: int = READ_BYTES) -> ScoreRecord:
    """Raises `BadRecord` for what is none, and `UnknownVersion` for a newer one, which is sound:
    whoever cannot read it must leave it to those who can."""
    if len(data) > limit:
        raise TooLarge(len(data), limit)
    try:
        wire = _WIRE.validate_json(data, strict=True)
    except ValidationError as error:
        _refuse_newer(data)
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = "invalid_json" if first["type"] == "json_invalid" else "invalid_record"
        raise BadRecord(reason, f"{where} {first['msg']}".strip()) from None
    if wire.v != VERSION:
        _unknown(wire.v)
    source = None if wire.at is None else Source(*wire.at)
    _check(wire.trace, source, wire.passages)
    return ScoreRecord(wire.trace, source, wire.passages)


@dataclass
class _Version:
    v: int


_VERSION = TypeAdapter(_Version)


def _refuse_newer(data: bytes) -> None:
    try:
        version = _VERSION.validate_json(data, strict=True).v
    except ValidationError:
        return
    if version > VERSION:
        _unknown(version)


def _unknown(version: int) -> None:
    if version > VERSION:
        raise UnknownVersion(
            f"a score record of format version {version}; this program reads up to {VERSION}"
        )
    raise BadRecord("invalid_record", f"version {version}")


def _check(
    scored: ScoredTrace, source: Source | None, passages: tuple[str, ...] | None = None
) -> None:
    """What the types do not say. Raises `BadRecord`."""
    wrong = _wrong(scored)
    if source is not None and min(source) < 0:
        wrong = "the source is below 0"
    if passages and (len(passages) > MAX_PASSAGES or {len(key) for key in passages} != {KEY}):
        wrong = "the hashes of passages are none"
    if wrong is not None:
        raise BadRecord("invalid_record", wrong)


def _wrong(scored: ScoredTrace) -> str | None:
    if not (0 < len(scored.trace_id) <= MAX_ID and 0 < len(scored.service) <= MAX_ID):
        return f"ids have 1 to {MAX_ID} characters"
    if not 0 <= scored.timestamp < 7.3e9:  # the year 2201, as for traces
        return "the time is none"
    if not 0 < scored.probability <= 1:
        return "the probability is not in (0, 1]"
    if not all(0 <= seconds <= MAX_SECONDS for seconds in scored.timings.values()):
        return "a timing is no duration"
    if scored.cost_usd is not None and not 0 <= scored.cost_usd <= MAX_SECONDS:
        return "the cost is none"
    if min(scored.input_tokens or 0, scored.output_tokens or 0) < 0:
        return "fewer than no tokens"
    wording = scored.wording
    if len(wording) > MAX_NAME if isinstance(wording, str) else not sound(wording):
        return "the wording is none"
    # two names are ours: `model` and `prompt_version` are tags beside those of the trace
    if len(scored.tags) > MAX_TAGS + 2 or len(scored.results) > MAX_RESULTS:
        return "too many tags or results"
    if len({(score.metric, score.scorer) for score in scored.results}) < len(scored.results):
        return "two results of one metric and scorer"
    for score in scored.results:
        if not (0 < len(score.metric) <= MAX_NAME and 0 < len(score.scorer) <= MAX_NAME):
            return "a metric or scorer without a name"
        if not 0 < score.probability <= 1:
            return f"{score.metric}: the probability is not in (0, 1]"
        if (score.value is not None) != (score.state is State.SCORED):
            return f"{score.metric}: a value if and only if it is scored"
        if not (_finite(score.value) and _finite(score.cheap)):
            return f"{score.metric}: the value is not finite"
        if len(score.stratum) > MAX_STRATUM or len(score.fingerprint or "") > MAX_FINGERPRINT:
            return f"{score.metric}: a long stratum or fingerprint"
    return None


def _finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)
