"""A running agent to which a story is played: traces go into its standard input, at a pace.

The agent's clock is the time of the traces. So nothing of its windows, rules and settings is
scaled: a story that is played F times faster is to it the same story.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

from tests.crash import RAGMETER
from tests.waiting import PATIENCE

__all__ = ["Agent", "agent", "pace"]

ROOT = Path(__file__).parents[2]
STEP = 0.5
"""Seconds between two bursts. A replay commits when its source is silent for 0.2 s, else once a
second: in bursts what Prometheus sees is younger than in an even stream."""

LOOK = 0.25  # seconds between two looks at what is counted: each makes all of /metrics


class Agent:
    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url
        self.sent = 0
        assert process.stdin is not None
        self._in: IO[bytes] = process.stdin

    def write(self, traces: Iterable[tuple[float, dict[str, Any]]]) -> None:
        """Blocks where the agent does not keep up."""
        lines = [json.dumps(trace).encode() + b"\n" for _, trace in traces]
        self._in.write(b"".join(lines))
        self._in.flush()
        self.sent += len(lines)

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text

    def caught_up(self, seconds: float = PATIENCE) -> str:
        """What it exports once all that was sent is counted."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            text = self.metrics()
            counted = sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith("rag_requests_total{")
            )
            if counted >= self.sent:
                return text
            time.sleep(LOOK)
        raise TimeoutError(f"{self.sent} traces were sent, {counted:.0f} are counted")


@contextmanager
def agent(folder: Path, config: Path, url: str) -> Iterator[Agent]:
    """`ragmeter run --replay -`; its talk lies in `folder`/agent.log."""
    with (folder / "ragmeter.log").open("ab") as talk:
        process = subprocess.Popen(
            [*RAGMETER, "run", "--config", str(config), "--replay", "-"],
            stdin=subprocess.PIPE,
            stdout=talk,
            stderr=talk,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        _ready(process, url, folder / "ragmeter.log")
        yield Agent(process, url)
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        assert process.wait(PATIENCE) == 0, (folder / "ragmeter.log").read_text()
    finally:
        process.kill()
        process.wait()


def _ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the agent is not ready: {log.read_text()}")


def pace(
    to: Agent,
    traces: Iterable[tuple[float, dict[str, Any]]],
    factor: float,
    began: float,
) -> float:
    """Send each trace when its time has come; `began` is the clock's time of second 0.

    Returns:
        By how many seconds of the story a trace was sent late at most, from second 0 on: a busy
        machine wakes nobody in time, and an agent that does not keep up lets us wait.
    """
    waiting = iter(traces)
    held = next(waiting, None)
    behind = 0.0
    while held is not None:
        now = (time.time() - began) * factor
        if held[0] >= 0:
            behind = max(behind, now - held[0])
        burst = []
        while held is not None and held[0] <= now:
            burst.append(held)
            held = next(waiting, None)
        to.write(burst)
        time.sleep(STEP)
    return behind
