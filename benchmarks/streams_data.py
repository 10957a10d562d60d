"""Streams of human-labelled answers in which the generator is swapped, for `benchmarks.streams`.

Every model of a set answers the same queries from the same passages, so a swap changes the answers
and nothing else. Streams are drawn with replacement: long ones need more than a set has.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ragmeter.metrics.builtin import PreparedTrace, score_builtin

from training.devdata import TASKS, Floats, rows, to_trace

__all__ = ["SIGNALS", "SWAPS", "Pools", "Streams", "Swap", "draw", "pools"]

FILES = ("grounding_ragtruth", "grounding_clapnq_human", "grounding_begin")
SIGNALS = ("label", "score")


class Swap(NamedTuple):
    set: str
    before: str
    after: str


SWAPS = (
    Swap("RAGTruth QA", "gpt-4-0613", "gpt-3.5-turbo-0613"),
    Swap("RAGTruth QA", "gpt-3.5-turbo-0613", "llama-2-70b-chat"),
    Swap("RAGTruth QA", "llama-2-70b-chat", "llama-2-7b-chat"),
    Swap("RAGTruth Data2txt", "gpt-4-0613", "llama-2-70b-chat"),
    Swap("RAGTruth Data2txt", "llama-2-70b-chat", "llama-2-7b-chat"),
    Swap("RAGTruth Summary", "gpt-3.5-turbo-0613", "llama-2-70b-chat"),
    Swap("RAGTruth Summary", "llama-2-70b-chat", "llama-2-7b-chat"),
    Swap("ClapNQ", "GPT-3.5 (Turbo)", "Mistral"),
    Swap("BEGIN", "ctrl", "t5"),
    Swap("BEGIN", "t5", "gpt2"),
)
"""All towards more hallucination, from 6 points more to 51."""

Pools = Mapping[tuple[str, str, str], Floats]
"""(set, model, signal) -> badness of its answers: 1 = people say hallucinated, or 1 - score."""


class Streams(NamedTuple):
    """One row a stream. The first `baseline` samples are known good; from `swap[row]` on, the
    other model answers (never, where it is the length)."""

    x: Floats
    baseline: int
    swap: list[int]


def pools(folder: Path) -> Pools:
    """What every model's answers are worth: human labels, and `grounding` of the built-in scorer.

    Blank answers are left out; abstentions have a label and no score, as in the agent.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    for file in FILES:
        for row in rows(folder, file):
            bad = row["labels"]["normalized"].get("hallucinated")
            if bad is None or not row["answer"].strip():
                continue
            name = "BEGIN" if "begin" in file else "ClapNQ"
            if "ragtruth" in file:
                name = f"RAGTruth {TASKS[row['task']]}"
            model = row["model"]
            found.setdefault((name, model, "label"), []).append(float(bad))
            for score in score_builtin(PreparedTrace(to_trace(row))):
                if score.metric == "grounding" and score.value is not None:
                    found.setdefault((name, model, "score"), []).append(1.0 - score.value)
    return {key: np.asarray(values) for key, values in found.items()}


def draw(
    before: Floats,
    after: Floats,
    shape: tuple[int, int, int],
    lead: tuple[int, int],
    seed: str,
    repeats: float = 1.0,
) -> Streams:
    """`shape`: streams, baseline, samples after it. The swap comes `lead[0]` to `lead[1]` samples
    after the baseline, at random, so that it falls anywhere in a bucket or window.
    An answer comes `repeats` times in a row on average: retries, or a question of the hour."""
    count, baseline, length = shape
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    x = _row(rng, before, count * (baseline + length), repeats).reshape(count, -1)
    swap = (baseline + rng.integers(lead[0], lead[1] + 1, count)).tolist()
    for row, at in zip(x, swap, strict=True):
        row[at:] = _row(rng, after, len(row[at:]), repeats)
    return Streams(x, baseline, swap)


def _row(rng: np.random.Generator, pool: Floats, size: int, repeats: float) -> Floats:
    values = rng.choice(pool, size)
    if repeats <= 1.0:
        return values
    starts = rng.random(size) < 1.0 / repeats
    return np.asarray(values[np.cumsum(starts)])
