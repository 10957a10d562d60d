"""`watch` and `tail` beside a real agent over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.crash import RAGMETER, serving, settings_file
from tests.ports import free_port
from tests.traces import trace_line
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of the metrics port and of the port for traces, of an agent that has traces."""
    folder = tmp_path_factory.mktemp("agent")
    page, port = free_port(), free_port()
    config = settings_file(folder, otlp_port=port, metrics_port=page)
    (folder / "traces.jsonl").write_bytes(b"\n".join(trace_line(n) for n in range(20)))
    with serving(config, folder / "traces.jsonl"):
        yield f"http://127.0.0.1:{page}", f"http://127.0.0.1:{port}"


def lines_of(process: subprocess.Popen[bytes], number: int) -> list[bytes]:
    """The first lines that it prints; then it is ended."""
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(number)]
    process.kill()
    process.communicate(timeout=PATIENCE)
    return found


def ragmeter(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [*RAGMETER, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )


def test_watch_shows_the_questions_with_their_intervals(agent: tuple[str, str]) -> None:
    done = ragmeter("watch", "--url", agent[0])
    assert done.returncode == 0, done.stderr
    assert "bot: 20 requests in the last 24h  OK" in done.stdout
    assert "No incident." in done.stdout
    row = next(row for row in done.stdout.splitlines() if row.startswith(" works "))
    assert "100 % (" in row
    assert "every request" in row
    assert ragmeter("watch", "--url", agent[0], "--service", "bot").stdout == done.stdout


def test_what_is_not_there_is_named(agent: tuple[str, str]) -> None:
    done = ragmeter("watch", "--url", agent[0], "--service", "x")
    assert done.returncode != 0
    assert "no trace of 'x'" in done.stderr


def test_tail_shows_the_traces_that_are_asked_for(agent: tuple[str, str]) -> None:
    page, port = agent
    command = [*RAGMETER, "tail", "--url", page, "--service", "bad"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as plain,
        subprocess.Popen(
            [*command[:-2], "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        ) as as_json,
    ):
        for process in (plain, as_json):
            assert process.stderr is not None
            assert b"watching" in process.stderr.readline()
        now = time.time()
        fault = {"service": "bad", "status": "error", "trace_id": "\x1b[2Jbad"}
        bad = trace_line(101, timestamp=now, **fault)
        body = b"\n".join([trace_line(100, timestamp=now), bad])
        assert httpx.post(f"{port}/v1/rag/traces", content=body).json()["accepted"] == 2
        rows = [json.loads(row) for row in lines_of(as_json, 2)]
        (out,) = (line.decode() for line in lines_of(plain, 1))
    assert "bot" not in out
    assert "error" in out
    assert "\x1b" not in out
    assert "bad" in out
    assert [row["status"] for row in rows] == ["ok", "error"]
    assert all("detail" not in one for row in rows for one in row["results"])
