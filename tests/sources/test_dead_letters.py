from __future__ import annotations

import base64
import json
from pathlib import Path

from agent.ingest.native import Bad
from agent.sources.dead_letters import DeadLetters


def test_reason_and_raw_bytes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dead.jsonl"
    letters = DeadLetters(path)
    bad = Bad("invalid_json", (("", "why"),), b"{oops")
    binary = Bad("invalid_json", (("", "why"),), b"\xff\x00")
    assert letters.write([(bad, 5), (binary, 7)], "file:x", 1.0) == 2
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["raw"] == "{oops"
    assert first["reason"] == "invalid_json"
    assert first["position"] == 5
    assert base64.b64decode(second["raw_base64"]) == b"\xff\x00"


def test_what_was_written_before_a_crash_is_known(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path / "dead.jsonl")
    bad = Bad("invalid_json", (), b"x")
    letters.write([(bad, 5), (bad, 9)], "file:x", 1.0)
    letters.write([(bad, 11)], "file:y", 1.0)
    with (tmp_path / "dead.jsonl").open("a") as file:
        file.write('{"source": "file:x", "posi')  # torn by the kill
    assert letters.written_from("file:x", 6) == {9}
    assert letters.written_from("file:z", 0) == set()
