"""One behaviour of `Windows` at a time; what must hold for any stream is in test_properties."""

from __future__ import annotations

import copy
import math
from functools import cache
from itertools import pairwise

import pytest
from ragmeter.core.durations import parse_window
from ragmeter.core.score import ScoreState
from ragmeter.windows.windows import Windows

from tests.windows.helpers import BASE, SPECS, Store, read_all, score, trace, windows


def filled(number: int = 100, step: float = 1.0) -> Windows:
    w = windows()
    for i in range(number):
        values = {"error": float(i % 10 == 0), "grounding": (i % 7) / 7, "tokens": 1000.0 + i}
        w.add(trace(i, i * step, values, timings={"total": 1 + i / 100}), "bot", ["model=a"])
    return w


def test_an_empty_object_knows_nothing() -> None:
    w = windows()
    assert (w.now, w.services(), w.segments("bot"), w.series("bot")) == (None, [], [], [])
    assert (w.stages("bot"), w.drain(), w.worst_ids("bot")) == ([], [], set())
    assert w.estimate("bot", "", "error", "builtin", "5m") is None
    assert w.quantiles("bot", "", "total", "5m") == []
    assert w.history("bot", "", "error", "builtin", "5m") == []
    assert w.worst("bot", "error", "builtin", "5m") == []
    assert w.count_traces("bot", "", "5m") == 0
    assert set(w.states("bot", "", "error", "builtin", "5m").values()) == {0}


def test_what_was_seen() -> None:
    w = filled()
    assert w.services() == ["bot"]
    assert w.segments("bot") == ["model=a"]
    expected = [("error", "builtin"), ("grounding", "builtin"), ("tokens", "builtin")]
    assert w.series("bot") == w.series("bot", "model=a") == expected
    assert w.stages("bot") == ["total"]
    assert w.count_traces("bot", "", "5m") == w.count_traces("bot", "model=a", "24h") == 100


def test_point_estimates_are_the_plain_ones_with_equal_weights() -> None:
    w = filled()
    for name in w.names:
        error = w.estimate("bot", "", "error", "builtin", name)
        tokens = w.estimate("bot", "", "tokens", "builtin", name)
        assert error is not None
        assert tokens is not None
        assert error.value == 0.1
        assert error.lower < 0.1 < error.upper
        assert tokens.value == 1049.5
        assert tokens.samples == error.samples == 100
        assert error.effective_samples == pytest.approx(100, rel=0.05)


def test_few_scores_that_stand_for_nearly_all_traces_are_no_estimate() -> None:
    w = windows()
    for i in range(30):
        w.add(trace(i, i, {"grounding": 0.7}, 1.0 if i else 0.002), "bot")
    assert w.estimate("bot", "", "grounding", "builtin", "5m") is None
    for i in range(30, 36):
        w.add(trace(i, i, {"grounding": 0.7}, 0.002), "bot")
    assert w.estimate("bot", "", "grounding", "builtin", "5m") is not None


def test_the_weighted_mean_normalises_itself() -> None:
    w = windows(min_samples=1)
    weighted = [(0.0, 1.0), (1.0, 0.25), (1.0, 0.5), (0.0, 1.0), (1.0, 0.25)]
    for i, (value, probability) in enumerate(weighted):
        w.add(trace(i, i, {"error": value, "grounding": value}, probability), "bot")
    expected = sum(v / p for v, p in weighted) / sum(1 / p for _, p in weighted)
    for metric in ("error", "grounding"):
        estimate = w.estimate("bot", "", metric, "builtin", "5m")
        assert estimate is not None
        assert estimate.value == expected
        assert estimate.effective_samples < 5


def test_a_bucket_leaves_the_window_on_the_edge() -> None:
    w = windows()
    w.add(trace(0, 0.0), "bot")
    w.add(trace(1, 9.999), "bot")
    w.add(trace(2, 10.0), "bot")
    w.advance(BASE + 299.999)
    assert w.count_traces("bot", "", "5m") == 3
    w.advance(BASE + 300)  # the 30 buckets now begin at BASE + 10
    assert w.count_traces("bot", "", "5m") == 1
    w.advance(BASE + 310)
    assert w.count_traces("bot", "", "5m") == 0
    w.advance(BASE + 3599)
    assert w.count_traces("bot", "", "1h") == 3
    w.advance(BASE + 3600)
    assert w.count_traces("bot", "", "1h") == 0
    w.advance(BASE + 86399)
    assert w.count_traces("bot", "", "24h") == 3
    w.advance(BASE + 86400)
    assert w.count_traces("bot", "", "24h") == 0
    assert w.services() == []


