"""A real agent in which something hangs: readiness goes off, then the process, with a failure."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.patched import running, status
from tests.traces import trace_dict
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

# What hangs, each as a bug would make it: for ever, and in the thread that does the work.
HANGS = {
    "the worker": "from ragmeter.scoring.scorer import Scorer\nScorer.draw = hang",
    "the closing of traces": "from ragmeter.embedded.trace_closer import TraceCloser\n"
    "TraceCloser.close_due = hang",
    "the queue": "from ragmeter.store.sqlite import SqliteStore\n"
    "SqliteStore.take = lambda self, after, limit: []",
}


@pytest.mark.parametrize("place", HANGS)
def test_readiness_goes_off_and_the_process_ends(tmp_path: Path, place: str) -> None:
    process, otlp, metrics = running(tmp_path, HANGS[place], {"stalled_seconds": 12})
    try:
        now = time.time()
        answer = httpx.post(
            f"http://127.0.0.1:{otlp}/v1/rag/traces",
            json=trace_dict(1, timestamp=now),
            timeout=PATIENCE,
        )
        assert answer.status_code == 200
        until(lambda: status(metrics) == 503)
        reported = httpx.get(f"http://127.0.0.1:{metrics}/readyz", timeout=PATIENCE).text
        assert f"{place} has not moved for" in reported
        assert status(metrics, "healthz") == 200, "it is alive until it gives up"
        assert process.wait(PATIENCE) == 1
    finally:
        process.kill()
        process.wait()
    talk = " ".join((tmp_path / "talk").read_text().split())  # the log breaks lines
    assert f"{place} has not moved for" in talk
    assert "a restart goes on where it stopped" in talk
    assert "most recent call first" in talk, "where every thread was"


def test_a_process_that_was_frozen_goes_on(tmp_path: Path) -> None:
    """As in a debugger, or in a machine that is moved: it was no stall."""
    process, _, metrics = running(tmp_path, "", {"stalled_seconds": 12})
    try:
        process.send_signal(signal.SIGSTOP)
        time.sleep(14)
        process.send_signal(signal.SIGCONT)
        until(lambda: status(metrics) == 200)
        time.sleep(2)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
