"""What other packages say of the cases that reports are tested on: written once, kept in tests.

    PYTHON -m benchmarks.peers_report tests/data/peers-report.json tests/data/open-rag-eval.csv
    PYTHON -m benchmarks.peers_report --read FILE.csv

PYTHON has `scipy`, `statsmodels`, and `open-rag-eval` with `pandas`, `matplotlib` and `omegaconf`,
which the project does not need otherwise; nothing of ragmeter is imported. The CSV is written by
open-rag-eval's own classes. `--read` has it read a CSV of ours: its plots, its JSON report.

Importing open-rag-eval loads PyTorch, transformers and clients of five vendors, none of which has a
part in its files and plots: where they are not installed, empty modules stand in for them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

__all__ = ["main"]

SEED = 8
HEAVY = (
    *("torch", "torchmetrics", "transformers", "openai", "google", "anthropic", "together"),
    *("rouge", "llama_index", "langchain", "langchain_core", "langchain_community", "chromadb"),
    *(
        "langchain_text_splitters",
        "langchain_openai",
        "langchain_chroma",
        "unstructured",
        "seaborn",
        "streamlit",
        "dotenv",
    ),
)


class _Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _Stand(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in line: finds only what is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in HEAVY:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def paired(rng: random.Random) -> list[dict[str, Any]]:
    """Scores of the same questions, with scipy's p of the exact randomisation test."""
    stats: Any = importlib.import_module("scipy.stats")
    numpy: Any = importlib.import_module("numpy")
    out = []
    for number in range(40):
        n = 3 + number % 8
        steps = 2 if number % 2 else 64  # yes and no, or graded in 64ths, which floats hold exactly
        one = [rng.randint(0, steps - 1) / (steps - 1 if steps == 2 else 64) for _ in range(n)]
        two = [min(1.0, max(0.0, y + rng.choice((0, 0, 8, 16)) / 64)) if steps > 2
               else float(rng.random() < 0.6) for y in one]  # fmt: skip
        found = stats.permutation_test(
            (numpy.array(two), numpy.array(one)), lambda x, y, axis: numpy.mean(x - y, axis=axis),
            permutation_type="samples", n_resamples=numpy.inf, vectorized=True,
        )  # fmt: skip
        out.append({"first": one, "second": two, "p": float(found.pvalue)})
    return out


def unpaired(rng: random.Random) -> list[dict[str, Any]]:
    """Yes and no of different questions, with statsmodels' interval by Newcombe's method."""
    proportion: Any = importlib.import_module("statsmodels.stats.proportion")
    out = []
    for _ in range(40):
        n1, n2 = rng.randint(2, 49), rng.randint(2, 49)
        y1, y2 = rng.randint(0, n1), rng.randint(0, n2)
        lower, upper = proportion.confint_proportions_2indep(y2, n2, y1, n1, method="newcomb")
        out.append(
            {"first": [y1, n1], "second": [y2, n2], "interval": [float(lower), float(upper)]}
        )
    return out


def welch(rng: random.Random) -> list[dict[str, Any]]:
    """Graded scores of different questions, with scipy's interval by Welch's t-test."""
    stats: Any = importlib.import_module("scipy.stats")
    out = []
    for _ in range(8):
        one = [round(rng.betavariate(4, 2), 4) for _ in range(rng.randint(300, 500))]
        two = [round(rng.betavariate(3, 2), 4) for _ in range(rng.randint(300, 500))]
        found = stats.ttest_ind(two, one, equal_var=False)
        limits = found.confidence_interval()
        out.append({"first": one, "second": two, "p": float(found.pvalue),
                    "interval": [float(limits.low), float(limits.high)]})  # fmt: skip
    return out


def holm(rng: random.Random) -> list[dict[str, Any]]:
    multiple: Any = importlib.import_module("statsmodels.stats.multitest")
    out = []
    for _ in range(20):
        p = [round(rng.random() ** 3, 6) for _ in range(rng.randint(1, 12))]
        found = [float(one) for one in multiple.multipletests(p, method="holm")[1]]
        out.append({"p": p, "adjusted": found})
    return out


def foreign(target: Path) -> None:
    """A CSV as open-rag-eval writes it: two answers a question, a failed evaluation, failed
    nuggets, with the neutral 0.5 that it gives them."""
    scores: Any = importlib.import_module("open_rag_eval.data_classes.eval_scores")
    results: Any = importlib.import_module("open_rag_eval.data_classes.rag_results")
    evaluator: Any = importlib.import_module("open_rag_eval.evaluators.trec_evaluator")
    rng = random.Random(SEED)
    rows = []
    for number in range(12):
        query = f"How do I reset my password, number {number}?"
        found = []
        for run in range(2):
            passages = {f"[{n}]": f"Passage {n} of question {number}." for n in (1, 2, 3)}
            parts = [results.GeneratedAnswerPart("Click Forgot password.", ["[1]"]),
                     results.GeneratedAnswerPart("Then, \"confirm\".\nDone.", [])]  # fmt: skip
            result = results.RAGResult(
                results.RetrievalResult(query, passages),
                results.AugmentedGenerationResult(query, parts),
            )
            found.append(
                scores.ScoredRAGResult(rag_result=result, scores=_scores(scores, rng, number, run))
            )
        rows.append(scores.MultiScoredRAGResult(query, f"q{number:02}", found))
    # as its constructor would, but without a judge
    writer = object.__new__(evaluator.TRECEvaluator)
    writer.to_repeat = 1
    writer.to_csv(rows, str(target))


