"""HHEM's CPU time beside eager PyTorch, in one run.

    python -m benchmarks.hhem --reference-python /path/to/venv/bin/python [--rounds 5]

A checkpoint of HHEM's exact shape with random weights is made, converted by our own code and scored
one pair at a time: by our float32 and int8 graphs, and by transformers' T5 in another process. That
process runs the given Python, which has torch, transformers (4.50) and safetensors; without one the
ratios are left out. Times are CPU time, so that other jobs on the machine matter little; a ratio is
taken within a round, then the median. Random weights rank the options: what int8 costs on the real
ones is for `ragmeter model check`. Last comes the memory of a process that scores such pairs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
from ragmeter.scorers.hhem.model import (
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    HhemModel,
    consistency_probability,
)
from safetensors.numpy import save_file

from training.hhem.checkpoint import EncoderShape
from training.hhem.convert import convert_checkpoint

__all__ = ["main", "random_checkpoint"]

HERE = Path(__file__).parent
ANY_TOKENIZER = (
    HERE.parent / "tests" / "data" / "hhem-tiny" / TOKENIZER_NAME
)  # ids are made up here
HHEM_SHAPE = EncoderShape(32128, 768, 12, 64, 2048, 12, 32)

Scorer = Callable[[list[int]], tuple[float, tuple[float, float]]]


def random_checkpoint(folder: Path, shape: EncoderShape, seed: int = 0) -> None:
    """Weights with the spread that T5 is initialised with."""
    rng = np.random.default_rng(seed)
    spread = {
        "q.weight": (shape.width * shape.head) ** -0.5,
        "wo.weight": shape.inner**-0.5,
        ".o.weight": (shape.heads * shape.head) ** -0.5,
        "shared.weight": 1.0,
    }
    tensors = {}
    for key, size in shape.tensors().items():
        if "norm" in key or size == (shape.labels,):
            tensors[key] = np.full(size, float("norm" in key), np.float32)
            continue
        scale = next((s for end, s in spread.items() if key.endswith(end)), shape.width**-0.5)
        tensors[key] = rng.standard_normal(size, dtype=np.float32) * np.float32(scale)
    save_file(tensors, folder / WEIGHTS_NAME)
    shutil.copy(ANY_TOKENIZER, folder / TOKENIZER_NAME)


def pair(length: int, seed: int) -> list[int]:
    """Ids as a pair has them: `<pad>` first, `</s>` last."""
    inner = np.random.default_rng(seed).integers(3, HHEM_SHAPE.vocabulary, length - 2)
    return [0, *inner.tolist(), 1]


def ours(model: HhemModel) -> Scorer:
    def score(ids: list[int]) -> tuple[float, tuple[float, float]]:
        began = time.process_time()
        logits = model.logits(ids)
        return time.process_time() - began, logits

    return score


def reference(python: Path, weights: Path, stack: ExitStack) -> Scorer:
    process = stack.enter_context(
        subprocess.Popen(
            [python, HERE / "hhem_reference.py", weights],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stack.callback(process.stdin.close)
    to, back = process.stdin, process.stdout
    torch, transformers = json.loads(back.readline())
    print(f"reference: torch {torch}, transformers {transformers}, eager, float32, one thread\n")

    def score(ids: list[int]) -> tuple[float, tuple[float, float]]:
        print(json.dumps(ids), file=to, flush=True)
        seconds, logits = json.loads(back.readline())
        return seconds, logits

    return score


def memory(folder: Path, int8: bool, lengths: list[int]) -> list[int]:
    """Largest resident megabytes of this process after loading and after each length."""

    def peak() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
        raise OSError("no VmHWM")

    model = HhemModel(folder, int8)
    found = [peak()]
    for length in lengths:
        model.logits(pair(length, 0))
        found.append(peak())
    return found


def compare(scorers: dict[str, Scorer], lengths: list[int], rounds: int) -> None:
    print("| tokens | " + " | ".join(f"{name}, ms" for name in scorers), end=" |")
    others = [name for name in scorers if name != "eager"] if "eager" in scorers else []
    print("".join(f" {name} / eager | largest score difference |" for name in others))
    print("| ---: " * (1 + len(scorers) + 2 * len(others)) + "|")
    for length in lengths:
        seconds: dict[str, list[float]] = {name: [] for name in scorers}
        scores: dict[str, list[float]] = {name: [] for name in scorers}
        for number in range(rounds):
            ids = pair(length, number)
            for name, scorer in scorers.items():
                took, logits = scorer(ids)
                seconds[name].append(took)
                scores[name].append(consistency_probability((logits[0], logits[1])))
        cells = [f"{1000 * median(seconds[name]):.0f}" for name in scorers]
        for name in others:
            ratios = [a / b for a, b in zip(seconds[name], seconds["eager"], strict=True)]
            off = max(abs(a - b) for a, b in zip(scores[name], scores["eager"], strict=True))
            cells += [f"{median(ratios):.2f}", f"{off:.1g}"]
        print(f"| {length} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-python", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048])
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        random_checkpoint(folder, HHEM_SHAPE)
        began = time.process_time()
        convert_checkpoint(folder, folder, int8=True)
        print(f"converted in {time.process_time() - began:.1f} s of CPU time")
        scorers: dict[str, Scorer] = {}
        if options.reference_python:
            scorers["eager"] = reference(options.reference_python, folder / WEIGHTS_NAME, stack)
        else:
            print("no reference: --reference-python is not given, so there are no ratios\n")
        scorers["fp32"] = ours(HhemModel(folder))
        scorers["int8"] = ours(HhemModel(folder, int8=True))
        compare(scorers, options.lengths, options.rounds)
        print("\n| resident MB at most | loaded | " + " | ".join(map(str, options.lengths)) + " |")
        print("| --- " + "| ---: " * (1 + len(options.lengths)) + "|")
        for int8 in (False, True):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(memory, (folder, int8, options.lengths))
            print(f"| {'int8' if int8 else 'fp32'} | " + " | ".join(map(str, found)) + " |")


if __name__ == "__main__":
    main()
