"""Prometheus' own tool reads the rules and runs their unit tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.exporters.rules.annotations import FILES, TESTS, promtool
from tests.real import require
from tests.waiting import PATIENCE

RULES = TESTS.parents[2] / "helm" / "ragmeter" / "files" / "ragmeter.rules.yaml"


@pytest.mark.real
def test_promtool_finds_the_rules_in_order() -> None:
    command = [require("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    number = len(re.findall(r"^ +- (?:alert|record): ", RULES.read_text("utf-8"), re.M))
    assert number > 30  # without those of the parts
    assert f"SUCCESS: {number} rules found" in done.stdout


@pytest.mark.real
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_unit_tests_of_the_rules_hold(file: Path) -> None:
    done = promtool(file)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "SUCCESS" in done.stdout
