"""A worker says why it waits for brokers, once a reason and again after ten minutes."""

from __future__ import annotations

import asyncio
import logging

import pytest
from ragmeter.app import kafka_worker
from ragmeter.config.settings import Settings
from ragmeter.kafka.broker_probe import BrokersUnreachable


def test_a_reason_stands_in_one_line_and_again_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = ["nobody listens there"] * 9 + ["it hangs up"] * 9
    clock = iter([*range(16), 700.0, 701.0])

    async def probe(_: object) -> dict[str, int]:
        reason = reasons.pop(0)
        if not reasons:
            workers[0].stop.set()
        raise BrokersUnreachable(f"Kafka at b:9092 (PLAINTEXT): {reason}")

    monkeypatch.setattr(kafka_worker, "probe_brokers", probe)
    monkeypatch.setattr(kafka_worker, "FIRST_PAUSE", 0.0)
    workers: list[kafka_worker._WorkerProcess] = []

    async def wait() -> None:
        workers.append(kafka_worker._WorkerProcess(Settings(), lambda: next(clock)))
        await workers[0].connect()

    with caplog.at_level(logging.WARNING):
        asyncio.run(wait())
    assert [record.getMessage().split("; ")[0] for record in caplog.records] == [
        "Kafka at b:9092 (PLAINTEXT): nobody listens there",
        "Kafka at b:9092 (PLAINTEXT): it hangs up",
        "Kafka at b:9092 (PLAINTEXT): it hangs up",
    ]
    assert workers[0].problems() == ["Kafka at b:9092 (PLAINTEXT): it hangs up"]
