"""Decode the JSON Lines of scored traces that `ragmeter score` writes.

The decoder tolerates and counts unknown metrics and values out of range. It rejects a line whose
time, probability or state is wrong, since estimates would be wrong without a sign of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragmeter.core.errors import DataError
from ragmeter.core.judging import read_judging
from ragmeter.core.label_bounds import OTHER_LABEL, bound_label
from ragmeter.core.metric_specs import MetricSpec, find_helping_spec, name_at_cutoff
from ragmeter.core.score import (
    BUILTIN_SCORER,
    CLUSTER_PATTERN,
    ESTIMATE_SCORER,
    MAX_FINGERPRINT,
    MAX_STRATUM,
    Score,
    ScoredTrace,
    ScoreState,
)
from ragmeter.ingest.files import input_name, iterate_lines, open_input
from ragmeter.ingest.native import MAX_TRACE_VALUES, has_values_over
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.parquet import is_parquet, read_parquet_lines
from ragmeter.reasons import Reason
from ragmeter.trace import Id, Seconds, Status, Tags, Timestamp

MAX_VALUE = 1e15  # as in the windows: beyond it a value is no measurement
MAX_K = 100  # cut-offs come from a file, and each is a series
MAX_STRATA = 16  # each has its sums in every bucket; the agent has five
_MAX_ERROR_CHARS = 200  # characters of a reason shown

_ClusterHash = Annotated[str, Field(pattern=CLUSTER_PATTERN)]

_NOT_DRAWN = (ScoreState.SAMPLED_OUT, ScoreState.SHED)
_STATES = {str(state): state for state in ScoreState}


class InvalidScoredLine(DataError, ValueError):
    """A line that is not a scored trace; the text says why."""


@dataclass(slots=True)
class ScoredLine:
    """A scored trace, and how much of its line could not be used.

    Args:
        unknown: Results that were left out because their metric or scorer is unknown.
        invalid: Values out of the range of their metric; the results count as unscored.
    """

    trace: ScoredTrace
    unknown: int = 0
    invalid: int = 0


class _ScoredHeader(BaseModel):
    """The fields beside the results, with the types of a trace's own."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, allow_inf_nan=False, coerce_numbers_to_str=True
    )

    trace_id: Id
    service: Id
    timestamp: Timestamp
    status: Status = "ok"
    results: list[dict[str, Any]]
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    timings: dict[str, Seconds | None] = {}
    tags: Tags = {}
    canary: bool = False
    judging: Any = None
    cluster: _ClusterHash = ""
    tenant: _ClusterHash | None = None  # None: the cluster


def decode_scored_line(line: bytes, limit: int) -> ScoredLine:
    """Decode the JSON of a scored trace, which has at most `limit` bytes.

    Raises:
        InvalidScoredLine: It is not a scored trace, or too large.
    """
    if len(line) > limit:
        raise InvalidScoredLine(f"over the limit of {limit} bytes (limits.trace_bytes)")
    if has_values_over(line, MAX_TRACE_VALUES):
        raise InvalidScoredLine(f"more than {MAX_TRACE_VALUES} JSON values")
    try:
        header = _ScoredHeader.model_validate_json(line)
    except ValidationError as error:
        raise InvalidScoredLine(_first_error(error)) from None
    results: list[Score] = []
    decoded = ScoredLine(
        ScoredTrace(
            trace_id=header.trace_id,
            service=header.service,
            timestamp=header.timestamp.timestamp(),
            status=header.status,
            results=results,
            probability=header.probability,
            timings={k: v for k, v in header.timings.items() if v is not None},
            tags=header.tags,
            canary=header.canary,
            judging=None if header.judging is None else read_judging(header.judging),
            cluster=header.cluster,
            tenant=header.cluster if header.tenant is None else header.tenant,
        )
    )
    seen: set[tuple[str, str]] = set()
    for item in header.results:
        score = _decode_score(item, decoded)
        # a pair that is there twice would count twice
        if score is not None and (score.metric, score.scorer) not in seen:
            seen.add((score.metric, score.scorer))
            results.append(score)
    return decoded


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing" and where == "results":
        return "results: missing; is this a file that `ragmeter score` has written?"
    return f"{where}: {first['msg']}"[:_MAX_ERROR_CHARS].removeprefix(": ")


