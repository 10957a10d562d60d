from __future__ import annotations

import os
from pathlib import Path

import pytest
from ragmeter.core.files import replacing, write_atomically


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_appears_when_it_is_complete(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with replacing(path, sync=sync) as temporary:
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links_and_devices_are_written_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    write_atomically(link, b"after")
    assert link.is_symlink()
    assert target.read_text() == "after"
    write_atomically(Path(os.devnull), b"dropped")
    assert Path(os.devnull).is_char_device()


def test_an_error_names_the_file_and_not_its_part(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as found:
        write_atomically(tmp_path / "nowhere" / "file", b"")
    assert found.value.filename == str(tmp_path / "nowhere" / "file")
