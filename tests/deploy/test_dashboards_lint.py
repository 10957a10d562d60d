"""Grafana's own dashboard-linter, with nothing excluded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from deploy.dashboards.files import DASHBOARDS
from tests.deploy.tools import linter_program

pytestmark = pytest.mark.real


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [linter_program(), "lint", "--strict", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("path", sorted(DASHBOARDS.glob("*.json")), ids=lambda path: path.stem)
def test_nothing_to_find(path: Path) -> None:
    assert not (path.parent / ".lint").exists()  # where exclusions would stand
    done = lint(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("what", "instead", "found"),
    [
        ('instance=~\\"$instance\\"', 'instance=\\"a\\"', "instance matcher"),
        ("[$__rate_interval]", "[5m]", "should use $__rate_interval"),
        ('"unit": "percentunit"', '"unit": "furlongs"', "invalid units"),
    ],
)
def test_it_would_find(what: str, instead: str, found: str, tmp_path: Path) -> None:
    text = (DASHBOARDS / "service.json").read_text()
    assert what in text
    path = tmp_path / "service.json"
    path.write_text(text.replace(what, instead))
    json.loads(path.read_text())
    done = lint(path)
    assert done.returncode == 1
    assert found in done.stdout
