from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from agent.ingest.native import Bad, Good
from agent.sources.files import identity, read, size
from tests.traces import trace_dict, trace_line

LIMIT = 10_000


def ids(path: Path, start: int = 0) -> list[str]:
    return [
        item.trace.trace_id if isinstance(item, Good) else item.reason
        for item, _ in read(path, LIMIT, start)
    ]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\n".join(trace_line(n) for n in range(5)) + b"\n")
    return path


def test_json_lines(lines: Path) -> None:
    assert ids(lines) == ["t0", "t1", "t2", "t3", "t4"]
    assert size(lines) == lines.stat().st_size


def test_gzip_is_told_by_its_bytes(lines: Path) -> None:
    lines.write_bytes(gzip.compress(lines.read_bytes()))
    assert ids(lines) == ["t0", "t1", "t2", "t3", "t4"]
    assert size(lines) is None


@pytest.mark.parametrize("zipped", [False, True])
def test_reading_goes_on_from_every_position(lines: Path, zipped: bool) -> None:
    if zipped:
        lines.write_bytes(gzip.compress(lines.read_bytes()))
    positions = [position for _, position in read(lines, LIMIT)]
    for index, position in enumerate(positions):
        assert ids(lines, position) == [f"t{n}" for n in range(index + 1, 5)]


def test_an_array_is_read_and_resumed_by_item(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps([trace_dict(n) for n in range(3)], indent=1))
    assert ids(path) == ["t0", "t1", "t2"]
    assert ids(path, 2) == ["t2"]


@pytest.mark.parametrize("poison", [b"[]", b"\x00", b"{", b'["x"]'])
def test_a_poisoned_first_line_costs_only_itself(lines: Path, poison: bytes) -> None:
    lines.write_bytes(poison + b"\n" + lines.read_bytes())
    assert ids(lines)[1:] == ["t0", "t1", "t2", "t3", "t4"]
    positions = [position for _, position in read(lines, LIMIT)]
    assert ids(lines, positions[2]) == ["t2", "t3", "t4"]


def test_an_array_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    for end in ("", "\n", "\n\n"):
        path.write_text(json.dumps([trace_dict(n) for n in range(3)]) + end)
        assert ids(path) == ["t0", "t1", "t2"]


def test_an_endless_line_is_one_bad_item_and_bounded(lines: Path) -> None:
    good = lines.read_bytes()
    lines.write_bytes(b'{"x": "' + b"a" * 5 * LIMIT + b'"}\n' + good)
    found = list(read(lines, LIMIT))
    assert isinstance(found[0][0], Bad)
    assert found[0][0].reason == "too_large"
    assert len(found[0][0].raw) <= 2 * (LIMIT + 1)
    assert len(found) == 6
    assert ids(lines, found[0][1]) == ["t0", "t1", "t2", "t3", "t4"]


def test_no_newline_at_the_end(lines: Path) -> None:
    lines.write_bytes(lines.read_bytes().rstrip())
    assert len(ids(lines)) == 5


def test_an_empty_file_has_no_items(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert ids(path) == []


def test_a_rewritten_file_is_a_new_source_and_a_grown_one_is_not(lines: Path) -> None:
    lines.write_bytes(b"\n".join(trace_line(n) for n in range(20)))
    first = identity(lines)
    with lines.open("ab") as file:
        file.write(trace_line(99))
    assert identity(lines) == first
    lines.write_bytes(trace_line(5))
    assert identity(lines) != first


def test_a_cut_gzip_file_is_an_error(lines: Path) -> None:
    lines.write_bytes(gzip.compress(lines.read_bytes())[:-20])
    with pytest.raises(EOFError):
        ids(lines)
