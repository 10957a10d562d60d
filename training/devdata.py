"""The human-labelled development traces, and the measures of agreement with them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ragmeter.metrics.abstention import abstains, has_further_claims
from ragmeter.trace import Trace

__all__ = [
    "Floats",
    "Labelled",
    "auroc",
    "balanced_accuracy",
    "band_auroc",
    "fold_of",
    "grounding_rows",
    "kappa",
    "rows",
    "to_trace",
]

Floats = npt.NDArray[np.float64]
GROUNDING = (
    "grounding_ragtruth",
    "grounding_clapnq_human",
    "grounding_mtrag_human",
    "grounding_begin",
)
NAMES = {
    "grounding_clapnq_human": "ClapNQ (human)",
    "grounding_mtrag_human": "MTRAG (human)",
    "grounding_begin": "BEGIN",
}
TASKS = {"qa": "QA", "summarization": "Summary", "data2text": "Data2txt"}


@dataclass(slots=True)
class Labelled:
    """A trace of the set `name`, the group that must not be split over folds, and its label.

    `spans` are the [start, end) that people marked as unsupported; None where nobody marked spans.
    """

    name: str
    group: str
    trace: Trace
    bad: bool
    spans: list[tuple[int, int]] | None = None


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one file of the development data."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def to_trace(row: dict[str, Any]) -> Trace:
    """A row in the native schema; citations carry no place there, so markers are left to speak."""
    return Trace.model_validate(
        {
            "trace_id": row["trace_id"],
            "service": row["source"],
            "timestamp": 0,
            "query": row["query"],
            "passages": [
                {"id": p["id"], "text": p["text"], "rank": p.get("rank")} for p in row["passages"]
            ],
            "answer": row["answer"],
        }
    )


def grounding_rows(folder: Path) -> list[Labelled]:
    """Every answer with a human verdict `hallucinated` that the agent scores for grounding.

    Left out are blank answers and abstentions that claim nothing more.
    """
    out: list[Labelled] = []
    for file in GROUNDING:
        for row in rows(folder, file):
            bad = row["labels"]["normalized"].get("hallucinated")
            if bad is None or not row["answer"].strip():
                continue
            answer = row["answer"]
            if abstains(answer) and not has_further_claims(answer):
                continue
            name = NAMES.get(file) or f"RAGTruth {TASKS[row['task']]}"
            # summaries and data-to-text share one instruction: their group is the source text
            same = row["passages"][0]["text"] if file == "grounding_ragtruth" else row["query"]
            marked = row["labels"].get("hallucination_spans")
            spans = None if marked is None else [(m["start"], m["end"]) for m in marked]
            out.append(Labelled(name, same, to_trace(row), bool(bad), spans))
    return out


def fold_of(group: str, folds: int = 5) -> int:
    """A stable fold of a group."""
    return int(hashlib.md5(group.encode()).hexdigest(), 16) % folds


def auroc(scores: Sequence[float] | Floats, bad: Sequence[bool] | npt.NDArray[Any]) -> float:
    """Probability that a bad one scores above a good one, ties one half; NaN without both."""
    s, y = np.asarray(scores, float), np.asarray(bad, bool)
    _, place, count = np.unique(s, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    n1, n0 = int(y.sum()), int((~y).sum())
    if not n1 or not n0:
        return float("nan")
    return float((rank[y].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def band_auroc(scores: Floats, bad: npt.NDArray[Any], length: Floats, bands: int = 4) -> float:
    """AUROC inside bands of equal size by `length`, weighted by the pairs of each band."""
    cuts = np.quantile(length, np.linspace(0, 1, bands + 1)[1:-1])
    band = np.searchsorted(cuts, length)
    total = pairs = 0.0
    for b in range(bands):
        inside = band == b
        weight = float(bad[inside].sum()) * float((~bad[inside]).sum())
        if weight:
            total += auroc(scores[inside], bad[inside]) * weight
            pairs += weight
    return total / pairs if pairs else float("nan")


def balanced_accuracy(said: npt.NDArray[Any], true: npt.NDArray[Any]) -> float:
    """Mean of the shares right among the true and among the false."""
    return float((said[true].mean() + (~said[~true]).mean()) / 2)


def kappa(said: Sequence[Any] | npt.NDArray[Any], true: Sequence[Any] | npt.NDArray[Any]) -> float:
    """Cohen's kappa of two labellings."""
    a, b = np.asarray(said), np.asarray(true)
    agree = float((a == b).mean())
    chance = sum(float((a == v).mean()) * float((b == v).mean()) for v in np.unique(b))
    return (agree - chance) / (1 - chance) if chance < 1 else float("nan")
