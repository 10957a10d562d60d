"""Estimates of series with sampling strata: with the help of the cheap score and without it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.sampling.sampler import drawn_stratum
from ragmeter.windows.estimators import Interval, wilson_interval
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import stratum_key, upstream_stratum
from ragmeter.windows.windows import Windows

from tests.windows.helpers import BASE, windows


def judged(
    number: int, value: float, pi: float, stratum: str, cheap: float | None, **more: str
) -> ScoredTrace:
    score = Score(
        more.get("metric", "answered"),
        more.get("scorer", "judge"),
        ScoreState.SCORED,
        value,
        None,
        pi,
        stratum=stratum_key(stratum, cheap),
        cheap=cheap,
    )
    return ScoredTrace(f"t{number}", "bot", BASE + number / 100, "ok", [score])


def left_out(one: ScoredTrace, state: ScoreState = ScoreState.SAMPLED_OUT) -> ScoredTrace:
    one.results[0].state = state
    one.results[0].value = None
    return one


def filled(
    seed: int, number: int, share: float, notified: bool, metric: str = "answered"
) -> Windows:
    """`notified`: whether the cheap score knows anything of the label, 80 % of which are good."""
    rng = random.Random(seed)
    w = windows()
    for n in range(number):
        good = rng.random() < 0.8
        seems = good if notified else rng.random() < 0.8
        cheap = rng.betavariate(8, 3) if seems else rng.betavariate(3, 8)
        low = cheap < 0.2
        pi = min(1.0, share * (3 if low else 1))
        value = float(good) if metric == "answered" else (0.9 if good else 0.2)
        one = judged(n, value, pi, "low" if low else "rest", cheap, metric=metric)
        w.add(one if rng.random() < pi else left_out(one), "bot")
    return w


def judge_interval(
    w: Windows, *, assisted: bool, metric: str = "answered", window: str = "5m"
) -> Interval:
    """Return the judge's interval over a window, with the help of the cheap score or without."""
    cell = w.cell("bot", "", metric, "judge", window)
    assert cell is not None
    return estimate_interval(cell, 0.0, 1.0, assisted)


def plain_and_helped(w: Windows, metric: str) -> tuple[Interval, Interval]:
    plain, helped = (judge_interval(w, assisted=one, metric=metric) for one in (False, True))
    return plain, helped


@pytest.mark.parametrize("metric", ["answered", "grounding"])
def test_a_cheap_score_that_knows_narrows_the_interval(metric: str) -> None:
    w = filled(1, 4000, 0.05, True, metric)
    plain, helped = plain_and_helped(w, metric)
    assert w.series("bot") == [(metric, "judge")], "it has no series of its own"
    assert helped.upper - helped.lower < 0.97 * (plain.upper - plain.lower)
    assert helped.effective > plain.effective
    truth = 0.8 if metric == "answered" else 0.76
    assert helped.lower < truth < helped.upper


@pytest.mark.parametrize("metric", ["answered", "grounding"])
def test_one_that_knows_nothing_costs_next_to_nothing(metric: str) -> None:
    w = filled(2, 4000, 0.05, False, metric)
    plain, helped = plain_and_helped(w, metric)
    assert helped.upper - helped.lower < 1.03 * (plain.upper - plain.lower)
    assert abs(helped.value - plain.value) < 0.01


def test_with_too_few_bad_answers_both_are_the_plain_one() -> None:
    w = filled(3, 400, 0.05, True)
    cell = w.cell("bot", "", "answered", "judge", "5m")
    assert cell is not None
    assert cell.scored < 30
    plain, helped = plain_and_helped(w, "answered")
    assert helped == plain


def test_a_cheap_score_of_yes_and_no_is_a_stratum() -> None:
    """The rare answers that it flags wrongly keep their weight although none of them was judged."""
    w = windows()
    for n in range(2000):
        flagged = n % 20 == 0
        good = not flagged or n % 40 == 0
        one = judged(n, float(good), 0.1, "rest:3", float(not flagged))
        # of the flagged ones only bad ones are judged
        taken = n % 400 == 20 if flagged else n % 10 == 1
        w.add(one if taken else left_out(one), "bot")
    helped = judge_interval(w, assisted=True)
    assert helped.value == pytest.approx(0.95)
    assert helped.upper > 0.96  # 0.975 of all are good


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_an_interval_of_sampled_scores_is_about_all_traffic_of_the_window(rate: float) -> None:
    w = windows()
    rng = random.Random(6)
    for n in range(2000):
        one = judged(n, float(n % 4 > 0), rate, "rest", None)
        w.add(one if rng.random() < rate else left_out(one), "bot")
    found = w.estimate("bot", "", "answered", "judge", "5m")
    assert found is not None
    lower, upper = wilson_interval(found.value, found.samples)
    narrower = (found.upper - found.lower) / (upper - lower)
    assert narrower == pytest.approx(math.sqrt(1 - found.samples / 2000), abs=0.01)


