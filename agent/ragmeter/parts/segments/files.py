"""The breakdown of files, in the form of that of a running agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ragmeter.parts.segments.breakdown import BreakdownOptions, build_breakdown, build_document
from ragmeter.parts.segments.sources import FileBreakdownSource
from ragmeter.windows.windows import Windows


def break_down_files(
    files: Sequence[Windows],
    tags: Sequence[str],
    service: str | None,
    options: BreakdownOptions,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Break down the last file against the first, or one file alone.

    Args:
        files: The windows of each file.
        tags: The tags that make segments.
        service: The service, None for all.
        options: The choice of comparisons.
        say: Says what is left out.

    Returns:
        A document in the form of `/api/segments.json`.

    Raises:
        NoPastError: A service of the last file has no traffic in the first.
    """
    before = files[0] if len(files) > 1 else None
    now = files[-1]
    found = {
        segment.partition("=")[0]
        for windows in files
        for name in windows.services()
        for segment in windows.segments(name)
    }
    for tag in tags:
        if tag not in found:
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
        "segments": [tag for tag in tags if tag in found],
        "services": documents,
    }