def test_a_late_trace_enters_the_windows_that_reach_back_to_it() -> None:
    w = windows()
    w.advance(BASE + 7200)
    assert w.add(trace(0, 7200 - 200), "bot")
    assert w.add(trace(1, 7200 - 400), "bot")
    assert w.add(trace(2, 0), "bot")
    assert [w.count_traces("bot", "", name) for name in w.names] == [1, 2, 3]
    assert not w.add(trace(3, -86400), "bot")
    assert w.now == BASE + 7200
    assert w.count_traces("bot", "", "24h") == 3


def test_a_trace_ahead_of_time_moves_it() -> None:
    w = windows()
    w.advance(BASE)
    assert w.add(trace(0, 100), "bot")
    assert w.now == BASE + 100
    w.advance(BASE)
    assert w.now == BASE + 100


def test_every_state_is_counted_and_the_sum_is_seen() -> None:
    w = windows()
    states = [
        ScoreState.NOT_APPLICABLE,
        ScoreState.SAMPLED_OUT,
        ScoreState.UNSCORED,
        ScoreState.SHED,
    ]
    for i, state in enumerate([*states, ScoreState.SCORED, ScoreState.SHED]):
        value = 1.0 if state is ScoreState.SCORED else None
        w.add(trace(i, i, [score("grounding", value, state=state)]), "bot")
    found = w.states("bot", "", "grounding", "builtin", "1h")
    assert found == {
        "scored": 1,
        "not_applicable": 1,
        "sampled_out": 1,
        "unscored": 1,
        "shed": 2,
    }
    assert sum(found.values()) == w.count_traces("bot", "", "1h") == 6
    assert w.estimate("bot", "", "grounding", "builtin", "1h") is None


def test_min_samples_is_the_smallest_evidence() -> None:
    w = windows(min_samples=3)
    for i in range(2):
        w.add(trace(i, i, {"error": 0.0}), "bot")
    assert w.estimate("bot", "", "error", "builtin", "5m") is None
    w.add(trace(2, 2, {"error": 0.0}), "bot")
    estimate = w.estimate("bot", "", "error", "builtin", "5m")
    assert estimate is not None
    assert estimate.samples == 3


def test_equal_scores_are_sane() -> None:
    w = windows()
    for i in range(5):
        w.add(trace(i, i, {"grounding": 1.0, "tokens": 1e6, "relevance": 1.3}), "bot")
    grounding = w.estimate("bot", "", "grounding", "builtin", "5m")
    tokens = w.estimate("bot", "", "tokens", "builtin", "5m")
    relevance = w.estimate("bot", "", "relevance", "builtin", "5m")
    assert grounding is not None
    assert (grounding.value, grounding.upper) == (1.0, 1.0)
    assert 0.5 < grounding.lower < 0.7  # five equal scores do not prove perfection
    assert tokens is not None
    assert (tokens.lower, tokens.value, tokens.upper) == (1e6, 1e6, 1e6)
    assert relevance is not None
    assert relevance.lower < 1.3 < relevance.upper


def test_tiny_probabilities_give_finite_intervals() -> None:
    w = windows(min_samples=1)
    for i in range(6):
        probability = 1e-200 if i == 0 else 1.0
        w.add(trace(i, i, {"error": 1.0, "tokens": 1e15, "grounding": 0.5}, probability), "bot")
    for metric in ("error", "tokens", "grounding"):
        estimate = w.estimate("bot", "", metric, "builtin", "5m")
        assert estimate is not None
        assert math.isfinite(estimate.lower)
        assert estimate.lower <= estimate.value <= estimate.upper < math.inf


def test_a_metric_nobody_described_is_an_unbounded_mean() -> None:
    w = windows()
    for i in range(6):
        w.add(trace(i, i, {"novel": -5.0 - i}), "bot")
    estimate = w.estimate("bot", "", "novel", "builtin", "5m")
    assert estimate is not None
    assert estimate.value == -7.5
    assert w.worst("bot", "novel", "builtin", "5m") == []


def test_latency_by_stage_and_window() -> None:
    w = filled(200, 2.0)
    short = w.quantiles("bot", "", "total", "5m")
    assert [q.quantile for q in short] == [0.5, 0.95, 0.99]
    assert short[0].samples < w.quantiles("bot", "model=a", "total", "1h")[0].samples == 200
    assert w.quantiles("bot", "", "total", "1h")[0].value == pytest.approx(1.99, rel=0.011)
    assert short[2].upper is None
    assert w.quantiles("bot", "", "nothing", "1h") == []


