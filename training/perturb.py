"""Whether `builtin` and `mini` lower an answer that is made false, on sources training never saw.

    python -m training.perturb --answers FILE.json.gz

Answers that are labelled as grounded get two of their numbers exchanged, a number replaced, a "not"
removed or one added, where they claim anything. Printed is the share of the false answers with a
lower value than the true one: of the half of the sources that the weights of contradictions were
chosen on, and of the other half.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ragmeter.metrics.answer_text import parse_answer
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, TokenModel, load_model
from ragmeter.scorers.mini.tier import conclude_trace, lexical_facts
from ragmeter.trace import Trace

from training.devdata import fold_of
from training.fit import read_answers, read_windows

MOST = 45  # answers of a set and a kind of error
_NUMBER = re.compile(r"(?<![\w.,-])\d(?:[\d,.]*\d)?(?![\w-])")
_VERBS = r"is|are|was|were|can|could|should|will|would|has|have|had"
_POSITIVE = re.compile(rf"\b(?:{_VERBS}) (?!not\b)")
_NEGATIVE = re.compile(rf"(?<=\b)((?:{_VERBS}|do|does|did|may|must)) not ")

Change = Callable[[str, str, random.Random], str | None]


def find_numbers(answer: str, passages: str) -> list[re.Match[str]]:
    """Numbers that the passages have, and that begin no line."""
    return [
        m
        for m in _NUMBER.finditer(answer)
        if m.group() in passages and answer[: m.start()].rpartition("\n")[2].strip()
    ]


def exchange_numbers(answer: str, passages: str, rng: random.Random) -> str | None:
    """Let two different numbers change places."""
    found = find_numbers(answer, passages)
    pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :] if a.group() != b.group()]
    if not pairs:
        return None
    a, b = rng.choice(pairs)
    between = answer[a.end() : b.start()]
    return answer[: a.start()] + b.group() + between + a.group() + answer[b.end() :]


def replace_number(answer: str, passages: str, rng: random.Random) -> str | None:
    """Put another number of as many digits in the place of one."""
    found = find_numbers(answer, passages)
    if not found:
        return None
    m = rng.choice(found)
    new = m.group()
    while new == m.group():
        new = re.sub(r"\d", lambda _: rng.choice("0123456789"), m.group())
        new = re.sub(r"^0", "1", new)
    return answer[: m.start()] + new + answer[m.end() :]


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
    "a number replaced": replace_number,
    "a not removed": remove_not,
    "a not added": add_not,
}


def claims(answer: str) -> list[str]:
    return [claim.text for claim in parse_answer(answer).claims]


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
    count = Counter[tuple[str, str]]()
    lower: dict[tuple[str, int], list[tuple[bool, bool]]] = {}
    for answer in answers:
        if answer.bad:
            continue
        trace = answer.trace
        true = None
        said = trace.answer or ""
        half = fold_of(answer.group, 2)
        passages = "\n".join(passage.text or "" for passage in trace.passages or ())
        for name, change in CHANGES.items():
            text = change(said, passages, random.Random(f"{name} {trace.trace_id}"))
            if text is None or claims(text) == claims(said):  # a preamble claims nothing
                continue
            count[name, answer.name] += 1
            if count[name, answer.name] > MOST:
                continue
            true = true or values(model, trace)
            false = values(model, trace.model_copy(update={"answer": text}))
            lower.setdefault((name, half), []).append((false[0] < true[0], false[1] < true[1]))
    for name in CHANGES:
        for half, sources in enumerate(("chosen on", "other")):
            rows = lower[name, half]
            builtin, mini = (sum(column) / len(rows) for column in zip(*rows, strict=True))
            print(
                f"{name}, {sources}, n {len(rows)}: lower by builtin {builtin:.3f}, mini {mini:.3f}"
            )


if __name__ == "__main__":
    main()
