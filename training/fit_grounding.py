"""Fits the built-in grounding score and writes `grounding_model.json` of `ragmeter.metrics`.

    python -m training.fit_grounding --data DIR [--dry-run]

The model is the mean of two log odds over the features of `ragmeter.metrics.grounding_features`, a
ridge logistic regression and boosted trees of depth two, plus a share of the log odds of its
sentences by `ragmeter.metrics.grounding_features`: a ridge logistic regression on the sentences of
prose answers in which people marked spans, put together by
`ragmeter.metrics.grounding.combine_log_odds`, and the weights of contradictions, which are set.
Each set keeps an offset of its own in
fitting, so that the model learns to rank within a task rather than to tell tasks apart; one slope
and intercept on out-of-fold scores then make it a probability. Sets weigh by the root of their
size. Folds never split a query or source document. The same input gives the same file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ragmeter.metrics.grounding import (
    combine_log_odds,
    grounding_features,
    weigh_contradictions,
)
from ragmeter.metrics.grounding_features import ANSWER_FEATURES, SENTENCE_FEATURES

from training.devdata import Floats, Labelled, auroc, band_auroc, fold_of, grounding_rows
from training.fitting import Boosted, Logistic, fit_boosted, fit_logistic, sigmoid

__all__ = [
    "Fitted",
    "Sentences",
    "calibrate",
    "cross_validate",
    "fit",
    "leave_one_set_out",
    "main",
    "matrix",
]

TARGET = (
    Path(__file__).resolve().parent.parent
    / "agent"
    / "ragmeter"
    / "metrics"
    / "grounding_model.json"
)
FOLDS = 5
Mask = npt.NDArray[np.bool_]


ANSWER_L2 = 5.0
SENTENCE_L2 = 60.0
SHARE = 1.0  # of the sentences' log odds; from 0.5 to 1.2 the agreement hardly changes


@dataclass(slots=True)
class Sentences:
    """Sentences of prose answers: features, which answer each is of, and whether a marked span
    meets it (1 or 0; -1 where people marked no spans)."""

    x: Floats
    owner: npt.NDArray[np.intp]
    bad: npt.NDArray[np.intp]
    contradictions: Floats  # log odds by answer, which are not fitted


@dataclass(slots=True)
class Fitted:
    logistic: Logistic
    boosted: Boosted
    sentences: Logistic | None  # None where no answer with marked spans was in fitting

    def raw(self, x: Floats, sentences: Sentences, held: Mask) -> Floats:
        """Log odds of a hallucination of the answers `held`, before the calibration."""
        out = (self.logistic.predict(x[held]) + self.boosted.predict(x[held])) / 2
        if self.sentences is not None:
            odds = self.sentences.predict(sentences.x)
            order = np.searchsorted(sentences.owner, np.arange(len(x) + 1))
            out += SHARE * np.array(
                [
                    combine_log_odds(odds[order[i] : order[i + 1]].tolist())
                    for i in np.flatnonzero(held)
                ]
            )
        return np.asarray(out + sentences.contradictions[held], float)


def matrix(data: Sequence[Labelled]) -> tuple[Floats, Floats, npt.NDArray[np.str_], Sentences]:
    """Features, labels (1 hallucinated), set names, sentences."""
    x = []
    rows = []
    owner = []
    bad = []
    contradictions = []
    for i, row in enumerate(data):
        reading, claims = grounding_features(row.trace)
        x.append(reading.values)
        contradictions.append(weigh_contradictions(reading.contradictions))
        rows += reading.sentences
        owner += [i] * len(reading.sentences)
        for claim in claims[: len(reading.sentences)]:
            marked = row.spans and any(a < claim.end and b > claim.start for a, b in row.spans)
            bad.append(-1 if row.spans is None else int(bool(marked)))
    sentences = Sentences(
        np.array(rows, float),
        np.array(owner, np.intp),
        np.array(bad, np.intp),
        np.array(contradictions, float),
    )
    y = np.array([row.bad for row in data], float)
    return np.array(x, float), y, np.array([row.name for row in data]), sentences


def weights(sets: npt.NDArray[np.str_]) -> Floats:
    w = np.zeros(len(sets))
    for name in np.unique(sets):
        inside = sets == name
        w[inside] = float(inside.sum()) ** -0.5
    return np.asarray(w / w.mean(), float)


def columns(sets: npt.NDArray[np.str_]) -> Floats:
    """A 0/1 column for each set."""
    return np.stack([(sets == name).astype(float) for name in np.unique(sets)], 1)


def fit(
    x: Floats, y: Floats, sets: npt.NDArray[np.str_], sentences: Sentences, train: Mask
) -> Fitted:
    """Fit on the answers `train`."""
    use = train[sentences.owner] & (sentences.bad >= 0)
    by_sentence = None
    if use.any():
        of = sets[sentences.owner[use]]
        truth = sentences.bad[use].astype(float)
        by_sentence = fit_logistic(
            sentences.x[use], truth, weights(of), columns(of), l2=SENTENCE_L2
        )
    x = x[train]
    y = y[train]
    sets = sets[train]
    w = weights(sets)
    base = np.zeros(len(y))
    for name in np.unique(sets):
        rate = (y[sets == name].sum() + 1) / ((sets == name).sum() + 2)
        base[sets == name] = np.log(rate / (1 - rate))
    logistic = fit_logistic(x, y, w, columns(sets), l2=ANSWER_L2)
    return Fitted(logistic, fit_boosted(x, y, w, base), by_sentence)


def cross_validate(
    x: Floats,
    y: Floats,
    sets: npt.NDArray[np.str_],
    sentences: Sentences,
    groups: Sequence[str],
) -> Floats:
    """Out-of-fold log odds: each answer is scored by a model that saw none of its group."""
    fold = np.array([fold_of(group, FOLDS) for group in groups])
    out = np.zeros(len(y))
    for f in range(FOLDS):
        held: Mask = fold == f
        out[held] = fit(x, y, sets, sentences, ~held).raw(x, sentences, held)
    return out


def leave_one_set_out(
    x: Floats, y: Floats, sets: npt.NDArray[np.str_], sentences: Sentences
) -> Floats:
    """Log odds of each set from a model that saw none of the set."""
    out = np.zeros(len(y))
    for name in np.unique(sets):
        held: Mask = sets == name
        out[held] = fit(x, y, sets, sentences, ~held).raw(x, sentences, held)
    return out


def calibrate(raw: Floats, y: Floats, sets: npt.NDArray[np.str_]) -> tuple[float, float]:
    """Slope and intercept that make out-of-fold log odds a probability, sets weighted."""
    model = fit_logistic(raw[:, None], y, weights(sets), np.ones((len(y), 1)), l2=1e-6)
    slope = float(model.weights[0] / model.scale[0])
    return slope, float(model.offsets[0] - slope * model.mean[0])


def write(model: Fitted, slope: float, intercept: float, sets: npt.NDArray[np.str_]) -> None:
    logistic = model.logistic

    def rounded(values: Sequence[float] | Floats) -> list[float]:
        return [float(f"{v:.6g}") for v in values]

    trees = []
    for (f, c), (lf, lc), (rf, rc), leaves in model.boosted.trees:
        cuts = [min(c, 1e9), min(lc, 1e9), min(rc, 1e9)]
        trees.append([f, lf, rf, *rounded(cuts), *rounded(leaves)])
    assert model.sentences is not None
    document = {
        "about": "fitted by training/fit_grounding.py; log odds of a hallucination",
        "trained_on": {name: int((sets == name).sum()) for name in sorted(set(sets.tolist()))},
        "features": list(ANSWER_FEATURES),
        "mean": rounded(logistic.mean),
        "scale": rounded(logistic.scale),
        "weights": rounded(logistic.weights),
        "sentences": {
            "features": list(SENTENCE_FEATURES),
            "mean": rounded(model.sentences.mean),
            "scale": rounded(model.sentences.scale),
            "weights": rounded(model.sentences.weights),
            "share": SHARE,
        },
        "trees": trees,
        "slope": float(f"{slope:.6g}"),
        "intercept": float(f"{intercept:.6g}"),
    }
    lines = []
    for key, value in document.items():
        if key == "trees":
            body = ",\n".join(json.dumps(tree) for tree in trees)
            lines.append(f'"trees": [\n{body}\n]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the labelled traces")
    parser.add_argument("--dry-run", action="store_true", help="measure, write nothing")
    options = parser.parse_args()
    data = grounding_rows(options.data)
    x, y, sets, sentences = matrix(data)
    length = np.array([len(row.trace.answer or "") for row in data], float)
    held = cross_validate(x, y, sets, sentences, [row.group for row in data])
    alone = leave_one_set_out(x, y, sets, sentences)
    print(
        f"{'set':20} {'n':>5} {'cross-validated':>16} {'in length bands':>16} {'set left out':>13}"
    )
    for name in dict.fromkeys(sets.tolist()):
        m = sets == name
        bad = y[m] > 0
        print(
            f"{name:20} {m.sum():5d} {auroc(held[m], bad):16.3f}"
            f" {band_auroc(held[m], bad, length[m]):16.3f} {auroc(alone[m], bad):13.3f}"
        )
    slope, intercept = calibrate(held, y, sets)
    p = sigmoid(slope * held + intercept)
    print(f"slope {slope:.3f}, intercept {intercept:.3f}; mean probability {p.mean():.3f}")
    if not options.dry_run:
        write(fit(x, y, sets, sentences, np.ones(len(y), bool)), slope, intercept, sets)
        print(f"wrote {TARGET.name}")


if __name__ == "__main__":
    main()
