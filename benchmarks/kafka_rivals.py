"""Read traces and do no more: the programs that `benchmarks.kafka_workers` compares a worker with.

    python -m benchmarks.kafka_rivals {loop|faust} BOOTSTRAP GROUP FROM TO

`loop` reads with aiokafka, decodes each body as JSON and commits each batch. `faust` is an agent as
Faust's users write it: it decodes each body for its service and forwards it with that key.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer

__all__ = ["main"]


async def _loop(bootstrap: str, group: str, source: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    while True:
        for records in (await consumer.getmany(timeout_ms=500, max_records=500)).values():
            for record in records:
                json.loads(record.value)
            await consumer.commit()


async def _faust(bootstrap: str, group: str, source: str, target: str) -> None:
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=tempfile.mkdtemp(prefix="rival-"),
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
    )
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes}
    raw |= {"key_serializer": "raw", "value_serializer": "raw"}
    target_topic = app.topic(target, **raw)

    async def forward(stream: Any) -> None:
        async for value in stream:
            await target_topic.send(key=json.loads(value)["service"].encode(), value=value)

    app.agent(app.topic(source, **raw), name="forward")(forward)
    await app.start()
    await asyncio.Event().wait()


def main() -> None:
    kind, bootstrap, group, source, target = sys.argv[1:]
    if kind == "loop":
        asyncio.run(_loop(bootstrap, group, source))
    else:
        asyncio.run(_faust(bootstrap, group, source, target))


if __name__ == "__main__":
    main()
