"""The proof that a part can be taken out: its folders and its lines go, and all else passes.

The tree without the part runs the fast tests of what could know it. CI takes two parts out at once,
`make acceptance` each of them alone. So that it stays short, left out are folders that no part
reaches (formulas, ingest, scorers, statistics, alerts), those that wait for processes (commands,
both homes, chaos, charts, browsers), and the examples in the pages under docs/, which are written
by hand: whoever takes a feature out deletes its chapter. `ALL=1` before
the command runs the whole fast suite.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.app.parts import PARTS
from ragmeter.parts.collection import declared_families
from ragmeter.parts.contract import Part

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
LISTED = Path("agent", "ragmeter", "app", "parts.py")
CONFIG = Path("deploy", "prometheus", "objectives.yaml")
SETTINGS = (CONFIG, Path("deploy", "compose", "ragmeter.yaml"))
RULES = Path("helm", "ragmeter", "files", "ragmeter.rules.yaml")
GOLDEN = Path("tests", "golden", "golden.json")
REMOVED = (
    pytest.param(("index", "objectives"), id="both"),
    pytest.param(("index",), id="index", marks=pytest.mark.long),
    pytest.param(("objectives",), id="objectives", marks=pytest.mark.long),
)

FAST = "not (slow or real)"

# What builds agents, reads what they export, or checks documents against the code.
RUN = (
    "tests/aggregate",
    "tests/config",
    "tests/exporters",
    "--ignore=tests/exporters/otel",  # it exports results, whoever counts them
    "tests/golden",
    "tests/parts",
    "tests/server",
    # simulations of what lies within a part or beneath all of them
    "--ignore=tests/aggregate/test_event_time_gaps.py",
    "--ignore=tests/parts/drift/test_part.py",
    "tests/test_docs.py",
    "tests/test_house.py",
    "tests/test_repository.py",
)


def part_named(name: str) -> type[Part[Any]]:
    (found,) = [part for part in PARTS if part.name == name]
    return found


def copy_tree(copy: Path) -> None:
    """Copy what git has or would have, and what was compiled of it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for file in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / file
        if source.is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / file)
    # what Python compiled, for half a minute, is good for files of the same time and size
    for folder in [each for each in copy.rglob("*") if each.is_dir()]:
        compiled = ROOT / folder.relative_to(copy) / "__pycache__"
        if compiled.is_dir():
            shutil.copytree(compiled, folder / "__pycache__")
    for compiled in (ROOT / "agent" / "ragmeter" / "metrics").glob("kernel.*.so"):
        shutil.copy2(compiled, copy / "agent" / "ragmeter" / "metrics")


def take_out(part: type[Part[Any]], copy: Path) -> None:
    """Take out of a copy the folders of a part, its lines in the list of parts and its settings."""
    for folder in list(copy.glob(f"**/parts/{part.name}")):
        shutil.rmtree(folder)
    lines = (copy / LISTED).read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if part.package not in line and part.__name__ not in line]
    assert len(kept) == len(lines) - 2
    (copy / LISTED).write_text("".join(kept), "utf-8")
    keys = set() if part.settings is None else set(part.settings.model_fields)
    for path in SETTINGS:
        tree = yaml.safe_load((copy / path).read_text("utf-8"))
        left = {key: value for key, value in tree.items() if key not in keys}
        (copy / path).write_text(yaml.safe_dump(left), "utf-8")
    # the hashes of what the part exports go with it; all others must stand
    golden = json.loads((copy / GOLDEN).read_text("utf-8"))
    for declared in declared_families(part):
        golden["families"].pop(declared.partition("{")[0], None)
    (copy / GOLDEN).write_text(json.dumps(golden), "utf-8")


@pytest.mark.parametrize("names", REMOVED)
def test_the_tree_without_a_part_passes_its_tests(names: tuple[str, ...], tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    copy_tree(copy)
    for name in names:
        take_out(part_named(name), copy)
    sources = os.pathsep.join(str(copy / top) for top in ("agent", "exporters", "."))
    environment = {**os.environ, "PYTHONPATH": sources}
    environment.pop("PYTEST_XDIST_WORKER", None)

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        return done.stdout

    run("git", "init", "--quiet")
    run("git", "add", "--all")
    run("git", "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "-m", "Take it out")
    # the reference names what parts export, the rules read it
    run(sys.executable, "-m", "deploy.pages")
    rules = run(sys.executable, "-m", "ragmeter", "rules", "prometheus", "--config", str(CONFIG))
    (copy / RULES).write_text(rules, "utf-8")
    folders = ["tests"] if os.environ.get("ALL") else RUN
    run(sys.executable, "-m", "pytest", "-q", "-x", "-m", FAST, *folders)
