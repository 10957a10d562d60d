"""The burn-rate rules against the counts that they are about, within one evaluation.

Prometheus' own rule engine (`promtool test rules`) evaluates the rules at every interval over
counters as the agent would have exported them. What must fire is worked out here from the events
themselves; a server then loads the rules as they are.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from ragmeter.app.settings import load_settings
from ragmeter.core.durations import parse_duration
from ragmeter.parts.contract import section_of
from ragmeter.parts.objectives.burn_rates import (
    BAD,
    BAD_SQUARES,
    BURN_RATE_ALERTS,
    EVENTS,
    BurnRateAlert,
    burn_rate_rules,
    max_error_ratio,
)
from ragmeter.parts.objectives.settings import ObjectivesSettings, SloSettings
from ragmeter_exporters.rules.rule_file import INTERVAL

from tests.prometheus_server import prometheus
from tests.real import require
from tests.waiting import PATIENCE

NAMES = {name: name for name in (EVENTS, BAD, BAD_SQUARES)}
FAST, SLOW, TICKET = (alert.name for alert in BURN_RATE_ALERTS)
START = 1_760_054_400
MINUTE, HOUR = 60, 3600
LEAST_ERRORS = 10
KEEPS = 5 * MINUTE

Event = tuple[float, bool]
"""(time, bad)"""


def objectives(*named: tuple[str, float]) -> list[SloSettings]:
    slos = [{"name": name, "bad": "failed", "objective": target} for name, target in named]
    settings = load_settings(environ={}, overrides={"slos": slos})
    return section_of(settings, ObjectivesSettings).slos


def availability(target: float = 0.99) -> list[SloSettings]:
    return objectives(("availability", target))


def poisson(
    rng: random.Random, start: float, end: float, rate: float, share: Callable[[float], float]
) -> Iterator[Event]:
    """Events at random times, bad with the probability that `share` gives for the time."""
    at = start + rng.expovariate(rate)
    while at < end:
        yield at, rng.random() < share(at)
        at += rng.expovariate(rate)


class Counted:
    """How many events and bad ones lie in a window: all weigh the same."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._times = [at for at, _ in events]
        self._bad = [0, *accumulate(int(bad) for _, bad in events)]

    def _window(self, now: float, seconds: float) -> tuple[int, int]:
        first, last = bisect_left(self._times, now - seconds), bisect_left(self._times, now)
        return last - first, self._bad[last] - self._bad[first]

    def burns(self, alert: BurnRateAlert, target: float, now: float) -> bool:
        limit = max_error_ratio(alert.factor, target)
        (number, errors), (lately, going_on) = (
            self._window(now, parse_duration(window)) for window in (alert.long, alert.short)
        )
        if not number or not lately or errors < LEAST_ERRORS:
            return False
        return min(errors / number, going_on / lately) > limit


