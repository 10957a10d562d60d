"""`ragmeter backtest`: the input and output around `agent.backtest`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from agent.alerts import Rule
from agent.backtest import Backtest
from agent.backtest_report import document, picture, table
from agent.config import Settings
from agent.outputs import UsageError, check_apart, print_tables, print_text, write_whole
from agent.progress import ReplayProgress
from agent.scored_input import BadLine, decode_line, read_lines, size_of
from agent.sources.files import MAX_SHOWN, STDIN
from agent.timeline import render
from agent.timeline_tracks import Tracks

__all__ = ["UsageError", "run_backtest"]

REPORT_EVERY = 256  # lines between two updates of the progress bar


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
        check_apart("--picture", drawing, [path, *apart])
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
        write_whole(drawing, render(picture(backtest, rules, tracks)).encode())
    if form == "json":
        print_text("".join(f"{line}\n" for line in document(backtest)))
    else:
        print_tables([table(backtest)])
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