def _decode_score(item: dict[str, Any], line: ScoredLine) -> Score | None:
    """Return one result, or None if its metric or scorer is unknown."""
    name = item.get("metric")
    scorer = item.get("scorer")
    state = item.get("state")
    if not isinstance(name, str) or not isinstance(scorer, str):
        raise InvalidScoredLine("results: metric and scorer are needed, as text")
    if not isinstance(state, str) or state not in _STATES:
        raise InvalidScoredLine(f"results: state is one of {', '.join(_STATES)}")
    spec = metric_specs().get(name)
    k = item.get("k")
    if spec is None or scorer not in spec.scorers or not _cutoff_matches(k, spec):
        line.unknown += 1
        return None
    reason, fingerprint, detail = (item.get(key) for key in ("reason", "fingerprint", "detail"))
    score = Score(
        name if k is None else name_at_cutoff(name, k),
        scorer,
        _STATES[state],
        reason=reason if isinstance(reason, str) else None,
        # a result without its own was drawn together with its trace
        probability=line.trace.probability,
        detail=detail if isinstance(detail, dict) else None,
    )
    if isinstance(fingerprint, str):
        score.fingerprint = bound_label(fingerprint, MAX_FINGERPRINT)
    probability = _number(item.get("probability", line.trace.probability))
    if probability is None or not 0 < probability <= 1:
        line.invalid += 1
        if score.state is ScoreState.SCORED:
            score.state = ScoreState.UNSCORED
            score.reason = Reason.INVALID_VALUE
        return score
    score.probability = probability
    if isinstance(item.get("stratum"), str):
        score.stratum = item["stratum"][:MAX_STRATUM]
        helping = find_helping_spec(metric_specs(), score.metric) or spec
        score.cheap = _in_range(item.get("cheap"), helping)
    if score.state is ScoreState.SCORED:
        score.value = _in_range(item.get("value"), spec)
        if score.value is None:
            line.invalid += 1
            score.state = ScoreState.UNSCORED
            score.reason = Reason.INVALID_VALUE
    return score


def _in_range(value: object, spec: MetricSpec) -> float | None:
    number = _number(value)
    high = MAX_VALUE if spec.high is None else spec.high
    return number if number is not None and spec.low <= number <= high else None


def _cutoff_matches(k: object, spec: MetricSpec) -> bool:
    if "k" not in spec.labels:
        return k is None
    return isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= MAX_K


def _number(value: object) -> float | None:
    """Return a finite number, or None; neither `true` nor "0.5" in quotes is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON has integers of any length
        return None
    return number if math.isfinite(number) else None


def read_scored_lines(path: Path, limit: int) -> Iterator[tuple[bytes, int]]:
    """Yield each line of a file that is not blank, with its number, as `iterate_lines` does.

    Traces of a Parquet file come as lines, too.

    Raises:
        OSError: The file cannot be read, is broken gzip or Parquet, or is not UTF-8.
    """
    with open_input(path) as file:
        if is_parquet(file):
            yield from read_parquet_lines(file, input_name(path))
        else:
            yield from iterate_lines(file, input_name(path), limit)


def bound_strata(scores: Iterable[Score], admitted: set[str]) -> None:
    """Join the strata beyond the first `MAX_STRATA`, as their names come from a file."""
    for score in scores:
        if score.stratum and score.stratum not in admitted:
            if len(admitted) < MAX_STRATA:
                admitted.add(score.stratum)
            else:
                score.stratum = OTHER_LABEL


def _is_slow_result(score: Score) -> bool:
    """Return whether the running agent would get this result from a slow tier."""
    return score.scorer not in (BUILTIN_SCORER, ESTIMATE_SCORER) and score.state not in _NOT_DRAWN


def split_slow_results(scored: ScoredTrace) -> tuple[ScoredTrace, ScoredTrace | None]:
    """Split a scored trace as the running agent would get it: cheap results first.

    Returns:
        The trace with its cheap results and the terms of the pending ones, and a partial trace
        with the results of the slow tiers, or None if there are none.
    """
    slow = [score for score in scored.results if _is_slow_result(score)]
    if not slow:
        return scored, None
    cheap = [score for score in scored.results if not _is_slow_result(score)]
    pending = tuple((s.metric, s.scorer, s.stratum) for s in slow if s.stratum)
    rest = scored._replace(results=slow, partial=True, timings={})
    return scored._replace(results=cheap, pending=pending), rest
