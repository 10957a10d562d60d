from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.errors import UnknownVersion
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.kafka.score_records import (
    MAX_BYTES,
    MAX_DETAIL,
    ScoreRecord,
    SourceOffset,
    decode_score,
    decode_scores,
    encode_score,
    encode_scores,
)
from ragmeter.kafka.wire import BadRecord, RecordTooLarge
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import GUESSED_FIELDS

from tests.tables import each_row
from tests.traces import make_trace

numbers = st.floats(allow_nan=False, allow_infinity=False)
probabilities = st.floats(0, 1, exclude_min=True)
words = st.text(min_size=1, max_size=12)
maybe = st.one_of(st.none(), numbers)
details = st.one_of(
    st.none(),
    st.dictionaries(words, st.one_of(st.none(), numbers, words, st.lists(numbers, max_size=3))),
)


@st.composite
def scores(draw: st.DrawFn) -> Score:
    state = draw(st.sampled_from(ScoreState))
    return Score(
        draw(words),
        draw(words),
        state,
        value=draw(numbers) if state is ScoreState.SCORED else None,
        reason=draw(st.one_of(st.none(), st.text())),
        probability=draw(probabilities),
        detail=draw(details),
        fingerprint=draw(st.one_of(st.none(), words)),
        stratum=draw(st.text(max_size=8)),
        cheap=draw(maybe),
    )


records = st.builds(
    ScoreRecord,
    st.builds(
        ScoredTrace,
        trace_id=words,
        service=words,
        timestamp=st.floats(0, 7e9),
        status=st.sampled_from(["ok", "error", "timeout"]),
        results=st.lists(scores(), max_size=6, unique_by=lambda one: (one.metric, one.scorer)),
        probability=probabilities,
        timings=st.dictionaries(st.text(max_size=4), st.floats(0, 1e9), max_size=3),
        tags=st.dictionaries(st.text(max_size=4), st.text(), max_size=3),
        input_tokens=st.one_of(st.none(), st.integers(0, 2**53)),
        output_tokens=st.one_of(st.none(), st.integers(0, 2**53)),
        cost_usd=st.one_of(st.none(), st.floats(0, 1e9)),
        partial=st.booleans(),
        guessed=st.lists(st.sampled_from(GUESSED_FIELDS), unique=True).map(tuple),
        pending=st.lists(st.tuples(words, words, st.text(max_size=4)), max_size=2).map(tuple),
        canary=st.booleans(),
        passages=st.one_of(st.none(), st.lists(st.just("0" * 16), max_size=2).map(tuple)),
        cluster=st.sampled_from(("", "0a1b2c3d")),
        tenant=st.sampled_from(("", "0a1b2c3d", "9e8")),
        judging=st.none(),  # defaults of a named tuple are drawn, too
    ),
    st.one_of(st.none(), st.builds(SourceOffset, *[st.integers(0, 2**62)] * 2)),
    st.none(),
)


def bits(record: ScoreRecord) -> list[bytes]:
    """Every float of it to the last bit: -0.0 equals 0.0 and is another number."""
    scored = record.scored
    floats = [scored.timestamp, scored.probability, scored.cost_usd, *scored.timings.values()]
    for score in scored.results:
        floats += [score.value, score.probability, score.cheap]
    return [struct.pack("<d", number) for number in floats if number is not None]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(records)
def test_round_trip_is_exact(record: ScoreRecord) -> None:
    found = decode_score(encode_score(record))
    assert found == record
    assert bits(found) == bits(record)
    assert all(type(score.state) is ScoreState for score in found.scored.results)
    assert all(type(row) is tuple for row in found.scored.pending)


def whole() -> ScoreRecord:
    """A record whose scores are its own: traces share those that they have alike."""
    scored = Scorer().score(make_trace(1)).trace
    own = [replace(score) for score in scored.results]
    return ScoreRecord(scored._replace(results=own), SourceOffset(1, 2))


def test_what_the_scorer_makes_fits_and_is_small() -> None:
    record = whole()
    data = encode_score(record)
    assert decode_score(data) == record
    assert len(data) < 4_000


def test_a_large_detail_is_left_out_and_the_score_stays() -> None:
    record = whole()
    record.scored.results[0].detail = {"grades": ["x" * 50] * MAX_DETAIL}
    record.scored.results[1].detail = {"grades": [1, 2]}
    found = decode_score(encode_score(record))
    assert found.scored.results[0].detail is None
    assert found.scored.results[1].detail == {"grades": [1, 2]}
    assert record.scored.results[0].detail is not None  # what was given is not changed
    record.scored.results[0].detail = None
    assert found == record


@each_row(
    ("detail",),
    [
        ({"statement": "\ud83d"},),
        ({"\udc00": 1},),
        ({"nuggets": [{"text": "cut off \ud83d"}]},),
        ({"grades": {1, object()}},),
    ],
)
def test_a_detail_that_could_not_be_read_back_is_left_out_and_the_record_stays(
    detail: dict[str, Any],
) -> None:
    sent = [
        ScoreRecord(whole().scored._replace(trace_id=f"t{n}"), SourceOffset(1, n)) for n in range(2)
    ]
    sent[0].scored.results[0].detail = detail
    (data,) = encode_scores(sent)
    sent[0].scored.results[0].detail = None
    assert decode_scores(data) == sent


