"""What comparing answers costs: reading a service's answers for the first time, with and without
embeddings, beside the scoring of a trace in the same run.

    python -m benchmarks.consistency [--questions 40] [--rounds 5]

Times on a shared machine say little; the last column, in scored traces, is what to compare.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from ragmeter.aggregate.answer_similarity import (
    MAX_ANSWERS,
    QuestionEmbedding,
    RememberedAnswer,
    RememberedAnswers,
    link_near_questions,
)
from ragmeter.aggregate.wordings import MAX_WORDS, WordingBuilder
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.arithmetic import pack_vector, packed_cosine
from ragmeter.core.score import HashedWording
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.native import DecodeFailure
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

__all__ = ["main"]

DIMENSIONS = (384, 1536)
PAIRS = MAX_ANSWERS * (MAX_ANSWERS - 1) // 2
REMEMBERED = 200  # questions, the default of `consistency.queries`


def seconds(work: Callable[[], object], rounds: int) -> float:
    """The fastest of so many rounds: others on the machine only add."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def words(draw: random.Random, number: int) -> str:
    """As text has them: few words often, many seldom."""
    return " ".join(f"word{int(draw.paretovariate(0.8)) % 3000}" for _ in range(number))


def vector(draw: random.Random, size: int) -> str:
    return pack_vector([draw.gauss(0, 1) for _ in range(size)], "m")


def said(draw: random.Random, number: int) -> list[RememberedAnswer]:
    """Answers of so many words to one question."""
    wordings = WordingBuilder(ConsistencySettings(), PrivacySettings())
    found = []
    for at in range(MAX_ANSWERS):
        own = {"trace_id": "t", "service": "s", "timestamp": 0, "query": "q"}
        wording = wordings.of(Trace.model_validate({**own, "answer": words(draw, number)}))
        assert isinstance(wording, HashedWording)
        found.append(RememberedAnswer(float(at), wording.words))
    return found


def first_reading(kept: list[list[RememberedAnswer]], rounds: int) -> float:
    """Of a question: all its pairs, which later readings remember."""

    def work() -> None:
        for one in kept:
            RememberedAnswers(one).spreads(-1, MAX_ANSWERS)

    return seconds(work, rounds) / len(kept)


def pairing(draw: random.Random, size: int, rounds: int) -> float:
    """Of the embeddings of a question's answers."""
    one, other = vector(draw, size), vector(draw, size)
    return seconds(lambda: [packed_cosine(one, other) for _ in range(PAIRS)], rounds)


def meeting(draw: random.Random, size: int, rounds: int) -> float:
    """A question that is new among `REMEMBERED`, none of them near."""
    known = {str(number): RememberedAnswers() for number in range(REMEMBERED)}
    for one in known.values():
        one.question = QuestionEmbedding("", vector(draw, size))
    asked = QuestionEmbedding("", vector(draw, size))

    def work() -> None:
        known["new"] = RememberedAnswers()
        link_near_questions("new", asked, known, 0.95)
        del known["new"]

    return seconds(work, rounds)


def scoring(file: Path, rounds: int) -> float:
    """Of a trace by the built-in scorers: the baseline."""
    items = [item for item, _ in InputFile(file).read(2**21)][:60]
    traces = [item.trace for item in items if not isinstance(item, DecodeFailure)]
    scorer = Scorer()
    return seconds(lambda: [scorer.score(trace) for trace in traces], rounds) / len(traces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--traces", type=Path, default=Path("examples/mtrag.jsonl"))
    chosen = parser.parse_args()
    draw = random.Random(1)
    base = scoring(chosen.traces, chosen.rounds)

    def row(what: str, cost: float) -> None:
        print(f"{what:58} {cost * 1e3:9.3f} ms {cost / base:8.2f}")

    print(f"{'':58} {'':12} {'traces':>8}")
    row("scoring a trace by the built-in scorers", base)
    for number in (70, MAX_WORDS):
        kept = [said(draw, number) for _ in range(chosen.questions)]
        cost = first_reading(kept, chosen.rounds)
        row(f"first reading of a question, {MAX_ANSWERS} answers of {number} words", cost)
    row(f"  of {REMEMBERED} such questions", REMEMBERED * cost)
    for size in DIMENSIONS:
        cost = pairing(draw, size, chosen.rounds)
        row(f"embeddings of {size} numbers: the {PAIRS} pairs of a question", cost)
        cost = meeting(draw, size, chosen.rounds)
        row(f"  a new question held against {REMEMBERED}", cost)


if __name__ == "__main__":
    main()
