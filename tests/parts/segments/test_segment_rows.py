"""One series by segment: the terms add up, and nothing is claimed of what is too few."""

from __future__ import annotations

import pytest
from ragmeter.parts.segments.segment_rows import SeriesBreakdown, build_series_breakdown

from tests.parts.segments.cells import period
from tests.windows.cells import MEAN, RATE, rate


def both(series: SeriesBreakdown | None) -> SeriesBreakdown:
    assert series is not None
    return series


TAGS = {"model": ["model=a", "model=b"]}


def test_rate_and_mix_of_a_case_worked_by_hand() -> None:
    # a: 60 of 100 good of half the traffic, b: 90 of 100; then a has 120 of 160, b 36 of 40
    before = period(model_a=rate(60, 100), model_b=rate(90, 100))
    now = period(model_a=rate(120, 160), model_b=rate(36, 40))
    found = both(build_series_breakdown("answered", "builtin", RATE, TAGS, now, before))
    assert found.whole.change is not None
    assert found.whole.change.value == pytest.approx(0.78 - 0.75)
    (tag,) = found.tags
    a, b = tag.rows
    assert (a.share_before, a.share, b.share_before, b.share) == (0.5, 0.8, 0.5, 0.2)
    assert a.added is not None
    assert b.added is not None
    # rate: mean share times own change; mix: change of share times the distance from 0.765
    assert a.added.rate == pytest.approx(0.65 * 0.15)
    assert b.added.rate == pytest.approx(0.0)
    assert a.added.mix == pytest.approx(0.3 * (0.675 - 0.765))
    assert b.added.mix == pytest.approx(-0.3 * (0.9 - 0.765))
    assert a.added.value + b.added.value == pytest.approx(found.whole.change.value, abs=1e-12)
    assert tag.unattributed == pytest.approx(0.0, abs=1e-12)


def test_terms_of_each_tag_add_up_to_the_change_whatever_is_too_few() -> None:
    before = period(
        model_a=rate(600, 800),
        model_b=rate(100, 190),
        model_c=rate(4, 10),
        kind_x=rate(350, 500),
        whole=rate(0, 0),
    )
    now = period(
        model_a=rate(60, 80),
        model_b=rate(3, 12),
        model_c=rate(1, 30),
        kind_x=rate(30, 70),
        whole=rate(0, 0),
    )
    tags = {"model": ["model=a", "model=b", "model=c"], "kind": ["kind=x"]}
    found = both(build_series_breakdown("answered", "builtin", RATE, tags, now, before))
    assert found.whole.change is not None
    for tag in found.tags:
        notified = sum(row.added.value for row in tag.rows if row.added)
        assert notified + tag.unattributed == pytest.approx(found.whole.change.value, abs=1e-12)
    model, kind = found.tags
    assert [row.finding for row in model.rows] == ["", "too few", "new"]
    assert [row.segment for row in kind.rows] == ["kind=x", "kind="]
    assert model.rows[1].change is None
    assert model.rows[1].added is None
    assert abs(model.unattributed) > 0.01
    assert abs(kind.unattributed) < 1e-12, "with the untagged traffic nothing is left over"


def test_a_new_segment_is_compared_with_the_rest_and_adds_by_mix_alone() -> None:
    before = period(model_a=rate(900, 1000))
    now = period(model_a=rate(90, 100), model_b=rate(40, 100))
    found = both(build_series_breakdown("answered", "builtin", RATE, TAGS, now, before))
    (tag,) = found.tags
    new = tag.rows[1]
    assert new.new
    assert new.change is None
    assert new.unlike is not None
    assert new.unlike.value == pytest.approx(-0.5)
    assert new.added is not None
    assert new.added.rate == 0.0
    assert new.added.value < -0.1
    notified = sum(row.added.value for row in tag.rows if row.added)
    assert notified == pytest.approx(-0.25, abs=1e-12)


def test_a_segment_that_is_gone_adds_what_it_held() -> None:
    before = period(model_a=rate(900, 1000), model_b=rate(200, 1000))
    now = period(model_a=rate(180, 200))
    found = both(build_series_breakdown("answered", "builtin", RATE, TAGS, now, before))
    a, b = found.tags[0].rows
    assert b.finding == "gone"
    assert not b.too_few
    assert b.added is not None
    assert b.added.rate == 0.0
    assert b.added.value == pytest.approx(-0.5 * (0.2 - 0.725))
    assert b.added.lower < b.added.value < b.added.upper
    assert a.added is not None
    assert a.added.value + b.added.value == pytest.approx(0.9 - 0.55, abs=1e-12)


def test_without_a_past_each_is_compared_with_the_rest() -> None:
    now = period(model_a=rate(900, 1000), model_b=rate(120, 200))
    found = both(build_series_breakdown("answered", "builtin", RATE, TAGS, now, None))
    assert found.whole.change is None
    (tag,) = found.tags
    a, b = tag.rows
    assert b.unlike is not None
    assert b.unlike.value == pytest.approx(-0.3)
    assert a.unlike is not None
    assert a.unlike.value == pytest.approx(0.3)
    assert b.added is not None
    assert b.added.value == pytest.approx(200 / 1200 * (0.6 - 0.85))
    assert tag.unattributed == pytest.approx(0.0, abs=1e-12)


def test_too_few_over_all_is_no_series() -> None:
    few, many = period(model_a=rate(5, 10)), period(model_a=rate(50, 100))
    assert build_series_breakdown("answered", "builtin", RATE, TAGS, few, many) is None
    assert build_series_breakdown("answered", "builtin", RATE, TAGS, many, few) is None
    assert build_series_breakdown("answered", "builtin", RATE, TAGS, few, None) is None
    assert build_series_breakdown("answered", "builtin", RATE, TAGS, many, None) is not None


def test_one_segment_that_is_all_has_no_rest() -> None:
    found = both(
        build_series_breakdown(
            "grounding",
            "builtin",
            MEAN,
            {"model": ["model=a"]},
            period(model_a=[0.5, 0.7] * 30),
            period(model_a=[0.8, 0.9] * 300),
        )
    )
    (row,) = found.tags[0].rows
    assert row.unlike is None
    assert not row.too_few
    assert row.change is not None
    assert row.added is not None
    assert row.added.value == pytest.approx(-0.25)
    assert row.added.rate == pytest.approx(-0.25)
    period_now = period(model_a=[0.5, 0.7] * 30)
    tags = {"model": ["model=a"]}
    alone = both(build_series_breakdown("grounding", "builtin", MEAN, tags, period_now, None))
    assert alone.tags[0].rows[0].finding == "", "there is no rest, which is not too few"
