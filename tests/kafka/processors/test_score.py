"""What comes of a message of the traces: a record, or a dead letter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.kafka.processors import score
from ragmeter.kafka.processors.score import MessageProcessor, arrival_time
from ragmeter.kafka.score_records import ScoreRecord, decode_scores
from ragmeter.kafka.wire import BadRecord, RecordTooLarge
from ragmeter.parts.collection import document_kinds
from ragmeter.scoring import threads

from tests.kafka.messages import Processing, message
from tests.kafka.processors.test_slow_tiers import ANSWERED, JUDGE, Fake
from tests.kafka.settings import settings_of
from tests.traces import START, trace_line


def test_traces_of_a_service_go_in_one_record_with_their_offsets() -> None:
    messages = [message(trace_line(n, service="ab"[n % 2]), n) for n in range(6)]
    found = Processing().take(*messages)
    assert [one.key for one in found] == [b"a", b"b"]
    records = [decode_scores(one.value or b"") for one in found]
    assert [[one.source and one.source.offset for one in some] for some in records] == [
        [0, 2, 4],
        [1, 3, 5],
    ]
    assert records[0][1].scored.trace_id == "t2"


@pytest.mark.parametrize("judged", [False, True])
def test_threads_score_as_the_worker_does(judged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records to the byte, and the same counters, whoever scores."""
    messages = [
        message(trace_line(n, service="ab"[n % 2], tags={"tenant": "x"}), n) for n in range(80)
    ]
    messages[3].value = trace_line(3, answer="")
    messages[4].timestamp = 1000 * (START - 10_000)  # the trace is from its future
    messages[7].value = b"{"
    messages[9].value = b"{" + b"x" * 3_000_000
    messages[11].value = None
    every = document_kinds(PARTS, AgentSettings()).values()
    kinds = [kind for kind in every if not kind.topic]  # those that come among the traces
    for number, kind in enumerate(kinds, 12):  # no document is sent to a thread
        messages[number].value = json.dumps({"schema": kind.schema, "service": 3}).encode()
    tree: dict[str, Any] = {"sampling": {"builtin": 0.5, "judge": 1.0}, "segments": ["tenant"]}
    tree |= {"judge": JUDGE} if judged else {}

    def records(cores: float) -> tuple[Any, Any, int]:
        monkeypatch.setattr(threads, "usable_cores", lambda: cores)
        judge = Fake([ANSWERED]) if judged else None
        processing = Processing(settings_of(**tree), judge=judge)
        found = processing.take(*messages)
        return found, dict(processing.counters.items()), processing.ahead

    (here, counts, none), (there, same, many) = records(1), records(2)
    assert there == here
    assert same == counts
    assert (none, many) == (0, 79 - len(kinds))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RecordTooLarge.of("too much", "too_large"), "too_large"),
        (BadRecord.of("ours"), "internal_error"),
    ],
)
def test_scores_that_cannot_be_written_are_a_dead_letter_and_cost_no_other(
    monkeypatch: pytest.MonkeyPatch, error: BadRecord, reason: str
) -> None:
    encode = vars(score)["encode_scores"]

    def fails(records: list[ScoreRecord]) -> list[bytes]:
        if any(one.scored.trace_id == "t1" for one in records):
            raise error
        found: list[bytes] = encode(records)
        return found

    monkeypatch.setattr(score, "encode_scores", fails)
    processing = Processing()
    found = processing.take(*(message(trace_line(n), n) for n in range(3)))
    assert [one.headers["reason"].decode() for one in found if one.headers] == [reason]
    ids = [
        record.scored.trace_id
        for one in found
        if not one.headers
        for record in decode_scores(one.value or b"")
    ]
    assert sorted(ids) == ["t0", "t2"]
    assert processing.counters.get("ragmeter_dead_letters_total", (("reason", reason),)) == 1


def test_what_no_message_is_to_blame_for_is_no_dead_letter() -> None:
    processor: Any = object.__new__(MessageProcessor)
    with pytest.raises(MemoryError):
        MessageProcessor.give_up(processor, message(b""), MemoryError())


def test_a_producer_does_not_say_that_its_trace_came_tomorrow() -> None:
    at = message(b"", timestamp=5_000_000, timestamp_type=0)
    assert arrival_time(at, 100.0) == 100.0, "its clock, as that of the trace"
    assert arrival_time(at, 9000.0) == 5000.0
    at.timestamp_type = 1
    assert arrival_time(at, 100.0) == 5000.0, "the clock of the broker"
    assert arrival_time(message(b"", timestamp=None), 100.0) is None