def test_where_every_trace_was_judged_the_interval_is_about_the_process() -> None:
    w = windows()
    for n in range(200):
        w.add(judged(n, float(n % 4 > 0), 1.0, "rest", None), "bot")
    found = w.estimate("bot", "", "answered", "judge", "5m")
    assert found is not None
    assert (found.lower, found.upper) == pytest.approx(wilson_interval(0.75, 200))


@pytest.mark.parametrize("metric", ["answered", "grounding"])
def test_where_every_trace_was_judged_a_cheap_score_knows_nothing_more(metric: str) -> None:
    """How many traces of each class the process gives is not known better than this traffic is."""
    w = filled(5, 800, 1.0, True, metric)
    plain, helped = plain_and_helped(w, metric)
    ends = [(one.value, one.lower, one.upper) for one in (plain, helped)]
    assert ends[1] == pytest.approx(ends[0], abs=0.004)
    assert helped.upper - helped.lower > 0.95 * (plain.upper - plain.lower)
    if metric == "answered":
        assert ends[0][1:] == pytest.approx(wilson_interval(plain.value, 800), abs=0.003)


def coverage_with_help(
    kept: float, rate: float, number: int, process: bool = False, runs: int = 100
) -> tuple[float, float]:
    """Return the coverage of the helped interval in windows of `number` traces, and its mean width.

    Nine in ten of the answers are good, and the cheap score knows nearly all of that. An earlier
    sampler has kept a part of them, of which the judge has `rate`.
    """
    rng = random.Random(8)
    held = 0
    width = 0.0
    for _ in range(runs):
        w = windows()
        good_ones = 0
        for n in range(number):
            good = rng.random() < 0.9
            good_ones += good
            cheap = float(rng.random() > 0.025 if good else rng.random() < 0.06)
            if rng.random() < kept:
                stratum = upstream_stratum(drawn_stratum("rest", rate), kept)
                one = judged(n, float(good), kept * rate, stratum, cheap)
                one = one._replace(probability=kept)
                w.add(one if rng.random() < rate else left_out(one), "bot")
        found = judge_interval(w, assisted=True, window="24h")
        held += found.lower <= (0.9 if process else good_ones / number) <= found.upper
        width += (found.upper - found.lower) / runs
    return held / runs, width


