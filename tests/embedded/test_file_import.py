from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.errors import QueueFull
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.file_import import ImportResult, import_traces
from ragmeter.ingest.files import ReadAhead
from ragmeter.store import sqlite

from tests.traces import good, trace_line
from tests.waiting import PATIENCE, stop_agent, until

LIMIT = 100_000


@contextmanager
def running(folder: Path) -> Iterator[EmbeddedAgent]:
    paths = {"path": str(folder / "s.sqlite")}
    started = EmbeddedAgent(
        load_settings(environ={}, overrides={"state": paths}), [], live=False, parts=PARTS
    )
    started.start()
    try:
        yield started
    finally:
        stop_agent(started, 5)


def received(started: EmbeddedAgent) -> float:
    return started.counters.get("ragmeter_traces_received_total", (("source", "file"),))


class Replaying:
    """A replay in a thread, fed through a named pipe."""

    def __init__(self, started: EmbeddedAgent, folder: Path) -> None:
        self.path = folder / "pipe"
        os.mkfifo(self.path)
        self.stop = threading.Event()
        self.done: ImportResult | None = None
        self.thread = threading.Thread(target=self._run, args=(started,))
        self.thread.start()

    def _run(self, started: EmbeddedAgent) -> None:
        self.done = import_traces(started, self.path, LIMIT, stopped=self.stop.is_set)


def test_a_pipe_that_pauses_is_handed_over_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        replaying = Replaying(started, tmp_path)
        with replaying.path.open("wb", buffering=0) as pipe:
            pipe.write(trace_line(1) + b"\n" + trace_line(2) + b"\n")
            until(lambda: received(started) == 2)  # and the pipe is still open
            pipe.write(trace_line(3) + b"\n")
        replaying.thread.join(PATIENCE)
        assert replaying.done == ImportResult(items=3)


def test_a_silent_pipe_is_left_when_a_stop_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = threading.Event()
    get = ReadAhead.get

    def noting(self: ReadAhead) -> Any:
        item = get(self)
        taken.set()
        return item

    monkeypatch.setattr(ReadAhead, "get", noting)
    with running(tmp_path) as started:
        replaying = Replaying(started, tmp_path)
        with replaying.path.open("wb", buffering=0) as pipe:
            pipe.write(trace_line(1) + b"\n")
            assert taken.wait(PATIENCE)
            replaying.stop.set()
            replaying.thread.join(PATIENCE)
            assert not replaying.thread.is_alive()
        assert replaying.done == ImportResult(items=1)  # what came is kept
        assert received(started) == 1


def test_a_pipe_that_nobody_opens_is_left_when_a_stop_comes(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        replaying = Replaying(started, tmp_path)
        time.sleep(0.3)
        replaying.stop.set()
        replaying.thread.join(PATIENCE)
        assert not replaying.thread.is_alive()
        os.close(os.open(replaying.path, os.O_RDWR))  # let the reader go


def test_a_growing_file_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    lines = [trace_line(n) + b"\n" for n in range(30)]
    path.write_bytes(b"".join(lines[:20]) + lines[20][:50])
    with running(tmp_path) as started:
        assert import_traces(started, path, LIMIT) == ImportResult(items=20, unfinished=True)
        assert import_traces(started, path, LIMIT) == ImportResult(before=True, unfinished=True)
        path.write_bytes(b"".join(lines))
        assert import_traces(started, path, LIMIT) == ImportResult(items=10, before=True)
        started.wait_idle()
        assert received(started) == 30
    assert not (tmp_path / "s.sqlite.dead-letters.jsonl").exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"trace_id,service", "invalid_json: item: no JSON, but a table such as CSV"),
        (b'{"traces": []}', "invalid_trace: trace_id: Field required"),
        (b'{"resourceSpans": [{"scopeSpans": []}]}', "`ragmeter inspect` reads files of it"),
    ],
)
def test_the_first_item_that_cannot_be_read_is_named(line: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(line + b"\n" + trace_line(1) + b"\nnot this\n")
    with running(tmp_path) as started:
        done = import_traces(started, path, LIMIT)
    assert (done.items, done.bad) == (3, 2)
    assert why in done.first_failure


def test_an_empty_file_was_not_counted_before(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.touch()
    with running(tmp_path) as started:
        assert import_traces(started, path, LIMIT) == ImportResult(empty=True)


def test_what_was_read_before_an_error_is_kept(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(trace_line(n) for n in range(300)))[:-30])
    with running(tmp_path) as started:
        with pytest.raises(OSError, match="cut off"):
            import_traces(started, path, LIMIT)
        assert received(started) > 200


def test_the_reason_of_a_wait_is_said_at_once_and_not_always(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"nonsense\n")
    (tmp_path / "file").touch()
    (tmp_path / "s.sqlite.dead-letters.jsonl").symlink_to(tmp_path / "file" / "letters")
    reported: list[str] = []
    reported_at: list[float] = []

    def warn(line: str) -> None:
        reported.append(line)
        reported_at.append(time.monotonic())

    with running(tmp_path) as started:
        done = import_traces(
            started,
            path,
            LIMIT,
            warn=warn,
            stopped=lambda: bool(reported) and time.monotonic() - reported_at[0] > 1.0,
        )
    assert done.items == 0
    (line,) = reported
    assert line.startswith(f"{path}: waiting: ")
    assert "directory" in line or "exists" in line


def test_a_file_is_read_no_further_ahead_than_its_decoded_traces_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_KEPT_TRACES", 2)
    paths = {"path": str(tmp_path / "s.sqlite")}
    started = EmbeddedAgent(load_settings(environ={}, overrides={"state": paths}), [], parts=PARTS)
    started.accept([good(1), good(2)], "file")
    with pytest.raises(QueueFull):
        started.accept([good(3)], "file")
    started.accept([good(3)], "http", live=True)  # nobody reads that again
    started.start()
    started.wait_idle()
    started.accept([good(4)], "file")
    started.stop(10)
    assert started.windows.count_traces("bot", "", "24h") == 4


def test_the_example_shows_real_numbers(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "examples" / "mtrag.jsonl"
    with running(tmp_path) as started:
        import_traces(started, path, 2**21)
        started.wait_idle()
        with started.lock():
            found = started.windows.estimate("mtrag-chat", "", "grounding", "builtin", "1h")
    assert found is not None
    assert 0 < found.lower < found.value < found.upper < 1
