"""How many traces a second of one service its only owner takes, on a real Kafka of one node.

    python -m benchmarks.kafka_owner [--traces 60000] [--rate 2000] [--batch 500]

Traces are scored here, as the score group would, and sent to the topic of the scores, `--batch` a
record. Then a worker is started, which has nothing else to do than to count them in the one
partition of the service: windows, rules, drift, objectives, labels and evidence. The clock runs
while the middle of them is counted; processor time is the whole worker's. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ragmeter.aggregate.feedback_join import ranked_passage_keys
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, encode_scores
from ragmeter.scoring.scorer import Scorer

from benchmarks.kafka_cluster import Setup, counted_by, grown, produce, running, until, worker
from tests.kafka_server import kafka_server

__all__ = ["main"]

OFF = (("builtin_scorers", False), ("models", {"cpu_share": 0}), ("scorers", {"processes": 0}))


def records(count: int, rate: float, batch: int) -> Iterator[bytes]:
    scorer, some = Scorer(builtin=False), list[ScoreRecord]()
    for number, line in enumerate(grown(count, 1, rate)):
        item = decode_trace(line, 2**21)
        assert isinstance(item, DecodedTrace)
        passages = ranked_passage_keys(item.trace)
        scored = scorer.score(item.trace).trace
        some.append(ScoreRecord(scored, SourceOffset(0, number), passages))
        if len(some) == batch or number == count - 1:
            yield from encode_scores(some)
            some = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=60_000)
    parser.add_argument("--rate", type=float, default=2_000.0, help="a second of event time")
    parser.add_argument("--batch", type=int, default=500, help="traces a record")
    options = parser.parse_args()
    lines = list(records(options.traces, options.rate, options.batch))
    with tempfile.TemporaryDirectory() as place, kafka_server(Path(place)) as server:
        setup = Setup(server.bootstrap, "owner", 1, OFF)
        setup.make_topics()
        process = worker(setup, Path(place))
        with running(process):
            first = max(1, len(lines) // 4)
            produce(setup.bootstrap, setup.topic("scores"), lines[:first], 1)
            until(lambda: counted_by(process) >= first * options.batch, [process])
            used, begun = process.cpu, time.monotonic()
            produce(setup.bootstrap, setup.topic("scores"), lines[first:], 1)
            # asked ten times a second, a worker would spend a tenth of its time on answers
            until(lambda: counted_by(process) >= options.traces, [process], every=1.0)
            wall, used = time.monotonic() - begun, process.cpu - used
    count = options.traces - first * options.batch
    print(
        f"{count} traces of one service, {len(lines[0]) / options.batch:.0f} bytes each,"
        f" {options.batch} a record: {count / wall:.0f} a second, {used / count * 1e6:.0f} us of"
        f" processor time each (load {os.getloadavg()[0]:.0f})"
    )


if __name__ == "__main__":
    main()
