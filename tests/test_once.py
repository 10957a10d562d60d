from __future__ import annotations

from pathlib import Path

import pytest

from tests.once import made_once


def test_a_folder_is_made_once_and_not_kept_when_that_fails(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(tmp_path_factory, "_basetemp", tmp_path)
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        made_once(tmp_path_factory, "it", make)
    found = [made_once(tmp_path_factory, "it", make) for _ in range(2)]
    assert found == [tmp_path / "it"] * 2
    assert calls == [tmp_path / "it"] * 2


def test_the_workers_of_a_run_have_one_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    monkeypatch.setattr(tmp_path_factory, "_basetemp", tmp_path / "popen-gw1")
    assert made_once(tmp_path_factory, "it", lambda _: None) == tmp_path / "it"
