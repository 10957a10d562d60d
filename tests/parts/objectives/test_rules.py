"""The rules for Prometheus that the part brings to the rule file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.cli.main import app
from ragmeter.config.settings import Settings
from ragmeter.parts.objectives.burn_rates import BURN_RATE_ALERTS
from ragmeter.parts.objectives.part import ObjectivesPart
from ragmeter_exporters.rules.rule_file import rule_file, rule_groups
from typer.testing import CliRunner

from tests.real import require

UP: dict[str, object] = {"name": "up", "bad": "failed"}


def with_objectives(*slos: dict[str, object]) -> Settings:
    return load_settings(environ={}, overrides={"slos": list(slos)})


def test_an_objective_on_a_metric_that_there_is_not_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "ragmeter.yaml"
    file.write_text("slos: [{name: a, bad: low, metric: groundig, threshold: 0.5}]")
    done = CliRunner().invoke(app, ["rules", "prometheus", "--config", str(file)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'groundig' is not known" in done.stderr


def test_links_of_burn_rates_lead_to_their_runbook() -> None:
    rules = ObjectivesPart.prometheus_rules(with_objectives(UP), "https://wiki.test/rag/")
    links = {rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule}
    assert links == {"https://wiki.test/rag/error-budget.md"}


def test_without_objectives_there_are_no_burn_rates() -> None:
    groups = rule_groups(PARTS, with_objectives())
    assert "ragmeter-objectives" not in {group["name"] for group in groups}


def test_every_alert_of_the_rules_is_one_that_the_runbook_describes() -> None:
    rules = ObjectivesPart.prometheus_rules(with_objectives(UP), "")
    found = {rule["alert"]: rule for rule in rules if "alert" in rule}
    described = {alert.name: alert for alert in ObjectivesPart.prometheus_alerts}
    assert found.keys() == described.keys() == {alert.name for alert in BURN_RATE_ALERTS}
    for name, rule in found.items():
        assert rule["labels"]["severity"] == described[name].severity
        assert rule["keep_firing_for"] == f"{described[name].keep:.0f}s"


@pytest.mark.real
def test_what_looks_like_a_template_is_text(tmp_path: Path) -> None:
    """Prometheus takes labels and annotations for templates, and would not load the file."""
    odd = "{{ nobody }}"
    settings = with_objectives({"name": f'{odd} "\\\n', "bad": "failed", "objective": 0.99})
    path = tmp_path / "rules.yaml"
    path.write_text(rule_file(rule_groups(PARTS, settings, f"https://{odd}")), "utf-8")
    command = [require("promtool"), "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
