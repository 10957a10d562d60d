"""What is true of a chaos run: everything in which an export differs from the undisturbed run.

Pure. Samples are values by name with labels, as `/metrics` gives them. Three kinds of comparison:

- **exact**, to the last digit that is exported: what hangs on each accepted trace alone, whatever
  went wrong. Counts, states, weighted counters, and the windows of the built-in scorers, if they
  scored every trace.
- **within the interval**: what a judge found of a sample, and what the built-in scorers found while
  a full queue had them score a sample. The undisturbed run has scored all.
- **what was sent**: the log of the senders, who believe the agent's answers and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.comparison import unlike

__all__ = ["JUDGED", "Sent", "differences", "intervals", "labels_of"]

Samples = Mapping[str, float]

JUDGED = "judged"
"""An objective that every judged trace breaks: its counters are the sum of all weights, and of
their squares."""

WINDOW = "24h"
LEAST = 3
"""Effective samples below which an interval is not held against the truth. In a short run few
series have more: while the judge hangs and its queue is full, traffic is drawn at rates near 0, and
scores count for no more than that lets them."""

FAR = 1.3
"""Half widths beyond the end of a 95 % interval: 4.5 standard errors, one in 150,000."""

MISSES = 0.2
"""Part of the intervals that may miss at all. One in twenty should, but metrics of one sample of
traces miss together."""

SIGMAS = 5.0

UNEVEN = 1.5
"""By so much the weighted share of what a judge has lied about may pass that of its answers: some
were asked for twice, and the weights differ."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was acknowledged. `fresh`: different traces by source; `poison`: positions in the file
    of lines that nobody can read; `dead`: positions of the dead letters that came of the file;
    `lies`: the share of wrong answers among the judge's, by service."""

    fresh: Mapping[str, int]
    poison: Sequence[int] = field(default=())
    dead: Sequence[int] = field(default=())
    lies: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.fresh.values())


def labels_of(name: str) -> tuple[str, dict[str, str]]:
    """A sample's name without its labels, and those."""
    plain, _, rest = name.partition("{")
    return plain, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest))


def differences(found: Samples, truth: Samples, sent: Sent) -> list[str]:
    """One line each, the plainest first."""
    return [
        *_counts(found, sent),
        *_states(found, sent.total),
        *_dead(sent),
        *_exact(found, truth),
        *_weights(found, truth),
        *_intervals(found, truth, sent.lies),
    ]


# What was sent ------------------------------------------------------------------------------------


def _counts(found: Samples, sent: Sent) -> list[str]:
    counted = sum(value for name, value in found.items() if name.startswith("rag_requests_total"))
    lines = []
    if counted != sent.total:
        lines.append(f"{counted:.0f} traces are counted, {sent.total} were accepted")
    for source, number in sent.fresh.items():
        label = f'{{source="{source}"}}'
        came = found.get(f"ragmeter_traces_received_total{label}", 0.0)
        again = found.get(f"ragmeter_traces_duplicate_total{label}", 0.0)
        if came - again != number:
            lines.append(
                f"{source}: {came:.0f} received less {again:.0f} duplicates, {number} were accepted"
            )
    return lines


def _states(found: Samples, total: int) -> list[str]:
    """Every trace is in one state of each metric."""
    seen: dict[tuple[str, str], float] = {}
    states: dict[tuple[str, str], float] = {}
    lines = []
    for name, value in found.items():
        plain, labels = labels_of(name)
        if plain == "ragmeter_accounting_mismatch" and value:
            lines.append(f"{name} is {value}")
        into = {"ragmeter_seen_total": seen, "ragmeter_results_total": states}.get(plain)
        if into is not None:
            pair = labels["metric"], labels["scorer"]
            into[pair] = into.get(pair, 0.0) + value
    if not seen:
        lines.append("no metric has seen a trace")
    for pair in sorted(seen.keys() | states.keys()):
        if not seen.get(pair) == states.get(pair) == total:
            lines.append(
                f"{' by '.join(pair)}: {seen.get(pair, 0):.0f} seen, {states.get(pair, 0):.0f} in"
                f" all states, {total} were accepted"
            )
    return lines


def _dead(sent: Sent) -> list[str]:
    lines = [
        f"poison at {at} of the file is in {list(sent.dead).count(at)} dead letters"
        for at in sent.poison
        if list(sent.dead).count(at) != 1
    ]
    strange = sorted(set(sent.dead) - set(sent.poison))
    return lines + [f"what is before {at} of the file is no poison" for at in strange]


# What is exact ------------------------------------------------------------------------------------


# What questions say: it may rest on what a judge was drawn for, and its sums are of floats; and
# incidents, which hang on when rules were evaluated.
_QUESTION = re.compile(
    r"rag_(works|answered|grounded|retrieved|cited|complete|cost_per_answer|question|segment"
    r"|incident)_"
)


def _drawn(found: Samples) -> set[str]:
    """The metrics of the built-in scorers that were scored on a sample of the traces: a queue that
    is more than half full has them draw less (`overload_scale`)."""
    metrics = set()
    for name, value in found.items():
        plain, labels = labels_of(name)
        if (
            plain == "ragmeter_results_total"
            and (labels["scorer"], labels["state"]) == ("builtin", "sampled_out")
            and value
        ):
            metrics.add(labels["metric"])
    return metrics


