"""A day on which nothing happens: the agent tells nothing, and nor does Prometheus. CI takes six
hours of it.

The agent works off the day at full speed; every two minutes of the day it is scraped. What was
scraped goes through Prometheus' own rule engine (`promtool test rules`), with the rules as the
command writes them: it is the one Prometheus whose clock is not the wall's.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import decode_trace
from ragmeter.parts.views import Incident
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.ports import free_port
from tests.real import require
from tests.system.story import configured, rules_for_prometheus
from tests.system.traffic import HOUR, traffic

LENGTHS = (6, pytest.param(24, marks=pytest.mark.long))  # hours
# Seconds between two scrapes: the longest at which a gauge of the rules still holds. As often agent
# and Prometheus ask their rules: of the shortest window, five minutes, twice.
EVERY = 120.0
ORIGIN = 1_760_000_000.0
TARGET = 'job="ragmeter",instance="a:9464"'


def day(running: EmbeddedAgent, length: float, names: Set[str]) -> Iterator[dict[str, str]]:
    """Each scrape: value by series, of those metrics."""
    exporter = PrometheusExporter(running)
    waiting = traffic(-length, 0.0, origin=ORIGIN)
    held = next(waiting, None)
    for number in range(1, round(length / EVERY) + 1):
        batch = []
        while held is not None and held[0] < number * EVERY - length:
            body = json.dumps(held[1]).encode()
            batch.append((decode_trace(body, len(body)), 0))
            held = next(waiting, None)
        running.accept(batch, "file")
        running.wait_idle()
        scraped = {f"up{{{TARGET}}}": "1"}
        for line in exporter.render().decode().splitlines():
            name, brace, rest = line.partition("{")
            name = name.partition(" ")[0]
            if name not in names:
                continue
            # a line is what promtool reads, but for the labels that a scrape adds
            labels, _, value = rest.rpartition("} ") if brace else ("", "", line.split()[1])
            scraped[f"{name}{{{TARGET},{labels}}}"] = value
        yield scraped


def promtool_test(scrapes: list[dict[str, str]], length: float, rules: str) -> dict[str, Any]:
    """Every alert of the rules, at every third of an hour: none fires."""
    series: dict[str, list[str]] = {}
    for number, found in enumerate(scrapes):
        for key, value in found.items():
            values = series.setdefault(key, ["_"] * number)
            values += ["_"] * (number - len(values)) + [value]
    names = sorted(set(re.findall(r"- alert: (\w+)", rules)))
    times = range(30, round(length / 60), 20)
    return {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{EVERY:.0f}s",
        "tests": [
            {
                "interval": f"{EVERY:.0f}s",
                "input_series": [
                    {"series": key, "values": " ".join(values)} for key, values in series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{at}m", "alertname": name, "exp_alerts": []}
                    for name in names
                    for at in times
                ],
            }
        ],
    }


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("hours", LENGTHS)
def test_a_quiet_day_fires_nothing(tmp_path: Path, hours: int) -> None:
    tool = require("promtool")
    notified = list[Incident]()
    config = configured(tmp_path, port=free_port(), evaluation_seconds=EVERY)

    def notify(incident: Incident, _: float) -> tuple[()]:
        notified.append(incident)
        return ()

    settings = load_settings(config, environ={})
    running = EmbeddedAgent(
        settings,
        load_configured_rules(settings),
        live=False,
        outputs=AgentOutputs(notify),
        parts=PARTS,
    )
    running.start()
    rules = rules_for_prometheus(config)
    names = set(re.findall(r"\b(?:[a-z]+_)*rag(?:meter)?_[a-z0-9_]+", rules))
    names.add("rag_answered_ratio")  # RagScoresAbsent matches it by a pattern
    begin = time.monotonic()
    length = hours * HOUR
    try:
        scrapes = list(day(running, length, names))
    finally:
        running.stop(10)
    assert notified == []
    assert len(scrapes) == length / EVERY
    assert any(key.startswith("rag_answered_ratio{") for key in scrapes[-1])
    (tmp_path / "rules.yml").write_text(rules)
    document = promtool_test(scrapes, length, rules)
    assert len(document["tests"][0]["input_series"]) > 100
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    (tmp_path / "test.yml").write_text(yaml.dump(document, Dumper=dumper, width=10**9))
    command = [tool, "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    print(f"{time.monotonic() - begin:.0f} s")
