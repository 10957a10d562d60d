"""Judge drift apart from quality drift: a swap of the judge, a fall of quality, sampling moved."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from ragmeter.core.arithmetic import value_units, weight_units
from ragmeter.parts.drift.alarms import HOLD_SECONDS, Alarm
from ragmeter.parts.drift.judge_drift import JudgedSteps
from ragmeter.parts.drift.monitor import DriftMonitor
from ragmeter.windows.sums import NO_SUMS, ScoreSums, StratumSums

from tests.parts.drift.fakes import QUICK, SPECS, Fake, judged, run
from tests.parts.drift.saved import copied, restore, state_of

CHANGE = 600  # minutes: ten hours
RATES = {"low": 0.1, "rest": 0.02}


def traffic(
    source: Fake,
    bad: float = 0.1,
    wrong: float = 0.0,
    rates: dict[str, float] | None = None,
    seed: int = 3,
    per_second: float = 2.0,
) -> Callable[[int], None]:
    """Bad answers, the judge's errors and the sampling rates from CHANGE on."""
    rng, n = random.Random(seed), int(per_second * 300)
    cells = source.cells.setdefault(("bot", "", "grounding", "judge"), {})

    def fill(minute: int) -> None:
        if minute % 5:
            return
        late = minute >= CHANGE
        cell, (count, total, squares) = judged(
            rng, n, bad if late else 0.1, wrong if late else 0.0, rates or RATES if late else RATES
        )
        cells[minute] = cell
        for i in range(5):
            source.put(minute + i, count // 5, total / 5, squares / 5, "grounding", "builtin")

    return fill


def play(minutes: int, seed: int = 3, **after: object) -> list[Alarm]:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    fill = traffic(source, seed=seed, **after)  # type: ignore[arg-type]
    return run(monitor, source, range(CHANGE + minutes), fill)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_swapped_judge_is_told_as_such_and_holds_back_the_quality_alarm(seed: int) -> None:
    reported = play(300, seed, wrong=0.17)
    fired = [a for a in reported if a.state == "firing"]
    assert [(a.kind, a.scorer) for a in fired] == [("judge", "judge")]
    assert (fired[0].at / 60 - CHANGE) <= 240
    assert "the judge has changed, not the answers" in fired[0].cause
    assert fired[0].after < fired[0].before
    held = [a for a in reported if a.kind == "mean" and a.scorer == "judge"]
    assert held
    assert all(a.state == "held" for a in held)


@pytest.mark.parametrize("seed", [3, 4])
def test_quality_that_falls_is_not_put_down_to_the_judge(seed: int) -> None:
    reported = play(300, seed, bad=0.25)
    fired = [a for a in reported if a.state == "firing"]
    assert fired[0].scorer == "builtin"
    assert {(a.scorer, a.kind) for a in fired} == {("builtin", "mean"), ("judge", "mean")}
    assert not [a for a in fired if a.kind == "judge"]


def test_a_moved_sampling_ratio_alone_is_no_alarm() -> None:
    for rates in ({"low": 0.5, "rest": 0.02}, {"low": 0.02, "rest": 0.1}):
        assert [a for a in play(720, rates=rates) if a.scorer == "judge"] == []


class Blind:
    """A fall that only the judge sees: the cheap score says nothing of the judge's, and there is no
    residual at all."""

    def __init__(self) -> None:
        self.source, self.rng = Fake(), random.Random(5)
        self.cells = self.source.cells.setdefault(("bot", "", "grounding", "judge"), {})

    def __call__(self, minute: int) -> None:
        self.source.put(minute, 60, 48, 40, "grounding", "builtin")
        if minute % 5 == 0:
            self.cells[minute] = blind(self.rng, 0.1 if minute < CHANGE else 0.35)


def test_a_fall_that_only_the_judge_sees_is_raised_when_nothing_explains_it() -> None:
    fill, monitor = Blind(), DriftMonitor(QUICK, SPECS)
    reported = run(monitor, fill.source, range(CHANGE + 300), fill)
    assert [(a.kind, a.scorer, a.state) for a in reported] == [("mean", "judge", "firing")]


def test_probes_that_say_the_judge_has_changed_hold_it_back_until_they_say_otherwise() -> None:
    fill, monitor = Blind(), DriftMonitor(QUICK, SPECS)
    run(monitor, fill.source, range(CHANGE), fill)
    assert monitor.apply_probes(("judge",), True, CHANGE * 60.0) == []
    reported = run(monitor, fill.source, range(CHANGE, CHANGE + 500), fill)
    assert [(a.kind, a.scorer, a.state) for a in reported] == [("mean", "judge", "held")]
    assert "stored items are judged differently" in reported[0].cause
    state = state_of(monitor)
    monitor = DriftMonitor(QUICK, SPECS)
    restore(monitor, state)
    settled = (CHANGE + 502) * 60.0
    assert monitor.apply_probes(("judge",), False, settled) == []
    reported = run(monitor, fill.source, range(CHANGE + 500, CHANGE + 900), fill)
    assert [(a.kind, a.state) for a in reported] == [("mean", "firing")]
    assert reported[0].at - settled >= HOLD_SECONDS


def test_probes_hold_back_what_is_out_already_and_no_judge_but_theirs() -> None:
    for judges, states in ((("judge",), ["held"]), (("hhem",), [])):
        fill, monitor = Blind(), DriftMonitor(QUICK, SPECS)
        run(monitor, fill.source, range(CHANGE + 300), fill)
        notified = monitor.apply_probes(judges, True, (CHANGE + 300) * 60.0)
        assert [a.state for a in notified] == states
        assert [a.state for a in monitor.active()] == (states or ["firing"])


def blind(rng: random.Random, bad: float) -> ScoreSums:
    sums = NO_SUMS
    for _ in range(300):
        f = rng.random()
        sums = sums.plus(StratumSums(size=weight_units(1.0)))
        if rng.random() < 0.06:
            y, x = value_units(float(rng.random() >= bad)), value_units(f)
            w = weight_units(0.06)
            sums = sums.plus(StratumSums.of_scores(w, y, y * y, f=x, ff=x * x, yf=x * y))
    return ScoreSums([0, 300 - sums.n, 0, 0, 0, 0, 0], {"rest": sums})


def test_probes_do_not_hold_back_a_fall_that_the_cheap_score_sees_too() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    monitor.apply_probes(("judge",), True, 60.0)
    reported = run(monitor, source, range(CHANGE + 300), traffic(source, bad=0.4))
    judged_too = [a for a in reported if (a.scorer, a.kind) == ("judge", "mean")]
    assert [a.state for a in judged_too] == ["firing"]
    assert monitor.apply_probes(("judge",), True, (CHANGE + 300) * 60.0) == []


def test_judged_scores_count_by_their_weight_and_state_comes_back_bit_for_bit() -> None:
    rng, judging = random.Random(9), JudgedSteps()
    rates = {"low": 0.2, "rest": 0.05}
    cells = [judged(rng, 200, 0.1, 0.0, rates)[0] for _ in range(120)]
    steps = []
    for i, cell in enumerate(cells):
        if i == 70:
            judging = copied(judging)
        steps.append(judging.feed(cell))
    again = JudgedSteps()
    assert steps == [again.feed(cell) for cell in cells]
    assert {round(part.weight, 6) for step in steps for part in step.scores} <= {0.25, 1.0}
    parts = [part for step in steps for part in step.scores]
    n, total = (sum(part.weight * part[i] for part in parts) for i in (0, 1))
    assert total / n == pytest.approx(0.9, abs=0.03)  # of all traffic, not of what was drawn
    assert sum(p.total for p in parts) / sum(p.n for p in parts) < 0.85
    assert not steps[0].residuals
    assert again.slope
    assert len(steps[-1].residuals) == len(steps[-1].scores)


def test_the_largest_weight_is_remembered_and_a_larger_one_is_never_bet_beyond() -> None:
    rng, judging = random.Random(2), JudgedSteps()
    cells = [judged(rng, 400, 0.1, 0.0, {"low": p, "rest": p})[0] for p in (0.05, 0.5, 0.02)]
    largest = [max(part.weight for part in judging.feed(cell).scores) for cell in cells]
    assert largest == pytest.approx([1.0, 0.1 / 0.99, 1.0], rel=1e-3)
