"""Fits and measures how far the embedded model carries support of citations and relevance.

    python -m training.further --data DIR [--write]

Citations: ExpertQA's statements against the passages they cite. Relevance: people's grades of
NovelEval's passages, and their word whether a ClapNQ passage answers the question; beside these,
whether a passage is the one that people chose for MTRAG's question or of another conversation,
which nobody judged. The query is in the place of the answer. No such label was in the model's
training; some of the texts were in it, with made-up answers.

Nothing is fitted for the sum of model and lexical score, each scaled to one standard deviation. The
level of relevance is fitted, and printed out of fold by query and for a fit without the set.
`--write` puts the rule for relevance into `model.json`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ragmeter.metrics.answer_text import AnswerText
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.scorers.mini.model import (
    BUNDLED_FOLDER,
    MANIFEST_NAME,
    Calibration,
    TokenModel,
    load_model,
)

from training.agreement import measure_statement
from training.devdata import Floats, auroc, fold_of, rows
from training.fit import calibration_error, read_windows
from training.fit_grounding import FOLDS
from training.fitting import fit_logistic, sigmoid

JUDGED = ("NovelEval", "ClapNQ")
OTHERS = 5  # passages of other conversations for each question of MTRAG


@dataclass(slots=True)
class Pairs:
    """Statements or queries of one set with a passage each."""

    lexical: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    true: list[bool] = field(default_factory=list)
    of: list[str] = field(default_factory=list)

    def add_query(
        self, model: TokenModel, query: str, texts: Sequence[str], true: Sequence[bool]
    ) -> None:
        asked = QueryText.read(query)
        if not asked.words:
            return
        pages = PassageIndex.read(texts)
        grades = compare_texts(pages, AnswerText(), asked).grade_passages()
        for text, grade, label in zip(texts, grades, true, strict=True):
            if grade is not None:
                self.lexical.append(grade)
                self.model.append(model.support_query(query, text))
                self.true.append(label)
                self.of.append(query)


def read_citations(model: TokenModel, data: Path, *, question: bool) -> Pairs:
    """Statements with what they cite; the question is part of the model's row or not."""
    out = Pairs()
    for row in rows(data, "citation_expertqa"):
        texts = {p["id"]: p["text"] for p in row["passages"]}
        labels = row["labels"]["normalized"]["support"]
        for citation, label in zip(row["citations"], labels, strict=False):
            ids = citation["passage_ids"]
            if not citation.get("evidence_has_text") or not ids or label is None:
                continue
            cited = [texts[i] for i in ids]
            values = measure_statement(citation["statement"], cited)
            out.lexical.append(sum(values) / len(values) if values else 0.0)
            query = row["query"] if question else ""
            reading = read_windows(model, query, cited, citation["statement"])
            out.model.append(-reading.conclude()[0])
            out.true.append(label == "full")
            out.of.append(row["query"])
    return out


def read_relevance(model: TokenModel, data: Path) -> dict[str, Pairs]:
    novel = Pairs()
    clapnq = Pairs()
    mtrag = Pairs()
    for row in rows(data, "relevance_noveleval"):
        texts = [p["text"] for p in row["passages"]]
        grades = [row["labels"]["relevance"][p["id"]] >= 1 for p in row["passages"]]
        novel.add_query(model, row["query"], texts, grades)
    for row in rows(data, "abstention_clapnq"):
        texts = [p["text"] for p in row["passages"]]
        clapnq.add_query(model, row["query"], texts, [row["labels"]["answerable"]] * len(texts))
    rng = random.Random(0)
    talks: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for row in rows(data, "grounding_mtrag_human") + rows(data, "abstention_mtrag_un"):
        opening = (row.get("history") or [{"text": row["query"]}])[0]["text"]
        corpus = row["meta"]["collection"].replace("mt-rag-", "").split("-")[0]
        if row["labels"]["answerability"] != "UNANSWERABLE":
            talks.setdefault(row["query"], (corpus, opening, row))
    for query, (corpus, opening, row) in talks.items():
        chosen = [p["text"] for p in row["passages"] if p["text"].strip()][:OTHERS]
        pool = [
            p["text"]
            for where, which, other in talks.values()
            if where == corpus and which != opening
            for p in other["passages"]
            if p["text"].strip() and p["text"] not in chosen
        ]
        if chosen and len(pool) >= OTHERS:
            texts = chosen + rng.sample(pool, OTHERS)
            mtrag.add_query(model, query, texts, [i < len(chosen) for i in range(len(texts))])
    return {"NovelEval": novel, "ClapNQ": clapnq, "MTRAG": mtrag}


def draws(of: Sequence[str], rng: np.random.Generator) -> Any:
    """Whole queries, drawn with replacement."""
    names = np.array(of)
    members = [np.flatnonzero(names == name) for name in sorted(set(of))]
    while True:
        yield np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])


def gains(score: Floats, base: Floats, true: Floats, of: Sequence[str]) -> Floats:
    """The gain in AUROC over `base`, then that of 2,000 bootstrap samples."""
    rng = np.random.default_rng(0)
    samples = [np.arange(len(true))]
    samples += [k for k, _ in zip(draws(of, rng), range(2_000), strict=False)]
    return np.array([auroc(score[k], true[k]) - auroc(base[k], true[k]) for k in samples])


