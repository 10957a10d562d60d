"""Benchmarks start only modules that `python -m` can run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTED = sorted(
    {
        (path.name, module)
        for path in (ROOT / "benchmarks").glob("*.py")
        for module in re.findall(r'"-m", "((?:ragmeter|benchmarks)[\w.]*)"', path.read_text())
    }
)


@pytest.mark.parametrize(("benchmark", "module"), STARTED)
def test_a_module_that_is_started_is_a_program(benchmark: str, module: str) -> None:
    source = ROOT / "agent" if module.startswith("ragmeter") else ROOT
    path = source.joinpath(*module.split("."))
    found = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert '__name__ == "__main__"' in found.read_text() or found.name == "__main__.py"
