"""Terminal input and output of the commands: messages, progress bars, tables and files."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self

import typer
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

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")  # control, format (bidi overrides), line separators
_MAX_PROGRESS_NAME = 40  # characters of a file name beside the bar
_TABLE_WIDTH = 140  # of a table in a file or pipe


def escape_control(text: str) -> str:
    """Escape every character of `text` that could control a terminal, but keep line breaks."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char != "\n" and unicodedata.category(char) in _HIDDEN_CATEGORIES
        else char
        for char in text
    )


def escape_json(text: str) -> str:
    """Return JSON with every character that could control a terminal as an escape of JSON."""
    if text.isprintable():
        return text
    return "".join(
        json.dumps(char)[1:-1]
        if char != "\n" and unicodedata.category(char) in _HIDDEN_CATEGORIES
        else char
        for char in text
    )


class LogFormatter(logging.Formatter):
    """One line a record, dated in UTC; a traceback follows in lines of its own, or within JSON.

    What comes from outside cannot control a terminal or begin a line.
    """

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._as_json = as_json

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, without the traceback."""
        return escape_control(super().formatMessage(record)).replace("\n", "\\n")

    def formatException(self, ei: Any) -> str:
        """Return the traceback."""
        return escape_control(super().formatException(ei))

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of text, or as a JSON object."""
        if not self._as_json:
            return super().format(record)
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return escape_json(json.dumps(fields, ensure_ascii=False))


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to what is `sys.stderr` at the time, which progress bars and tests replace."""

    @property
    def stream(self) -> Any:
        """Standard error."""
        return sys.stderr

    @stream.setter
    def stream(self, stream: object) -> None:
        pass


def print_message(line: str) -> None:
    """Print a line to stderr; it may hold names and texts from outside."""
    stderr.print(escape_control(line), markup=False, emoji=False)


def exit_error(message: str, code: int = 1) -> typer.Exit:
    """Print why a command failed, and return the exception that ends it."""
    stderr.print(escape_control(f"ragmeter: {message}"), style="red", markup=False, emoji=False)
    return typer.Exit(code)


def prepare_streams() -> None:
    """Make the standard streams safe to use; to be called once, before anything else.

    Text that the terminal's encoding lacks is written as escapes. The file descriptors of closed
    streams are filled, so that no other file becomes "stdout": output to stderr is dropped, output
    to stdout is an error, and `sys.stdin` stays None to mark it as closed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # opens this number, as it is the lowest free one
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Drop buffered output after an error of stdout that was already reported."""
    _discard(1)


def flush_stderr() -> None:
    """Write what is left of stderr, or drop it: the interpreter's exit would make it a failure."""
    try:
        sys.stderr.flush()
    except OSError:
        _discard(2)


def _discard(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


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
