"""`ragmeter score`: a file of traces to a file of scores."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agent.config import Settings
from agent.ingest.native import Bad
from agent.progress import ReplayProgress
from agent.score import Scorer
from agent.sources.files import STDIN, read
from agent.trace import ScoredTrace

__all__ = ["score_file"]

MAX_SHOWN = 10  # unreadable items described on the terminal; the rest are only counted


@contextmanager
def _writing(output: Path) -> Iterator[IO[str]]:
    """A file that appears under its name only when it is whole."""
    if output == STDIN:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)


class _Jsonl:
    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._file = file

    def write(self, scored: ScoredTrace) -> None:
        self._file.write(json.dumps(scored.to_dict(), ensure_ascii=False) + "\n")


class _Csv:
    """One column per metric and scorer; a cell is empty where there is no value."""

    def __init__(self, file: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs
        self._writer = csv.writer(file)
        names = [f"{metric}.{scorer}" for metric, scorer in pairs]
        self._writer.writerow(["trace_id", "service", "timestamp", *names])

    def write(self, scored: ScoredTrace) -> None:
        values = {(score.metric, score.scorer): score.value for score in scored.results}
        cells = [values.get(pair) for pair in self._pairs]
        document = scored.to_dict()
        keys = [document[name] for name in ("trace_id", "service", "timestamp")]
        self._writer.writerow([*keys, *("" if cell is None else repr(cell) for cell in cells)])


def score_file(
    path: Path, output: Path, form: str, settings: Settings, say: Callable[[str], None]
) -> tuple[int, int]:
    """Score every trace of `path`; returns how many were scored and how many items were bad.

    `form` is `jsonl` or `csv`. Raises OSError.
    """
    scorer = Scorer(settings.builtin_scorers)
    done = bad = 0
    with ReplayProgress(path) as progress, _writing(output) as file:
        writer = (_Csv if form == "csv" else _Jsonl)(file, scorer.expected)
        for number, (item, position) in enumerate(read(path, settings.limits.trace_bytes), start=1):
            if isinstance(item, Bad):
                bad += 1
                if bad <= MAX_SHOWN:
                    why = "; ".join(f"{field or 'item'}: {why}" for field, why in item.errors)
                    say(f"item {number}: {item.reason}: {why}")
            else:
                writer.write(scorer.score(item.trace))
                done += 1
            if number % 256 == 0:
                progress.read(number, bad, position)
    return done, bad
