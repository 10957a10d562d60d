"""A real Prometheus scrapes the live app and evaluates the whole rule file on what it exports."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.exporters.fakes import everything
from tests.exporters.rules.annotations import TESTS
from tests.exporters.server import serving
from tests.prometheus_server import prometheus
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

RULES = TESTS.parents[2] / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: ragmeter
    static_configs:
      - targets: ["127.0.0.1:{port}"]
"""


def groups(client: httpx.Client) -> list[dict[str, Any]]:
    """All groups, once each was evaluated on something that was scraped, most three times."""
    end = time.monotonic() + PATIENCE
    asked = "count(ragmeter_build_info)"
    since = 0.0
    while time.monotonic() < end:
        try:
            if client.get("/query", params={"query": asked}).json()["data"]["result"]:
                since = since or time.monotonic()
                found = list(client.get("/rules").json()["data"]["groups"])
                rules = [rule for group in found for rule in group["rules"]]
                asked_all = all(rule["health"] != "unknown" for rule in rules)
                if time.monotonic() > since + 4 and asked_all:
                    return found
        except (httpx.TransportError, KeyError, ValueError):
            pass
        time.sleep(0.3)
    raise TimeoutError("no group was evaluated")


@pytest.mark.real
def test_every_rule_is_evaluated_without_a_fault_and_a_sound_agent_fires_none(
    tmp_path: Path,
) -> None:
    text = re.sub(r"^  interval: .*$", "  interval: 1s", RULES.read_text("utf-8"), flags=re.M)
    (tmp_path / "rules.yml").write_text(text)
    sound = everything()
    lost = "ragmeter_kafka_deleted_unread_total", (("topic", "rag.traces"),)
    sound.counters.inc(*lost, -sound.counters.get(*lost))  # of a process that has just begun
    with serving(sound) as port, prometheus(tmp_path, CONFIG.format(port=port)) as client:
        found = [rule for group in groups(client) for rule in group["rules"]]
        assert len(found) == len(re.findall(r"^ +- (?:alert|record): ", text, re.M)) > 45
        assert [(r["name"], r.get("lastError")) for r in found if r["health"] != "ok"] == []
        alerts = client.get("/alerts").json()["data"]["alerts"]
        assert [a["labels"] for a in alerts if a["state"] == "firing"] == []
        recorded = client.get("/query", params={"query": '{__name__=~"instance:.+"}'}).json()
        assert recorded["data"]["result"]
