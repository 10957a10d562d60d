"""Reasons of missing values have one vocabulary, and the product names them by it alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ragmeter.core.score import NoScore, Score, ScoreState
from ragmeter.reasons import Reason

from tests.sources import nodes
from tests.tables import each_row
from tests.test_house import modules

# Words that stand for other things as well: outcomes of requests and attempts, reasons of dead
# letters and of parts, metrics, tags, names of languages. As reasons they are seen by their place.
AMBIGUOUS = {
    Reason.ANSWERABLE,
    Reason.BUDGET,
    Reason.CANNOT_TELL,
    Reason.EMPTY_ANSWER,
    Reason.ERROR,
    Reason.INTERNAL_ERROR,
    Reason.JUDGED,
    Reason.LANGUAGE,
    Reason.NOT_REPORTED,
    Reason.OTHER,
    Reason.TIMEOUT,
    Reason.TOO_LONG,
}

UNAMBIGUOUS = set(Reason) - AMBIGUOUS

# Where a reason stands in the calls that give one.
PLACES = {"make_unscored": 2, "make_not_applicable": 2, "NoScore": 0, "JudgeFailed": 0}


def literals(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def given_by_place(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func).rpartition(".")[2]
    if name in PLACES:
        for argument in call.args[PLACES[name] : PLACES[name] + 1]:
            yield from literals(argument)
    if name in (*PLACES, "Score"):
        for keyword in call.keywords:
            if keyword.arg == "reason":
                yield from literals(keyword.value)


def written_out(path: Path) -> list[str]:
    """The reasons that a module writes as plain strings."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Constant) and node.value in UNAMBIGUOUS:
            found.append(f"line {node.lineno}: {node.value}")
        if isinstance(node, ast.Call):
            found += [f"line {node.lineno}: {text}" for text in given_by_place(node)]
    return found


def test_the_product_writes_no_reason_as_a_plain_string() -> None:
    found = {
        module: lines
        for module, path in modules().items()
        if module != "ragmeter.reasons" and (lines := written_out(path))
    }
    assert found == {}


def test_every_reason_is_given_somewhere() -> None:
    named = {
        node.attr
        for path in modules().values()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Reason"
    }
    by_status = {Reason.ERROR.name}  # `Trace.status` is the reason of a request that failed
    assert {reason.name for reason in Reason} - named - by_status == set()


@each_row("reason", Reason)
def test_a_reason_is_written_as_its_text(reason: Reason) -> None:
    assert reason.name == reason.value.upper()
    score = Score("grounding", "builtin", ScoreState.UNSCORED, reason=NoScore(reason).reason)
    assert score.to_dict()["reason"] == reason.value
    assert f"{score.reason}" == reason.value
