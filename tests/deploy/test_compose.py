"""deploy/compose.yaml and what it mounts, by the programs' own checks where they are at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from ragmeter.alerts.rule_sets import RUNBOOK_BASE
from ragmeter.app.exports import prometheus_rules
from ragmeter.app.settings import load_settings
from ragmeter.core.files import parse_yaml
from ragmeter.ingest.native import DecodedTrace, decode_trace

from tests.deploy.commands import check
from tests.deploy.dockerfile import stages
from tests.deploy.tools import ROOT, python_of_tools
from tests.real import require

COMPOSE = ROOT / "deploy" / "compose.yaml"
SERVICES: dict[str, Any] = parse_yaml(COMPOSE.read_text(encoding="utf-8"))["services"]
OURS = ("topics", "worker", "sample")


@pytest.mark.real
def test_satisfies_the_schema_of_compose_files() -> None:
    program = str(python_of_tools().with_name("check-jsonschema"))
    command = [program, "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


def test_everything_that_is_mounted_is_there() -> None:
    volumes = parse_yaml(COMPOSE.read_text(encoding="utf-8"))["volumes"]
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                path = COMPOSE.parent / source
                assert path.exists(), f"{name}: {source}"
                assert mount.endswith(":ro")
            else:
                assert source in volumes


@pytest.mark.parametrize("name", ["topics", "worker"])
def test_commands_are_ours(name: str) -> None:
    check(SERVICES[name]["command"])


def test_samples_command_is_ours() -> None:
    (line,) = SERVICES["sample"]["command"]
    producer, _, sender = line.partition("|")
    assert producer.split()[:3] == ["python", "/sample/traffic.py", "/sample/mtrag.jsonl"]
    words = sender.split()
    assert words[0] == "ragmeter"
    check(words[1:])


@pytest.mark.parametrize("name", OURS)
def test_ours_run_locked_down(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["build"]["target"] in stages()
    assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT


def test_nothing_is_published_beyond_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_worker_has_time_to_finish() -> None:
    settings = load_settings()
    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert seconds >= settings.limits.drain_seconds + 20


def test_no_service_waits_for_one_that_is_not_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)


def test_images_are_pinned() -> None:
    for service in SERVICES.values():
        tag = service["image"].rpartition(":")[2]
        assert tag
        assert tag != "latest"


def test_settings_of_the_workers(tmp_path: Path) -> None:
    settings = load_settings(ROOT / "deploy" / "compose" / "ragmeter.yaml", environ={})
    kafka = settings.model_dump()["kafka"]
    assert kafka["bootstrap_servers"] == ["kafka:9092"]
    assert SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].endswith("kafka:9092")


def mounted(service: str, target: str) -> Path:
    mounts: list[list[str]] = [mount.split(":") for mount in SERVICES[service]["volumes"]]
    (source,) = [source for source, into, *_ in mounts if into == target]
    return (COMPOSE.parent / source).resolve()


def test_rules_are_those_of_the_workers() -> None:
    """Another objective has no counters, and series of segments would fire by themselves."""
    config = mounted("worker", "/etc/ragmeter/config/ragmeter.yaml")
    settings = load_settings(config, environ={})
    found = mounted("prometheus", "/etc/prometheus/ragmeter.rules.yaml").read_text(encoding="utf-8")
    # the file is for everybody: its links are no page of this agent
    alerts = settings.alerts.model_copy(update={"runbook_url": SecretStr(RUNBOOK_BASE)})
    assert prometheus_rules(settings.model_copy(update={"alerts": alerts})) == found


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.real
def test_prometheus_takes_its_settings_and_rules(tmp_path: Path) -> None:
    promtool = require("promtool")
    config = ROOT / "deploy" / "compose" / "prometheus.yml"
    (rules,) = parse_yaml(config.read_text(encoding="utf-8"))["rule_files"]
    # with the rules where this machine has them
    local = tmp_path / "prometheus.yml"
    local.write_text(config.read_text().replace(rules, str(mounted("prometheus", rules))))
    done = subprocess.run(
        [promtool, "check", "config", local], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_alertmanager_takes_its_settings() -> None:
    config = ROOT / "deploy" / "compose" / "alertmanager.yml"
    command = [require("amtool"), "check-config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_is_given_prometheus_and_the_dashboards() -> None:
    folder = ROOT / "deploy" / "compose" / "grafana" / "provisioning"
    (source,) = parse_yaml((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = parse_yaml((folder / "dashboards/ragmeter.yaml").read_text())["providers"]
    targets = [mount.split(":")[1] for mount in SERVICES["grafana"]["volumes"]]
    assert provider["options"]["path"] in targets


def test_sample_writes_traces_that_are_new_each_time() -> None:
    script, file = ROOT / "deploy/compose/traffic.py", ROOT / "examples/mtrag.jsonl"
    rounds = len(file.read_text(encoding="utf-8").splitlines()) + 20
    with subprocess.Popen(
        [sys.executable, script, file, "--rate", "2000"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rounds)]
        process.kill()
    limit = load_settings(environ={}).limits.trace_bytes
    items = [decode_trace(line, limit) for line in lines]
    assert all(isinstance(item, DecodedTrace) for item in items)
    assert len({json.loads(line)["trace_id"] for line in lines}) == rounds
