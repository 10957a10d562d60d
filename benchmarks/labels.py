"""What labels of people are worth that `ragmeter label` draws: coverage and width, on real labels.

    python -m benchmarks.labels --data DIR [--runs 1000] [--labels 30,100] [--sets RAGTruth]

Each run makes a stream of answers, drawn with replacement from the answers of a development set
with people's verdicts, draws some as `ragmeter label` does (`draw_slices`), takes their verdicts
for the labels, and estimates people's rate of the whole stream as the command does
(`estimate_people`, so with the windows' own estimator). Beside it stands the interval of as many
labels drawn uniformly, estimated without the help of a score.

The help is the built-in grounding score, out of fold: by models that saw no answer to the same
input (its two calibration parameters saw all). r is its correlation with people's verdicts; no
estimator can be narrower than sqrt(1 - r^2) of uniform labels by much.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.agreement import table
from benchmarks.devdata import Floats, grounding_rows
from benchmarks.fit_grounding import calibrate, cross_validate, matrix
from benchmarks.fitting import sigmoid
from ragmeter.core.feedback import Verdict
from ragmeter.offline.whole_file import estimate_people
from ragmeter.sampling.labelling import draw_slices

SETS = {
    "RAGTruth": ("RAGTruth Summary", "RAGTruth QA", "RAGTruth Data2txt"),
    "BEGIN": ("BEGIN",),
    "ClapNQ (human)": ("ClapNQ (human)",),
    "MTRAG (human)": ("MTRAG (human)",),
}


class Coverage:
    """The share of intervals that hold the truth, their mean width and their bias."""

    def __init__(self) -> None:
        self.runs = self.held = 0
        self.width = self.bias = 0.0

    def add(self, lower: float, upper: float, value: float, truth: float) -> None:
        """Count an interval."""
        self.runs += 1
        self.held += lower - 1e-9 <= truth <= upper + 1e-9
        self.width += upper - lower
        self.bias += value - truth


def simulate(
    good: Sequence[bool], cheap: Floats, labels: int, stream: int, runs: int, seed: int
) -> tuple[Coverage, Coverage, Coverage]:
    """Return the coverage of uniform labels, of drawn ones alone, and of those with help."""
    rng = random.Random(seed)
    uniform, alone, helped = Coverage(), Coverage(), Coverage()
    for _ in range(runs):
        rows = rng.choices(range(len(good)), k=stream)
        truth = sum(good[at] for at in rows) / stream
        scores = [{"grounding": float(cheap[at])} for at in rows]
        for coverages, drawn in (
            ((uniform,), rng.sample(range(stream), labels)),
            ((alone, helped), draw_slices([one["grounding"] for one in scores], labels, rng)),
        ):
            verdicts = {at: (Verdict(grounded=good[rows[at]]), labels / stream) for at in drawn}
            estimates = [row.estimate for row in estimate_people(scores, verdicts, "builtin")]
            for coverage, one in zip(coverages, estimates, strict=False):
                coverage.add(one.lower, one.upper, one.value, truth)
    return uniform, alone, helped


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--labels", default="30,100")
    parser.add_argument("--stream", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    args = parser.parse_args()
    data = grounding_rows(args.data)
    x, y, sets, sentences = matrix(data)
    held = cross_validate(x, y, sets, sentences, [row.group for row in data])
    slope, intercept = calibrate(held, y, sets)
    score = 1 - sigmoid(slope * held + intercept)
    body = []
    for name in args.sets:
        rows = np.isin(sets, SETS[name])
        good, cheap = [bool(bad <= 0) for bad in y[rows]], score[rows]
        r = float(np.corrcoef(np.array(good, float), cheap)[0, 1])
        for labels in map(int, args.labels.split(",")):
            uniform, alone, helped = simulate(
                good, cheap, labels, args.stream, args.runs, args.seed
            )
            body.append(
                [
                    name,
                    str(labels),
                    f"{sum(good) / len(good):.2f}",
                    f"{r:.2f}",
                    f"{math.sqrt(1 - r * r):.2f}",
                    f"{uniform.held / uniform.runs:.3f}",
                    f"{uniform.width / uniform.runs:.3f}",
                    f"{alone.held / alone.runs:.3f}",
                    f"{helped.held / helped.runs:.3f}",
                    f"{helped.width / helped.runs:.3f}",
                    f"**{helped.width / uniform.width:.2f}**",
                    f"{helped.bias / helped.runs:+.4f}",
                ]
            )
    head = ["answers", "labels", "grounded, people", "r", "sqrt(1 - r²)"]
    head += ["uniform: coverage", "width", "people: coverage", "people+builtin: coverage"]
    print(table([*head, "width", "of uniform", "bias"], body))


if __name__ == "__main__":
    main()
