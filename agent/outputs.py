"""Where commands write what they have made: whole files, and stdout that is the same everywhere."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agent.sources.files import STDIN

__all__ = ["UsageError", "check_apart", "print_tables", "print_text", "write_whole"]

WIDTH = 140  # of a table that goes to no terminal


class UsageError(Exception):
    """The call cannot be meant."""


def check_apart(option: str, output: Path, others: Sequence[Path]) -> None:
    """Raises `UsageError` where `output` is no file's name or would destroy one of `others`."""
    if output == STDIN:
        raise UsageError(f"{option}: the name of a file is needed; stdout has the table")
    for other in others:
        if output.exists() and other != STDIN and other.exists() and output.samefile(other):
            raise UsageError(f"{option}: {output} is what is read; write somewhere else")


def write_whole(path: Path, data: bytes) -> None:
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


def print_tables(tables: Iterable[Table], width: int = WIDTH) -> None:
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
