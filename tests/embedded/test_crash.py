"""`kill -9` at random moments: nothing lost, nothing twice, to the bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.windows.windows import Windows

from tests.crash import left_behind, settings_file, start, traffic
from tests.ports import free_port
from tests.scorers.judge.stub_process import stub_judge
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


def finished(process: subprocess.Popen[bytes]) -> int:
    return process.wait(300)  # a busy machine with a slow disk; the test has its own limit


def replay_to_the_end(folder: Path, file: Path, judge: str | None = None) -> dict[str, Any]:
    config = settings_file(folder, judge)
    code = finished(start(folder, "run", "-c", config, "--replay", file, "--exit-after-replay"))
    assert code == 0
    return left_behind(folder)


def replay_with_kills(
    folder: Path, file: Path, kills: int, rng: random.Random, judge: str | None = None
) -> dict[str, Any]:
    """Kill the replay `kills` times while it works, then let it finish."""
    config = settings_file(folder, judge)

    def begin() -> subprocess.Popen[bytes]:
        return start(folder, "run", "-c", config, "--replay", file, "--exit-after-replay")

    kill_at_work(folder, begin, kills, lambda: rng.uniform(0, 0.4))
    return replay_to_the_end(folder, file, judge)


def kill_at_work(
    folder: Path,
    begin: Callable[[], subprocess.Popen[bytes]],
    kills: int,
    pause: Callable[[], float],
) -> None:
    """Kill what `begin` starts `kills` times, each time after a `pause` at work.

    On a busy machine the pause may last until all is done. What was left is removed then, and it
    begins anew with shorter pauses.
    """
    shorter, done = 1.0, 0
    while done < kills:
        process = begin()
        wait_for_work(folder, process)
        time.sleep(shorter * pause())
        ended = process.poll()
        process.kill()
        process.wait()
        done += 1
        if ended is not None:
            talk = (folder / "talk.txt").read_text()
            assert ended == 0, talk
            assert shorter > 0.01, "it ends before every kill: make the file longer"
            shorter = shorter / 2
            done = 0
            for left in folder.glob("s.sqlite*"):
                left.unlink()


def wait_for_work(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has opened the state: a kill during imports would test Python."""
    lock = folder / "s.sqlite.lock"

    def begun() -> bool:
        ended = process.poll() is not None  # before the look: its number stays in the file
        if lock.exists() and lock.read_text() == str(process.pid):
            return True
        assert not ended, "the agent did not start"
        return False

    until(begun, pause=0.01)


