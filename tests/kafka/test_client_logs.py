"""How often the clients' lines come into the log of a worker."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiokafka.errors import ProducerFenced
from ragmeter.kafka.client_logs import _RepeatFilter, limit_client_logs


def record(name: str, text: str) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "", 0, text, ("node 1",), None)


def test_an_outage_of_a_quarter_of_an_hour_has_a_few_lines_of_a_kind() -> None:
    now = 0.0
    passes: Any = _RepeatFilter(lambda: now)
    times = []
    for second in range(900):
        now = float(second)
        if passes.filter(record("aiokafka", "cannot connect to %s")):
            times.append(second)
        assert passes.filter(record("ragmeter.kafka", "cannot connect to %s")), "ours all come"
    assert times == [0, 10, 30, 70, 150, 310, 610]
    assert passes.filter(record("aiokafka", "another line of %s"))
    now = 2000.0
    assert passes.filter(record("aiokafka", "cannot connect to %s")), "after a time without it"
    now = 2010.0
    assert passes.filter(record("aiokafka", "cannot connect to %s")), "often again at first"


@pytest.mark.parametrize(
    "text",
    [
        "Group Coordinator Request failed: %s",
        "Got error produce response on topic-partition %s, retrying. Error: %s",
    ],
)
def test_an_error_that_passes_within_seconds_is_not_written(text: str) -> None:
    now = 5.0
    passes: Any = _RepeatFilter(lambda: now)
    line = record("aiokafka", text)
    assert not passes.filter(line)
    now = 9.0
    assert not passes.filter(line)
    now = 15.0
    assert passes.filter(line)
    now = 100.0
    assert not passes.filter(line), "once a minute, each time for a moment"
    now = 160.0
    assert not passes.filter(line)


@pytest.mark.parametrize(("error", "written"), [(ProducerFenced(), 0), (OSError(), 1)])
def test_a_producer_that_was_replaced_leaves_no_traceback(
    error: Exception, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sets it on a future of its own when a broker that stood still goes on."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    log = logging.getLogger("asyncio")
    monkeypatch.setattr(handler, "emit", found.append)
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "filters", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.Logger, "setLevel", lambda *_: None)
    limit_client_logs()
    loop = asyncio.new_event_loop()
    loop.call_exception_handler({"message": "never retrieved", "exception": error})
    loop.close()
    assert len(found) == written


def test_what_is_said_of_the_settings_is_said_once() -> None:
    now = 0.0
    passes: Any = _RepeatFilter(lambda: now)
    written = 0
    for minute in range(600):
        now = minute * 60.0
        written += passes.filter(
            record("aiokafka.conn", "Sending username and password in the clear")
        )
    assert written == 1
