"""What an alert says of segments: what moved within them, whose share moved, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from ragmeter.alerts.explanation import Explanation
from ragmeter.parts.segments.segment_rows import (
    SeriesBreakdown,
    build_series_breakdown,
    segments_by_tag,
)
from ragmeter.parts.segments.story import compare_segments, explain_change
from ragmeter.windows.shares import share_sums
from ragmeter.windows.sums import ScoreSums

from tests.parts.segments.cells import period
from tests.windows.cells import MEAN, RATE, rate

Good = Mapping[str, tuple[int, int]]  # good answers, answers by segment


def compared(before: Good | None, now: Good) -> SeriesBreakdown:
    names = sorted({*(before or {}), *now})
    past = period(**{k: rate(*v) for k, v in before.items()}) if before else None
    series = build_series_breakdown(
        "answered",
        "builtin",
        RATE,
        segments_by_tag(name.replace("_", "=", 1) for name in names),
        period(**{k: rate(*v) for k, v in now.items()}),
        past,
    )
    assert series is not None
    return series


def story(before: Good | None, now: Good, direction: int = -1) -> Explanation:
    return explain_change(compared(before, now), direction)


def test_a_shift_of_shares_names_whose_and_blames_nobody() -> None:
    found = story(
        {"task_a": (900, 1000), "task_b": (1200, 2000)}, {"task_a": (45, 50), "task_b": (150, 250)}
    )
    assert found == Explanation(
        "",
        "because traffic moved: task=a from 33 % to 17 % of the traffic (at 0.9), task=b"
        " from 67 % to 83 % of the traffic (at 0.6); of the change of -0.050, +0.000 is within"
        " segments of task and -0.050 comes from traffic between them",
    )


def test_a_segment_that_fell_is_named_with_the_split() -> None:
    found = story(
        {"task_a": (900, 1000), "task_b": (900, 1000)}, {"task_a": (90, 100), "task_b": (50, 100)}
    )
    assert found == Explanation(
        "task=b",
        "task=b changed more than the others, 0.9 to 0.5; of the change of -0.20, -0.20 is"
        " within segments of task and +0.00 comes from traffic between them",
    )


def test_both_at_once_are_both_said() -> None:
    found = story(
        {"task_a": (900, 1000), "task_b": (1200, 2000), "task_c": (1350, 1500)},
        {"task_a": (45, 50), "task_b": (360, 600), "task_c": (60, 150)},
    )
    assert found.segment == "task=c"
    assert "task=b from 44 % to 75 % of the traffic" in found.text
    assert "task=c changed more than the others, 0.9 to 0.4" in found.text


@pytest.mark.parametrize("few", [0, 8])
def test_a_new_segment_is_named_even_if_it_had_a_few_samples_before(few: int) -> None:
    before = {"task_a": (900, 1000), "task_b": (800, 1000)}
    now = {"task_a": (90, 100), "task_b": (80, 100), "task_c": (30, 100)}
    found = story({**before, "task_c": (few // 2, few)} if few else before, now)
    assert found.segment == "task=c"
    assert "task=c is new, with 33 % of the traffic (at 0.3)" in found.text
    assert "alike" not in found.text


def test_a_segment_that_is_gone_is_named_and_not_blamed() -> None:
    found = story(
        {"task_a": (990, 1000), "task_b": (600, 1000), "task_c": (610, 1000)},
        {"task_b": (60, 100), "task_c": (61, 100)},
    )
    assert found.segment == ""
    assert "task=a is gone (33 % of the traffic before)" in found.text


def test_one_segment_that_is_everything_is_unlike_no_rest() -> None:
    assert story({"task_a": (900, 1000)}, {"task_a": (60, 100)}) == Explanation()


def test_segments_are_said_to_have_moved_alike_only_with_evidence() -> None:
    before = {"task_a": (900, 1000), "task_b": (900, 1000)}
    few = story(before, {"task_a": (21, 30), "task_b": (21, 30)})
    assert few == Explanation()
    many = story(before, {"task_a": (420, 600), "task_b": (418, 600)})
    assert many == Explanation("", "all segments of task moved alike")


def test_a_move_the_other_way_explains_nothing() -> None:
    """In the review's case the segment that got better was the one that was named."""
    before, now = (
        {"task_a": (900, 1000), "task_b": (500, 1000)},
        {
            "task_a": (850, 1000),
            "task_b": (560, 1000),
        },
    )
    assert story(before, now).segment != "task=b"
    assert story(before, now, direction=1).segment != "task=a"


