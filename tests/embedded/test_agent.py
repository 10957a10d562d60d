from __future__ import annotations

import json
import math
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.counting import Arriving, TraceCounting
from ragmeter.aggregate.outputs import AgentOutputs
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import Clocks
from ragmeter.core.errors import QueueFull, StateError, StateUnavailable
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.worker import Worker
from ragmeter.ingest.native import DecodedTrace, DecodeFailure
from ragmeter.parts.contract import Arrival
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter.parts.views import Incident
from ragmeter.store.rows import OutboxItem, SourceProgress
from ragmeter.store.sqlite import SqliteStore

from tests.traces import START, good
from tests.waiting import PATIENCE, stop_agent, until

ERRORS = {
    "rules": [
        {
            "name": "Errors",
            "severity": "critical",
            "metric": "error",
            "scorer": "builtin",
            "statistic": "lower",
            "op": ">",
            "threshold": 0.2,
            "window": "5m",
            "for": "1m",
        }
    ]
}


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def settings(folder: Path, **limits: Any) -> Settings:
    paths = {"path": str(folder / "s.sqlite")}
    tree = {"state": paths, "segments": ["model"], "limits": limits}
    return load_settings(environ={}, overrides=tree)


@contextmanager
def running(
    folder: Path,
    *,
    live: bool = False,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    notify: Callable[[Incident, float], list[OutboxItem]] = lambda incident, now: [],
    rules: dict[str, Any] | None = None,
    **limits: Any,
) -> Iterator[EmbeddedAgent]:
    found = parse_rules([rules]) if rules else []
    started = EmbeddedAgent(
        settings(folder, **limits),
        found,
        live=live,
        clocks=Clocks(clock, monotonic),
        outputs=AgentOutputs(notify),
        parts=PARTS,
    )
    started.start()
    try:
        yield started
    finally:
        stop_agent(started, 10)


def feed(started: EmbeddedAgent, items: list[tuple[DecodedTrace, int]]) -> None:
    started.accept(list(items), "test")
    started.wait_idle()


def mixed(count: int, seed: int = 1) -> list[tuple[DecodedTrace, int]]:
    rng = random.Random(seed)
    return [
        good(
            n,
            timestamp=START + n - rng.choice([0, 0, 0, 40]),
            service=rng.choice(["bot", "faq"]),
            model=rng.choice(["a", "b"]),
            status=rng.choice(["ok", "ok", "error"]),
            answer=rng.choice(["Click Forgot password [1].", "No idea [9].", ""]),
        )
        for n in range(count)
    ]


def page_view(started: EmbeddedAgent) -> dict[str, Any]:
    """Every number that the agent shows."""
    with started.lock():
        windows = started.windows
        return {
            "estimates": {
                (service, segment, pair, window): windows.estimate(service, segment, *pair, window)
                for service in windows.services()
                for segment in ["", *windows.segments(service)]
                for pair in windows.series(service, segment)
                for window in windows.names
            },
            "quantiles": [
                windows.quantiles(service, "", "total", window)
                for service in windows.services()
                for window in windows.names
            ],
            "worst": [
                windows.worst(service, "grounding", "builtin", "24h")
                for service in windows.services()
            ],
            "alerts": [alert.to_dict() for alert in started.alerts()],
            "counters": dict(started.counters.items()),
        }


def test_numbers_do_not_depend_on_batches_or_restarts(tmp_path: Path) -> None:
    items = mixed(500)
    with running(tmp_path / "once", rules=ERRORS) as started:
        feed(started, items)
        once = page_view(started)
    for begin, end in ((0, 17), (17, 250), (250, 251), (251, 500)):
        with running(tmp_path / "parts", rules=ERRORS) as started:
            feed(started, items[begin:end])
            parts = page_view(started)
    assert parts == once
    with running(tmp_path / "parts", rules=ERRORS) as started:
        assert page_view(started) == once


