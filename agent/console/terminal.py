"""Terminal input and output of the commands: messages, progress bars, tables and files."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType

import typer
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

from ragmeter.core.label_bounds import bound_label
from ragmeter.ingest.files import STDIN

stderr = Console(stderr=True, highlight=False, soft_wrap=True)

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")  # control, format (bidi overrides), line separators


def escape_control(text: str) -> str:
    """`text` on its lines, with every character that could steer a terminal written out."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char != "\n" and unicodedata.category(char) in _HIDDEN_CATEGORIES
        else char
        for char in text
    )


def print_message(line: str) -> None:
    """A line for people; it may hold names and texts from outside."""
    stderr.print(escape_control(line), markup=False, emoji=False)


def exit_error(message: str, code: int = 1) -> typer.Exit:
    """To be raised: the end of a command that could not do its work, and why."""
    stderr.print(escape_control(f"ragmeter: {message}"), style="red", markup=False, emoji=False)
    return typer.Exit(code)


def prepare_streams() -> None:
    """Make the standard streams safe to use; called once, first of all.

    Text that the terminal's encoding lacks is written as escapes. Streams that the caller has
    closed get their number filled, so that no file of ours becomes "stdout": stderr is dropped,
    writing to stdout is an error, and `sys.stdin` stays None, which says that it is closed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # the lowest free number is this one: those below are open
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Drop what is still to be written to stdout: it cannot be, and has been reported."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


_MAX_PROGRESS_NAME = 40  # characters of a file name beside the bar


class FileProgress:
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
            console=stderr,  # the one for talk: lines said meanwhile stand above the bar
            transient=True,
            disable=not stderr.is_terminal,
        )
        self._task = self._progress.add_task(
            bound_label(name, _MAX_PROGRESS_NAME), total=size, items=0
        )

    def read(self, items: int, bad: int, position: int) -> None:
        self.items, self.bad = items, bad
        self._progress.update(self._task, completed=position, items=items)

    def __enter__(self) -> FileProgress:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


_TABLE_WIDTH = 140  # of a table that goes to no terminal


class UsageError(Exception):
    """The call cannot be meant."""


def check_output_path(option: str, output: Path, others: Sequence[Path]) -> None:
    """Raises `UsageError` where `output` is no file's name or would destroy one of `others`."""
    if output == STDIN:
        raise UsageError(f"{option}: the name of a file is needed; stdout has the table")
    for other in others:
        if output.exists() and other != STDIN and other.exists() and output.samefile(other):
            raise UsageError(f"{option}: {output} is what is read; write somewhere else")


def write_atomically(path: Path, data: bytes) -> None:
    """A file that appears under its name only when it is whole; pipes and devices as they are."""
    path = Path(os.path.realpath(path))  # a link stays one
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def print_tables(tables: Iterable[Table], width: int = _TABLE_WIDTH) -> None:
    """To stdout; to a file or pipe the same bytes whatever the environment says of colours and
    widths."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        for table in tables:
            console.print(table)
        return
    text = io.StringIO()
    console = Console(
        file=text, width=width, force_terminal=False, force_jupyter=False, color_system=None,
        highlight=False, legacy_windows=False, emoji=False,
    )  # fmt: skip
    for table in tables:
        console.print(table)
    print_text(text.getvalue())


def print_text(text: str) -> None:
    """To stdout, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    with open(1, "wb", closefd=False) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
