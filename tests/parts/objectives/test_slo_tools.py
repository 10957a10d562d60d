"""Sloth and Pyrra on the agent's weighted counters, in a real Prometheus.

Errors are all traced and good requests are sampled at one in twenty. Counted as they come, every
service would be in trouble; by their weights one objective of one service is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.objectives.events import objective_events
from ragmeter.parts.objectives.settings import SloSettings
from ragmeter.trace import Status

from tests.exporters.rules.annotations import ROOT
from tests.prometheus_server import prometheus
from tests.real import require
from tests.waiting import PATIENCE

FOLDER = ROOT / "deploy" / "prometheus" / "slo"
SLOS = [
    SloSettings(name="availability", bad="failed", objective=0.99),
    SloSettings(name="latency", bad="slow", seconds=10, objective=0.95),
]
MINUTES = 7 * 60
Counts = dict[str, dict[str, float]]


class Kind(NamedTuple):
    """So many traces a minute of one kind."""

    number: int
    status: Status = "ok"
    seconds: float = 1.0
    probability: float = 1.0


TRAFFIC = {
    # 600 good, 150 failed, 30 slow: 19 % fail and 4 % are slow
    "support-bot": [Kind(30, probability=0.05), Kind(150, "error"), Kind(30, seconds=20)],
    # 600 good, 3 failed: 0.5 % fail
    "fine": [Kind(30, probability=0.05), Kind(3, "error")],
}


def a_minute(kinds: Sequence[Kind], weighted: bool = True) -> Counts:
    """By how much the counters of each objective grow, as the agent counts."""
    found: Counts = {}
    for kind in kinds:
        scored = ScoredTrace(
            "t", "s", 0.0, kind.status, [], kind.probability, {"total": kind.seconds}
        )
        for event in objective_events(scored, SLOS):
            own = found.setdefault(event.slo, {"rag_slo_events": 0, "rag_slo_bad_events": 0})
            weight = kind.number * (event.weight / WEIGHT_ONE if weighted else 1)
            own["rag_slo_events"] += weight
            own["rag_slo_bad_events"] += weight * event.bad
    return found


def share(counts: Mapping[str, float]) -> float:
    return counts["rag_slo_bad_events"] / counts["rag_slo_events"]


def backfill(folder: Path, until: float) -> None:
    """Seven hours of the counters, scraped every minute."""
    lines = []
    for name in ("rag_slo_events", "rag_slo_bad_events"):
        lines.append(f"# TYPE {name} counter")
        for service, kinds in TRAFFIC.items():
            for slo, counts in a_minute(kinds).items():
                labels = f'{{service="{service}",slo="{slo}",job="ragmeter",instance="a:9464"}}'
                lines += [
                    f"{name}_total{labels} {counts[name] * n:.10g} {until + 60 * (n - MINUTES):.3f}"
                    for n in range(MINUTES + 1)
                ]
    (folder / "metrics").write_text("\n".join([*lines, "# EOF\n"]))
    command = [require("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run(
        [*command, str(folder / "metrics"), str(folder / "data")],
        check=True,
        timeout=PATIENCE,
        capture_output=True,
    )


def evaluated(folder: Path, rules: str, query: str, number: int) -> tuple[set[Any], dict[Any, Any]]:
    """What burns, and the answer to a query once it has `number` series; evaluated every second,
    as what `for` waits for lies in the past already."""
    backfill(folder, time.time())
    text = re.sub(r"^  interval: .*$", "  interval: 1s", (FOLDER / rules).read_text(), flags=re.M)
    (folder / "rules.yml").write_text(text)
    config = "global: {scrape_interval: 1h, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
    with prometheus(folder, config) as client:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                found = client.get("/query", params={"query": query}).json()["data"]["result"]
                alerts = client.get("/alerts").json()["data"]["alerts"]
                if len(found) >= number and alerts:
                    time.sleep(2)  # the alerts of a later group
                    alerts = client.get("/alerts").json()["data"]["alerts"]
                    break
            except (httpx.TransportError, KeyError, ValueError):
                pass
            assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
            time.sleep(0.3)
    burning = {
        frozenset({"alertname": a["labels"]["alertname"], **a["labels"]}.items()) for a in alerts
    }
    return burning, {frozenset(s["metric"].items()): float(s["value"][1]) for s in found}


def test_without_weights_other_objectives_would_burn() -> None:
    bot, fine = a_minute(TRAFFIC["support-bot"]), a_minute(TRAFFIC["fine"])
    plain = {name: a_minute(kinds, weighted=False) for name, kinds in TRAFFIC.items()}
    assert share(bot["availability"]) == pytest.approx(150 / 780)
    assert share(bot["latency"]) == pytest.approx(30 / 780)
    assert share(fine["availability"]) == pytest.approx(3 / 603)
    assert share(plain["support-bot"]["latency"]) > 0.05 > share(bot["latency"])
    assert share(plain["fine"]["availability"]) > 7 * 0.01 > 0.01 > share(fine["availability"])


@pytest.mark.real
def test_sloths_rules_page_for_what_burns_by_weight(tmp_path: Path) -> None:
    query = 'slo:sli_error:ratio_rate1h{sloth_service="support-bot"}'
    burning, ratios = evaluated(tmp_path, "sloth.rules.yaml", query, 2)
    by_slo = {dict(labels)["sloth_slo"]: value for labels, value in ratios.items()}
    assert by_slo["availability"] == pytest.approx(150 / 780, rel=0.01)
    assert by_slo["latency"] == pytest.approx(30 / 780, rel=0.01)
    found = {(dict(a)["alertname"], dict(a)["sloth_severity"]) for a in burning}
    assert found == {("SupportBotAvailability", "page"), ("SupportBotAvailability", "ticket")}


@pytest.mark.real
def test_pyrras_rules_page_for_what_burns_by_weight(tmp_path: Path) -> None:
    burning, ratios = evaluated(tmp_path, "pyrra.rules.yaml", "rag_slo_events:burnrate1h", 2)
    by_service = {dict(labels)["service"]: value for labels, value in ratios.items()}
    assert by_service["support-bot"] == pytest.approx(150 / 780, rel=0.01)
    assert by_service["fine"] == pytest.approx(3 / 603, rel=0.01)
    assert {(dict(a)["service"], dict(a)["long"]) for a in burning} == {
        ("support-bot", long) for long in ("1h", "6h", "1d", "4d")
    }


def test_pyrras_objective_has_the_name_of_ours() -> None:
    """It puts its name into the label `slo`, and asks its own series for both."""
    spec = yaml.safe_load((FOLDER / "pyrra.yaml").read_text("utf-8"))
    name, ratio = spec["metadata"]["name"], spec["spec"]["indicator"]["ratio"]
    rules = (FOLDER / "pyrra.rules.yaml").read_text("utf-8")
    for metric in (ratio["errors"]["metric"], ratio["total"]["metric"]):
        assert f'{{slo="{name}"}}' in metric
        assert f"sum by (service) (rate({metric}[5m]))" in rules
    assert ratio["grouping"] == ["service"]


def test_the_committed_rules_are_those_of_sloth(tmp_path: Path) -> None:
    """With the program at hand all of it, without it the queries."""
    spec = yaml.safe_load((FOLDER / "sloth.yaml").read_text("utf-8"))
    committed = (FOLDER / "sloth.rules.yaml").read_text("utf-8")
    for slo in spec["slos"]:
        for query in slo["sli"]["events"].values():
            assert f"({query.replace('{{.window}}', '5m')})" in committed
    sloth = shutil.which("sloth")
    if sloth is None:
        return
    out = tmp_path / "out.yaml"
    command = [sloth, "generate", "-i", str(FOLDER / "sloth.yaml"), "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    assert yaml.safe_load(committed) == yaml.safe_load(out.read_text("utf-8"))
