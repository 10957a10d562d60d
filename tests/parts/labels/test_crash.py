"""`kill -9` while labels are counted: nothing lost, nothing twice, to the bit."""

from __future__ import annotations

import json
import random
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash import left_behind, settings_file, start
from tests.embedded.test_crash import Live, assert_counted_once, finished, kill_at_work
from tests.traces import START, trace_dict
from tests.waiting import until

pytestmark = pytest.mark.slow

TRACES = 300
HEARD = ("ragmeter_feedback_received_total", "ragmeter_feedback_total")


def files(folder: Path, labels: int) -> tuple[Path, Path]:
    """Traces, and labels of them: repeated, corrected, contradicted, of traces that never came."""
    rng = random.Random(8)
    traces, feedback = folder / "traces.jsonl", folder / "labels.jsonl"
    lines = [
        trace_dict(number, model=rng.choice("ab"), sampling={"probability": rng.choice([1, 0.5])})
        for number in range(TRACES)
    ]
    traces.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reported: list[dict[str, Any]] = []
    for _ in range(labels):
        one: dict[str, Any] = {
            "trace_id": f"t{rng.randrange(TRACES + 20)}",
            "timestamp": START + rng.randrange(50),
            "scorer": rng.choice(["human", "tickets"]),
            "answer": {"helpful": rng.random() < 0.5, "incomplete": rng.random() < 0.5},
        }
        if rng.random() < 0.5:
            one["passages"] = {"kb-1": {"evidence_sufficient": rng.random() < 0.5}}
        reported += [one, one] if rng.random() < 0.1 else [one]
    feedback.write_text("".join(json.dumps(line) + "\n" for line in reported))
    return traces, feedback


def begin(folder: Path, traces: Path, feedback: Path) -> subprocess.Popen[bytes]:
    read: list[str | Path] = ["--replay", traces, "--feedback", feedback]
    return start(folder, "run", "-c", settings_file(folder), *read, "--exit-after-replay")


def test_labels_count_once_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    kills, labels = 12, 6_000
    traces, feedback = files(tmp_path, labels)
    rng = random.Random(kills)
    states = []
    for name, times in (("calm", 0), ("killed", kills)):
        folder = tmp_path / name
        again = partial(begin, folder, traces, feedback)
        kill_at_work(folder, again, times, lambda: rng.uniform(0.05, 0.5))
        assert finished(again()) == 0, (folder / "talk.txt").read_text()
        state = left_behind(folder)
        assert_counted_once(state["counters"])
        joined = [
            value
            for (name_, labels_), value in state["counters"].items()
            if name_ == HEARD[1] and "joined" in labels_
        ]
        # who reads the file again says again what is known: a repeat, and nothing else
        counters = {k: v for k, v in state["counters"].items() if k[0] not in HEARD}
        states.append((joined, counters, state["buckets"]))
    calm, killed = states
    assert calm[0][0] > 500
    assert killed == calm


def test_what_was_answered_is_counted_after_a_kill(tmp_path: Path) -> None:
    now = time.time()
    lines = [json.dumps(trace_dict(number, timestamp=now)) for number in range(40)]
    reported = [
        json.dumps({"trace_id": f"t{n}", "timestamp": now, "answer": {"helpful": n % 4 > 0}})
        for n in range(40)
    ]
    with Live(tmp_path / "agent") as live:
        url = f"http://127.0.0.1:{live.port}/v1/feedback"
        live.post_until_accepted("\n".join(lines).encode())
        for at in range(0, 40, 20):
            reply = live.client.post(url, content="\n".join(reported[at : at + 20]))
            assert (reply.status_code, reply.json()) == (200, {"accepted": 20, "rejected": 0})
            live.kill()
            live.start()
            live.post_until_accepted(lines[0].encode())  # it is up again
        gauge = 'rag_helpfulness_ratio{service="bot",scorer="human",window="24h"} 0.75'
        page = f"http://127.0.0.1:{live.page}/metrics/detail"
        until(lambda: gauge in live.client.get(page).text)
        assert live.terminate() == 0
    counters = left_behind(live.folder)["counters"]
    assert_counted_once(counters)
    outcomes = {labels: n for (name, labels), n in counters.items() if name == HEARD[1]}
    assert outcomes == {'[["outcome", "joined"]]': 40}
