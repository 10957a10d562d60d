"""Read what requests say from their scores, a column of scores at a time; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragmeter.core.score import BUILTIN_SCORER, ESTIMATE_SCORER, ScoredTrace, ScoreState
from ragmeter.core.series import split_scorer
from ragmeter.parts.questions.catalogue import READERS
from ragmeter.parts.questions.traffic import TRACKED
from ragmeter.windows.bucket_builder import are_alike, group_scores

_EMPTY = ("empty_answer", BUILTIN_SCORER)
_CUT = (("cut_answer", BUILTIN_SCORER), ("filtered_answer", BUILTIN_SCORER))
_COST = ("cost_usd", BUILTIN_SCORER)
_ESTIMATE = ("cost_usd", ESTIMATE_SCORER)
_OTHERS = {_EMPTY, *_CUT, _COST, _ESTIMATE}  # that say something of a request and have no reader

_LEAST_TIME = 1e-3  # seconds; below it a time is as good as none

UNTOLD = (ScoreState.SAMPLED_OUT, ScoreState.SHED, ScoreState.LATE)
"""The states of a score that says nothing of its trace."""


class RequestScores(NamedTuple):
    """What the scores of traces say of their requests.

    Args:
        weights: For how many requests each stands.
        totals: Their total times in seconds, NaN where none is known.
        values: By name in `TRACKED`, one a trace, NaN where it has none; none of `cost`, which
            depends on what other requests have told.
        given: By number of the trace, the costs that were told.
        estimated: By number of the trace, the costs that were estimated.
        strata: Of each trace, by source, the strata of the sampled tiers that it belongs to.
        told: The numbers of the traces of which slow scorers or people have already told.
    """

    weights: list[float]
    totals: list[float]
    values: dict[str, list[float]]
    given: dict[int, float]
    estimated: dict[int, float]
    strata: list[dict[str, str]]
    told: list[int]


def read_requests(traces: Sequence[ScoredTrace]) -> RequestScores:
    """Read the scores of traces that have just arrived."""
    values = {name: [math.nan] * len(traces) for name in TRACKED if name != "cost"}
    works = values["works"] = [float(trace.status == "ok") for trace in traces]
    uncut = values["uncut"]
    costs: dict[tuple[str, str], dict[int, float]] = {_COST: {}, _ESTIMATE: {}}
    strata: list[dict[str, str]] = [{} for _ in traces]
    told: set[int] = set()
    for pair, scores, rows in group_scores([one.results for one in traces], range(len(traces))):
        reader = READERS.get((pair[0], split_scorer(pair[1])[0]))
        if reader is not None and reader.source != "builtin":
            for row, score in zip(rows, scores, strict=True):
                if score.state not in UNTOLD:
                    told.add(row)
                if score.stratum and pair in READERS:
                    strata[row].setdefault(reader.source, score.stratum)
            continue
        if reader is None and pair not in _OTHERS:
            continue
        if are_alike(scores) and scores[0].state is not ScoreState.SCORED:
            continue
        known = [
            (row, score.value)
            for row, score in zip(rows, scores, strict=True)
            if score.state is ScoreState.SCORED and score.value is not None
        ]
        if reader is not None:
            column = values[reader.question]
            for row, value in known:
                column[row] = within_unit(reader.convert(value))
        elif pair == _EMPTY:
            for row, value in known:
                works[row] = 0.0 if value == 1.0 else works[row]
        elif pair in _CUT:
            for row, value in known:
                uncut[row] = min(1 - value, 1.0 if math.isnan(uncut[row]) else uncut[row])
        elif pair in costs:
            costs[pair] = dict(known)
    for row, trace in enumerate(traces):
        for metric, scorer, stratum in trace.pending:
            reader = READERS.get((metric, scorer))
            if reader is not None and stratum:
                strata[row].setdefault(reader.source, stratum)
    totals = [trace.timings.get("total", math.nan) for trace in traces]
    totals = [total if total >= 0 else math.nan for total in totals]
    values["fast"] = [math.log(max(total, _LEAST_TIME)) for total in totals]
    return RequestScores(
        weights=[1 / trace.probability for trace in traces],
        totals=totals,
        values=values,
        given=costs[_COST],
        estimated=costs[_ESTIMATE],
        strata=strata,
        told=sorted(told),
    )


def within_unit(value: float) -> float:
    """Return a value within 0 and 1: custom scorers may lie beyond."""
    return min(1.0, max(0.0, value))
