"""What a chaos run of either home is: it says what it does, and ends in a report."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["SAY_SECONDS", "START_SECONDS", "ChaosRun", "Report", "run", "wait_until"]

START_SECONDS = 300.0  # 3 s on a quiet machine, minutes on one that is very busy
SAY_SECONDS = 30.0


@dataclass
class Report:
    """What a chaos run has come to."""

    seconds: float = 0.0
    counted: float = 0.0
    facts: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        facts = "\n".join(f"  {fact}" for fact in self.facts)
        if not self.differences:
            return f"{facts}\nno differences"
        return f"{facts}\n{len(self.differences)} differences\n{_shown(self.differences)}"


def _shown(lines: Sequence[str], most: int = 40) -> str:
    shown = "\n".join(f"  {line}" for line in lines[:most])
    return shown + (f"\n  and {len(lines) - most} more" if len(lines) > most else "")


class ChaosRun(ABC):
    """One run of a plan, a dataclass. `folder` keeps settings and logs of the processes."""

    def __init__(self, plan: Any, folder: Path, tell: Callable[[str], None]) -> None:
        self.plan = plan
        self.folder = folder
        self._tell = tell
        self._begun = time.monotonic()
        self.report = Report()

    def say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._begun:7.1f} s  {text}")

    @abstractmethod
    def go(self) -> Report:
        """From start to end. Raises where nothing could be tried."""


def run(one: ChaosRun) -> Report:
    """Name the plan, and carry it out; the report names every difference."""
    one._tell(json.dumps(asdict(one.plan)))
    return one.go()


def wait_until(
    what: Callable[[], object], seconds: float, tend: Callable[[], None] = lambda: None
) -> bool:
    """Whether it came to that in time; `tend` is called in between."""
    end = time.monotonic() + seconds
    while not what():
        tend()
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
