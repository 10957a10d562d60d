"""What the embedded grounding model costs: CPU time of one thread, by row and by trace.

    python -m benchmarks.mini --data DIR [--traces N]

A row of 512 tokens is the longest; of each of the development sets N traces are scored whole, with
the lexical score, the spans and their evidence, and beside that for relevance. Times are CPU time;
on a busy machine caches and clock still differ, so compare two versions in alternating runs.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model
from ragmeter.scorers.mini.tier import conclude_trace, draw_passages, grade_by_words
from ragmeter.trace import Trace

from training.devdata import grounding_rows
from training.fit import read_windows

__all__ = ["main"]

ROUNDS = 15


def score(model: TokenModel, trace: Trace) -> int:
    """Score as the tier does; return the number of rows."""
    texts = [passage.text or "" for passage in trace.passages or ()]
    prepared = read_windows(model, trace.query or "", texts, trace.answer or "")
    conclude_trace(trace, prepared)
    return sum(len(chunk.supports) for chunk in prepared.chunks)


def grade(model: TokenModel, trace: Trace) -> None:
    """Grade passages as the tier does."""
    lexical = grade_by_words(trace)
    if isinstance(lexical, list):
        for passage, _ in draw_passages(trace, lexical):
            model.support_query(trace.query or "", passage.text or "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--traces", type=int, default=60, help="of each set")
    options = parser.parse_args()
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    model.open()
    prepared = model.read("word " * 60, ["word " * 309], "said " * 160)
    (row,) = prepared.next_rows()
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        model.score_window(prepared, *row)
        times.append(time.process_time() - began)
    print(
        f"row of 512 tokens: median {1e3 * median(times):.1f} ms, least {1e3 * min(times):.1f} ms"
    )
    by_set: dict[str, list[Trace]] = defaultdict(list)
    for labelled in grounding_rows(options.data):
        by_set[labelled.name].append(labelled.trace)
    print("| set | rows a trace | ms a trace: mean | median | most | relevance: mean |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    everything, graded = [], []
    for name, traces in sorted(by_set.items()):
        rows, costs, further = 0, [], []
        for trace in traces[:: max(1, len(traces) // options.traces)][: options.traces]:
            began = time.process_time()
            rows += score(model, trace)
            costs.append(1e3 * (time.process_time() - began))
            began = time.process_time()
            grade(model, trace)
            further.append(1e3 * (time.process_time() - began))
        everything += costs
        graded += further
        print(
            f"| {name} | {rows / len(costs):.1f} | {mean(costs):.0f} | {median(costs):.0f}"
            f" | {max(costs):.0f} | {mean(further):.0f} |"
        )
    print(
        f"all: mean {mean(everything):.0f} ms, median {median(everything):.0f} ms;"
        f" relevance {mean(graded):.0f} ms"
    )


if __name__ == "__main__":
    main()
