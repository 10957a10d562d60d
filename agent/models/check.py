"""Does a converted model score as published, and how far off is its quantised graph?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.models.hhem import Hhem
from agent.models.published import PAIRS, TOKENIZER_FILE, WEIGHTS_FILE, Pair

__all__ = ["TOLERANCE", "Checked", "check", "report"]

TOLERANCE = 1e-4  # the card gives four digits: half a unit is rounding, the rest is arithmetic
REPEATS = 6  # of all seven premises, one after the other: a premise of some 500 tokens


@dataclass(frozen=True)
class Checked:
    """Scores of one pair; `expected` where the model card has it, `int8` where there is a graph."""

    pair: Pair
    expected: float | None
    fp32: float
    int8: float | None


@dataclass(frozen=True)
class Result:
    published: bool  # these are the published weights and their tokenizer
    rows: Sequence[Checked]  # the seven pairs, then the same against a long premise

    @property
    def off(self) -> float:
        """The largest distance of a float32 score from the published one."""
        return max(abs(r.fp32 - r.expected) for r in self.rows if r.expected is not None)

    def int8_errors(self) -> list[float]:
        return [abs(row.int8 - row.fp32) for row in self.rows if row.int8 is not None]

    @property
    def passed(self) -> bool:
        return self.published and self.off <= TOLERANCE


def check(folder: Path) -> Result:
    """Score the seven pairs of the model card, and their hypotheses against a long premise.

    Raises `ModelError` where the model cannot be loaded or run.
    """
    exact = Hhem(folder)
    fast = Hhem(folder, int8=True) if exact.manifest.int8 else None
    long = " ".join(pair.premise for pair in PAIRS)
    long = " ".join([long] * REPEATS)
    rows = []
    for premise, expected in ((None, True), (long, False)):
        for pair in PAIRS:
            ids = (premise or pair.premise, pair.hypothesis)
            rows.append(
                Checked(
                    pair,
                    pair.score if expected else None,
                    exact.score(*ids),
                    fast.score(*ids) if fast else None,
                )
            )
    manifest = exact.manifest
    published = (manifest.weights_sha256, manifest.tokenizer_sha256) == (
        WEIGHTS_FILE.sha256,
        TOKENIZER_FILE.sha256,
    )
    return Result(published, rows)


def report(result: Result) -> Iterator[str]:
    """The result in lines for people."""
    fast = bool(result.int8_errors())
    yield "expected  fp32    " + ("int8    " if fast else "") + "hypothesis"
    for row in result.rows:
        expected = "-" if row.expected is None else f"{row.expected:.4f}"
        int8 = "" if row.int8 is None else f"{row.int8:.4f}  "
        text = row.pair.hypothesis if row.expected is not None else f"long: {row.pair.hypothesis}"
        yield f"{expected:8}  {row.fp32:.4f}  {int8}{text}"
    if result.published:
        verdict = "as published" if result.passed else f"more than {TOLERANCE} off: do not use it"
        yield f"fp32: at most {result.off:.5f} from the published scores, {verdict}"
    else:
        yield "These are not the published weights and tokenizer: the expected scores do not apply."
    if errors := result.int8_errors():
        mean = sum(errors) / len(errors)
        yield f"int8: at most {max(errors):.4f} from fp32, {mean:.4f} on average"
