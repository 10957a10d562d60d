"""The terminal: talk to people on stderr, and streams that survive what they are connected to."""

from __future__ import annotations

import os
import sys
import unicodedata
from io import TextIOWrapper

import typer
from rich.console import Console

__all__ = ["failed", "plain", "prepare", "say", "silence", "talk"]

talk = Console(stderr=True, highlight=False, soft_wrap=True)

HIDDEN = ("Cc", "Cf", "Zl", "Zp")  # control, format (bidi overrides), line separators


def plain(text: str) -> str:
    """`text` on its lines, with every character that could steer a terminal written out."""
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode("ascii")
        if char != "\n" and unicodedata.category(char) in HIDDEN
        else char
        for char in text
    )


def say(line: str) -> None:
    """A line for people; it may hold names and texts from outside."""
    talk.print(plain(line), markup=False, emoji=False)


def failed(message: str, code: int = 1) -> typer.Exit:
    """To be raised: the end of a command that could not do its work, and why."""
    talk.print(plain(f"ragmeter: {message}"), style="red", markup=False, emoji=False)
    return typer.Exit(code)


def prepare() -> None:
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


def silence() -> None:
    """Drop what is still to be written to stdout: it cannot be, and has been reported."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
