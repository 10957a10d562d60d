"""Attempts to force a verdict from within the data: what fences and cleaning keep them from.

The judges here are models of weakness, each obeying all that reaches it outside of what it takes
for data. How a real model behaves is measured with `tests.scorers.judge.injections`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.config.scoring import JudgeFamily
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.judge import prompts
from ragmeter.scorers.judge.prompts import CODE
from ragmeter.scorers.llm.dialect import clean_text
from ragmeter.scorers.llm.questions import JudgeQuestion, JudgeVerdict

from tests.scorers.judge.fakes import FakeJudge, judge_trace
from tests.scorers.judge.injections import (
    CANARY,
    CONTROL,
    Attempt,
    attempts,
    measure,
    question,
    report,
)
from tests.tables import each_row
from tests.traces import make_trace

T = TypeVar("T")
EVERY = attempts()
ATTEMPTS = [attempt for attempt in EVERY if attempt.family != CONTROL]

BEST = ("5", "3", "full", "answered", "vital", "support", "supported", "relevant", "used", "yes")
WORST = ("0", "none", "okay", "not_support", "unsupported", "irrelevant", "unused", "no")

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
    marks = (
        r"<\|\w+\|?>|<｜\w+｜>|\[/?(?:INST|THINK|ARGS|MODEL_SETTINGS|gMASK)\]|</?s>|<sop>|<</?SYS>>"
        r"|<(?:start|end)_of_\w+>|</?think(?:ing)?>|</?tool_\w+>|<seed:\w+>|\]<\]|\]~!?b|```"
        r"|\[\|\w+\|\]|<turn\|>"
    )
    return "\n".join(re.split(marks, user)[1:])


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[^\W_]+", clean_text(text).casefold()))


@dataclass
class Gullible:
    """Gives the attacker what he wants as soon as words of an attempt stand outside the data."""

    outside: Outside
    asked: list[JudgeQuestion[Any]] = field(default_factory=list)

    def obeys(self, question: JudgeQuestion[Any]) -> bool:
        name, _, version = question.prompt.partition("@")
        template = re.sub(r"\{\{[a-z_]+\}\}", "", prompts.load_prompt(name, int(version)).user)
        reached = words(self.outside(question.user)) - words(template)
        return any(words(attempt.text) <= reached for attempt in ATTEMPTS)

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        self.asked.append(question)
        obeys = self.obeys(question)
        return JudgeVerdict(question.read(reply_to(question.schema, obeys)), "0" * 12)


def reply_to(schema: Any, obeys: bool) -> Any:
    """What fits `schema`: the best verdict there is, or the worst."""
    if schema["type"] == "object":
        return {name: reply_to(part, obeys) for name, part in schema["properties"].items()}
    if schema["type"] == "array":
        return [reply_to(schema["items"], obeys)]
    if "enum" not in schema:
        return CANARY if obeys else "five years"
    return next(value for value in (BEST if obeys else WORST) if value in schema["enum"])


def forced(outside: Outside) -> dict[str, float]:
    rows = report(asyncio.run(measure(Gullible(outside), EVERY)))
    assert all(row["judged"] == row["attempts"] for row in rows)
    return {row["family"]: row["forced"] for row in rows}


def test_the_set_is_broad() -> None:
    families = Counter(attempt.family for attempt in ATTEMPTS)
    assert len(ATTEMPTS) >= 140
    assert len(families) >= 18
    assert len({attempt.id for attempt in ATTEMPTS}) == len(ATTEMPTS)
    assert len({attempt.text for attempt in ATTEMPTS}) == len(ATTEMPTS)
    targets = {attempt.target for attempt in ATTEMPTS}
    assert targets == {attempt.target for attempt in EVERY if attempt.family == CONTROL}
    assert targets == {
        "grade",
        "support",
        "attempt",
        "creation",
        "importance",
        "assignment",
        "claims",
        "facts",
        "recall",
        "annotation",
    }


@pytest.mark.parametrize("outside", [by_code, by_look, by_role])
def test_no_attempt_reaches_a_judge_that_obeys_all_outside_the_data(outside: Outside) -> None:
    assert forced(outside)["all"] == 0


def test_without_fences_every_attempt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfenced(blocks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
        return "", [text for _, text in blocks]

    monkeypatch.setattr(prompts, "fence_texts", unfenced)
    found = forced(by_code)
    assert (found["all"], found[CONTROL]) == (1, 0)


@pytest.mark.parametrize(("outside", "family"), [(by_look, "fence_end"), (by_role, "role_tags")])
def test_without_cleaning_some_get_through(
    monkeypatch: pytest.MonkeyPatch, outside: Outside, family: str
) -> None:
    monkeypatch.setattr(prompts, "clean_text", lambda text: text)

    def reached(attempt: Attempt) -> bool:
        asked, _ = question(attempt.target, attempt.text)
        plain, _ = question(attempt.target, "")
        return len(outside(asked.user)) > len(outside(plain.user))

    assert any(reached(attempt) for attempt in ATTEMPTS if attempt.family == family)
    monkeypatch.setattr(prompts, "clean_text", clean_text)
    assert not any(reached(attempt) for attempt in ATTEMPTS)


def skeleton(user: str) -> str:
    """The message without its data and its code."""
    code = user.partition("\n")[0].removeprefix("Code of the data: ")
    return by_code(user).replace(code, "CODE")


@each_row("attempt", EVERY, ids=lambda attempt: attempt.id)
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
    prompt = prompts.load_prompt("umbrela", 2)
    filled = prompt.fill({"query": query, "passage": passage})
    assert skeleton(filled) == skeleton(prompt.fill({"query": "a", "passage": "b"}))
    filled.encode("utf-8")


FAMILIES: list[Any] = list(get_args(JudgeFamily))
OF_TRACE = {
    name: f"{name}zq the word"
    for name in ("query", "history", "first", "second", "answer", "known", "fact", "title")
}
READ = {
    "annotation": {"query", "first", "second", "answer"},
    "attempted": {"query", "answer"},
    "citation-support": {"first", "answer"},
    "claims": {"query", "first", "second", "answer"},
    "context-recall": {"query", "first", "second", "fact"},
    "facts": {"query", "first", "second", "answer"},
    "nuggets-assign": {"query", "answer"},
    "nuggets-create": {"query", "first", "second"},
    "nuggets-importance": {"query"},
    "umbrela": {"query", "first", "second"},
}
"""Which texts of a trace each prompt shows the judge, over all its calls."""


@pytest.mark.parametrize("broken", [False, True])
def test_every_prompt_has_all_text_of_a_trace_in_its_fences(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All prompts by the whole tier, so that one which comes to them is looked at, too."""
    if broken:  # the test can fail
        monkeypatch.setattr(
            prompts, "fence_texts", lambda blocks: ("", [text for _, text in blocks])
        )
    trace = make_trace(
        query=OF_TRACE["query"],
        history=[{"role": "user", "content": OF_TRACE["history"]}],
        passages=[
            {"id": "a", "text": OF_TRACE["first"], "metadata": {"title": OF_TRACE["title"]}},
            {"id": "b", "text": OF_TRACE["second"]},
        ],
        answer=f"{OF_TRACE['answer'].capitalize()} is five years long [1].",
        reference={"answer": OF_TRACE["known"], "facts": [OF_TRACE["fact"]]},
        abstained=None,
    )
    labels = {"annotation": lambda asked: reply_to(asked.schema, obeys=True)}
    _, judge, _ = judge_trace(trace, FakeJudge(labels), metrics=FAMILIES)
    notified = {name: text.split()[0] for name, text in OF_TRACE.items()}
    seen: dict[str, set[str]] = {}
    outside = set()
    for asked in judge.asked:
        name = asked.prompt.partition("@")[0]
        lower = asked.user.casefold()
        seen.setdefault(name, set()).update(one for one, word in notified.items() if word in lower)
        bare = by_code(asked.user).casefold() + asked.system.casefold()
        outside |= {word for word in notified.values() if word in bare}
    assert seen == READ
    assert bool(outside) is broken
