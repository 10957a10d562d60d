"""Records that a topic refuses as too large: their messages become dead letters, no other does."""

from __future__ import annotations

from collections import Counter

import pytest
from ragmeter.core.counters import Counters
from ragmeter.kafka import owners
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.score import ScoreOwner
from ragmeter.kafka.score_records import decode_scores

from tests.kafka.messages import message
from tests.kafka.processors.score_stage import DEAD, Group, feed, run_owner
from tests.kafka.test_transactions import until
from tests.traces import trace_line

MESSAGES = 40
FAT = b"fat"  # a trace with it in its id has scores that are refused


class Refusing(Group):
    """Of a broker that refuses scores of fat traces, and letters of `largest_letter` bytes."""

    largest_letter = 100_000

    def refuses(self, record: OutRecord) -> bool:
        value = record.value or b""
        return len(value) > self.largest_letter if record.topic == DEAD else FAT in value


def test_a_refused_record_blames_itself_and_not_its_batch() -> None:
    values = [trace_line(number, service="ab"[number % 2]) for number in range(MESSAGES)]
    values[7] = trace_line(7, trace_id="fat 7", service="b")
    values[8] = trace_line(8, trace_id="fat 8", service="a")
    values[9] = b"{" + b"x" * 200_000  # its letter is refused until it has no body
    counters = Counters()
    group = Refusing()
    run_owner(group, lambda owner: feed(owner, values), counters=counters)
    letters = [bytes(one.value or b"") for one in group.sent if one.topic == DEAD]
    assert sorted(letters) == sorted([b"", *values[7:9]])
    scored = Counter(
        one.scored.trace_id
        for record in group.sent
        if record.topic != DEAD
        for one in decode_scores(record.value or b"")
    )
    assert scored == Counter({f"t{n}" for n in range(MESSAGES)} - {"t7", "t8", "t9"})
    assert counters.get("ragmeter_dead_letters_total", (("reason", "too_large"),)) == 2
    assert counters.get("ragmeter_dead_letters_total", (("reason", "invalid_json"),)) == 1
    assert group.begun == 1, "nobody begins again, and no judge is asked twice"
    # all; what shared a record with a fat trace, and the letter without its body; two letters
    assert group.requests == 3


def test_a_letter_that_no_topic_takes_is_tried_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners, "_FIRST_PAUSE", 0.01)
    group = Refusing()
    group.largest_letter = -1

    async def story(owner: ScoreOwner) -> None:
        await until(lambda: owner.ready)
        owner.put(message(b"{", 0))
        await until(lambda: group.begun == 2)

    run_owner(group, story)
    assert group.sent == []
    assert group.failed == []
