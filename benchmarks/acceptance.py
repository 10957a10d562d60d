"""Coverage, bias and width of published intervals, through the parts that `ragmeter run` uses.

    python -m benchmarks.acceptance [--set tuning|heldout|quick] [--seed 1] [--runs 1.0]
        [--row TEXT] [--data FOLDER] [--process SERVICES] [--cells] [--draws | --grid]
        [--write docs/statistics.md]

Simulated traces go through the shipped scoring stage (sampler, strata, budget, control record) into
the shipped windows; verdicts come late, as partial results with a fingerprint. Gauges are read as
an exporter reads them and compared with the truth about all traffic of their window. Nothing is
handed in that the agent would not know: no history, slope or variance of the population.

`--set heldout` draws the parameters of every population and every sampling rate from the seed.
`--data` adds real answers with people's labels (training/devdata.py), `--process` a run of the
agent itself (benchmarks/acceptance_process.py). `--cells` prints a JSON line for each cell, and
`--write` puts the table between the marks of a page. `--runs` multiplies the simulated windows.
`--draws` is of services with bursts alone: shipped draws and estimates without the scoring stage
and the windows between them, in a thirtieth of the time; a new population every 20 runs.
`--grid` is of uniform draws and estimates alone, so that each cell is known to a point: rates with
a 0/1 cheap score on a grid, and the bounded means of `heldout`, at a tenth, half and .8 judged.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ragmeter.config.scoring import JudgeBudgetSettings, SamplingSettings
from ragmeter.core.arithmetic import VALUE_ONE, WEIGHT_ONE, weight_units
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.series import FingerprintRegistry
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.builtin import PreparedTrace
from ragmeter.parts.contract import Arrival
from ragmeter.parts.control.traffic import ControlLearner
from ragmeter.sampling.budget_controller import BudgetController
from ragmeter.sampling.sampler import RATE_FLOOR, Sampler, StratumClassifier, drawn_stratum
from ragmeter.scoring.scorer import Scorer, complete_results
from ragmeter.trace import Trace
from ragmeter.windows.estimators import widen_for_missing
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import (
    WIDTH,
    ScoreSums,
    StrataSums,
    StratumKey,
    StratumSums,
    add_strata,
    stratum_key,
)
from ragmeter.windows.windows import Windows

from benchmarks.acceptance_cases import (
    MEAN_SIZES,
    RATE_SIZES,
    Case,
    Floats,
    Generator,
    Population,
    Traffic,
    binary,
    heldout_cases,
    quick_cases,
    real_cases,
    tuning_cases,
)
from benchmarks.acceptance_process import run_services
from benchmarks.acceptance_report import LEAST, START, Cell, Report, uniform_width

__all__ = ["main", "measure", "write_table"]

BEGIN, END = "<!-- acceptance:begin -->", "<!-- acceptance:end -->"
HOUR = 3600.0
SERVICE = "bot"
BY_CLASS = "by class"  # the estimate by classes of the cheap score


class GivenScores(Scorer):
    """The shipped scoring stage with given built-in scores in place of computed ones."""

    given: Sequence[Score] = ()

    def _score_operational(self, prepared: PreparedTrace) -> list[Score]:
        return []

    def score_builtin(self, prepared: PreparedTrace) -> list[Score]:
        return list(self.given)


class Reading(NamedTuple):
    """The traces since the last reading at `at`; by gauge the first trace inside (all are numbered
    through) and the number of judged traces expected."""

    times: Floats
    burst: npt.NDArray[np.bool_]
    at: float
    gauges: Mapping[str, tuple[int, int]]


def _hours(case: Case, rng: Generator) -> Iterator[Reading]:
    """Hours of a trace a second, ten in three bursts of two minutes."""
    first = 0
    for hour in range(case.hours):
        begin = START + hour * HOUR
        edges = 600 + 1000 * np.arange(3) + rng.uniform(0, 600, 3)
        bursts = [edge + rng.uniform(0, 120, rng.poisson(9 * 120)) for edge in edges]
        times = np.sort(np.concatenate([rng.uniform(0, HOUR, rng.poisson(HOUR)), *bursts]))
        marks = np.any([(edge <= times) & (times < edge + 120) for edge in edges], axis=0)
        calls = round(60 * case.calls)
        gauges = {"1h": (first, calls), "24h": (0, (hour + 1) * calls)}
        yield Reading(begin + times, marks, begin + HOUR - 0.01, gauges)
        first += len(times)


def _growth(case: Case, rng: Generator) -> Iterator[Reading]:
    """A young service that is read every two hours."""
    done = before = 0
    for number, judged in enumerate(case.judged, 1):
        count = max(2, round(judged / case.rate) - done)
        at = START + number * 2 * HOUR - 1
        early = count // 2
        times = np.where(np.arange(count) < early, 900 + 2400 * rng.random(count), 0.0)
        times[early:] = 270 * rng.random(count - early)
        new = judged - before
        gauges = {"5m": (done + early, (new + 1) // 2), "1h": (done, new), "24h": (0, judged)}
        marks = np.zeros(count, dtype=np.bool_)
        yield Reading(np.sort(at - times), marks, at, gauges)
        done = done + count
        before = judged


_BLANK = Trace.model_validate(
    {"trace_id": "-", "service": SERVICE, "timestamp": 0, "query": "q", "answer": "a"}
)


class Service:
    """One simulated service: draws, late verdicts, windows."""

    def __init__(self, case: Case, seed: str) -> None:
        self.case = case
        self.now = START
        settings = SamplingSettings(judge=case.rate)
        limits = JudgeBudgetSettings(requests_per_minute=case.calls or None)
        self._budget = BudgetController(limits, prior=ScoringCost(requests=1))
        self._strata = StratumClassifier(
            ratios={"error": 1, "new": 1, "low": case.ratio, "rare": 1}
        )
        self._learner = ControlLearner()
        self._pairs = [(p.metric, p.scorer) for p in case.populations]
        self._scorer = GivenScores(
            builtin=False,
            sampler=Sampler(settings, {"judge": self._budget}, lambda: self.now, salt=seed),
            strata=self._strata,
            tiers={} if case.every else {"judge": self._pairs},
        )
        self._versions = FingerprintRegistry()
        self.windows = Windows(current=self._versions.current)
        self.by_class = Windows(current=self._versions.current)
        self._late: list[tuple[float, str, ScoredTrace]] = []

    def learn(self, cheap: Floats) -> None:
        """Learn the low cut from built-in scores of an earlier day, which has left the windows."""
        for number, value in enumerate(cheap.tolist()):
            at = START - 86400 + number * 3 * HOUR / len(cheap)
            scored = ScoredTrace(f"l{number}", SERVICE, at, "ok", [_score("grounding", value)])
            self._learner.observe([Arrival(scored, (), SERVICE)])
        self._strata.apply_control(self._learner.record)

    def take(self, name: str, at: float, given: Sequence[Score], truth: Sequence[float]) -> None:
        """Count one trace with its built-in scores; the judge finds the truth, or fails if none."""
        self.now = at
        self.deliver(at)
        self._scorer.given = given
        trace = _BLANK.model_copy(update={"trace_id": name})
        cheap = self._scorer.score(trace, at)
        self._count(cheap.trace, cheap.cheap)
        terms = cheap.draws.get("judge")
        if terms is None:
            return
        results = complete_results(
            [
                Score(*pair, ScoreState.SCORED, value, fingerprint="v1")
                for pair, value in zip(self._pairs, truth, strict=False)
            ],
            self._pairs,
            terms.probability,
            "judge_error",
            stratum=terms.stratum,
            cheap=cheap.cheap,
        )
        for score in results:
            score.scorer = self._versions.assign_series(score)[0]
        chance = (zlib.crc32(name.encode()) + 0.5) / 2**32
        due = at - self.case.late[0.0 in truth[:1]] * math.log(chance)
        part = ScoredTrace(name, SERVICE, at, "ok", results, partial=True)
        heapq.heappush(self._late, (due, name, part))

    def _count(self, trace: ScoredTrace, cheap: Mapping[str, float | None]) -> None:
        """Add to the windows, and to those whose strata are cut by class of the cheap score."""
        self.windows.add(trace, SERVICE)
        results = [
            replace(score, stratum=stratum_key(score.stratum, cheap.get(score.metric)))
            for score in trace.results
            if score.stratum
        ]
        pending = tuple(
            (metric, scorer, stratum_key(stratum, cheap.get(metric)))
            for metric, scorer, stratum in trace.pending
        )
        self.by_class.add(trace._replace(results=results, pending=pending), SERVICE)

    def advance(self, now: float) -> None:
        self.windows.advance(now)
        self.by_class.advance(now)

    def deliver(self, until: float) -> None:
        """Count the verdicts that have come."""
        while self._late and self._late[0][0] <= until:
            due, _, part = heapq.heappop(self._late)
            self._count(part, {score.metric: score.cheap for score in part.results})
            self._budget.settle(SERVICE, ScoringCost(requests=1), due)


def simulate(case: Case, rng: Generator, seed: str, report: Report) -> None:
    """Run one service of a case and report every gauge at every reading."""
    service = Service(case, seed)
    if case.ratio > 1:
        service.learn(_draw(case, rng, np.zeros(600, dtype=np.bool_))[1]["grounding"])
    columns: list[list[Floats]] = [[] for _ in case.populations]
    count = 0
    for reading in (_hours if case.hours else _growth)(case, rng):
        drawn, builtin = _draw(case, rng, reading.burst)
        for column, y in zip(columns, drawn, strict=True):
            column.append(y)
        cheap = np.array(list(builtin.values())).reshape(-1, len(reading.times)).T.tolist()
        judged = np.array(drawn).T.tolist()
        lost = rng.random(len(judged)) < np.where(drawn[0] > 0.5, *case.fails)
        for at, fs, ys, fails in zip(
            reading.times.tolist(), cheap, judged, lost.tolist(), strict=True
        ):
            given = [_score(metric, f) for metric, f in zip(builtin, fs, strict=True)]
            service.take(f"{seed}-{count}", at, given, [] if fails else ys)
            count += 1
        service.deliver(reading.at)
        service.advance(reading.at)
        _report(case, rng, service, reading, columns, report)
    report.close_run()


def simulate_draws(case: Case, rng: Generator, report: Report) -> None:
    """Run one service with bursts through the shipped draws and estimates alone."""
    budget = BudgetController(
        JudgeBudgetSettings(requests_per_minute=case.calls), prior=ScoringCost(requests=1)
    )
    late: list[float] = []
    so_far: list[StrataSums] = [{} for _ in case.populations]
    columns: list[list[Floats]] = [[] for _ in case.populations]
    for reading in _hours(case, rng):
        shared = case.traffic(rng, reading.burst)
        rates = np.empty(len(reading.times))
        chances = rng.random(len(rates))
        for at, now in enumerate(reading.times.tolist()):
            while late and late[0] <= now:
                budget.settle(SERVICE, ScoringCost(requests=1), heapq.heappop(late))
            scale = budget.offer(SERVICE, now, case.rate)
            rates[at] = min(1.0, case.rate * max(RATE_FLOOR, scale))
            if chances[at] < rates[at]:
                budget.reserve(SERVICE, now)
                heapq.heappush(late, now + rng.exponential(case.late[0]))
        for population, column, whole in zip(case.populations, columns, so_far, strict=True):
            values, cheap = population.draw(rng, shared)
            column.append(values / population.top)
            hour: StrataSums = {}
            assert cheap is not None
            for rate, value, f, chance in zip(
                *(one.tolist() for one in (rates, values, cheap, chances)), strict=True
            ):
                name = stratum_key(drawn_stratum("rest", rate), f)
                sums = StratumSums(size=WEIGHT_ONE)
                if chance < rate:
                    y = round(value * VALUE_ONE)
                    sums = sums.plus(StratumSums.of_scores(weight_units(rate), y, y * y))
                hour[name] = hour[name].plus(sums) if name in hour else sums
            whole.update(add_strata(whole, hour))
            for gauge, (first, expected) in reading.gauges.items():
                cell = ScoreSums([0] * WIDTH, hour if gauge == "1h" else whole)
                inside = np.concatenate(column)[first:]
                for name, assisted in (("judge", False), (BY_CLASS, True)):
                    found = estimate_interval(cell, 0.0, population.top, assisted)
                    plain = uniform_width(rng, inside, cell.scored)
                    key = Cell(case.row, population.kind, name, gauge, "all", expected)
                    value, lower, upper = (limit / population.top for limit in found[:3])
                    report.add(key, float(inside.mean()), (value, lower, upper), cell.scored, plain)
    report.close_run()


def _draw(
    case: Case, rng: Generator, burst: npt.NDArray[np.bool_]
) -> tuple[list[Floats], dict[str, Floats]]:
    """Return the values of each population, and the built-in scores by metric."""
    shared = case.traffic(rng, burst)
    values = []
    builtin = {"grounding": shared.cheap} if case.low else {}
    for population in case.populations:
        y, f = population.draw(rng, shared)
        values.append(y)
        if case.every or f is not None:
            builtin[population.cheap_metric or population.metric] = (
                y if f is None or case.every else f
            )
    return values, builtin


def _score(metric: str, value: float) -> Score:
    state = ScoreState.NOT_APPLICABLE if math.isnan(value) else ScoreState.SCORED
    return Score(metric, "builtin", state, None if math.isnan(value) else value)


def _report(
    case: Case,
    rng: Generator,
    service: Service,
    reading: Reading,
    columns: Sequence[Sequence[Floats]],
    report: Report,
) -> None:
    windows = service.windows
    shown = set(windows.series(SERVICE))
    for gauge, (first, _) in reading.gauges.items():  # what is taken for inside is inside
        assert windows.count_traces(SERVICE, "", gauge) == sum(map(len, columns[0])) - first
    for population, column in zip(case.populations, columns, strict=True):
        scale = population.top
        values = np.concatenate(column) / scale
        scorer = "builtin" if case.every else population.scorer
        for gauge, (first, expected) in reading.gauges.items():
            found = windows.estimate(SERVICE, "", population.metric, scorer, gauge)
            if found is None or (population.metric, scorer) not in shown or expected < LEAST:
                continue
            rows = {scorer if case.every else "judge": (found.value, found.lower, found.upper)}
            helped = None if case.every else _by_class(service.by_class, population, gauge)
            if helped is not None:
                rows[BY_CLASS] = helped
            for name, (value, lower, upper) in rows.items():
                inside = values[first:]
                truth = _process_mean(case, population) if case.every else float(inside.mean())
                plain = uniform_width(rng, inside, found.samples, finite=not case.every)
                interval = (value / scale, lower / scale, upper / scale)
                key = Cell(case.row, population.kind, name, gauge, population.name, expected)
                report.add(key, truth, interval, found.samples, plain)


def _by_class(
    windows: Windows, population: Population, gauge: str
) -> tuple[float, float, float] | None:
    """Return the judge's estimate by classes of the cheap score, None without such a score."""
    cell = windows.cell(SERVICE, "", population.metric, population.scorer, gauge)
    if cell is None or all(StratumKey.parse(name).cheap is None for name in cell.strata or ()):
        return None
    top = population.top
    interval = estimate_interval(cell, 0.0, top, assisted=True)
    if missing := cell.unscored_share():
        interval = widen_for_missing(interval, missing, 0.0, top)
    return interval[:3]


