"""Scores as a table with one row a trace."""

from __future__ import annotations

import csv
import json
from typing import IO

from ragmeter.core.score import ScoredTrace
from ragmeter.offline.report.input_files import JUDGING_COLUMN, TAG_COLUMN, TIMING_COLUMN
from ragmeter.trace import Trace

_KEY_COLUMNS = ("trace_id", "service", "timestamp")
_MAX_COLUMNS = 100  # stages, and tags, that have a column: their names come from a file


class ScoreTable:
    """Writes scored traces as CSV, with a column for each score, stage and tag, and of the judging.

    Which stages and tags there are is known after the last trace, so the rows wait in a temporary
    file for their header.
    """

    def __init__(self, rows: IO[str], pairs: list[tuple[str, str]]) -> None:
        self._rows = rows
        self._pairs = pairs
        self._stages: dict[str, None] = {}
        self._tags: dict[str, None] = {}
        self._judged = False

    def write(self, scored: ScoredTrace, _: Trace | None) -> None:
        """Add a row."""
        values = {(score.metric, score.scorer): score.value for score in scored.results}
        document = scored.to_dict()
        cells = map(values.get, self._pairs)
        for columns, found in ((self._stages, scored.timings), (self._tags, scored.tags)):
            for name in found:
                if len(columns) < _MAX_COLUMNS:
                    columns.setdefault(name)
        row = [
            *(document[name] for name in _KEY_COLUMNS),
            *("" if cell is None else repr(cell) for cell in cells),
        ]
        judging = document.get("judging")
        self._judged = self._judged or judging is not None
        self._rows.write(json.dumps([row, scored.timings, scored.tags, judging]) + "\n")

    def finish(self, file: IO[str]) -> None:
        """Write the header and the rows into `file`."""
        table = csv.writer(file)
        table.writerow(
            [
                *_KEY_COLUMNS,
                *(f"{metric}.{scorer}" for metric, scorer in self._pairs),
                *(TIMING_COLUMN + stage for stage in self._stages),
                *(TAG_COLUMN + tag for tag in self._tags),
                *([JUDGING_COLUMN] if self._judged else ()),
            ]
        )
        self._rows.seek(0)
        for line in self._rows:
            row, timings, tags, judging = json.loads(line)
            table.writerow(
                [
                    *row,
                    *(timings.get(stage, "") for stage in self._stages),
                    *(tags.get(tag, "") for tag in self._tags),
                    *([json.dumps(judging) if judging else ""] if self._judged else ()),
                ]
            )
