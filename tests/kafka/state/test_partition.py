from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest
from ragmeter.aggregate.counting import Arriving, TraceCounting
from ragmeter.aggregate.evidence import encode_evidence
from ragmeter.core.errors import UnknownVersion
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.kafka.origins import Origin
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset
from ragmeter.kafka.scores_topic import DocumentRecord
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import HEAD, MalformedState, row_key
from ragmeter.kafka.state.seen_ids import SeenIdRows
from ragmeter.parts.contract import Arrival
from ragmeter.parts.labels.documents import LabelDocument

from tests.embedded.test_agent import settings as settings_of
from tests.kafka.state.partition import (
    SCORER,
    apply,
    commit,
    flat,
    record,
    reloaded,
    split_row_key,
    state_of,
)
from tests.parts.labels.samples import reported
from tests.traces import START, make_trace


def test_a_step_writes_one_row_of_counters_for_a_service_and_nothing_that_is_as_it_was() -> None:
    state = state_of()
    rows = dict[bytes, bytes]()
    apply(state, [record(n, service=f"s{n % 5}") for n in range(50)])
    commit(state, rows)
    apply(state, [record(51, service="s1")])
    step = state.step()
    groups = [parts[0] for kind, parts in map(split_row_key, step.keys() - {HEAD}) if kind == "c"]
    assert groups.count("ss1") == 1
    assert not {"ss0", "ss2", "ss3", "ss4"} & set(groups)
    assert row_key("m", "labels") not in step
    assert not state.changed


def test_ids_are_known_after_many_restarts_and_for_as_long_as_was_said() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of(dedupe=3600)
    template = record(0).scored

    def one(number: int, at: float, partition: int = 0) -> ScoreRecord:
        scored = template._replace(trace_id=f"t{number}", timestamp=START + at)
        return ScoreRecord(scored, SourceOffset(partition, number))

    offset = 0
    for hour in range(4):
        for _ in range(3):
            apply(state, [one(n, hour * 3600 + n / 10) for n in range(offset, offset + 500)])
            offset += 500
            commit(state, rows)
            state = reloaded(rows, dedupe=3600)
    # a generation turns with the eighth trace in a row that says so: `ragmeter.core.dedupe`
    again = (offset - 1, offset - 1500, 3007, 3006, 0)
    apply(state, [one(n, 4 * 3600, partition=1) for n in sorted(again)])
    key = ("ragmeter_traces_duplicate_total", (("source", "kafka"),))
    assert state.aggregator.counters.get(*key) == 3  # two generations; what was before is forgotten
    for _ in range(3):
        apply(state, [one(offset + 10, 4 * 3600, partition=2)])
        commit(state, rows)
    seen = [parts for kind, parts in map(split_row_key, rows.keys() - {HEAD}) if kind == "s"]
    assert len(seen) <= 4, "rows of ids that are over stay"


def test_the_window_of_known_ids_outlives_a_takeover() -> None:
    ids = SeenIdRows(1000.0, most=100)
    rows = dict[bytes, bytes]()
    for number in range(950):
        assert ids.add("s", str(number), float(number))
        if not number % 7:
            flat(ids.drain(), rows)
    flat(ids.drain(), rows)
    window = ids.window(949.0)
    assert 100.0 <= window <= 200.0
    saved = [(split_row_key(key)[1], data) for key, data in rows.items()]
    again = SeenIdRows(1000.0, most=100)
    again.load(json.loads(json.dumps(ids.dump())), saved)
    assert again.window(949.0) == window
    assert not any(again.add("s", str(n), 949.0) for n in range(950 - int(window), 950))
    for one in (ids, again):
        for number in range(950, 1300):
            one.add("s", str(number), float(number))
    assert again.window(1299.0) == ids.window(1299.0)


def test_a_record_that_fails_can_be_given_up_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    apply(state, [record(0)])
    commit(state, rows)
    honest = TraceCounting.count_run

    def poisoned(self: TraceCounting, arriving: Sequence[Arriving]) -> list[Arrival]:
        applied = honest(self, arriving)
        if any(scored.trace_id == "t2" for scored, _ in arriving):
            raise OverflowError("too large")
        return applied

    monkeypatch.setattr(TraceCounting, "count_run", poisoned)
    with pytest.raises(OverflowError):
        apply(state, [record(n) for n in (1, 2, 3)])
    with pytest.raises(RuntimeError, match="anew"):
        state.step()
    state = reloaded(rows)
    apply(state, [record(1)])
    state.give_up(record(2))
    apply(state, [record(3)])
    state = reloaded(commit(state, rows))
    assert state.aggregator.windows.count_traces("bot", "", "24h") == 3
    label = (("reason", "internal_error"),)
    assert state.aggregator.counters.get("ragmeter_dead_letters_total", label) == 1


def test_text_of_the_worst_is_asked_for_kept_and_let_go() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    apply(state, [record(n, answer="It costs 99 euros [7].") for n in range(3)])
    state = reloaded(commit(state, rows))  # what is wanted survives
    wanted = state.evidence.missing_texts()
    assert sorted(key for key, _ in wanted) == [("bot", f"t{n}") for n in range(3)]
    key, found = wanted[0]
    assert found.source == SourceOffset(0, int(key[1][1:]))
    pending = json.loads(state.evidence.get(key) or b"")
    assert pending["trace"]["content"] == "pending"
    assert pending["results"]
    state.evidence.save_text(key, encode_evidence(make_trace(0), found.scored, 10_000))
    state.evidence.save_text(wanted[1][0], None)
    state.evidence.save_text(("bot", "nobody"), b"{}")
    assert state.changed
    state = reloaded(commit(state, rows))
    kept, gone = state.evidence.get(key), state.evidence.get(wanted[1][0])
    assert kept is not None
    assert gone is not None
    assert json.loads(kept)["trace"]["query"]
    assert json.loads(gone)["trace"]["content"] == "gone"
    assert json.loads(gone)["results"]
    assert state.evidence.get(("bot", "nobody")) is None
    assert len(state.evidence.missing_texts()) == 1
    for n in range(10, 13):
        apply(state, [record(n, timestamp=START + 90_000 + n * 100)])
        commit(state, rows)
    left = [parts for kind, parts in map(split_row_key, rows.keys() - {HEAD}) if kind == "e"]
    assert ["bot", key[1]] not in left


