"""A number that has left its usual: what is said of it, how bad it is, when it is over; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ragmeter.alerts.alert import Alert, Severity, alert_id, clean_text, format_number
from ragmeter.parts.drift.detector import (
    DAY,
    FINE,
    HOUR,
    SQUARES,
    SUM,
    WEIGHT,
    WEIGHT_SQUARES,
    BucketSums,
    Deviation,
    N,
    Numbers,
    SeriesSpec,
    Usual,
)
from ragmeter.windows.estimators import Z_95

DRIFT_RULE = "RagDrift"

# It pages where so many of all answers are hurt beyond the usual.
PAGING_HARM = 0.10

# By how much a cheap score is lower for answers that people find bad, so that a fall of its mean
# tells how many more are bad. Grounding: .40 to .52 between answers that people marked as
# hallucinated and others of RAGTruth QA, MTRAG and ClapNQ, .48 in all. Relevance, of 0 to 1: .51
# between the passages of a question and those of another (tests/parts/drift/test_part.py).
GAPS: Mapping[str, float] = {"grounded": 0.48, "retrieved": 0.50}

QUESTIONS: Mapping[str, str] = {"uncut": "complete"}
"""The question of a series that is not named after it."""

# It is over when the number has been back for so long.
BACK_SECONDS = 900.0
_BACK_WORTH = 40.0  # independent requests that show that it is back
_LEAST_BACK = 3  # fine buckets that they come from at least
_NARROW = 0.3  # half the interval of a recent number as a share of the distance that was told

# It is told again when it is so much further from the usual, beyond chance.
WORSE = 1.5
_SURE = 4.0  # standard errors

_MOST_SINCE = DAY  # the level is over the time since the onset, of up to a day


@dataclass(slots=True)
class Standing:
    """A series that is away from its usual.

    Args:
        usual: The usual before the onset.
        told: The distance from the usual that was last told.
        back_since: Since when it is back; None while it is not.
        alert: What is said of it.
    """

    usual: Usual
    told: float
    back_since: float | None
    alert: Alert


def begin(
    spec: SeriesSpec,
    *,
    service: str,
    metric: str,
    scorer: str,
    finding: Deviation,
    usual: Usual,
    onset: tuple[float, float, float],
    window: str,
    now: float,
) -> Standing:
    """Return a series that has just been found away from its usual.

    Args:
        spec: The series.
        service: The service.
        metric: The metric that the alert is about.
        scorer: Its scorer.
        finding: What was found.
        usual: The usual that it was compared with.
        onset: The estimated time, the earliest and the latest.
        window: The window that reaches back to it, in which worst traces are looked for.
        now: Event time.
    """
    since, earliest, latest = onset
    alert = Alert(
        id=alert_id(DRIFT_RULE, service, spec.name),
        rule=DRIFT_RULE,
        severity="warning",
        state="firing",
        service=service,
        segment="",
        metric=metric,
        scorer=scorer,
        window=window,
        threshold=0.0,
        since=since,
        fired_at=now,
        updated_at=now,
        statistic="drift",
        op=">=",
        question=QUESTIONS.get(spec.name, spec.name),
        labels={"stage": "total", "quantile": "0.95"} if metric == "latency" else {},
        drift={
            "kind": "mean",
            "since_earliest": earliest,
            "since_latest": latest,
            "statistic": finding.score,
        },
    )
    return Standing(
        usual=usual,
        told=finding.distance,
        back_since=None,
        alert=alert,
    )


def measure_since(
    spec: SeriesSpec, standing: Standing, sums: BucketSums, now: float
) -> Deviation | None:
    """Return how far a series has been from its usual since the onset, None without requests."""
    since = max(standing.alert.since, now - _MOST_SINCE)
    if len(sums.fine_starts) and since >= sums.fine_starts[0]:
        chosen = sums.fine_starts >= since
        starts, buckets = sums.fine_starts[chosen], sums.fine[chosen]
    else:
        chosen = sums.hour_starts + HOUR > since
        starts, buckets = sums.hour_starts[chosen], sums.hours[chosen]
    return _distance(spec, standing, starts=starts, buckets=buckets, design=sums.design)


def measure_recent(spec: SeriesSpec, standing: Standing, sums: BucketSums) -> Deviation | None:
    """Return how far it is from its usual in the shortest recent time that tells.

    That is one with enough requests, whose interval is narrow beside the distance that was told.
    If there is none, all of the last six hours.

    Returns:
        None where these have too few requests since the onset.
    """
    chosen = sums.fine_starts >= standing.alert.since
    starts, buckets = sums.fine_starts[chosen], sums.fine[chosen]
    found: Deviation | None = None
    for length in range(min(_LEAST_BACK, len(starts)), len(starts) + 1):
        found = _distance(
            spec,
            standing,
            starts=starts[-length:],
            buckets=buckets[-length:],
            design=sums.design,
        )
        if found is None or found.worth < _BACK_WORTH:
            continue
        if Z_95 * found.error <= _NARROW * standing.told:
            return found
    return found if found is not None and found.worth >= _BACK_WORTH else None


def _distance(
    spec: SeriesSpec,
    standing: Standing,
    *,
    starts: Numbers,
    buckets: Numbers,
    design: float,
) -> Deviation | None:
    total = buckets.sum(axis=0)
    n = int(total[N])
    if not n:
        return None
    mean = total[SUM] / total[WEIGHT]
    usual = standing.usual
    level = float((usual.level_at(starts) * buckets[:, WEIGHT]).sum() / total[WEIGHT])
    worth = max(1.0, total[WEIGHT] ** 2 / total[WEIGHT_SQUARES] / design)
    spread = max(0.0, total[SQUARES] / total[WEIGHT] - mean * mean)
    error = math.sqrt(max(spread, usual.variance * 0.5) / worth + usual.variance / usual.worth)
    distance = spec.worse * (mean - level)
    return Deviation(
        score=distance / error if error else 0.0,
        distance=float(distance),
        error=error or 1e-9,
        seconds=len(starts) * FINE,
        value=float(mean),
        usual=level,
        samples=n,
        worth=float(worth),
    )


def is_back(spec: SeriesSpec, standing: Standing, recent: Deviation) -> bool:
    """Return whether the recent number is its usual, and surely not what it was in between."""
    least = max(spec.least, spec.relative * abs(recent.usual))
    near = recent.distance < max(least, Z_95 * recent.error)
    return near and recent.distance + Z_95 * recent.error < 0.6 * standing.told


def is_worse(standing: Standing, recent: Deviation) -> bool:
    """Return whether the number has moved on so far that it is to be told again."""
    further = recent.distance - standing.told
    return recent.distance >= WORSE * standing.told and further > _SURE * recent.error


def estimate_harm(spec: SeriesSpec, distance: float) -> float | None:
    """Return the share of all answers that are hurt beyond the usual, None where it is not known.

    A share loses as many answers as it falls. The mean of a cheap score falls by its gap for each
    answer that is bad.
    """
    if spec.name in ("works", "answered", "uncut"):
        return min(1.0, max(0.0, distance))
    gap = GAPS.get(spec.name)
    return None if gap is None else min(1.0, max(0.0, distance / gap))


def judge_severity(harm: float | None, lower_harm: float | None) -> Severity:
    """Return whether it pages: an estimated tenth is hurt, and half of that beyond doubt."""
    hurts = harm is not None and lower_harm is not None
    if hurts and harm >= PAGING_HARM and lower_harm >= PAGING_HARM / 2:  # type: ignore[operator]
        return "critical"
    return "warning"


def describe(spec: SeriesSpec, standing: Standing, finding: Deviation, now: float) -> None:
    """Set what an alert says of the number since the onset, in the unit of its metric.

    Where nothing is known of the service yet, it has no usual to show.
    """
    alert = standing.alert
    alert.value = _shown(spec, finding.value)
    alert.baseline = _shown(spec, finding.usual) if standing.usual.days else None
    ends = (
        _shown(spec, finding.value - Z_95 * finding.error),
        _shown(spec, finding.value + Z_95 * finding.error),
    )
    alert.lower, alert.upper = min(ends), max(ends)
    alert.samples = finding.samples
    alert.effective_samples = finding.worth
    alert.updated_at = now
    worth = f"{finding.samples} requests"
    if finding.worth < 0.9 * finding.samples:
        worth += f", worth {finding.worth:.0f}"
    alert.summary = clean_text(
        f"{alert.service}: {alert.metric} is {format_number(alert.value)} "
        f"({format_number(alert.lower)} to {format_number(alert.upper)}, {worth}), "
        + (
            "no usual yet" if alert.baseline is None else f"usually {format_number(alert.baseline)}"
        ),
        1_000,
    )


def _shown(spec: SeriesSpec, value: float) -> float:
    """Return a value of a series in the unit of the metric that its alert is about."""
    if spec.failures:
        return min(1.0, max(0.0, 1 - value))  # the share that fails
    if spec.name == "retrieved":
        return 3 * min(1.0, max(0.0, value))  # grades from 0 to 3
    if spec.name == "fast":
        return math.exp(value)
    return max(0.0, value) if spec.name == "cost" else min(1.0, max(0.0, value))


def end(standing: Standing, reason: str, now: float) -> Alert:
    """Return the alert of a series that is back, or no longer watched."""
    alert = replace(standing.alert)
    alert.resolve(reason, now)
    suffix = f" ({reason})" if reason else ""
    alert.summary = clean_text(f"Resolved: {alert.summary}{suffix}", 1_000)
    return alert
