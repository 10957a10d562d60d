"""The judge of a chaos run: it reads what the passages say of themselves, and its lies are the
opposite. A process of its own; `POST /faults` says what it suffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.judge.stub_judge import Messages, StubJudge, by_content

__all__ = ["Judge", "honest", "judge", "lying"]

ROOT = Path(__file__).parents[2]
LATENCY = 0.05
QUALITY = re.compile(r"quality-([0-3])")


def honest(messages: Messages, schema: Mapping[str, Any]) -> object:
    """The grade that stands in the passage; whether an answer attempts the question."""
    asked = messages[-1]["content"]
    fields = schema.get("properties", {})
    if "grade" in fields:
        found = QUALITY.search(asked)
        return {"grade": found.group(1) if found else "0"}
    if "attempt" in fields:
        return {"attempt": "none" if "cannot say" in asked else "answered"}
    return by_content(messages, schema)


def lying(messages: Messages, schema: Mapping[str, Any]) -> object:
    """As wrong as can be."""
    said = honest(messages, schema)
    if isinstance(said, dict) and "grade" in said:
        return {"grade": str(3 - int(said["grade"]))}
    if isinstance(said, dict) and "attempt" in said:
        return {"attempt": "answered" if said["attempt"] == "none" else "none"}
    return said


class Judge:
    """`base_url` of a running one."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._root = base_url.removesuffix("/v1")

    def suffer(self, faults: Mapping[str, float]) -> None:
        httpx.post(f"{self._root}/faults", json=dict(faults), timeout=30).raise_for_status()

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self._root}/stats", timeout=30).json()
        return found


@contextmanager
def judge() -> Iterator[Judge]:
    """A process that answers until the end of the `with`."""
    command = [sys.executable, "-m", "tests.chaos.judge"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        try:
            yield Judge(process.stdout.readline().strip())
        finally:
            process.kill()


async def _serve() -> None:
    stub = StubJudge(latency=LATENCY, answer=honest, liar=lying, keep_bodies=False)
    sys.stdout.write(f"{await stub.start()}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
