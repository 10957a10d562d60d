"""What `benchmarks.peers` times is a pass over texts that the process has not seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import REQUIREMENTS, write_traces
from benchmarks.peers_process import PASSES, Traces, time_pass


def test_the_texts_of_the_timed_pass_are_new(tmp_path: Path) -> None:
    write_traces(tmp_path / "traces.jsonl", 8)
    lines = (tmp_path / "traces.jsonl").read_text().splitlines()
    seen: list[set[str]] = []

    def prepare(traces: Traces) -> Callable[[], object]:
        texts = {passage["text"] for trace in traces for passage in trace["passages"]}
        return lambda: seen.append(texts)

    time_pass(prepare, lines)
    warm, timed = seen
    assert len(timed) == sum(len(json.loads(line)["passages"]) for line in lines[4:])
    assert not warm & timed


def test_every_pass_is_of_a_package_that_can_be_installed(tmp_path: Path) -> None:
    assert {one.package for one in PASSES.values()} == {"ragmeter", *REQUIREMENTS}
    write_traces(tmp_path / "traces.jsonl", 40)
    lines = (tmp_path / "traces.jsonl").read_text().splitlines()
    assert time_pass(PASSES["ragmeter"].prepare, lines).ratio > 0
