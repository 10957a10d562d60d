"""What a chaos run must have come to: what the broker took, and the embedded agent's result of it.

The two sides share the pure halves (scoring, windows, rules), and nothing of Kafka, Faust, steps,
guards and recovery.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.parts.contract import Document
from ragmeter.parts.labels.documents import DOCUMENTS
from ragmeter_exporters.prometheus import PrometheusExporter
from ragmeter_exporters.senders import AlertSenders

from tests.chaos.comparison import unlike
from tests.chaos.kafka.traffic import BURST, FEEDBACK, TRACES, labels, messages
from tests.chaos.kafka.webhook import Received
from tests.kafka.cluster import quality
from tests.samples import samples

__all__ = ["Log", "Oracle", "differences", "embedded", "read_log"]

LIMIT = 2**20
BATCH = 2000
Alarms = Counter[tuple[str, str, str]]
Where = tuple[str, int, int]
"""(topic, partition, offset)"""

PLAIN: tuple[str, ...] = (
    "ragmeter_results_total",
    "ragmeter_accounting_mismatch",
    "ragmeter_alerts_firing",
)
PLAIN += ("ragmeter_label_overflow_total", "ragmeter_alerts_refused")


@dataclass
class Oracle:
    """The embedded agent's export and notifications for a run's traces, each once."""

    samples: dict[str, float]
    alarms: Alarms
    ids: set[str]


@dataclass
class Log:
    """The broker has taken these: good ids and labels with how often each, poison by place."""

    good: Counter[str] = field(default_factory=Counter)
    labels: Counter[bytes] = field(default_factory=Counter)
    poison: dict[Where, bytes] = field(default_factory=dict)
    dead: list[tuple[Where, bytes]] = field(default_factory=list)

    @property
    def duplicates(self) -> int:
        return sum(self.good.values()) - len(self.good)


def embedded(total: int, seed: int, settings: Mapping[str, Any]) -> Oracle:
    """A replay of the same traffic without Kafka. Its outbox is read and never sent."""
    with tempfile.TemporaryDirectory() as folder:
        state = {"path": f"{folder}/state.db"}
        parsed = AgentSettings.model_validate({**settings, "state": state})
        senders = AlertSenders(parsed.alerts)
        running = EmbeddedAgent(
            parsed,
            load_configured_rules(parsed),
            live=False,
            outputs=AgentOutputs(senders.notify),
            parts=PARTS,
        )
        running.start()
        ids = set()
        try:
            lines = [body for number, body in messages(total, seed) if number >= 0]
            for first in range(0, len(lines), BATCH):
                batch = [decode_trace(line or b"", LIMIT) for line in lines[first : first + BATCH]]
                ids |= {
                    item.trace.trace_id for item in batch if not isinstance(item, DecodeFailure)
                }
                numbered = list(zip(batch, range(first, first + len(batch)), strict=True))
                running.accept(numbered, "chaos", written=set())
                running.wait_idle()
            running.receive("labels", _good_labels(total, seed), "chaos")
            exporter = PrometheusExporter(running)
            text = (exporter.render() + exporter.render_detail()).decode()
            # one of a key at a time
            received = Received()
            while items := running.outbox.due(2e12, 100):
                for item in items:
                    received.take(json.loads(item.body))
                    running.outbox.done(item.id)
        finally:
            running.stop(10)
    return Oracle(samples(text), received.fired(), ids)


def _good_labels(total: int, seed: int) -> list[Document]:
    sent = [body for _, bodies in sorted(labels(total, seed).items()) for body in bodies]
    return [one for body in sent if (one := _read_label(body)) is not None]


def _read_label(body: bytes | None) -> Document | None:
    """None for what no worker can send on: over Kafka a label names its service."""
    found = DOCUMENTS.decode(body or b"")
    return None if isinstance(found, DecodeFailure) or found.service is None else found


def _records(bootstrap: str, topic: str) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, max_poll_records=5000, isolation_level="read_committed"
    )
    parts = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
    consumer.assign(parts)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(parts)
    found: list[Any] = []
    while any(consumer.position(part) < end for part, end in ends.items()):
        for records in consumer.poll(timeout_ms=1000).values():
            found += records
    consumer.close()
    return found


def read_log(bootstrap: str) -> Log:
    """Reads the topics themselves, whatever producer and workers believe."""
    log = Log()
    for record in _records(bootstrap, "rag.traces"):
        item = decode_trace(record.value or b"", LIMIT)
        if isinstance(item, DecodeFailure):
            log.poison[TRACES, record.partition, record.offset] = record.value or b""
        else:
            log.good[item.trace.trace_id] += 1
    for record in _records(bootstrap, FEEDBACK):
        if _read_label(record.value) is None:
            log.poison[FEEDBACK, record.partition, record.offset] = record.value or b""
        else:
            log.labels[record.value] += 1
    for record in _records(bootstrap, "rag.dead"):
        headers = dict(record.headers)
        where = (headers["topic"].decode(), int(headers["partition"]), int(headers["offset"]))
        log.dead.append((where, record.value or b""))
    return log


def _plainness(name: str) -> tuple[bool, bool, str]:
    """How many traces first, then how many results: what follows from them comes after."""
    return (
        not name.startswith("rag_requests_total"),
        not name.startswith("ragmeter_results_total"),
        name,
    )


def _compared(found: Mapping[str, float]) -> dict[str, float]:
    named = quality(dict(found)) | {
        name: value for name, value in found.items() if name.startswith(PLAIN)
    }
    # What hangs on the short window is a matter of the moment, and so is whether the last hour
    # still holds enough requests for a p95.
    passing = ('window="5m"', f'alertname="{BURST}"', 'question="fast",source="requests"')
    return {name: value for name, value in named.items() if not any(p in name for p in passing)}


def merged(exports: Mapping[str, Mapping[str, float]]) -> tuple[dict[str, float], list[str]]:
    """One export of those of all workers, and who exports the same service twice."""
    total: dict[str, float] = {}
    twice: set[str] = set()
    for found in exports.values():
        for name, value in found.items():
            if 'service="' in name:
                if name in total and name.startswith("rag_"):
                    twice.add(name.split('service="')[1].split('"')[0])
                total[name] = value
            else:
                total[name] = total.get(name, 0.0) + value
    return total, [f"{service} is exported by two workers" for service in sorted(twice)]


def differences(exports: Mapping[str, Mapping[str, float]], oracle: Oracle, log: Log) -> list[str]:
    """Everything in which the workers' exports are not the truth, one line each."""
    total, lines = merged(exports)
    found, expected = _compared(total), _compared(oracle.samples)
    names = sorted(expected.keys() | found.keys(), key=_plainness)
    lines += unlike(found, expected, names)
    counted = total.get('ragmeter_traces_duplicate_total{source="kafka"}', 0.0)
    if counted != log.duplicates:
        lines.append(f"{counted:.0f} duplicates are counted, the log holds {log.duplicates}")
    if unexpected := total.get("ragmeter_unexpected_results_total"):
        lines.append(f"{unexpected:.0f} results were not expected")
    return lines + _labels(total, log) + _dead(log) + _taken(oracle, log)


