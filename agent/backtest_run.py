"""`ragmeter backtest`: the input and output around `agent.backtest`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from agent.alerts import Rule
from agent.backtest import Backtest
from agent.backtest_report import document, picture, table
from agent.config import Settings
from agent.progress import ReplayProgress
from agent.scored_input import BadLine, decode_line, read_lines, size_of
from agent.sources.files import STDIN
from agent.timeline import render
from agent.timeline_tracks import Tracks

__all__ = ["UsageError", "run_backtest"]

MAX_SHOWN = 10  # bad lines described on the terminal; the rest are only counted
REPORT_EVERY = 256  # lines between two updates of the progress bar
WIDTH = 140  # of a table that goes to no terminal


class UsageError(Exception):
    """The call cannot be meant."""


def run_backtest(
    path: Path,
    settings: Settings,
    rules: Sequence[Rule],
    form: str,
    drawing: Path | None,
    say: Callable[[str], None],
    apart: Sequence[Path] = (),
) -> bool:
    """Read, replay, print to stdout, draw. False where no line could be read: then nothing is
    printed. Raises OSError, and `UsageError` where the picture would destroy `path` or one of
    `apart`."""
    if drawing is not None:
        _check(drawing, [path, *apart])
    tracks = Tracks(rules, settings.alerts.evaluation_seconds) if drawing is not None else None
    backtest = Backtest(settings, rules, tracks)
    counts, limit = backtest.counts, settings.limits.trace_bytes
    position = 0
    name = "standard input" if path == STDIN else path.name
    with ReplayProgress(name, size_of(path)) as progress:
        for line, number in read_lines(path, limit):
            counts.lines += 1
            position += len(line) + 1
            try:
                backtest.feed(decode_line(line, limit))
            except BadLine as error:
                counts.bad += 1
                if counts.bad <= MAX_SHOWN:
                    say(f"line {number}: {error}")
            if counts.lines % REPORT_EVERY == 0:
                progress.read(counts.lines, counts.bad, position)
    backtest.finish()
    _tell(backtest, say)
    if not counts.traces:
        return False
    if drawing is not None and tracks is not None:
        _write(drawing, render(picture(backtest, rules, tracks)))
    if form == "json":
        _print("".join(f"{line}\n" for line in document(backtest)))
    else:
        _show(backtest)
    return True


def _tell(backtest: Backtest, say: Callable[[str], None]) -> None:
    """One line on what was read, with what of it did not count."""
    counts = backtest.counts
    told = [f"{counts.traces} traces"]
    for number, what in (
        (counts.bad, "lines unreadable"),
        (counts.duplicates, "duplicates left out"),
        (counts.late, "too late for every window"),
        (counts.unknown_results, "results of unknown metrics or scorers left out"),
        (counts.invalid_values, "values that are none, counted as unscored"),
        (counts.alerts_left_out, "alerts beyond the limit left out"),
    ):
        if number:
            told.append(f"{number} {what}")
    say(", ".join(told))


def _check(drawing: Path, others: Sequence[Path]) -> None:
    if drawing == STDIN:
        raise UsageError("--picture: the name of a file is needed; stdout has the table")
    for other in others:
        if drawing.exists() and other != STDIN and other.exists() and drawing.samefile(other):
            raise UsageError(f"--picture: {drawing} is what is read; write somewhere else")


def _write(path: Path, text: str) -> None:
    """A file that appears under its name only when it is whole; pipes and devices as they are."""
    path = Path(os.path.realpath(path))  # a link stays one
    if path.exists() and not path.is_file():
        path.write_bytes(text.encode())
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(text.encode())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _show(backtest: Backtest) -> None:
    if sys.stdout.isatty():
        Console(highlight=False).print(table(backtest))
        return
    # to a file or pipe: the same bytes whatever the environment says of colours and widths
    text = io.StringIO()
    Console(
        file=text, width=WIDTH, force_terminal=False, force_jupyter=False, color_system=None,
        highlight=False, legacy_windows=False, emoji=False,
    ).print(table(backtest))  # fmt: skip
    _print(text.getvalue())


def _print(text: str) -> None:
    """To stdout, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    with open(1, "wb", closefd=False) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
