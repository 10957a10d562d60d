"""What a rule reads, and when there is nothing to read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from ragmeter.alerts.conditions import condition_holds
from ragmeter.parts.incidents.conditions import read_condition
from ragmeter.windows.series import Estimate

from tests.parts.incidents.fakes import FakeWindows, make_estimate, make_quantile, rule


class OverWindows(FakeWindows):
    """One series with its own estimate in each window."""

    def __init__(self, estimates: Mapping[str, Estimate]) -> None:
        super().__init__()
        self._by_window = estimates

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Estimate | None:
        return self._by_window.get(window)


@pytest.mark.parametrize(("statistic", "tested"), [("value", 0.5), ("lower", 0.4), ("upper", 0.7)])
def test_the_statistic_chooses_what_is_compared(statistic: str, tested: float) -> None:
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = make_estimate(0.5, 0.4, 0.7)
    found = read_condition(rule(statistic=statistic), windows, "bot", "")
    assert found is not None
    assert found.tested == tested


@pytest.mark.parametrize(("op", "at"), [("<", "#.."), ("<=", "##."), (">", "..#"), (">=", ".##")])
def test_operators_at_below_and_above_the_threshold(op: str, at: str) -> None:
    made = rule(op=op, statistic="value")
    windows = FakeWindows()
    for sign, value in zip(at, (0.04, 0.05, 0.06), strict=True):
        windows.estimates["bot", "", "error", "builtin"] = make_estimate(value, 0.0, 1.0)
        found = read_condition(made, windows, "bot", "")
        assert found is not None
        assert condition_holds(made, found) == (sign == "#")


def test_too_few_samples_are_no_data() -> None:
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = make_estimate(0.9, 0.8, 1.0, samples=19)
    assert read_condition(rule(min_samples=20), windows, "bot", "") is None
    assert read_condition(rule(min_samples=19), windows, "bot", "") is not None


def test_a_missing_quantile_or_bound_is_no_data() -> None:
    windows = FakeWindows()
    on_value = rule(latency={"quantile": 0.95}, op=">", threshold=1)
    on_lower = rule(latency={"quantile": 0.95}, op=">", threshold=1, statistic="lower")
    assert read_condition(on_value, windows, "bot", "") is None
    windows.latency["bot", "", "total"] = [make_quantile(0.95, 2.0, None, None)]
    assert read_condition(on_value, windows, "bot", "") is not None
    assert read_condition(on_lower, windows, "bot", "") is None


@pytest.mark.parametrize(
    ("statistic", "op", "threshold"), [("upper", "<", 0.5 * 0.6), ("lower", ">", 0.5 * 0.9)]
)
def test_what_is_usual_is_read_at_the_end_that_spares_the_service(
    statistic: str, op: str, threshold: float
) -> None:
    """Of what is usual a floor takes the lower end, and a ceiling the upper."""
    windows = OverWindows({"5m": make_estimate(0.5, 0.4, 0.7), "24h": make_estimate(0.8, 0.6, 0.9)})
    relative = rule(statistic=statistic, op=op, threshold=0.5, relative_to="24h")
    found = read_condition(relative, windows, "bot", "")
    assert found is not None
    assert found.threshold == pytest.approx(threshold)
