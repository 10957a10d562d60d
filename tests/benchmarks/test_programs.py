"""The programs are few: a page says of each what it asks, and all other files serve them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tables import each_row

ROOT = Path(__file__).parents[2]
STARTED = sorted(
    {
        (path.name, module)
        for path in (ROOT / "benchmarks").glob("*.py")
        for module in re.findall(r'"-m", "((?:ragmeter|benchmarks)[\w.]*)"', path.read_text())
    }
)
PROGRAMS = {
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if '__name__ == "__main__"' in path.read_text()
}
LISTED = re.findall(
    r"^\| `(\w+)` \|", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE
)
HELPERS = {
    "bare_server",
    "beside_app",
    "judge_reference",
    "judge_workload",
    "kafka_rivals",
    "peers_process",
}
"""Started by `agent`, `beside`, `judge`, `kafka_workers` and `peers` as processes of their own."""


def test_the_page_has_every_program_once() -> None:
    assert sorted(LISTED) == sorted(PROGRAMS - HELPERS)


def test_every_other_file_is_used_by_a_program() -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    modules = set(texts) - set(LISTED) - {"__init__"}
    idle = {
        name
        for name in modules
        if not any(
            re.search(rf"benchmarks\.{name}\b|import {name}\b|{name}\.py", text)
            for other, text in texts.items()
            if other != name
        )
    }
    assert idle == set()


def test_training_needs_no_benchmark() -> None:
    texts = [path.read_text() for path in (ROOT / "training").rglob("*.py")]
    assert [
        text for text in texts if re.search(r"^\s*(?:from|import) benchmarks\b", text, re.M)
    ] == []


@each_row(("benchmark", "module"), STARTED)
def test_a_module_that_is_started_is_a_program(benchmark: str, module: str) -> None:
    source = ROOT / "agent" if module.startswith("ragmeter") else ROOT
    path = source.joinpath(*module.split("."))
    found = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert '__name__ == "__main__"' in found.read_text() or found.name == "__main__.py"
