from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodedTrace, DecodeFailure

from tests.traces import trace_dict, trace_line
from tests.waiting import PATIENCE

LIMIT = 10_000


def ids(path: Path, start: int = 0, growing: bool = False) -> list[str]:
    return [
        item.trace.trace_id if isinstance(item, DecodedTrace) else item.reason
        for item, _ in InputFile(path).read(LIMIT, start, growing=growing)
    ]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\n".join(trace_line(n) for n in range(5)) + b"\n")
    return path


def test_json_lines(lines: Path) -> None:
    assert ids(lines) == ["t0", "t1", "t2", "t3", "t4"]
    assert InputFile(lines).size == lines.stat().st_size


def test_gzip_is_told_by_its_bytes(lines: Path) -> None:
    lines.write_bytes(gzip.compress(lines.read_bytes()))
    assert ids(lines) == ["t0", "t1", "t2", "t3", "t4"]
    assert InputFile(lines).size is None


def test_positions_in_parquet_are_not_bytes_of_the_file(lines: Path) -> None:
    lines.write_bytes(b"PAR1" + lines.read_bytes())
    assert InputFile(lines).size is None


@pytest.mark.parametrize("zipped", [False, True])
def test_reading_goes_on_from_every_position(lines: Path, zipped: bool) -> None:
    if zipped:
        lines.write_bytes(gzip.compress(lines.read_bytes()))
    positions = [position for _, position in InputFile(lines).read(LIMIT)]
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
    positions = [position for _, position in InputFile(lines).read(LIMIT)]
    assert ids(lines, positions[2]) == ["t2", "t3", "t4"]


def test_an_array_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    for end in ("", "\n", "\n\n"):
        path.write_text(json.dumps([trace_dict(n) for n in range(3)]) + end)
        assert ids(path) == ["t0", "t1", "t2"]


def test_an_endless_line_is_one_bad_item_and_bounded(lines: Path) -> None:
    good = lines.read_bytes()
    lines.write_bytes(b'{"x": "' + b"a" * 5 * LIMIT + b'"}\n' + good)
    items = list(InputFile(lines).read(LIMIT))
    assert isinstance(items[0][0], DecodeFailure)
    assert items[0][0].reason == "too_large"
    assert len(items[0][0].raw) <= 2 * (LIMIT + 1)
    assert len(items) == 6
    assert ids(lines, items[0][1]) == ["t0", "t1", "t2", "t3", "t4"]


def test_no_newline_at_the_end(lines: Path) -> None:
    lines.write_bytes(lines.read_bytes().rstrip())
    assert len(ids(lines)) == 5


def test_an_empty_file_has_no_items(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert ids(path) == []
    assert InputFile(path).empty


def test_a_rewritten_file_is_a_new_source_and_a_grown_one_is_not(lines: Path) -> None:
    lines.write_bytes(b"\n".join(trace_line(n) for n in range(20)))
    first = InputFile(lines).identity
    with lines.open("ab") as file:
        file.write(trace_line(99))
    assert InputFile(lines).identity == first
    lines.write_bytes(trace_line(5))
    assert InputFile(lines).identity != first


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, lambda _: b"\x28\xb5\x2f\xfd\x04"])
def test_another_compression_is_one_error(lines: Path, pack: Callable[[bytes], bytes]) -> None:
    lines.write_bytes(pack(lines.read_bytes()))
    with pytest.raises(OSError, match=r"traces\.jsonl: compressed, but not by gzip; unpack it"):
        ids(lines)


def test_broken_gzip_is_an_error_with_the_name(lines: Path) -> None:
    lines.write_bytes(b"\n".join(trace_line(n) for n in range(2_000)))
    whole = gzip.compress(lines.read_bytes())
    lines.write_bytes(whole[:-20])
    with pytest.raises(OSError, match=r"traces\.jsonl: the gzip stream is cut off"):
        ids(lines)
    middle = len(whole) // 2
    lines.write_bytes(whole[:middle] + bytes(50) + whole[middle + 50 :])
    with pytest.raises(OSError, match=r"traces\.jsonl: broken gzip"):
        ids(lines)
    lines.write_bytes(whole + b"rubbish")
    with pytest.raises(OSError, match=r"traces\.jsonl: broken gzip"):
        ids(lines)


