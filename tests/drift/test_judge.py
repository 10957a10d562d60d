"""Judge drift apart from quality drift: a swap of the judge, a fall of quality, sampling moved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.drift import Alarm, DriftMonitor
from agent.drift.judge import Judging
from agent.windows.exact import units, weight
from agent.windows.sums import Cell, add_scored, empty_sums
from tests.drift.fakes import QUICK, SPECS, Fake, judged, run

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
    said = play(300, seed, wrong=0.17)
    fired = [a for a in said if a.state == "firing"]
    assert [(a.kind, a.scorer) for a in fired] == [("judge", "judge")]
    assert (fired[0].at / 60 - CHANGE) <= 240
    assert "the judge has changed, not the answers" in fired[0].words()
    assert fired[0].after < fired[0].before
    held = [a for a in said if a.kind == "mean" and a.scorer == "judge"]
    assert held
    assert all(a.state == "held" for a in held)


@pytest.mark.parametrize("seed", [3, 4])
def test_quality_that_falls_is_not_put_down_to_the_judge(seed: int) -> None:
    said = play(300, seed, bad=0.25)
    fired = [a for a in said if a.state == "firing"]
    assert fired[0].scorer == "builtin"
    assert {(a.scorer, a.kind) for a in fired} == {("builtin", "mean"), ("judge", "mean")}
    assert not [a for a in fired if a.kind == "judge"]


def test_a_moved_sampling_ratio_alone_is_no_alarm() -> None:
    for rates in ({"low": 0.5, "rest": 0.02}, {"low": 0.02, "rest": 0.1}):
        assert [a for a in play(720, rates=rates) if a.scorer == "judge"] == []


def test_a_fall_that_only_the_judge_sees_is_raised_when_nothing_explains_it() -> None:
    """Neither residual nor cheap score: here because the cheap score says nothing of the judge's
    and there is no residual at all."""
    source, monitor, rng = Fake(), DriftMonitor(QUICK, SPECS), random.Random(5)
    cells = source.cells.setdefault(("bot", "", "grounding", "judge"), {})

    def fill(minute: int) -> None:
        source.put(minute, 60, 48, 40, "grounding", "builtin")
        if minute % 5 == 0:
            rate = 0.1 if minute < CHANGE else 0.35
            cells[minute] = blind(rng, rate)

    said = run(monitor, source, range(CHANGE + 300), fill)
    assert [(a.kind, a.scorer, a.state) for a in said] == [("mean", "judge", "firing")]


def blind(rng: random.Random, bad: float) -> Cell:
    sums = empty_sums()
    for _ in range(300):
        f = rng.random()
        sums[0] += weight(1.0)
        sums[1] += weight(1.0) * units(f)
        if rng.random() < 0.06:
            y, x = units(float(rng.random() >= bad)), units(f)
            add_scored(sums, weight(0.06), y, y * y, f=x, ff=x * x, yf=x * y)
    return Cell([0, 300 - sums[2], 0, 0, 0, 0, 0], {"rest": sums})


def test_probes_alarm_as_judge_drift() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    said = run(monitor, source, range(CHANGE + 120), traffic(source, bad=0.4))
    template = next(a for a in said if a.scorer == "judge")
    probe = replace(template, kind="judge", at=(CHANGE + 120) * 60.0)
    told = monitor.probe_alarm(probe)
    assert [(a.state, a.cause) for a in told] == [("firing", "stored items are judged differently")]


def test_steps_wait_for_every_stratum_and_state_comes_back_bit_for_bit() -> None:
    rng, judging = random.Random(9), Judging()
    cells = [judged(rng, 200, 0.1, 0.0, {"low": 0.02, "rest": 0.05})[0] for _ in range(120)]
    steps = []
    for i, cell in enumerate(cells):
        if i == 70:
            judging = Judging.load(json.loads(json.dumps(judging.dump())))
        steps.append(judging.feed(i * 300.0, cell))
    again, through = Judging(), []
    for i, cell in enumerate(cells):
        through.append(again.feed(i * 300.0, cell))
    assert steps == through
    made = [step for step in steps if step is not None]
    assert 10 < len(made) < 100
    assert all(step.judged >= 10 for step in made)
    assert again.reference is not None
    assert again.reference.slope > 0
