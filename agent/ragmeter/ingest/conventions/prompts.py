"""The question within a prompt that holds instructions and passages as well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import islice

from ragmeter.ingest.conventions.values import (
    key_list,
)

_MIN_PASSAGE = 40  # characters of a passage that show that a text holds it
_MAX_PASSAGE_HEAD = 200  # characters of a passage that are looked for
_MAX_COMPARED = 20  # passages, and questions of a prompt
_NUMBERED = re.compile(r"^\[[1-9]\]:? ", re.MULTILINE)


# The templates with which servers of open models, and older ones, join a conversation to one text.
_TURNS = re.compile(
    r"(?:\[INST\](?P<llama>.*?)(?:\[/INST\]|\Z)"
    r"|(?:<\|im_start\|>user|<\|start_header_id\|>user<\|end_header_id\|>|<start_of_turn>user"
    r"|<\|user\|>|<｜User｜>|<\|USER_TOKEN\|>|<\|start\|>user<\|message\|>)(?P<marked>.*?)"
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<\|end\|>|<\|assistant\|>|<｜Assistant｜>"
    r"|<\|END_OF_TURN_TOKEN\|>|\Z)"
    r"|(?:\A|\n)\s*Human:(?P<human>.*?)\n\s*Assistant:"
    r"|(?:\A|\n)### Instruction:(?P<alpaca>.*?)\n### Response:)",
    re.DOTALL,
)
_TURN_SIGNS = ("[INST]", "<|", "<start_of_turn>", "<｜User｜>", "Human:", "### Instruction:")
_ASKED_LAST = "### Task:"  # Open WebUI's template, which ends with the question
_SYSTEM = re.compile(r"<<SYS>>.*?<</SYS>>", re.DOTALL)


_FRAME = re.compile(r"-{10,}")
# an instruction that ends with what was asked: `Answer the customer's question: How long?`
_INSTRUCTED = re.compile(
    r"\s*(?:please |kindly )?(?:answer|respond to|reply to|address|resolve)\b[^.?!\n:]{0,80}"
    r"\b(?:question|query|message|request|inquiry|enquiry)\b[^.?!\n:]{0,80}:\s*(?P<asked>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED_QUESTION = re.compile(
    r"(?:'(?P<a>.+?[?.!])'(?!\w)|'(?P<b>[^\n]+?)'(?!\w)|\"(?P<c>.+?)\"(?!\w)|“(?P<d>.+?)”)",
    re.DOTALL,
)


def _instructed(text: str) -> str:
    """Return what an instruction asks to answer, any other text as it is."""
    match = _INSTRUCTED.match(text)
    if match is None:
        return text
    quoted = _QUOTED_QUESTION.match(match["asked"])
    if quoted is not None:
        return next(part for part in quoted.groups() if part is not None).strip()
    return match["asked"].partition("\n\n")[0].strip()


def _last_turn(text: str) -> str:
    """Return the last message of the user in a prompt of a model's template, else the text."""
    if not any(sign in text for sign in _TURN_SIGNS):
        return text
    turns = [turn[turn.lastgroup or 0] for turn in _TURNS.finditer(text)]
    return _SYSTEM.sub("", turns[-1]).strip() or text if turns else text


@cache
def _labels() -> re.Pattern[str]:
    """Return the pattern of the labels and tags that stand before the parts of a prompt."""
    names = "|".join(
        f"(?P<{group}>{'|'.join(sorted(map(re.escape, labels), key=len, reverse=True))})"
        for group in ("question", "context", "following_context", "other")
        for labels in [key_list(f"{group}_labels")]
    )
    start = r"[ \t]*(?:\[\[ )?(?:[#*>-]+[ \t]*)?(?:the |your )?"
    words = rf"{start}(?:{names})\**(?: ## \]\]|[ \xa0]?[:：]\**|\.?[ \t]*$)"
    tags = "|".join(map(re.escape, key_list("question_labels") + key_list("context_labels")))
    return re.compile(rf"^{words}|</?(?P<tag>{tags})>", re.MULTILINE | re.IGNORECASE)


def cut_prompt(text: str, passages: Sequence[str], is_prompt: bool) -> str | None:
    """Return the question in a prompt that holds passages or a block of context.

    Args:
        text: What is taken for the question.
        passages: The texts that were retrieved.
        is_prompt: Whether the text is what a model or an agent was sent. Else it is taken for a
            prompt only if it holds two passages, or all: a user may ask about a text of the
            knowledge base.

    Returns:
        The text itself, or its last message of the user where a model's template marks it, if it
        is no such prompt, None if the prompt does not tell its question.
    """
    question = _cut(_last_turn(text), passages, is_prompt)
    return _instructed(question) if question is not None and is_prompt else question


