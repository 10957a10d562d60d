from __future__ import annotations

import base64
import json
import resource
from pathlib import Path

import pytest
from ragmeter.ingest.dead_letters import DeadLetters
from ragmeter.ingest.native import DecodeFailure


def test_reason_and_raw_bytes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dead.jsonl"
    letters = DeadLetters(path)
    bad = DecodeFailure("invalid_json", (("", "why"),), b"{oops")
    binary = DecodeFailure("invalid_json", (("", "why"),), b"\xff\x00")
    assert letters.write([(bad, 5), (binary, 7)], "file:x", 1.0) == 2
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["raw"] == "{oops"
    assert first["reason"] == "invalid_json"
    assert first["position"] == 5
    assert base64.b64decode(second["raw_base64"]) == b"\xff\x00"


def test_what_was_written_before_a_crash_is_known(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead.jsonl")
    bad = DecodeFailure("invalid_json", (), b"x")
    letters.write([(bad, 5), (bad, 9)], "file:x", 1.0)
    letters.write([(bad, 11)], "file:y", 1.0)
    with (tmp_path / "dead.jsonl").open("a") as file:
        file.write('{"source": "file:x", "posi')  # torn by the kill
    assert letters.written_from("file:x", 6) == {9}
    assert letters.written_from("file:z", 0) == set()


def positions(path: Path) -> list[int]:
    """Of the letters that can be read."""
    numbers = []
    for line in path.read_bytes().splitlines():
        try:
            numbers.append(json.loads(line)["position"])
        except ValueError:
            numbers.append(-1)
    return numbers


def test_what_a_kill_has_torn_takes_no_letter_along(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    letters = DeadLetters(path)
    bad = DecodeFailure("invalid_json", (), b"x")
    letters.write([(bad, 5)], "file:x", 1.0)
    with path.open("a") as file:
        file.write('{"source": "file:x", "posi')
    letters.write([(bad, 9)], "file:x", 1.0)
    assert positions(path) == [5, -1, 9]


def test_a_full_disk_keeps_each_letter_once(tmp_path: Path) -> None:
    """A limit on the size of files lets the first part of a write through, as a full disk does."""
    path = tmp_path / "dead.jsonl"
    letters = DeadLetters(path)
    batch = [(DecodeFailure("invalid_json", (), b"x" * 1000), at) for at in range(5)]
    letters.write(batch[:1], "file:x", 1.0)
    whole = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * whole + whole // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            letters.write(batch[1:], "file:x", 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert positions(path) == [0]
    letters.write(batch[1:], "file:x", 1.0)
    assert positions(path) == [0, 1, 2, 3, 4]