def describe(gain: Floats) -> str:
    low, high = np.nanquantile(gain[1:], [0.025, 0.975])
    return f"{gain[0]:+.3f} [{low:+.3f}, {high:+.3f}]"


def scales(sets: Sequence[Pairs]) -> Floats:
    """Standard deviations of model and lexical score, each set as much as another."""
    return np.array(
        [
            np.mean([np.var(one.model) for one in sets]) ** 0.5,
            np.mean([np.var(one.lexical) for one in sets]) ** 0.5,
        ]
    )


def report(name: str, one: Pairs, scale: Floats) -> Floats:
    """Print the AUROC of lexical score, model and sum; return the gains of the sum."""
    base = np.array(one.lexical)
    model = np.array(one.model)
    true = np.array(one.true)
    both = model / scale[0] + base / scale[1]
    parts = []
    for label, score in (("model", model), ("sum", both)):
        gain = gains(score, base, true, one.of)
        parts.append(f"{label} {auroc(score, true):.3f} ({describe(gain)})")
    print(
        f"{name}: {len(true)} of {len(set(one.of))} queries, yes {true.mean():.2f}; builtin"
        f" {auroc(base, true):.3f}, {', '.join(parts)}",
        flush=True,
    )
    return gain


def print_fitted(name: str, one: Pairs) -> None:
    """The gain of a logistic regression on lexical score and model, out of fold by query."""
    x = np.column_stack([one.lexical, one.model])
    true = np.array(one.true, float)
    folds = np.array([fold_of(query, FOLDS) for query in one.of])
    held = np.zeros(len(true))
    for number in range(FOLDS):
        out = folds == number
        ones = np.ones(((~out).sum(), 1))
        held[out] = fit_logistic(x[~out], true[~out], ones[:, 0], ones).predict(x[out])
    gain = describe(gains(held, x[:, 0], true, one.of))
    print(f"{name}, fitted out of fold: {auroc(held, true):.3f} ({gain})", flush=True)


def fit_relevance(sets: Sequence[Pairs], keep: Sequence[Any]) -> Calibration:
    """The level of the sum by a logistic regression in which each set counts as much."""
    scale = scales(sets)
    x = []
    y = []
    w = []
    for one, use in zip(sets, keep, strict=True):
        score = np.array(one.model) / scale[0] + np.array(one.lexical) / scale[1]
        x.append(score[use])
        y.append(np.array(one.true, float)[use])
        w.append(np.full(use.sum(), 1 / use.sum()))
    score = np.concatenate(x)[:, None]
    weight = np.concatenate(w)
    ones = np.ones((len(score), 1))
    level = fit_logistic(score, np.concatenate(y), weight / weight.mean(), ones, l2=1.0)
    slope = float(level.weights[0] / level.scale[0])
    return Calibration(
        model=slope / scale[0],
        lexical=slope / scale[1],
        intercept=float(level.offsets[0]) - slope * float(level.mean[0]),
    )


def probabilities(rule: Calibration, one: Pairs) -> Floats:
    odds = rule.model * np.array(one.model) + rule.lexical * np.array(one.lexical)
    return sigmoid(odds + rule.intercept)


def print_level(sets: dict[str, Pairs]) -> None:
    judged = [sets[name] for name in JUDGED]
    folds = [np.array([fold_of(query, FOLDS) for query in one.of]) for one in judged]
    for place, name in enumerate(JUDGED):
        one, other = judged[place], judged[1 - place]
        p = np.zeros(len(one.true))
        for number in range(FOLDS):
            rule = fit_relevance(judged, [fold != number for fold in folds])
            held = folds[place] == number
            p[held] = probabilities(rule, one)[held]
        alone = fit_relevance([other], [np.ones(len(other.true), bool)])
        true = np.array(one.true, float)
        q = probabilities(alone, one)
        print(
            f"level, {name}: yes {true.mean():.2f}; out of fold mean {p.mean():.2f}, error"
            f" {calibration_error(p, true):.3f}; fitted without the set mean {q.mean():.2f}, error"
            f" {calibration_error(q, true):.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    for question in (True, False):
        citations = read_citations(model, options.data, question=question)
        name = f"ExpertQA, full support, {'with' if question else 'without'} the question"
        report(name, citations, scales([citations]))
        print_fitted(name, citations)
    sets = read_relevance(model, options.data)
    scale = scales([sets[name] for name in JUDGED])
    each = {name: report(f"relevance, {name}", one, scale) for name, one in sets.items()}
    mean = np.mean([each[name] for name in JUDGED], axis=0)
    print(f"relevance, mean of {' and '.join(JUDGED)}: sum {describe(mean)}")
    print_level(sets)
    judged = [sets[name] for name in JUDGED]
    rule = fit_relevance(judged, [np.ones(len(one.true), bool) for one in judged])
    fitted = {name: round(getattr(rule, name), 4) for name in ("model", "lexical", "intercept")}
    print(json.dumps({"relevance": fitted}))
    if options.write:
        path = BUNDLED_FOLDER / MANIFEST_NAME
        manifest = {**json.loads(path.read_text()), "relevance": fitted}
        path.write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
