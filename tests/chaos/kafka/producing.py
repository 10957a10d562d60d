"""The producer of a chaos run: it goes on whatever happens, and sends again what was not taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.chaos.kafka.traffic import Sending

__all__ = ["Producing"]

PAUSE_SECONDS = 0.25


class Producing(threading.Thread):
    """acks=all and idempotent. A send that fails is made again, as an application would: its first
    try may be in the log all the same, and then it is a duplicate like any other.

    It waits while more than `backlog` traces are not `counted` yet: a machine that is slow today
    must not tear the partitions apart in event time.
    """

    def __init__(
        self,
        bootstrap: str,
        messages: Iterable[Sending],
        rate: float,
        backlog: int,
        partitions: int,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(name="producing", daemon=True)
        self._servers = bootstrap
        self._messages = iter(messages)
        self._rate = rate
        self._backlog = backlog
        self._partitions = partitions
        self._say = say
        self.counted = 0.0
        """Set from outside."""
        self.sent = 0
        """Traces, each once."""
        self.again = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error

    def _run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            enable_idempotence=True,
            linger_ms=20,
            # longer than any outage of a run: after a batch expires this client may hang
            delivery_timeout_ms=1_500_000,
            max_block_ms=120_000,
        )
        pending: list[tuple[Any, int, Sending]] = []
        begun = time.monotonic()
        for position, message in enumerate(self._messages):
            pending.append((self._send(producer, position, message), position, message))
            self.sent = max(self.sent, message.number + 1)
            while (
                position / self._rate - (time.monotonic() - begun) > PAUSE_SECONDS
                or self.sent - self.counted > self._backlog
            ):
                time.sleep(PAUSE_SECONDS)
                # at once: what was not taken is in the backlog as well, and would hold it up
                ended = (not future.is_done for future, _, _ in pending)
                pending = self._settle(producer, pending, [*ended, True].index(True))
            if len(pending) > 20_000:
                pending = self._settle(producer, pending, len(pending) // 2)
        while pending:
            producer.flush(120)
            pending = self._settle(producer, pending, len(pending))
        producer.close(timeout=10)

    def _send(self, producer: KafkaProducer, position: int, message: Sending) -> Any:
        # not keyed by service: each service then comes from every partition
        partition = position % self._partitions
        return producer.send(message.topic, message.body, key=b"any", partition=partition)

    def _settle(
        self, producer: KafkaProducer, pending: list[tuple[Any, int, Sending]], count: int
    ) -> list[tuple[Any, int, Sending]]:
        """Waits for the first `count`; those that failed are under way once more."""
        left = pending[count:]
        for future, position, message in pending[:count]:
            try:
                future.get(timeout=120)
            except KafkaError as error:
                if not self.again:
                    self._say(f"a send failed and is made again: {error!r}")
                self.again += 1
                left.append((self._send(producer, position, message), position, message))
        return left