def test_where_every_trace_was_judged_help_makes_the_interval_no_surer() -> None:
    held, width = coverage_with_help(1.0, 1.0, 200, process=True)
    assert held > 0.92
    assert width == pytest.approx(0.085, abs=0.01)  # that of 200 judged answers


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_an_earlier_sampler_leaves_the_sizes_of_the_classes_unknown(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = int(600 / rate) + 2000
    assert coverage_with_help(0.1, rate, number)[0] > 0.92
    monkeypatch.setattr("ragmeter.windows.intervals._sizes_known_from", lambda *_: math.inf)
    assert coverage_with_help(0.1, rate, number)[0] < 0.93


def test_classes_are_of_the_traffic_that_the_metric_applies_to() -> None:
    """Only draws tell to which half of each class it applies: a sharp cheap score is no census."""
    rng = random.Random(9)
    runs = 120
    held = {False: 0, True: 0}
    for _ in range(runs):
        w = windows()
        values = []
        for n in range(800):
            good = float(rng.random() < 0.8)
            applies = rng.random() < 0.5
            values += [good] * applies
            one = judged(n, good, 0.4, "rest:1", good)
            if rng.random() > 0.4:
                left_out(one)
            elif not applies:
                left_out(one, ScoreState.NOT_APPLICABLE)
            w.add(one, "bot")
        for assisted in held:
            found = judge_interval(w, assisted=assisted)
            held[assisted] += found.lower <= sum(values) / len(values) <= found.upper
    # as if the draws had shown it exactly the helped interval would cover .59
    assert min(held.values()) / runs > 0.92, held


def test_the_interval_covers_where_the_judge_fails_on_nearly_all_bad_answers() -> None:
    rng = random.Random(10)
    runs = 300
    held = 0
    for _ in range(runs):
        w = windows()
        total = 0.0
        for n in range(400):
            good = float(rng.random() < 0.9)
            total += good
            one = judged(n, good, 0.2, "rest:2", None)
            if rng.random() > 0.2:
                left_out(one)
            elif not good and rng.random() < 0.9:
                left_out(one, ScoreState.UNSCORED)
            w.add(one, "bot")
        found = w.estimate("bot", "", "answered", "judge", "5m")
        assert found is not None
        held += found.lower <= total / 400 <= found.upper
    # as if the share that is missing were known it would cover .90
    assert held / runs > 0.935, held


def test_the_versions_of_a_judge_share_the_strata_and_keep_their_names() -> None:
    current: dict[tuple[str, str], str] = {}
    w = windows(current=current)
    for n in range(200):
        out = left_out(judged(n, 0.0, 0.1, "rest", 0.5 + n % 5 / 10))
        w.add(out, "bot")
    for n in range(200, 320):
        scorer = "judge@1" if n < 220 else "judge@2"
        w.add(judged(n, float(n % 4 > 0), 0.5, "rest", 0.8, scorer=scorer), "bot")
    current["answered", "judge"] = "judge@2"
    assert w.current_scorer("answered", "judge") == "judge@2"
    assert {scorer for _, scorer in w.series("bot")} == {"judge", "judge@1"}
    new = w.bucket("bot", "", "answered", "judge", 60, BASE)
    assert new is not None
    assert new.sums()["rest"].size >> 24 == 320
    found = w.estimate("bot", "", "answered", "judge", "5m")
    assert found is not None
    assert found.samples == 100
    named = w.estimate("bot", "", "answered", "judge@2", "5m")
    assert named is not None
    assert (found.value, found.lower, found.upper) == (named.value, named.lower, named.upper)


def test_a_burst_under_a_budget_is_a_stratum_of_its_own() -> None:
    """900 traces of a burst, 20 judged, none good; 100 others, 50 judged, all good."""
    w = windows()
    for n in range(1000):
        burst = n < 900
        one = judged(n, float(not burst), 0.02 if burst else 0.5, f"rest:{6 if burst else 1}", 0.5)
        taken = n % 45 == 0 if burst else n % 2 == 0
        w.add(one if taken else left_out(one), "bot")
    found = w.estimate("bot", "", "answered", "judge", "5m")
    assert found is not None
    assert found.value == pytest.approx(0.1)


@pytest.mark.parametrize("assisted", [False, True])
def test_traffic_of_which_hardly_any_was_drawn_is_not_taken_for_the_rest(assisted: bool) -> None:
    """An overload fills the queue of a judge that hangs: the rest of it is drawn too rarely."""
    w = windows(min_samples=1)
    for n in range(100):
        w.add(judged(n, 1.0, 1.0, "rest:0", 0.9), "bot")
    alone = judge_interval(w, assisted=assisted)
    for n in range(100, 400):  # of which, by bad luck or good, none
        w.add(left_out(judged(n, 0.0, 0.004, "rest:8", 0.9)), "bot")
    beside = judge_interval(w, assisted=assisted)
    assert alone.lower > 0.94
    assert beside.effective < 6
    assert beside.lower < 0.5


def test_unscored_traces_widen_the_interval_and_leave_the_point() -> None:
    whole, holed = windows(), windows()
    for n in range(200):
        whole.add(judged(n, float(n % 5 > 0), 1.0, "rest", 0.5), "bot")
        holed.add(judged(n, float(n % 5 > 0), 1.0, "rest", 0.5), "bot")
    for n in range(200, 250):
        holed.add(left_out(judged(n, 0.0, 1.0, "rest", 0.5), ScoreState.UNSCORED), "bot")
    key = ("bot", "", "answered", "judge", "5m")
    one = whole.estimate(*key)
    other = holed.estimate(*key)
    assert one is not None
    assert other is not None
    assert (one.value, one.unscored) == (0.8, 0.0)
    assert (other.value, other.unscored) == (0.8, 0.2)
    # the ends of 250 answers of which the missing ones are all bad, or all good
    assert other.lower == pytest.approx(wilson_interval(0.64, 250)[0], abs=0.003)
    assert other.upper == pytest.approx(wilson_interval(0.84, 250)[1], abs=0.003)
    assert holed.unscored(*key) == (0.2, 250)
    assert whole.unscored(*key) == (0.0, 200)


def test_what_no_version_of_a_judge_could_score_is_missing_for_each_version() -> None:
    w = windows()
    for n in range(40):
        one = judged(n, 1.0, 0.5, "rest", 0.5)
        named = [replace(score, scorer=f"{score.scorer}@v1") for score in one.results]
        w.add(one._replace(results=named), "bot")
        w.add(left_out(judged(40 + n, 0.0, 0.5, "rest", 0.5), ScoreState.SHED), "bot")
    for scorer in ("judge@v1", "judge"):
        missing = w.unscored("bot", "", "answered", scorer, "5m")
        assert missing is not None, scorer
        assert missing[0] == pytest.approx(0.5 if scorer == "judge@v1" else 1.0), scorer


def test_where_nothing_could_be_scored_the_share_is_known_all_the_same() -> None:
    w = windows()
    for n in range(9):
        w.add(left_out(judged(n, 0.0, 0.5, "rest", 0.5), ScoreState.UNSCORED), "bot")
    key = ("bot", "", "answered", "judge", "5m")
    assert w.estimate(*key) is None
    assert w.unscored(*key) == (1.0, 9)
    assert w.unscored("bot", "", "answered", "other", "5m") is None


def test_results_that_came_without_their_trace_expire_as_well() -> None:
    w = windows()
    w.add(judged(0, 1.0, 0.5, "rest", 0.5), "bot", ["model=a"])
    part = judged(70_000, 1.0, 0.5, "rest", 0.5)._replace(partial=True)
    w.add(part, "bot", ["model=a"])
    w.advance(BASE + 10_000)
    assert w.count_traces("bot", "model=a", "24h") == 1
    w.advance(BASE + 200_000)
    assert w.services() == []
