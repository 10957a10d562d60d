"""The processes that `benchmarks.agent` measures do what its rows say."""

from __future__ import annotations

import os

import pytest

from benchmarks.agent import LIVE, REPLAYS, agent, bare_server, cpu_of, live, memory_of, replay
from benchmarks.throughput import traces


def test_cpu_and_memory_are_those_of_a_process() -> None:
    assert cpu_of(os.getpid()) > 0
    assert memory_of(os.getpid(), "VmHWM") >= memory_of(os.getpid(), "VmRSS") > 1


@pytest.mark.slow
def test_a_replay_and_live_traffic_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.agent.SETTLING", 0.1)
    lines = traces()[:40]
    seconds, cpu, ratio = replay(lines, REPLAYS["without the embedded model"])
    assert seconds > 0
    assert cpu > 0
    assert ratio > 1
    changes, batch = LIVE["100 traces/s, built-in scorers, one by one"]
    for server in (agent(changes), bare_server()):
        row = live(lines, server, batch, 0.3)
        assert row.p99 > 0
        assert row.at_most >= row.at_start > 1
