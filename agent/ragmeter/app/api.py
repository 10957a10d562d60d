"""The functions behind `ragmeter.score` and `ragmeter.read_scores`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ragmeter.app.settings import load_settings
from ragmeter.config.settings import LimitSettings, Settings
from ragmeter.core.errors import UsageError, describe_fault
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.untidy import validate_untidy
from ragmeter.metrics.registry import metric_catalogue
from ragmeter.offline.scored_lines import InvalidScoredLine, decode_scored_line, read_scored_lines
from ragmeter.offline.scoring import OfflineScorer
from ragmeter.scoring.slow_tiers import ConfiguredTiers
from ragmeter.trace import Trace

_COLUMNS = (
    "trace_id",
    "service",
    "timestamp",
    "status",
    "canary",
    "metric",
    "scorer",
    "state",
    "value",
    "reason",
    "probability",
    "fingerprint",
)


class InvalidTraceError(UsageError, ValueError):
    """An item given to `score` that is not a trace; the text has its index and the mistake."""


def score(
    traces: Iterable[Trace | Mapping[str, Any]],
    settings: Settings | Mapping[str, Any] | str | os.PathLike[str] | None = None,
) -> list[ScoredTrace]:
    """Score traces by every metric, without sampling, as `ragmeter score` does.

    Metrics of installed packages are included. The judge and the local model score where the
    settings name them; a result that they fail to give is `unscored` and has a reason.

    Args:
        traces: Traces, or dicts in their JSON form (docs/traces.md).
        settings: Settings, a tree of them, or the path of a YAML file. Environment variables apply
            beside a tree or a file (docs/configuration.md).

    Returns:
        One scored trace for each trace, in the same order.

    Raises:
        InvalidTraceError: An item is not a trace, or `traces` is a path or a single trace.
        ConfigError: The settings are wrong.
        OwnMetricError: An installed metric does not load.
        ModelError: The local model cannot be loaded.
    """
    if isinstance(traces, Trace | Mapping | str | os.PathLike):
        raise InvalidTraceError(f"a list of traces is needed, not one {type(traces).__name__}")
    metric_catalogue()
    if isinstance(settings, Mapping):
        settings = load_settings(overrides=settings)
    elif not isinstance(settings, Settings):
        settings = load_settings(None if settings is None else Path(settings))
    work = _score_all([_check_trace(n, item) for n, item in enumerate(traces)], settings)
    # In a thread of its own, since the caller's may run an event loop already, as in a notebook.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def read_scores(path: str | os.PathLike[str]) -> ScoresFile:
    """Open a file of scored traces, as `ragmeter score` writes it in JSON lines, gzip too.

    Returns:
        An iterator of the scored traces, which reads the file as it goes.
    """
    metric_catalogue()
    return ScoresFile(Path(path))


class ScoresFile(Iterator[ScoredTrace]):
    """An iterator of the scored traces in a file.

    Results of metrics that are not installed here are left out.

    Raises:
        InvalidScoredLine: A line is not a scored trace; the text has its number.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._traces = self._read()

    def __next__(self) -> ScoredTrace:
        return next(self._traces)

    def to_pandas(self) -> Any:
        """Return the whole file as a pandas DataFrame, wherever the iteration stands.

        Returns:
            One row a result: the trace's id, service, time (UTC), status and whether it is a
            canary, then metric, scorer, state, value (NaN unless scored), reason, inclusion
            probability and fingerprint of the scorer.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from error
        rows = [
            (
                trace.trace_id,
                trace.service,
                trace.timestamp,
                trace.status,
                trace.canary,
                result.metric,
                result.scorer,
                str(result.state),
                result.value,
                result.reason,
                result.probability,
                result.fingerprint,
            )
            for trace in self._read()
            for result in trace.results
        ]
        frame = pandas.DataFrame.from_records(rows, columns=_COLUMNS)
        frame["timestamp"] = pandas.to_datetime(frame["timestamp"], unit="s", utc=True)
        frame["value"] = frame["value"].astype("float64")
        return frame

    def _read(self) -> Iterator[ScoredTrace]:
        limit = LimitSettings().trace_bytes
        for line, number in read_scored_lines(self._path, limit):
            try:
                yield decode_scored_line(line, limit).trace
            except InvalidScoredLine as error:
                raise InvalidScoredLine(f"{self._path}: line {number}: {error}") from None


def _check_trace(index: int, item: Trace | Mapping[str, Any]) -> DecodedTrace:
    if isinstance(item, Trace):
        return DecodedTrace(item, b"")
    try:
        return DecodedTrace(Trace.model_validate(item), b"")
    except ValidationError as error:
        trace = validate_untidy(item) if isinstance(item, Mapping) else None
        if trace is None:
            raise InvalidTraceError(f"trace {index}: {describe_fault(error, 'item')}") from None
        return DecodedTrace(trace, b"")


async def _score_all(traces: list[DecodedTrace], settings: Settings) -> list[ScoredTrace]:
    async with OfflineScorer(settings, ConfiguredTiers(settings).scorers) as scorer:
        # Traces share the scores that they have alike; a caller may change those of one trace.
        return [
            scored._replace(results=[copy(score) for score in scored.results])
            async for scored, _ in scorer.score_all(traces)
        ]
