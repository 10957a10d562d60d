"""A restart between any two evaluations changes nothing: property over random runs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.alerts.alert import Alert
from ragmeter.parts.incidents.engine import AlertEngine

from tests.parts.incidents.fakes import READINGS, FakeWindows, Worst, restarted, rule

SERVICES = ("a", "b")

RULES = [
    rule(name="Plain", no_data_for="1m"),
    rule(name="Slow", **{"for": "2m", "keep_firing_for": "2m", "no_data_for": "3m"}),
    rule(name="Parts", segment="model", severity="warning", keep_firing_for="1m"),
]

steps = st.lists(
    st.tuples(st.lists(st.sampled_from("##..?"), min_size=4, max_size=4), st.booleans()),
    min_size=1,
    max_size=30,
)


def run(plan: list[tuple[list[str], bool]], *, restarts: bool) -> tuple[list[Alert], list[Alert]]:
    """Every transition announced, and what is held at the end. At most 4 alerts have room."""
    engine = AlertEngine(RULES, max_alerts=4)
    windows = FakeWindows()
    announced = list[Alert]()
    for index, (signs, restart) in enumerate(plan):
        targets = [(service, part) for service in SERVICES for part in ("", "model=m")]
        for (service, part), sign in zip(targets, signs, strict=True):
            windows.estimates[service, part, "error", "builtin"] = READINGS[sign]
        windows.bad = [Worst(f"t{index}", 1.0)]
        announced += engine.evaluate(windows, 0.1 + 60.0 * index)
        if restart and restarts:
            engine = restarted(engine, AlertEngine(RULES, max_alerts=4))
    return announced, engine.alerts()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(steps)
def test_restarts_at_any_step_change_no_transition(plan: list[tuple[list[str], bool]]) -> None:
    assert run(plan, restarts=True) == run(plan, restarts=False)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(steps)
def test_an_alert_never_fires_twice_without_resolving(
    plan: list[tuple[list[str], bool]],
) -> None:
    announced, _ = run(plan, restarts=True)
    state: dict[str, str] = {}
    for alert in announced:
        assert state.get(alert.id, "resolved") != alert.state
        state[alert.id] = alert.state
