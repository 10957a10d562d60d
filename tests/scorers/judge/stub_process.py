"""The stub judge in a process of its own, for tests of agents that have threads or processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

__all__ = ["StubProcess", "stub_judge"]

ROOT = Path(__file__).parents[3]


class StubProcess:
    """`base_url` of a running stub."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def stats(self) -> dict[str, Any]:
        """What the stub has counted."""
        found: dict[str, Any] = httpx.get(f"{self.base_url.removesuffix('/v1')}/stats").json()
        return found


@contextmanager
def stub_judge(latency: float = 0.0, *, builds: int = 1, **faults: float) -> Iterator[StubProcess]:
    """A stub that answers after `latency` seconds; `faults` are shares of requests by name."""
    command = [sys.executable, "-m", "tests.scorers.judge.stub_judge", "--latency", str(latency)]
    command += ["--builds", str(builds)]
    for name, share in faults.items():
        command += ["--fault", f"{name}={share}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        try:
            yield StubProcess(process.stdout.readline().split()[-1])
        finally:
            process.kill()