def _is_of(plain: str, metrics: Collection[str]) -> bool:
    """Whether a family, by its name without labels, is of one of the metrics."""
    return plain.startswith(tuple(f"rag_{metric}_" for metric in metrics))


def _exactly(name: str, drawn: Collection[str]) -> bool:
    """Whether a sample hangs on the accepted traces alone, where metrics were `drawn`."""
    plain, labels = labels_of(name)
    if labels.get("scorer", "builtin") != "builtin" or labels.get("slo") == JUDGED:
        return False
    if labels.get("metric") in drawn or _is_of(plain, drawn):
        return False
    if plain == "ragmeter_results_total":
        return True
    if "scorer" not in labels and _QUESTION.match(plain) and labels.get("question") != "works":
        return False
    return (
        plain.startswith("rag_") and "service" in labels and labels.get("window", WINDOW) == WINDOW
    )


def _exact(found: Samples, truth: Samples) -> list[str]:
    drawn = _drawn(found)
    names = sorted(name for name in found.keys() | truth.keys() if _exactly(name, drawn))
    return unlike(found, truth, names) if names else ["there is nothing to compare"]


# What was found of a sample -----------------------------------------------------------------------


def _weights(found: Samples, truth: Samples) -> list[str]:
    """The weights of the judged traces of a service sum up to all of its traces, but for what
    could not be scored: the inverse probabilities are those that held."""
    lines = []
    for name, whole in sorted(truth.items()):
        plain, labels = labels_of(name)
        if plain != "rag_slo_events_total" or labels.get("slo") != JUDGED:
            continue
        service = labels["service"]
        squares = found.get(name.replace("_events_total", "_bad_events_squared_total"), 0.0)
        sum_ = found.get(name, 0.0)
        missing = _missing(found, service)
        expected = whole * (1 - missing)
        if abs(sum_ - expected) > SIGMAS * math.sqrt(squares):
            lines.append(
                f"{service}: the weights of the judged traces sum up to {sum_:.0f},"
                f" {expected:.0f} expected, standard error {math.sqrt(squares):.0f}"
            )
    return lines


def _missing(found: Samples, service: str) -> float:
    """The share of a service's traces that should have been judged and were not."""
    for name, value in found.items():
        plain, labels = labels_of(name)
        if (
            plain == "rag_relevance_unscored_ratio"
            and (labels["service"], labels["window"]) == (service, WINDOW)
            and labels["scorer"] == "umbrela"
            and not labels.get("model")
        ):
            return value
    return 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """Of the series `name`; `beyond` is how far the truth lies outside, in half widths, when lies
    may have moved either end by `lied`."""

    name: str
    lower: float
    upper: float
    truth: float
    lied: float = 0.0

    @property
    def beyond(self) -> float:
        half = max((self.upper - self.lower) / 2, 1e-12)
        low, high = self.lower - self.lied, self.upper + self.lied
        return max(low - self.truth, self.truth - high, 0.0) / half


def intervals(
    found: Samples, truth: Samples, lies: Mapping[str, float] | None = None
) -> list[Interval]:
    """Of all series with enough samples that the judge scored, or the built-in scorers of a sample.
    `lies` as in `Sent`."""
    drawn = _drawn(found)
    rows = []
    for name, value in sorted(truth.items()):
        plain, labels = labels_of(name)
        measure = re.fullmatch(r"(rag_\w+?)_(?:mean|ratio)", plain)
        if (
            measure is None
            or "scorer" not in labels
            or (labels["scorer"] == "builtin" and not _is_of(plain, drawn))
            or labels.get("window") != WINDOW
            or plain.endswith("_unscored_ratio")
        ):
            continue
        rest = name.removeprefix(plain)
        lower, upper, samples = (
            found.get(f"{measure.group(1)}_{part}{rest}")
            for part in ("ci_lower", "ci_upper", "effective_samples")
        )
        if lower is not None and upper is not None and (samples or 0) >= LEAST:
            judged = labels["scorer"] != "builtin"
            lied = UNEVEN * (lies or {}).get(labels["service"], 0.0) if judged else 0.0
            rows.append(Interval(name, lower, upper, value, lied * _range(plain)))
    return rows


def _range(name: str) -> float:
    """Between the best and the worst value of a metric."""
    return 3.0 if name == "rag_relevance_mean" else 1.0


def _intervals(found: Samples, truth: Samples, lies: Mapping[str, float]) -> list[str]:
    rows = intervals(found, truth, lies)
    if all(labels_of(row.name)[1]["scorer"] == "builtin" for row in rows):
        return ["no interval of the judge could be compared"]
    missed = [row for row in rows if row.beyond]
    lines = [
        f"{row.name}: the truth is {row.truth:.4f}, far from [{row.lower:.4f}, {row.upper:.4f}]"
        for row in missed
        if row.beyond > FAR
    ]
    if len(missed) > 1 + MISSES * len(rows):
        lines.append(f"{len(missed)} of {len(rows)} intervals miss the truth")
    return lines
