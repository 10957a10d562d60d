"""The structure of the product: floors, imports, names and sizes, computed from its own source."""

from __future__ import annotations

import ast
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from ragmeter.core.errors import RagmeterError

ROOT = Path(__file__).parents[1]

# A folder imports only folders on lower floors.
FLOORS = {
    "trace": 1,
    "core": 2,
    **dict.fromkeys(("config", "metrics"), 3),
    **dict.fromkeys(("ingest", "windows", "server"), 4),
    **dict.fromkeys(("breakdown", "drift", "sampling", "store", "console"), 5),
    **dict.fromkeys(("alerts", "scorers"), 6),
    "aggregate": 7,
    "scoring": 8,
    "embedded": 9,
    **dict.fromkeys(("canaries", "offline"), 10),
    "kafka": 11,
    "exporters": 11.5,  # lies beside `agent/`, between what it shows and the composition root
    "app": 12,
    "cli": 13,
    "__main__": 14,
}
COMPOSITION_ROOT = "app"
MAX_FOLDERS = 30
MAX_FILES = 320
MAX_PRODUCT_LINES = 72_180  # 60,000 is the aim
MEDIAN_LINES = range(150, 261)
# Statements of the statistics, docstrings left out: 4,945 when a statistician read them first
# (e2e623e), before there were labels of people.
STATISTICS = ("windows", "drift", "breakdown", "sampling", "aggregate.drift_detection")
LABELS = ("sampling.labelling", "sampling.people_agreement")
MAX_STATISTICS = 4_805
MAX_PARAMETERS = 8  # of a constructor; more want an object for some of them


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by the name under which it is imported."""
    found = {}
    for path in sorted([*(ROOT / "agent").rglob("*.py"), *(ROOT / "exporters").rglob("*.py")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        inner = parts[1:] if parts[0] == "agent" else parts
        if inner[-1] == "__init__":
            inner = inner[:-1]
        found[".".join(("ragmeter", *inner))] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(module: str) -> Iterator[str]:
    """Modules of the product that a module imports: at the top, lazily and for types alike."""
    for node in ast.walk(tree(modules()[module])):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in modules() else str(node.module)
                if target.partition(".")[0] == "ragmeter" and target != module:
                    yield target
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "ragmeter")


def folder(module: str) -> str:
    """The folder of `agent/` (or `exporters`, or `trace`); empty for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for module, path in modules().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def test_the_agent_holds_its_package_file_the_trace_and_folders() -> None:
    entries = {path.name for path in (ROOT / "agent").iterdir() if path.name != "__pycache__"}
    files = {name for name in entries if (ROOT / "agent" / name).is_file()}
    assert files == {"__init__.py", "__main__.py", "trace.py", "py.typed"}
    assert entries - files - {"exporters"} == set(FLOORS) - {"__main__", "trace", "exporters"}
    assert len(entries) <= MAX_FOLDERS


def test_no_module_imports_a_folder_on_the_same_or_a_higher_floor() -> None:
    # The package's own file offers the public names of many floors, lazily.
    upward = [
        f"{module} imports {target}"
        for module in modules()
        for target in imports(module)
        if folder(module)
        and folder(target) not in ("", folder(module))
        and FLOORS[folder(target)] >= FLOORS[folder(module)]
    ]
    assert upward == []


def test_only_the_composition_root_imports_exporters() -> None:
    users = {
        folder(module)
        for module in modules()
        for target in imports(module)
        if folder(target) == "exporters"
    }
    assert users == {"exporters", COMPOSITION_ROOT}


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {module: set(imports(module)) for module in modules()}
    finished: set[str] = set()
    for start in edges:
        path, pending = [start], [iter(sorted(edges[start]))]
        while pending:
            target = next(pending[-1], None)
            if target is None:
                finished.add(path.pop())
                pending.pop()
            elif target in path:
                pytest.fail(" -> ".join([*path[path.index(target) :], target]))
            elif target not in finished:
                path.append(target)
                pending.append(iter(sorted(edges.get(target, ()))))


def test_an_upward_import_in_any_form_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ragmeter.cli.main import app\n"
        "def lazy():\n    from ragmeter.kafka import topics\n"
    )
    monkeypatch.setitem(modules(), "ragmeter.core.fake", Path("fake.py"))
    monkeypatch.setattr("tests.test_house.tree", lambda path: ast.parse(source))
    assert list(imports("ragmeter.core.fake")) == ["ragmeter.cli.main", "ragmeter.kafka.topics"]


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for module, node in classes():
        places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_constructors_take_few_arguments() -> None:
    wide = {}
    for module, node in classes():
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                arguments = method.args
                count = len(arguments.args) + len(arguments.kwonlyargs) - 1
                if count > MAX_PARAMETERS:
                    wide[f"{module}.{node.name}"] = count
    assert wide == {}


def test_exceptions_descend_from_one_base() -> None:
    strangers = []
    for module, node in classes():
        if not any("Error" in ast.unparse(b) or "Exception" in ast.unparse(b) for b in node.bases):
            continue
        defined = getattr(import_module(module), node.name)
        if issubclass(defined, BaseException) and not issubclass(defined, RagmeterError):
            strangers.append(f"{module}.{node.name}")
    assert set(strangers) <= {"ragmeter.core.errors.RagmeterError"}


def test_loggers_are_named_by_their_module() -> None:
    calls = Counter(
        f"{module}: {ast.unparse(node)}"
        for module, path in modules().items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        if ast.unparse(node.args[0] if node.args else ast.Constant("")).startswith("'ragmeter")
    )
    assert calls == Counter()


def test_files_are_few_and_of_a_readable_size() -> None:
    lengths = [
        len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
        if path.stat().st_size
    ]
    assert len(lengths) <= MAX_FILES
    assert sum(lengths) <= MAX_PRODUCT_LINES
    assert int(statistics.median(lengths)) in MEDIAN_LINES


def test_statistics_are_no_larger_than_when_they_were_read_first() -> None:
    size = 0
    for name, path in modules().items():
        if name.startswith(names(STATISTICS)) and not name.startswith(names(LABELS)):
            code = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {
                id(node.body[0])
                for node in ast.walk(code)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and ast.get_docstring(node)
            }
            size += sum(
                isinstance(node, ast.stmt) and id(node) not in docstrings for node in ast.walk(code)
            )
    assert 0 < size <= MAX_STATISTICS


def names(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"ragmeter.{part}" for part in parts)
