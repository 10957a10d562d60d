"""open-rag-eval on the traces of `benchmarks.judge`: run by a Python that has it, not by ours.

Reads one JSON object on standard input (`base_url`, `queries` as benchmarks/judge_workload.py
makes them, `workers`: how many queries side by side, 0 for one after another) and writes one to
standard output. Nothing of ragmeter is imported. HHEM is replaced by a constant: where torch,
transformers and torchmetrics are not installed, empty stand-ins let the package be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from typing import Any
from unittest.mock import MagicMock

__all__ = ["main"]

FAMILIES = {
    "UMBRELAScore": "relevance",
    "Nuggets": "nuggets",
    "NuggetImportance": "nuggets",
    "NuggetAssignment": "nuggets",
    "CitationSupport": "citations",
    "QueryAnswered": "answered",
}
HEAVY = {
    "torch": ("torch",),
    "transformers": ("transformers",),
    "torchmetrics": ("torchmetrics", "torchmetrics.text", "torchmetrics.text.bert"),
}


def evaluator(base_url: str, calls: list[tuple[int, str, bool]]) -> Any:
    """The package's evaluator; each call is noted as (thread, family of metrics, succeeded)."""
    for package, modules in HEAVY.items():
        if importlib.util.find_spec(package) is None:
            sys.modules.update({module: MagicMock() for module in modules})
    os.environ["OPENAI_API_KEY"] = "none"  # the package takes it from nowhere else
    os.environ["TOGETHER_NO_BANNER"] = "1"
    trec: Any = importlib.import_module("open_rag_eval.evaluators.trec_evaluator")
    judges = importlib.import_module("open_rag_eval.models.llm_judges")
    model = judges.OpenAIModel({"name": "stub", "api_key": "none", "base_url": base_url})
    parse = model.parse

    def noted(prompt: str, response_format: Any, model_kwargs: Any = None) -> Any:
        family = FAMILIES[response_format.__name__]
        try:
            out = parse(prompt, response_format, model_kwargs)
        except Exception:
            calls.append((threading.get_ident(), family, False))
            raise
        calls.append((threading.get_ident(), family, True))
        return out

    model.parse = noted
    trec.HallucinationMetric = lambda **_: MagicMock(compute=lambda _: {"hhem_score": 0.5})
    return trec.TRECEvaluator(model)


def inputs(queries: list[dict[str, Any]]) -> list[Any]:
    """The queries in the package's own classes; its ids have brackets."""
    classes = importlib.import_module("open_rag_eval.data_classes.rag_results")
    out = []
    for query in queries:
        passages = {f"[{rank}]": text for rank, text in enumerate(query["passages"], 1)}
        parts = [
            classes.GeneratedAnswerPart(part["text"], [f"[{rank}]" for rank in part["cites"]])
            for part in query["parts"]
        ]
        result = classes.RAGResult(
            classes.RetrievalResult(query["query"], passages),
            classes.AugmentedGenerationResult(query["query"], parts),
        )
        out.append(classes.MultiRAGResult(query["query"], query["id"], [result]))
    return out


def kept(scored: Any) -> list[str]:
    """The families of metrics that a query got a score for that a judge gave."""
    generation = scored.scored_rag_results[0].scores.generation_score.scores
    if not generation:
        return []
    out = ["relevance", "citations", "answered"]
    if "assignment_scores" in generation["autonugget_scores"]:
        out.append("nuggets")  # else the package writes 0.5, which no judge gave
    return out


def main() -> None:
    task = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)
    calls: list[tuple[int, str, bool]] = []
    judge = evaluator(task["base_url"], calls)
    queries = inputs(task["queries"])
    judge.evaluate_batch(inputs([task["warm_up"]]), max_workers=1)  # connections, lazy imports
    calls.clear()
    results = []
    walls = []
    broken = []
    cpu = time.process_time()
    begun = time.perf_counter()
    if task["workers"]:
        results = judge.evaluate_batch(queries, max_workers=task["workers"])
    else:
        for query in queries:
            started = time.perf_counter()
            before = len(calls)
            results.append(judge.evaluate(query))
            walls.append(time.perf_counter() - started)
            broken.append(sorted({family for _, family, fine in calls[before:] if not fine}))
    found = {
        "wall": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
        "calls": len(calls),
        "walls": walls,
        "kept": [kept(result) for result in results],
        "broken": broken,
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
