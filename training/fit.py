"""Fits and measures how the scorer `mini` combines its model with the lexical score.

    python -m training.fit --data DIR --answers FILE.json.gz [--write]

DIR has the human-labelled development sets; the lexical score is fitted on them anew for each fold.
FILE has labelled answers (`ex`: src, q, ctx, a, bad, spans, val) and their passages (`ctx`), as the
model was trained on them; only those marked `val` are used, whose sources training never saw.

Printed are, by set, the AUROC of the lexical score, the model and both, over all answers and within
bands of equal length, the gain over the better part with its 95 % bootstrap interval over sources,
and the level that a fit without the set gives it; by task the expected calibration error, what it
would be by chance were every value right, and a debiased one; then how well the marked words meet
the spans that people marked in RAGTruth. Fits are out of fold by source: two answers are compared
by fits that saw neither fold. `--write` puts the fit into `model.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from ragmeter.scorers.mini.model import (
    BUNDLED_FOLDER,
    MANIFEST_NAME,
    AnswerRows,
    Calibration,
    TokenModel,
    TokenRisk,
    load_model,
)
from ragmeter.scorers.mini.tier import LexicalFacts, combine, lexical_facts, unsupported_spans
from ragmeter.trace import Trace

from training.devdata import Floats, Labelled, fold_of, grounding_rows
from training.fit_grounding import FOLDS, Mask, calibrate, fit, matrix
from training.fitting import fit_logistic, sigmoid

L2 = 1.0
# Of the model in the evidence: set, not fitted. Shares that were fitted lay between 0.5 and 0.7
# from fold to fold and ranked the answers of the other folds worse.
SHARE = 0.5
# Of the contradictions, in standard deviations of the evidence's parts, beside their part in the
# lexical score: set, not fitted, since such errors are rare in the labelled sets. More costs the
# questions of 46 models their rank.
CONTRADICTED = 0.1
PEOPLE = 3.0  # times that people's labels weigh as much in the level as a judge's
LEFT_OUT = "qags"  # not fitted on: summaries by systems of 2019, half of them faulted
TASKS = {
    "questions": ("clapnq_human", "mtrag_human", "ragtruth:qa", "fj:qa"),
    "data-to-text": ("ragtruth:data2text", "fj:data2txt"),
    "summaries": ("ragtruth:summarization", "fj:summary"),
    "dialogue": ("begin",),
}
BIN = 40  # answers in a bin of the calibration error, of which there are 2 to 10
# Risk of a token from which it is marked, and value of an answer up to which any is.
CUTS = [
    (round(0.25 * step, 2), value) for step in range(-2, 9) for value in (0.5, 0.55, 0.6, 0.65, 1.0)
]


@dataclass(slots=True)
class Answer:
    name: str
    group: str  # what no fold splits: the question or the source
    trace: Trace
    bad: bool
    spans: list[tuple[int, int]] | None
    model: float = 0.0  # log odds that it is grounded
    tokens: list[TokenRisk] | None = None
    value: float = 0.0  # out of fold


def read_windows(model: TokenModel, query: str, passages: Sequence[str], answer: str) -> AnswerRows:
    """Score every row that is needed."""
    prepared = model.read(query, passages, answer)
    while rows := prepared.next_rows():
        for row in rows:
            model.score_window(prepared, *row)
    return prepared


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
        group = row["q"] if by_query else texts[0]
        spans = None if row["spans"] is None else [(a, b) for a, b in row["spans"]]
        out.append(Answer(row["src"], group, trace, bool(row["bad"]), spans))
    return out


def pairs_of_folds() -> list[tuple[int, int]]:
    return list(combinations_with_replacement(range(FOLDS), 2))


def score_lexical(folder: Path, answers: list[Answer]) -> Floats:
    """Log odds that the answers are grounded, by fits without two folds: [fold, fold, answer]."""
    data = grounding_rows(folder)
    x, y, sets, sentences = matrix(data)
    asked, _, _, of_asked = matrix([Labelled(a.name, a.group, a.trace, a.bad) for a in answers])
    every: Mask = np.ones(len(answers), bool)
    folds = np.array([fold_of(row.group, FOLDS) for row in data])
    held, raw = np.zeros(len(y)), np.zeros((FOLDS, FOLDS, len(answers)))
    for a, b in pairs_of_folds():
        out: Mask = (folds == a) | (folds == b)
        model = fit(x, y, sets, sentences, ~out)
        raw[a, b] = raw[b, a] = model.raw(asked, of_asked, every)
        if a == b:
            held[out] = model.raw(x, sentences, out)
    slope, intercept = calibrate(held, y, sets)
    return -(slope * raw + intercept)


def score_model(model: TokenModel, answers: list[Answer]) -> None:
    for answer in answers:
        trace = answer.trace
        texts = [passage.text or "" for passage in trace.passages or ()]
        reading = read_windows(model, trace.query or "", texts, trace.answer or "")
        risk, tokens = reading.conclude()
        answer.model = -risk
        answer.tokens = tokens


@dataclass(slots=True)
class Table:
    """The answers by column, to fit and measure on."""

    x: Floats  # model, lexical by a fit without the answer's fold, contradicted
    lexical: Floats  # by fits without two folds: [fold, fold, answer]
    kinds: Floats  # record, several, short: see `ragmeter.scorers.mini.model.Calibration`
    good: Floats
    sets: Any
    groups: Any
    folds: Any
    length: Floats

    @classmethod
    def of(cls, answers: list[Answer], lexical: Floats) -> Table:
        facts = [lexical_facts(a.trace) for a in answers]
        folds = np.array([fold_of(a.group, FOLDS) for a in answers])
        own = lexical[folds, folds, np.arange(len(answers))]
        x = [[a.model, o, f.contradicted] for a, o, f in zip(answers, own, facts, strict=True)]
        return cls(
            np.array(x),
            lexical,
            np.array([[f.record, f.several, f.short] for f in facts]),
            np.array([1.0 - a.bad for a in answers]),
            np.array([a.name for a in answers]),
            np.array([a.group for a in answers]),
            folds,
            np.array([len((a.trace.answer or "").split()) for a in answers], float),
        )

    @property
    def bad(self) -> Any:
        return self.good < 1

    @property
    def people(self) -> Any:
        return np.array([not name.startswith("fj") for name in self.sets])


def fit_rule(table: Table, use: Mask) -> Calibration:
    """The whole rule: evidence, then its level by kind of input."""
    use = use & np.array([not name.startswith(LEFT_OUT) for name in table.sets])
    scales = table.x.std(0)
    evidence = np.array([SHARE / scales[0], (1 - SHARE) / scales[1], -CONTRADICTED])
    score = table.x @ evidence
    sets = table.sets[use]
    sizes = {name: float((sets == name).sum()) for name in np.unique(sets)}
    w = np.array([sizes[name] ** -0.5 for name in sets]) * np.where(table.people[use], PEOPLE, 1)
    text = 1 - table.kinds.sum(1)
    z = np.column_stack([score, table.kinds, score * table.kinds[:, 0], score * text])[use]
    level = fit_logistic(z, table.good[use], w / w.mean(), np.ones((len(z), 1)), l2=L2)
    slope, record, several, short, more, less = (level.weights / level.scale).tolist()
    weights = (slope * evidence).tolist()
    return Calibration(
        model=weights[0],
        lexical=weights[1],
        contradicted=-weights[2],
        intercept=float(level.offsets[0] - level.mean @ (level.weights / level.scale)),
        record=record,
        record_slope=1 + more / slope,
        several=several,
        short=short,
        text_slope=1 + less / slope,
    )


def apply(rule: Calibration, table: Table, lexical: Floats) -> Floats:
    """Log odds that an answer is grounded, as the scorer computes them."""
    rows = zip(table.x.tolist(), lexical.tolist(), table.kinds.tolist(), strict=True)
    return np.array([combine(rule, x[0], LexicalFacts(odds, x[2], *k)) for x, odds, k in rows])


def order_pairs(scores: Floats, table: Table, k: Mask) -> Floats:
    """Whether a faulted answer (row) is below a grounded one (column), by fits that saw neither.

    `scores` are by the two folds that a fit did not see.
    """
    bad, good = np.flatnonzero(k & table.bad)[:, None], np.flatnonzero(k & ~table.bad)[None]
    x, y = (scores[table.folds[bad], table.folds[good], of] for of in (bad, good))
    return np.asarray((x < y) + (x == y) / 2, float)


def gain(ours: Floats, theirs: Floats, table: Table, k: Mask) -> str:
    """The gain in AUROC of ordered pairs, with its 95 % bootstrap interval over sources."""
    rng = np.random.default_rng(0)
    groups = np.unique(table.groups[k])
    rows, columns = (np.searchsorted(groups, table.groups[k & m]) for m in (table.bad, ~table.bad))
    values = []
    for _ in range(2_000):
        drawn = np.bincount(rng.integers(0, len(groups), len(groups)), minlength=len(groups))
        a, b = drawn[rows], drawn[columns]
        values.append(a @ (ours - theirs) @ b / max(1, a.sum() * b.sum()))
    low, high = np.quantile(values, [0.025, 0.975])
    return f"{(ours - theirs).mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def length_band(length: Floats) -> Any:
    """The quarter of the answers that one belongs to by its length."""
    return np.searchsorted(np.quantile(length, [0.25, 0.5, 0.75]), length)


def calibration_error(p: Floats, good: Floats) -> float:
    bins = min(10, max(2, len(p) // BIN))
    parts = np.array_split(np.argsort(p), bins)
    return float(sum(abs((p[part] - good[part]).sum()) for part in parts) / len(p))


def debiased_error(p: Floats, good: Floats) -> float:
    """The root of the mean squared calibration error, less what chance adds; 0 if that is more.

    Kumar, Liang and Ma 2019, "Verified uncertainty calibration", in the same bins.
    """
    parts = np.array_split(np.argsort(p), min(10, max(2, len(p) // BIN)))
    total = 0.0
    for part in parts:
        rate = good[part].mean()
        chance = rate * (1 - rate) / (len(part) - 1)
        total += len(part) / len(p) * ((p[part].mean() - rate) ** 2 - chance)
    return math.sqrt(max(0.0, total))


def by_chance(p: Floats) -> float:
    """The mean calibration error of so many answers if `p` were exactly right."""
    rng = np.random.default_rng(0)
    return float(
        np.mean(
            [calibration_error(p, (rng.random(len(p)) < p).astype(np.float64)) for _ in range(200)]
        )
    )


def print_level(label: str, table: Table, p: Floats, k: Mask) -> None:
    if k.any():
        plain, debiased = (f(p[k], table.good[k]) for f in (calibration_error, debiased_error))
        errors = f"{plain:.3f} | {by_chance(p[k]):.3f} | {debiased:.3f}"
        print(
            f"| {label} | {k.sum()} | {table.good[k].mean():.2f} | {p[k].mean():.2f} | {errors} |"
        )


def print_ranks(table: Table, odds: Floats, alone: Floats) -> None:
    print("| set | n | not grounded | builtin | model | mini | gain | if the set is left out |")
    print("| --- | ---: | ---: | --- | --- | --- | --- | ---: |")
    model = np.broadcast_to(table.x[:, 0], odds.shape)
    for name in np.unique(table.sets):
        k = table.sets == name
        band = np.zeros(len(k), int)
        band[k] = length_band(table.length[k])
        equal = band[k & table.bad][:, None] == band[k & ~table.bad][None]
        parts = [order_pairs(scores, table, k) for scores in (table.lexical, model, odds)]
        columns = ["", "", "", ""]
        if equal.any():
            columns = [f"{order.mean():.3f}/{order[equal].mean():.3f}" for order in parts]
            columns.append(gain(parts[2], max(parts[:2], key=np.mean), table, k))
        print(
            f"| {name} | {k.sum()} | {table.bad[k].mean():.2f} | {' | '.join(columns)}"
            f" | {alone[k].mean():.2f}, error {calibration_error(alone[k], table.good[k]):.3f} |"
        )


def print_agreement(answers: list[Answer], lexical: Floats) -> Calibration:
    table = Table.of(answers, lexical)
    pairs, alone = np.zeros(lexical.shape), np.zeros(len(answers))
    for a, b in pairs_of_folds():
        rule = fit_rule(table, (table.folds != a) & (table.folds != b))
        pairs[a, b] = pairs[b, a] = apply(rule, table, lexical[a, b])
    for name in np.unique(table.sets):
        held = table.sets == name
        alone[held] = sigmoid(apply(fit_rule(table, ~held), table, table.x[:, 1])[held])
    print_ranks(table, pairs, alone)
    odds = pairs[table.folds, table.folds, np.arange(len(answers))]
    p = sigmoid(odds)
    for answer, value in zip(answers, p.tolist(), strict=True):
        answer.value = value
    print("| task, labelled by | n | grounded | mini's mean | error | by chance | debiased |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for task, names in TASKS.items():
        k = np.isin(table.sets, names)
        print_level(f"{task}, people", table, p, k & table.people)
        print_level(f"{task}, a judge", table, p, k & ~table.people)
        if (k & ~table.people).any():
            print_level(f"{task}, both", table, p, k)
    k = np.isin(table.sets, [name for names in TASKS.values() for name in names])
    print_level("all, people", table, p, k & table.people)
    print_level("all", table, p, k)
    return fit_rule(table, table.folds >= 0)


def overlaps(answer: Answer, cut: float, most: float) -> tuple[int, int, int, bool]:
    """Characters marked by both, by the model, by people; and whether the model marks any."""
    text = answer.trace.answer or ""
    spans = unsupported_spans(text, answer.tokens or [] if answer.value <= most else [], cut)
    marked = {i for span in spans for i in range(span.start, span.end)}
    true = {i for a, b in answer.spans or () for i in range(a, b)}
    return len(marked & true), len(marked), len(true), bool(spans)


def f1(hit: float, said: float, true: float) -> float:
    return 2 * hit / (said + true) if said + true else 0.0


def print_spans(answers: list[Answer]) -> tuple[float, float]:
    rows = [a for a in answers if a.name.startswith("ragtruth") and a.spans is not None]
    table = {cut: [overlaps(row, *cut) for row in rows] for cut in CUTS}
    folds = np.array([fold_of(row.group, FOLDS) for row in rows])

    def token_f1(cut: tuple[float, float], use: Any) -> float:
        hits, said, true = np.array([t[:3] for t in table[cut]])[use].sum(0)
        return f1(hits, said, true)

    best = [max(CUTS, key=lambda cut: token_f1(cut, folds != n)) for n in range(FOLDS)]
    picked = [table[best[fold]][i] for i, fold in enumerate(folds)]
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
    lexical = score_lexical(options.data, answers)
    score_model(model, answers)
    rule = print_agreement(answers, lexical)
    fitted = {name: round(value, 4) for name, value in rule.model_dump().items()}
    risk, value = print_spans(answers)
    fit = {"calibration": fitted, "span_risk": risk, "span_value": value}
    print(json.dumps(fit))
    if options.write:
        path = BUNDLED_FOLDER / MANIFEST_NAME
        manifest = {**json.loads(path.read_text()), **fit}
        path.write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