def changes(
    events: Sequence[Event], alert: BurnRateAlert, target: float, until: float
) -> list[tuple[float, bool]]:
    """When an alert fires and ends, if it is looked at every half interval."""
    counted = Counted(events)
    found: list[tuple[float, bool]] = []
    fires = False
    false_since = math.inf
    for at in range(START, round(until) + 1, INTERVAL // 2):
        if counted.burns(alert, target, at):
            false_since = math.inf
            if not fires:
                fires = True
                found.append((at, True))
        elif fires:
            false_since = min(false_since, at)
            if at - false_since >= KEEPS:
                fires = False
                found.append((at, False))
    return found


def rules_text(slos: Sequence[SloSettings]) -> str:
    """A file with the burn-rate rules alone."""
    group = {"name": "slo", "interval": f"{INTERVAL}s", "rules": burn_rate_rules(slos)}
    return yaml.safe_dump({"groups": [group]}, sort_keys=False, width=100, allow_unicode=True)


def scraped(events: Iterable[Event], until: float, every: int, each: float) -> dict[str, str]:
    """The counters at each scrape, as `promtool` writes a series."""
    totals = dict.fromkeys(NAMES, 0.0)
    series = {name: ["0"] for name in NAMES}
    waiting = iter([*sorted(events), (math.inf, False)])
    at, bad = next(waiting)
    for scrape in range(START + every, round(until) + 1, every):
        while at < scrape:
            totals[EVENTS] += each
            totals[BAD] += each * bad
            totals[BAD_SQUARES] += each * each * bad
            at, bad = next(waiting)
        for name, total in totals.items():
            series[name].append(f"{total:.10g}")
    return {name: " ".join(values) for name, values in series.items()}


def expectations(
    events: Sequence[Event],
    target: float,
    until: float,
    *,
    every: int,
    each: float,
    slack: int,
) -> tuple[dict[str, Any], int, set[str]]:
    """A promtool test that expects each alert at every evaluation that is not nearer than `slack`
    seconds to a change of it; how many expectations that are; and which alerts fire."""
    series = scraped(events, until, every, each)
    labels = '{service="bot",slo="availability"}'
    expected = []
    fired = set[str]()
    for alert in BURN_RATE_ALERTS:
        own = changes(events, alert, target, until)
        fired |= {alert.name for _, fires in own if fires}
        for at in range(START + INTERVAL, round(until), INTERVAL):
            if any(abs(moved - at) < slack for moved, _ in own):
                continue
            before = [fires for moved, fires in own if moved < at]
            labelled = {
                "service": "bot",
                "slo": "availability",
                "severity": alert.severity,
                "window": alert.long,
            }
            fires = bool(before) and before[-1]
            expected.append(
                {
                    "eval_time": f"{at - START}s",
                    "alertname": alert.name,
                    "exp_alerts": [{"exp_labels": labelled}] * fires,
                }
            )
    test = {
        "interval": f"{every}s",
        "input_series": [
            {"series": name + labels, "values": values} for name, values in series.items()
        ],
        "alert_rule_test": expected,
    }
    return test, len(expected), fired


def promtool(folder: Path, target: float, test: dict[str, Any]) -> str:
    """What `promtool test rules` says; raises where an expectation fails."""
    text = rules_text(availability(target))
    # promtool compares annotations too, which hold the value: they are the next test's
    (folder / "rules.yml").write_text(re.sub(r"\n    annotations:(\n      .*)+", "", text))
    file = folder / "test.yml"
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": [test],
    }
    file.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    command = [require("promtool"), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@dataclass(frozen=True)
class Incident:
    """A time line: `rate` events a second, bad with the probability `before` and, for `minutes`,
    `during`. `lead` hours come before and `after` hours follow."""

    seed: int
    rate: float
    target: float
    before: float
    during: float
    minutes: float
    after: float = 1
    lead: float = 6
    weight: float = 1
    every: int = 15
    rules: tuple[str, ...] = (FAST,)
    slack: int = INTERVAL


# Over three days one error more or less is minutes of the way to the threshold: so much may lie
# between two tickets.
INCIDENTS = {
    "outage": Incident(1, 1.0, 0.99, 0.002, 1.0, 20, 2),
    "half": Incident(2, 1.0, 0.99, 0.002, 0.5, 30, 2),
    "fifth": Incident(3, 2.0, 0.99, 0.002, 0.2, 90),
    "twentieth": Incident(4, 5.0, 0.999, 0.0002, 0.05, 60),
    "few": Incident(5, 0.1, 0.999, 0.0005, 0.05, 120),
    "sampled": Incident(6, 0.1, 0.99, 0.002, 0.6, 60, weight=20),
    "slow burn": Incident(
        7, 0.2, 0.99, 0.001, 0.02, 30 * 60, 8, 12, every=60, rules=(TICKET,), slack=5 * MINUTE
    ),
}


@pytest.mark.real
@pytest.mark.parametrize(
    "incident",
    [
        pytest.param(one, id=name, marks=pytest.mark.long if name == "slow burn" else ())
        for name, one in INCIDENTS.items()
    ],
)
def test_prometheus_pages_and_clears_within_one_evaluation(
    tmp_path: Path, incident: Incident
) -> None:
    begin = START + incident.lead * HOUR + 10 * MINUTE
    end = begin + incident.minutes * MINUTE
    until = end + incident.after * HOUR
    events = list(
        poisson(
            random.Random(incident.seed),
            START,
            until,
            incident.rate,
            lambda at: incident.during if begin < at < end else incident.before,
        )
    )
    test, number, fired = expectations(
        events,
        incident.target,
        until,
        every=incident.every,
        each=incident.weight,
        slack=incident.slack,
    )
    assert fired >= set(incident.rules)
    assert number > 2_000
    assert "SUCCESS" in promtool(tmp_path, incident.target, test)


def test_each_objective_has_every_alert_of_the_workbook() -> None:
    found = burn_rate_rules(objectives(("availability", 0.999), ("latency", 0.9)), "https://wiki")
    alerts = {(rule["alert"], rule["labels"]["slo"]): rule for rule in found if "alert" in rule}
    assert list(alerts) == [
        (name, slo) for name in (FAST, SLOW, TICKET) for slo in ("availability", "latency")
    ]
    assert 'rate1h{slo="availability"} > 0.0144 ' in alerts[FAST, "availability"]["expr"]
    assert 'rate5m{slo="latency"} > 0.5 ' in alerts[FAST, "latency"]["expr"]
    for rule in alerts.values():
        assert rule["keep_firing_for"] == f"{KEEPS}s"
        assert rule["annotations"]["runbook_url"] == "https://wiki/error-budget.md"
    windows = {rule["record"].rpartition("rate")[2] for rule in found if "record" in rule}
    assert windows >= {"5m", "30m", "1h", "6h", "3d"}


def test_the_factors_are_shares_of_a_budget_of_thirty_days() -> None:
    days = 30 * 24 * HOUR
    shares = [alert.factor * parse_duration(alert.long) / days for alert in BURN_RATE_ALERTS]
    assert shares == pytest.approx([0.02, 0.05, 0.10])
    for alert in BURN_RATE_ALERTS:
        assert parse_duration(alert.long) == 12 * parse_duration(alert.short)


@pytest.mark.real
def test_promtool_finds_the_rules_in_order(tmp_path: Path) -> None:
    odd = 'a"b\\c\nd{{ nobody'
    file = tmp_path / "rules.yml"
    file.write_text(rules_text(objectives(("availability", 0.99), (odd, 0.95))))
    command = [require("promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 rules found" in done.stdout


CONFIG = """
global: {scrape_interval: 1h}
rule_files: [rules.yml]
"""


def backfilled(folder: Path, services: dict[str, list[Event]], shift: float, until: float) -> None:
    """A Prometheus data folder with the counters of these services, as if it had scraped them."""
    lines = []
    for name in NAMES:
        lines.append(f"# TYPE {name.removesuffix('_total')} counter")
        for service, events in services.items():
            values = scraped(events, until, 15, 1.0)[name].split()
            labels = f'{{service="{service}",slo="availability"}}'
            lines += [
                f"{name}{labels} {value} {START + shift + 15 * number:.3f}"
                for number, value in enumerate(values)
            ]
    (folder / "metrics").write_text("\n".join([*lines, "# EOF\n"]))
    command = [require("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run(
        [*command, str(folder / "metrics"), str(folder / "data")],
        check=True,
        timeout=PATIENCE,
        capture_output=True,
    )


def _share(since: float, share: float, at: float) -> float:
    return share if at > since else 0.002


@pytest.mark.real
def test_a_prometheus_server_fires_for_what_burns(tmp_path: Path) -> None:
    """Seven hours of three services up to now; the rule file is loaded as it is written."""
    until = START + 7 * HOUR
    since = {"down": 20 * MINUTE, "poor": 4 * HOUR, "fine": 0}
    services = {
        name: list(
            poisson(
                random.Random(8),
                START,
                until,
                1.0,
                partial(_share, until - ago, {"down": 0.9, "poor": 0.1, "fine": 0.002}[name]),
            )
        )
        for name, ago in since.items()
    }
    expected = {
        (name, alert.name)
        for name, events in services.items()
        for alert in BURN_RATE_ALERTS
        if Counted(events).burns(alert, 0.99, until)
    }
    assert expected >= {("down", FAST), ("poor", SLOW)}
    backfilled(tmp_path, services, round(time.time()) - until, until)
    text = rules_text(availability())
    (tmp_path / "rules.yml").write_text(text.replace(f"interval: {INTERVAL}s", "interval: 1s"))
    with prometheus(tmp_path, CONFIG) as client:
        found: set[tuple[str, str]] = set()
        end = time.monotonic() + PATIENCE
        while found != expected and time.monotonic() < end:
            time.sleep(0.5)
            try:
                alerts = client.get("/alerts").json()["data"]["alerts"]
            except (httpx.TransportError, KeyError, ValueError):
                continue
            found = {
                (alert["labels"]["service"], alert["labels"]["alertname"])
                for alert in alerts
                if alert["state"] == "firing"
            }
    assert found == expected
