"""Rules and the numbers of incidents allow for requests that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.app.parts import AgentSettings
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.incidents.numbers import NumberKey, NumberReader
from ragmeter.parts.incidents.part import IncidentsPart
from ragmeter.parts.questions.part import QuestionsPart

from tests.parts.incidents.fakes import rule
from tests.parts.questions.samples import HOUR, START, request, scored

SETTINGS = AgentSettings.model_validate({"alerts": {"evaluation_seconds": 60}})


def traffic(length: int) -> Iterator[ScoredTrace]:
    """600 requests of an hour in sessions of a length, of which every twelfth session fails."""
    for number in range(600):
        session = number // length
        failed = session % 12 == 0
        yield request(
            number,
            START + number * HOUR / 600,
            status="error" if failed else "ok",
            results=[scored("error", float(failed))],
            timings={"total": 9.0 if failed else 2.0},
            cluster=f"s{session}",
            tenant=f"s{session}",
        )


def firing(length: int, **changes: object) -> bool:
    """Return whether a rule fires on the traffic."""
    made = rule(window="1h", severity="warning", **changes)
    aggregator = Aggregator(SETTINGS, [made], [], parts=(QuestionsPart, IncidentsPart))
    for trace in traffic(length):
        for _ in aggregator.apply_all([trace]):
            pass
    aggregator.settle()
    return any(alert.state == "firing" for alert in aggregator.parts["incidents"].alerts())


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 0.05},  # 8 % fail: of 600 independent requests the lower end is .06
        {"latency": {"stage": "total", "quantile": 0.95}, "statistic": "lower", "threshold": 5},
    ],
)
def test_sessions_that_fail_as_one_are_worth_one_request(changes: dict[str, object]) -> None:
    changes = {"op": ">", **changes}
    assert firing(1, **changes)
    assert not firing(20, **changes)


@pytest.mark.parametrize("length", [1, 20])
@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("works", NumberKey("works", "builtin")),
        ("fast", NumberKey("latency", "total")),
    ],
)
def test_the_interval_of_an_incident_is_that_of_the_question(
    question: str, number: NumberKey, length: int
) -> None:
    aggregator = Aggregator(SETTINGS, [], [], parts=(QuestionsPart, IncidentsPart))
    for trace in traffic(length):
        for _ in aggregator.apply_all([trace]):
            pass
    aggregator.settle()
    questions = aggregator.parts["questions"]
    assert isinstance(questions, QuestionsPart)
    (answer,) = [one for one in questions.answers("bot") if one.question == question]
    level = answer.levels["1h"]
    read = NumberReader(aggregator.windows, questions.dependence_within).read
    found = read("bot", "", number, START, START + HOUR)
    independent = NumberReader(aggregator.windows).read("bot", "", number, START, START + HOUR)
    assert found is not None
    assert independent is not None
    if question == "works":  # incidents count the requests that failed
        found = replace(found, value=1 - found.value, lower=1 - found.upper, upper=1 - found.lower)
    assert found.value == pytest.approx(level.value, rel=0.01)
    assert found.lower == pytest.approx(level.lower, rel=0.02)
    # where the p95 has no upper end, what is known is said
    assert found.upper == pytest.approx(level.upper or level.value, rel=0.02)
    assert found.worth == pytest.approx(level.worth, rel=0.02)
    if length > 1:
        assert independent.worth > 3 * found.worth


def test_an_incident_knows_that_sessions_fail_as_one() -> None:
    made = rule(window="1h", severity="warning", op=">", statistic="value", threshold=0.05)
    aggregator = Aggregator(SETTINGS, [made], [], parts=(QuestionsPart, IncidentsPart))
    for trace in traffic(20):
        for _ in aggregator.apply_all([trace]):
            pass
    aggregator.settle()
    incidents = aggregator.parts["incidents"]
    assert isinstance(incidents, IncidentsPart)
    (incident,) = incidents.incidents("bot")
    assert incident.level is not None
    assert incident.lower is not None
    assert incident.upper is not None
    # of independent requests its interval would be of 148
    deviation = (incident.upper - incident.lower) / (2 * 1.96)
    assert incident.level * (1 - incident.level) / deviation**2 < 50