def test_stages_are_bounded_and_counted() -> None:
    w = windows()
    for i in range(10):
        w.add(trace(i, i, timings={"total": 1.0, f"stage-{i}": 1.0}), "bot")
    assert len(w.stages("bot")) == 8
    assert w.take_ignored_stages() == 3
    assert w.count_traces("bot", "", "5m") == 10
    w.advance(BASE + 2 * 86400)
    w.add(trace(99, 2 * 86400, timings={"fresh": 1.0}), "bot")
    assert w.stages("bot") == ["fresh"]


def test_worst_traces_in_order_and_by_window() -> None:
    w = windows()
    for i in range(400):
        w.add(trace(i, i, {"grounding": i / 400, "error": float(i >= 395)}), "bot")
    assert [x.trace_id for x in w.worst("bot", "grounding", "builtin", "1h", 3)] == [
        "trace-0",
        "trace-1",
        "trace-2",
    ]
    # Stream time is 399 s, so the five minutes begin at 100 s; a minute's bucket names five.
    recent = w.worst("bot", "grounding", "builtin", "5m")
    assert [x.timestamp - BASE for x in recent] == sorted(x.timestamp - BASE for x in recent)
    assert all(x.timestamp >= BASE + 100 for x in recent)
    assert {x.trace_id for x in w.worst("bot", "error", "builtin", "5m")} == {
        f"trace-{i}" for i in range(395, 400)
    }
    assert {x.value for x in w.worst("bot", "error", "builtin", "5m")} == {1.0}


def test_worst_ids_are_those_that_can_be_reported_and_few() -> None:
    w = filled(600, 7.0)
    ids = w.worst_ids("bot", 25)
    for name in w.names:
        for metric in ("error", "grounding"):
            assert {x.trace_id for x in w.worst("bot", metric, "builtin", name, 25)} <= ids
    assert len(ids) <= 2 * 3 * 25  # metrics, windows, depth
    assert w.worst_ids("other") == set()
    w.advance(BASE + 3 * 86400)
    assert w.worst_ids("bot") == set()


def test_a_trace_that_came_twice_is_named_once() -> None:
    w = windows()
    for at in (0, 5):
        w.add(trace(1, at, {"error": 1.0}), "bot")
    assert len(w.worst("bot", "error", "builtin", "5m")) == 1


@pytest.mark.parametrize(("name", "points"), [("5m", 30), ("1h", 60), ("24h", 48), ("7d", 56)])
def test_history_has_a_bounded_number_of_points(name: str, points: int) -> None:
    w = windows(windows=("5m", name) if name != "5m" else ("5m",))
    seconds = parse_window(name)
    for i in range(2500):
        w.add(trace(i, i * seconds / 2000, {"error": 0.0}), "bot")
    history = w.history("bot", "", "error", "builtin", name)
    assert points <= len(history) <= points + 1
    times = [at for at, _ in history]
    assert times == sorted(times)
    assert len({b - a for a, b in pairwise(times)}) == 1


def test_history_pools_little_traffic() -> None:
    w = windows()
    for i in range(120):  # two a minute are an hour of noise
        w.add(trace(i, i * 30.0, {"error": float(i % 2)}), "bot")
    points = [point for _, point in w.history("bot", "", "error", "builtin", "1h") if point]
    assert {(point.value, point.samples) for point in points[1:-1]} == {(0.5, 12)}
    assert sum(point.samples for point in points) == 120


def test_history_follows_the_metric() -> None:
    w = windows()
    for i in range(600):
        for _ in range(2):
            w.add(trace(i, i, {"error": float(i >= 480)}), "bot")
    points = dict(w.history("bot", "", "error", "builtin", "1h"))
    before, after = points[BASE + 420], points[BASE + 540]
    assert before is not None
    assert after is not None
    assert (before.value, after.value, after.samples) == (0.0, 1.0, 120)
    assert points[BASE - 60] is None


def test_history_sums_to_the_window() -> None:
    w = filled(900, 90.0)
    for name in w.names:
        history = w.history("bot", "", "grounding", "builtin", name)
        total = sum(point.samples for _, point in history if point)
        assert total == w.states("bot", "", "grounding", "builtin", name)["scored"]


