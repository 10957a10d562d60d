"""The standard streams of the commands: messages, the log, and what becomes of a broken stream.

No message needs rich, which takes a tenth of a second to import: an agent that serves prints
nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import unicodedata
from io import TextIOWrapper
from typing import Any

import typer

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")  # control, format (bidi overrides), line separators


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
    """Print a line to stderr; it may hold names and texts from outside.

    Where stderr cannot be written, the command goes on without it: the disk of a log may be full.
    """
    with contextlib.suppress(OSError):
        print(escape_control(line), file=sys.stderr, flush=True)


def exit_error(message: str, code: int = 1) -> typer.Exit:
    """Print why a command failed, and return the exception that ends it."""
    # late: a command that does not fail needs no colours
    from ragmeter.console.terminal import stderr

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
