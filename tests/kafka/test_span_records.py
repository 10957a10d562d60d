"""Records of spans across their topic."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.errors import UnknownVersion
from ragmeter.ingest.spans import LogEvent, SpanEvent
from ragmeter.ingest.stored_spans import (
    StoredPart,
    read_stored_trace,
    serialise_log_events,
    serialise_spans,
    split_parts,
)
from ragmeter.kafka.span_records import (
    RECORD_BYTES,
    decode_spans,
    encode_spans,
)
from ragmeter.kafka.wire import BadRecord

from tests.kafka.otlp_bodies import rag_run, samples_spans
from tests.tables import each_row


def parts() -> list[StoredPart]:
    """Without the spans themselves: only their lines cross."""
    log = LogEvent("1" * 32, "2" * 16, SpanEvent("gen_ai.user.message", 5, {"content": "q\n"}))
    found = [*serialise_spans(samples_spans(), Counter()), *serialise_log_events([log], Counter())]
    return [one._replace(span=None) for one in found]


def test_what_crosses_the_topic_is_what_was_carried() -> None:
    record = parts()
    found = decode_spans(encode_spans(record))
    assert found == record
    spans, lost = read_stored_trace([one.line for one in found])
    assert len(spans) == len(record) - 1
    assert lost == {("logs", "no_span"): 1}


def test_a_large_message_is_several_records() -> None:
    found = parts()
    groups = list(split_parts(found, 5000))
    assert [one for group in groups for one in group] == found
    assert all(sum(one.part.size for one in group) <= 5000 or len(group) == 1 for group in groups)
    assert len(groups) > 3
    assert list(split_parts([], 5000)) == []
    assert len(list(split_parts(found, RECORD_BYTES))) == 1


GOOD = encode_spans(serialise_spans(rag_run(1, "bot"), Counter()))


@each_row(
    "data",
    [
        b"",
        b"{}",
        b"null\n",
        GOOD.replace(b'"v":1', b'"v":null'),
        GOOD.replace(b'"v":1', b'"v":"1"'),
        GOOD + b"\nS[]",
        GOOD.rpartition(b"\n")[0],
        GOOD.replace(b"0000000000000002", b"000000000000000z", 1),
        GOOD.replace(b"0000000000000002", b"00000000000002", 1),
    ],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_spans(data)


@pytest.mark.parametrize("head", [b'"v":0', b'"v":2', b'"v":3,"more":[]'])
def test_a_record_of_another_version_is_left_to_its_program(head: bytes) -> None:
    with pytest.raises(UnknownVersion):
        decode_spans(GOOD.replace(b'"v":1', head))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3))
def test_damage_costs_the_record_or_a_span_and_nothing_else(at: int, put: bytes) -> None:
    data = GOOD[:at] + put + GOOD[at + 1 :]
    try:
        found = decode_spans(data)
    except (BadRecord, UnknownVersion):
        return
    read_stored_trace([one.line for one in found])