def test_two_windows_may_share_a_grain() -> None:
    w = windows(windows=("5m", "6m", "1h"))
    for i in range(100):
        w.add(trace(i, 10.0 * i), "bot")
    assert [w.count_traces("bot", "", name) for name in w.names] == [30, 36, 100]
    store = Store()
    store.write(w.drain())
    again = windows(windows=("5m", "6m", "1h"))
    again.load(store.read())
    assert read_all(again) == read_all(w)


@pytest.mark.parametrize("names", [[], ["5m", "5m"], ["soon"], ["1s"]])
def test_window_names_are_checked(names: list[str]) -> None:
    with pytest.raises(ValueError, match="window"):
        Windows(names, specs=SPECS)


def test_an_impossible_trace_changes_nothing() -> None:
    w = windows()
    bad = trace(0, 0)._replace(probability=0.0)
    with pytest.raises(ValueError, match="probability"):
        w.add(bad, "bot")
    bad = trace(0, math.nan)
    with pytest.raises(ValueError, match="finite"):
        w.add(bad, "bot")
    assert w.now is None


def test_rows_of_windows_that_are_gone_are_deleted() -> None:
    store = Store()
    w = filled()
    store.write(w.drain())
    other = windows(windows=("5m", "15m"))
    other.load(store.read())
    assert other.count_traces("bot", "", "5m") == 100
    assert other.count_traces("bot", "", "15m") == 100  # a new window begins with the finer buckets
    store.write(other.drain())
    assert {width for _, _, width, _ in store.rows} == {0, 10, 30}


def test_loading_needs_an_empty_object_and_readable_rows() -> None:
    store = Store()
    w = filled()
    store.write(w.drain())
    with pytest.raises(ValueError, match="empty"):
        w.load(store.read())
    key = next(key for key in store.rows if key[2])
    store.rows[key] = b"\x63" + store.rows[key][1:]
    with pytest.raises(ValueError, match="version"):
        windows().load(store.read())


def test_drain_gives_only_what_changed() -> None:
    w = filled()
    assert len(w.drain()) > 20
    assert w.drain() == []
    w.add(trace(1000, 99.5, {"error": 0.0}), "bot")
    assert [row[2:4] for row in w.drain()] == [
        (0, 0),
        (10, BASE + 90),
        (60, BASE + 60),
        (600, BASE),
    ]


def test_state_is_bounded_however_long_the_stream() -> None:
    w = windows()
    store = Store()
    sizes = []
    for i in range(5000):
        w.add(trace(i, i * 600.0, {"error": 0.0}, timings={"total": 1.0}), "bot", ["model=a"])
        if i % 1000 == 999:
            store.write(w.drain())
            sizes.append(len(store.rows))
    # The clock; of the service and its segment 1 of 5m, 6 of 1h and 144 of 24h at a trace in ten
    # minutes; and 52 or 53 of the service's 56 of the archive: the newest are those of 24h.
    assert {size - 1 - 2 * (1 + 6 + 144) for size in sizes[-3:]} <= {52, 53}


def archived() -> Windows:
    """16 days of a trace in ten minutes: errors for the first eight, slow for the last."""
    return copy.deepcopy(_archived())


@cache
def _archived() -> Windows:
    w = windows()
    for i in range(16 * 144):
        took = 9.0 if i >= 15 * 144 else 1.0
        failed = float(i < 8 * 144)
        t = trace(i, i * 600.0, {"error": failed}, timings={"total": took, "generation": 1.0})
        w.add(t, "bot", ["model=a"])
    return w


def test_what_left_the_longest_window_stays_in_charts_for_two_weeks() -> None:
    w = archived()
    points = w.history("bot", "", "error", "builtin", "14d")
    assert len(points) == 56
    assert [point.samples for _, point in points if point][:-1] == [36] * 55  # one is open
    values = [point.value for _, point in points if point]
    assert values == sorted(values, reverse=True)
    assert values.count(1.0) in (23, 24)
    week = w.history("bot", "", "error", "builtin", "7d")
    assert week == points[-28:]
    assert w.history("bot", "", "error", "builtin", "6h")[0][0] >= week[-2][0]
    assert w.states("bot", "", "error", "builtin", "24h")["scored"] == 144
    # a segment has no archive
    assert sum(bool(p) for _, p in w.history("bot", "model=a", "error", "builtin", "14d")) < 6