def unlike(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What differs, bounded: whole states would hide it."""
    lines = list(expected.keys() ^ found.keys())
    for name, want in expected.items():
        have = found.get(name)
        if not isinstance(want, dict) or not isinstance(have, dict):
            if have != want:
                lines.append(f"{name}: {have!r:.300}, {want!r:.300} expected")
            continue
        for key in sorted(want.keys() | have.keys(), key=repr):
            if have.get(key) != want.get(key):
                lines.append(
                    f"{name} {key}: {have.get(key)!r:.300}, {want.get(key)!r:.300} expected"
                )
    return lines[:20]


def assert_counted_once(counters: dict[tuple[str, str], float]) -> None:
    seen: dict[tuple[str, str], float] = {}
    states: dict[tuple[str, str], float] = {}
    for (name, labels), value in counters.items():
        tags = dict(json.loads(labels))
        if name in ("ragmeter_seen_total", "ragmeter_results_total"):
            into = seen if name == "ragmeter_seen_total" else states
            pair = (tags["metric"], tags["scorer"])
            into[pair] = into.get(pair, 0) + value
    assert seen
    assert seen == states


def test_replay_killed_at_random_points_counts_as_if_undisturbed(tmp_path: Path) -> None:
    kills, count = 8, 5_000
    file = tmp_path / "traffic.jsonl"
    poison = traffic(file, count, seed=kills)
    expected = replay_to_the_end(tmp_path / "calm", file)
    found = replay_with_kills(tmp_path / "killed", file, kills, random.Random(kills))
    assert expected["queue"] == 0
    assert len(expected["dead"]) == poison
    assert_counted_once(expected["counters"])
    assert unlike(found, expected) == []


def test_judged_traces_count_once_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    kills, count = 5, 1_200
    file = tmp_path / "traffic.jsonl"
    traffic(file, count, seed=kills, step=5)  # hours: strata are learned by the hour
    with stub_judge(0.02) as stub:
        judge = stub.base_url
        expected = replay_to_the_end(tmp_path / "calm", file, judge)
        rng = random.Random(kills)
        found = replay_with_kills(tmp_path / "killed", file, kills, rng, judge)
    paid = []
    for one in (expected, found):
        assert one["waiting"] == 0
        assert_counted_once(one["counters"])
        # what was asked anew after a kill was paid for anew: the one thing that may differ
        calls = [key for key in one["counters"] if key[0].startswith("ragmeter_judge_")]
        paid.append(sum(one["counters"].pop(key) for key in calls if "requests" in key[0]))
        for key in calls:
            one["counters"].pop(key, None)
        # what a question rests on hangs on which verdicts were there when it was chosen
        chosen = [
            key
            for key in one["counters"]
            if key[0].startswith("rag_question_") and not {"works", "fast"} & set(key[1].split('"'))
        ]
        for key in chosen:
            one["counters"].pop(key)
    scored = {
        json.loads(labels)[0][1]
        for (name, labels), value in expected["counters"].items()
        if name == "ragmeter_results_total" and "umbrela" in labels and "scored" in labels and value
    }
    assert "relevance" in scored
    assert unlike(found, expected) == []
    assert 0 < paid[0] <= paid[1]


class Live:
    """A served agent that can be killed and started again on the same state and ports; it does
    not outlive the `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.page = free_port(), free_port()
        self.config = settings_file(folder, otlp_port=self.port, metrics_port=self.page)
        self.process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(timeout=PATIENCE)

    def __enter__(self) -> Live:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def start(self) -> None:
        self.process = start(self.folder, "run", "-c", self.config)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return finished(self.process)

    def post(self, body: bytes) -> dict[str, Any] | None:
        """The reply to an accepted batch, or None where the agent is not there or too busy."""
        try:
            reply = self.client.post(f"http://127.0.0.1:{self.port}/v1/rag/traces", content=body)
        except httpx.HTTPError:
            return None
        return reply.json() if reply.status_code == 200 else None

    def post_until_accepted(self, body: bytes) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.post(body) is None:
            assert self.process is not None
            talk = (self.folder / "talk.txt").read_text()
            assert self.process.poll() is None, talk
            assert time.monotonic() < deadline, talk
            time.sleep(0.02)


def batches(file: Path, size: int) -> Iterator[bytes]:
    lines = file.read_bytes().splitlines()
    for begin in range(0, len(lines), size):
        yield b"\n".join(lines[begin : begin + size])


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """Without what a client that sends again adds by right: receipts and duplicates."""
    resent = (
        "ragmeter_traces_received_total",
        "ragmeter_traces_duplicate_total",
        "ragmeter_dead_letters_total",
    )
    counters = {key: value for key, value in state["counters"].items() if key[0] not in resent}
    return {"buckets": state["buckets"], "counters": counters, "queue": state["queue"]}


def test_http_killed_at_random_points_loses_nothing_it_answered(tmp_path: Path) -> None:
    kills, count = 8, 1_200
    file = tmp_path / "traffic.jsonl"
    traffic(file, count, seed=100 + kills)
    rng = random.Random(kills)
    all_batches = list(batches(file, 20))
    states = []
    for name, moments in (
        ("calm", set[int]()),
        ("killed", set(rng.sample(range(1, len(all_batches)), kills))),
    ):
        with Live(tmp_path / name) as live:
            for index, body in enumerate(all_batches):
                if index in moments:
                    time.sleep(rng.uniform(0, 0.1))  # anywhere between accept and commit
                    live.kill()
                    live.start()
                live.post_until_accepted(body)
            assert live.terminate() == 0
        # windows of minutes move with the wall clock while traffic is live; 24 h holds everything
        states.append(comparable(left_behind(live.folder, width=600)))
    calm, killed = states
    assert calm["queue"] == 0
    assert_counted_once(calm["counters"])
    assert unlike(killed, calm) == []


def test_sigterm_drains_what_was_accepted(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    traffic(file, 1_000, seed=5)
    with Live(tmp_path / "agent") as live:
        live.post_until_accepted(file.read_bytes())
        assert live.terminate() == 0
    state = left_behind(live.folder)
    assert state["queue"] == 0
    assert_counted_once(state["counters"])


def test_saved_buckets_are_what_windows_read(tmp_path: Path) -> None:
    """The comparison above is of bytes; this ties the bytes to numbers."""
    file = tmp_path / "traffic.jsonl"
    traffic(file, 500, seed=6)
    replay_to_the_end(tmp_path / "a", file)
    rows = left_behind(tmp_path / "a")["buckets"]
    windows = Windows()
    windows.load([(*key, data) for key, data in rows.items()])
    traces = sum(
        value
        for (name, _), value in left_behind(tmp_path / "a")["counters"].items()
        if name == "rag_requests_total"
    )
    windows.advance(max(key[3] for key in rows))
    seen = sum(windows.count_traces(service, "", "24h") for service in windows.services())
    assert seen == traces
