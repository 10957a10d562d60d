"""The commands with inputs and outputs that are closed, full, gone, pipes or badly named."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_main import ROOT, ragmeter, replay
from tests.crash import RAGMETER
from tests.traces import trace_line
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow  # a shell starts each command in full


def lines(count: int, **changes: object) -> bytes:
    return b"".join(trace_line(n, **changes) + b"\n" for n in range(count))


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`command` in bash with the function `rm_` for ragmeter."""
    script = f'rm_() {{ {" ".join(RAGMETER)} "$@"; }}; {command}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


def messages(output: bytes) -> list[bytes]:
    """Lines but for the progress, which is shown after a second: a busy machine takes that."""
    return [line for line in output.splitlines() if not line.startswith(b"replayed until")]


def received(folder: Path) -> float:
    """Traces that the state file of an agent in `folder` counts so far."""
    try:
        with closing(
            sqlite3.connect(f"file:{folder}/.ragmeter/state.sqlite?mode=ro", uri=True)
        ) as db:
            sql = "SELECT sum(value) FROM counters WHERE name = 'ragmeter_traces_received_total'"
            return float(db.execute(sql).fetchone()[0] or 0)
    except sqlite3.OperationalError:
        return 0.0  # it is being made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x.jsonl").write_bytes(lines(8))
    return tmp_path


def test_process_substitution_can_be_replayed_and_scored(folder: Path) -> None:
    done = shell("rm_ run --exit-after-replay --replay <(cat x.jsonl)", folder)
    assert b"8 items" in done.stderr
    assert b"bot: 8 requests" in done.stdout
    done = shell("rm_ score <(gzip -c x.jsonl)", folder)
    assert done.stdout.count(b"\n") == 8


def test_gzip_comes_through_standard_input_too(folder: Path) -> None:
    assert shell("gzip -c x.jsonl | rm_ score -", folder).stdout.count(b"\n") == 8


def test_an_empty_file_is_called_empty(folder: Path) -> None:
    (folder / "e.jsonl").touch()
    done = replay(folder / "e.jsonl", folder)
    assert done.returncode == 0
    assert b"the file is empty" in done.stderr
    assert b"before" not in done.stderr


def test_an_unfinished_last_line_is_named(folder: Path) -> None:
    with (folder / "x.jsonl").open("ab") as file:
        file.write(b'{"trace_id": ')
    assert b"8 items, unfinished last line, left for the next run" in (
        replay(folder / "x.jsonl", folder).stderr
    )


def test_nothing_readable_is_1(folder: Path) -> None:
    bad = folder / "bad.jsonl"
    bad.write_bytes(b"one\ntwo\n")
    assert replay(bad, folder).returncode == 1
    assert ragmeter("score", bad).returncode == 1
    bad.write_text("{}\n", encoding="utf-16")
    done = replay(bad, folder)
    assert (done.returncode, b"UTF-16" in done.stderr) == (1, True)


