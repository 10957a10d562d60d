"""What an agent with default settings tells people: nothing of a steady rate of errors, and of an
outage one incident that pages and ends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.parts.views import Incident

from tests.traces import START, good

PER_MINUTE = 10
USUAL = 0.01  # of the requests fail; the client of each tries twice more
OUTAGE = (6 * 60, 6 * 60 + 40)  # minutes in which half of the requests fail
MINUTES = 8 * 60


def requests() -> list[Any]:
    """Eight hours of requests."""
    rng = random.Random(5)
    found: list[Any] = []
    for number in range(PER_MINUTE * MINUTES):
        minute = number / PER_MINUTE
        in_outage = OUTAGE[0] <= minute < OUTAGE[1]
        failed = rng.random() < (0.5 if in_outage else USUAL)
        for again in range(3 if failed and not in_outage else 1):
            changes: dict[str, Any] = {
                "trace_id": f"t{number}-{again}",
                "timestamp": START + 60 * minute + again,
                "query": f"How do I reset password {number}?",
            }
            if failed:
                changes |= {"status": "error", "error": "upstream", "answer": "", "passages": []}
            found.append(good(len(found), **changes))
    return found


@pytest.mark.slow
def test_default_settings_tell_an_outage_and_no_steady_rate_of_errors(tmp_path: Path) -> None:
    notified: list[tuple[float, Incident]] = []

    def notify(incident: Incident, at: float) -> tuple[()]:
        notified.append((at, incident))
        return ()

    settings = load_settings(
        environ={},
        overrides={"state": {"path": str(tmp_path / "s")}, "models": {"cpu_share": 0}},
    )
    agent = EmbeddedAgent(
        settings,
        load_configured_rules(settings),
        live=False,
        outputs=AgentOutputs(notify),
        parts=PARTS,
    )
    agent.start()
    try:
        items = requests()
        for first in range(0, len(items), 500):
            agent.accept(items[first : first + 500], "file")
            agent.wait_idle()
    finally:
        agent.stop(10)
    assert len({incident.id for _, incident in notified}) == 1, [one.title for _, one in notified]
    opened, over = notified[0][1], notified[-1][1]
    assert (opened.kind, opened.severity, opened.state) == ("errors", "page", "open")
    # Ten effective failures are needed. As clients usually try three times, these are some 22
    # requests, which take five minutes at five a minute; a look comes once a minute.
    assert OUTAGE[0] <= (opened.opened_at - START) / 60 <= OUTAGE[0] + 8
    assert abs(opened.since - START - 60 * OUTAGE[0]) <= 600
    assert over.state == "over"
    assert over.ended_at is not None
    assert OUTAGE[1] + 12 <= (over.ended_at - START) / 60 <= OUTAGE[1] + 30
