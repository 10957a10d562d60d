from __future__ import annotations

import logging
import threading

import pytest

from agent.store.rows import Drawn
from agent.tier_worker import TierWorker
from agent.tiers import Tier


class Empty:
    """A state file in which nothing was ever drawn."""

    def drawn(self, tier: Tier, after: int, limit: int) -> list[Drawn]:
        return []


def test_a_job_that_fails_is_told_and_the_tiers_go_on(caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    async def broken() -> None:
        raise ValueError("a mistake of ours")

    worker = TierWorker(Empty(), {}, {"judge": 1}, finished=lambda: None, also=[broken])
    log, handler = logging.getLogger("ragmeter"), Told()
    log.addHandler(handler)
    try:
        worker.start()
        assert told.wait(10)
        assert worker.fatal is None
        assert worker.stop(1)
    finally:
        log.removeHandler(handler)
    assert "a mistake of ours" in caplog.text
