"""The owner of open traces reads records of spans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from aiokafka import TopicPartition
from ragmeter.core.counters import Counters
from ragmeter.kafka.origins import ORIGIN_HEADER, Origin
from ragmeter.kafka.owners import OutRecord
from ragmeter.kafka.processors.delivery import DeadLetterTopic, TracePreparer
from ragmeter.kafka.processors.otlp import AssembleOwner
from ragmeter.kafka.span_records import encode_spans

from tests.kafka.messages import message
from tests.kafka.settings import settings_of
from tests.kafka.state.open_spans import span
from tests.kafka.state.partition import Owned


def test_a_record_that_is_sent_again_has_no_spans_and_is_no_second_letter() -> None:
    settings = settings_of()
    counters = Counters()
    dead = DeadLetterTopic("rag.dead", TracePreparer(settings, counters), counters)
    parts = SimpleNamespace(settings=settings, dead=dead)
    tp = TopicPartition("rag.spans", 0)
    owner = AssembleOwner(cast(Any, parts), cast(Any, Owned()), tp)
    letters: list[OutRecord] = []
    for number, value in enumerate([encode_spans([span(1, 0)]), b"no record"]):
        origin = Origin("rag.traces", 0, 1, 0, number).encode()
        again = [message(value, number, headers=[(ORIGIN_HEADER, origin)]) for _ in range(2)]
        assert [len(owner._decode(one, letters)) for one in again] == [number == 0, 0]
    assert len(letters) == 1
