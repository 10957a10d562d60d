"""OTLP on Kafka against a real broker: traces are put together as the embedded agent does it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.config.inputs import OtlpSettings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.span_batches import SpanBatch
from ragmeter.ingest.spans import Span
from ragmeter.ingest.stored_spans import serialise_spans
from ragmeter.trace import Trace
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.kafka.cluster import SERVICES, SETTINGS, Worker, quality, traffic, workers
from tests.kafka.otlp_bodies import (
    as_json,
    as_proto,
    expected_natives,
    rag_run,
    samples_spans,
    spread,
)
from tests.kafka.place import Place
from tests.kafka.processors.test_otlp_redaction import streamed
from tests.kafka_server import KafkaServer
from tests.samples import samples
from tests.traces import trace_line
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow]

OTLP = {"grace_seconds": 1, "idle_seconds": 20}
TREE: dict[str, Any] = {**SETTINGS, "otlp": OTLP}


def send(
    place: Place, batches: Sequence[tuple[bytes | None, list[Span]]], pause: float = 0
) -> None:
    """In both encodings, one after the other."""
    producer = KafkaProducer(bootstrap_servers=place.server.bootstrap, acks="all")
    for number, (key, spans) in enumerate(batches):
        producer.send(place.traces, (as_json if number % 2 else as_proto)(spans), key)
        time.sleep(pause)
    producer.flush(30)
    producer.close(timeout=5)


def natives(place: Place) -> list[Trace]:
    """What was put together, as often as it is in the topic of the traces."""
    return [
        Trace.model_validate_json(record.value)
        for record in place.records(place.traces)
        if dict(record.headers).get("encoding") == b"native"
    ]


def embedded(folder: Path, spans: Sequence[Span]) -> dict[str, float]:
    """What the embedded agent exports for the same spans."""
    state = {"path": str(folder / "state.db")}
    settings = AgentSettings.model_validate({**TREE, "otlp": {"grace_seconds": 0}, "state": state})
    running = EmbeddedAgent(settings, load_configured_rules(settings), live=False, parts=PARTS)
    running.assembly.accept([SpanBatch("traces", serialise_spans(spans, Counter()))])
    running.start()
    try:
        until(lambda: running.assembly.gauges()[0][2] == 0)
        running.wait_idle()
        exporter = PrometheusExporter(running)
        text = (exporter.render() + exporter.render_detail()).decode()
    finally:
        running.stop(10)
    return quality(samples(text))


def otlp_counts(worker: Worker) -> Counter[str]:
    """What a worker counts of OTLP."""
    found: Counter[str] = Counter()
    for name, value in worker.metrics().items():
        if name.startswith("ragmeter_otlp"):
            found[name.removeprefix("ragmeter_otlp_")] += int(value)
    return +found


def received(worker: Worker) -> float:
    """Native traces that were scored; some of the samples are months apart, and count as late."""
    return worker.metrics().get('ragmeter_traces_received_total{source="kafka"}', 0)


def of_id(traces: Sequence[Trace]) -> dict[str, Trace]:
    return {trace.trace_id: trace for trace in traces}


def test_bodies_of_the_collector_become_the_traces_that_the_embedded_agent_reads(
    place: Place, tmp_path: Path
) -> None:
    real = samples_spans()
    runs = [rag_run(n, SERVICES[n % len(SERVICES)]) for n in range(60)]
    made = [span for run in runs for span in run]
    wanted = of_id(expected_natives([*real, *made], OtlpSettings()))
    worker = place.worker(settings=TREE)
    with workers(worker):
        until(lambda: worker.ready)
        batches = spread([real, *runs], random.Random(1), by_id=False)
        bad = [b"\n\x05oops", b'{"resourceSpans": [{]}', b"\x00", b'{"no": "trace"}']
        producer = KafkaProducer(bootstrap_servers=place.server.bootstrap, acks="all")
        for body in bad:
            producer.send(place.traces, body)
        producer.close()
        send(place, batches)
        send(place, batches[:5])  # a Collector that got no answer sends again
        until(lambda: received(worker) >= len(wanted))
        until(lambda: otlp_counts(worker)["open_traces"] == 0)
        found = natives(place)
        assert of_id(found) == wanted
        assert len(found) == len(wanted)
        counts = otlp_counts(worker)
        repeated = sum(len(spans) for _, spans in batches[:5])
        assert counts['spans_total{signal="traces",result="accepted"}'] == len(real) + len(made)
        again = ("duplicate", "late")
        assert repeated == sum(
            counts[f'spans_total{{signal="traces",result="{result}"}}'] for result in again
        )
        assert sorted(letter.value for letter in place.letters()) == sorted(bad)
        # what is native goes on beside it
        extra = found[0].model_copy(update={"trace_id": "by-hand"})
        producer = KafkaProducer(bootstrap_servers=place.server.bootstrap, acks="all")
        producer.send(place.traces, extra.model_dump_json(exclude_none=True).encode())
        producer.close()
        until(lambda: received(worker) == len(wanted) + 1)
        assert worker.stop() == 0, worker.log


def test_two_workers_one_of_which_is_killed_put_each_trace_together_once(
    place: Place, tmp_path: Path
) -> None:
    runs = [rag_run(n, SERVICES[n % len(SERVICES)]) for n in range(240)]
    spans = [span for run in runs for span in run]
    # roots last and the same partition for all of a trace: none is late whatever stands still
    batches = spread(runs, random.Random(2), by_id=True)
    pair = [place.worker(name, settings=TREE, in_flight=16) for name in "ab"]
    with workers(*pair):
        until(lambda: all(worker.ready for worker in pair))
        sending = threading.Thread(target=send, args=(place, batches, 0.02))
        sending.start()
        until(lambda: sum(worker.traces() for worker in pair) >= 40)
        assert sending.is_alive(), "the kill comes too late to show anything"
        pair[0].kill()
        expected = embedded(tmp_path, spans)  # while the group waits for the one that is dead
        sending.join()
        until(lambda: pair[1].traces() >= len(runs))
        time.sleep(2)  # what would be counted twice comes now
        found = quality(pair[1].metrics())
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        counts = otlp_counts(pair[1])
        assert counts['spans_total{signal="traces",result="accepted"}'] == len(spans)
        assert counts['traces_total{result="root"}'] == len(runs)
        assert counts["open_traces"] == 0
    sent = natives(place)
    assert of_id(sent) == of_id(expected_natives(spans, OtlpSettings()))
    # what was sent twice around the kill is the same, and was counted once
    texts = Counter(json.dumps(trace.model_dump(mode="json"), sort_keys=True) for trace in sent)
    assert len(texts) == len(runs)


def test_readers_wait_a_minute_at_most_for_who_is_killed_within_its_transaction(
    place: Place,
) -> None:
    """The traces that it had sent are whole afterwards, each once."""
    runs = [rag_run(n, "bot") for n in range(8)]
    torn = place.worker("a", odd="torn", settings=TREE)
    other = place.worker("b", settings=TREE)
    with workers(torn):
        until(lambda: torn.ready)
        send(place, [(None, run) for run in runs])
        until(lambda: "within a transaction" in torn.log)
        with workers(other):
            until(lambda: other.get("/healthz"))
            torn.kill()
            killed = time.monotonic()
            place.produce([trace_line(n, service="shop") for n in range(20)])
            until(lambda: other.traces() >= 20 + len(runs))
            held = time.monotonic() - killed
            assert held < 60, "the timeout of a transaction"
            assert other.traces() == 20 + len(runs)
    assert len(natives(place)) == len(runs)


def test_without_otlp_no_topics_for_spans_are_needed(broker: KafkaServer, tmp_path: Path) -> None:
    place = Place(broker, tmp_path, traces_encoding="native")
    assert not [topic for topic in place.topics() if "spans" in topic]
    worker = place.worker(settings=TREE)
    body = as_proto(rag_run(1, "bot"))
    with workers(worker):
        until(lambda: worker.ready)
        place.produce([*traffic(20), body])
        until(lambda: worker.traces() == 19)  # one of them is no JSON
        assert body in {letter.value for letter in place.letters()}


def test_no_topic_holds_what_the_rules_hide_once_a_stream_is_put_together(place: Place) -> None:
    worker = place.worker(settings={**TREE, "privacy": {"redact": ["email"]}})
    with workers(worker):
        until(lambda: worker.ready)
        send(place, [(None, streamed().spans)])
        until(lambda: bool(natives(place)))
    assert [trace.answer for trace in natives(place)] == ["Write to [email]."]