@contextmanager
def fifo(path: Path, *parts: bytes) -> Iterator[Path]:
    """A named pipe into which `parts` are written, each by itself, then closed."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for part in parts:
                file.write(part)

    writer = threading.Thread(target=write)
    writer.start()
    yield path
    writer.join(PATIENCE)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_pipe_is_opened_once_and_has_no_identity(tmp_path: Path, zipped: bool) -> None:
    body = b"\n".join(trace_line(n) for n in range(5))
    parts = [gzip.compress(body)] if zipped else [body[:1], body[1:]]
    with fifo(tmp_path / "pipe", *parts) as path:
        source = InputFile(path)
        assert (source.identity, source.size, source.empty) == (None, None, False)
        items = [item for item, _ in source.read(LIMIT, growing=True)]
    assert all(isinstance(item, DecodedTrace) for item in items)
    assert len(items) == 5


def test_a_trace_of_a_pipe_does_not_wait_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    items = InputFile(path).read(LIMIT)
    results: queue.Queue[object] = queue.Queue()
    reader = threading.Thread(target=lambda: results.put(next(items)), daemon=True)
    reader.start()
    with path.open("wb", buffering=0) as writer:
        writer.write(trace_line(1) + b"\n")
        assert results.get(timeout=PATIENCE)
    reader.join(PATIENCE)


def test_a_broken_end_of_a_file_is_left_for_the_next_run(lines: Path) -> None:
    good = lines.read_bytes()
    lines.write_bytes(good + trace_line(7)[:60])
    source = InputFile(lines)
    items = list(source.read(LIMIT, growing=True))
    assert source.unfinished
    assert [position for _, position in items][-1] == len(good)
    lines.write_bytes(good + trace_line(7) + b"\n")
    assert ids(lines, len(good), growing=True) == ["t7"]


def test_a_broken_end_is_an_item_where_nothing_more_will_come(lines: Path, tmp_path: Path) -> None:
    body = lines.read_bytes() + trace_line(7)[:60]
    lines.write_bytes(body)
    assert ids(lines)[-1] == "invalid_json"
    with fifo(tmp_path / "pipe", body) as path:
        assert ids(path, growing=True)[-1] == "invalid_json"
    lines.write_bytes(body + b"\n")
    assert ids(lines, growing=True)[-1] == "invalid_json"


def test_an_array_that_is_still_written_is_left_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    whole = json.dumps([trace_dict(n) for n in range(3)], indent=1)
    path.write_text(whole[:-40])
    source = InputFile(path)
    assert list(source.read(LIMIT, growing=True)) == []
    assert source.unfinished
    path.write_text(whole)
    assert ids(path, growing=True) == ["t0", "t1", "t2"]


def test_a_byte_order_mark_is_skipped(lines: Path) -> None:
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes())
    assert ids(lines) == ["t0", "t1", "t2", "t3", "t4"]
    positions = [position for _, position in InputFile(lines).read(LIMIT)]
    assert positions[-1] == lines.stat().st_size
    assert ids(lines, positions[1]) == ["t2", "t3", "t4"]
    lines.write_bytes(b"\xef\xbb\xbf" + json.dumps([trace_dict(1)]).encode())
    assert ids(lines) == ["t1"]


def test_utf_16_is_an_error_that_says_so(lines: Path) -> None:
    text = lines.read_text()
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        lines.write_text(text, encoding=encoding)
        with pytest.raises(OSError, match=r"traces\.jsonl: UTF-16 text"):
            ids(lines)


def test_one_object_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    one = json.dumps(trace_dict(3), indent=2)
    path.write_text(one + "\n")
    assert ids(path) == ["t3"]
    ((_, position),) = InputFile(path).read(LIMIT)
    assert ids(path, position) == []
    path.write_text(one + "\n" + one)
    with pytest.raises(OSError, match="one object a line"):
        ids(path)


def test_a_name_that_is_no_text_has_an_identity(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl"))
    path.write_bytes(trace_line(1))
    identity = InputFile(path).identity
    assert identity is not None
    assert "\\xff.jsonl" in identity
    identity.encode()


def test_a_file_of_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    path.write_bytes(b"PAR1" + bytes(40) + b"PAR1")
    with pytest.raises(OSError, match=r"traces\.parquet: Parquet"):
        list(InputFile(path).read(LIMIT))
