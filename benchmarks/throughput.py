"""Traces per second and core of each part of the pipeline, as ratios to decoding in one run.

    python -m benchmarks.throughput [--rounds ROUNDS] [--profile]

The traces are those of examples/mtrag.jsonl between 3.5 and 6.5 KB (mean printed), given new ids
and timestamps at 20 a second. Each stage holds those before it; rounds are interleaved, so that
a slow moment of the machine hits all stages alike. Nothing is written to disk: the queue's cost
is in the last row, which runs the whole agent with its SQLite file.

The example's passages repeat, as those of a knowledge base do in production, and what is read from
a repeated passage comes from memory. The rows "no passage twice" have the same traces with one word
changed in each passage and answer, new ones in every round: nothing comes from memory there.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.alerts.rules import AlertRule
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.file_import import import_traces
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.scoring.scorer import Scorer

__all__ = ["main"]

EXAMPLE = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
COUNT = 1_000  # traces a round
RATE = 20.0  # traces a second of event time: several evaluations of the rules in a round
Rules = Sequence[AlertRule]


def traces() -> list[bytes]:
    """`COUNT` lines of about 5 KB."""
    lines = [line for line in EXAMPLE.read_bytes().splitlines() if 3_500 <= len(line) <= 6_500]
    out = []
    for number in range(COUNT):
        trace = json.loads(lines[number % len(lines)])
        trace |= {"trace_id": f"t{number}", "timestamp": 1_760_000_000 + number / RATE}
        trace["timings"] = {"total": 0.5 + number % 7, "retrieval": 0.1}
        out.append(json.dumps(trace).encode())
    return out


def distinct(lines: Sequence[bytes], edition: int) -> list[bytes]:
    """The same traces with a word of its own in the middle of each passage and answer."""

    def mark(text: str, number: int) -> str:
        words = text.split(" ")
        words[len(words) // 2] = f"item{edition}x{number}"
        return " ".join(words)

    out = []
    number = 0
    for line in lines:
        trace = json.loads(line)
        for passage in trace.get("passages") or ():
            number += 1
            passage["text"] = mark(passage.get("text") or "", number)
        if trace.get("answer"):
            trace["answer"] = mark(trace["answer"], number)
        out.append(json.dumps(trace).encode())
    return out


def decode_all(lines: Sequence[bytes]) -> None:
    for line in lines:
        assert isinstance(decode_trace(line, 2**21), DecodedTrace)


def score_all(lines: Sequence[bytes], scorer: Scorer) -> None:
    for line in lines:
        item = decode_trace(line, 2**21)
        assert isinstance(item, DecodedTrace)
        scorer.score(item.trace)


def pipeline(lines: Sequence[bytes], scorer: Scorer, settings: Settings, rules: Rules) -> None:
    aggregator = Aggregator(settings, rules, scorer.pairs, parts=PARTS)
    for line in lines:
        item = decode_trace(line, 2**21)
        assert isinstance(item, DecodedTrace)
        aggregator.apply(scorer.score(item.trace).trace)
    aggregator.windows.drain()


def whole_agent(lines: Sequence[bytes], rules: Rules) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "traces.jsonl"
        file.write_bytes(b"\n".join(lines))
        paths = {"path": f"{folder}/s.sqlite"}
        settings = load_settings(environ={}, overrides={"state": paths})
        instrument = EmbeddedAgent(settings, rules, live=False, parts=PARTS)
        instrument.start()
        import_traces(instrument, file, 2**21)
        instrument.wait_idle()
        instrument.stop(10)


def stages(lines: Sequence[bytes], edition: int) -> dict[str, Callable[[], None]]:
    settings = load_settings(environ={})
    fresh = distinct(lines, edition)
    rules = load_configured_rules(settings)
    cheap, full = Scorer(builtin=False), Scorer()
    return {
        "decode": lambda: decode_all(lines),
        "decode + cheap tier": lambda: score_all(lines, cheap),
        "decode + cheap tier + windows, alerts": lambda: pipeline(lines, cheap, settings, rules),
        "decode + cheap + built-in, passages repeat": lambda: score_all(lines, full),
        "full pipeline, passages repeat": lambda: pipeline(lines, full, settings, rules),
        "full pipeline, no passage twice": lambda: pipeline(fresh, full, settings, rules),
        "whole agent: file to durable windows": lambda: whole_agent(lines, rules),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    options = parser.parse_args()
    lines = traces()
    size = sum(map(len, lines)) / len(lines)
    print(f"{COUNT} traces of {size:.0f} bytes, {options.rounds} rounds, median (min … max)")
    runs: dict[str, list[float]] = {}
    for edition in range(options.rounds + 1):
        for name, stage in stages(lines, edition).items():
            begin = time.process_time() if "agent" not in name else time.perf_counter()
            stage()
            end = time.process_time() if "agent" not in name else time.perf_counter()
            runs.setdefault(name, []).append(end - begin)
    base = [COUNT / seconds for seconds in runs["decode"][1:]]  # the first round warms up
    print(f"{'stage':45} {'traces/s':>9} {'min … max':>17} {'µs':>6} {'ratio to decode':>16}")
    for name, seconds in runs.items():
        rates = [COUNT / value for value in seconds[1:]]
        ratio = statistics.median(a / b for a, b in zip(rates, base, strict=True))
        rate = statistics.median(rates)
        span = f"{min(rates):.0f} … {max(rates):.0f}"
        print(f"{name:45} {rate:9.0f} {span:>17} {1e6 / rate:6.0f} {ratio:16.3f}")
    if options.profile:
        profile = cProfile.Profile()
        settings = load_settings(environ={})
        profile.runcall(pipeline, lines, Scorer(), settings, load_configured_rules(settings))
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
