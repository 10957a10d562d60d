"""Probes: a frozen set of traces that the judge is asked about on a schedule.

Traffic changes, probes do not. If the scores of a service fall while the verdicts on the probes
stay, the service has changed; if these change too, it may be the judge. Verdicts are compared with
the labels of the set (is this judge any good?) and with the judge's own in its first run (is it
still the same?). A provider may swap the model behind a name: as long as the verdicts stay, that
is no drift.

The results are traces of the reserved service `_judge`, so that windows, gauges and alerts treat
them like any other.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from ragmeter.config.scoring import JudgeFamily, JudgeSettings
from ragmeter.core.errors import describe_fault
from ragmeter.core.score import JUDGE_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import ScoringCost, TierScorer
from ragmeter.metrics.judge_agreement import PROBE_SERVICE, ComparableVerdicts, extract_verdicts
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.attempts import ATTEMPT_LABELS
from ragmeter.scorers.judge.citations import CITATION_SUPPORT_VALUES
from ragmeter.scorers.judge.second_opinion import score_difference
from ragmeter.trace import Passage, Trace

log = logging.getLogger(__name__)

# Every probe gets a result for both.
_AGREEMENT = "judge_probe_agreement"
_CHANGE = "judge_probe_change"

# Seconds after a run without any verdict, unless the schedule is sooner.
RETRY_SECONDS = 3600.0


class _ProbeLine(BaseModel):
    """One line of a probe file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    query: str
    passages: list[Passage]
    answer: str
    expected: dict[str, int | str]
    hard: bool = False

    @field_validator("expected")
    @classmethod
    def _labels(cls, value: dict[str, int | str]) -> dict[str, int | str]:
        allowed_labels: dict[str, Sequence[int | str]] = {
            "grade:": (0, 1, 2, 3),
            "attempt": ATTEMPT_LABELS,
            "support:": tuple(CITATION_SUPPORT_VALUES),
        }
        for key, label in value.items():
            kind, colon, _ = key.partition(":")
            allowed = allowed_labels.get(kind + colon, ())
            if label not in allowed:
                raise ValueError(f"{key}: {label!r} is not one of {', '.join(map(str, allowed))}")
        return value


@dataclass(frozen=True, slots=True)
class Probe:
    """A trace and the verdicts that are right."""

    trace: Trace
    expected: ComparableVerdicts


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """Probes; `version` is 12 hex digits of their content."""

    probes: tuple[Probe, ...]
    version: str


# Hours between two runs: a judge that changes is known within a day, for 138 calls.
PROBE_HOURS = 24.0


def load_probes() -> ProbeSet:
    """Return the bundled probes."""
    return read_probes(
        resources.files("ragmeter.scorers.judge").joinpath("probes.jsonl").read_bytes()
    )


def read_probes(content: bytes) -> ProbeSet:
    """Read the probes of a file of JSON lines.

    Raises:
        ValueError: A line is broken, which the text names, or there is none.
    """
    probes: dict[str, Probe] = {}
    for number, text in enumerate(content.decode("utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = _ProbeLine.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(f"line {number} of the probes: {describe_fault(error)}") from None
        if line.id in probes:
            raise ValueError(f"line {number} of the probes: the id {line.id!r} is there twice")
        trace = Trace(
            trace_id=line.id,
            service=PROBE_SERVICE,
            timestamp=0,
            query=line.query,
            passages=line.passages,
            answer=line.answer,
        )
        probes[line.id] = Probe(trace, line.expected)
    if not probes:
        raise ValueError("the file of probes is empty")
    return ProbeSet(tuple(probes.values()), hashlib.sha256(content).hexdigest()[:12])


def probe_settings(settings: JudgeSettings) -> JudgeSettings | None:
    """Return the settings for judging probes by the comparable families; None: there is no need."""
    metrics = [name for name in settings.metrics if name in _FAMILIES]
    if not settings.probes.enabled or not metrics:
        return None
    return settings.model_copy(update={"metrics": metrics})


# What probes hold labels of.
_FAMILIES: tuple[JudgeFamily, ...] = ("relevance", "answered", "citations")


class ProbeRunner:
    """Judges a set of probes on a schedule.

    Args:
        tier: Judge tier; it must not answer from a cache.
        instrument: What verdicts follow from by configuration: prompts, configured model,
            parameters. Another one, or other probes, begins a new baseline. The model served
            behind the name is left out: it is what the probes watch.
    """

    def __init__(
        self,
        tier: TierScorer,
        probes: ProbeSet,
        *,
        hours: float,
        instrument: str,
        clock: Callable[[], float],
    ) -> None:
        self._tier = tier
        self._probes = probes.probes
        self._seconds = hours * 3600
        self._key = f"{probes.version}:{instrument}"
        self._clock = clock
        self._baseline: dict[str, ComparableVerdicts] = {}
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time for the next run."""
        return self._clock() >= self._next

    async def run(self, cost: ScoringCost) -> list[ScoredTrace]:
        """Judge the set, one probe after another, and set the time of the next run.

        The first verdict on each thing becomes its baseline: save `dump` with the results. The cost
        grows by all calls, failed ones included.

        Returns:
            A trace for each probe, with its agreement and its change.
        """
        start = self._clock()
        traces: list[ScoredTrace] = []
        any_verdict = False
        for probe in self._probes:
            scores = await self._judge(probe, cost)
            verdicts = extract_verdicts(scores)
            any_verdict = any_verdict or bool(verdicts)
            agreement = score_difference(_AGREEMENT, probe.expected, verdicts, scores)
            if agreement.value is not None:
                agreement.value = 1 - agreement.value
            results = [agreement, self._change(probe, verdicts, scores)]
            trace_id = f"{probe.trace.trace_id}@{start:.0f}"
            traces.append(
                ScoredTrace(
                    trace_id=trace_id,
                    service=PROBE_SERVICE,
                    timestamp=self._clock(),
                    status="ok",
                    results=results,
                )
            )
        wait = self._seconds if any_verdict else min(self._seconds, RETRY_SECONDS)
        self._next = start + wait
        return traces

    async def _judge(self, probe: Probe, cost: ScoringCost) -> list[Score]:
        try:
            return await self._tier.score(probe.trace, cost)
        except Exception:
            log.exception("the probe %s could not be judged", probe.trace.trace_id)
            return []

    def _change(self, probe: Probe, verdicts: ComparableVerdicts, scores: Sequence[Score]) -> Score:
        baseline = self._baseline.setdefault(probe.trace.trace_id, {})
        before = dict(baseline)
        baseline.update({key: verdict for key, verdict in verdicts.items() if key not in before})
        if verdicts and not before:
            return Score(_CHANGE, JUDGE_SCORER, ScoreState.NOT_APPLICABLE, reason=Reason.FIRST_RUN)
        return score_difference(_CHANGE, before, verdicts, scores)

    def dump(self) -> dict[str, Any]:
        """Return baseline and schedule, for JSON."""
        return {"key": self._key, "baseline": self._baseline, "next": self._next}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `dump`, unless it is of another instrument or other probes.

        Raises:
            ValueError, KeyError, TypeError: `dump` has not written this.
        """
        if state["key"] != self._key:
            return
        baseline = {
            str(probe): {str(key): verdict for key, verdict in verdicts.items()}
            for probe, verdicts in state["baseline"].items()
        }
        for verdicts in baseline.values():
            if not all(isinstance(verdict, int | str) for verdict in verdicts.values()):
                raise ValueError("a verdict is a grade or a label")
        # A clock that was wrong must not put the next run off for years.
        self._next = min(float(state["next"]), self._clock() + self._seconds)
        self._baseline = baseline
