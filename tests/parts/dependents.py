"""The test files that could see that a part of the product is gone, by a rule that misses none.

A test sees it if it runs code of the part, or of what lists the parts, or reads a file that has
changed. So a test file is left out only if this holds of it, of the `conftest.py` of its folders,
and of every module of the tree that any of them imports (at the top, late or for types alike),
however many others lie between:

- It is no module of the part, of `ragmeter.app`, which lists the parts, or of `ragmeter.cli`, which
  loads its commands by name. What `ragmeter` itself offers counts as loaded from `ragmeter.app`.
- It starts no process, which could run anything, and loads no module of the tree by a name that
  stands in no import. What the product below `ragmeter.app` loads by name are packages of others.
- If it is no module of the product, it names no file beside its own text. The modules of the
  product read the data of their own package alone.

The `conftest.py` of all tests is passed over: what it does for tests that do not ask for the broker
is to patch modules that lie below `ragmeter.app`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.sources import ROOT, nodes

__all__ = ["dependent_files"]

SOURCES = {"agent": "agent", "exporters": "exporters"}  # source roots by their first folder
TOPS = ("agent", "exporters", "benchmarks", "deploy", "examples", "tests", "training")
PRODUCT = ("ragmeter", "ragmeter_exporters")
LOADS_ALL = ("ragmeter.app", "ragmeter.cli", "ragmeter.__main__")
STARTS = re.compile(
    r"\b(?:subprocess|multiprocessing|fork_server|pexpect)\b|create_subprocess"
    r"|\bos\.(?:fork|exec|spawn|posix_spawn|system|popen)"
)
LOADS_BY_NAME = re.compile(r"\b(?:import_module|__import__|runpy|pkgutil|pytester)\b")
NAMES_FILES = re.compile(r"\b__file__\b|\bROOT\b|\bPath\(|\bopen\(|\bcwd\(|\bresources\b|load_yaml")


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the tree by the name under which it is imported."""
    found = {}
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            inner = path.relative_to(ROOT / SOURCES.get(top, "")).with_suffix("").parts
            found[".".join(inner[:-1] if inner[-1] == "__init__" else inner)] = path
    return found


def _packages(module: str) -> Iterator[str]:
    """A module of the tree, and the packages that are imported with it."""
    while module:
        if module in modules():
            yield module
        module = module.rpartition(".")[0]


@cache
def _imported(module: str) -> frozenset[str]:
    """The modules of the tree that a module imports itself."""
    if module == "ragmeter":
        return frozenset()  # it loads what it offers when it is asked for it
    found = set(_packages(module.rpartition(".")[0]))
    for node in nodes(modules()[module]):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            offered = "ragmeter" in names
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            offered = node.module == "ragmeter"
        else:
            continue
        if offered:
            found.add("ragmeter.app")
        for name in names:
            found.update(_packages(name))
    return frozenset(found - {module})


@cache
def _is_open(module: str) -> bool:
    """Tell whether a module may run or read what its imports do not name."""
    text = modules()[module].read_text("utf-8")
    product = module.partition(".")[0] in PRODUCT
    patterns = [STARTS] if product else [STARTS, LOADS_BY_NAME, NAMES_FILES]
    return any(pattern.search(text) for pattern in patterns)


def _reached(module: str) -> Iterator[str]:
    """A module and all that it imports, directly or through others."""
    seen = {module}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        yield current
        new = _imported(current) - seen
        seen |= new
        waiting += new


def _lies_in(module: str, packages: Collection[str]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


def dependent_files(parts: Collection[str]) -> list[Path]:
    """The files of tests, from the root, that could see that the packages of parts are gone."""
    closed_to = (*LOADS_ALL, *parts)
    conftests = {name.rpartition(".")[0]: name for name in modules() if name.endswith(".conftest")}
    found = []
    for module, path in modules().items():
        if not path.name.startswith("test_"):
            continue
        starts = {module, *(conftests[one] for one in _packages(module) if one in conftests)}
        reached = {one for start in starts - {"tests.conftest"} for one in _reached(start)}
        if any(_lies_in(one, closed_to) or _is_open(one) for one in reached):
            found.append(path.relative_to(ROOT))
    return sorted(found)
