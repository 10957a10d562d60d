from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_build import CompileHook

ROOT = Path(__file__).parents[1]


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
def test_source_distribution_has_what_a_wheel_needs(tmp_path: Path) -> None:
    assert build("sdist", ROOT, tmp_path).returncode == 0
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("ragmeter-*/")
    files = []
    for source in (ROOT, unpacked):
        target = tmp_path / source.name / "dist"
        assert build("wheel", source, target, RAGMETER_COMPILE="no").returncode == 0
        (wheel,) = target.glob("*-py3-none-any.whl")
        files.append(sorted(zipfile.ZipFile(wheel).namelist()))
    assert files[0] == files[1]
    assert "ragmeter/metrics/compiled.pyx" in files[0]


@pytest.mark.parametrize("wish", ["no", ""])  # "": the source is missing, so it cannot be compiled
@pytest.mark.parametrize("version", ["editable", "standard"])
def test_an_editable_installation_without_the_module_has_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: str, version: str
) -> None:
    monkeypatch.setenv("RAGMETER_COMPILE", wish)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    module = tmp_path / "agent/ragmeter/metrics" / f"compiled{suffix}"
    module.parent.mkdir(parents=True)
    module.touch()
    unused: Any = None
    hook = CompileHook(str(tmp_path), {}, unused, unused, str(tmp_path), "wheel")
    hook.initialize(version, {"force_include": {}})
    assert module.exists() is (version == "standard")


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["", "required"])
def test_compiler_that_fails(tmp_path: Path, wish: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    settings = {"CC": "false", "CXX": "false", "TMPDIR": str(temporary)}
    done = build("wheel", ROOT, tmp_path, RAGMETER_COMPILE=wish, **settings)
    wheels = [wheel.name for wheel in tmp_path.glob("*.whl")]
    if wish:
        assert done.returncode != 0
        assert wheels == []
    else:
        assert done.returncode == 0
        assert "was not compiled" in done.stdout + done.stderr
        assert wheels == ["ragmeter-0.1.0-py3-none-any.whl"]
    assert not list(temporary.iterdir())
