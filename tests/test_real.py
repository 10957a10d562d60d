"""What is missing of outside parts skips a test and says what to install; in CI it fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.real import PACKAGES, require, require_module

ROOT = Path(__file__).parents[1]
OUTCOMES = pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)


@OUTCOMES
def test_a_missing_program_names_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match=r"needs promtool on the PATH: apt install prometheus$"):
        require("promtool")


@OUTCOMES
def test_a_missing_module_names_its_package(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"needs the Python package no_such_module: make setup$"):
        require_module("no_such_module.part")


def test_every_program_that_is_asked_for_has_a_package_that_ci_installs() -> None:
    asked = set[str]()
    for path in (ROOT / "tests").rglob("*.py"):
        asked.update(re.findall(r'\brequire\("([^"]+)"', path.read_text("utf-8")))
    assert asked == PACKAGES.keys()
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert set(PACKAGES.values()) <= set(re.findall(r"\b[a-z-]+:([a-z-]+)", script))


def test_nothing_is_skipped_for_want_of_a_module_in_silence() -> None:
    """`importorskip` would skip in CI as well."""
    silent = "pytest." + "importorskip"
    files = (ROOT / "tests").rglob("*.py")
    assert [path for path in files if silent in path.read_text("utf-8")] == []
