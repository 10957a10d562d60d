"""A real agent in a process of its own with something in it exchanged, as a bug would do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.waiting import until

__all__ = ["running", "status"]

ROOT = Path(__file__).parents[1]

PROGRAM = """
import sys, time
def hang(*arguments):
    while True:
        time.sleep(1)
{patch}
from ragmeter.cli.main import main
sys.argv = ["ragmeter", "run", "--config", {config!r}]
main()
"""


def running(
    folder: Path, patch: str, limits: dict[str, float], **settings: Any
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, ready, and its ports for traces and metrics. `patch` is Python that runs before
    it; `hang` is a function that never returns."""
    otlp, metrics = free_port(), free_port()
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "http": {"otlp_port": otlp, "metrics_port": metrics},
                "state": {"path": str(folder / "s.sqlite")},
                "limits": limits,
                **settings,
            }
        )
    )
    program = PROGRAM.format(patch=patch, config=str(config))
    with (folder / "talk").open("wb") as talk:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=talk,
            stderr=talk,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    until(lambda: status(metrics) == 200)
    return process, otlp, metrics


def status(port: int, path: str = "readyz") -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=5).status_code
    except httpx.TransportError:
        return 0
