"""What each part of a worker costs a trace, without Kafka and Faust: processor time and bytes.

    python -m benchmarks.kafka_items [--traces 8000] [--services 20] [--rate 100] [--builtin]

One partition, steps of up to 200 records of a quarter of a second of event time or more; the same
traces as `benchmarks.kafka_scale`. These figures feed the calculation of docs/scaling.md. Prints
Markdown; ratios to decoding the trace's JSON (`json.loads`) in the same run.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.config.loader import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.process import collect_rarely
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_scores, encode_scores
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.scoring.scorer import Scorer

from benchmarks.kafka_cluster import grown

__all__ = ["main"]

STEP = 200
# What of counting goes away with a setting.
PARTS: dict[str, dict[str, Any]] = {
    "traces remembered for labels": {"feedback": {"traces": 0}},
    "drift": {"drift": {"enabled": False}},
    "objectives": {"slos": []},
}


def timed(what: Callable[[], Any]) -> tuple[Any, float]:
    gc.collect()
    begun = time.process_time()
    found = what()
    return found, time.process_time() - begun


def counted(
    settings: Settings, scorer: Scorer, records: list[list[ScoreRecord]], step: int
) -> tuple[float, float, int, int, int]:
    """Processor time of counting and of making rows; rows, their bytes, and steps."""
    state = PartitionState(
        settings,
        load_configured_rules(settings),
        scorer.pairs,
        dedupe=settings.limits.dedupe_hours * 3600,
        clock=time.time,
        monotonic=time.monotonic,
    )
    counting = writing = 0.0
    rows = size = steps = 0
    waiting = deque(records)
    while waiting:
        begun, traces = time.process_time(), 0
        while waiting and traces < step:
            traces += len(waiting[0])
            state.apply_all(waiting.popleft())
        state.settle()
        applied = time.process_time()
        made = state.step()
        counting += applied - begun
        writing += time.process_time() - applied
        rows += len(made)
        size += sum(len(key) + len(value or b"") for key, value in made.items())
        steps += 1
    return counting, writing, rows, size, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=8_000)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--step", type=int, default=STEP)
    parser.add_argument("--batch", type=int, default=25, help="traces of a service a record")
    parser.add_argument("--builtin", action="store_true", help="the built-in scorers, too")
    options = parser.parse_args()
    settings = load_settings(environ={}, overrides={"builtin_scorers": options.builtin})
    lines = grown(options.traces, options.services, options.rate)
    scorer = Scorer(builtin=options.builtin)
    collect_rarely()  # as a worker does
    spent: dict[str, float] = {}

    def part(name: str, what: Callable[[], Any]) -> Any:
        found, spent[name] = timed(what)
        return found

    part("json.loads", lambda: [json.loads(line) for line in lines])
    items = part("decode and validate", lambda: [decode_trace(line, 2**21) for line in lines])
    traces = [item.trace for item in items if isinstance(item, DecodedTrace)]
    scored = part("score", lambda: [scorer.score(trace).trace for trace in traces])
    records = [ScoreRecord(one, SourceOffset(0, number)) for number, one in enumerate(scored)]
    by_service: dict[str, list[ScoreRecord]] = defaultdict(list)
    for record in records:
        by_service[record.scored.service].append(record)
    batches = [
        some[first : first + options.batch]
        for some in by_service.values()
        for first in range(0, len(some), options.batch)
    ]
    sent = part("encode the records", lambda: [d for some in batches for d in encode_scores(some)])
    read = part("decode the records", lambda: [decode_scores(data) for data in sent])
    read.sort(key=lambda some: some[0].scored.timestamp)
    counting, writing, rows, size, steps = counted(settings, scorer, read, options.step)
    spent["count it (windows, rules, drift)"], spent["rows of the step"] = counting, writing
    count = len(traces)
    scorers = "built-in scorers" if options.builtin else "cheap tier alone"
    print(f"{count} traces, {options.services} services, {scorers}, {count / steps:.0f} a step\n")
    print("| part | us a trace | x json.loads |\n| --- | ---: | ---: |")
    base = spent["json.loads"]
    for name, seconds in spent.items():
        print(f"| {name} | {seconds / count * 1e6:.0f} | {seconds / base:.1f} |")
    total = sum(spent.values()) - base
    print(f"| all but json.loads | {total / count * 1e6:.0f} | {total / base:.1f} |")
    for name, less in PARTS.items():
        overrides = {"builtin_scorers": options.builtin, **less}
        other = load_settings(environ={}, overrides=overrides)
        left, *_ = counted(other, scorer, read, options.step)
        print(f"| counting: of it {name} | {(counting - left) / count * 1e6:.0f} | |")
    packed = len(gzip.compress(b"".join(lines[:100]))) / sum(map(len, lines[:100]))
    print(f"\ntrace: {sum(map(len, lines)) / count:.0f} bytes ({packed:.2f} of it by gzip)")
    print(f"score record: {sum(map(len, sent)) / count:.0f} bytes")
    print(f"changelog: {rows / steps:.1f} records and {size / steps / 1e3:.1f} kB a step,")
    print(f"{rows / count:.2f} records and {size / count:.0f} bytes a trace")


if __name__ == "__main__":
    main()
