"""The agent under every kind of fault, in short; `make chaos` in full."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.chaos.embedded.plan import Plan
from tests.chaos.embedded.run import EmbeddedRun
from tests.chaos.run import run

ROOT = Path(__file__).parents[3]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def test_the_memory_limit_is_that_of_the_chart() -> None:
    values = yaml.safe_load((ROOT / "helm" / "ragmeter" / "values.yaml").read_text())
    assert values["resources"]["limits"]["memory"] == f"{Plan().memory_mb}Mi"


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a busy machine takes a minute for a start, and there are a dozen
def test_faults_lose_nothing_count_nothing_twice_and_bend_no_estimate(tmp_path: Path) -> None:
    report = run(EmbeddedRun(Plan(seconds=20.0, rate=20.0, judged=0.9), tmp_path, say))
    assert not report.differences, str(report)