def test_seen_is_the_sum_of_the_states_for_every_metric(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        feed(started, mixed(300))
        old = good(9_999, timestamp=START - 3 * 86_400)
        feed(started, [old])
        counters = page_view(started)["counters"]
    seen = {}
    states = dict[Any, float]()
    late = 0.0
    for (name, labels), value in counters.items():
        tags = dict(labels)
        if name == "ragmeter_seen_total":
            seen[tags["metric"], tags["scorer"]] = value
        if name == "ragmeter_results_total":
            pair = (tags["metric"], tags["scorer"])
            states[pair] = states.get(pair, 0) + value
            late += value if tags["state"] == "late" else 0
    assert set(seen.values()) == {301}
    assert states == seen
    assert late == len(seen)


def test_a_scorer_that_raises_costs_its_own_metrics_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(trace: object) -> list[Any]:
        raise RuntimeError("boom")

    with running(tmp_path) as started:
        monkeypatch.setattr("ragmeter.scoring.scorer.score_builtin", broken)
        feed(started, mixed(20))
        counters = page_view(started)["counters"]
    unscored = {
        dict(labels)["metric"]: value
        for (name, labels), value in counters.items()
        if name == "ragmeter_results_total" and dict(labels)["reason"] == "internal_error"
    }
    assert unscored["grounding"] == 20
    assert "error" not in unscored


def alerts_of_rules(agent: EmbeddedAgent) -> list[Alert]:
    return [alert for alert in agent.alerts() if alert.rule != "RagDrift"]


@pytest.mark.slow
def test_an_alert_survives_a_restart_without_firing_twice(tmp_path: Path) -> None:
    notified: list[tuple[str, str]] = []

    def notify(incident: Incident, now: float) -> list[OutboxItem]:
        notified.append((incident.kind, incident.state))
        return [OutboxItem(f"{incident.id}-{incident.state}", incident.id, "{}", now)]

    bad = [good(n, timestamp=START + n, status="error") for n in range(200)]
    fine = [good(n, timestamp=START + n) for n in range(200, 3000)]
    steps = [bad[:100], bad[100:], fine[:5], fine[5:]]
    firing = []
    for step in steps:
        with running(tmp_path, rules=ERRORS, notify=notify) as started:
            feed(started, step)
            firing.append([alert.state for alert in alerts_of_rules(started)])
    assert notified == [("errors", "open"), ("errors", "over")]
    assert firing[1] == firing[2] == ["firing"]
    with running(tmp_path) as started:
        due = started.outbox.due(time.time() + 1, 10)
        assert [item.id.split("-")[1] for item in due] == ["open"]  # its end waits behind it


def test_an_alert_names_traces_that_can_be_opened(tmp_path: Path) -> None:
    with running(tmp_path, rules=ERRORS) as started:
        feed(started, [good(n, timestamp=START + n, status="error") for n in range(200)])
        (alert,) = alerts_of_rules(started)
        assert alert.state == "firing"
        assert len(alert.worst) == 5
        for trace_id in alert.worst:
            kept = started.evidence("bot", trace_id)
            assert kept is not None
            assert kept["trace"]["trace_id"] == trace_id
        assert started.evidence("bot", "never seen") is None


def test_kept_evidence_is_bounded_by_the_windows(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        feed(started, [good(n, timestamp=START + n * 30) for n in range(400)])
        with started.lock():
            worst = started.windows.worst_ids("bot")
    database = sqlite3.connect(tmp_path / "s.sqlite")
    kept = {row[0] for row in database.execute("SELECT trace_id FROM evidence")}
    database.close()
    assert kept == worst


def test_time_follows_the_events_in_a_replay_and_the_clock_when_live(tmp_path: Path) -> None:
    for live in (False, True):
        clock = Clock()
        with running(tmp_path / str(live), live=live, clock=clock, monotonic=clock) as started:
            clock.now = START + 100
            feed(started, [good(n, timestamp=START + n) for n in range(100)])
            clock.now += 600
            if live:
                until(lambda: started.windows.now == START + 99 + 600)
            else:
                time.sleep(1.5)
            with started.lock():
                five = started.windows.estimate("bot", "", "error", "builtin", "5m")
                hour = started.windows.estimate("bot", "", "error", "builtin", "1h")
        assert (five is None) == live
        assert hour is not None
        assert hour.samples == 100


def test_a_full_queue_refuses_and_nothing_is_lost(tmp_path: Path) -> None:
    started = EmbeddedAgent(settings(tmp_path, queue=10), [], parts=PARTS)
    started.accept([good(n) for n in range(8)], "test")
    with pytest.raises(QueueFull):
        started.accept([good(n) for n in range(8, 12)], "test")
    started.start()
    started.wait_idle()
    started.accept([good(n) for n in range(8, 12)], "test")
    started.wait_idle()
    with started.lock():
        assert started.windows.count_traces("bot", "", "24h") == 12
    started.stop(10)


def test_a_disk_that_fills_up_turns_readiness_off_until_there_is_room(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        feed(started, mixed(50))
        database = started._store._db
        with started._store._mutex:
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count={pages}")
        wide = [good(n, timestamp=START + n, query="q" * 5_000) for n in range(1000, 1400)]
        with pytest.raises(StateUnavailable, match="full"):
            started.accept(list(wide), "test")
        assert not started.health().ready
        with started._store._mutex:
            database.execute("PRAGMA max_page_count=1000000")
        feed(started, wide)
        assert started.health().ready
        with started.lock():
            assert sum(started.windows.count_traces(s, "", "24h") for s in ("bot", "faq")) == 450


def test_room_on_the_disk_is_noticed_without_traffic(tmp_path: Path) -> None:
    """Who is not ready is sent nothing."""
    with running(tmp_path) as started:
        database = started._store._db
        with started._store._mutex:
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count={pages}")
        wide = [good(n, query="q" * 5_000) for n in range(100)]
        with pytest.raises(StateUnavailable, match="full"):
            started.accept(list(wide), "test")
        time.sleep(2.5)  # the worker has tried again
        assert not started.health().ready
        with started._store._mutex:
            database.execute("PRAGMA max_page_count=1000000")
        until(lambda: started.health().ready)
    with running(tmp_path) as started:  # nothing of it is left
        assert started.counters.get("ragmeter_state_quarantined_total") == 0


def test_windows_that_make_no_sense_are_quarantined_not_half_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as started:
        feed(started, mixed(50))
    database = sqlite3.connect(tmp_path / "s.sqlite")
    database.execute("UPDATE buckets SET data = x'00ff' WHERE width = 600")
    database.commit()
    database.close()
    with running(tmp_path) as started:
        assert started.windows.services() == []
        assert started.counters.get("ragmeter_state_quarantined_total") == 1
    assert len(list(tmp_path.glob("s.sqlite.corrupt-*"))) >= 1
    assert "was moved to" in caplog.text


def test_what_an_older_schema_queued_becomes_a_dead_letter(tmp_path: Path) -> None:
    started = EmbeddedAgent(settings(tmp_path), [], parts=PARTS)
    started.accept([good(1), good(2)], "test")
    started._store._db.execute("UPDATE inbox SET body = x'7b7d' WHERE seq = 1")
    started._store.close()  # a restart reads the bodies; until then the traces are in memory
    started = EmbeddedAgent(settings(tmp_path), [], parts=PARTS)
    started.start()
    started.wait_idle()
    started.stop(10)
    (line,) = (tmp_path / "s.sqlite.dead-letters.jsonl").read_text().splitlines()
    assert json.loads(line)["raw"] == "{}"
    assert started.windows.count_traces("bot", "", "24h") == 1


def test_a_trace_that_cannot_be_counted_becomes_a_dead_letter_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = TraceCounting.count_run

    def poisoned(self: TraceCounting, arriving: Sequence[Arriving]) -> list[Arrival]:
        applied = honest(self, arriving)
        if any(scored.trace_id == "t7" for scored, _ in arriving):
            raise OverflowError("too large")  # after it has changed the windows
        return applied

    monkeypatch.setattr(TraceCounting, "count_run", poisoned)
    with running(tmp_path) as started:
        feed(started, [good(n) for n in range(20)])
        feed(started, [good(n) for n in range(20, 25)])
        assert started.fatal is None
        with started.lock():
            assert started.windows.count_traces("bot", "", "24h") == 24
            counters = dict(started.counters.items())
    label = (("reason", "internal_error"),)
    assert counters["ragmeter_dead_letters_total", label] == 1
    assert counters["ragmeter_traces_received_total", (("source", "test"),)] == 25
    (line,) = (tmp_path / "s.sqlite.dead-letters.jsonl").read_text().splitlines()
    assert json.loads(json.loads(line)["raw"])["trace_id"] == "t7"
    with running(tmp_path) as started:
        assert dict(started.counters.items()) == counters


def test_a_worker_that_dies_says_so_and_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[Any]:
        raise RuntimeError("boom")

    with running(tmp_path) as started:
        with monkeypatch.context() as patch:
            patch.setattr(Worker, "_process_all", broken)
            started.accept([good(1)], "test")
            started.wait_idle()
        assert started.fatal is not None
        assert not started.health().ready
        with pytest.raises(StateUnavailable):
            started.accept([good(2)], "test")
    with running(tmp_path) as started:  # the trace was durable: a restart counts it
        started.wait_idle()
        assert started.windows.count_traces("bot", "", "24h") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"usage": {"input_tokens": 2**53, "cost_usd": 1e9}},
        {"timings": {"total": 1e9}, "sampling": {"probability": 1e-300}},
        {"timestamp": "2200-12-31T23:59:59Z"},
        {"timestamp": 0},
    ],
)
def test_the_largest_that_is_allowed_is_counted_and_stays_finite(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with running(tmp_path) as started:
        feed(started, [good(n, **change) for n in range(3)])
        assert started.fatal is None
        counters = dict(started.counters.items())
    assert all(math.isfinite(value) for value in counters.values())
    assert sum(v for (name, _), v in counters.items() if name == "rag_requests_total") == 3


def test_a_state_file_that_is_deleted_while_in_use_stops_the_agent(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        feed(started, [good(1)])
        (tmp_path / "s.sqlite").unlink()
        with pytest.raises(StateUnavailable, match="moved or deleted"):
            started.accept([good(2)], "test")
        assert started.fatal is not None
        assert not started.health().ready


def test_a_replayed_trace_from_the_future_is_said_when_live_traffic_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as started:
        feed(started, [good(1, timestamp=time.time() + 86_400)])
        assert started.health().ready
        started.accept([good(2, timestamp=time.time())], "http", live=True)
        assert "ahead of the clock" in started.health().problems[0]
    assert "ahead of the clock" in caplog.text


def test_a_gap_is_stepped_through_where_something_can_change_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    seen: list[int] = []  # evaluations when a scrape got the lock
    honest = AlertEngine.evaluate

    def counting(self: AlertEngine, *args: Any) -> list[Alert]:
        nonlocal calls
        calls += 1
        if calls == 8:
            threading.Thread(target=scrape).start()
        if calls >= 8 and not seen:  # so slow that the lock is given away after each
            time.sleep(0.03)
        return honest(self, *args)

    def scrape() -> None:
        with started.lock():
            seen.append(calls)

    monkeypatch.setattr(AlertEngine, "evaluate", counting)
    with running(tmp_path, rules=ERRORS) as started:
        feed(started, [good(n, timestamp=START + n) for n in range(60)])
        feed(started, [good(99, timestamp=START + 30 * 86_400)])
    assert 8 < calls < 150  # of 172,800 steps
    assert seen
    assert seen[0] < calls  # it did not have to wait for the end of the gap


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_sender_does_not_wait_for_who_holds_the_lock(tmp_path: Path, reloaded: bool) -> None:
    with running(tmp_path) as started:
        with started.lock():
            (sender := threading.Thread(target=started.accept, args=([good(1)], "test"))).start()
            sender.join(PATIENCE)
            assert not sender.is_alive()
            if reloaded:  # the state file has the count already
                started._worker._reload()
        with started.lock():
            counted = (("source", "test"),)
            assert started.counters.get("ragmeter_traces_received_total", counted) == 1


def test_the_places_and_counters_of_a_service_that_is_gone_are_freed(tmp_path: Path) -> None:
    with running(tmp_path, services=2) as started:
        feed(started, [good(n, service=f"pod-{n}", timestamp=START) for n in range(2)])
        feed(started, [good(5, service="late", timestamp=START - 90_000)])
        feed(started, [good(9, service="new", timestamp=START + 3 * 86_400)])
        with started.lock():
            assert started.windows.services() == ["new"]
            names = {
                dict(labels)["service"]: value
                for (name, labels), value in started.counters.items()
                if name == "rag_requests_total"
            }
    assert names == {"__other__": 1, "new": 1}
    with running(tmp_path, services=2) as started:
        feed(started, [good(10, service="newer", timestamp=START + 3 * 86_400)])
        assert started.windows.services() == ["new", "newer"]
        assert "pod-0" not in str(list(started.counters.items()))


def test_a_damaged_state_file_stops_the_agent_and_costs_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    with running(tmp_path) as started:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "commit", damaged)
            started.accept([good(1)], "test")
            started.wait_idle()
        assert "damaged" in str(started.fatal)
        assert not started.health().ready
    assert not (tmp_path / "s.sqlite.dead-letters.jsonl").exists()
    with running(tmp_path) as started:
        started.wait_idle()
        assert started.windows.count_traces("bot", "", "24h") == 1


def test_what_an_alert_names_is_kept_while_the_alert_is(tmp_path: Path) -> None:
    with running(tmp_path, rules=ERRORS) as started:
        failing = [good(n, timestamp=START + n, status="error", answer="") for n in range(200)]
        feed(started, failing)
        fine = [good(n, timestamp=START + n) for n in range(200, 280)]
        feed(started, fine)
    with running(tmp_path, rules=ERRORS) as started:  # what was not worth keeping has gone
        (alert,) = alerts_of_rules(started)
        assert len(alert.worst) == 5
        assert all(started.evidence("bot", trace_id) for trace_id in alert.worst)


def test_state_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        feed(started, mixed(50))
    database = sqlite3.connect(tmp_path / "s.sqlite")
    database.execute(
        "UPDATE buckets SET data = cast(x'63' || substr(data, 2) AS BLOB) WHERE width = 600"
    )
    database.commit()
    database.close()
    with pytest.raises(StateError, match="version 99"):
        EmbeddedAgent(settings(tmp_path), [], parts=PARTS)
    assert list(tmp_path.glob("*.corrupt-*")) == []


def test_a_worker_that_does_not_move_is_not_ready(tmp_path: Path) -> None:
    clock = Clock()
    started = EmbeddedAgent(settings(tmp_path), [], clocks=Clocks(monotonic=clock), parts=PARTS)
    assert started.health().ready
    started.check_stalled()
    for _ in range(12):  # a longer step would be taken for a process that stood still
        clock.now += 5
        started.check_stalled()
    assert "not moved for 60 s" in started.health().problems[0]
    started.stop(1)


def test_lag_is_that_of_waiting_work_not_of_a_quiet_night(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path, live=True, clock=clock) as started:
        feed(started, [good(1, timestamp=START)])
        clock.now += 8 * 3600
        assert started.health().processing_lag_seconds == 0


def test_progress_and_poison_are_part_of_the_same_step(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        items: list[tuple[DecodedTrace | DecodeFailure, int]] = [
            good(1),
            (DecodeFailure("invalid_json", (), b"{"), 70),
        ]
        started.accept(items, "file", progress=SourceProgress("f", 70), written=set())
        assert started.position("f") == 70
        assert started.dead_letters_from("f", 0) == {70}


def test_accepting_and_reading_from_many_threads_counts_each_once(tmp_path: Path) -> None:
    with running(tmp_path) as started:

        def send(part: int) -> None:
            for n in range(part * 50, part * 50 + 50):
                started.accept([good(n), good(0)], "test")
                with started.lock():
                    started.windows.services()

        threads = [threading.Thread(target=send, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        started.wait_idle()
        with started.lock():
            assert started.windows.count_traces("bot", "", "24h") == 200
            received = started.counters.get("ragmeter_traces_received_total", (("source", "test"),))
        assert received == 400


def test_many_services_share_one_series_over_the_limit(tmp_path: Path) -> None:
    with running(tmp_path, services=3) as started:
        feed(started, [good(n, service=f"s{n}") for n in range(10)])
        with started.lock():
            assert set(started.windows.services()) == {"s0", "s1", "s2", "__other__"}
            assert started.windows.count_traces("__other__", "", "24h") == 7
            assert (
                started.counters.get("ragmeter_label_overflow_total", (("label", "service"),)) >= 7
            )