def test_a_text_that_could_not_be_read_back_is_refused_before_it_is_sent() -> None:
    record = whole()
    record.scored = record.scored._replace(tags={"t": "\ud83d"})
    with pytest.raises(BadRecord):
        encode_score(record)


def test_what_would_not_fit_a_row_is_not_written_and_what_was_written_is_read() -> None:
    record = whole()
    tags = {"t": ""}
    record.scored = record.scored._replace(tags=tags)
    tags["t"] = "x" * (MAX_BYTES - len(encode_score(record)))
    assert len(encode_score(record)) == MAX_BYTES
    tags["t"] += "x"
    with pytest.raises(RecordTooLarge):
        encode_score(record)
    old = encode_score(whole()).ljust(2**20)
    assert decode_score(old) == whole()


def changed(**changes: Any) -> bytes:
    tree = json.loads(encode_score(whole()))
    for path, value in changes.items():
        *above, last = path.split("__")
        part = tree
        for name in above:
            part = part[int(name) if name.isdigit() else name]
        part[int(last) if last.isdigit() else last] = value
    return json.dumps(tree).encode()


ID, TIME, STATUS, PROBABILITY, TIMINGS, TAGS, INPUT, _, COST, PAIRS, RESULTS = (0, *range(2, 12))
"""Fields of a trace."""


def damaged(field: int, value: Any) -> bytes:
    return changed(**{f"traces__0__{field}": value})


@each_row(
    ("data", "reason"),
    [
        (b"", "invalid_json"),
        (b"\xff\x00", "invalid_json"),
        (b"[]", "invalid_record"),
        (b"{}", "invalid_record"),
        (b'{"v": 1}', "invalid_record"),
        (b" " * 2**20 + b"{}", "too_large"),
        (changed(v="1"), "invalid_record"),
        (changed(at=[1]), "invalid_record"),
        (changed(at=[0, -1]), "invalid_record"),
        (changed(at=[0, 1.5]), "invalid_record"),
        (changed(service="x" * 513), "invalid_record"),
        (changed(service=7), "invalid_record"),
        (changed(traces=[[]]), "invalid_record"),
        (changed(pairs__0__0=["", "builtin"]), "invalid_record"),
        (changed(pairs__0__1=["error", "builtin"]), "invalid_record"),
        (damaged(ID, ""), "invalid_record"),
        (damaged(TIME, "2024-01-01T00:00:00Z"), "invalid_record"),
        (damaged(TIME, float("nan")), "invalid_record"),
        (damaged(TIME, float("inf")), "invalid_record"),
        (damaged(TIME, -1), "invalid_record"),
        (damaged(STATUS, "fine"), "invalid_record"),
        (damaged(PROBABILITY, 0), "invalid_record"),
        (damaged(TIMINGS, {"total": -1}), "invalid_record"),
        (damaged(TAGS, {"model": 7}), "invalid_record"),
        (damaged(COST, float("nan")), "invalid_record"),
        (damaged(INPUT, -1), "invalid_record"),
        (damaged(PAIRS, 1), "invalid_record"),
        (damaged(RESULTS, []), "invalid_record"),
        (changed(traces__0__11__0=None), "invalid_record"),
        (changed(traces__0__11__0=True), "invalid_record"),
        (changed(traces__0__11__0=1e999), "invalid_record"),
        (changed(traces__0__11__0=[99]), "invalid_record"),
        (changed(traces__0__11__0=[0]), "invalid_record"),
        (changed(traces__0__11__0=[0, None, 0.5, 1.5]), "invalid_record"),
        (changed(traces__0__11__0=[0, None, 0.5, 1.0, "", None, "x" * 65]), "invalid_record"),
    ],
)
def test_garbage_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_score(data)
    assert caught.value.failure.reason == reason
    assert 5 < len(str(caught.value)) <= 200


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=200), st.text().map(str.encode)))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    with pytest.raises((BadRecord, UnknownVersion)):
        decode_score(data)


@pytest.mark.parametrize("data", [changed(v=0), changed(v=2), b'{"v": 2, "other": []}'])
def test_another_version_is_no_garbage_and_says_what_to_do(data: bytes) -> None:
    with pytest.raises(
        UnknownVersion, match=r"kafka\.group and kafka\.topics\.prefix to new names"
    ):
        decode_score(data)


def test_fields_of_a_later_minor_change_are_passed_over() -> None:
    assert decode_score(changed(new_field=1, other=2)) == whole()


def test_many_traces_go_in_few_records_of_bounded_size() -> None:
    scored = Scorer().score(make_trace(1)).trace
    sent = [
        ScoreRecord(scored._replace(trace_id=f"t{n}"), SourceOffset(1, 7 + 2 * n))
        for n in range(200)
    ]
    sent[50].scored = scored._replace(trace_id="w", canary=True)
    sent[52].scored = sent[52].scored._replace(passages=("0" * 16,))
    for limit, many in ((20_000, range(3, 12)), (10**6, range(1, 2))):
        data = encode_scores(sent, limit)
        assert len(data) in many
        assert all(len(one) < limit + 3_000 for one in data)
        assert [record for one in data for record in decode_scores(one)] == sent
    assert len(data[0]) / len(sent) < 660
