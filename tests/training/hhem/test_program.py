"""`python -m training.hhem ...` as a user types it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ragmeter.scorers.hhem.model import TOKENIZER_NAME, WEIGHTS_NAME
from typer.testing import CliRunner, Result

from tests.waiting import PATIENCE
from training.hhem.__main__ import app
from training.hhem.checkpoint import CONFIG

ROOT = Path(__file__).parents[3]
TINY = ROOT / "tests" / "data" / "hhem-tiny"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def copy_checkpoint(to: Path) -> None:
    for name in (WEIGHTS_NAME, CONFIG, TOKENIZER_NAME):
        shutil.copyfile(TINY / name, to / name)


def test_the_program_of_the_documentation_starts() -> None:
    command = [sys.executable, "-m", "training.hhem", "--help"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert all(name in done.stdout for name in ("fetch", "convert", "check"))


def test_a_conversion_leaves_the_folder_of_the_checkpoint_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    copy_checkpoint(source)
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    monkeypatch.chdir(tmp_path)
    result = run("convert", "source")
    assert result.exit_code == 0, result.output
    assert "hhem-onnx" in result.stderr
    assert run("check", "hhem-onnx").stdout.startswith("expected")
    monkeypatch.chdir(source)
    result = run("convert", ".")
    assert (result.exit_code, "--out" in result.stderr) == (2, True)
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before


def test_the_check_of_another_model_fails(tmp_path: Path) -> None:
    copy_checkpoint(tmp_path)
    result = run("convert", tmp_path, "--int8", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "fingerprint" in result.stderr
    assert result.stdout == ""
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "0.6474" in result.stdout
    assert "not the published" in result.stdout
    assert "int8: at most" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "nowhere"),
        ("check", "nowhere"),
        ("fetch", "--out", "x", "--base-url", "http://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_one_message_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("ragmeter: ")
    assert "Traceback" not in result.stderr
