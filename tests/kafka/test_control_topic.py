"""What the halves tell each other; the topic is a list here, a real one in test_evidence_worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from confluent_kafka import Producer
from ragmeter.app.settings import load_settings
from ragmeter.kafka.control_topic import ControlListener, ControlRecords, _take_in, encode_control
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import StratumClassifier

from tests.kafka.state.partition import apply, record, state_of
from tests.kafka.test_transactions import until
from tests.tables import each_row
from tests.traces import START, make_trace
from tests.waiting import PATIENCE

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
    assert found.version == 12


def test_the_last_of_a_partition_holds_and_a_repetition_changes_nothing() -> None:
    older = SamplingControl(2, {}, {}, {"bot": ["t=old"]})
    records = records_of((b"0", encode_control(older)), (b"0", encode_control(ONE)))
    records.put(b"0", encode_control(ONE))
    assert records.control == SamplingControl(3, ONE.low, ONE.first, ONE.rare)
    records.put(b"0", None)
    assert records.control == SamplingControl()


@each_row(
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


def test_a_rare_segment_is_known_to_a_score_half_elsewhere() -> None:
    settings = load_settings(environ={}, overrides={"segments": ["tenant"]})
    state = state_of(settings)
    records = [
        record(n, timestamp=START + 6 * n, tags={"tenant": "big" if n % 100 else "small"})
        for n in range(650)
    ]
    for first in range(0, len(records), 10):
        apply(state, records[first : first + 10])
    sent = records_of((b"1", encode_control(state.control)))
    strata = StratumClassifier(settings.segments)
    trace = make_trace(1, tags={"tenant": "small"})
    assert strata.classify(trace, [], START + 6000).name == "rest"
    strata.apply_control(sent.control)
    assert strata.classify(trace, [], START + 6000).name == "rare"
    assert strata.classify(make_trace(2, tags={"tenant": "big"}), [], START + 6000).name == "rest"


def test_every_worker_reads_the_whole_topic_and_goes_on(tmp_path: Path) -> None:
    """On a broker of librdkafka, in this process."""
    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
    (broker,) = producer.list_topics(timeout=PATIENCE).brokers.values()
    servers = [f"{broker.host}:{broker.port}"]
    kafka = load_settings(environ={}, overrides={"kafka": {"bootstrap_servers": servers}}).kafka

    def send(control: SamplingControl, key: bytes) -> None:
        producer.produce(kafka.topics.control, encode_control(control), key, partition=0)
        assert not producer.flush(PATIENCE)

    async def go() -> None:
        known = [ControlRecords(4), ControlRecords(4)]
        learned: list[SamplingControl] = []
        send(ONE, b"0")
        listening = [
            asyncio.create_task(ControlListener(kafka, one, learned.append, tmp_path).run())
            for one in known
        ]
        await until(lambda: all(one.control.version == 3 for one in known))
        await asyncio.to_thread(send, TWO, b"1")
        await until(lambda: all(one.control.version == 12 for one in known))
        assert len(learned) == 4
        for one in listening:
            one.cancel()
        await asyncio.wait(listening)

    asyncio.run(go())
