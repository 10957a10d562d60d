"""Answers that people have judged, with the cheap scores of the product."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model
from ragmeter.scorers.mini.tier import conclude_trace
from ragmeter.trace import Trace

__all__ = ["Numbers", "labelled_answers"]

Numbers = NDArray[Any]


def labelled_answers() -> dict[str, Numbers]:
    """By set: people's verdict, the built-in score and the embedded model's of each answer."""
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    found: dict[str, list[tuple[bool, float, float]]] = {}
    for name, query, passages, answer, bad in read_answers():
        trace = Trace.model_validate(
            {
                "trace_id": "t",
                "service": "s",
                "timestamp": 0,
                "query": query,
                "passages": passages,
                "answer": answer,
            }
        )
        prepared = model.read(query, [passage["text"] for passage in passages], answer)
        while rows := prepared.next_rows():
            for row in rows:
                model.score_window(prepared, *row)
        value, detail = conclude_trace(trace, prepared)
        lexical = 1 / (1 + math.exp(-detail["lexical"]))
        found.setdefault(name, []).append((not bad, lexical, value))
    return {name: np.array(rows, dtype=float) for name, rows in found.items()}


def read_answers() -> list[tuple[str, str, list[dict[str, str]], str, bool]]:
    """Set, question, passages, answer, and whether people found it hallucinated."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in ("ragtruth_answers", "mtrag_grounding", "clapnq_generators"):
        path = Path(__file__).parents[2] / "data" / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows[name] = [json.loads(line) for line in lines]
    asked = [row for row in rows["ragtruth_answers"] if row["task"] == "qa"]
    found = [
        (name, row["query"], row["passages"], row["answer"], row["hallucinated"])
        for name, some in (("ragtruth", asked), ("mtrag", rows["mtrag_grounding"]))
        for row in some
    ]
    for row in rows["clapnq_generators"]:
        for generator, one in row["answers"].items():
            answer = (one["text"], one["hallucinated"])
            found.append((f"clapnq {generator}", row["query"], row["passages"], *answer))
    return found
