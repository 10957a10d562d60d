"""The output of `ragmeter score`: a file, of one of four formats, that appears when it is whole."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ragmeter.core.errors import UsageError
from ragmeter.core.files import replacing
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.files import STDIN
from ragmeter.offline.parquet import ParquetWriter
from ragmeter.offline.report.open_rag_eval import OpenRagEvalTable
from ragmeter.offline.score_table import ScoreTable
from ragmeter.trace import Trace


def check_apart(path: Path, output: Path) -> None:
    """Raise `UsageError` if the output is the input."""
    source = _file_status(path, 0)
    target = _file_status(output, 1)
    if source is None or target is None or not stat.S_ISREG(source.st_mode):
        return
    if os.path.samestat(source, target):
        raise UsageError(f"{output}: the output is the input; write somewhere else")


def _file_status(path: Path, number: int) -> os.stat_result | None:
    try:
        return os.fstat(number) if path == STDIN else path.stat()
    except OSError:
        return None


@contextmanager
def open_output(output: Path) -> Iterator[IO[str]]:
    """Open a UTF-8 file that appears under its name when it is complete; stdout as it is."""
    # an escaped lone surrogate is valid JSON
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    if output == STDIN:
        with open(1, "w", closefd=False, **text) as file:
            yield file
        return
    with replacing(output) as part, part.open("w", **text) as file:
        yield file


@contextmanager
def open_writer(
    form: str, file: IO[str], pairs: list[tuple[str, str]]
) -> Iterator[Callable[[ScoredTrace, Trace | None], object]]:
    """Write the header of a format, and yield what writes a trace with its redacted texts."""
    if form == "parquet":
        with contextlib.closing(ParquetWriter(file.buffer)) as writer:  # type: ignore[attr-defined]
            yield lambda scored, _: writer.write(scored)
    elif form == "jsonl":
        yield lambda scored, _: file.write(json.dumps(scored.to_dict(), ensure_ascii=False) + "\n")
    elif form == "open-rag-eval":
        table = OpenRagEvalTable()
        yield table.add
        csv.writer(file, lineterminator="\n").writerows(table.rows())  # as pandas writes it
    else:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as rows:
            score_table = ScoreTable(rows, pairs)
            yield score_table.write
            score_table.finish(file)
