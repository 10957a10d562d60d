"""Fits and measures how the scorer `mini` combines its model with the lexical score.

    python -m training.fit --data DIR --answers FILE.json.gz [--write]

DIR has the human-labelled development sets; the lexical score is fitted on them anew for each fold.
FILE has labelled answers (`ex`: src, q, ctx, a, bad, spans, val) and their passages (`ctx`), as the
model was trained on them; only those marked `val` are used, whose sources training never saw.

Printed are, by set and out of fold, the AUROC of the lexical score, the model and both, over all
answers and within bands of equal length, and the expected calibration error; then how well the
marked words meet the spans that people marked in RAGTruth. `--write` puts the fit into
`model.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.devdata import Floats, auroc, band_auroc, fold_of, grounding_rows
from benchmarks.fit_grounding import FOLDS, Fitted, Mask, Sentences, calibrate, fit, matrix
from benchmarks.fitting import fit_logistic, sigmoid
from ragmeter.metrics.grounding import grounding_features, weigh_contradictions
from ragmeter.metrics.grounding_features import SENTENCE_FEATURES
from ragmeter.scorers.mini.model import (
    BUNDLED_FOLDER,
    MANIFEST_NAME,
    TokenModel,
    TokenRisk,
    load_model,
)
from ragmeter.scorers.mini.tier import unsupported_spans
from ragmeter.trace import Trace

L2 = 1.0
BIN = 40  # answers in a bin of the calibration error, of which there are 2 to 10
CUTS = [round(0.25 * step, 2) for step in range(-2, 13)]


@dataclass(slots=True)
class Answer:
    name: str
    fold: int
    trace: Trace
    bad: bool
    spans: list[tuple[int, int]] | None
    lexical: float = 0.0  # log odds that it is grounded
    model: float = 0.0
    tokens: list[TokenRisk] | None = None


def read_answers(path: Path) -> list[Answer]:
    """The answers to sources that training never saw."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    out = []
    for number, row in enumerate(content["ex"]):
        if not row["val"]:
            continue
        texts = content["ctx"][row["ctx"]] if isinstance(row["ctx"], str) else row["ctx"]
        by_query = row["src"] in ("begin", "clapnq_human", "mtrag_human")
        trace = Trace.model_validate(
            {
                "trace_id": f"a{number}",
                "service": row["src"],
                "timestamp": 0,
                "query": row["q"],
                "passages": [{"id": f"p{i}", "text": text} for i, text in enumerate(texts)],
                "answer": row["a"],
            }
        )
        fold = fold_of(row["q"] if by_query else texts[0], FOLDS)
        spans = None if row["spans"] is None else [(a, b) for a, b in row["spans"]]
        out.append(Answer(row["src"], fold, trace, bool(row["bad"]), spans))
    return out


def score_lexical(folder: Path, answers: list[Answer]) -> None:
    """By fits that saw no answer to the same question or source."""
    data = grounding_rows(folder)
    x, y, sets, sentences = matrix(data)
    folds = np.array([fold_of(row.group, FOLDS) for row in data])
    held = np.zeros(len(y))
    models: list[Fitted] = []
    for number in range(FOLDS):
        out: Mask = folds == number
        models.append(fit(x, y, sets, sentences, ~out))
        held[out] = models[-1].raw(x, sentences, out)
    slope, intercept = calibrate(held, y, sets)
    one: Mask = np.array([True])
    for answer in answers:
        features, _ = grounding_features(answer.trace)
        rows = np.array(features.sentences, float).reshape(-1, len(SENTENCE_FEATURES))
        zeros = np.zeros(len(rows), np.intp)
        weighed = np.array([weigh_contradictions(features.contradictions)])
        raw = models[answer.fold].raw(
            np.array([features.values]), Sentences(rows, zeros, zeros, weighed), one
        )
        answer.lexical = -float(slope * raw[0] + intercept)


def score_model(model: TokenModel, answers: list[Answer]) -> None:
    for answer in answers:
        trace = answer.trace
        texts = [passage.text or "" for passage in trace.passages or ()]
        reading = model.read(trace.query or "", texts, trace.answer or "")
        risk, tokens = reading.conclude([model.score_window(reading, *r) for r in reading.rows])
        answer.model = -risk
        answer.tokens = tokens


def combine(x: Floats, good: Floats, sets: Any, use: Mask) -> tuple[float, float, float]:
    """Weights of model and lexical score, and the intercept.

    Each set keeps an offset of its own for the weights, which so rank within a set; one slope and
    intercept then make a level. Sets weigh by the root of their size.
    """
    x, good, sets = x[use], good[use], sets[use]
    sizes = {name: float((sets == name).sum()) for name in np.unique(sets)}
    w = np.array([sizes[name] ** -0.5 for name in sets])
    w /= w.mean()
    own = np.stack([(sets == name).astype(float) for name in sizes], 1)
    ranked = fit_logistic(x, good, w, own, l2=L2)
    weights = ranked.weights / ranked.scale
    level = fit_logistic((x @ weights)[:, None], good, w, np.ones((len(good), 1)), l2=L2)
    slope = float(level.weights[0] / level.scale[0])
    intercept = float(level.offsets[0]) - slope * float(level.mean[0])
    return slope * float(weights[0]), slope * float(weights[1]), intercept