def _scores(scores: Any, rng: random.Random, number: int, run: int) -> Any:
    if number == 10 and run == 0:  # what it does where anything of an evaluation raises
        return scores.RAGScores(scores.RetrievalScores({}), scores.AugmentedGenerationScores({}))
    umbrela: Any = importlib.import_module("open_rag_eval.metrics.umbrela_metric")
    nuggetizer: Any = importlib.import_module("open_rag_eval.metrics.autonugget_metric")
    metric = object.__new__(umbrela.UMBRELAMetric)
    metric._umbrela_relevant_threshold = 2
    grades = {f"[{n}]": rng.randint(0, 3) for n in (1, 2, 3)}
    ranked: dict[str, Any] = {"umbrela_scores": grades}
    metric.add_retrieval_metrics(ranked, [1, 3, 5])
    nuggets: dict[str, Any] = {}
    if number != 11:
        maker = object.__new__(nuggetizer.AutoNuggetMetric)
        maker.assignment_score_map = {"support": 1, "partial_support": 0.5, "not_support": 0}
        assigned = [rng.choice(list(maker.assignment_score_map)) for _ in range(4)]
        labels = ["vital", "vital", "okay", "okay"]
        texts = [f"fact {n}" for n in range(4)]
        nuggets = {
            "nuggetizer_scores": maker._evaluate_answer(texts, labels, assigned),
            "nuggets": texts, "labels": labels, "assignments": assigned,
            "assignment_scores": [maker.assignment_score_map[one] for one in assigned],
        }  # fmt: skip
    given = nuggets.get("assignment_scores", [0.5])
    vital = nuggets.get("nuggetizer_scores", {}).get("Vital", 0.5)
    cited = {"weighted_precision": rng.random(), "weighted_recall": rng.random(), "f1": 0.0}
    cited["f1"] = 2 * cited["weighted_precision"] * cited["weighted_recall"] / sum(cited.values())
    return scores.RAGScores(
        scores.RetrievalScores(
            {"umbrela_scores": grades, "precision_metrics": ranked["retrieval_scores"],
             "mean_umbrela_score": sum(grades.values()) / 3}
        ),
        scores.AugmentedGenerationScores(
            {"autonugget_scores": nuggets, "mean_nugget_assignment_score": sum(given) / len(given),
             "vital_nuggetizer_score": vital, "hallucination_score": rng.random(),
             "citation_scores": cited, "citation_f1_score": cited["f1"],
             "no_answer_score": {"query_answered": "no" if number % 4 == 0 else "yes"}}
        ),
    )  # fmt: skip


def read(file: Path) -> None:
    """Have open-rag-eval plot a CSV and make its JSON report of it; say what it found."""
    evaluator: Any = importlib.import_module("open_rag_eval.evaluators.trec_evaluator")
    merging: Any = importlib.import_module("open_rag_eval.run_eval")
    viewer: Any = importlib.import_module("open_rag_eval.viz.visualize")
    pandas: Any = importlib.import_module("pandas")
    table = pandas.read_csv(file)
    writer = object.__new__(evaluator.TRECEvaluator)
    writer.to_repeat = 1
    wanted = writer.get_consolidated_columns()
    print("columns that it asks for and we lack:", [n for n in wanted if n not in table.columns])
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "plot.png"
        evaluator.TRECEvaluator.plot_metrics([str(file)], str(picture))
        print("plotted alone:", picture.stat().st_size, "bytes")
        evaluator.TRECEvaluator.plot_metrics([str(file)] * 2, str(picture))
        print("plotted beside itself:", picture.stat().st_size, "bytes")
        (Path(folder) / "scores.csv").write_bytes(file.read_bytes())
        merging.create_openeval_report(folder, "scores.csv")
        made = json.loads((Path(folder) / "scores.json").read_text(encoding="utf-8"))
    first = made["evaluation"][0]["runs"][0]
    print("questions in its JSON report:", len(made["evaluation"]))
    print("first run there:", json.dumps(first)[:1500])
    run = viewer.extract_runs(table.iloc[0])["1"]
    print("its viewer's answer:", viewer.parse_generated_answer(run["generated_answer"])[:300])
    for name in writer.get_metrics_to_plot()[:-1]:
        values = table[f"run_1_{name}"].dropna()
        print(name, len(values), "values, mean", values.mean())


def main(arguments: Sequence[str]) -> None:
    sys.meta_path.append(_Stand())
    if arguments[0] == "--read":
        read(Path(arguments[1]))
        return
    rng = random.Random(SEED)
    kinds = (("paired", paired), ("unpaired", unpaired), ("welch", welch), ("holm", holm))
    lists = [
        f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in make(rng)) + "\n]"
        for name, make in kinds
    ]
    names = ("scipy", "statsmodels")
    found = json.dumps({name: version(name) for name in names})
    Path(arguments[0]).write_text(
        f'{{"versions": {found},\n' + ",\n".join(lists) + "}\n", encoding="utf-8"
    )
    foreign(Path(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
