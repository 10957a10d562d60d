"""Windows whose content a test sets by hand, and a time line that drives an engine over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule, parse_rules
from ragmeter.parts.incidents.engine import AlertEngine, RuleState
from ragmeter.windows import series as real
from ragmeter.windows.failures import FailedShare
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import RankedTrace


def make_estimate(value: float, lower: float, upper: float, samples: int = 100) -> real.Estimate:
    return real.Estimate(value, lower, upper, 90.0, samples, {})


def make_quantile(
    quantile: float, value: float, lower: float | None, upper: float | None, samples: int = 100
) -> real.Quantile:
    return real.Quantile(quantile, value, lower, upper, samples)


@dataclass(frozen=True)
class Worst(RankedTrace):
    timestamp: float = 0.0


def around(value: float, half: float = 0.02) -> real.Estimate:
    return make_estimate(value, value - half, value + half)


class FakeWindows(Windows):
    """Series by (service, segment, metric, scorer), the same in every window."""

    names: tuple[str, ...] = ("5m", "1h", "24h")

    def __init__(self) -> None:
        self.estimates: dict[tuple[str, str, str, str], real.Estimate | None] = {}
        self.latency: dict[tuple[str, str, str], list[real.Quantile]] = {}
        self.counts: dict[tuple[str, str], int] = {}  # (service, window)
        self.bad: list[RankedTrace] = []
        self.asked_segment = ""
        self.series_names: dict[tuple[str, str], str] = {}
        self.failures: dict[tuple[str, str, str], FailedShare | None] = {}
        self.asked: tuple[str, str, str, str] | None = None  # what `worst` was last asked for

    def services(self) -> list[str]:
        return sorted(
            {key[0] for key in self.estimates}
            | {key[0] for key in self.latency}
            | {key[0] for key in self.counts}
        )

    def segments(self, service: str) -> list[str]:
        return sorted({key[1] for key in self.estimates if key[0] == service and key[1]})

    def series(self, service: str, segment: str = "") -> list[tuple[str, str]]:
        return [key[2:] for key in self.estimates if key[:2] == (service, segment)]

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> real.Estimate | None:
        return self.estimates.get((service, segment, metric, scorer))

    def quantiles(
        self, service: str, segment: str, stage: str, window: str, *, dependence: float = 1.0
    ) -> list[real.Quantile]:
        return self.latency.get((service, segment, stage), [])

    def count_traces(self, service: str, segment: str, window: str) -> int:
        if not self.counts:  # a test that sets no counts has traffic everywhere
            return 100
        return self.counts.get((service, window), 0)

    def worst(
        self,
        service: str,
        metric: str,
        scorer: str,
        window: str,
        limit: int = 5,
        segment: str = "",
    ) -> list[RankedTrace]:
        self.asked = (service, metric, scorer, window)
        self.asked_segment = segment
        return self.bad[:limit]

    def current_scorer(self, metric: str, scorer: str) -> str:
        return self.series_names.get((metric, scorer), scorer)

    def failing(self, service: str, window: str) -> list[tuple[str, str]]:
        return [key[1:] for key, found in self.failures.items() if key[0] == service and found]

    def failed(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> FailedShare | None:
        return self.failures.get((service, metric, scorer))

    # How it was before is read from sums: `test_evidence.py` has real windows.

    def sums_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> None:
        return None

    def histogram_before(self, service: str, segment: str, stage: str, window: str) -> None:
        return None

    def failed_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> None:
        return None

    def cell(self, service: str, segment: str, metric: str, scorer: str, window: str) -> None:
        return None

    def histogram(self, service: str, segment: str, stage: str, window: str) -> None:
        return None

    def value_before(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> None:
        return None


def rule(**changes: object) -> AlertRule:
    """Fires when the lower bound of `error` is above 0.05."""
    entry: dict[str, object] = {
        "name": "Errors",
        "severity": "critical",
        "metric": "error",
        "statistic": "lower",
        "op": ">",
        "threshold": 0.05,
        "window": "5m",
    }
    entry.update(changes)
    unfit = ["metric", "statistic"] if {"latency", "absence"} & set(changes) else []
    unfit += ["op", "threshold"] if "absence" in changes else []
    for key in unfit:
        if key not in changes:
            del entry[key]
    (made,) = parse_rules([{"rules": [entry]}])
    return made


ROWS: TypeAdapter[dict[str, RuleState]] = TypeAdapter(dict[str, RuleState])

READINGS: Mapping[str, real.Estimate | None] = {
    "#": around(0.2),  # true
    ".": around(0.01),  # false
    "?": None,  # no data
}


def play(
    line: str, made: AlertRule, step: float = 60.0, *, restarts: bool = False
) -> tuple[str, list[Alert]]:
    """Drive one rule over one service: one reading and one evaluation for each sign of `line`.

    Gives the state after each step (`-` none, `p` pending, `F` firing, `N` firing without data,
    `r` resolved) and every transition that was announced. `restarts`: a new engine for each step.
    """
    engine = AlertEngine([made])
    windows = FakeWindows()
    states = ""
    announced = list[Alert]()
    for index, sign in enumerate(line):
        windows.estimates["bot", "", "error", "builtin"] = READINGS[sign]
        announced += engine.evaluate(windows, 1000.0 + index * step)
        states += look(engine)
        if restarts:
            engine = restarted(engine, AlertEngine([made]))
    return states, announced


def restarted(old: AlertEngine, new: AlertEngine) -> AlertEngine:
    """A new engine that continues from the saved rows of an old one."""
    new.restore(ROWS.validate_json(ROWS.dump_json(old.rows())))
    return new


def look(engine: AlertEngine) -> str:
    held = engine.alerts()
    if not held:
        return "-"
    (alert,) = held
    if alert.state == "firing":
        return "N" if alert.no_data else "F"
    return {"pending": "p", "resolved": "r"}[alert.state]
