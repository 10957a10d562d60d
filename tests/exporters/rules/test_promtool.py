"""Prometheus' own tool reads the rules and runs their unit tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ragmeter.alerts.error_budgets import Objective
from ragmeter.alerts.rules import parse_rules
from ragmeter_exporters.rules.rule_file import build_rule_file

from tests.exporters.rules.annotations import FILES, TESTS, promtool
from tests.real import require

RULES = TESTS.parents[2] / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"
DEFAULTS = Path(__file__).parents[3] / "agent" / "ragmeter" / "alerts" / "default_rules.yaml"


@pytest.mark.real
def test_promtool_finds_the_rules_in_order() -> None:
    command = [require("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    number = len(re.findall(r"^ +- (?:alert|record): ", RULES.read_text("utf-8"), re.M))
    assert number > 70
    assert f"SUCCESS: {number} rules found" in done.stdout


@pytest.mark.real
def test_what_looks_like_a_template_is_text(tmp_path: Path) -> None:
    """Prometheus takes labels and annotations for templates, and would not load the file."""
    odd = "{{ nobody }}"
    segment = {"name": "One", "severity": "warning", "metric": "grounding", "segment": odd}
    reading = {"op": "<", "threshold": 0.5, "window": "1h", "labels": {"team": odd}}
    failed = {"name": "RagUnscoredHigh", "labels": {"team": odd}}
    defaults = yaml.safe_load(DEFAULTS.read_text("utf-8"))
    rules = parse_rules([defaults, {"rules": [{**segment, **reading}, failed]}])
    objective = Objective(f'{odd} "\\\n', 0.99)
    file = build_rule_file(rules, [objective], segments=[odd], runbooks=f"https://{odd}")
    path = tmp_path / "rules.yaml"
    path.write_text(file.text(), "utf-8")
    command = [require("promtool"), "check", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_unit_tests_of_the_rules_hold(file: Path) -> None:
    require("promtool")
    done = promtool(file)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "SUCCESS" in done.stdout
