"""Counting the traces of a record together leaves the rows that counting each alone leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset
from ragmeter.kafka.scores_topic import DocumentRecord
from ragmeter.kafka.state.partition import PartitionState, ScoresRecord
from ragmeter.kafka.state.rows import Rows
from ragmeter.parts.labels import join
from ragmeter.parts.labels.documents import LabelDocument

from tests.parts.labels.samples import reported

START = 1_760_000_000.0
PAIRS = (("error", "builtin"), ("answered", "builtin"), ("grounding", "builtin"))


def trace(rng: random.Random, number: int, service: str, at: float) -> ScoreRecord:
    """One of a busy service: mostly in order and plain, and now and then what is neither."""
    kind = rng.random()
    if kind < 0.02:
        at -= rng.choice([30, 3_600, 90_000, 400_000])  # late, and too late
    elif kind < 0.03:
        at += 45  # ahead: it moves event time
    p = rng.choice([1.0, 1.0, 1.0, 0.5, 0.3])
    status = rng.choices(["ok", "error", "timeout"], [30, 1, 1])[0]
    absent = rng.choice(["no_text", "language"])
    results = [
        Score(*PAIRS[0], ScoreState.SCORED, float(status == "error"), None, p),
        Score(*PAIRS[1], ScoreState.SCORED, 1.0, None, p),
        Score(*PAIRS[2], ScoreState.SCORED, rng.random(), None, p)
        if rng.random() < 0.9
        else Score(*PAIRS[2], ScoreState.UNSCORED, None, absent, p),
    ]
    if rng.random() < 0.01:
        results.pop()  # of a worker with other scorers
    scored = ScoredTrace(
        trace_id=f"t{number - (rng.random() < 0.02)}",  # some come twice
        service=service,
        timestamp=at,
        status=status,  # type: ignore[arg-type]
        results=results,
        probability=p,
        timings={"total": rng.expovariate(0.2), **({"odd\n": 1.0} if kind > 0.995 else {})},
        tags={"model": rng.choice("ab"), "tenant": f"t{rng.randrange(12)}"},
        input_tokens=rng.randrange(2_000),
        cost_usd=rng.random() / 100,
        canary=0.1 < kind < 0.11,
        passages=("0" * 16,),
    )
    return ScoreRecord(scored, SourceOffset(0, number))


def messages(seed: int, count: int = 1_500) -> list[list[ScoreRecord] | DocumentRecord]:
    rng = random.Random(seed)
    made = list[list[ScoreRecord] | DocumentRecord]()
    at = START
    number = 0
    while number < count:
        service = rng.choices(["hot", "cold"], [9, 1])[0]
        record = []
        for _ in range(rng.choice([1, 5, 40, 300])):
            at += rng.expovariate(20)
            number += 1
            record.append(trace(rng, number, service, at))
        made.append(record)
        for _ in range(rng.randrange(3)):  # labels of what came, of what comes, and of nothing
            about = rng.randrange(number + 400)
            item = reported(about, service=service, scorer="reviewers")
            made.append(DocumentRecord("labels", LabelDocument.of(item), at))
    return made


def state(**overrides: object) -> PartitionState:
    settings = load_settings(
        environ={}, overrides={"segments": ["tenant"], "limits": {"segment_values": 8}, **overrides}
    )
    return PartitionState(
        settings,
        load_configured_rules(settings),
        PAIRS,
        dedupe=3_600.0,
        clock=lambda: START,
        monotonic=lambda: 0.0,
        parts=PARTS,
    )


def rows_after(
    one: PartitionState,
    made: Sequence[list[ScoreRecord] | DocumentRecord],
    count: Callable[[PartitionState, list[ScoreRecord]], None],
) -> list[Rows]:
    """The rows of a step every few messages."""
    steps = []
    for number, message in enumerate(made):
        if isinstance(message, list):
            count(one, message)
        else:
            one.apply(message)
        if number % 7 == 0:
            one.settle()
            steps.append(one.step())
    return [*steps, one.step()]


def each(one: PartitionState, records: Sequence[ScoresRecord]) -> None:
    for record in records:
        one.apply(record)


@pytest.mark.parametrize(
    ("seed", "overrides"),
    [
        (1, {}),
        (2, {"segments": []}),
        (3, {"windows": ["1h", "24h"], "segments": []}),
        (4, {"limits": {"services": 1}}),
        (5, {"feedback": {"traces": 300}, "alerts": {"evaluation_seconds": 7}}),
    ],
)
def test_the_traces_of_a_record_count_together_as_each_alone(
    seed: int, overrides: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "feedback" in overrides:
        monkeypatch.setattr(join, "MOST_WAITING", 20)
    together = rows_after(state(**overrides), messages(seed), PartitionState.apply_all)
    alone = rows_after(state(**overrides), messages(seed), each)
    assert any(b'"joined"' in (value or b"") for rows in alone for value in rows.values())
    for number, (some, same) in enumerate(zip(together, alone, strict=True)):
        assert some.keys() == same.keys(), number
        for key, value in some.items():
            assert value == same[key], (number, key)


def test_the_rows_do_not_depend_on_where_records_end() -> None:
    made = [message for message in messages(6) if isinstance(message, list)]
    flat = [record for message in made for record in message if record.scored.service == "hot"]
    large, small = state(), state()
    large.apply_all(flat)
    for first in range(0, len(flat), 37):
        small.apply_all(flat[first : first + 37])
    assert large.step() == small.step()


def test_most_of_a_busy_service_is_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    one = state()
    alone = 0
    apply = one.aggregator.apply

    def counted(scored: ScoredTrace) -> object:
        nonlocal alone
        alone += 1
        return apply(scored)

    monkeypatch.setattr(one.aggregator, "apply", counted)
    made = [message for message in messages(7) if isinstance(message, list)]
    for message in made:
        one.apply_all(message)
    assert alone < 0.3 * sum(map(len, made))
