"""The rules of the house that a program can check: layout, imports, sizes, nothing of a machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sources import ROOT, nodes, tree
from tests.tables import each_row
from tests.waiting import PATIENCE

PACKAGES = ("agent", "exporters")

# Built from pieces: this file is searched too.
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/" + r"(?:wor[k]|roo[t])/|/tmp/bash[_]jobs|\.\./share[d]\b|\.librar[y]/"
)
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(first) + r"\." + re.escape(rest)
        for first, rest in [
            ("pypi", "org"),
            ("files", "pythonhosted"),
            ("registry", "npmjs"),
            ("crates", "io"),
            ("proxy", "golang"),
            ("repo1", "maven"),
            ("deb", "debian"),
        ]
    )
)

PURE = (
    "agent/ragmeter/trace.py",
    "agent/ragmeter/metrics",
    "agent/ragmeter/windows",
    "agent/ragmeter/parts",
    "agent/ragmeter/sampling",
    "agent/ragmeter/alerts",
    "agent/ragmeter/aggregate",
    "agent/ragmeter/kafka/state",
)
# The modules of parts with the handlers of a port, which they load only where they are mounted.
HANDLERS = ("desk.py", "api.py")
IMPURE_MODULES = {
    "aiohttp",
    "asyncio",
    "http",
    "httpx",
    "multiprocessing",
    "requests",
    "select",
    "shutil",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
}
IMPURE_CALLS = {
    "open",
    "print",
    "input",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "random.random",
    "random.randint",
    "random.choice",
    "random.shuffle",
    "random.sample",
    "uuid4",
    "uuid.uuid4",
    "os.urandom",
    "os.getenv",
}


@cache
def project_files() -> tuple[Path, ...]:
    """What git keeps or would keep, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone")
    names = sorted({name for name in listed.stdout.decode().split("\0") if name})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files(*tops: str) -> list[Path]:
    return [
        path
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(top) for top in tops or (".",))
    ]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, in full, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def top(module: str) -> str:
    return module.partition(".")[0]


def assigned(node: ast.stmt) -> set[str]:
    """The plain names that a statement of a module's body assigns."""
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def has_code(path: Path) -> bool:
    """Whether a file is more than a package marker (a docstring, a version)."""
    marks: list[set[str]] = [{"__version__"}, {"__all__"}]
    return any(
        not isinstance(node, ast.Expr) and assigned(node) not in marks for node in tree(path).body
    )


def texts() -> Iterator[tuple[Path, str]]:
    for path in project_files():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data:
            yield path, data.decode("utf-8")


def matches(pattern: re.Pattern[str], *, quoted_data: bool) -> list[str]:
    """Where a pattern stands in the project; `quoted_data` searches bundled traces as well."""
    return [
        f"{path}:{number}: {line[max(0, found.start() - 30) : found.end() + 30]}"
        for path, text in texts()
        if quoted_data or ".jsonl" not in path.suffixes
        for number, line in enumerate(text.split("\n"), 1)
        if (found := pattern.search(line))
    ]


def test_no_file_names_a_path_of_a_build_machine() -> None:
    # Real traces may speak of such paths: the documentation of a cloud does.
    assert matches(MACHINE_PATHS, quoted_data=False) == []


def test_no_file_names_a_package_registry() -> None:
    """But for uv.lock, whose format has the index: the public one, never one of a machine."""
    found = [
        one for one in matches(REGISTRY_HOSTS, quoted_data=True) if not one.startswith("uv.lock:")
    ]
    assert found == []


def test_the_lock_names_the_public_index_and_no_other() -> None:
    text = Path("uv.lock").read_text(encoding="utf-8")
    hosts = set(re.findall(r"\w+://([^/\"]+)", text))
    assert hosts == {
        ".".join(parts) for parts in [("pypi", "org"), ("files", "pythonhosted", "org")]
    }
    assert not MACHINE_PATHS.search(text)
    assert "file:" not in text


@pytest.mark.parametrize(
    "text", ["cd /wor" + "k/main", "in '/roo" + "t/.cache'", "../share" + "d/data"]
)
def test_machine_paths_are_recognised(text: str) -> None:
    assert MACHINE_PATHS.search(text)


@pytest.mark.parametrize("text", ["docs/work/", "https://example.com/work/", "the chroot/ folder"])
def test_other_paths_are_not_taken_for_machine_paths(text: str) -> None:
    assert not MACHINE_PATHS.search(text)


def test_every_folder_with_python_is_a_package() -> None:
    files = python_files(*PACKAGES, "tests", "benchmarks")
    folders = {path.parent for path in files}
    roots = {Path("."), *map(Path, PACKAGES)}  # source roots hold packages and are none
    folders |= {parent for folder in folders for parent in folder.parents if parent not in roots}
    missing = [str(folder) for folder in folders if folder / "__init__.py" not in files]
    assert missing == []


def test_every_module_has_a_docstring() -> None:
    files = [path for path in python_files(*PACKAGES, "benchmarks") if has_code(path)]
    assert [str(path) for path in files if not ast.get_docstring(tree(path))] == []


def test_agent_knows_no_prometheus() -> None:
    users = [str(p) for p in python_files("agent") if "prometheus_client" in map(top, imports(p))]
    assert users == []


