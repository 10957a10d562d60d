"""Progress of long work on the terminal: always on stderr, and plain where that is no terminal."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from agent.sources.files import STDIN, size

__all__ = ["ReplayProgress"]


class ReplayProgress:
    """A bar over the bytes of `path`, with the items read so far."""

    def __init__(self, path: Path) -> None:
        self.items = 0
        self.bad = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[items]} traces"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        name = "standard input" if path == STDIN else path.name
        self._task = self._progress.add_task(name, total=size(path), items=0)

    def read(self, items: int, bad: int, position: int) -> None:
        self.items, self.bad = items, bad
        self._progress.update(self._task, completed=position, items=items)

    def __enter__(self) -> ReplayProgress:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