def test_a_silent_input_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RAGMETER, "run", "--replay", "-", "--exit-after-replay"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(lines(3))
    process.stdin.flush()
    until(lambda: received(tmp_path) == 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert process.stderr is not None
    assert b"stopped after 3 items" in process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_an_interrupted_replay_ends_in_order(folder: Path) -> None:
    (folder / "x.jsonl").write_bytes(lines(20_000))
    process = subprocess.Popen(
        [*RAGMETER, "run", "--replay", "x.jsonl", "--exit-after-replay"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    until(lambda: received(folder) > 0)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, talk
    assert b"stopped after" in talk
    assert b"before" not in talk
    assert b"Traceback" not in talk


def test_scores_go_into_a_pipe_as_it_is(folder: Path) -> None:
    done = shell(
        "mkfifo p; ln -s p link; cat p & rm_ score x.jsonl -o link; wait; test -p p", folder
    )
    assert done.returncode == 0
    assert done.stdout.count(b'"trace_id"') == 8
    assert (folder / "link").is_symlink()


def test_a_link_to_a_file_stays_a_link(folder: Path) -> None:
    (folder / "out").touch()
    (folder / "link").symlink_to("out")
    assert ragmeter("score", folder / "x.jsonl", "-o", folder / "link").returncode == 0
    assert (folder / "link").is_symlink()
    assert (folder / "out").read_bytes().count(b"\n") == 8


@pytest.mark.parametrize(
    "command",
    [
        "rm_ score x.jsonl -o x.jsonl",
        "rm_ score - -o x.jsonl <x.jsonl",
        "rm_ score x.jsonl >>x.jsonl",
    ],
)
def test_the_output_must_not_be_the_input(folder: Path, command: str) -> None:
    before = (folder / "x.jsonl").read_bytes()
    done = shell(command, folder)
    assert done.returncode == 2
    assert b"the output is the input" in done.stderr
    assert (folder / "x.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        ("rm_ score x.jsonl >&-", b"Bad file descriptor"),
        ("rm_ config show >&-", b"Bad file descriptor"),
        ("rm_ run --exit-after-replay --replay x.jsonl >&-", b"Bad file descriptor"),
        ("rm_ score - <&-", b"standard input is closed"),
        ("rm_ run --exit-after-replay --replay - <&-", b"standard input is closed"),
    ],
)
def test_streams_that_cannot_be_used_are_one_line(
    folder: Path, command: str, reported: bytes
) -> None:
    done = shell(command, folder)
    assert done.returncode == 1
    assert reported in done.stderr
    assert b"Traceback" not in done.stderr
    assert len(messages(done.stderr)) <= 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "x.jsonl"),
        ("schema",),
        ("run", "--exit-after-replay", "--replay", "x.jsonl"),
    ],
)
def test_a_full_disk_is_one_line(folder: Path, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RAGMETER, *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert len(messages(done.stderr)) <= 2


@pytest.mark.parametrize(
    "arguments", [("score", "x.jsonl"), ("run", "--exit-after-replay", "--replay", "x.jsonl")]
)
def test_a_log_that_cannot_be_written_ends_nothing(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RAGMETER, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, bool(done.stdout)) == (0, True)


def test_nothing_is_written_to_standard_error_where_it_is_closed(folder: Path) -> None:
    done = shell("rm_ score x.jsonl 2>&-", folder)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 8)


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(folder: Path) -> None:
    (folder / "x.jsonl").write_bytes(lines(2_000))
    done = shell("rm_ score x.jsonl | head -c 10; exit ${PIPESTATUS[0]}", folder)
    assert (done.returncode, done.stdout, done.stderr) == (1, b'{"trace_id', b"")


@pytest.mark.parametrize(
    "env",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}],
)
def test_any_encoding_of_the_terminal_will_do(folder: Path, env: dict[str, str]) -> None:
    (folder / "日本.jsonl").write_bytes(lines(6, service="日本", query="Zurück?"))
    done = shell("rm_ run --exit-after-replay --replay 日本.jsonl", folder, **env)
    assert done.returncode == 0, done.stderr
    assert b"6 requests" in done.stdout
    assert b"Traceback" not in done.stderr
    for form in ("jsonl", "csv"):
        done = shell(f"rm_ score 日本.jsonl --format {form}", folder, **env)
        assert "日本" in done.stdout.decode("utf-8"), form


def test_a_file_name_that_is_no_text(folder: Path) -> None:
    name = Path(os.fsdecode(os.fsencode(folder) + b"/\xff.jsonl"))
    name.write_bytes(lines(6))
    done = replay(name, folder)
    assert done.returncode == 0, done.stderr
    assert b"6 items" in done.stderr
    assert b"counted it before" in replay(name, folder).stderr


def test_hostile_names_are_shown_and_do_nothing(folder: Path) -> None:
    hostile = "[/foo] [red]x"
    name = folder / "[b] \x1b[31m.jsonl"
    changes = {"service": hostile, "timings": {"total": 1, "[/x]": 2, "\x1b[31m": 3}}
    bad = json.dumps({"trace_id": "x", "timings": {"\x1b[31m[/x]": "no"}}).encode()
    name.write_bytes(lines(6, **changes) + bad + b"\n")
    done = replay(name, folder)
    assert done.returncode == 0, done.stderr
    assert hostile.encode() in done.stdout
    scored = ragmeter("score", name)
    assert b"[/x]" in scored.stderr
    for output in (done.stdout, done.stderr, scored.stderr):
        assert b"\x1b[31m" not in output
        assert b"Traceback" not in output
