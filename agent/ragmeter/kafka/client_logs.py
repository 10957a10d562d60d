"""Log levels of the Kafka clients, and fewer of their repeated lines."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

# Between two equal lines of the clients: an outage writes thousands. Each pause is twice the one
# before while they go on, so that a quarter of an hour has seven lines of a kind.
_REPEAT_SECONDS = 10.0
_RAREST_SECONDS = 300.0
_MAX_REMEMBERED_LINES = 1000
# Errors of the client that are none unless they go on for seconds: a new cluster makes its topic of
# offsets, or a broker still ends the transaction before (which it calls a lack of replicas).
_TRANSIENT = frozenset(
    {
        "Group Coordinator Request failed: %s",
        "Marking the coordinator dead (node %s)for group %s.",
        "Got error produce response on topic-partition %s, retrying. Error: %s",
    }
)
# The client says these of the settings at each connection, though nothing has changed.
_ONCE = frozenset({"Sending username and password in the clear"})


def limit_client_logs() -> None:
    """Make the clients log warnings only, and repeated lines rarely, once logging is set up."""
    repeat_filter = _RepeatFilter()
    for handler in logging.getLogger().handlers:
        handler.addFilter(repeat_filter)
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("asyncio").addFilter(_is_no_fenced_producer)
    # "producer buffer full": a step of more than 100 rows waits for its turn, as it should
    logging.getLogger("faust.transport.producer").setLevel(logging.ERROR)


def _is_no_fenced_producer(record: logging.LogRecord) -> bool:
    """Leave out what nobody waits for: how the producer ended that an owner had before."""
    from aiokafka.errors import ProducerFenced

    return not (record.exc_info and isinstance(record.exc_info[1], ProducerFenced))


class _RepeatFilter(logging.Filter):
    """Passes equal lines of the clients once in `_REPEAT_SECONDS`, then more and more rarely."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._logged: dict[tuple[str, object], tuple[float, float]] = {}  # when, and the next pause

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("ragmeter"):
            return True
        key = (record.name, record.msg)
        now = self._monotonic()
        at, pause = self._logged.get(key, (-math.inf, _REPEAT_SECONDS))
        if now - at < pause or (record.msg in _ONCE and key in self._logged):
            return False
        if len(self._logged) > _MAX_REMEMBERED_LINES:
            self._logged = {one: when for one, when in self._logged.items() if one[1] in _ONCE}
        lasting = now - at < 2 * pause
        self._logged[key] = now, min(2 * pause, _RAREST_SECONDS) if lasting else _REPEAT_SECONDS
        return lasting or record.msg not in _TRANSIENT
