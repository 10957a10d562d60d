"""A forked process is like a started one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import RAGMETER
from tests.traces import trace_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


@pytest.fixture(autouse=True)
def _no_other_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the path of whoever runs the tests: with one set, processes are started, not forked."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


def outcome(*arguments: str, folder: Path, **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [*RAGMETER, *arguments],
        cwd=folder,
        env={**os.environ, **env},
        input=trace_line(),
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, re.sub(rb"in [0-9.]+ s", b"in some time", done.stderr)


@pytest.mark.parametrize("arguments", [("score", "-"), ("nonsense",), ("score", "gone.jsonl")])
def test_status_and_output_are_the_same(arguments: tuple[str, ...], tmp_path: Path) -> None:
    # a variable that the interpreter reads: this process is started
    started = outcome(*arguments, folder=tmp_path, PYTHONHASHSEED="1")
    assert outcome(*arguments, folder=tmp_path) == started


def test_it_is_a_child_that_is_killed_like_any_other(tmp_path: Path) -> None:
    command = [*RAGMETER, "score", "-"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" in status
        assert "fork_server" in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.kill()
    assert process.returncode == -9
