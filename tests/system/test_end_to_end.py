"""Three incidents and a service to which nothing happens, with every part real: what is reported,
on which way, when; which traces are named; that their pages open; and that all of it resolves."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from tests.system.arrivals import WAYS, Arrival
from tests.system.story import HEAD_START, Notified, play
from tests.system.traffic import BAD_MODEL, CALM, INCIDENTS, OUTAGE, RAMP, SWAP, questions, traffic

__all__ = ["EXPECTED", "check"]

# The question of each incident that must be reported, and when at the latest, in minutes from its
# beginning to its first notification.
EXPECTED = {
    ("works", OUTAGE.service): 6,
    ("fast", RAMP.service): 20,
    ("grounded", SWAP.service): 56,
}
LATE = 20.0
"""Minutes by which an arrival may follow the agent's own time: 12 s of the clock, for bursts,
commits and above all a machine that is busy."""
BURNING = {("RagErrorBudgetBurnFast", OUTAGE.service): 10}
"""The alerts of Prometheus, likewise; by the minute at which they arrive."""


def check(notified: Notified) -> None:
    """All that is promised of the story."""
    begins = {one.service: one.begin / 60 for one in INCIDENTS}
    ends = {one.service: one.end / 60 for one in INCIDENTS}
    arrivals = notified.receiver.arrivals
    early = [
        (one, notified.minute(one))
        for one in arrivals
        if notified.minute(one) < min(begins.values())
    ]
    assert early == []
    for way in WAYS:
        assert notified.receiver.firing(way) == set(), f"still firing by {way}"
    came = {(one.alert, one.service) for one in arrivals if one.way == "alertmanager"}
    assert came == set(EXPECTED)
    assert {(one.alert, one.service) for one in arrivals if one.way == "prometheus"} == set(BURNING)
    one_page_a_cause(notified)
    for (alert, service), latest in EXPECTED.items():
        fired = notified.receiver.of("alertmanager", "firing", alert, service)[0]
        over = notified.receiver.of("alertmanager", "resolved", alert, service)[-1]
        at = notified.fired(fired)
        assert begins[service] < at <= begins[service] + latest, (alert, at)
        assert notified.fired(over, "endsAt") > ends[service], alert
        assert -1 < notified.minute(fired) - at < LATE, (alert, notified.minute(fired), at)
        _names_its_traces(notified, fired)
    for (alert, service), latest in BURNING.items():
        first = notified.minute(notified.receiver.of("prometheus", "firing", alert, service)[0])
        last = notified.minute(notified.receiver.of("prometheus", "resolved", alert, service)[-1])
        assert begins[service] < first <= begins[service] + latest + LATE, (alert, first)
        assert last > ends[service], (alert, last)


def one_page_a_cause(notified: Notified) -> None:
    """The agent's own webhook: each incident is opened once, and ends once."""
    own = [body for body in notified.receiver.bodies if "event" in body]
    for event in ("opened", "over"):
        incidents = [body["incident"] for body in own if body["event"] == event]
        assert len(incidents) == len(INCIDENTS), [incident["title"] for incident in incidents]
        found = {(incident["question"], incident["service"]) for incident in incidents}
        assert found == set(EXPECTED)


def sent(notified: Notified) -> dict[str, dict[str, Any]]:
    """The traces of the story by their ids."""
    return {trace["trace_id"]: trace for _, trace in traffic(-HEAD_START, origin=notified.origin)}


def _names_its_traces(notified: Notified, fired: Arrival) -> None:
    """The worst are of the incident, as bad as they are said to be, and can be opened."""
    worst = fired.worst
    assert 1 <= len(worst) <= 5
    traces = sent(notified)
    for trace_id in worst:
        trace = traces[trace_id]
        assert trace["service"] == fired.service != CALM
        if fired.service == OUTAGE.service:
            assert trace["status"] == "error"
        elif fired.service == RAMP.service:
            assert trace["timings"]["total"] > 5  # seconds; before the ramp none takes 4.2
        status, page = notified.opened[trace_id]
        assert status == 200
        assert trace_id in page
    if fired.service == SWAP.service:
        assert any(traces[one]["model"] == BAD_MODEL for one in worst)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(3600)  # on a busy machine it is played anew, and slower
def test_the_story_is_told_on_every_way_and_ends(tmp_path: Path) -> None:
    notified = asyncio.run(play(tmp_path))
    check(notified)


def test_the_traffic_is_what_the_story_says() -> None:
    """Cheap, so that a mistake here does not take a minute to be seen."""
    story = list(traffic(-HEAD_START))
    times = [at for at, _ in story]
    assert times == sorted(times)
    assert len({trace["trace_id"] for _, trace in story}) == len(story)
    assert story == list(traffic(-HEAD_START))
    swapped = {t["model"] for at, t in story if t["service"] == SWAP.service and at < SWAP.begin}
    assert swapped != {BAD_MODEL}
    during = [t for at, t in story if t["service"] == SWAP.service and SWAP.begin <= at < SWAP.end]
    assert {t["model"] for t in during} == {BAD_MODEL}
    failed = [at for at, t in story if t["service"] == OUTAGE.service and t["status"] == "error"]
    assert sum(OUTAGE.begin <= at < OUTAGE.end for at in failed) > 40
    assert math.isclose(len(questions()), 55)
    share = [
        sum(one.hallucinated[model] for one in questions()) / 55
        for model in ("GPT-3.5 (Turbo)", "Mistral")
    ]
    assert share == pytest.approx([0.2, 17 / 55])