def test_one_that_fell_explains_no_rise_of_all() -> None:
    """The alarm is against a baseline that is older than the day before."""
    before = {"task_a": (900, 1000), "task_b": (1000, 2000)}
    assert story(before, {"task_a": (60, 100), "task_b": (180, 200)}) == Explanation()


def test_one_that_fell_less_than_the_rest_is_not_named() -> None:
    before = {"task_a": (8100, 9000), "task_b": (900, 1000)}
    found = story(before, {"task_a": (720, 900), "task_b": (50, 100)})
    assert found.segment == "task=b"
    assert "task=a" not in found.text


def test_one_that_rose_less_than_the_rest_explains_no_fall() -> None:
    """All segments got better, and the mean fell for there is more of the worst."""
    found = story(
        {"task_a": (8000, 10_000), "task_b": (2000, 10_000)},
        {"task_a": (1960, 2000), "task_b": (2700, 10_000)},
    )
    assert found.segment == ""
    assert "because traffic moved" in found.text
    assert "more than the others" not in found.text


def test_a_share_that_moved_the_mean_up_explains_no_fall() -> None:
    """There is less of the worst, and much less of the best: only that made the mean fall."""
    found = story(
        {"task_best": (4750, 5000), "task_fair": (1200, 2000), "task_worst": (600, 3000)},
        {"task_best": (950, 1000), "task_fair": (4200, 7000), "task_worst": (400, 2000)},
    )
    assert "task=best from 50 % to 10 % of the traffic" in found.text
    assert "task=fair from 20 % to 70 % of the traffic" in found.text
    assert "task=worst" not in found.text


def test_shares_that_move_without_moving_the_mean_are_no_news() -> None:
    before = {"task_a": (1760, 2000), "task_b": (1800, 2000)}
    found = story(before, {"task_a": (820, 1200), "task_b": (560, 800)})
    assert found == Explanation("", "all segments of task moved alike")


def test_traffic_without_the_tag_counts_and_is_not_named() -> None:
    past = period(task_a=rate(900, 1000), whole=rate(900, 1000))
    now = period(task_a=rate(90, 100), whole=rate(50, 100))
    series = build_series_breakdown("x", "y", RATE, {"task": ["task=a"]}, now, past)
    assert series is not None
    assert series.tags[0].rate == pytest.approx(-0.2)
    assert explain_change(series, -1) == Explanation()


def test_without_a_past_the_segment_is_named_that_is_worse_than_the_rest() -> None:
    now = {"task_a": (90, 100), "task_b": (88, 100), "task_c": (40, 100)}
    assert story(None, now) == Explanation("task=c", "task=c is at 0.4, the rest at 0.89")
    assert story(None, {**now, "task_c": (85, 100)}) == Explanation()


def shares(good: int, number: int) -> ScoreSums:
    return share_sums(good / number, number)


def test_shares_that_are_no_scores_are_compared_alike() -> None:
    pairs = {
        "": (shares(20, 400), shares(60, 200)),
        "model=a": (shares(10, 200), shares(5, 100)),
        "model=b": (shares(10, 200), shares(55, 100)),
    }
    series = compare_segments(["model=a", "model=b"], pairs.__getitem__)
    assert series is not None
    assert explain_change(series, 1).segment == "model=b"
    assert compare_segments([], lambda name: (None, shares(1, 5))) is None
    whole = share_sums(1.02, 50)
    assert (whole.n, whole.y) == (50, 50 << 30), "a share of estimated sizes may exceed 1"


def drawn(rng: random.Random, segments: int, n: int, mean: float) -> dict[str, list[float]]:
    """Scores of segments that are all alike, in shares that vary by chance."""
    values: dict[str, list[float]] = {f"task_{i}": [] for i in range(segments)}
    for _ in range(n):
        own = values[f"task_{rng.randrange(segments)}"]
        own.append(rng.betavariate(8 * mean, 8 * (1 - mean)))
    return values


@pytest.mark.parametrize(("segments", "before", "now"), [(2, 600, 100), (8, 1200, 300)])
def test_chance_names_no_segment(segments: int, before: int, now: int) -> None:
    """All fall alike: at most 1 % of alerts may name a segment or a shift of shares."""
    rng = random.Random(4)
    named = 0
    for _ in range(200):
        series = build_series_breakdown(
            "grounding",
            "builtin",
            MEAN,
            {"task": [f"task={i}" for i in range(segments)]},
            period(**drawn(rng, segments, now, 0.6)),
            period(**drawn(rng, segments, before, 0.8)),
        )
        assert series is not None
        found = explain_change(series, -1)
        named += bool(found.segment) or "share" in found.text
    assert named <= 2