def _cut(text: str, passages: Sequence[str], is_prompt: bool) -> str | None:
    held, given = _count_held(text, passages)
    holds_passages = held >= (1 if is_prompt else min(2, given)) and held > 0
    if not holds_passages and ":" not in text and "\n" not in text and ">" not in text:
        return text
    marks = list(_labels().finditer(text))
    kinds = [_label_kind(mark) for mark in marks]
    if "following_context" in kinds and is_prompt:
        return text[: marks[kinds.index("following_context")].start()].strip() or None
    has_context = "context" in kinds or len(_NUMBERED.findall(text)) > 1
    is_template = is_prompt and "question" in kinds
    if not holds_passages and not has_context and not is_template:
        return text
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    context = marks[kinds.index("context")].start() if "context" in kinds else 0
    known = ["".join(passage.split()) for passage in passages[:_MAX_COMPARED]]
    before: list[str] = []
    behind: list[str] = []
    parts = [
        (mark, part)
        for mark, kind, end in zip(marks, kinds, ends, strict=True)
        if kind == "question" and (part := text[mark.end() : end].strip())
    ]
    if len(parts) > _MAX_COMPARED:
        return None
    for mark, part in parts:
        line = "".join((mark[0] + part.partition("\n")[0]).split())
        if not any(line in passage for passage in known):  # a passage may hold a label too
            (before if mark.start() < context else behind).append(part)
    if before and behind and before[-1] != behind[-1]:
        return None  # one of them may be in a passage
    question = next(reversed(before + behind), None)
    if question is not None:
        first, _, rest = question.partition("\n\n")
        question = first.rstrip() if rest and first.rstrip().endswith("?") else question
        return None if _count_held(question, passages)[0] else question
    if not is_prompt:
        return None if holds_passages else text
    return _beside_context(text, marks)


def context_sections(text: str) -> list[str]:
    """Return what stands below each label of context in a prompt, up to the next part of it."""
    marks = list(_labels().finditer(text))
    kinds = [_label_kind(mark) for mark in marks]
    sections = []
    for n, kind in enumerate(kinds):
        if kind == "context" and (not n or kinds[n - 1] != "context"):
            ends = (
                mark.start()
                for mark, other in zip(marks[n + 1 :], kinds[n + 1 :], strict=True)
                if other != "context"
            )
            section = text[marks[n].end() : next(ends, len(text))].strip()
            first, _, rest = section.partition("\n")
            if _FRAME.fullmatch(first):  # the templates of LlamaIndex and Spring end it so, too
                section = rest.partition(f"\n{first}")[0].strip()
            sections.append(section)
    return sections


def _beside_context(text: str, marks: Sequence[re.Match[str]]) -> str | None:
    """Return a question without a label, before the context or behind the tag that ends it."""
    before = text[: marks[0].start()].strip() if marks else ""
    ends = [mark for mark in marks if mark["tag"] and mark[0].startswith("</")]
    behind = text[ends[-1].end() :].strip() if ends and ends[-1] is marks[-1] else ""
    asked = text.startswith(_ASKED_LAST)
    for part in (behind, before):
        if part and "\n" not in part and (part.endswith(("?", "？")) or (asked and part is behind)):
            return part
    return None


def _label_kind(mark: re.Match[str]) -> str:
    tag = mark["tag"]
    if tag is None:
        return mark.lastgroup or ""
    if mark[0].startswith("</"):
        return "other"
    return "question" if tag.lower() in key_list("question_labels") else "context"


def _count_held(text: str, passages: Sequence[str]) -> tuple[int, int]:
    """Return how many passages a text holds, and of how many that are long enough to tell."""
    if len(text) < _MIN_PASSAGE:  # most questions
        return 0, 0
    heads = (" ".join(passage[: 2 * _MAX_PASSAGE_HEAD].split()) for passage in passages)
    heads = (head[:_MAX_PASSAGE_HEAD] for head in islice(heads, _MAX_COMPARED))
    long = [head for head in heads if len(head) >= _MIN_PASSAGE]
    normal = " ".join(text.split())
    return sum(head in normal for head in long), len(long)
