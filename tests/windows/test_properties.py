"""What must hold for any stream: order, batches, readings and restarts change nothing."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.score import ScoredTrace
from ragmeter.windows.windows import Windows

from tests.windows.helpers import SPECS, Store, read_all, trace, windows
from tests.windows.test_bucket_builder import some_score

Event = tuple[ScoredTrace, str, tuple[str, ...]]

SEGMENTS = ((), ("model=a",), ("model=b", "tenant=x"))


def events(seed: int, number: int, span: float) -> list[Event]:
    """In order of time, spread over `span` seconds."""
    rng = random.Random(seed)
    found: list[Event] = []
    for i, at in enumerate(sorted(rng.uniform(0, span) for _ in range(number))):
        metrics = rng.sample(sorted(SPECS), rng.randint(1, len(SPECS)))
        one = trace(i, at, [some_score(metric, rng) for metric in metrics])
        probability = rng.choice([1.0, 0.1])
        stages = rng.sample(["total", "retrieval", "generation"], rng.randint(0, 3))
        timings = {stage: rng.lognormvariate(-2, 2) for stage in stages}
        one = one._replace(probability=probability, timings=timings)
        found.append((one, f"service-{rng.randint(0, 1)}", rng.choice(SEGMENTS)))
    return found


def feed(w: Windows, stream: list[Event]) -> None:
    for one, service, segments in stream:
        w.add(one, service, segments)


@given(st.integers(0, 10**6), st.sampled_from([20.0, 4000.0, 80_000.0]), st.data())
@settings(max_examples=6, deadline=None, derandomize=True)
def test_order_batches_and_readings_change_no_byte(
    seed: int, span: float, data: st.DataObject
) -> None:
    stream = events(seed, 40, span)
    end = stream[-1][0].timestamp
    plain = windows()
    plain.advance(end)
    feed(plain, stream)
    other = windows()
    other.advance(end)
    shuffled = data.draw(st.permutations(stream))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        feed(other, shuffled[start:stop])
        read_all(other)
    assert other.drain() == plain.drain()
    assert read_all(other) == read_all(plain)


@given(
    st.integers(0, 10**6),
    st.sampled_from([300.0, 4000.0, 300_000.0]),
    st.lists(st.integers(1, 79), min_size=1, max_size=6),
)
@settings(max_examples=6, deadline=None, derandomize=True)
def test_restarts_change_nothing(seed: int, span: float, stops: list[int]) -> None:
    stream = events(seed, 80, span)
    random.Random(seed).shuffle(chunk := stream[40:60])  # some come late and out of order
    stream[40:60] = chunk
    undisturbed = windows()
    disturbed = windows()
    store = Store()
    for i, (one, service, segments) in enumerate(stream):
        taken = undisturbed.add(one, service, segments)
        assert disturbed.add(one, service, segments) == taken
        if i in stops:
            store.write(disturbed.drain())
            disturbed = windows()
            disturbed.load(store.read())
            assert read_all(disturbed) == read_all(undisturbed)
    store.write(disturbed.drain())
    clean = Store()
    clean.write(undisturbed.drain())
    assert store.rows == clean.rows
    for name in undisturbed.services():
        assert disturbed.worst_ids(name) == undisturbed.worst_ids(name)


@given(st.integers(0, 10**6), st.sampled_from([3000.0, 200_000.0]))
@settings(max_examples=4, deadline=None, derandomize=True)
def test_running_totals_do_not_drift(seed: int, span: float) -> None:
    """A window that has seen much and lost most equals one that only saw the rest."""
    stream = events(seed, 120, span)
    rolled = windows()
    for one, service, segments in stream:
        rolled.advance(one.timestamp)
        rolled.add(one, service, segments)
        rolled.services()
    fresh = windows()
    fresh.advance(stream[-1][0].timestamp)
    feed(fresh, stream)
    assert read_all(fresh) == read_all(rolled)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_seen_is_the_sum_of_the_states(seed: int) -> None:
    w = windows()
    stream = events(seed, 60, 4000.0)
    feed(w, stream)
    for service in w.services():
        for segment in ("", *w.segments(service)):
            for metric, scorer in w.series(service, segment):
                notified = [
                    score
                    for one, at, segments in stream
                    for score in one.results
                    if at == service and score.metric == metric and segment in ("", *segments)
                ]
                states = w.states(service, segment, metric, scorer, "24h")
                assert sum(states.values()) == len(notified)
