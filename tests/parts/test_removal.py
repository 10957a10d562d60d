"""The proof that a part can be taken out: its folders and its lines go, and all else passes.

The tree without the part runs every file of the fast tests that could see it: `dependents` has the
rule, which leaves out files that test functions far below the parts. CI takes two parts out at
once, `make acceptance` each of them and the segments alone. `ALL=1` before the command runs what is
left out, too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from ragmeter.app.parts import PARTS
from ragmeter.parts.collection import declared_families
from ragmeter.parts.contract import Part

from tests.parts.dependents import dependent_files

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
    pytest.param(("segments",), id="segments", marks=pytest.mark.long),
)
# Files outside the folders of a part that are about it alone, and lines of others that name them.
BESIDE = {
    "segments": (
        Path("benchmarks", "segments.py"),
        Path("tests", "benchmarks", "test_segments.py"),
    )
}
NAMING = {
    "segments": {
        Path("Makefile"): "benchmarks.segments",
        Path("benchmarks", "README.md"): "| `segments` |",
    }
}

FAST = "not (slow or real)"
_BLOCK = re.compile(r"^```yaml\n.*?^```\n", re.MULTILINE | re.DOTALL)


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


def _without(keys: Collection[str], block: str) -> str:
    """Return a block of a page, empty if it begins with one of these keys."""
    return "" if block.partition("\n")[2].partition(":")[0] in keys else block


def take_out(part: type[Part[Any]], copy: Path) -> None:
    """Take out of a copy the folders of a part, its lines in the list of parts and its settings."""
    for folder in list(copy.glob(f"**/parts/{part.name}")):
        shutil.rmtree(folder)
    for path in BESIDE.get(part.name, ()):
        (copy / path).unlink()
    for path, words in NAMING.get(part.name, {}).items():
        named = (copy / path).read_text("utf-8").splitlines(keepends=True)
        (copy / path).write_text("".join(one for one in named if words not in one), "utf-8")
    lines = (copy / LISTED).read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if part.package not in line and part.__name__ not in line]
    assert len(kept) == len(lines) - 2
    (copy / LISTED).write_text("".join(kept), "utf-8")
    keys = set() if part.settings is None else set(part.settings.model_fields)
    for path in SETTINGS:
        tree = yaml.safe_load((copy / path).read_text("utf-8"))
        left = {key: value for key, value in tree.items() if key not in keys}
        (copy / path).write_text(yaml.safe_dump(left), "utf-8")
    # a page is written by hand: whoever takes a part out deletes what it says of its settings
    for page in (copy / "docs").glob("*.md"):
        text = page.read_text("utf-8")
        page.write_text(_BLOCK.sub(lambda block: _without(keys, block.group()), text), "utf-8")
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
    # the reference and the chart name what parts have, the rules read it
    for generator in ("deploy.pages", "deploy.chart", "deploy.dashboards"):
        run(sys.executable, "-m", generator)
    rules = run(sys.executable, "-m", "ragmeter", "rules", "prometheus", "--config", str(CONFIG))
    (copy / RULES).write_text(rules, "utf-8")
    dependent = dependent_files([part_named(name).package for name in names])
    left = [str(path) for path in dependent if (copy / path).is_file()]
    chosen = ["tests"] if os.environ.get("ALL") else left
    run(sys.executable, "-m", "pytest", "-q", "--maxfail=20", "-m", FAST, *chosen)


def test_only_what_cannot_see_a_part_is_left_out() -> None:
    seeing = {str(path) for path in dependent_files(["ragmeter.parts.index"])}
    assert {
        "tests/aggregate/test_backends.py",  # gives an aggregator the parts
        "tests/cli/test_main.py",  # starts commands
        "tests/parts/index/test_totals.py",
        "tests/test_docs.py",  # reads pages
        "tests/test_packaging.py",  # starts processes
    } <= seeing
    assert not {"tests/answers/test_thoughts.py", "tests/windows/test_estimators.py"} & seeing
