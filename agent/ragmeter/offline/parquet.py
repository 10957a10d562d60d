"""Scored traces as Parquet, a row for each result; pyarrow comes with the extra `parquet`.

The columns are those of `ragmeter.read_scores(...).to_pandas()` and what else a line of JSON holds,
so that every command reads the same from either form. What is nested is JSON in a column of text,
because pandas cannot write maps.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from typing import IO, Any

from ragmeter.core.errors import UnusableResource
from ragmeter.core.metric_specs import base_name, name_at_cutoff, parse_cutoff
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import PARQUET

_ROWS = 20_000  # of a row group: some megabytes

# `number` tells traces apart; `more` has what has no column, on the first row of a trace
_TRACE_COLUMNS = {
    "number": "int64",
    "trace_id": "string",
    "service": "string",
    "timestamp": "timestamp",
    "status": "string",
    "canary": "bool_",
    "trace_probability": "float64",
    "timings": "string",
    "tags": "string",
    "more": "string",
}
_RESULT_COLUMNS = {
    "metric": "string",
    "scorer": "string",
    "state": "string",
    "value": "float64",
    "reason": "string",
    "probability": "float64",
    "fingerprint": "string",
    "stratum": "string",
    "cheap": "float64",
    "detail": "string",
}
_COLUMNS = {**_TRACE_COLUMNS, **_RESULT_COLUMNS}
_JSON_COLUMNS = ("timings", "tags", "more", "detail")
_NEEDED = ("number", "trace_id", "service", "timestamp", "metric", "scorer", "state", "value")


class ParquetError(UnusableResource, OSError):
    """A Parquet file that cannot be read or written; the text says why."""


def is_parquet(file: IO[bytes]) -> bool:
    """Return whether a file that can be looked into begins as Parquet does."""
    head: bytes = file.peek(len(PARQUET))  # type: ignore[attr-defined]
    return head.startswith(PARQUET)


def _pyarrow(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ParquetError(
            "Parquet needs pyarrow: pip install '.[parquet]' in a clone of ragmeter"
        ) from None


class ParquetWriter:
    """Writes scored traces; `close` it, or the file is none.

    Raises:
        ParquetError: pyarrow is not installed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._arrow = pa = _pyarrow("pyarrow")
        self._schema = pa.schema(
            [
                (name, pa.timestamp("us", "UTC") if kind == "timestamp" else getattr(pa, kind)())
                for name, kind in _COLUMNS.items()
            ]
        )
        self._writer = _pyarrow("pyarrow.parquet").ParquetWriter(file, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._traces = 0

    def write(self, scored: ScoredTrace) -> None:
        """Add a row for each result of a trace."""
        text = json.dumps(scored.to_dict(), ensure_ascii=False)
        document = json.loads(text.encode("utf-8", "replace"))  # Parquet takes no lone surrogates
        results = document.pop("results")
        trace = {name: document.pop(name, None) for name in _TRACE_COLUMNS}
        trace["number"] = self._traces
        trace["timestamp"] = datetime.fromisoformat(trace["timestamp"])
        trace["canary"] = bool(trace["canary"])
        trace["trace_probability"] = document.pop("probability", 1.0)
        trace["more"] = document
        for result in results:
            row = {**trace, **result}
            if "k" in result:
                row["metric"] = name_at_cutoff(result["metric"], result["k"])
            for name in _JSON_COLUMNS:
                row[name] = json.dumps(row[name]) if row.get(name) else None
            self._rows.append(row)
            trace["more"] = None
        self._traces += 1
        if len(self._rows) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        batch = self._arrow.RecordBatch.from_pylist(self._rows, self._schema)
        self._writer.write_batch(batch)
        self._rows = []

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()


def read_parquet_lines(file: IO[bytes], name: str) -> Iterator[tuple[bytes, int]]:
    """Yield each scored trace of a Parquet file as its line of JSON, with its number.

    The file is at its start; errors call it `name`.

    Raises:
        ParquetError: pyarrow is not installed, the file is broken or has other columns, or the rows
            of a trace are apart.
    """
    parquet = _pyarrow("pyarrow.parquet")
    source = file if file.seekable() else io.BytesIO(file.read())
    try:
        table = parquet.ParquetFile(source)
        missing = [column for column in _NEEDED if column not in table.schema_arrow.names]
        if missing:
            raise ParquetError(
                f"{name}: no scored traces: without the columns {', '.join(missing)}, which"
                " `ragmeter score --format parquet` writes"
            )
        columns = [column for column in _COLUMNS if column in table.schema_arrow.names]
        seen: set[tuple[Any, ...]] = set()
        trace: dict[str, Any] = {}
        key: tuple[Any, ...] = ()
        for batch in table.iter_batches(_ROWS, columns=columns):
            for row in batch.to_pylist():
                own = (row["number"], row["service"], row["trace_id"])
                if own != key:
                    if trace:
                        yield json.dumps(trace).encode(), len(seen)
                    key = own
                    trace = _read_trace(row)
                    if key in seen:
                        raise ParquetError(f"{name}: the rows of a trace are apart: sort by number")
                    seen.add(key)
                trace["results"].append(_read_result(row))
        if trace:
            yield json.dumps(trace).encode(), len(seen)
    except ParquetError:
        raise
    except (OSError, ValueError, TypeError, KeyError, _pyarrow("pyarrow").ArrowException) as error:
        raise ParquetError(f"{name}: broken Parquet: {error}"[:300]) from None


def _read_trace(row: Mapping[str, Any]) -> dict[str, Any]:
    trace = _present(row, _TRACE_COLUMNS)
    trace = {**trace.pop("more", {}), **trace}
    trace["probability"] = trace.pop("trace_probability", 1.0)
    if isinstance(row["timestamp"], datetime):
        trace["timestamp"] = row["timestamp"].isoformat()
    return {**trace, "results": []}


def _read_result(row: Mapping[str, Any]) -> dict[str, Any]:
    result = _present(row, _RESULT_COLUMNS)
    cutoff = parse_cutoff(str(result["metric"]))
    if cutoff is not None:
        result["metric"] = base_name(result["metric"])
        result["k"] = int(cutoff) if cutoff.isdecimal() else cutoff
    return result


def _present(row: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    """Return the columns with a value, read where they are JSON; pandas makes empty numbers NaN."""
    values = {name: row.get(name) for name in columns if name != "number"}
    return {
        name: json.loads(value) if name in _JSON_COLUMNS else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }
