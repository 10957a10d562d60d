"""Whether `builtin` and `mini` lower an answer that is made false, on sources training never saw.

    python -m training.perturb --answers FILE.json.gz

Answers that are labelled as grounded get two of their numbers exchanged, a "not" removed or one
added. Printed is the share of the false answers with a lower value than the true one.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.mini import read_windows
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model
from ragmeter.scorers.mini.tier import conclude_trace, lexical_facts
from ragmeter.trace import Trace
from training.fit import read_answers

MOST = 25  # answers of a set and a kind of error
_NUMBER = re.compile(r"(?<![\w.,-])\d(?:[\d,.]*\d)?(?![\w-])")
_VERBS = r"is|are|was|were|can|could|should|will|would|has|have|had"
_POSITIVE = re.compile(rf"\b(?:{_VERBS}) (?!not\b)")
_NEGATIVE = re.compile(rf"(?<=\b)((?:{_VERBS}|do|does|did|may|must)) not ")

Change = Callable[[str, str, random.Random], str | None]


def exchange_numbers(answer: str, passages: str, rng: random.Random) -> str | None:
    """Two different numbers that the passages have, and that begin no line, change places."""
    found = [
        m
        for m in _NUMBER.finditer(answer)
        if m.group() in passages and answer[: m.start()].rpartition("\n")[2].strip()
    ]
    pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :] if a.group() != b.group()]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    between = answer[a.end() : b.start()]
    return answer[: a.start()] + b.group() + between + a.group() + answer[b.end() :]


def remove_not(answer: str, passages: str, rng: random.Random) -> str | None:
    found = list(_NEGATIVE.finditer(answer))
    if not found:
        return None
    m = rng.choice(found)
    return f"{answer[: m.start()]}{m.group(1)} {answer[m.end() :]}"


def add_not(answer: str, passages: str, rng: random.Random) -> str | None:
    found = list(_POSITIVE.finditer(answer))
    if not found:
        return None
    m = rng.choice(found)
    return f"{answer[: m.end()]}not {answer[m.end() :]}"


CHANGES: dict[str, Change] = {
    "two numbers exchanged": exchange_numbers,
    "a not removed": remove_not,
    "a not added": add_not,
}


def values(model: TokenModel, trace: Trace) -> tuple[float, float]:
    """What `builtin` says, in log odds, and the value of `mini`."""
    texts = [passage.text or "" for passage in trace.passages or ()]
    reading = read_windows(model, trace.query or "", texts, trace.answer or "")
    return lexical_facts(trace).lexical, conclude_trace(trace, reading)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--answers", type=Path, required=True)
    answers = read_answers(parser.parse_args().answers)
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    rng, count = random.Random(0), Counter[tuple[str, str]]()
    lower: dict[str, list[tuple[bool, bool]]] = {name: [] for name in CHANGES}
    for answer in answers:
        if answer.bad:
            continue
        trace, true = answer.trace, None
        passages = "\n".join(passage.text or "" for passage in trace.passages or ())
        for name, change in CHANGES.items():
            text = change(trace.answer or "", passages, rng)
            count[name, answer.name] += text is not None
            if text is None or count[name, answer.name] > MOST:
                continue
            true = true or values(model, trace)
            false = values(model, trace.model_copy(update={"answer": text}))
            lower[name].append((false[0] < true[0], false[1] < true[1]))
    for name, rows in lower.items():
        builtin, mini = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        print(f"{name}, n {len(rows)}: lower by builtin {builtin:.2f}, by mini {mini:.2f}")


if __name__ == "__main__":
    main()
