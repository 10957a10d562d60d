"""How often the clients' lines come into the log of a worker."""

from __future__ import annotations

import logging
from typing import Any

from ragmeter.kafka.connection import _RepeatFilter


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


def test_an_error_that_passes_within_seconds_is_not_written() -> None:
    now = 5.0
    passes: Any = _RepeatFilter(lambda: now)
    line = record("aiokafka", "Group Coordinator Request failed: %s")
    assert not passes.filter(line)
    now = 9.0
    assert not passes.filter(line)
    now = 15.0
    assert passes.filter(line)
