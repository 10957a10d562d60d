"""The Faust agent that `benchmarks.kafka_scale` compares a worker with: decode, forward, no more.

    python -m benchmarks.kafka_noop BOOTSTRAP GROUP FROM TO buffered|awaited

Raw bytes in and out, one `json.loads` a message for its key. `buffered` is what Faust users write,
`await topic.send(...)`: it returns when the message is in the producer's buffer, and a message
whose delivery fails is lost. `awaited` also waits for the broker before the next message.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from typing import Any

import faust

__all__ = ["main"]


def make(bootstrap: str, group: str, source: str, target: str, awaited: bool) -> faust.App:
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=tempfile.mkdtemp(prefix="noop-"),
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        # as a worker has them
        stream_buffer_maxsize=256,
        broker_max_poll_records=500,
        broker_commit_interval=1.0,
        producer_linger=0.05,
        producer_max_batch_size=2**18,
        consumer_auto_offset_reset="earliest",
    )
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes}
    raw |= {"key_serializer": "raw", "value_serializer": "raw"}
    target_topic = app.topic(target, **raw)

    async def forward(stream: Any) -> None:
        async for value in stream:
            key = json.loads(value)["service"].encode()
            sent = await target_topic.send(key=key, value=value)
            if awaited:
                await sent

    app.agent(app.topic(source, **raw), name="forward")(forward)
    return app


async def _run(arguments: list[str]) -> None:
    bootstrap, group, source, target, kind = arguments
    await make(bootstrap, group, source, target, kind == "awaited").start()
    await asyncio.Event().wait()


def main() -> None:
    asyncio.run(_run(sys.argv[1:]))


if __name__ == "__main__":
    main()
