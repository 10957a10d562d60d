"""What holds of every part: its rows, its names, and how little of the tree knows it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.core.files import load_yaml
from ragmeter.parts.contract import Part

ROOT = Path(__file__).parents[2]
SOURCES = ("agent", "exporters")
MOST_FILES = 3  # outside its folder that may name a part: the list, and two that cannot be generic
LISTED = ROOT / "agent" / "ragmeter" / "app" / "parts.py"
REMOVED = ("index",)  # parts that the slow suite takes out, one at a time

each_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)


def folder(part: type[Part[Any]]) -> Path:
    return ROOT.joinpath("agent", *part.package.split("."))


def names(part: type[Part[Any]]) -> Iterator[str]:
    """How other code could name a part: its package, classes, families and path."""
    yield part.package
    for path in folder(part).rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
    for declared in load_yaml(part.package, "families.yaml"):
        yield declared.partition("{")[0]
    if part.documents is not None:
        yield part.documents.path
        yield part.documents.schema_prefix


def test_names_are_distinct() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


@each_part
def test_a_part_lies_in_a_folder_of_its_name(part: type[Part[Any]]) -> None:
    assert folder(part).name == part.name
    assert (ROOT / "tests" / "parts" / part.name).is_dir()


@each_part
def test_few_files_outside_its_folder_name_a_part(part: type[Part[Any]]) -> None:
    words = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names(part)))
    users = [
        str(path.relative_to(ROOT))
        for top in SOURCES
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".yaml", ".html", ".pyx")
        and not path.is_relative_to(folder(part))
        and words.search(path.read_text("utf-8"))
    ]
    assert str(LISTED.relative_to(ROOT)) in users
    assert len(users) <= MOST_FILES, users


def take_out(name: str, copy: Path) -> None:
    """Copy the tree without the folder of a part and without its line in the list."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for file in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / file
        if source.is_file() and f"/parts/{name}/" not in f"/{file}":
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / file)
    for compiled in (ROOT / "agent" / "ragmeter" / "metrics").glob("compiled.*.so"):
        shutil.copy2(compiled, copy / "agent" / "ragmeter" / "metrics")
    (part,) = [one for one in PARTS if one.name == name]
    path = copy / LISTED.relative_to(ROOT)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    kept = (line for line in lines if part.package not in line and part.__name__ not in line)
    path.write_text("".join(kept), "utf-8")


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", REMOVED)
def test_the_tree_without_a_part_passes_its_tests(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    take_out(name, copy)
    path = os.pathsep.join(str(copy / top) for top in (*SOURCES, "."))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    made = [sys.executable, "-m", "deploy.pages"]  # the reference names what parts export
    subprocess.run(made, cwd=copy, env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", "tests"]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