@each_row("part", PURE)
def test_pure_parts_import_no_input_or_output(part: str) -> None:
    found = [
        f"{path}: {name}"
        for path in python_files(part)
        if path.name not in HANDLERS
        for name in imports(path)
        if name in IMPURE_MODULES or top(name) in IMPURE_MODULES
    ]
    assert found == []


@each_row("part", PURE)
def test_pure_parts_read_no_clock_file_or_chance(part: str) -> None:
    found = [
        f"{path}:{node.lineno}: {name}"
        for path in python_files(part)
        if path.name not in HANDLERS
        for node in nodes(path)
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in IMPURE_CALLS
    ]
    assert found == []


def test_parts_load_the_handlers_of_a_port_late() -> None:
    handlers = tuple(f".{Path(name).stem}" for name in HANDLERS)
    early = [
        f"{path}: {node.module}"
        for path in python_files("agent", "exporters")
        for node in tree(path).body
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("ragmeter.parts.")
        and str(node.module).endswith(handlers)
    ]
    assert early == []


def test_runtime_imports_are_declared_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    declared = [*project["dependencies"], *(name for extra in extras.values() for name in extra)]
    names = {re.split(r"[^\w.-]", line)[0].replace("-", "_").lower() for line in declared}
    # imported under another name too
    others = {
        "pyyaml": "yaml",
        "pydantic": "pydantic_core",
        "opentelemetry_proto": "opentelemetry",
        "protobuf": "google",
        "faust_streaming": "faust",
        "kafka_python": "kafka",
        "markdown_it_py": "markdown_it",
    }
    allowed = (
        names
        | {others[name] for name in names if name in others}
        | sys.stdlib_module_names
        | {"ragmeter", "ragmeter_exporters"}
    )
    strange = {
        f"{path}: {top(name)}"
        for path in python_files(*PACKAGES)
        for name in imports(path)
        if top(name) not in allowed
    }
    assert strange == set()


def source_folder(test_folder: Path) -> Path:
    """tests/windows -> agent/ragmeter/windows, tests/exporters -> exporters/ragmeter_exporters."""
    inner = test_folder.relative_to("tests")
    if inner.parts[:1] == ("exporters",):
        return Path("exporters/ragmeter_exporters").joinpath(*inner.parts[1:])
    return Path("agent/ragmeter") / inner


def test_versions_of_python_are_declared_alike() -> None:
    """What the package declares, a release has wheels for, and CI takes where it finds it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    release = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    built = [f"3.{minor}" for minor in re.findall(r"cp3(\d+)-\*", release)]
    tested = re.findall(r"python(3\.\d+)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert project["requires-python"] == f">={declared[0]}"
    assert built == declared
    assert set(declared) <= set(tested)


@each_row("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "OTHER"])
def test_one_variable_names_the_authorities_for_all_that_fetches(name: str) -> None:
    """uv reads SSL_CERT_FILE, pip REQUESTS_CA_BUNDLE."""
    shown = "include Makefile\nshow:\n\t@echo $$SSL_CERT_FILE $$REQUESTS_CA_BUNDLE\n"
    command = ["make", "--silent", "--file=-", "show"]
    environ = {"PATH": os.environ["PATH"], name: "/ca.pem"}
    done = subprocess.run(
        command,
        input=shown,
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ([] if name == "OTHER" else ["/ca.pem", "/ca.pem"])


def test_tests_mirror_the_tree() -> None:
    test_folders = {path.parent for path in python_files("tests")}
    folders = {path.parent for path in python_files(*PACKAGES)}
    # not of a part
    free = {
        "tests/chaos",
        "tests/chaos/embedded",
        "tests/chaos/kafka",
        "tests/golden",
        "tests",
        "tests/apps",
        "tests/benchmarks",
        "tests/deploy",
        "tests/deploy/screenshots",
        "tests/system",
        "tests/training",
        "tests/training/hhem",
    }
    stray = [
        str(folder)
        for folder in test_folders
        if str(folder) not in free and source_folder(folder) not in folders
    ]
    assert stray == []
    mirrored = {source_folder(folder) for folder in test_folders}
    if (
        Path("exporters/ragmeter_exporters") in mirrored
    ):  # the page's parts are tested beside the page
        mirrored.add(Path("exporters/ragmeter_exporters/page"))
    with_code = {path.parent for path in python_files(*PACKAGES) if has_code(path)}
    assert {str(folder) for folder in with_code - mirrored} == set()


def test_every_test_file_tests() -> None:
    idle = [
        str(path)
        for path in python_files("tests")
        if path.name.startswith("test_")
        and not re.search(r"(?m)^\s*(?:async )?def test_", path.read_text("utf-8"))
    ]
    assert idle == []


def test_no_line_is_kept_from_the_formatter() -> None:
    mark = "# " + "fmt: "
    files = python_files(*PACKAGES, "benchmarks", "deploy", "examples", "tests", "training")
    assert [str(path) for path in files if mark in path.read_text("utf-8")] == []


def test_slow_tests_are_in_files_that_say_so() -> None:
    """`make test-slow` gives pytest the files in which a mark is written."""
    for path in (ROOT / "tests").rglob("*.py"):
        if not path.name.startswith("test_"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"mark\.(slow|real)", text), path
