"""Terminal input and output of the commands: messages, progress bars, tables and files."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from ragmeter.core.errors import UsageError
from ragmeter.core.label_bounds import bound_label
from ragmeter.ingest.files import STDIN


class _Talk(Console):
    """Prints to standard error; where that cannot be written, the command goes on without it.

    The disk of a log may be full.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `rich.console.Console` does."""
        with contextlib.suppress(OSError):
            super().print(*objects, **options)


stderr = _Talk(stderr=True, highlight=False, soft_wrap=True)

_MAX_PROGRESS_NAME = 40  # characters of a file name beside the bar
_TABLE_WIDTH = 140  # of a table in a file or pipe


class FileProgress:
    """A progress bar of reading a file."""

    def __init__(self, name: str, size: int | None) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[items]} traces"),
            TimeElapsedColumn(),
            console=stderr,  # the same as for messages, so that they appear above the bar
            transient=True,
            disable=not stderr.is_terminal,
        )
        self._task = self._progress.add_task(
            bound_label(name, _MAX_PROGRESS_NAME), total=size, items=0
        )

    def read(self, items: int, position: int) -> None:
        """Show the number of items read, and the position in bytes."""
        self._progress.update(self._task, completed=position, items=items)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def check_output_path(option: str, output: Path, others: Sequence[Path]) -> None:
    """Check the path of an output file.

    Args:
        option: The option that gave it, for the error.
        output: The path.
        others: Files that are read.

    Raises:
        UsageError: It is stdout, one of the others, or cannot be written.
    """
    if output == STDIN:
        raise UsageError(f"{option}: the name of a file is needed; stdout has the table")
    if output.is_dir():
        raise UsageError(f"{option}: {output}: a directory")
    if not os.access(output.parent, os.W_OK):
        raise UsageError(f"{option}: {output}: {output.parent} is no folder to write to")
    for other in others:
        if output.exists() and other != STDIN and other.exists() and output.samefile(other):
            raise UsageError(f"{option}: {output} is what is read; write somewhere else")


def build_table(title: str, *columns: tuple[str, dict[str, Any]]) -> Table:
    """Build a table with a bold title, and columns with options of rich's `add_column`."""
    table = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for name, options in columns:
        table.add_column(Text(name), **options)
    return table


def add_text_row(table: Table, *cells: str) -> None:
    """Add cells as text, so that names from traces and rules are not read as markup."""
    table.add_row(*map(Text, cells))


def print_tables(tables: Iterable[Table], width: int = _TABLE_WIDTH) -> None:
    """Print tables to stdout; a file or pipe gets the same bytes in every environment."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        for table in tables:
            console.print(table)
        return
    text = io.StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
        highlight=False,
        legacy_windows=False,
        emoji=False,
    )
    for table in tables:
        console.print(table)
    print_text(text.getvalue())


def print_text(text: str) -> None:
    """Print a text to stdout, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    with open(1, "wb", closefd=False) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
