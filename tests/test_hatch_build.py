from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_build import ZIG, CompileHook, find_compiler

ROOT = Path(__file__).parents[1]
# A compiler that writes its arguments but for paths where the module should be: to compile takes 20
# seconds.
STUB = """
import pathlib, sys
said = [word for word in sys.argv[1:] if "/" not in word]
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text(" ".join(said))
"""


@pytest.fixture
def stub(tmp_path: Path) -> str:
    program = tmp_path / "stub.py"
    program.write_text(STUB)
    return f"{sys.executable} {program}"


def build(
    kind: str, source: Path, folder: Path, **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)],
        cwd=source,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_source_distribution_has_what_a_wheel_needs(tmp_path: Path, stub: str) -> None:
    assert build("sdist", ROOT, tmp_path).returncode == 0
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("ragmeter-*/")
    files = []
    for source in (ROOT, unpacked):
        target = tmp_path / source.name / "dist"
        assert build("wheel", source, target, CXX=stub).returncode == 0
        (wheel,) = target.glob("*.whl")
        assert not wheel.name.endswith("-none-any.whl")
        files.append(sorted(zipfile.ZipFile(wheel).namelist()))
    assert files[0] == files[1]
    assert "ragmeter/metrics/kernel.pyx" in files[0]
    assert any(name.startswith("ragmeter/metrics/kernel.cpython") for name in files[0])


@pytest.mark.slow
def test_without_a_compiler_one_comes_from_a_wheel(tmp_path: Path) -> None:
    """Said in one line; `ziglang` itself is what a stub stands for here."""
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__main__.py").write_text(STUB)
    settings = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "CXX": ""}
    done = build("wheel", ROOT, tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ziglang" in line]
    assert said == ["no C++ compiler here: compiling with the one of ziglang's wheel"]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (module,) = [name for name in archive.namelist() if "/kernel.cpython" in name]
        assert archive.read(module).startswith(b"c++ -mcpu=baseline -std=c++17")


def test_an_isolated_build_asks_for_a_compiler_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused: Any = None
    hook = CompileHook(str(tmp_path), {}, unused, unused, str(tmp_path), "wheel")
    monkeypatch.setenv("CXX", "some-compiler -m64")
    assert find_compiler() == ["some-compiler", "-m64"]
    assert hook.dependencies() == []
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook.dependencies() == [ZIG]


@pytest.mark.slow
def test_a_compiler_that_fails_ends_the_build(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = build("wheel", ROOT, tmp_path, CXX="false", TMPDIR=str(temporary))
    assert done.returncode != 0
    assert "ragmeter.metrics.kernel was not compiled by false" in done.stderr
    assert not list(tmp_path.glob("*.whl"))
    assert not list(temporary.iterdir())
