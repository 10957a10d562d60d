"""The structure of the product: floors, imports, names and signatures, read from its source."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import ROOT, nodes, tree

PACKAGES = ("ragmeter", "ragmeter_exporters")

# A folder imports only folders on lower floors.
FLOORS = {
    **dict.fromkeys(("reasons", "answers"), 0),
    "trace": 1,
    "core": 2,
    **dict.fromkeys(("config", "metrics"), 3),
    **dict.fromkeys(("ingest", "windows", "server"), 4),
    **dict.fromkeys(("alerts", "sampling", "store", "console"), 5),
    "scorers": 6,
    "parts": 7,
    "aggregate": 8,
    "scoring": 9,
    **dict.fromkeys(("embedded", "kafka", "canaries", "offline"), 10),
    "exporters": 11,  # lies beside `agent/`, between what it shows and the composition root
    "app": 12,
    "cli": 13,
    "__main__": 14,
}
COMPOSITION_ROOT = "app"
MAX_PARAMETERS = 8  # of a constructor; more want an object for some of them


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by the name under which it is imported."""
    found = {}
    for path in sorted([*(ROOT / "agent").rglob("*.py"), *(ROOT / "exporters").rglob("*.py")]):
        inner = path.relative_to(ROOT).with_suffix("").parts[1:]
        if inner[-1] == "__init__":
            inner = inner[:-1]
        found[".".join(inner)] = path
    return found


def imports(module: str) -> Iterator[str]:
    """Modules of the product that a module imports: at the top, lazily and for types alike."""
    for node in nodes(modules()[module]):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in modules() else str(node.module)
                if target.partition(".")[0] in PACKAGES and target != module:
                    yield target
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in PACKAGES)


def folder(module: str) -> str:
    """The folder of `ragmeter` (or `exporters`, or `trace`); empty for the package itself."""
    parts = module.split(".")
    if parts[0] == "ragmeter_exporters":
        return "exporters"
    return parts[1] if len(parts) > 1 else ""


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for module, path in modules().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def test_the_agent_holds_its_package_file_the_trace_and_folders() -> None:
    package = ROOT / "agent" / "ragmeter"
    entries = {path.name for path in package.iterdir() if path.name != "__pycache__"}
    files = {name for name in entries if (package / name).is_file()}
    assert files == {"__init__.py", "__main__.py", "reasons.py", "trace.py", "py.typed"}
    assert entries - files == set(FLOORS) - {"__main__", "reasons", "trace", "exporters"}


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
    monkeypatch.setattr("tests.test_house.nodes", lambda path: list(ast.walk(ast.parse(source))))
    assert list(imports("ragmeter.core.fake")) == ["ragmeter.cli.main", "ragmeter.kafka.topics"]


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for module, node in classes():
        places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def own_fields(node: ast.ClassDef) -> list[str]:
    """Names of the fields that the constructor of a dataclass takes."""
    if not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
        return []
    return [
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if "init=False" not in ast.unparse(field) and "ClassVar" not in ast.unparse(field)
    ]


def test_constructors_take_few_arguments() -> None:
    wide = {}
    for module, node in classes():
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                arguments = method.args
                count = len(arguments.args) + len(arguments.kwonlyargs) - 1
                if count > MAX_PARAMETERS:
                    wide[f"{module}.{node.name}"] = count
        taken = own_fields(node)
        if len(taken) > MAX_PARAMETERS and any(name.startswith("_") for name in taken):
            wide[f"{module}.{node.name}"] = len(taken)
    assert wide == {}


def test_loggers_are_named_by_their_module() -> None:
    calls = Counter(
        f"{module}: {ast.unparse(node)}"
        for module, path in modules().items()
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        if ast.unparse(node.args[0] if node.args else ast.Constant("")).startswith("'ragmeter")
    )
    assert calls == Counter()


MAX_POSITIONAL = 4  # arguments of a call; more go by keyword


