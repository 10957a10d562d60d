"""The wheel in an environment of its own, beside an application with folders of our names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.supply.tools import exported
from tests.once import made_once
from tests.test_hatch_build import STUB
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_metric"
TRACES = ROOT / "examples" / "mtrag.jsonl"
UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*map(str, command)],
        cwd=ROOT.anchor,  # not the repository: it holds the sources
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        build = (UV, "build", "--quiet", "--wheel", "--no-build-isolation")
        for source in (ROOT, EXAMPLE):
            run(*build, "--python", sys.executable, "--out-dir", folder, source)

    (made,) = made_once(tmp_path_factory, "dist", make).glob("ragmeter-*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it requires."""

    def make(folder: Path) -> None:
        run(UV, "venv", "--quiet", "--python", sys.executable, folder)
        lock = folder / "constraints.txt"
        lock.write_text(exported("--all-extras"), encoding="utf-8")
        (example,) = wheel.parent.glob("help_links-*.whl")
        install = (UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python")
        run(*install, "--constraint", lock, wheel, example)

    return made_once(tmp_path_factory, "environment", make) / "bin" / "python"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the user's, first on the path, whose modules would hide ours."""
    folder = tmp_path_factory.mktemp("application")
    (folder / "agent.py").write_text("raise RuntimeError('the application was imported')\n")
    for name in ("agent", "exporters"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return folder


def test_wheel_installs_two_packages_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "ragmeter",
        "ragmeter_exporters",
    }
    assert "ragmeter_exporters/prometheus.py" in names
    assert "ragmeter/py.typed" in names
    assert "ragmeter_exporters/page/runbook_index.md" in names
    sources = {
        path.relative_to(root).as_posix()
        for root in (ROOT / "agent", ROOT / "exporters")
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= set(names)


def test_a_clone_without_symbolic_links_builds_the_same_wheel(tmp_path: Path) -> None:
    """As Windows clones by default."""
    contents = []
    stub = tmp_path / "stub.py"  # in place of a compiler, for half a minute
    stub.write_text(STUB)
    for links in ("true", "false"):
        clone = tmp_path / links
        clone_command = ("git", "-c", f"core.symlinks={links}", "clone", "--quiet")
        run(*clone_command, "--no-local", "--depth", "1", ROOT, clone)
        assert not [path for path in clone.rglob("*") if path.is_symlink()]
        build = (UV, "build", "--quiet", "--wheel", "--no-build-isolation")
        run(
            *build,
            "--python",
            sys.executable,
            "--out-dir",
            clone / "dist",
            clone,
            CXX=f"{sys.executable} {stub}",
        )
        (made,) = (clone / "dist").glob("*.whl")
        with zipfile.ZipFile(made) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]
    assert "ragmeter/trace.py" in contents[0]


def test_wheel_brings_the_native_kernel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("ragmeter/metrics/kernel.") and ".so" in name for name in names)
    assert not wheel.name.endswith("-none-any.whl")


def test_metadata_leads_to_the_project_and_reads_without_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        headers, _, text = archive.read(name).decode().partition("\n\n")
    assert headers.count("\nProject-URL: ") >= 3
    # A package index shows the README without the repository around it.
    assert "](docs/" not in text
    assert "](examples/" not in text


def test_replay_and_own_metric_beside_an_application_of_the_same_names(
    python: Path, application: Path, tmp_path: Path
) -> None:
    settings = {"state": {"path": str(tmp_path / "state.db")}}
    (tmp_path / "ragmeter.json").write_text(json.dumps(settings))
    config = ("--config", tmp_path / "ragmeter.json")
    command = python.with_name("ragmeter")
    replay = (command, "run", *config, "--replay", TRACES, "--exit-after-replay")
    done = run(*replay, PYTHONPATH=str(application))
    assert "230" in done.stdout + done.stderr
    run(command, "score", TRACES, "-o", tmp_path / "scores.jsonl", PYTHONPATH=str(application))
    with open(tmp_path / "scores.jsonl", encoding="utf-8") as lines:
        metrics = [{one["metric"] for one in json.loads(line)["results"]} for line in lines]
    assert len(metrics) == 230
    assert all({"help_link", "grounding"} <= names for names in metrics)


def test_the_wheel_runs_without_being_installed(wheel: Path, tmp_path: Path) -> None:
    """As docs/deployment.md has it, by `uvx`, with an extra and with the tested versions."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    (line,) = re.findall(r'^uvx --from "\$wheel(\[\w+\])" ragmeter run ', page, re.M)
    lock = tmp_path / "constraints.txt"
    lock.write_text(exported("--all-extras"), encoding="utf-8")
    source = ("--constraints", lock, "--python", sys.executable, "--from", f"{wheel}{line}")
    done = run(UV, "tool", "run", "--quiet", *source, "ragmeter", "--version")
    assert done.stdout.strip() == "ragmeter 0.1.0"


def test_public_names_are_of_the_package(python: Path, application: Path) -> None:
    code = (
        "import ragmeter; from ragmeter import NoScore, Trace, metric, read_scores, score;"
        "print(ragmeter.__version__)"
    )
    done = run(python, "-c", code, PYTHONPATH=str(application))
    assert done.stdout.strip() == "0.1.0"
