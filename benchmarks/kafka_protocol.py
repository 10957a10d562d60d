"""What exactly-once delivery from topic to topic costs, by client and batch, and under kills.

    python -m benchmarks.kafka_protocol [--messages 20000] [--batches 100 500 2000] [--kills 8]

A real Kafka of one node, traces of some 6 kB on 8 partitions. A worker reads batches, decodes each
trace with `json.loads`, and sends one record a service and batch with 20 sums for each of its
traces to a second topic, in one Kafka transaction with the offsets it has read. `aiokafka` has one
transactional producer a partition, whose id the next owner of the partition takes over, and with
it fences the one before; `confluent` has one a worker, and the broker checks the member of the
group (KIP-447). First one worker alone: messages a second and its own processor time. Then two
workers of which one is ended by SIGKILL every few seconds: every message must be in the second
topic exactly once. Prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.kafka_cluster import grown, produce
from tests.kafka_server import kafka_server

__all__ = ["main"]

PARTITIONS = 8
SESSION_MS = 6_000
SOURCE, TARGET = "in", "out"


def fold(partition: int, messages: list[tuple[int, bytes]]) -> dict[str, bytes]:
    """One record a service, as the score stage would send it."""
    services: dict[str, list[Any]] = defaultdict(list)
    for offset, body in messages:
        trace = json.loads(body)
        sums = [[number, 0.5, 1] for number in range(20)]
        services[trace["service"]].append([trace["trace_id"], offset, sums])
    return {
        service: json.dumps({"at": [partition, messages[0][0]], "traces": traces}).encode()
        for service, traces in services.items()
    }


class _Partitions(ConsumerRebalanceListener):  # type: ignore[misc]
    """One transactional producer for each owned partition."""

    def __init__(self, server: str, group: str, say: Any) -> None:
        self.server, self.group, self.say = server, group, say
        self.consumer: Any = None
        self.producers: dict[Any, AIOKafkaProducer] = {}
        self.busy = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self.busy:  # a transaction is ended before the group goes on
            pass

    async def on_partitions_assigned(self, assigned: Any) -> None:
        for tp in self.producers.keys() - assigned:
            await self.producers.pop(tp).stop()
        new: dict[Any, AIOKafkaProducer] = {}
        for tp in assigned - self.producers.keys():
            producer = AIOKafkaProducer(
                bootstrap_servers=self.server,
                transactional_id=f"{self.group}-{tp.partition}",
                linger_ms=5,
                max_batch_size=2**18,
            )
            await producer.start()  # fences the owner before, and ends its transaction
            new[tp] = producer
        committed = {tp: await self.consumer.committed(tp) or 0 for tp in assigned}
        for tp, offset in committed.items():  # nothing is read between this and the next lines
            self.consumer.seek(tp, offset)
        self.producers |= new
        self.say("assigned")


async def _aiokafka(server: str, group: str, batch: int, say: Any) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS // 6,
        max_partition_fetch_bytes=4 * 2**20,
    )
    parts = _Partitions(server, group, say)
    parts.consumer = consumer
    consumer.subscribe([SOURCE], listener=parts)
    await consumer.start()

    async def one(tp: Any, messages: Any) -> None:
        producer = parts.producers[tp]
        async with producer.transaction():
            records = fold(tp.partition, [(one.offset, one.value) for one in messages])
            for service, data in records.items():
                await producer.send(TARGET, data, key=service.encode())
            end = {TopicPartition(SOURCE, tp.partition): messages[-1].offset + 1}
            await producer.send_offsets_to_transaction(end, group)

    while True:
        async with parts.busy:
            found = await consumer.getmany(timeout_ms=200, max_records=batch)
            # what comes before a partition has its producer is sought again behind that
            found = {tp: some for tp, some in found.items() if some and tp in parts.producers}
            await asyncio.gather(*(one(tp, some) for tp, some in found.items()))
        if found:
            say(sum(map(len, found.values())))
        await asyncio.sleep(0)


def _confluent(server: str, group: str, batch: int, say: Any) -> None:
    common = {"bootstrap.servers": server, "log_level": 0}
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "fetch.max.bytes": 16 * 2**20,
        }
    )
    producer = Producer(
        {
            **common,
            "transactional.id": f"{group}-{os.getpid()}",
            "linger.ms": 5,
            "batch.size": 2**18,
        }
    )
    producer.init_transactions()
    consumer.subscribe([SOURCE], on_assign=lambda *_: say("assigned"))
    while True:
        messages = consumer.consume(batch, 0.2)
        if not messages:
            continue
        producer.begin_transaction()
        by_partition: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for message in messages:
            place = message.partition() or 0, message.offset() or 0
            by_partition[place[0]].append((place[1], message.value() or b""))
        for partition, some in by_partition.items():
            for service, data in fold(partition, some).items():
                producer.produce(TARGET, data, key=service.encode())
        ends = [Offset(SOURCE, part, some[-1][0] + 1) for part, some in by_partition.items()]
        try:
            producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException:  # the group has moved on: what was read belongs to others
            producer.abort_transaction()
            for part, found in by_partition.items():
                with contextlib.suppress(KafkaException):
                    consumer.seek(Offset(SOURCE, part, found[0][0]))
            continue
        say(len(messages))


def work(client: str, server: str, group: str, batch: int) -> None:
    """Work until ended; a line for each batch: messages, and processor seconds so far."""

    def say(what: object) -> None:
        sys.stdout.write(f"{what} {time.time()} {time.process_time()}\n")
        sys.stdout.flush()

    if client == "aiokafka":
        asyncio.run(_aiokafka(server, group, batch, say))
    else:
        _confluent(server, group, batch, say)


class _Worker:
    def __init__(self, client: str, server: str, group: str, batch: int, log: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.kafka_protocol", "--work", client]
        command += [server, group, str(batch)]
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def said(self) -> list[list[str]]:
        lines = self._log.read_text().splitlines()
        return [words for line in lines if len(words := line.split(" ")) == 3]

    def done(self) -> int:
        return sum(int(words[0]) for words in self.said() if words[0].isdigit())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def make_topics(server: str) -> None:
    admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]
    for future in admin.create_topics(topics).values():
        future.result()


def alone(client: str, server: str, batch: int, count: int, folder: Path) -> str:
    """One worker, from its first batch to the last."""
    worker = _Worker(client, server, f"{client}-{batch}", batch, folder / f"{client}-{batch}")
    try:
        while worker.done() < count:
            if worker.process.poll() is not None:
                raise RuntimeError("the worker has ended")
            time.sleep(0.1)
    finally:
        worker.kill()
    rows = [words for words in worker.said() if words[0].isdigit()]
    number = sum(int(words[0]) for words in rows[1:])
    wall = float(rows[-1][1]) - float(rows[0][1])
    cpu = float(rows[-1][2]) - float(rows[0][2])
    return f"| {client} | {batch} | {number / wall:,.0f} | {cpu / number * 1e6:.0f} |"


def chaos(client: str, server: str, lines: list[bytes], kills: int, seed: int, folder: Path) -> str:
    """Two workers of which one is killed now and then, while messages come all the time."""
    rng, group = random.Random(seed), f"chaos-{client}-{seed}"
    before = _offsets(server, SOURCE), _offsets(server, TARGET)
    made = 0

    def start() -> _Worker:
        nonlocal made
        made += 1
        return _Worker(client, server, group, 500, folder / f"{group}-{made}")

    waiting = list(lines)
    pair = [start(), start()]
    for _ in range(kills):
        end = time.monotonic() + rng.uniform(3, 6)
        while time.monotonic() < end:
            produce(server, SOURCE, waiting[:100], PARTITIONS)
            del waiting[:100]
            time.sleep(0.05)
        number = rng.randrange(2)
        pair[number].kill()
        pair[number] = start()
    produce(server, SOURCE, waiting, PARTITIONS)
    total = sum(_offsets(server, SOURCE).values()) - sum(before[0].values())
    start_of = before[0]
    deadline = time.monotonic() + 120
    seen: Counter[tuple[int, int]] = Counter()
    while time.monotonic() < deadline:
        seen = _read(server, before[1], start_of)
        if len(seen) >= total:
            break
        time.sleep(1)
    for worker in pair:
        worker.kill()
    twice = sum(number > 1 for number in seen.values())
    return f"| {client} | {total} | {kills} | {total - len(seen)} | {twice} |"


def _offsets(server: str, topic: str) -> dict[int, int]:
    asker = Consumer({"bootstrap.servers": server, "group.id": "none", "log_level": 0})
    found = {
        number: asker.get_watermark_offsets(Offset(topic, number), timeout=20)[1]
        for number in range(PARTITIONS)
    }
    asker.close()
    return found


def _read(server: str, since: dict[int, int], after: dict[int, int]) -> Counter[tuple[int, int]]:
    """How often each message of the source, from `after` on, is in committed records."""
    reader = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    reader.assign([Offset(TARGET, number, offset) for number, offset in since.items()])
    seen: Counter[tuple[int, int]] = Counter()
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in reader.consume(500, 1):
            if message.error():
                ended.add(message.partition() or 0)
                continue
            record = json.loads(message.value() or b"")
            partition = record["at"][0]
            seen.update(
                (partition, offset)
                for _, offset, _ in record["traces"]
                if offset >= after[partition]
            )
    reader.close()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--batches", type=int, nargs="*", default=[100, 500, 2_000])
    parser.add_argument("--clients", nargs="*", default=["aiokafka", "confluent"])
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        client, server, group, batch = options.work
        work(client, server, group, int(batch))
    lines = grown(options.messages, 20, 100.0)
    size = sum(map(len, lines)) / len(lines)
    print(f"{len(lines)} messages of {size:.0f} bytes, {PARTITIONS} partitions\n")
    with tempfile.TemporaryDirectory() as place, kafka_server(Path(place)) as server:
        folder, address = Path(place), server.bootstrap
        make_topics(address)
        produce(address, SOURCE, lines, PARTITIONS)
        print("| client | batch | messages/s | CPU us a message |\n| --- | ---: | ---: | ---: |")
        for batch in options.batches:
            for client in options.clients:
                print(alone(client, address, batch, len(lines), folder), flush=True)
        print("\n| client | messages | kills | missing | counted twice |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for client in options.clients:
            row = chaos(client, address, lines, options.kills, options.seed, folder)
            print(row, flush=True)


if __name__ == "__main__":
    main()