@cache
def _scope(module: str) -> dict[str, tuple[str, str]]:
    """Names that a module defines or imports from the product: module and name of each."""
    names = {}
    for node in nodes(modules()[module]):
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                names[alias.asname or alias.name] = (str(node.module), alias.name)
    for node in tree(modules()[module]).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = (module, node.name)
    return names


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    return {
        node.name: node
        for node in tree(modules()[module]).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def function_parameters(node: ast.stmt, *, bound: bool) -> list[str] | None:
    """Names of the parameters that may go by position or by keyword; None if it is not known."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    decorators = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
    if node.args.posonlyargs or node.args.vararg or decorators - KNOWN_DECORATORS:
        return None
    names = [one.arg for one in node.args.args]
    return names[1:] if bound and "staticmethod" not in decorators else names


KNOWN_DECORATORS = {"cache", "lru_cache", "contextmanager", "staticmethod", "classmethod"}


def class_parameters(module: str, node: ast.ClassDef) -> list[str] | None:
    """Names of the arguments of a constructor; None if they are not known."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            return function_parameters(method, bound=True)
    bases = [ast.unparse(one) for one in node.bases]
    decorators = [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
    fields: list[str] = []
    for base in bases:
        target = _scope(module).get(base)
        inherited = definitions(target[0]).get(target[1]) if target else None
        if isinstance(inherited, ast.ClassDef) and target:
            fields += class_parameters(target[0], inherited) or []
        elif base != "NamedTuple":
            return None
    if "dataclass" not in decorators and "NamedTuple" not in bases:
        return None
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            annotation, value = ast.unparse(field.annotation), ast.unparse(field.value or field)
            if "KW_ONLY" in annotation or "kw_only" in value:
                return None
            if "ClassVar" not in annotation and "init=False" not in value:
                fields.append(field.target.id)
    return fields


def positional_calls(module: str) -> Iterator[tuple[ast.Call, list[str]]]:
    """Calls of the product's own with too many arguments by position, and the callee's names."""
    many = [
        node
        for node in nodes(modules()[module])
        if isinstance(node, ast.Call)
        and len(node.args) > MAX_POSITIONAL
        and not any(isinstance(one, ast.Starred) for one in node.args)
    ]
    if not many:
        return
    scope = _scope(module)
    methods = {}
    for owner in nodes(modules()[module]):
        if isinstance(owner, ast.ClassDef):
            own = {
                f"self.{method.name}": method
                for method in owner.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            for call in ast.walk(owner):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    method = own.get(ast.unparse(call.func))
                    if method is not None:
                        methods[call] = method
    for node in many:
        names = None
        if node in methods:
            names = function_parameters(methods[node], bound=True)
        elif isinstance(node.func, ast.Name) and node.func.id in scope:
            place, name = scope[node.func.id]
            callee = definitions(place).get(name)
            if isinstance(callee, ast.ClassDef):
                names = class_parameters(place, callee)
            elif callee is not None:
                names = function_parameters(callee, bound=False)
        if names is not None and not any(name.startswith("_") for name in names):
            yield node, names


def test_calls_with_many_arguments_name_them() -> None:
    calls = [
        f"{modules()[module].relative_to(ROOT)}:{call.lineno} {ast.unparse(call.func)}"
        for module in modules()
        for call, _ in positional_calls(module)
    ]
    assert calls == []


# Matches where a line assigns to three things or more, or where a call could unpack a literal.
_PACKED = re.compile(r"(?m)^[^#=\n]*,[^#=\n]*,[^#=\n]* = |\*[(\[]")
TOPS = ("agent", "exporters", "benchmarks", "deploy", "examples", "tests", "training")


@cache
def packed_candidates() -> list[Path]:
    """Every file of the project that may hold packed code; few have to be parsed for it."""
    files = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]
    return [path for path in files if _PACKED.search(path.read_text("utf-8"))]


def test_nothing_unpacks_a_literal() -> None:
    unpacked = [
        f"{path.relative_to(ROOT)}:{one.lineno}"
        for path in packed_candidates()
        for one in nodes(path)
        if isinstance(one, ast.Starred) and isinstance(one.ctx, ast.Load)
        if isinstance(one.value, ast.Tuple | ast.List)
    ]
    assert unpacked == []


def test_no_assignment_packs_more_than_a_pair() -> None:
    packed = [
        f"{path.relative_to(ROOT)}:{one.lineno}"
        for path in packed_candidates()
        for one in nodes(path)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Tuple)
        if isinstance(one.targets[0], ast.Tuple) and len(one.value.elts) > 2
    ]
    assert packed == []
