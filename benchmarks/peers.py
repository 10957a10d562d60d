"""What other packages say of cases that our formulas are tested on: written once, kept in tests.

    PYTHON -m benchmarks.peers tests/data/peers.json

PYTHON has `pytrec_eval-terrier`, `scikit-learn`, `rouge-score`, `deepeval` and `ragas` (beside
which pip must be told `langchain-community<0.4`), which the project does not need otherwise;
nothing of ragmeter is imported. Of the two suites that ask a judge only the formulas are taken, on
verdicts that are given: what their judge would say of a text is another matter. The cases come from
a seed and from the texts below, so that the file is the same whenever the packages say the same.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["main"]

SEED = 8
GAIN = {0: 0, 1: 1, 2: 3}  # 2^grade - 1: both packages take gains, not grades
RANKINGS = 60
VERDICTS = 60
WORDS = ("the", "a", "parcel", "refund", "takes", "is", "14", "days", "after", "we", "got", "back")
TEXTS = (
    ("", ""),
    ("", "Refunds take 14 days."),
    ("!!! ...", "Refunds take 14 days."),
    ("Refunds take 14 days.", "Refunds take 14 days."),
    ("Refunds take 14 days.", "refunds TAKE 14 days"),
    ("Refunds take 14 days.", "Days 14 take refunds."),
    ("the the the the", "the"),
    ("Click *Forgot password* [1].", "Click `Forgot password`, then open the mail [1]."),
    ("It's $1,204.50 (incl. 19 % VAT).", "The price is 1204.50 dollars, VAT included."),
    ("police killed the gunman", "police kill the gunman"),
    ("police killed the gunman", "the gunman kill police"),
    ("One\nline\tor\u00a0two", "one line or two"),
    ("snake_case and e-mail", "snake case and e mail"),
)
"""The two of the gunman are the examples of Lin (2004), section 3.1."""


def rankings(rng: random.Random) -> list[dict[str, Any]]:
    """Grades in rank order, with what the packages say of the first k."""
    pytrec: Any = importlib.import_module("pytrec_eval")
    sklearn: Any = importlib.import_module("sklearn.metrics")
    out = []
    for number in range(RANKINGS):
        size = rng.randint(2, 12)
        grades = [rng.choice((0, 0, 1, 2)) for _ in range(size)]
        if not any(grades):
            grades[rng.randrange(size)] = 1 + number % 2
        k = rng.randint(1, size)
        gains = [GAIN[grade] for grade in grades]
        ranked = {f"d{rank:02}": float(size - rank) for rank in range(size)}
        judged = {"q": {f"d{rank:02}": gain for rank, gain in enumerate(gains)}}
        of_all = pytrec.RelevanceEvaluator(judged, {f"ndcg_cut.{k}", f"P.{k}", f"success.{k}"})
        found = of_all.evaluate({"q": ranked})["q"]
        top = dict(list(ranked.items())[:k])
        first = pytrec.RelevanceEvaluator(judged, {"recip_rank"}).evaluate({"q": top})["q"]
        out.append(
            {
                "grades": grades,
                "k": k,
                "trec_eval": {
                    "ndcg": found[f"ndcg_cut_{k}"],
                    "precision": found[f"P_{k}"],
                    "success": found[f"success_{k}"],
                    "reciprocal_rank": first["recip_rank"],
                },
                "sklearn": {"ndcg": sklearn.ndcg_score([gains], [list(ranked.values())], k=k)},
            }
        )
    return out


def texts(rng: random.Random) -> list[dict[str, Any]]:
    """Pairs of texts with precision, recall and F of ROUGE-1, ROUGE-2 and ROUGE-L."""
    rouge: Any = importlib.import_module("rouge_score.rouge_scorer")
    scorer = rouge.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    pairs = list(TEXTS)
    for _ in range(40):
        one, two = (" ".join(rng.choices(WORDS, k=rng.randint(1, 90))) for _ in range(2))
        pairs.append((one, two))
    out = []
    for one, two in pairs:
        found = scorer.score(one, two)
        out.append(
            {
                "reference": one,
                "text": two,
                **{name: [float(part) for part in found[name]] for name in found},
            }
        )
    return out


def verdicts(rng: random.Random) -> list[dict[str, Any]]:
    """Yes and no, in order, with what RAGAS and DeepEval make of them."""
    ragas: Any = importlib.import_module("ragas.metrics._faithfulness")
    precision: Any = importlib.import_module("ragas.metrics._context_precision")
    recall: Any = importlib.import_module("ragas.metrics._context_recall")
    relevancy: Any = importlib.import_module("deepeval.metrics.answer_relevancy.answer_relevancy")
    schema: Any = importlib.import_module("deepeval.metrics.answer_relevancy.schema")
    out = []
    for number in range(VERDICTS):
        share = (0.0, 0.2, 0.5, 0.8, 1.0)[number % 5]
        given = [int(rng.random() < share) for _ in range(rng.randint(1, 12))]
        statements = [
            ragas.StatementFaithfulnessAnswer(statement="s", reason="r", verdict=one)
            for one in given
        ]
        useful = [precision.Verification(reason="r", verdict=one) for one in given]
        found = [
            recall.ContextRecallClassification(statement="s", reason="r", attributed=one)
            for one in given
        ]
        # without its constructor, which wants a judge
        metric = object.__new__(relevancy.AnswerRelevancyMetric)
        metric.strict_mode, metric.threshold = False, 0.5
        metric.verdicts = [
            schema.AnswerRelevancyVerdict(verdict="yes" if one else "no") for one in given
        ]
        out.append(
            {
                "verdicts": given,
                "ragas": {
                    "faithfulness": float(
                        ragas.Faithfulness()._compute_score(
                            ragas.NLIStatementOutput(statements=statements)
                        )
                    ),
                    "context_precision": float(
                        precision.ContextPrecision()._calculate_average_precision(useful)
                    ),
                    "context_recall": float(recall.ContextRecall()._compute_score(found)),
                },
                "deepeval": {"answer_relevancy": float(metric._calculate_score())},
            }
        )
    return out


def main(target: Path) -> None:
    """Write what the packages say to `target`."""
    rng = random.Random(SEED)
    names = ("pytrec_eval-terrier", "scikit-learn", "rouge-score", "ragas", "deepeval")
    kinds = (("rankings", rankings), ("texts", texts), ("verdicts", verdicts))
    lists = [  # a line for each case, for the eyes of who compares two versions
        f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]"
        for name, cases in [(name, make(rng)) for name, make in kinds]
    ]
    found = json.dumps({name: version(name) for name in names})
    target.write_text(f'{{"versions": {found},\n' + ",\n".join(lists) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