def _labels(total: Mapping[str, float], log: Log) -> list[str]:
    """Each label is received once, and then joined or known. Which of them are known hangs on
    their order: a label may come after its correction."""
    sent = sum(log.labels.values())
    received = total.get('ragmeter_feedback_received_total{source="kafka"}', 0.0)
    lines = []
    if received != sent:
        lines.append(f"{received:.0f} labels are received, the log holds {sent}")
    prefix = "ragmeter_feedback_total{"
    ends = {name: value for name, value in total.items() if name.startswith(prefix) and value}
    well = sum(ends.pop(f'{prefix}outcome="{one}"}}', 0.0) for one in ("joined", "repeated"))
    if well != received:
        lines.append(f"{well:.0f} of {received:.0f} labels are joined or known")
    lines += [f"{name} is {value:.0f}" for name, value in sorted(ends.items())]
    if waiting := total.get("ragmeter_feedback_waiting"):
        lines.append(f"{waiting:.0f} labels wait")
    return lines


def _taken(oracle: Oracle, log: Log) -> list[str]:
    missing, strange = oracle.ids - log.good.keys(), log.good.keys() - oracle.ids
    lines = [f"{len(missing)} traces never reached the broker"] if missing else []
    return lines + ([f"{len(strange)} traces are not of this run"] if strange else [])


def _dead(log: Log) -> list[str]:
    seen = dict(log.dead)
    lines = [
        f"poison at {where} is in no dead letter" for where in sorted(log.poison.keys() - seen)
    ]
    lines += [f"what is at {where} is no poison" for where in sorted(seen.keys() - log.poison)]
    lines += [
        f"the dead letter of {where} is not what was there"
        for where in sorted(seen.keys() & log.poison)
        if seen[where] != log.poison[where]
    ]
    return lines


def alarm_differences(
    received: Received, oracle: Oracle, at_most: Sequence[str] = (), *, once: Sequence[str] = ()
) -> list[str]:
    """Of notifications; the same one delivered again is no difference. Those of the rules
    `at_most` may be fewer; how many incidents of the kinds `once` there are hangs on the order of
    the partitions."""
    found = received.fired()
    return [
        f"{' '.join(key)}: {found[key]} times, {oracle.alarms[key]} expected"
        for key in sorted(found.keys() | oracle.alarms.keys())
        if (found[key] > oracle.alarms[key] and key[0] not in once)
        or (found[key] < oracle.alarms[key] and key[0] not in (*at_most, *once))
    ]
