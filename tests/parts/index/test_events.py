from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic import TypeAdapter
from ragmeter.ingest.native import BodyLimitExceeded, DecodeFailure
from ragmeter.parts.index.events import (
    MAX_BYTES,
    MAX_EVENTS,
    IndexEvent,
    TokenStatistics,
    decode_index_event,
    decode_index_events,
)
from ragmeter.parts.index.part import IndexPart

from tests.parts.index.samples import event_dict, event_line
from tests.tables import each_row
from tests.traces import trace_line

KIND = IndexPart.documents


def why(**changes: Any) -> tuple[str, str]:
    found = decode_index_event(event_line(**changes))
    assert isinstance(found, DecodeFailure), found
    return found.reason, str(found.errors)


def test_tokens_may_be_a_list_or_counts() -> None:
    listed = decode_index_event(event_line(tokens_per_chunk=[7] * 30 + [9] * 60))
    counted = decode_index_event(event_line(tokens_per_chunk={"7": 30, "9": 60}))
    assert isinstance(listed, IndexEvent)
    assert isinstance(counted, IndexEvent)
    assert listed.tokens == counted.tokens
    assert (listed.tokens.number, listed.tokens.total) == (90, 750)


@each_row(
    ("changes", "says"),
    [
        ({"event_id": None}, "event_id"),
        ({"event_id": "x" * 600}, "event_id"),
        ({"index_version": ""}, "index_version"),
        ({"documents": {"processed": 1, "no_chunks": 2}}, "without chunks"),
        ({"documents": {"processed": 1}}, "documents.no_chunks"),
        ({"documents": {"processed": True, "no_chunks": 0}}, "documents.processed"),
        ({"documents": {"processed": 1, "no_chunks": 0, "no_chunk": 1}}, "documents.no_chunk"),
        ({"documents": {"processed": 1, "no_chunks": 0, "by_type": {"pdf": 1}}}, "by_type.pdf"),
        (
            {
                "documents": {
                    "processed": 1,
                    "no_chunks": 0,
                    "by_type": {"pdf": {"processed": 2, "no_chunks": 0}},
                }
            },
            "by_type does not fit",
        ),
        (
            {
                "documents": {
                    "processed": 4,
                    "no_chunks": 2,
                    "by_type": {"pdf": {"processed": 3, "no_chunks": 0}},
                }
            },
            "by_type does not fit",
        ),
        ({"chunks": {"attempted": 9, "embedded": 9, "skiped": {"a": 1}}}, "chunks.skiped"),
        ({"chunks": {"attempted": 9, "embedded": 9, "skipped": {"a": 1}}}, "than were attempted"),
        ({"chunks": {"attempted": -1, "embedded": 0}}, "chunks.attempted"),
        ({"chunks": {"attempted": 1e300, "embedded": 0}}, "chunks.attempted"),
        ({"documents": None, "chunks": None, "tokens_per_chunk": None}, "documents or chunks"),
        ({"tokens_per_chunk": [1] * 101}, "tokens_per_chunk"),
        ({"tokens_per_chunk": [1.5]}, "whole numbers"),
        ({"tokens_per_chunk": [True]}, "whole numbers"),
        ({"tokens_per_chunk": [[[]]]}, "whole numbers"),
        ({"tokens_per_chunk": {"many": 1}}, "tokens_per_chunk"),
        ({"tokens_per_chunk": [10**9]}, "tokens_per_chunk"),
        ({"timestamp": 9e99}, "timestamp"),
        ({"schema": "ragmeter.index/2"}, "ragmeter.index/1"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_place(changes: dict[str, Any], says: str) -> None:
    reason, errors = why(**changes)
    assert reason == "invalid_index_event"
    assert says in errors


def test_what_is_too_large_is_not_parsed() -> None:
    assert why(chunker="x" * MAX_BYTES)[0] == "too_large"
    assert why(tokens_per_chunk=[1] * 160_000)[0] == "too_large"


def test_a_body_may_be_one_object_an_array_or_lines() -> None:
    one, two = event_line(1), event_line(2)
    bodies = (
        one + b"\n" + two,
        b"[" + one + b"," + two + b"]",
        b"\xef\xbb\xbf" + one + b"\r\n\n" + two + b"\n",
    )
    for body in bodies:
        ids = [item.event_id for item in decode_index_events(body) if isinstance(item, IndexEvent)]
        assert ids == ["run-1", "run-2"]
    (alone,) = decode_index_events(json.dumps(event_dict(), indent=2).encode())
    assert isinstance(alone, IndexEvent)


def test_a_broken_line_costs_no_other() -> None:
    found = list(decode_index_events(event_line(1) + b"\n{broken\n[]\n" + event_line(2)))
    names = [item.reason if isinstance(item, DecodeFailure) else item.event_id for item in found]
    assert names == ["run-1", "invalid_json", "invalid_index_event", "run-2"]


def test_bodies_without_an_event() -> None:
    for body, reason in (
        (b"", "empty"),
        (b"\xff\xfe{", "invalid_json"),
        (b"7", "invalid_index_event"),
    ):
        (bad,) = decode_index_events(body)
        assert isinstance(bad, DecodeFailure)
        assert bad.reason == reason


def test_a_body_of_too_many_events_is_refused_whole() -> None:
    with pytest.raises(BodyLimitExceeded):
        list(decode_index_events(b"\n".join([event_line()] * (MAX_EVENTS + 1))))
    with pytest.raises(BodyLimitExceeded):
        list(decode_index_events(b"[" + b"{}," * MAX_EVENTS + b"{}]"))


def test_hostile_bytes_raise_nothing_else() -> None:
    draw = random.Random(8)
    sound = event_line()
    for _ in range(300):
        body = bytearray(sound)
        for _ in range(draw.randint(1, 6)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        for item in decode_index_events(bytes(body)):
            assert isinstance(item, DecodeFailure | IndexEvent)
    for odd in (b"[" * 100_000, b'{"chunks":' * 50_000, b"\0" * 1000):
        assert all(isinstance(item, DecodeFailure) for item in decode_index_events(odd))


def test_only_a_message_that_says_so_is_meant_as_an_event() -> None:
    assert KIND.matches(event_line())
    assert KIND.matches(event_line(schema="ragmeter.index/9"))
    assert not KIND.matches(trace_line(1, answer='"schema": "ragmeter.index/1"'))
    assert not KIND.matches(b'["ragmeter.index/1"]')
    assert not KIND.matches(b"ragmeter.index/1")


def test_quantiles_by_hand_and_within_one_percent() -> None:
    tokens = TokenStatistics.of({10: 5, 400: 75, 500: 20})
    assert (tokens.smallest, tokens.largest, tokens.number) == (10, 500, 100)
    assert tokens.mean == (10 * 5 + 400 * 75 + 500 * 20) / 100
    assert tokens.quantile(0.05) == 10
    assert tokens.quantile(0.5) == pytest.approx(400, rel=0.01)
    assert tokens.quantile(0.8) == pytest.approx(400, rel=0.01)
    assert tokens.quantile(0.81) == pytest.approx(500, rel=0.01)
    assert TokenStatistics.of({}).quantile(0.5) is None
    assert TokenStatistics.of({3: 0}) == TokenStatistics()


def test_adding_up_is_the_same_as_counting_at_once() -> None:
    draw = random.Random(3)
    values = [draw.randint(0, 9000) for _ in range(3000)]
    whole = TokenStatistics.of({v: values.count(v) for v in values})
    parts = TokenStatistics()
    saved = TypeAdapter(TokenStatistics)
    for at in range(0, 3000, 100):
        part = values[at : at + 100]
        parts.add(TokenStatistics.of({v: part.count(v) for v in part}))
    assert parts == whole == saved.validate_json(saved.dump_json(whole))
    for level in (0.01, 0.5, 0.95, 0.99):
        exact = sorted(values)[int(level * 3000) - 1]
        assert whole.quantile(level) == pytest.approx(exact, rel=0.011, abs=1)
