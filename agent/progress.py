"""Progress of long work on the terminal: always on stderr, and nothing where that is no
terminal."""

from __future__ import annotations

from types import TracebackType

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from agent.labels import bounded
from agent.terminal import talk

__all__ = ["ReplayProgress"]

MAX_NAME = 40  # characters of a file name beside the bar


class ReplayProgress:
    """A bar over `size` bytes (None: unknown) with the items read so far."""

    def __init__(self, name: str, size: int | None) -> None:
        self.items = 0
        self.bad = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[items]} traces"),
            TimeElapsedColumn(),
            console=talk,  # the one for talk: lines said meanwhile stand above the bar
            transient=True,
            disable=not talk.is_terminal,
        )
        self._task = self._progress.add_task(bounded(name, MAX_NAME), total=size, items=0)

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
