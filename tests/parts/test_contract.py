"""What holds of every part: its rows, its names, and how little of the tree knows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.parts.collection import declared_families
from ragmeter.parts.contract import Part

from tests.sources import ROOT, tree

SOURCES = ("agent", "exporters")
MOST_FILES = 3  # outside its folder that may name a part: the list, and two that cannot be generic
LISTED = ROOT / "agent" / "ragmeter" / "app" / "parts.py"

each_part = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)


def folder(part: type[Part[Any]]) -> Path:
    return ROOT.joinpath("agent", *part.package.split("."))


def names(part: type[Part[Any]]) -> Iterator[str]:
    """How other code could name a part: its package, classes, families and paths."""
    yield part.package
    for path in folder(part).rglob("*.py"):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
    for declared in declared_families(part):
        yield declared.partition("{")[0]
    if part.documents is not None:
        yield part.documents.path
        yield part.documents.schema_prefix
    yield from (path.partition("{")[0] for path in part.form_paths)


def attributes(part: type[Part[Any]]) -> Iterator[str]:
    """How other code could read the settings of a part, or the name of its topic."""
    if part.documents is not None and part.documents.topic:
        yield f"topics.{part.documents.topic}"
    if part.settings is not None:
        yield from (f"settings.{field}" for field in part.settings.model_fields)


@cache
def sources() -> dict[Path, str]:
    """What could name a part."""
    return {
        path: path.read_text("utf-8")
        for top in SOURCES
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".yaml", ".html", ".pyx")
    }


def test_names_are_distinct() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)


@each_part
def test_a_part_lies_in_a_folder_of_its_name(part: type[Part[Any]]) -> None:
    assert folder(part).name == part.name
    assert (ROOT / "tests" / "parts" / part.name).is_dir()


@each_part
def test_few_files_outside_its_folder_name_a_part(part: type[Part[Any]]) -> None:
    others = {
        path: text for path, text in sources().items() if not path.is_relative_to(folder(part))
    }
    # nearly all of its names stand nowhere else, which is quickly seen in all files at once
    everything = "\0".join(others.values())
    own = {name for name in names(part) if name in everything}
    read = {name for name in attributes(part) if name in everything}
    words = re.compile(
        "|".join(
            [
                *(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in own),
                *(rf"{re.escape(name)}(?!\w)" for name in read),
            ]
        )
    )
    users = [
        str(path.relative_to(ROOT))
        for path, text in others.items()
        if any(name in text for name in own | read) and words.search(text)
    ]
    assert str(LISTED.relative_to(ROOT)) in users
    assert len(users) <= MOST_FILES, users