def calibration_error(p: Floats, good: Floats) -> float:
    bins = min(10, max(2, len(p) // BIN))
    parts = np.array_split(np.argsort(p), bins)
    return float(sum(abs((p[part] - good[part]).sum()) for part in parts) / len(p))


def print_agreement(answers: list[Answer]) -> tuple[float, float, float]:
    x = np.array([[a.model, a.lexical] for a in answers])
    bad = np.array([a.bad for a in answers])
    sets = np.array([a.name for a in answers])
    folds = np.array([a.fold for a in answers])
    length = np.array([len((a.trace.answer or "").split()) for a in answers], float)
    odds = np.zeros(len(answers))
    for number in range(FOLDS):
        m, lexical, intercept = combine(x, 1.0 - bad, sets, folds != number)
        held = folds == number
        odds[held] = x[held] @ np.array([m, lexical]) + intercept
    print("| set | n | not grounded | builtin | model | mini | mini, mean | calibration error |")
    print("| --- | ---: | ---: | --- | --- | --- | ---: | ---: |")
    for name in np.unique(sets):
        k = sets == name
        columns = []
        for score in (x[:, 1], x[:, 0], odds):
            whole, bands = auroc(-score[k], bad[k]), band_auroc(-score[k], bad[k], length[k])
            columns.append(f"{whole:.3f}/{bands:.3f}")
        p = sigmoid(odds[k])
        print(
            f"| {name} | {k.sum()} | {bad[k].mean():.2f} | {' | '.join(columns)}"
            f" | {p.mean():.2f} | {calibration_error(p, 1.0 - bad[k]):.3f} |"
        )
    people = np.array([not name.startswith("fj") for name in sets])
    for label, k in (("people", people), ("all", people | True)):
        error = calibration_error(sigmoid(odds[k]), 1.0 - bad[k])
        print(f"calibration error, {label}: {error:.3f}")
    return combine(x, 1.0 - bad, sets, folds >= 0)


def overlaps(answer: Answer, cut: float) -> tuple[int, int, int, bool]:
    """Characters marked by both, by the model, by people; and whether the model marks any."""
    text = answer.trace.answer or ""
    spans = unsupported_spans(text, answer.tokens or [], cut)
    marked = {i for span in spans for i in range(span.start, span.end)}
    true = {i for a, b in answer.spans or () for i in range(a, b)}
    return len(marked & true), len(marked), len(true), bool(spans)


def f1(hit: float, said: float, true: float) -> float:
    return 2 * hit / (said + true) if said + true else 0.0


def print_spans(answers: list[Answer]) -> float:
    rows = [a for a in answers if a.name.startswith("ragtruth") and a.spans is not None]
    table = {cut: [overlaps(row, cut) for row in rows] for cut in CUTS}
    folds = np.array([row.fold for row in rows])

    def token_f1(cut: float, use: Any) -> float:
        hits, said, true = np.array([t[:3] for t in table[cut]])[use].sum(0)
        return f1(hits, said, true)

    best = [max(CUTS, key=lambda cut: token_f1(cut, folds != n)) for n in range(FOLDS)]
    picked = [table[best[row.fold]][i] for i, row in enumerate(rows)]
    for name in ("ragtruth", *sorted({row.name for row in rows})):
        k = [i for i, row in enumerate(rows) if row.name.startswith(name)]
        hits, said, true = np.array([picked[i][:3] for i in k]).sum(0)
        flagged = np.array([picked[i][3] for i in k])
        bad = np.array([rows[i].bad for i in k])
        both = f1(float((flagged & bad).sum()), flagged.sum(), bad.sum())
        print(
            f"spans, {name}, n {len(k)}: token precision {hits / max(1, said):.3f}, recall"
            f" {hits / max(1, true):.3f}, F1 {f1(hits, said, true):.3f}; example F1 {both:.3f}"
        )
    return max(CUTS, key=lambda cut: token_f1(cut, folds >= 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    answers = read_answers(options.answers)
    score_lexical(options.data, answers)
    score_model(model, answers)
    weights = print_agreement(answers)
    names = ("model", "lexical", "intercept")
    fitted = {name: round(value, 4) for name, value in zip(names, weights, strict=True)}
    cut = print_spans(answers)
    print("calibration", fitted, "span_risk", cut)
    if options.write:
        path = BUNDLED_FOLDER / MANIFEST_NAME
        manifest = {**json.loads(path.read_text()), "calibration": fitted, "span_risk": cut}
        path.write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
