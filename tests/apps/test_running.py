"""Without the applications' packages the tests are skipped, and in CI they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps import running


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".venv-apps").mkdir()
    (tmp_path / "uv.lock").write_text("framework==2\n")
    monkeypatch.setattr(running, "ROOT", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.mark.parametrize("stamp", [None, "framework==1\n"])
@pytest.mark.parametrize("in_ci", [False, True])
def test_missing_or_old_packages(
    root: Path, monkeypatch: pytest.MonkeyPatch, stamp: str | None, in_ci: bool
) -> None:
    if stamp is not None:
        (root / ".venv-apps" / ".stamp").write_text(stamp)
    if in_ci:
        monkeypatch.setenv("CI", "true")
    expected = pytest.fail.Exception if in_ci else pytest.skip.Exception
    with pytest.raises(expected, match="make setup-apps"):
        running.python()


def test_packages_of_this_lock(root: Path) -> None:
    (root / ".venv-apps" / ".stamp").write_text("framework==2\n")
    assert running.python() == root / ".venv-apps" / "bin" / "python"
