from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from ragmeter.core.pacing import Pace
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.replay import (
    MAX_NAMED,
    ReplayReporter,
    ReplayState,
    TraceShift,
    latest_timestamp,
    read_traffic,
)

from tests.offline.hand import Hand
from tests.traces import START, trace_line

LIMIT = 2**20


def read(path: Path, done: ReplayState, reported: list[str]) -> list[tuple[str, int]]:
    source = InputFile(path)
    hand = Hand()
    telling = ReplayReporter(source, done, reported.append, hand)
    pace = Pace(None, hand, hand.sleep)
    items = read_traffic(source, LIMIT, done, telling, pace=pace, moving=TraceShift())
    return [(found[0].trace.trace_id, found[1]) for found in items if found is not None]


def test_what_is_broken_is_named_and_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    done = ReplayState()
    reported = list[str]()
    lines = [trace_line(0), b"{broken", b'{"service": "x"}', trace_line(1)]
    path.write_bytes(b"\n".join(lines))
    found = read(path, done, reported)
    assert [name for name, _ in found] == ["t0", "t1"]
    assert found[1][1] == path.stat().st_size
    assert done.bad == 2
    assert "invalid_json" in reported[0]
    assert "trace_id: Field required" in reported[1]
    assert all("not sent" in line for line in reported)


def test_a_file_of_anything_else_does_not_fill_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    done = ReplayState()
    reported = list[str]()
    path.write_bytes(b"nothing of ours\n" * 500)
    assert read(path, done, reported) == []
    assert done.bad == 500
    assert len(reported) == MAX_NAMED + 1


def test_a_silent_stream_says_that_nothing_comes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = threading.Event()

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            file.write(trace_line(0) + b"\n")
            end.wait()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        source = InputFile(pipe)
        done = ReplayState()
        hand = Hand()
        telling = ReplayReporter(source, done, lambda _: None, hand)
        pace = Pace(None, hand, hand.sleep)
        items = read_traffic(source, LIMIT, done, telling, pace=pace, moving=TraceShift())
        found = next(item for item in items if item is not None)
        assert found[0].trace.trace_id == "t0"
        assert next(items) is None
    finally:
        end.set()
        thread.join()
    assert list(filter(None, items)) == []


def test_the_latest_trace_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([trace_line(3), b"{broken", trace_line(9), trace_line(1)]))
    assert latest_timestamp(InputFile(path), LIMIT) == START + 9
    path.write_bytes(b"{broken")
    assert latest_timestamp(InputFile(path), LIMIT) is None


def test_a_file_that_is_cut_off_raises(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(trace_line(0))[:-9])
    with pytest.raises(OSError, match="cut off"):
        read(path, ReplayState(), [])


def test_progress_is_said_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    hand = Hand()
    reported = list[str]()
    path.write_bytes(b"x" * 1000)
    done = ReplayState()
    telling = ReplayReporter(InputFile(path), done, reported.append, hand)
    for second in range(12):
        hand.now = float(second)
        done.sent = 10 * second
        done.position = 50 * second
        telling.report_progress()
    assert reported == ["50 sent, 10/s, 25 %", "100 sent, 10/s, 50 %"]