@pytest.mark.slow
def test_notifications_wait_until_they_are_done() -> None:
    rows: dict[bytes, bytes] = {}
    state = state_of()
    apply(state, [record(n, status="error") for n in range(200)])
    apply(state, [record(n) for n in range(200, 3000)])
    state = reloaded(commit(state, rows))
    (firing,) = state.outbox.due(START, 10)  # resolved waits behind it
    assert firing.id.endswith("-open")
    state.outbox.retry(firing.id, START + 60)
    assert state.outbox.due(START, 10) == []
    assert state.outbox.due(START + 60, 10)[0].attempts == 1
    state.outbox.done(firing.id)
    assert state.changed
    state = reloaded(commit(state, rows))
    (resolved,) = state.outbox.due(START, 10)
    assert resolved.id.endswith("-over")
    state.outbox.done(resolved.id)
    commit(state, rows)
    assert not [key for key in rows if key != HEAD and split_row_key(key)[0] == "o"]


def test_a_record_of_other_settings_leaves_seen_the_sum_of_the_states() -> None:
    state = state_of()
    other = record(1)
    results = list(other.scored.results)
    results[3] = Score("relevance", "umbrela", ScoreState.SCORED, 0.5)
    other.scored = other.scored._replace(results=results)
    apply(state, [record(0), other])
    sums: dict[str, float] = {"ragmeter_seen_total": 0, "ragmeter_results_total": 0}
    for (name, _), value in state.aggregator.counters.items():
        if name in sums:
            sums[name] += value
    assert sums["ragmeter_seen_total"] == sums["ragmeter_results_total"] > 0
    assert state.aggregator.counters.get("ragmeter_unexpected_results_total") == 1


def test_probes_count_at_the_time_reached_and_once() -> None:
    state = state_of()
    probe = ScoreRecord(
        ScoredTrace(
            "p1", "__probes__", 0.0, "ok", [Score("error", "builtin", ScoreState.SCORED, 0.0)]
        ),
        None,
    )
    apply(state, [record(0), deepcopy(probe), deepcopy(probe)])
    assert state.aggregator.windows.now == START
    key = ("ragmeter_seen_total", (("metric", "error"), ("scorer", "builtin")))
    assert state.aggregator.counters.get(*key) == 2


def test_time_moves_on_while_nothing_arrives() -> None:
    clock = [0.0]
    state = PartitionState(
        settings_of(Path("unused")),
        [],
        SCORER.pairs,
        dedupe=3600,
        clock=lambda: START + clock[0],
        monotonic=lambda: clock[0],
    )
    state.tick()
    apply(state, [record(0)])
    state.step()
    clock[0] = 30.0
    state.tick()
    assert state.aggregator.windows.now == START + 30
    assert not state.changed
    clock[0] = 61.0
    state.tick()
    assert state.changed


@pytest.mark.parametrize(
    ("row", "head"),
    [
        (b"not json", b'{"v": 1, "seen": [0, null], "wall_time": 0}'),
        (b'["b","bot","",10,0]', b"{}"),
        (b'["b","bot","",10,0]', b"not json"),
        (b'["b","bot","",10,0]', None),
    ],
)
def test_rows_that_make_no_sense_are_refused(row: bytes, head: bytes | None) -> None:
    with pytest.raises(MalformedState):
        state_of().load({row: b"\x00"} | ({} if head is None else {HEAD: head}))


def test_a_state_of_another_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownVersion, match="version 2; this program reads version 1"):
        state_of().load({HEAD: b'{"v": 2}'})


def test_what_the_score_stage_sends_again_is_known_by_its_offset_and_after_a_restart() -> None:
    """Whatever its id, and though another worker has scored it otherwise."""
    state = state_of()
    rows = dict[bytes, bytes]()
    first, again = record(1), record(1)
    again.scored = again.scored._replace(trace_id="other")
    origin = Origin("rag.traces", 0, 1, 0, 1)
    assert state.take_new([first], origin) == [first]
    apply(state, [first])
    assert state.take_new([again, record(2)], origin) == [record(2)]
    apply(state, [record(2)])
    commit(state, rows)
    for one in (state, reloaded(rows)):
        assert one.take_new([first, again], origin) == []
        assert one.take_new([record(3)], origin._replace(first=3)) == [record(3)]
    assert state.take_new([ScoreRecord(first.scored, None)], origin), "a probe's"


def test_a_label_that_is_sent_again_is_known_by_its_offset() -> None:
    state = state_of()
    document = DocumentRecord("labels", LabelDocument.of(reported(1)), START)
    origin = Origin("rag.feedback", 0, 1, 0, 1)
    assert state.take_new(document, origin) == [document]
    assert state.take_new(document, origin) == []
    assert state.take_new(document, origin._replace(topic="rag.traces")) == [document]
