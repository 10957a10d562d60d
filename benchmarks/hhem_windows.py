"""The pairs of the model tier on real traces, and what its choice of windows changes.

    python -m benchmarks.hhem_windows --data DIR [--encoder DIR] [--traces 400]

Traces are those of `benchmarks.workload`. For each, every sentence is held against every window,
and against those that the tier chooses. The scorers stand in for HHEM, whose weights are not here:

- the tiny network of the tests, whose weights are random: it counts pairs of a tenth of the
  traces, and its scores mean nothing, so that the highest of fewer is lower by chance;
- with `--encoder`, a sentence encoder in DIR (`model.onnx`, `tokenizer.json`) that was trained by
  others: a logistic of the cosine stands for the support. It reads meaning and not words, so that
  it says how often words miss the window that matters.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ragmeter.scorers.hhem import windowing
from ragmeter.scorers.hhem.model import HhemModel, require_module
from ragmeter.scorers.hhem.tier import find_missing_reason
from ragmeter.trace import Trace
from tokenizers import Tokenizer

from benchmarks.workload import make_traces
from training.hhem.convert import convert_checkpoint

__all__ = ["main"]

TINY = Path(__file__).parent.parent / "tests" / "data" / "hhem-tiny"
STRIDE = 17  # every 17th trace: neighbours share passages
PROMPT_TOKENS = 60  # of HHEM's prompt
# Cosines of a sentence with a window that has its fact begin at about 0.45.
MIDDLE, SLOPE = 0.45, 0.06

Score = Callable[[str, str], float]


def encoder(folder: Path) -> tuple[windowing.CountTokens, Score]:
    """The token count and the support of a sentence encoder."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    runtime = require_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(folder / "model.onnx"), options)
    names = [part.name for part in session.get_inputs()]

    @cache
    def embed(text: str) -> npt.NDArray[np.float32]:
        ids = np.array([tokenizer.encode(text).ids[:512]])
        parts = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        (states, *_) = session.run(None, {name: parts.get(name, 0 * ids) for name in names})
        mean = states.reshape(-1, states.shape[-1]).mean(0)
        out: npt.NDArray[np.float32] = mean / np.linalg.norm(mean)
        return out

    def score(premise: str, hypothesis: str) -> float:
        cosine = float(embed(premise) @ embed(hypothesis))
        return 1 / (1 + math.exp((MIDDLE - cosine) / SLOPE))

    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), score


def checked(plan: windowing.WindowPlan, score: Score) -> tuple[float, int, int]:
    """Value, pairs and tokens of a trace as the tier scores it."""
    supports: windowing.Supports = {}
    tokens = 0
    while checks := plan.next_checks(supports):
        for check in checks:
            tokens += check.tokens
            value = score(check.premise, check.hypothesis)
            supports.setdefault(check.hypothesis, {})[check.windows] = value
    grounding = windowing.conclude_grounding(plan, supports)
    return grounding.value, grounding.pairs, tokens


def exhaustive(plan: windowing.WindowPlan) -> windowing.WindowPlan:
    """The plan that holds every sentence against every window."""
    windows = range(len(plan.windows))
    choices = {sentence.text: windows for sentence in plan.sentences}
    return windowing.WindowPlan(plan.sentences, plan.windows, plan.prompt_tokens, choices)


def plans(
    data: Path, count: windowing.CountTokens, length: Callable[[str, str], int]
) -> Iterator[windowing.WindowPlan]:
    for row in islice(make_traces(data, 20_000), 0, None, STRIDE):
        trace = Trace.model_validate(row)
        if find_missing_reason(trace) is None:
            texts = [passage.text or "" for passage in trace.passages or ()]
            plan = windowing.plan_windows(trace.answer or "", texts, count, length)
            if plan.sentences:
                yield plan


def report(name: str, todo: Iterator[windowing.WindowPlan], score: Score) -> None:
    rows: list[tuple[Any, ...]] = []
    cpu = [0.0, 0.0]
    for plan in todo:
        found = []
        for index, variant in enumerate((exhaustive(plan), plan)):
            begun = time.process_time()
            found.append(checked(variant, score))
            cpu[index] += time.process_time() - begun
        rows.append((*found[0], *found[1]))
    every, pairs, tokens, chosen, few_pairs, few_tokens = map(list, zip(*rows, strict=True))
    off = sorted(abs(a - b) for a, b in zip(every, chosen, strict=True))
    cells = [
        name,
        f"{len(rows)}",
        f"{statistics.mean(pairs):.1f}, {statistics.mean(few_pairs):.1f}",
        f"{statistics.mean(tokens):.0f}, {statistics.mean(few_tokens):.0f}",
        f"{1000 * cpu[0] / len(rows):.0f}, {1000 * cpu[1] / len(rows):.0f}",
        f"{statistics.mean(every):.3f}, {statistics.mean(chosen):.3f}",
        f"{statistics.mean(off):.4f}, {off[int(0.95 * len(off))]:.3f}",
        f"{sum(value <= 0.01 for value in off) / len(off):.0%}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the development data")
    parser.add_argument("--encoder", type=Path, help="folder of a sentence encoder")
    parser.add_argument("--traces", type=int, default=400)
    options = parser.parse_args()
    print("Of two figures the first is of every sentence with every window.\n")
    print(
        "| scorer | traces | pairs a trace | tokens a trace | CPU ms a trace | mean value "
        "| difference of values: mean, 95 % | at most 0.01 |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    if options.encoder is not None:
        count, score = encoder(options.encoder)

        def length(premise: str, hypothesis: str) -> int:
            return PROMPT_TOKENS + count(premise) + count(hypothesis)

        todo = plans(options.data, count, length)
        report("sentence encoder", islice(todo, options.traces), score)
    with tempfile.TemporaryDirectory() as folder:
        convert_checkpoint(TINY, Path(folder))
        model = HhemModel(Path(folder), False)
        todo = plans(options.data, model.count, lambda a, b: len(model.encode(a, b)))
        report("tiny network, random weights", islice(todo, options.traces // 10), model.score)


if __name__ == "__main__":
    main()
