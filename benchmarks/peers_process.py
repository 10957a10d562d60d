"""One pass over the texts of traces by one package, timed: run by a Python that has the package.

Reads JSON lines and prints a JSON object. Imports the package that it times and nothing else that
is not in the standard library.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PASSES", "Figures", "Pass"]

Traces = Sequence[dict[str, Any]]
Run = Callable[[], object]


class Figures(NamedTuple):
    """CPU for a trace, and that as a multiple of parsing its JSON."""

    microseconds: float
    ratio: float


class Pass(NamedTuple):
    """What is timed.

    Args:
        package: What it is of.
        label: What it does, for people.
        prepare: Makes ready what does not belong to the pass, and returns the pass.
    """

    package: str
    label: str
    prepare: Callable[[Traces], Run]


def ragmeter(traces: Traces) -> Run:
    """All built-in scorers, passages read anew in each trace."""
    from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
    from ragmeter.trace import Trace

    read = [Trace.model_validate(trace) for trace in traces]

    def run() -> None:
        for trace in read:
            prepared = PreparedTrace(trace)
            score_cheap(prepared)
            score_builtin(prepared)

    return run


def rouge_by_passage(traces: Traces) -> Run:
    """ROUGE as its page shows it: with the stemmer, the answer with each passage."""
    scorer = import_module("rouge_score.rouge_scorer").RougeScorer(
        ["rouge1", "rougeL"], use_stemmer=True
    )

    def run() -> None:
        for trace in traces:
            for passage in trace["passages"]:
                scorer.score(passage["text"], trace["answer"])

    return run


def rouge_at_once(traces: Traces) -> Run:
    """The cheapest ROUGE: no stemmer, no sequences, all passages as one text."""
    scorer = import_module("rouge_score.rouge_scorer").RougeScorer(["rouge1"])

    def run() -> None:
        for trace in traces:
            passages = "\n".join(passage["text"] for passage in trace["passages"])
            scorer.score(passages, trace["answer"])

    return run


def ragas_similarity(traces: Traces) -> Run:
    """Ragas' metric of the edit distance, the answer with each passage."""
    metric = import_module("ragas.metrics").NonLLMStringSimilarity()
    sample_type = import_module("ragas.dataset_schema").SingleTurnSample
    samples = [
        sample_type(response=trace["answer"], reference=passage["text"])
        for trace in traces
        for passage in trace["passages"]
    ]

    async def score() -> None:
        for sample in samples:
            await metric.single_turn_ascore(sample)

    return lambda: asyncio.run(score())


def langkit_light(traces: Traces) -> Run:
    """LangKit's `light_metrics`: readability, counts and patterns of question and answer."""
    import_module("langkit.light_metrics").init()
    extract = import_module("langkit").extract

    def run() -> None:
        for trace in traces:
            extract({"prompt": trace["query"], "response": trace["answer"]})

    return run


PASSES: dict[str, Pass] = {
    "ragmeter": Pass("ragmeter", "ragmeter, all built-in scorers", ragmeter),
    "rouge": Pass(
        "rouge-score", "rouge-score, ROUGE-1 and L with stemmer, each passage", rouge_by_passage
    ),
    "rouge1": Pass(
        "rouge-score", "rouge-score, ROUGE-1 without stemmer, passages as one text", rouge_at_once
    ),
    "ragas": Pass("ragas", "Ragas, `NonLLMStringSimilarity`, each passage", ragas_similarity),
    "langkit": Pass("langkit", "LangKit, `light_metrics` of question and answer", langkit_light),
}


def time_pass(prepare: Callable[[Traces], Run], lines: Sequence[str]) -> Figures:
    """Time a pass over the second half, and the parsing of its JSON just before and after.

    The first half comes before, untimed: what a process loads at its first trace costs a service
    nothing, and no text is known from before.
    """

    def timed(call: Run) -> float:
        begin = time.process_time()
        call()
        return time.process_time() - begin

    def parse() -> None:
        for line in lines:
            json.loads(line)

    half = len(lines) // 2
    prepare([json.loads(line) for line in lines[:half]])()
    lines = lines[half:]
    run = prepare([json.loads(line) for line in lines])
    before = timed(parse)
    spent = timed(run)
    parsed = (before + timed(parse)) / 2
    return Figures(1e6 * spent / len(lines), spent / parsed)


def main() -> None:
    warnings.simplefilter("ignore")
    _, name, file = sys.argv
    lines = Path(file).read_text("utf-8").splitlines()
    print(json.dumps(time_pass(PASSES[name].prepare, lines)._asdict()))


if __name__ == "__main__":
    main()