_MEANS: dict[tuple[str, str], float] = {}


def _process_mean(case: Case, population: Population) -> float:
    """The mean that the traffic of a window is a sample of."""
    key = (case.row, population.name)
    if key not in _MEANS:
        rng = np.random.default_rng(1)
        shared = case.traffic(rng, np.zeros(2_000_000, dtype=np.bool_))
        _MEANS[key] = float(population.draw(rng, shared)[0].mean()) / population.top
    return _MEANS[key]


def measure(
    cases: Iterable[Case], seed: int, runs: float = 1.0, report: Report | None = None
) -> Report:
    """Simulate the cases; `runs` multiplies the number of runs of each."""
    report = report or Report()
    for case in cases:
        for run in range(max(1, round(case.runs * runs))):
            name = f"{seed}:{case.row}:{run}"
            rng = np.random.default_rng([seed, run, zlib.crc32(case.row.encode())])
            simulate(case, rng, name, report)
        print(f"{time.process_time():6.1f} s  {case.row}", file=sys.stderr, flush=True)
    return report


def measure_draws(seed: int, runs: float) -> Report:
    """Simulate services with bursts by their draws alone."""
    report = Report()
    for run in range(round(20 * runs)):
        (case,) = (one for one in heldout_cases(seed + run // 20) if one.hours)
        simulate_draws(case, np.random.default_rng([seed, run]), report)
    return report


def measure_grid(seed: int, runs: float) -> Report:
    """Estimate rates and bounded means of uniform draws, cell by cell."""
    report = Report()
    rng = np.random.default_rng(seed)
    means = next(case for case in heldout_cases(seed) if case.row == "bounded means").populations
    for rate in (0.1, 0.5, 0.8):
        row = f"grid, {100 * rate:.0f} % judged"
        rates = [
            (binary(0, p, miss, flag), n)
            for p in (0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)
            for miss in (0.01, 0.06, 0.2)
            for flag in (0.01, 0.025, 0.05)
            for n in RATE_SIZES
        ]
        for population, n in [*rates, *((one, n) for one in means for n in MEAN_SIZES)]:
            for _ in range(round(1000 * runs)):
                _report_uniform_draw(population, n, rate, row, rng, report)
            report.close_run()
    return report


def _report_uniform_draw(
    population: Population, n: int, rate: float, row: str, rng: Generator, report: Report
) -> None:
    number = round(n / rate)
    blank = np.zeros(number)
    traffic = Traffic(blank, blank, blank.astype(np.bool_), blank.astype(np.int64))
    values, cheap = population.draw(rng, traffic)
    drawn = rng.random(number) < rate
    stratum = drawn_stratum("rest", rate)
    strata = StrataSums()
    for f in (None,) if cheap is None else (0.0, 1.0):
        own = np.full(number, True) if cheap is None else cheap == f
        y = [round(value * VALUE_ONE) for value in values[own & drawn].tolist()]
        squares = sum(one * one for one in y)
        sums = StratumSums.of_scores(weight_units(rate), sum(y), squares, len(y))
        strata[stratum_key(stratum, f)] = sums._replace(size=int(own.sum()) * WEIGHT_ONE)
    cell = ScoreSums([0] * WIDTH, strata)
    if cell.scored < 5:  # `min_samples` of a gauge
        return
    values = values / population.top
    plain = uniform_width(rng, values, cell.scored)
    for name in ("judge",) if cheap is None else ("judge", BY_CLASS):
        found = estimate_interval(cell, 0.0, population.top, name == BY_CLASS)
        key = Cell(row, population.kind, name, "1h", population.name, n)
        value, lower, upper = (limit / population.top for limit in found[:3])
        report.add(key, float(values.mean()), (value, lower, upper), cell.scored, plain)


def write_table(page: str, lines: Sequence[str]) -> str:
    """Replace the block between the marks of a page."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"no {BEGIN} … {END} in the page")
    return "\n".join([before + BEGIN, *lines, END + after])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=("tuning", "heldout", "quick"), default="tuning")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=float, default=1.0)
    parser.add_argument("--row", default="", help="only cases whose name contains this")
    parser.add_argument("--data", type=Path, help="folder of real answers with labels")
    parser.add_argument("--process", type=int, default=0, metavar="SERVICES")
    parser.add_argument("--cells", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--draws", action="store_true", help="bursts without the windows")
    parser.add_argument("--grid", action="store_true", help="cells of uniform draws")
    options = parser.parse_args()
    if options.draws or options.grid:
        report = (measure_grid if options.grid else measure_draws)(options.seed, options.runs)
        low = sum(tally.coverage < 0.93 for tally in report.cells.values())
        print("\n".join([*report.table(), f"\n{low} of {len(report.cells)} cells below .93"]))
        return
    sets = {"tuning": tuning_cases, "quick": quick_cases}
    cases = sets.get(options.set, lambda: heldout_cases(options.seed))()
    if options.data:
        cases += real_cases(options.data)
    chosen = [case for case in cases if options.row in case.row]
    report = measure(chosen, options.seed, options.runs)
    if options.process:
        run_services(report, options.process, options.seed)
    if options.cells:
        for cell, tally in report.cells.items():
            print(json.dumps({**cell._asdict(), **tally.to_dict()}))
    command = f"--set {options.set} --seed {options.seed} --runs {options.runs:g}"
    lines = [f"`python -m benchmarks.acceptance {command}`:", "", *report.table()]
    if not options.write:
        print("\n".join(lines))
        return
    options.write.write_text(write_table(options.write.read_text("utf-8"), lines), "utf-8")


if __name__ == "__main__":
    main()
