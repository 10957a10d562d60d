"""A file as traffic for the agent itself, which is killed in between."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.crash import settings_file, start
from tests.ports import free_port
from tests.traces import trace_line
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

COUNT = 200
TOTAL = re.compile(r'^rag_requests_total\{service="bot"[^}]*\} (\S+)$', re.MULTILINE)


def ask(url: str) -> str:
    try:
        return httpx.get(url, timeout=10).text
    except httpx.TransportError:
        return ""


def test_a_killed_agent_counts_each_trace_once(tmp_path: Path) -> None:
    """By causality: the rest of the file comes when the agent has been killed."""
    port, metrics = free_port(), free_port()
    config = settings_file(tmp_path / "agent", otlp_port=port, metrics_port=metrics)
    tree = json.loads(config.read_text())
    config.write_text(json.dumps({**tree, "limits": {"queue": 50}}))  # full now and then
    file = tmp_path / "pipe"
    os.mkfifo(file)
    lines = [trace_line(n) + b"\n" for n in range(COUNT)]

    def counted() -> int:
        page = ask(f"http://127.0.0.1:{metrics}/metrics")
        return sum(int(float(found)) for found in TOTAL.findall(page))

    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(start(tmp_path / "agent", "run", "-c", config))
        until(lambda: ask(f"http://127.0.0.1:{metrics}/metrics"))
        replay = start(tmp_path, "replay", file, "--to", "http", "-c", config, "--rate", "200")
        processes.append(replay)
        with file.open("wb", buffering=0) as pipe:
            pipe.write(b"".join(lines[: COUNT // 2]))
            until(counted)
            processes[0].kill()
            processes[0].wait()
            pipe.write(b"".join(lines[COUNT // 2 :]))
        until(lambda: "; waiting" in (tmp_path / "talk.txt").read_text())
        processes.append(start(tmp_path / "agent", "run", "-c", config))
        assert replay.wait(PATIENCE) == 0, (tmp_path / "talk.txt").read_text()
        until(lambda: counted() >= COUNT)
        assert counted() == COUNT
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert f"{COUNT} traces sent" in (tmp_path / "talk.txt").read_text()
