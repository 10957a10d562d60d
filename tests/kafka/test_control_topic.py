"""What the halves tell each other; the topic is a list here, a real one in test_evidence_worker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ragmeter.config.settings import Settings
from ragmeter.kafka.control_topic import ControlPublisher, ControlRecords, _take_in, encode_control
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import StratumClassifier
from tests.kafka.state.partition import apply, record, state_of
from tests.traces import START, make_trace

ONE = SamplingControl(3, {"bot": {"m": 0.25}}, {"bot": {"": 5.0, "model=x": 7.5}}, {"bot": ["t=a"]})
TWO = SamplingControl(9, {}, {"shop": {"": 1.0}}, {"shop": ["t=b"]})


def records_of(*messages: tuple[bytes | None, bytes | None]) -> ControlRecords:
    records = ControlRecords(4)
    for message in messages:
        assert records.put(*message)
    return records


def test_every_number_survives_and_partitions_are_one() -> None:
    records = records_of((b"0", encode_control(ONE)), (b"3", encode_control(TWO)))
    found = records.control
    assert found.low == ONE.low
    assert found.first == {**ONE.first, **TWO.first}
    assert found.rare == {"bot": ["t=a"], "shop": ["t=b"]}
    assert (records.version(0), records.version(3), records.version(1)) == (3, 9, 0)


def test_the_last_of_a_partition_holds_and_a_repetition_changes_nothing() -> None:
    older = SamplingControl(2, {}, {}, {"bot": ["t=old"]})
    records = records_of((b"0", encode_control(older)), (b"0", encode_control(ONE)))
    records.put(b"0", encode_control(ONE))
    assert records.control == SamplingControl(3, ONE.low, ONE.first, ONE.rare)
    records.put(b"0", None)
    assert records.control == SamplingControl()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, encode_control(ONE)),
        (b"x", encode_control(ONE)),
        (b"4", encode_control(ONE)),  # there are four partitions
        (b"-1", encode_control(ONE)),
        (b"0", b""),
        (b"0", b"{"),
        (b"0", b"[]"),
        (b"0", b'{"v":1}'),
        (b"0", b'{"v":1,"control":{"version":1,"low":{"bot":3}}}'),
        (b"0", encode_control(ONE).replace(b'"v":1', b'"v":2')),
    ],
)
def test_garbage_changes_nothing(key: bytes | None, value: bytes) -> None:
    records = records_of((b"0", encode_control(TWO)))
    learned: list[SamplingControl] = []
    _take_in(records, [SimpleNamespace(key=key, value=value)], learned.append)
    assert not learned
    assert records.control.first == TWO.first


class Topic:
    """Fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sent: list[tuple[bytes, bytes]] = []

    async def send(self, key: bytes, value: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        self.sent.append((key, value))


def said(
    topic: Topic, records: ControlRecords, *controls: SamplingControl
) -> list[tuple[bytes, bytes]]:
    async def go() -> None:
        publisher = ControlPublisher(records, topic.send, pause=0.01, retry=0.01)
        task = asyncio.create_task(publisher.run())
        for control in controls:
            publisher.publish(2, control)
        await asyncio.sleep(0.1)
        for control in controls[-1:]:
            publisher.publish(2, control)  # no news
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()

    asyncio.run(go())
    return topic.sent


def test_only_the_newest_is_sent_and_only_once() -> None:
    assert said(Topic(), ControlRecords(4), TWO, ONE) == [(b"2", encode_control(ONE))]


def test_what_the_owner_before_has_said_is_not_said_again() -> None:
    assert said(Topic(), records_of((b"2", encode_control(ONE))), ONE) == []


def test_nothing_learned_is_nothing_to_say() -> None:
    assert said(Topic(), ControlRecords(4), SamplingControl()) == []


def test_what_could_not_be_sent_is_sent_later() -> None:
    assert said(Topic(failures=3), ControlRecords(4), ONE) == [(b"2", encode_control(ONE))]


def test_a_rare_segment_is_known_to_a_score_half_elsewhere() -> None:
    settings = Settings.model_validate({"segments": ["tenant"]})
    state = state_of(settings)
    for n in range(650):
        tenant = "small" if n % 100 == 0 else "big"
        apply(state, [record(n, timestamp=START + 6 * n, tags={"tenant": tenant})])
    records = records_of((b"1", encode_control(state.control)))
    strata = StratumClassifier(settings.sampling, settings.segments)
    trace = make_trace(1, tags={"tenant": "small"})
    assert strata.classify(trace, [], START + 6000).name == "rest"
    strata.apply_control(records.control)
    assert strata.classify(trace, [], START + 6000).name == "rare"
    assert strata.classify(make_trace(2, tags={"tenant": "big"}), [], START + 6000).name == "rest"
