from __future__ import annotations

import random
from collections.abc import Sequence

from ragmeter.core.score import ScoredTrace, ScoreState
from ragmeter.windows.windows import Windows

from tests.tables import each_row
from tests.windows.helpers import BASE, score, trace, windows

SEGMENTS = ("model=a", "tenant=x")


def part(number: int, at: float, value: float | None, probability: float = 1.0) -> ScoredTrace:
    """What labels say of a trace; None: the metric does not apply."""
    state = ScoreState.NOT_APPLICABLE if value is None else ScoreState.SCORED
    scores = [score("grounding", value, probability, state), score("answered", 1.0, probability)]
    return trace(number, at, scores)._replace(partial=True)


def whole(number: int, at: float) -> ScoredTrace:
    return trace(number, at, {"error": 0.0}, timings={"total": 1.0})


def content(windows: Windows) -> Sequence[object]:
    return sorted(windows.drain())


def reloaded(source: Windows) -> Windows:
    rows = source.drain()
    found = windows()
    found.load(rows)
    found.drain()
    return found


@each_row("probability", [1.0, 0.25])
@each_row("seed", range(4))
def test_what_was_corrected_counts_as_if_it_had_come_right(seed: int, probability: float) -> None:
    rng = random.Random(seed)
    corrected, right = windows(worst_of={"model"}), windows(worst_of={"model"})
    for number in range(5):  # no more than a bucket keeps of its worst
        at = rng.uniform(0, 5_000)
        first, last = rng.choice([0.0, 0.5, 1.0, None]), rng.choice([0.0, 0.5, None])
        for one in (corrected, right):
            one.add(whole(number, at), "bot", SEGMENTS)
        corrected.add(part(number, at, first, probability), "bot", SEGMENTS)
        if rng.random() < 0.5:
            corrected.series("bot")  # a reader folds what waits
        corrected.retract(part(number, at, first, probability), "bot", SEGMENTS)
        for one in (corrected, right):
            one.add(part(number, at, last, probability), "bot", SEGMENTS)
    assert content(corrected) == content(right)
    for one in (corrected, right):
        one.advance(BASE + 200_000)
    assert corrected.services() == right.services() == []


def test_a_window_that_has_moved_on_stays_as_it_is() -> None:
    """The 5 min bucket is gone when the correction comes, that of 24 h is not."""
    found = windows(min_samples=1)
    found.add(whole(1, 0), "bot")
    found.add(part(1, 0, 1.0), "bot")
    found = reloaded(found)
    found.advance(BASE + 4_000)
    found.add(whole(2, 4_000), "bot")
    found.retract(part(1, 0, 1.0), "bot")
    assert found.states("bot", "", "grounding", "builtin", "5m")["scored"] == 0
    assert found.states("bot", "", "grounding", "builtin", "24h")["scored"] == 0
    assert found.count_traces("bot", "", "24h") == 2
    found.add(part(1, 0, 0.25), "bot")
    estimate = found.estimate("bot", "", "grounding", "builtin", "24h")
    assert estimate is None or estimate.value == 0.25
    assert found.states("bot", "", "grounding", "builtin", "24h")["scored"] == 1
    assert found.estimate("bot", "", "grounding", "builtin", "5m") is None


def test_what_no_bucket_holds_is_not_taken_away() -> None:
    """A window that is new in the configuration began without what was counted before."""
    found = windows()
    found.add(whole(1, 0), "bot")
    before = content(found)
    found.retract(part(1, 0, 1.0), "bot")
    found.retract(part(1, 0, 1.0)._replace(timestamp=BASE - 1e6), "bot")
    assert content(found) == []
    assert before


def test_a_trace_that_is_no_longer_bad_is_no_longer_named() -> None:
    found = windows()
    for number in range(3):
        found.add(whole(number, 0), "bot")
        found.add(part(number, 0, 0.1 * number), "bot")
    found.retract(part(0, 0, 0.0), "bot")
    found.add(part(0, 0, 1.0), "bot")
    worst = found.worst("bot", "grounding", "builtin", "1h")
    assert [one.trace_id for one in worst] == ["trace-1", "trace-2"]


def test_a_bucket_that_was_emptied_by_a_retraction_expires() -> None:
    """The segment has no other trace, so its total is gone before the emptied bucket is."""
    found = windows()
    found.add(part(1, 0, 1.0), "bot", SEGMENTS)
    found.retract(part(1, 0, 1.0), "bot", SEGMENTS)
    found.add(part(2, 20, 1.0), "bot", SEGMENTS)
    found.retract(part(2, 20, 1.0), "bot", SEGMENTS)
    found.advance(BASE + 300)
    found.advance(BASE + 400)
    assert found.states("bot", SEGMENTS[0], "grounding", "builtin", "5m")["scored"] == 0
