"""What a partition counts does not hang on crashes, and is what the embedded agent
counts."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ragmeter.ingest.native import DecodedTrace
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_scores, encode_scores
from ragmeter.kafka.state.rows import HEAD, row_key
from ragmeter.parts.views import Incident
from ragmeter.store.rows import OutboxItem

from tests.embedded.test_agent import ERRORS, feed, mixed, running
from tests.kafka.state.partition import (
    SCORER,
    apply,
    commit,
    crashing,
    notify,
    reloaded,
    split_row_key,
    state_of,
)
from tests.traces import START, good


@cache
def traffic() -> list[DecodedTrace]:
    """Twenty minutes: services, a model, late ones, an outage that fires and ends, and senders
    that send a trace again."""
    rng = random.Random(5)
    items = [item for item, _ in mixed(300)]
    for n in range(300, 420):
        status = "error" if n < 360 else "ok"
        items.append(good(n, timestamp=START + 3 * n - 600, service="bot", status=status)[0])
    items += [
        good(n, timestamp=START + 660 + 8 * (n - 420), service="bot")[0] for n in range(420, 620)
    ]
    for at in rng.sample(range(400), 25):
        items.insert(at + 30, items[at])
    return items


@cache
def wire(sizes: Sequence[int] = (1, 1, 3, 20)) -> list[bytes]:
    """The log of the scores, of batches of so many traces, each by service."""
    rng = random.Random(7)
    log: list[bytes] = []
    items = list(enumerate(traffic()))
    while items:
        by_service: dict[str, list[ScoreRecord]] = {}
        for _ in range(min(len(items), rng.choice(sizes))):
            number, item = items.pop(0)
            scored = SCORER.score(item.trace).trace
            record = ScoreRecord(scored, SourceOffset(0, number))
            by_service.setdefault(scored.service, []).append(record)
        for records in by_service.values():
            log += encode_scores(records, limit=2_000)
    return log


def content(rows: dict[bytes, bytes]) -> dict[bytes, Any]:
    """What must be the same to the byte whatever happened: all but evidence, which is what the
    batches had named."""
    kept: dict[bytes, Any] = {}
    for key, data in rows.items():
        if key == HEAD:
            continue
        kind, _ = split_row_key(key)
        if kind != "e":
            kept[key] = data
    return kept


@cache
def undisturbed(sizes: Sequence[int] = (1, 1, 3, 20)) -> dict[bytes, bytes]:
    state = state_of()
    rows = dict[bytes, bytes]()
    for data in wire(sizes):
        apply(state, decode_scores(data))
    return commit(state, rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_crashes_leave_no_trace(seed: int) -> None:
    found = crashing(random.Random(seed), wire(), reloaded, sizes=(1, 2, 5))
    rows = undisturbed()
    ours, theirs = content(found), content(rows)
    # names only: a diff of what is in them takes pytest minutes
    assert sorted(ours.keys() ^ theirs.keys()) == []
    assert sorted(key for key in ours if ours[key] != theirs[key]) == []


@pytest.mark.slow
def test_it_counts_what_the_embedded_agent_counts(tmp_path: Path) -> None:
    """The same traces in the same order through SQLite and the worker thread: every bucket to the
    byte."""
    names: list[str] = []

    def remember(incident: Incident, now: float) -> list[OutboxItem]:
        names.extend(item.id for item in notify(incident, now))
        return notify(incident, now)

    with running(tmp_path, rules=ERRORS, notify=remember) as agent:
        feed(agent, [(item, number) for number, item in enumerate(traffic())])
        saved = agent._store.saved()
    rows = content(undisturbed((1,)))
    buckets = {
        tuple(parts): data
        for key, data in rows.items()
        for kind, parts in [split_row_key(key)]
        if kind == "b"
    }
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as database:
        stored = database.execute("SELECT * FROM buckets").fetchall()
    assert buckets == {tuple(row[:4]): row[4] for row in stored}
    assert len(buckets) > 90  # of the windows
    counters = {
        (name, tuple(map(tuple, labels))): value
        for key, data in rows.items()
        if split_row_key(key)[0] == "c"
        for name, labels, value in json.loads(data)
    }
    own = ("ragmeter_traces_duplicate_total", "ragmeter_traces_received_total")
    expected = {key: value for key, value in saved.counters if key[0] not in own}
    duplicates = counters.pop(("ragmeter_traces_duplicate_total", (("source", "kafka"),)))
    assert counters == expected
    assert duplicates == 25
    alerts = [name for name in saved.meta if name.startswith("incidents/")]
    assert len(alerts) > 1
    for name in (*alerts, "labels", "fingerprints", "next_step"):
        ours = json.loads(rows[row_key("m", name)])
        theirs = saved.meta[name]
        for row in (ours, theirs):  # a worker has the texts of questions later, from its evidence
            if name.startswith("incidents/incident/"):
                del row["incident"]["worst_questions"], row["incident"]["detail"]
        assert ours == theirs
    notified = [parts[0] for key in rows for kind, parts in [split_row_key(key)] if kind == "o"]
    assert sorted(notified) == sorted(names)
    assert {name.rpartition("-")[2] for name in notified} == {"open", "over"}
