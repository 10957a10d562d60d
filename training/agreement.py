"""How well the built-in scorers agree with people, set by set.

    python -m training.agreement --data DIR [--write docs/agreement.md]

The fitted grounding score is always judged out of fold: by models that saw no answer to the same
query or source document. Everything else is fixed by hand and has no fitting to hold out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ragmeter.metrics.abstention import abstains
from ragmeter.metrics.answer_text import AnswerText, parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.metrics.words import tokenize

from training.devdata import (
    Floats,
    Labelled,
    auroc,
    balanced_accuracy,
    band_auroc,
    grounding_rows,
    kappa,
    rows,
)
from training.fit_grounding import calibrate, cross_validate, leave_one_set_out, matrix
from training.fitting import sigmoid

__all__ = ["main"]

Mask = npt.NDArray[np.bool_]
BOOTSTRAP = 500


def overlap_floor(row: Labelled) -> float:
    """The floor of a few lines: share of the answer's distinct words that no passage has."""
    known = set(tokenize(" ".join(p.text or "" for p in row.trace.passages or ())))
    said = set(tokenize(row.trace.answer or ""))
    return len(said - known) / max(1, len(said))


def interval(score: Floats, bad: Mask, groups: list[str]) -> tuple[float, float]:
    """95 % bootstrap interval of the AUROC, drawing whole groups of one query or source."""
    rng = np.random.default_rng(0)
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    parts = [np.array(m) for m in members.values()]
    values = []
    for _ in range(BOOTSTRAP):
        drawn = np.concatenate([parts[k] for k in rng.integers(0, len(parts), len(parts))])
        value = auroc(score[drawn], bad[drawn])
        if value == value:
            values.append(value)
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def best_balanced(score: Floats, bad: Mask) -> float:
    """Balanced accuracy at the best cut, which flatters: the cut is chosen on the same data."""
    return max(balanced_accuracy(score >= cut, bad) for cut in np.unique(score))


