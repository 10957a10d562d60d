"""What labels of people are worth that `ragmeter label` draws: coverage and width, on real labels.

    python -m benchmarks.labels --data DIR [--runs 1000] [--labels 30,100] [--sets RAGTruth]
    python -m benchmarks.labels --data DIR --answers FILE.json.gz [--runs 1000] [--labels 30,100]

Each run makes a stream of answers, drawn with replacement from the answers of a development set
with people's verdicts, draws some as `ragmeter label` does (`draw_slices`), takes their verdicts
for the labels, and estimates people's rate of the whole stream as the command does
(`estimate_people`, so with the windows' own estimator). Beside it stands the interval of as many
labels drawn uniformly, estimated without the help of a score.

The help is the built-in grounding score, out of fold: by models that saw no answer to the same
input (its two calibration parameters saw all). r is its correlation with people's verdicts; no
estimator can be narrower than sqrt(1 - r^2) of uniform labels by much.

With `--answers` (the file of `training.fit`) the streams are of its answers of RAGTruth to sources
that the model of `mini` never saw, and the help is that of the built-in score, of the model alone
and of `mini`, all out of fold. "even" is the draw as it is, one label of each slice; "doubtful"
draws answers of a doubtful score more often, by the standard deviation sqrt(p (1 - p)) that the
score p lets expect (Neyman's allocation), though none less than a third as often as the most
doubtful.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ragmeter.core.feedback import Verdict
from ragmeter.offline.whole_file import estimate_people
from ragmeter.sampling.slices import draw_chances, draw_slices
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model

from training.agreement import table
from training.devdata import Floats, grounding_rows
from training.fit import Table, apply, fit_rule, read_answers, score_lexical, score_model
from training.fit_grounding import FOLDS, calibrate, cross_validate, matrix
from training.fitting import fit_logistic, sigmoid

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


def simulate_helps(
    good: Sequence[bool], cheap: Floats, labels: int, stream: int, runs: int, seed: int
) -> tuple[Coverage, Coverage, Coverage]:
    """Return the coverage of uniform labels, and with help of even and of doubtful draws."""
    rng = random.Random(seed)
    uniform, even, doubtful = Coverage(), Coverage(), Coverage()
    for _ in range(runs):
        rows = rng.choices(range(len(good)), k=stream)
        truth = sum(good[at] for at in rows) / stream
        values = [float(cheap[at]) for at in rows]
        scores = [{"grounding": value} for value in values]
        spread = [max(1 / 3, 2 * math.sqrt(value * (1 - value))) for value in values]
        for coverage, weights, place in (
            (uniform, None, 0),
            (even, [1.0] * stream, 1),
            (doubtful, spread, 1),
        ):
            if weights is None:
                chances = [labels / stream] * stream
                drawn = rng.sample(range(stream), labels)
            else:
                chances = draw_chances(weights, labels)
                drawn = draw_slices(values, labels, rng, chances)
            verdicts = {at: (Verdict(grounded=good[rows[at]]), chances[at]) for at in drawn}
            one = estimate_people(scores, verdicts, "mini")[place].estimate
            coverage.add(one.lower, one.upper, one.value, truth)
    return uniform, even, doubtful


def print_helps(args: argparse.Namespace) -> None:
    """Print what each score is worth on answers to sources that no part of it has seen."""
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    # the rule of `mini` needs the other sets too, of which the model scores some
    answers = [
        one for one in read_answers(args.answers) if one.name.startswith(("ragtruth", "begin"))
    ]
    score_model(model, answers)
    columns = Table.of(answers, score_lexical(args.data, answers))
    x, good, sets = columns.x[:, :2], columns.good, columns.sets
    level = np.zeros((3, len(answers)))
    for fold in range(FOLDS):
        use, held = columns.folds != fold, columns.folds == fold
        level[2, held] = apply(fit_rule(columns, use), columns, x[:, 1])[held]
        own = fit_logistic(x[use, :1], good[use], np.ones(use.sum()), np.ones((use.sum(), 1)))
        slope = float(own.weights[0] / own.scale[0])
        level[1, held] = slope * (x[held, 0] - float(own.mean[0])) + float(own.offsets[0])
    level[0] = x[:, 1]
    rows = np.char.startswith(sets, "ragtruth")
    truth = [bool(one) for one in good[rows]]
    body = []
    for name, odds in zip(("builtin", "model", "mini"), level, strict=True):
        cheap = sigmoid(odds[rows])
        r = float(np.corrcoef(good[rows], cheap)[0, 1])
        for labels in map(int, args.labels.split(",")):
            uniform, even, doubtful = simulate_helps(
                truth, cheap, labels, args.stream, args.runs, args.seed
            )
            cells = [name, str(labels), f"{r:.2f}", f"{math.sqrt(1 - r * r):.2f}"]
            cells += [f"{uniform.held / uniform.runs:.3f}", f"{uniform.width / uniform.runs:.3f}"]
            for one in (even, doubtful):
                cells += [f"{one.held / one.runs:.3f}", f"{one.width / uniform.width:.2f}"]
            body.append(cells)
    print(f"{len(truth)} answers of RAGTruth, {sum(truth) / len(truth):.2f} grounded by people")
    head = ["help", "labels", "r", "sqrt(1 - r²)", "uniform: coverage", "width"]
    head += ["even: coverage", "of uniform", "doubtful: coverage", "of uniform"]
    print(table(head, body))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--labels", default="30,100")
    parser.add_argument("--stream", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--answers", type=Path)
    args = parser.parse_args()
    if args.answers is not None:
        print_helps(args)
        return
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