def test_the_archive_survives_a_restart_to_the_byte() -> None:
    w = archived()
    store = Store()
    store.write(w.drain())
    again = windows()
    again.load(store.read())
    for metric in ("error", "latency"):
        scorer = "total" if metric == "latency" else "builtin"
        before = w.history("bot", "", metric, scorer, "14d")
        assert again.history("bot", "", metric, scorer, "14d") == before
    assert again.drain() == []


def test_state_of_a_version_without_archive_is_read_and_begins_one() -> None:
    w = archived()
    store = Store()
    store.write(w.drain())
    again = windows()
    again.load([row for row in store.read() if row[2] != 21_601])
    points = again.history("bot", "", "error", "builtin", "14d")
    assert sum(point.samples for _, point in points if point) == 144
    again.add(trace(9999, 17 * 86_400.0, {"error": 1.0}), "bot")
    points = again.history("bot", "", "error", "builtin", "14d")
    assert sum(point.samples for _, point in points if point) == 145


def test_windows_of_two_weeks_need_no_archive() -> None:
    w = archived()
    store = Store()
    store.write(w.drain())
    longer = windows(windows=("1h", "30d"))
    longer.load(store.read())
    for i in range(3):
        longer.add(trace(i, (40 + i) * 86_400.0, {"error": 0.0}), "bot")
    assert 21_601 not in {row[2] for row in longer.drain() if row[4] is not None}
    points = longer.history("bot", "", "error", "builtin", "14d")
    assert sum(point.samples for _, point in points if point) == 3


def test_latency_over_time_has_fewer_points_where_traces_are_few() -> None:
    points = archived().history("bot", "", "latency", "total", "14d")
    known = [point for _, point in points if point]
    assert 12 <= len(known) <= 16
    assert round(known[0].value, 1) == 1.0
    assert known[-1].value > 8
    assert archived().history("bot", "", "latency", "generation", "14d")[0][1] is None


def test_when_the_newest_trace_came() -> None:
    w = archived()
    last = BASE + (16 * 144 - 1) * 600.0
    assert w.newest_trace("bot") == last
    w.advance(last + 1800)
    assert w.newest_trace("bot") == last + 60  # the end of its bucket of a minute
    assert w.newest_trace("nobody") is None


def test_a_bucket_of_the_past_by_its_width_and_start() -> None:
    w = filled(100, 7.0)  # 700 s of traces: grains of 10, 60 and 600 s
    assert w.bucket("bot", "", "error", "builtin", 60, BASE + 60).scored == 9  # type: ignore[union-attr]
    cell = w.bucket("bot", "model=a", "error", "builtin", 300, BASE + 300)
    assert cell is not None  # five buckets of a minute: the ring of ten seconds forgets too soon
    times = [i * 7.0 for i in range(100)]
    assert cell.scored == sum(300 <= at < 600 for at in times)
    assert w.bucket("bot", "", "error", "builtin", 600, BASE).scored == 86  # type: ignore[union-attr]
    hist = w.bucket_latency("bot", "", "total", 60, BASE + 600)
    assert hist is not None
    assert hist.n == sum(600 <= at < 660 for at in times)


def test_there_is_no_bucket_that_no_ring_has() -> None:
    w = filled()
    bucket = w.bucket
    assert bucket("bot", "", "error", "builtin", 60, BASE + 5) is None  # off every grid
    assert bucket("bot", "", "error", "builtin", 7, BASE) is None
    assert bucket("bot", "", "error", "builtin", 60, BASE + 120) is None  # nothing came
    assert bucket("other", "", "error", "builtin", 60, BASE) is None
    assert bucket("bot", "", "nothing", "builtin", 60, BASE) is None
    assert w.bucket_latency("bot", "", "retrieval", 60, BASE) is None
    assert Windows(specs=SPECS).bucket("bot", "", "error", "builtin", 60, BASE) is None
    w.advance(BASE + 3700)
    assert bucket("bot", "", "error", "builtin", 60, BASE) is None  # an hour has passed
    assert bucket("bot", "", "error", "builtin", 600, BASE) is not None


def test_a_late_trace_changes_its_own_bucket_only() -> None:
    w = filled(600)
    before = [w.bucket("bot", "", "error", "builtin", 60, BASE + at) for at in range(0, 600, 60)]
    w.add(trace(1000, 70.0, {"error": 1.0}), "bot")
    after = [w.bucket("bot", "", "error", "builtin", 60, BASE + at) for at in range(0, 600, 60)]
    changed = [
        i
        for i, (a, b) in enumerate(zip(before, after, strict=True))
        if a.n != b.n  # type: ignore[union-attr]
    ]
    assert changed == [1]
