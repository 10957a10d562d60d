"""Results that failed: counted by reason, their traces named, added and taken away exactly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.failures import (
    FAILURE_REASONS,
    OTHER_REASON,
    TRACE_REASONS,
    add_failures,
    failed_worst_key,
    failure_reason,
)

from tests.windows.helpers import BASE, Store, score, trace, windows

METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def failed(reason: str | None = "judge_timeout", scorer: str = "judge", **more: object) -> Score:
    return Score("grounding", scorer, ScoreState.UNSCORED, None, reason, **more)  # type: ignore[arg-type]


def judged(value: float = 1.0, scorer: str = "judge") -> Score:
    return Score("grounding", scorer, ScoreState.SCORED, value)


def test_every_reason_of_the_page_is_sorted_into_ours_or_the_traces() -> None:
    rows = re.findall(r"^\| (`.*?) \| `unscored` \|", METRICS_PAGE.read_text("utf-8"), re.M)
    assert {
        name for row in rows for name in re.findall(r"`(\w+)`", row)
    } == FAILURE_REASONS | TRACE_REASONS
    assert not FAILURE_REASONS & TRACE_REASONS


@pytest.mark.parametrize(
    "state", [ScoreState.NOT_APPLICABLE, ScoreState.SAMPLED_OUT, ScoreState.SHED]
)
def test_no_other_state_is_a_fault(state: ScoreState) -> None:
    assert failure_reason(Score("grounding", "judge", state, None, "judge_error")) is None


def test_reasons_from_outside_are_one() -> None:
    assert failure_reason(failed("made-up")) == failure_reason(failed(None)) == OTHER_REASON
    assert failure_reason(failed("no_text")) is None
    assert failure_reason(score("grounding", float("nan"))) == "internal_error"


@pytest.mark.parametrize("number", [4, 40])  # a plain loop, and columns
@pytest.mark.parametrize("stratum", ["", "rest"])
def test_the_share_is_of_what_should_have_a_value(number: int, stratum: str) -> None:
    w = windows(min_samples=1)
    for i in range(number):
        kinds = [failed(), judged(), failed("no_query"), failed("model_error")]
        found = kinds[i % 4]
        found.stratum = stratum
        part = trace(i, i % 8, [found])._replace(partial=bool(stratum))
        w.add(part, "bot", ["model=a"] if i % 2 else [])
    read = w.failed("bot", "", "grounding", "judge", "5m")
    assert read is not None
    assert (read.samples, read.value) == (number, 0.5)
    quarter = number // 4
    assert list(read.reasons.items()) == [("judge_timeout", quarter), ("model_error", quarter)]
    assert read.lower < 0.5 < read.upper
    named = w.worst("bot", *failed_worst_key("grounding", "judge"), "5m", limit=100)
    assert {int(item.trace_id[6:]) % 4 for item in named} <= {0, 3}
    assert len(named) == min(5, number // 2)
    part_read = w.failed("bot", "model=a", "grounding", "judge", "5m")
    assert part_read is not None
    assert part_read.reasons == {"model_error": quarter}
    assert w.failing("bot", "5m") == [("grounding", "judge")]


def test_a_version_counts_for_its_scorer() -> None:
    w = windows(min_samples=1, current={("grounding", "judge"): "judge@ab12"})
    w.add(trace(1, 0, [failed(scorer="judge@ab12"), judged(scorer="judge@ab12")]), "bot")
    read = w.failed("bot", "", "grounding", "judge", "5m")
    assert read is not None
    assert (read.value, read.samples) == (0.5, 2)


def test_they_expire_and_survive_a_restart() -> None:
    w = windows(min_samples=1)
    store = Store()
    w.add(trace(1, 0, [failed()]), "bot")
    w.add(trace(2, 1000, [judged()]), "bot")
    store.write(w.drain())
    again = windows(min_samples=1)
    again.load(store.read())
    for one in (w, again):
        assert one.failed("bot", "", "grounding", "judge", "1h").reasons == {"judge_timeout": 1}  # type: ignore[union-attr]
        assert one.failing("bot", "5m") == []
        now = one.failed("bot", "", "grounding", "judge", "5m")
        assert now is not None
        assert (now.value, now.samples) == (0.0, 1)
        before = one.failed_before("bot", "", "grounding", "judge", "5m")
        assert before is not None
        assert (before.value, before.samples) == (1.0, 1)


counts = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.just("judge")),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(1, 3), min_size=1),
)


@settings(deadline=None, derandomize=True)
@given(counts, counts, counts)
def test_sums_are_free_of_order_and_can_be_undone(
    a: dict[tuple[str, str], dict[str, int]],
    b: dict[tuple[str, str], dict[str, int]],
    c: dict[tuple[str, str], dict[str, int]],
) -> None:
    left = add_failures(add_failures(add_failures(None, a), b), c)
    assert left == add_failures(add_failures(add_failures(None, c), a), b)
    assert add_failures(left, c, -1) == add_failures(add_failures(None, a), b)


def test_before_is_what_the_longest_window_knows_without_the_short_one() -> None:
    w = windows()
    for i in range(100):
        w.add(trace(i, i * 20.0, {"error": float(i >= 90)}, timings={"total": 1 + i // 90}), "bot")
    cell = w.sums_before("bot", "", "error", "builtin", "5m")
    now = w.cell("bot", "", "error", "builtin", "5m")
    assert cell is not None
    assert now is not None
    assert cell.scored + now.scored == 100
    assert now.scored == w.count_traces("bot", "", "5m")
    assert w.value_before("bot", "", "error", "builtin", "5m") == 0.0
    assert w.sums_before("bot", "", "error", "builtin", "24h") is None
    hist = w.histogram_before("bot", "", "total", "5m")
    assert hist is not None
    assert hist.n == cell.scored
    assert hist.quantile(0.5) == pytest.approx(1, rel=0.01)
    assert w.histogram_before("bot", "", "total", "24h") is None
    assert w.sums_before("bot", "", "tokens", "builtin", "5m") is None


def test_worst_traces_of_a_segment_are_kept_where_asked_for() -> None:
    w = windows(worst_of=["model"], name_worst=True)
    store = Store()
    for i in range(60):
        one = trace(i, i % 10, {"error": 1.0})
        w.add(one, "bot", [f"model={'ab'[i == 7]}", "tenant=x"])
    assert [x.trace_id for x in w.worst("bot", "error", "builtin", "5m", segment="model=b")] == [
        "trace-7"
    ]
    assert len(w.worst("bot", "error", "builtin", "5m", segment="model=a")) == 5
    assert w.worst("bot", "error", "builtin", "5m", segment="tenant=x") == []
    assert ("bot", "trace-7") in w.take_new_worst()
    assert "trace-7" in w.worst_ids("bot")
    store.write(w.drain())
    again = windows(worst_of=["model"])
    again.load(store.read())
    assert again.worst("bot", "error", "builtin", "1h", segment="model=b") == w.worst(
        "bot", "error", "builtin", "1h", segment="model=b"
    )
    plain = windows()
    plain.add(ScoredTrace("t", "bot", BASE, "ok", [score("error", 1.0)]), "bot", ["model=b"])
    assert plain.worst("bot", "error", "builtin", "5m", segment="model=b") == []
