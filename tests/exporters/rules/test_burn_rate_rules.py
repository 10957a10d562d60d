"""The generated rule file against the agent: same events, same alerts, within one evaluation.

Prometheus' own rule engine (`promtool test rules`) evaluates the file at every interval over
counters as the agent would have exported them; a server then loads the file as it is.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.budget_rings import COARSE
from ragmeter.alerts.error_budgets import Objective
from ragmeter.alerts.rules import AlertRule, load_rules, parse_rules
from ragmeter.core.arithmetic import weight_units
from ragmeter_exporters.rules.promql import glob_to_regex
from ragmeter_exporters.rules.rule_file import (
    BAD,
    BAD_SQUARES,
    EVENTS,
    INTERVAL,
    burn_rate_rules,
)

from tests.alerts.burn_rates import (
    BURN_RULES,
    FAST,
    HOUR,
    MINUTE,
    SLOW,
    START,
    TICKET,
    Event,
    availability,
    drive,
    poisson,
)
from tests.prometheus_server import prometheus
from tests.real import require
from tests.waiting import PATIENCE

NAMES = {name: name for name in (EVENTS, BAD, BAD_SQUARES)}


def rule_file_text(rules: Sequence[AlertRule], objectives: Sequence[Objective]) -> str:
    """A file with the burn-rate rules alone."""
    group = {"name": "slo", "interval": f"{INTERVAL}s", "rules": burn_rate_rules(rules, objectives)}
    return yaml.safe_dump({"groups": [group]}, sort_keys=False, width=100, allow_unicode=True)


def scraped(events: Iterable[Event], until: float, every: int, each: float) -> dict[str, str]:
    """The counters at each scrape, as `promtool` writes a series."""
    totals, series = dict.fromkeys(NAMES, 0.0), {name: ["0"] for name in NAMES}
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
    announced: Sequence[Alert],
    until: float,
    *,
    every: int,
    each: float,
    slack: int,
) -> tuple[dict[str, Any], int]:
    """A promtool test that expects the agent's alerts at every evaluation that is not nearer than
    `slack` seconds to a transition of that alert; and how many expectations that are."""
    series = scraped(events, until, every, each)
    labels = '{service="bot",slo="availability"}'
    expected = []
    for rule in BURN_RULES:
        own = [alert for alert in announced if alert.rule == rule.name]
        for at in range(START + INTERVAL, round(until), INTERVAL):
            if any(abs(alert.updated_at - at) < slack for alert in own):
                continue
            before = [alert for alert in own if alert.updated_at < at]
            fires = bool(before) and before[-1].state == "firing"
            alerts = [{"exp_labels": _labels(rule.name, rule.severity, rule.window)}] * fires
            expected.append(
                {
                    "eval_time": f"{at - START}s",
                    "alertname": rule.name,
                    "exp_alerts": alerts,
                }
            )
    test = {
        "interval": f"{every}s",
        "input_series": [
            {"series": name + labels, "values": values} for name, values in series.items()
        ],
        "alert_rule_test": expected,
    }
    return test, len(expected)


def _labels(rule: str, severity: str, window: str) -> dict[str, str]:
    return {
        "service": "bot",
        "slo": "availability",
        "severity": severity,
        "window": window,
    }


def promtool(folder: Path, target: float, test: dict[str, Any]) -> str:
    """What `promtool test rules` says; raises where an expectation fails."""
    text = rule_file_text(BURN_RULES, [availability(target)])
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
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


# Over three days one error more or less is minutes of the way to the threshold, and the ring has
# buckets of five minutes: so much may lie between two tickets.
INCIDENTS = {
    "outage": Incident(1, 1.0, 0.99, 0.002, 1.0, 20, 2),
    "half": Incident(2, 1.0, 0.99, 0.002, 0.5, 30, 2),
    "fifth": Incident(3, 2.0, 0.99, 0.002, 0.2, 90),
    "twentieth": Incident(4, 5.0, 0.999, 0.0002, 0.05, 60),
    "few": Incident(5, 0.1, 0.999, 0.0005, 0.05, 120),
    "sampled": Incident(6, 0.1, 0.99, 0.002, 0.6, 60, weight=20),
    "slow burn": Incident(
        7, 0.2, 0.99, 0.001, 0.02, 30 * 60, 8, 12, every=60, rules=(TICKET,), slack=COARSE
    ),
}
QUICK = ("outage", "sampled")


@pytest.mark.real
@pytest.mark.parametrize(
    "incident",
    [
        pytest.param(one, id=name, marks=() if name in QUICK else pytest.mark.slow)
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
    objective = availability(incident.target)
    announced = drive(events, until, objective, weight=weight_units(1 / incident.weight))
    assert {alert.rule for alert in announced} >= set(incident.rules)
    test, number = expectations(
        events,
        announced,
        until,
        every=incident.every,
        each=incident.weight,
        slack=incident.slack,
    )
    assert number > 2_000
    assert "SUCCESS" in promtool(tmp_path, incident.target, test)


def test_the_file_holds_every_burn_rule_for_every_objective() -> None:
    objectives = [availability(0.999), Objective("latency", 0.9)]
    extra = {
        "name": "Mine",
        "severity": "warning",
        "burn": {"slo": "avail*", "short": "10m", "factor": 3, "min_errors": 0},
        "window": "2h",
        "for": "1m",
        "keep_firing_for": "5m",
        "services": ["shop-*", "a.b?"],
        "labels": {"team": "x"},
        "runbook": "https://wiki/slo",
    }
    rules = [*load_rules(), *parse_rules([{"rules": [extra]}])]
    (group,) = yaml.safe_load(rule_file_text(rules, objectives))["groups"]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert [(rule["alert"], rule["labels"]["slo"]) for rule in alerts] == [
        *((name, slo) for name in (FAST, SLOW, TICKET) for slo in ("availability", "latency")),
        ("Mine", "availability"),
    ]
    by_name = {(rule["alert"], rule["labels"]["slo"]): rule for rule in alerts}
    assert 'rate1h{slo="availability"} > 0.0144 ' in by_name[FAST, "availability"]["expr"]
    assert 'rate5m{slo="latency"} > 0.5 ' in by_name[FAST, "latency"]["expr"]
    mine = by_name["Mine", "availability"]
    assert mine["expr"] == (
        'service_slo:rag_slo_bad:ratio_rate2h{slo="availability",service=~"shop\\\\-.*|a\\\\.b."}'
        ' > 0.003 and service_slo:rag_slo_bad:ratio_rate10m{slo="availability",'
        'service=~"shop\\\\-.*|a\\\\.b."} > 0.003'
    )
    assert (mine["for"], mine["keep_firing_for"]) == ("60s", "300s")
    assert mine["labels"]["team"] == "x"
    assert mine["annotations"]["runbook_url"] == "https://wiki/slo"
    windows = {rule["record"].rpartition("rate")[2] for rule in group["rules"] if "record" in rule}
    assert windows >= {"5m", "10m", "30m", "1h", "2h", "6h", "3d"}


@given(glob=st.text("ab-[]!^\\*?.|&\n", max_size=8), name=st.text("ab-[]!^\\*?.|&\n", max_size=4))
def test_an_expression_is_what_the_agent_matches(glob: str, name: str) -> None:
    matched = re.fullmatch(glob_to_regex(glob), name, re.DOTALL) is not None  # as in Prometheus
    assert matched is fnmatchcase(name, glob)


@pytest.mark.real
def test_promtool_finds_the_file_in_order(tmp_path: Path) -> None:
    odd = 'a"b\\c\nd'
    services = ["shop-*", "a.b?", "[!x]y", "[", "(", 'q"']
    services += ["[z-a]", "[!]", "[]", "[^", "[[:alpha:]]", "[a\\d-]", "[&~# ]", "[!z-a]"]
    told = {"labels": {"team": "{{ nobody"}, "runbook": "https://example.com/{{ x }}"}
    rules = [rule.model_copy(update={"services": tuple(services), **told}) for rule in BURN_RULES]
    file = tmp_path / "rules.yml"
    file.write_text(rule_file_text(rules, [availability(), Objective(odd, 0.95)]))
    command = [require("promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 rules found" in done.stdout


@pytest.mark.parametrize(
    ("glob", "fits", "not_"),
    [
        ("shop-*", ["shop-", "shop-a"], ["shop", "xshop-a"]),
        ("a.b?", ["a.bc"], ["axbc", "a.b"]),
        ("[!x]y", ["ay"], ["xy"]),
        ("[ab]", ["a", "b"], ["c"]),
        ("[", ["["], ["a"]),
        ("[!]b", ["[!]b"], ["ab"]),
        ("[]", ["[]"], ["["]),
        ("[]^]", ["]", "^"], ["a"]),
        ("[^x]y", ["^y", "xy"], ["ay"]),
        ("[z-a]|b", [], ["|b", "z|b", "b"]),
        ("[!z-a]", ["a", "z"], [""]),
        ("[a\\d]", ["a", "d", "\\"], ["1"]),
        ("[[:alpha:]]", ["[]", "a]"], ["b", "a"]),
    ],
)
def test_globs_become_expressions(glob: str, fits: list[str], not_: list[str]) -> None:
    for name in [*fits, *not_]:
        matched = re.fullmatch(glob_to_regex(glob), name) is not None
        assert matched is fnmatchcase(name, glob) is (name in fits)


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
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip


def _share(since: float, share: float, at: float) -> float:
    return share if at > since else 0.002


@pytest.mark.real
def test_a_prometheus_server_fires_what_the_agent_fires(tmp_path: Path) -> None:
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
    expected = set()
    for name, events in services.items():
        state = {alert.rule: alert.state for alert in drive(events, until)}
        expected |= {(name, rule) for rule, now in state.items() if now == "firing"}
    assert expected >= {("down", FAST), ("poor", SLOW)}
    backfilled(tmp_path, services, round(time.time()) - until, until)
    text = rule_file_text(BURN_RULES, [availability()])
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
