"""`ragmeter score`: a file of traces to a file of scores."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from agent.config import Settings
from agent.ingest.native import Bad
from agent.progress import ReplayProgress
from agent.score import Scorer
from agent.sources.files import STDIN, Source
from agent.trace import ScoredTrace

__all__ = ["SameFile", "score_file"]

MAX_SHOWN = 10  # unreadable items described on the terminal; the rest are only counted


class SameFile(Exception):
    """Writing would destroy what is read."""


def _status(path: Path, number: int) -> os.stat_result | None:
    try:
        return os.fstat(number) if path == STDIN else path.stat()
    except OSError:
        return None


def _check_apart(path: Path, output: Path) -> None:
    source, target = _status(path, 0), _status(output, 1)
    if source is None or target is None or not stat.S_ISREG(source.st_mode):
        return
    if os.path.samestat(source, target):
        raise SameFile(f"{output}: the output is the input; write somewhere else")


@contextmanager
def _writing(output: Path) -> Iterator[IO[str]]:
    """A file that appears under its name only when it is whole. stdout, pipes and devices are
    written to as they are. Always UTF-8.
    """
    # an escaped lone surrogate is valid JSON
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    if output == STDIN:
        with open(1, "w", closefd=False, **text) as file:
            yield file
        return
    output = Path(os.path.realpath(output))  # a link stays one
    if output.exists() and not output.is_file():
        with output.open("w", **text) as file:
            yield file
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with part.open("w", **text) as file:
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

    `form` is `jsonl` or `csv`. Raises OSError, and `SameFile` when `output` is `path`.
    """
    _check_apart(path, output)
    source = Source(path)
    scorer = Scorer(settings.builtin_scorers)
    done = bad = 0
    items = source.read(settings.limits.trace_bytes)
    with ReplayProgress(Path(source.name).name, source.size) as progress, _writing(output) as file:
        writer = (_Csv if form == "csv" else _Jsonl)(file, scorer.expected)
        for number, (item, position) in enumerate(items, start=1):
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
    if source.empty:
        say(f"{source.name}: the file is empty")
    return done, bad