def table(head: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def grounding(folder: Path) -> str:
    data = grounding_rows(folder)
    x, y, sets, sentences = matrix(data)
    held = cross_validate(x, y, sets, sentences, [row.group for row in data])
    alone = leave_one_set_out(x, y, sets, sentences)
    slope, intercept = calibrate(held, y, sets)
    risk = sigmoid(slope * held + intercept)
    floor = np.array([overlap_floor(row) for row in data])
    length = np.array([len(row.trace.answer or "") for row in data], float)
    body = []
    for name in dict.fromkeys(sets.tolist()):
        m: Mask = sets == name
        bad: Mask = y[m] > 0
        groups = [row.group for row in data if row.name == name]
        low, high = interval(held[m], bad, groups)
        body.append(
            [
                name,
                str(int(m.sum())),
                f"{bad.mean():.2f}",
                f"**{auroc(held[m], bad):.3f}** ({low:.2f} to {high:.2f})",
                f"{auroc(floor[m], bad):.3f}",
                f"{auroc(length[m], bad):.3f}",
                f"{band_auroc(held[m], bad, length[m]):.3f}",
                f"{band_auroc(floor[m], bad, length[m]):.3f}",
                f"{auroc(alone[m], bad):.3f}",
                f"{balanced_accuracy(risk[m] > 0.5, bad):.3f}",
                f"{best_balanced(held[m], bad):.3f}",
                f"{kappa(risk[m] > 0.5, bad):.3f}",
                f"{1 - risk[m].mean():.2f}",
            ]
        )
    return table(
        [
            "set",
            "n",
            "hallucinated",
            "AUROC",
            "overlap floor",
            "length floor",
            "AUROC in length bands",
            "overlap in bands",
            "AUROC, set left out",
            "balanced accuracy at 0.5",
            "at the best cut",
            "kappa at 0.5",
            "mean score",
        ],
        body,
    )


def measure_statement(statement: str, texts: list[str]) -> list[float]:
    """The support of each sentence of a statement by all texts together."""
    pages = PassageIndex.read(texts)
    answer = parse_answer(statement)
    compared = compare_texts(pages, answer, QueryText.read(None))
    every = list(range(len(texts)))
    return [compared.measure_support(claim, every)[1] for claim in answer.claims]


def ndcg(score: Floats, grade: Floats, k: int = 10) -> float:
    def gain(order: npt.NDArray[np.intp]) -> float:
        top = grade[order][:k]
        return float(((2.0**top - 1) / np.log2(np.arange(2, len(top) + 2))).sum())

    return gain(np.argsort(-score, kind="stable")) / gain(np.argsort(-grade, kind="stable"))


def relevance(folder: Path) -> str:
    scores = []
    truth = []
    search = []
    ours, engine = [], []
    for row in rows(folder, "relevance_noveleval"):
        pages = PassageIndex.read([p["text"] for p in row["passages"]])
        found = compare_texts(pages, AnswerText(), QueryText.read(row["query"])).grade_passages()
        s = np.array([g or 0.0 for g in found], float)
        t = np.array([row["labels"]["relevance"][p["id"]] for p in row["passages"]], float)
        rank = np.array([-p["rank"] for p in row["passages"]], float)
        scores.append(s)
        truth.append(t)
        search.append(rank)
        if t.max() > 0:
            ours.append(ndcg(s, t))
            engine.append(ndcg(rank, t))
    s = np.concatenate(scores)
    t = np.concatenate(truth)
    r = np.concatenate(search)
    body = [
        [
            "builtin",
            f"{auroc(s, t >= 1):.3f}",
            f"{auroc(s, t == 2):.3f}",
            f"{np.mean(ours):.3f}",
            f"{kappa(s >= 2, t >= 1):.3f}",
            f"{balanced_accuracy(s >= 2, t >= 1):.3f}",
        ],
        [
            "search engine's order",
            f"{auroc(r, t >= 1):.3f}",
            f"{auroc(r, t == 2):.3f}",
            f"{np.mean(engine):.3f}",
            "",
            "",
        ],
    ]
    by_grade = ", ".join(f"{s[t == g].mean():.2f} for people's {g}" for g in (0, 1, 2))
    head = ["order by", "AUROC grade >= 1", "AUROC grade 2", "nDCG@10"]
    head += ["kappa, ours >= 2 against grade >= 1", "balanced accuracy, same"]
    return (
        f"{table(head, body)}\n\n{len(scores)} queries, {len(s)} passages; mean grade {by_grade}."
    )


def answered(folder: Path) -> str:
    sets: list[tuple[str, str, set[object]]] = [
        ("MTRAG-UN", "abstention_mtrag_un", {True}),
        (
            "XSTest, safe prompts (refused fully or partly)",
            "abstention_xstest_safe",
            {True, "partial"},
        ),
        ("DelucionQA", "abstention_delucionqa", {True}),
    ]
    body = []
    for name, file, positive in sets:
        said, true = [], []
        for row in rows(folder, file):
            label = row["labels"]["normalized"].get("abstained")
            if label not in positive and label is not False:
                continue
            said.append(abstains(row["answer"]))
            true.append(label in positive)
        a, b = np.array(said), np.array(true)
        f1 = 2 * (a & b).sum() / (a.sum() + b.sum())
        body.append(
            [
                name,
                str(len(a)),
                f"{b.mean():.2f}",
                f"{(a == b).mean():.3f}",
                f"{balanced_accuracy(a, b):.3f}",
                f"{f1:.3f}",
                f"{kappa(a, b):.3f}",
            ]
        )
    return table(
        ["set", "n", "abstained", "accuracy", "balanced accuracy", "F1 of abstaining", "kappa"],
        body,
    )


def citations(folder: Path) -> str:
    score: list[float] = []
    full: list[bool] = []
    for row in rows(folder, "citation_expertqa"):
        texts = {p["id"]: p["text"] for p in row["passages"]}
        labels = row["labels"]["normalized"]["support"]
        for citation, label in zip(row["citations"], labels, strict=False):
            if not citation.get("evidence_has_text") or not citation["passage_ids"]:
                continue
            if label is None:
                continue
            values = measure_statement(
                citation["statement"], [texts[i] for i in citation["passage_ids"]]
            )
            score.append(sum(values) / len(values) if values else 0.0)
            full.append(label == "full")
    s, t = np.array(score), np.array(full)
    return table(
        [
            "set",
            "n",
            "full support",
            "AUROC full against less",
            "balanced accuracy at 0.5",
            "kappa",
        ],
        [
            [
                "ExpertQA, citations whose evidence has text",
                str(len(s)),
                f"{t.mean():.2f}",
                f"{auroc(s, t):.3f}",
                f"{balanced_accuracy(s >= 0.5, t):.3f}",
                f"{kappa(s >= 0.5, t):.3f}",
            ]
        ],
    )


TEXT = """# Agreement with people

**Conclusion.** The built-in grounding score ranks answers as people do on all six sets (AUROC .746
to .969): about as well as plain word overlap where answers restate a short passage, and .05 to .08
better on RAGTruth. It is no probability and has no level: ragmeter shows its changes within one
service, and no share. Abstentions are recognised with 93 to 99 % accuracy, which is why `answered`
of the [eight questions](questions.md) may rest on it. Relevance is a rough order, and whether a
citation supports its sentence is hardly recognised at all (AUROC .59).

Made by `python -m training.agreement --data DIR --write docs/agreement.md`; do not edit by hand.

These are **development numbers**: the rules were written, and the grounding model fitted, with
these labels in view. The fitted part is judged out of fold. Expect somewhat less on data of another
kind; the column "set left out" says how much, as there the model was fitted on the other five sets.
How the embedded model agrees with people is at [local models](grounding.md#agreement).

## Grounding

Positive is a person's verdict that the answer has something unsupported. AUROC is the probability
that such an answer scores worse than a clean one (95 % bootstrap interval over inputs). Two floors
stand beside it: the share of an answer's distinct words that no passage has, and the answer's
length alone. Blank answers and abstentions that claim nothing are left out.

{grounding}

News summaries are the weak spot: what people fault there are wrong relations between words that all
stand in the source, which no count of words can see. Sets differ in how strictly people judge:
compare the base rate with the mean score, and 0.5 with the best cut. Human annotators themselves
agree with kappa about 0.5 on ClapNQ and MTRAG.

## Relevance

{relevance}

Eleven queries are few: nothing was fitted, and the figures are rough. Words tell the topic; whether
a passage *answers* is beyond them.

## Answered

{answered}

The rules are English. They look at the opening only, and an answer that says "the context does not
say" and then helps anyway counts as not answered.

## Citation support

{citations}

This is the weakest of the scores: it tells copied from unrelated, and hardly full from partial
support. Dangling and missing citations, which the metrics also count, need no such judgement.

## Sources

RAGTruth (MIT; the selection of FaithJudge), ClapNQ and MTRAG human evaluations and MTRAG-UN (IBM,
Apache-2.0), BEGIN (Google, CC BY 4.0), NovelEval (Apache-2.0), XSTest (CC BY 4.0), DelucionQA (CC
BY 4.0), ExpertQA (MIT). The model was fitted on the first four; the background word frequencies
(`training/background.py`) come from texts, without labels, of MTRAG, BEGIN, ExpertQA, XSTest and
DelucionQA.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the labelled traces")
    parser.add_argument("--write", type=Path, help="write the page here instead of printing it")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], str]] = {
        "grounding": grounding,
        "relevance": relevance,
        "answered": answered,
        "citations": citations,
    }
    page = TEXT.format(**{name: make(options.data) for name, make in parts.items()})
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
