"""What a partition counts does not hang on crashes and redeliveries, and is what the embedded agent
counts."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.alerts.alert import Alert
from ragmeter.config.settings import Settings
from ragmeter.ingest.native import DecodedTrace
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_score, encode_score
from ragmeter.kafka.state.ledger import Ledger, LogRecord
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import row_key, split_row_key
from ragmeter.store.rows import OutboxItem
from tests.embedded.test_agent import ERRORS, feed, mixed, running
from tests.kafka.state.partition import SCORER, K, flat, notify, reloaded, state_of
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
        good(n, timestamp=START + 660 + 8 * (n - 420), service="bot")[0] for n in range(420, 480)
    ]
    for at in rng.sample(range(400), 25):
        items.insert(at + 30, items[at])
    return items


@cache
def wire() -> list[bytes]:
    """The log of the scores as the score processor has written it, with repetitions."""
    rng = random.Random(7)
    config = Settings()
    wordings = WordingBuilder(config.consistency, config.privacy)
    records = []
    for number, item in enumerate(traffic()):
        scored = SCORER.score(item.trace).trace.with_wording(wordings.of(item.trace))
        records.append(encode_score(ScoreRecord(scored, SourceOffset(0, number % 3, number // 3))))
    log: list[bytes] = []
    for number, data in enumerate(records):
        log.append(data)
        if (
            rng.random() < 0.05
        ):  # a crash of the score processor: it goes back to what it had committed
            log += records[max(0, number - rng.randrange(6 * K)) : number + 1]
    return log


def content(rows: dict[bytes, bytes]) -> dict[bytes, Any]:
    """What must be the same to the byte whatever happened: all but evidence, which is what the
    batches had named, the count of what was repeated, and the parts of detectors and of control,
    which are numbered as they were written."""
    kept: dict[bytes, Any] = {}
    for key, data in rows.items():
        kind, parts = split_row_key(key)
        numbered = kind == "m" and parts[0].partition(".")[0] in ("drift", "control")
        if kind != "e" and not numbered and parts != ["nragmeter_replayed_total"]:
            kept[key] = data
    return kept


def numbered(state: PartitionState) -> list[Any]:
    """What the numbered parts hold."""
    drift = state.aggregator.drift
    return [
        sorted(drift.baselines(), key=str),
        sorted(drift.gauges()),
        sorted(map(repr, (row for _, _, rows in drift.monitor.drain_scores() for row in rows))),
        state.control.to_dict(),
    ]


@cache
def undisturbed() -> tuple[dict[bytes, Any], bytes]:
    state, rows = state_of(), dict[bytes, bytes]()
    seen: set[SourceOffset | None] = set()
    records = [decode_score(data) for data in wire()]
    first = [one for one in records if one.source not in seen and not seen.add(one.source)]  # type: ignore[func-returns-value]
    assert len(first) == len(traffic()) < len(records)
    state.apply(first)
    step = state.step()
    flat(step.rows, rows)
    return rows, step.head


class Worker:
    """One partition on a log, with a crash anywhere."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[LogRecord] = []
        self.committed = 0
        self.generation = 0

    def run(self, crash: bool) -> None:
        """Until the end of the records or a crash."""
        rng, records = self.rng, wire()
        self.generation += 1
        ledger, found = Ledger.recover(0, self.generation, self.log)
        state, at = state_of(), self.committed
        state.load(found.rows, found.head)
        while at < len(records):
            batch = records[at : at + rng.choice([1, 2, 7, 40, 200])]
            at += len(batch)
            state.apply([decode_score(data) for data in batch])
            if state.changed:
                step = state.step()
                writes = ledger.begin(step.rows)
                rng.shuffle(writes)
                dies = crash and rng.random() < 0.2
                if dies:
                    self.log += writes[: rng.randint(0, len(writes))]
                    return
                self.log += [*writes, ledger.marker(step.head)]
                if crash and rng.random() < 0.1:
                    return
                self.committed = at if rng.random() < 0.7 else self.committed
                ledger.done()


@pytest.mark.parametrize("seed", range(4))
def test_crashes_and_redeliveries_leave_no_trace(seed: int) -> None:
    worker = Worker(random.Random(seed))
    for _ in range(8):
        worker.run(crash=True)
    worker.run(crash=False)
    found = Ledger.recover(0, worker.generation + 1, worker.log)[1]
    rows, head = undisturbed()
    ours, theirs = content(found.rows), content(rows)
    # names only: a diff of what is in them takes pytest minutes
    assert sorted(ours.keys() ^ theirs.keys()) == []
    assert sorted(key for key in ours if ours[key] != theirs[key]) == []
    assert found.head is not None
    assert json.loads(found.head)["guard"] == json.loads(head)["guard"]
    loaded = [numbered(reloaded(*one)) for one in ((found.rows, found.head), (rows, head))]
    assert loaded[0] == loaded[1]


def test_it_counts_what_the_embedded_agent_counts(tmp_path: Path) -> None:
    """The same traces through SQLite and the worker thread: every bucket to the byte."""
    names: list[str] = []

    def remember(alert: Alert, now: float) -> list[OutboxItem]:
        names.extend(item.id for item in notify(alert, now))
        return notify(alert, now)

    with running(tmp_path, rules=ERRORS, notify=remember) as instrument:
        feed(instrument, [(item, number) for number, item in enumerate(traffic())])
        saved = instrument._store.saved()
        with instrument.lock():
            alerts = instrument._worker.aggregator.engine.dump()
    rows = content(undisturbed()[0])
    buckets = {
        tuple(parts): data
        for key, data in rows.items()
        for kind, parts in [split_row_key(key)]
        if kind == "b"
    }
    assert buckets == {tuple(row[:4]): row[4] for row in saved.buckets}
    assert len(buckets) > 100
    counters = {
        (name, tuple(map(tuple, labels))): value
        for key, data in rows.items()
        if split_row_key(key)[0] == "c"
        for name, labels, value in json.loads(data)
    }
    ours = ("ragmeter_traces_duplicate_total", "ragmeter_traces_received_total")
    expected = {key: value for key, value in saved.counters if key[0] not in ours}
    duplicates = counters.pop(("ragmeter_traces_duplicate_total", (("source", "kafka"),)))
    assert counters == expected
    assert duplicates == 25
    assert json.loads(rows[row_key("m", "alerts")]) == json.loads(json.dumps(alerts))
    for name in ("labels", "fingerprints", "next_step", "evaluated"):
        assert json.loads(rows[row_key("m", name)]) == saved.meta[name]
    told = [parts[0] for key in rows for kind, parts in [split_row_key(key)] if kind == "o"]
    assert sorted(told) == sorted(names)
    assert {name.rpartition("-")[2] for name in told} == {"firing", "resolved"}
