"""Attempts to force a verdict from within the data: what fences and cleaning keep them from.

The judges here are models of weakness, each obeying all that reaches it outside of what it takes
for data. How a real model behaves is measured with `benchmarks.injections`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.judge import fence as fences
from agent.judge import prompts
from agent.judge.fence import CODE, clean
from agent.judge.question import Question, Verdict
from agent.tiers import Cost
from benchmarks.injections import CANARY, CONTROL, Attempt, attempts, measure, question, report

T = TypeVar("T")
EVERY = attempts()
ATTEMPTS = [attempt for attempt in EVERY if attempt.family != CONTROL]

BEST = {"3", "full", "answered", "vital", "support"}
WORST = {"0", "none", "okay", "not_support"}

Outside = Callable[[str], str]
"""What a judge takes for words of ours in a user message."""


def by_code(user: str) -> str:
    """Outside of fences with the announced code."""
    code = re.match(r"Code of the data: ([0-9a-f]{16})\n", user)
    if code is None:
        return user
    block = rf"\[\[BEGIN [a-z]+(?: \d+)? {code[1]}\]\]\n.*?\n\[\[END [a-z]+(?: \d+)? {code[1]}\]\]"
    return re.sub(block, "", user, flags=re.DOTALL)


def by_look(user: str) -> str:
    """Outside of whatever looks like a fence: a judge that does not compare codes."""
    return re.sub(r"\[\[BEGIN\b.*?\[\[END\b[^\]]*\]\]", "", user, flags=re.DOTALL)


def by_role(user: str) -> str:
    """After a mark of a role, as a server has it that reads them within messages."""
    marks = r"<\|\w+\|>|<｜\w+｜>|\[/?INST\]|</?s>|<(?:start|end)_of_turn>|<</?SYS>>"
    return "\n".join(re.split(marks, user)[1:])


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[^\W_]+", clean(text).casefold()))


@dataclass
class Gullible:
    """Gives the attacker what he wants as soon as words of an attempt stand outside the data."""

    outside: Outside
    asked: list[Question[Any]] = field(default_factory=list)

    def obeys(self, question: Question[Any]) -> bool:
        name, _, version = question.prompt.partition("@")
        template = re.sub(r"\{\{[a-z_]+\}\}", "", prompts.load(name, int(version)).user)
        reached = words(self.outside(question.user)) - words(template)
        return any(words(attempt.text) <= reached for attempt in ATTEMPTS)

    async def ask(self, question: Question[T], cost: Cost) -> Verdict[T]:
        self.asked.append(question)
        obeys = self.obeys(question)
        reply: dict[str, Any] = {}
        for name, schema in question.schema["properties"].items():
            if schema["type"] == "array":
                reply[name] = [CANARY] if obeys else ["five years"]
            else:
                wanted = BEST if obeys else WORST
                reply[name] = next(value for value in schema["enum"] if value in wanted)
        return Verdict(question.read(reply), "0" * 12)


def forced(outside: Outside) -> dict[str, float]:
    rows = report(asyncio.run(measure(Gullible(outside), EVERY)))
    assert all(row["judged"] == row["attempts"] for row in rows)
    return {row["family"]: row["forced"] for row in rows}


def test_the_set_is_broad() -> None:
    families = Counter(attempt.family for attempt in ATTEMPTS)
    assert len(ATTEMPTS) >= 80
    assert len(families) >= 14
    assert len({attempt.id for attempt in ATTEMPTS}) == len(ATTEMPTS)
    assert len({attempt.text for attempt in ATTEMPTS}) == len(ATTEMPTS)
    targets = {attempt.target for attempt in ATTEMPTS}
    assert targets == {attempt.target for attempt in EVERY if attempt.family == CONTROL}
    assert targets == {"grade", "support", "attempt", "creation", "importance", "assignment"}


@pytest.mark.parametrize("outside", [by_code, by_look, by_role])
def test_no_attempt_reaches_a_judge_that_obeys_all_outside_the_data(outside: Outside) -> None:
    assert forced(outside)["all"] == 0


def test_without_fences_every_attempt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(blocks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
        return "", [text for _, text in blocks]

    monkeypatch.setattr(prompts, "fence", unfenced)
    found = forced(by_code)
    assert (found["all"], found[CONTROL]) == (1, 0)


@pytest.mark.parametrize(("outside", "family"), [(by_look, "fence_end"), (by_role, "role_tags")])
def test_without_cleaning_some_get_through(
    monkeypatch: pytest.MonkeyPatch, outside: Outside, family: str
) -> None:
    monkeypatch.setattr(fences, "clean", lambda text: text)

    def reached(attempt: Attempt) -> bool:
        asked, _ = question(attempt.target, attempt.text)
        plain, _ = question(attempt.target, "")
        return len(outside(asked.user)) > len(outside(plain.user))

    assert any(reached(attempt) for attempt in ATTEMPTS if attempt.family == family)
    monkeypatch.setattr(fences, "clean", clean)
    assert not any(reached(attempt) for attempt in ATTEMPTS)


def skeleton(user: str) -> str:
    """The message without its data and its code."""
    code = user.partition("\n")[0].removeprefix("Code of the data: ")
    return by_code(user).replace(code, "CODE")


@pytest.mark.parametrize("attempt", EVERY, ids=lambda attempt: attempt.id)
def test_one_fence_around_each_text_and_nothing_of_it_outside(attempt: Attempt) -> None:
    asked, _ = question(attempt.target, attempt.text)
    plain, _ = question(attempt.target, "")
    assert skeleton(asked.user) == skeleton(plain.user)
    assert asked.system == plain.system
    marks = CODE.findall(asked.user)
    assert [(kind, label) for kind, label, _ in marks] == [
        (kind, label) for kind, label, _ in CODE.findall(plain.user)
    ]
    assert len({code for *_, code in marks}) == 1
    for opened, closed in zip(marks[::2], marks[1::2], strict=True):
        assert (opened[0], closed[0], opened[1]) == ("BEGIN", "END", closed[1])


@given(st.text(), st.text())
def test_no_text_at_all_gets_outside(query: str, passage: str) -> None:
    prompt = prompts.load("umbrela", 1)
    filled = prompt.fill({"query": query, "passage": passage})
    assert skeleton(filled) == skeleton(prompt.fill({"query": "a", "passage": "b"}))
    filled.encode("utf-8")
