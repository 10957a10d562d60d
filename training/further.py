"""How far the embedded model carries support of citations and relevance, beside lexical scores.

    python -m training.further --data DIR

Citations: ExpertQA's statements against the passages they cite. Relevance: NovelEval's passages,
with the query in the place of the answer. Neither was in the model's training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.devdata import Floats, auroc, rows
from benchmarks.mini import read_windows
from ragmeter.metrics.citation_support import measure_support
from ragmeter.metrics.relevance import grade_passages
from ragmeter.metrics.text import content_stems, tokenize
from ragmeter.metrics.text_index import PassageIndex, find_positions, parse_answer
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model


def support(model: TokenModel, query: str, passages: Sequence[str], answer: str) -> float:
    return -read_windows(model, query, passages, answer).conclude()[0]


def gain(score: Floats, base: Floats, true: Floats, groups: Sequence[int]) -> str:
    """AUROC, and how far it is above that of `base`, with the paired 95 % bootstrap interval.

    Whole groups are drawn, the same for both.
    """
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(np.array(groups) == g) for g in sorted(set(groups))]
    values = []
    for _ in range(2_000):
        drawn = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        values.append(auroc(score[drawn], true[drawn]) - auroc(base[drawn], true[drawn]))
    low, high = np.nanquantile(values, [0.025, 0.975])
    whole = auroc(score, true)
    return f"{whole:.3f} ({whole - auroc(base, true):+.3f} [{low:+.3f}, {high:+.3f}])"


def report(name: str, lexical: list[float], ours: list[float], true: Floats, of: list[int]) -> None:
    a, b = np.array(lexical), np.array(ours)
    both = (a - a.mean()) / a.std() + (b - b.mean()) / b.std()
    parts = [f"{k} {gain(s, a, true, of)}" for k, s in (("model", b), ("sum", both))]
    print(f"{name}, n {len(true)}: builtin {auroc(a, true):.3f}, {', '.join(parts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    lexical: list[float] = []
    ours: list[float] = []
    true: list[float] = []
    of: list[int] = []
    for number, row in enumerate(rows(data, "citation_expertqa")):
        texts = {p["id"]: p["text"] for p in row["passages"]}
        labels = row["labels"]["normalized"]["support"]
        for citation, label in zip(row["citations"], labels, strict=False):
            ids = citation["passage_ids"]
            if not citation.get("evidence_has_text") or not ids or label is None:
                continue
            cited = [texts[i] for i in ids]
            pages, claims = PassageIndex.read(cited), parse_answer(citation["statement"]).claims
            places, every = find_positions(pages, claims), range(len(pages.starts))
            values = [measure_support(claim, pages, places, every)[1] for claim in claims]
            lexical.append(sum(values) / len(values) if values else 0.0)
            ours.append(support(model, row["query"], cited, citation["statement"]))
            true.append(label == "full")
            of.append(number)
    report("ExpertQA, full support", lexical, ours, np.array(true), of)
    lexical, ours, true, of = [], [], [], []
    for number, row in enumerate(rows(data, "relevance_noveleval")):
        stems = content_stems(tokenize(row["query"]))
        grades = grade_passages(PassageIndex.read([p["text"] for p in row["passages"]]), stems)
        for passage, grade in zip(row["passages"], grades, strict=True):
            lexical.append(grade or 0.0)
            ours.append(support(model, "", [passage["text"]], row["query"]))
            true.append(row["labels"]["relevance"][passage["id"]] >= 1)
            of.append(number)
    report("NovelEval, relevant", lexical, ours, np.array(true), of)


if __name__ == "__main__":
    main()
