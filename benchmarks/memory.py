"""Memory and state file over a long replay, printed at every tenth of it.

    python -m benchmarks.memory [--traces 1000000] [--services 5]

The whole agent with its SQLite file: accept, score (cheap tier and built-in scorers), windows,
alerts, commit. Traces of about 600 bytes at 50 a second of event time, so a million covers five and
a half hours; from the second tenth on the 5 m and 1 h windows are full and only 24 h still fills.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.config.loader import load_settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace

__all__ = ["main"]

BATCH = 256
RATE = 50.0
START = 1_760_000_000.0


def resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS")


def line(number: int, services: int, rng: random.Random) -> bytes:
    trace = {
        "trace_id": f"t{number}",
        "service": f"bot{rng.randrange(services)}",
        "timestamp": START + number / RATE,
        "query": "How do I reset my password?",
        "passages": [
            {"id": "kb-1", "text": "Click Forgot password on the login page to reset it."},
            {"id": "kb-2", "text": f"Invoice {number} is sent on day {number % 28}."},
        ],
        "answer": rng.choice(["Click Forgot password [1].", "It costs 99 euros [7].", ""]),
        "status": rng.choices(["ok", "error", "timeout"], [95, 4, 1])[0],
        "timings": {"total": rng.lognormvariate(0, 1), "retrieval": rng.random()},
    }
    return json.dumps(trace).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--services", type=int, default=5)
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = {"path": f"{folder}/s.sqlite", "dead_letters": f"{folder}/d.jsonl"}
        settings = load_settings(environ={}, overrides={"state": paths})
        instrument = EmbeddedAgent(
            settings, load_configured_rules(settings), live=False, parts=PARTS
        )
        instrument.start()
        print(f"{'traces':>9} {'RSS MiB':>8} {'state MiB':>10} {'traces/s':>9}")
        begin, step = time.perf_counter(), options.traces // 10
        for first in range(0, options.traces, BATCH):
            numbers = range(first, min(first + BATCH, options.traces))
            items: list[tuple[DecodedTrace | DecodeFailure, int]] = [
                (decode_trace(line(n, options.services, rng), 2**20), n) for n in numbers
            ]
            while instrument.room() < BATCH:
                time.sleep(0.001)
            instrument.accept(items, "benchmark")
            if numbers[-1] // step != (first - 1) // step:
                instrument.wait_idle()
                size = sum(part.stat().st_size for part in Path(folder).iterdir()) / 2**20
                rate = numbers[-1] / (time.perf_counter() - begin)
                print(
                    f"{numbers[-1] + 1:9} {resident_megabytes():8.1f} {size:10.1f} {rate:9.0f}",
                    flush=True,
                )
        instrument.stop(60)


if __name__ == "__main__":
    main()
