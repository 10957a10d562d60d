"""The score stage sends at least once, and says of each record where it comes from."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.app.parts import AgentSettings
from ragmeter.kafka import owners
from ragmeter.kafka.origins import SourceMarks
from ragmeter.kafka.processors.score import MessageProcessor, ScoreOwner
from ragmeter.kafka.score_records import decode_scores

from tests.kafka.messages import message
from tests.kafka.otlp_bodies import as_proto, rag_run
from tests.kafka.processors.score_stage import DEAD, Group, feed, run_owner
from tests.kafka.test_transactions import until
from tests.traces import START, trace_line

LABEL = json.dumps(
    {"trace_id": "t", "service": "bot", "timestamp": START, "answer": {"helpful": True}}
).encode()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_FIRST_PAUSE", 0.01)


def lines(count: int) -> list[bytes]:
    return [trace_line(number, service="abc"[number % 3]) for number in range(count)]


def counted(group: Group) -> Counter[str]:
    """As the owners of the scores count what was sent, as if of one partition."""
    found = Counter[str]()
    marks = SourceMarks()
    records = [one for one in group.sent if one.topic != DEAD]
    for record, origin in zip(records, group.origins, strict=True):
        for one in decode_scores(record.value or b""):
            assert one.source is not None
            if marks.take(origin, one.source.offset):
                found[one.scored.trace_id] += 1
    return found


def test_a_record_says_what_was_acknowledged_when_it_was_sent() -> None:
    """Not more: what is sent again would be taken for what a partition has had."""
    group = Group(3, "7")

    async def story(owner: ScoreOwner) -> None:
        await feed(owner, lines(2), 3)
        await feed(owner, lines(2), 9)  # offsets have holes

    run_owner(group, story)
    notified = [(one.epoch, one.first, one.offset) for one in group.origins if one]
    assert notified == [(7, 3, 3), (7, 3, 4), (7, 5, 9), (7, 5, 10)]


def test_nothing_is_done_before_it_is_acknowledged() -> None:
    group = Group()
    group.fails = [KafkaConnectionError()]

    async def story(owner: ScoreOwner) -> None:
        await until(lambda: owner.ready)
        owner.put(message(trace_line(0), 0))
        await until(lambda: group.begun == 2 and owner.ready)
        assert (owner.position, group.committed) == (0, 0)
        await feed(owner, lines(3))

    run_owner(group, story)


def test_a_batch_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record says, when it is sent, that all before it is acknowledged."""
    handle = MessageProcessor.handle
    group = Group()

    async def story(owner: ScoreOwner) -> None:
        done = asyncio.Event()

        async def wait(processor: MessageProcessor, one: Any) -> Any:
            await done.wait()
            return handle(processor, one)

        def late(processor: MessageProcessor, one: Any, *scores: Any) -> Any:
            return handle(processor, one, *scores) if one.offset else wait(processor, one)

        monkeypatch.setattr(MessageProcessor, "handle", late)
        await until(lambda: owner.ready)
        owner.put(message(trace_line(0), 0))
        await until(lambda: len(owner._running) == 1)
        owner.put(message(trace_line(1), 1))
        await until(lambda: len(owner._running) == 2)
        owner._moved.set()
        await asyncio.sleep(0.05)
        assert (group.sent, owner.position) == ([], 0)
        done.set()
        await until(lambda: owner.position == 2)

    run_owner(group, story)
    assert counted(group) == Counter({"t0": 1, "t1": 1})


def test_what_was_written_before_a_failure_counts_once() -> None:
    group = Group()
    group.fails = [KafkaConnectionError(), TimeoutError()]
    values = lines(30)

    async def story(owner: ScoreOwner) -> None:
        for turn in (1, 2):
            await until(lambda: owner.ready and group.begun == turn)  # noqa: B023
            for offset, value in enumerate(values[: 10 * turn]):
                owner.put(message(value, offset))
            await until(lambda: group.begun == turn + 1)  # noqa: B023
        await feed(owner, values)

    run_owner(group, story)
    assert sum(len(decode_scores(one.value or b"")) for one in group.sent) > 30
    assert counted(group) == Counter({f"t{number}": 1 for number in range(30)})


def test_an_owner_sends_nothing_before_the_group_knows_how_it_reads() -> None:
    """Else another would read in an epoch of its own, and all would count twice."""
    group = Group(None, "")
    group.rebalances = 2

    async def story(owner: ScoreOwner) -> None:
        await feed(owner, lines(3))

    run_owner(group, story)
    assert group.rebalances == 0
    assert {str(one.epoch) for one in group.origins if one} == {group.note}


@pytest.mark.parametrize(("committed", "note"), [(None, ""), (0, "")])
def test_a_partition_without_a_known_epoch_is_read_in_a_new_one(
    committed: int | None, note: str
) -> None:
    """Its group was deleted, or somebody has moved its offset."""
    group = Group(committed, note)
    run_owner(group, lambda owner: feed(owner, lines(1)))
    (origin,) = group.origins
    assert origin is not None
    assert origin.epoch > 1_700_000_000_000
    assert group.note == str(origin.epoch), "the next owner reads on in it"


def test_a_topic_that_was_made_anew_is_read_in_a_new_epoch() -> None:
    group = Group(5000, "12", end=3)
    run_owner(group, lambda owner: feed(owner, lines(3)))
    assert group.note != "12"
    assert [one.epoch > 12 for one in group.origins if one] == [True] * 3
    assert [one.first for one in group.origins if one] == [0] * 3


def test_every_record_of_a_message_has_an_origin_of_its_own() -> None:
    """Spans, of which one message may become several records, and labels."""
    group = Group()
    settings = AgentSettings.model_validate({"limits": {"trace_bytes": 20_000}})
    spans = [span for number in range(300) for span in rag_run(number, "bot")]

    async def story(owner: ScoreOwner) -> None:
        await until(lambda: owner.ready)
        owner.put(message(as_proto(spans[: len(spans) // 2]), 4))
        owner.put(message(LABEL, 5, topic="rag.feedback"))
        owner.put(message(LABEL, 6, topic="rag.feedback"))
        owner.put(message(as_proto(spans[len(spans) // 2 :]), 7))
        await until(lambda: owner.position == 8)

    run_owner(group, story, settings=settings)
    assert [one.value for one in group.sent if one.topic == DEAD] == []
    assert len({one.partition for one in group.sent if one.topic == "rag.spans"}) == 8
    assert len(group.sent) > 2 * 8 + 2, "more than one of some message for some partition"
    marks = SourceMarks()
    assert {marks.take(one) for one in group.origins} == {True}
    assert {marks.take(one) for one in group.origins} == {False}


def test_scores_are_handed_on_when_they_are_acknowledged() -> None:
    log: list[Any] = []
    outputs = AgentOutputs(
        on_results=lambda done: log.append([trace.trace_id for trace, _ in done]),
        on_scores=lambda traces: log.append([trace.trace_id for trace in traces]),
    )
    group = Group()
    group.fails = [KafkaConnectionError()]
    values = [trace_line(1), b"garbage"]

    async def story(owner: ScoreOwner) -> None:
        await until(lambda: owner.ready)
        for offset, value in enumerate(values):
            owner.put(message(value, offset))
        await until(lambda: group.begun == 2)
        assert log == []
        await feed(owner, values)

    run_owner(group, story, outputs=outputs)
    assert log == [["t1"], ["t1"]]
