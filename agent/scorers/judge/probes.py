"""Probes: a frozen set of traces that the judge is asked about on a schedule.

The traffic changes and the probes do not. So where the scores of a service fall and the verdicts
on the probes stay, the service has changed; where these change too, it may be the judge. They are
compared with the labels that the set comes with (is this judge any good?) and with the judge's own
verdicts in its first run (is it still the same?). A provider may swap the model behind a name:
as long as the verdicts stay, that is no drift.

The results are traces of the reserved service `_judge`, so that windows, gauges and alerts treat
them like any other.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.score import JUDGE_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, TierScorer
from ragmeter.metrics.judge_agreement import (
    PROBE_SERVICE,
    ComparableVerdicts,
    compare_verdicts,
    explain_missing_verdict,
    extract_verdicts,
)
from ragmeter.scorers.judge.answers import ATTEMPT_LABELS, CITATION_SUPPORT_VALUES
from ragmeter.scorers.judge.second_opinion import ComparableFamily
from ragmeter.trace import Passage, Trace

log = logging.getLogger("ragmeter.judge")

_AGREEMENT, _CHANGE = "judge_probe_agreement", "judge_probe_change"
_PROBE_PAIRS: tuple[MetricScorer, ...] = ((_AGREEMENT, JUDGE_SCORER), (_CHANGE, JUDGE_SCORER))
"""What every probe gets a result for."""

RETRY_SECONDS = 3600.0
"""After a run that brought no verdict at all, or at the next time by schedule if that is sooner."""

_MAX_NAMED = 10  # verdicts named in the detail of a score


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
        for key, label in value.items():
            allowed: Sequence[int | str] = ()
            if key.startswith("grade:"):
                allowed = (0, 1, 2, 3)
            elif key == "attempt":
                allowed = ATTEMPT_LABELS
            elif key.startswith("support:"):
                allowed = tuple(CITATION_SUPPORT_VALUES)
            if label not in allowed:
                raise ValueError(f"{key}: {label!r} is not one of {', '.join(map(str, allowed))}")
        return value


@dataclass(frozen=True, slots=True)
class Probe:
    trace: Trace
    expected: ComparableVerdicts


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """`version` is 12 hex digits of the content."""

    probes: tuple[Probe, ...]
    version: str


def load_probes(path: Path | None = None) -> ProbeSet:
    """The bundled set, or that of a file of JSON lines. OSError; ValueError with the line."""
    if path is None:
        content = (resources.files("ragmeter.scorers.judge") / "probes.jsonl").read_bytes()
    else:
        content = path.read_bytes()
    probes: dict[str, Probe] = {}
    for number, text in enumerate(content.decode("utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = _ProbeLine.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"line {number} of the probes: {where}: {first['msg']}") from None
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
    """The settings of the tier that judges probes: without nuggets, which are not compared.
    None where probes are switched off or nothing is left to ask. Its client needs no cache."""
    metrics = [name for name in settings.metrics if name in get_args(ComparableFamily)]
    if not settings.probes.enabled or not metrics:
        return None
    return settings.model_copy(update={"metrics": metrics})


class ProbeRunner:
    """Judges `probes` by `tier`, which must not answer from a cache, every `hours`.

    `instrument` names what the verdicts are a function of by configuration: prompts, configured
    model, parameters. Another one, or other probes, begins a new baseline; the model that is
    served behind the name is not part of it, for that is what is watched. `clock` gives Unix
    seconds.
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
        """Whether the set is to be judged now."""
        return self._clock() >= self._next

    async def run(self, cost: ScoringCost) -> list[ScoredTrace]:
        """Judge the set, one probe after another, and say when the next run is due.

        One result of each of `PAIRS` for each probe. What it cost, failed calls too, is added to
        `cost`. The first verdict on each thing becomes its baseline: save `dump` with the results.
        """
        start = self._clock()
        found: list[ScoredTrace] = []
        judged = 0
        for probe in self._probes:
            scores = await self._ask(probe, cost)
            given = extract_verdicts(scores)
            judged += bool(given)
            results = [self._agreement(probe, given, scores), self._change(probe, given, scores)]
            trace_id = f"{probe.trace.trace_id}@{start:.0f}"
            found.append(ScoredTrace(trace_id, PROBE_SERVICE, self._clock(), "ok", results))
        wait = self._seconds if judged else min(self._seconds, RETRY_SECONDS)
        self._next = start + wait
        return found

    async def _ask(self, probe: Probe, cost: ScoringCost) -> list[Score]:
        try:
            return await self._tier.score(probe.trace, cost)
        except Exception:
            log.exception("the probe %s could not be judged", probe.trace.trace_id)
            return []

    def _agreement(self, probe: Probe, given: ComparableVerdicts, scores: Sequence[Score]) -> Score:
        return _compared_families(_AGREEMENT, probe.expected, given, scores, same=True)

    def _change(self, probe: Probe, given: ComparableVerdicts, scores: Sequence[Score]) -> Score:
        before = self._baseline.setdefault(probe.trace.trace_id, {})
        known = dict(before)
        for key, verdict in given.items():
            before.setdefault(key, verdict)
        if given and not known:
            return Score(_CHANGE, JUDGE_SCORER, ScoreState.NOT_APPLICABLE, reason="first_run")
        return _compared_families(_CHANGE, known, given, scores, same=False)

    def dump(self) -> dict[str, Any]:
        """Baseline and schedule, for JSON."""
        return {"key": self._key, "baseline": self._baseline, "next": self._next}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `dump` gave; of another instrument or other probes nothing is kept, and
        they are due. ValueError, KeyError or TypeError for what `dump` has not written."""
        if state["key"] != self._key:
            return
        baseline = {
            str(probe): {str(key): verdict for key, verdict in known.items()}
            for probe, known in state["baseline"].items()
        }
        for known in baseline.values():
            if not all(isinstance(verdict, int | str) for verdict in known.values()):
                raise ValueError("a verdict is a grade or a label")
        # A clock that was wrong must not put the next run off for years.
        self._next = min(float(state["next"]), self._clock() + self._seconds)
        self._baseline = baseline


def _compared_families(
    metric: str,
    reference: ComparableVerdicts,
    given: ComparableVerdicts,
    scores: Sequence[Score],
    *,
    same: bool,
) -> Score:
    both, differing = compare_verdicts(reference, given)
    if not both:
        state, reason = (
            explain_missing_verdict(scores) if scores else (ScoreState.UNSCORED, "internal_error")
        )
        return Score(metric, JUDGE_SCORER, state, reason=reason)
    share = len(differing) / both
    named = {key: [reference[key], given[key]] for key in differing[:_MAX_NAMED]}
    detail = {"verdicts": both, "differ": named}
    return Score(
        metric, JUDGE_SCORER, ScoreState.SCORED, 1 - share if same else share, detail=detail
    )
