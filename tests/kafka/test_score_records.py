from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.core.errors import UnknownVersion
from ragmeter.core.score import HashedWording, Score, ScoredTrace, ScoreState
from ragmeter.kafka.score_records import (
    MAX_BYTES,
    MAX_DETAIL,
    BadRecord,
    RecordTooLarge,
    ScoreRecord,
    SourceOffset,
    decode_score,
    encode_score,
)
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import GUESSED_FIELDS
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
        pending=st.lists(st.tuples(words, words, st.text(max_size=4), maybe), max_size=2).map(
            tuple
        ),
    ),
    st.one_of(st.none(), st.builds(SourceOffset, *[st.integers(0, 2**62)] * 3)),
)


def bits(record: ScoreRecord) -> list[bytes]:
    """Every float of it to the last bit: -0.0 equals 0.0 and is another number."""
    scored = record.scored
    floats = [scored.timestamp, scored.probability, scored.cost_usd, *scored.timings.values()]
    for score in scored.results:
        floats += [score.value, score.probability, score.cheap]
    return [struct.pack("<d", number) for number in floats if number is not None]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(records)
def test_round_trip_is_exact(record: ScoreRecord) -> None:
    found = decode_score(encode_score(record))
    assert found == record
    assert bits(found) == bits(record)
    assert all(type(score.state) is ScoreState for score in found.scored.results)
    assert all(type(row) is tuple for row in found.scored.pending)


def whole() -> ScoreRecord:
    return ScoreRecord(Scorer().score(make_trace(1)).trace, SourceOffset(0, 1, 2))


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


def test_what_would_not_fit_a_row_is_not_written_and_what_was_written_is_read() -> None:
    record = whole()
    tags = {"t": ""}
    record.scored = replace(record.scored, tags=tags)
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
        part[last] = value
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "invalid_json"),
        (b"\xff\x00", "invalid_json"),
        (b"[]", "invalid_record"),
        (b"{}", "invalid_record"),
        (b'{"v": 1}', "invalid_record"),
        (b" " * 2**20 + b"{}", "too_large"),
        (changed(v=0), "invalid_record"),
        (changed(v="1"), "invalid_record"),
        (changed(at=[1, 2]), "invalid_record"),
        (changed(at=[0, 0, -1]), "invalid_record"),
        (changed(at=[0, 0, 1.5]), "invalid_record"),
        (changed(trace__trace_id=""), "invalid_record"),
        (changed(trace__service="x" * 513), "invalid_record"),
        (changed(trace__timestamp="2024-01-01T00:00:00Z"), "invalid_record"),
        (changed(trace__timestamp=float("nan")), "invalid_record"),
        (changed(trace__timestamp=float("inf")), "invalid_record"),
        (changed(trace__timestamp=-1), "invalid_record"),
        (changed(trace__status="fine"), "invalid_record"),
        (changed(trace__probability=0), "invalid_record"),
        (changed(trace__timings={"total": -1}), "invalid_record"),
        (changed(trace__cost_usd=float("nan")), "invalid_record"),
        (changed(trace__input_tokens=-1), "invalid_record"),
        (changed(trace__results__0__value=float("nan")), "invalid_record"),
        (changed(trace__results__0__value=None), "invalid_record"),
        (changed(trace__results__0__value=True), "invalid_record"),
        (changed(trace__results__0__state="great"), "invalid_record"),
        (changed(trace__results__0__probability=1.5), "invalid_record"),
        (changed(trace__results__0__cheap=float("inf")), "invalid_record"),
        (changed(trace__results__0__fingerprint="x" * 65), "invalid_record"),
        (changed(trace__results__0__metric=""), "invalid_record"),
        (changed(trace__results__0__metric="timeout"), "invalid_record"),
        (changed(trace__frame=[["a", "b"]]), "invalid_record"),
    ],
)
def test_garbage_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_score(data)
    assert caught.value.reason == reason
    assert 5 < len(str(caught.value)) <= 200


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=200), st.text().map(str.encode)))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    with pytest.raises((BadRecord, UnknownVersion)):
        decode_score(data)


@pytest.mark.parametrize("data", [changed(v=2), b'{"v": 2, "other": []}'])
def test_a_newer_version_is_no_garbage(data: bytes) -> None:
    with pytest.raises(UnknownVersion):
        decode_score(data)


def test_fields_of_a_later_minor_change_are_passed_over() -> None:
    assert decode_score(changed(trace__new_field=1, other=2)) == whole()


# As the version before the fields `pending`, `wording` and `wording_reason` wrote them.
OLD_HEAD = (
    b'{"v":1,"at":[0,1,2],"trace":{"trace_id":"t1","service":"bot","timestamp":1700000000.25,'
    b'"status":"ok","results":[{"metric":"error","scorer":"builtin","state":"scored","value":0.0}],'
    b'"timings":{"total":1.5},"tags":{"model":"m"},"partial":true,'
    b'"frame":[["grounding","judge","low:1",0.25],["answered","judge","low:1",null]]'
)


def old_trace(**wording: Any) -> ScoredTrace:
    return ScoredTrace(
        "t1",
        "bot",
        1700000000.25,
        "ok",
        [Score("error", "builtin", ScoreState.SCORED, 0.0)],
        timings={"total": 1.5},
        tags={"model": "m"},
        partial=True,
        pending=(("grounding", "judge", "low:1", 0.25), ("answered", "judge", "low:1", None)),
        **wording,
    )


@pytest.mark.parametrize(
    ("written", "wording"),
    [
        (b"", {}),
        (b',"wording":"no_answer"', {"wording_reason": "no_answer"}),
        (
            b',"wording":{"query":"00000000000000000000000000000001","words":"AAAAAA=="}',
            {"wording": HashedWording("0" * 31 + "1", "AAAAAA==")},
        ),
    ],
)
def test_records_have_the_form_of_the_version_before(
    written: bytes, wording: dict[str, Any]
) -> None:
    data = OLD_HEAD + written + b"}}"
    record = decode_score(data)
    assert record == ScoreRecord(old_trace(**wording), SourceOffset(0, 1, 2))
    assert encode_score(record) == data
