"""Breakdown by segment of files of scored traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragmeter.breakdown.breakdown import BreakdownOptions, build_breakdown, build_document
from ragmeter.breakdown.sources import FileBreakdownSource
from ragmeter.config.settings import Settings
from ragmeter.ingest.files import MAX_SHOWN
from ragmeter.offline.backtest import Backtest
from ragmeter.offline.scored_lines import InvalidScoredLine, decode_scored_line, read_scored_lines
from ragmeter.windows.windows import Windows

# Timestamp given to all traces: they share one bucket, so that a file of a year fits a window.
_MOMENT = 1_700_000_400.0


def fill_windows(path: Path, settings: Settings, say: Callable[[str], None]) -> Windows | None:
    """Fill windows with all traces of a scored file, each trace once.

    Returns:
        The windows; None if no trace could be read.

    Raises:
        OSError: The file cannot be read.
    """
    backtest = Backtest(settings, ())
    counts, limit = backtest.counts, settings.limits.trace_bytes
    for text, number in read_scored_lines(path, limit):
        try:
            line = decode_scored_line(text, limit)
        except InvalidScoredLine as error:
            counts.bad += 1
            if counts.bad <= MAX_SHOWN:
                say(f"{path}: line {number}: {error}")
            continue
        backtest.feed(replace(line, trace=replace(line.trace, timestamp=_MOMENT)))
    backtest.finish()
    say(f"{path}: {counts.traces} traces, {counts.bad} lines unreadable")
    return backtest.windows if counts.traces else None


def break_down_files(
    paths: Sequence[Path],
    settings: Settings,
    service: str | None,
    options: BreakdownOptions,
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """Break down the last file against the first, or one file alone.

    Returns:
        A document in the form of `/api/segments.json`; None if a file holds no readable trace.

    Raises:
        OSError: A file cannot be read.
        NoPastError: A service of the last file has no traffic in the first.
    """
    filled = [fill_windows(path, settings, say) for path in paths]
    before, now = (filled[0], filled[-1]) if len(filled) > 1 else (None, filled[-1])
    if now is None or (len(filled) > 1 and before is None):
        return None
    tags = {
        segment.partition("=")[0]
        for windows in filled
        if windows is not None
        for name in windows.services()
        for segment in windows.segments(name)
    }
    for tag in settings.segments:
        if tag not in tags:
            say(f"no trace has {tag}")
    documents = []
    for name in now.services():
        if service in (None, name):
            source = FileBreakdownSource(before, now, name)
            for metric, scorer in source.changed():
                say(f"{name}: {metric} ({scorer}) is of another instrument now: left out")
            documents.append(build_document(build_breakdown(source, options)))
    return {
        "stream_time": None,
        "window": None,
        "windows": [],
        "segments": [tag for tag in settings.segments if tag in tags],
        "services": documents,
    }
