"""What the clients of Kafka log, in amounts that somebody reads."""

from __future__ import annotations

import logging
import time

__all__ = ["calm_clients"]

REPEAT_SECONDS = 10.0  # between two equal lines of the clients: an outage writes thousands


class _Seldom(logging.Filter):
    """Lets each message of a client's logger through once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("ragmeter"):
            return True
        key, now = (record.name, record.msg), time.monotonic()
        if now - self._said.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        if len(self._said) > 1000:
            self._said.clear()
        self._said[key] = now
        return True


def calm_clients() -> None:
    """To be called when logging is set up."""
    seldom = _Seldom()
    for handler in logging.getLogger().handlers:
        handler.addFilter(seldom)
    # "agent": Faust names the logger of a subclass after its module; ours are all "ragmeter"
    for name in ("faust", "mode", "aiokafka", "agent"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # "producer buffer full": a step of more than 100 rows waits for its turn, as it should
    logging.getLogger("faust.transport.producer").setLevel(logging.ERROR)
