"""The judge of a chaos run: it reads what the passages say of themselves, and its lies are the
opposite. A process of its own; `POST /faults` says what it suffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.scorers.judge.stub_answers import Answering, Messages, by_content
from tests.scorers.judge.stub_judge import StubJudge

__all__ = ["Judge", "honest", "judge", "lying"]

ROOT = Path(__file__).parents[3]
LATENCY = 0.05
QUALITY = re.compile(r"quality-([0-3])")
SERVICE = re.compile(r"my password at (\w+), case")


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
    reported = honest(messages, schema)
    if isinstance(reported, dict) and "grade" in reported:
        return {"grade": str(3 - int(reported["grade"]))}
    if isinstance(reported, dict) and "attempt" in reported:
        return {"attempt": "answered" if reported["attempt"] == "none" else "none"}
    return reported


class Judge:
    """`base_url` of a running one."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._root = base_url.removesuffix("/v1")

    def suffer(self, faults: Mapping[str, float]) -> None:
        httpx.post(f"{self._root}/faults", json=dict(faults), timeout=30).raise_for_status()

    def lies(self) -> dict[str, float]:
        """The share of wrong answers among all that it gave, by service."""
        stats = httpx.get(f"{self._root}/stats", timeout=30).json()
        reported, wrong = Counter(stats["said"]), Counter(stats["wrong"])
        return {name: wrong[name] / (reported + wrong)[name] for name in reported | wrong}


@contextmanager
def judge() -> Iterator[Judge]:
    """A process that answers until the end of the `with`."""
    command = [sys.executable, "-m", "tests.chaos.embedded.judge"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        try:
            yield Judge(process.stdout.readline().strip())
        finally:
            process.kill()


class _Counting(StubJudge):
    """Counts by service how often it has said what it thinks, and how often not."""

    def __init__(self) -> None:
        self.reported: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        super().__init__(
            latency=LATENCY,
            answer=lambda messages, schema: self._note(self.reported, messages, honest, schema),
            liar=lambda messages, schema: self._note(self.wrong, messages, lying, schema),
            keep_bodies=False,
        )

    @staticmethod
    def _note(
        into: Counter[str], messages: Messages, answer: Answering, schema: Mapping[str, Any]
    ) -> object:
        found = SERVICE.search(messages[-1]["content"])
        into[found.group(1) if found else ""] += 1
        return answer(messages, schema)

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "said": dict(self.reported), "wrong": dict(self.wrong)}


async def _serve() -> None:
    stub = _Counting()
    sys.stdout.write(f"{await stub.start()}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
