"""Prompts of the judge in versioned files, filled with fenced texts of others.

Text that others wrote, made fit to stand in a prompt: cleaned, and fenced as data.

Every block of a prompt stands between two lines that carry one code. The code is a hash of all
the blocks, so that equal data gives an equal prompt (a cache needs that), and no block contains
it: what is inside cannot close its fence. Cleaning takes away what no reader sees and what a
server would read as more than text: control and format characters, and the marks by which chat
templates tell roles apart, which local servers take for real wherever they stand.

What judges are asked, in versioned files: wording of our own of published methods.

A file `NAME.VERSION.yaml` has `system` and `user`, the two messages, `source`, the paper of the
method, and `notes`. A change of wording is a new version: the hash of the file is part of a
score's fingerprint, and another fingerprint starts another series.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import yaml

from ragmeter.scorers.llm.questions import JudgeQuestion

CODE = re.compile(r"\[\[(BEGIN|END) ([a-z]+(?: \d+)?) ([0-9a-f]{16})\]\]")
"""A line of a fence."""

# Control and format characters, surrogates, private use and tag characters: not seen by people,
# yet read by models. Kept: tab, line break, and the joiners U+200C and U+200D, which change words.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\ue000-\uf8ff"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_ASCII_UNSEEN = bytes(n for n in range(128) if _UNSEEN.match(chr(n)))
# Tokens with a role in the chat templates of Llama, Mistral, Qwen, Gemma, Phi, DeepSeek and their
# kin, and our own fence. A space after the first sign leaves them readable and mere text.
# Each alternative begins with a plain sign: the engine then looks for these signs alone.
_MARKS = re.compile(
    r"<(?=[|｜]|(?i:/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_of_image)>|</?SYS>>))"
    r"|\|(?=>)"
    r"|｜(?=>)"
    r"|\[(?=(?i:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|IMG)\]"
    r"|\[\s*(?:BEGIN|END)\b))"
)


def clean_text(text: str) -> str:
    """The text as people see it, and nothing in it that a server takes for more than text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():  # on bytes in C, many times quicker: cleaning is most of a prompt's work
        text = text.encode().translate(None, _ASCII_UNSEEN).decode()
    else:
        for line_break in "\x85\u2028\u2029":
            text = text.replace(line_break, "\n")
        text = _UNSEEN.sub("", text)
    return _MARKS.sub(lambda found: f"{found.group()} ", text)


def fence_texts(blocks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """The code, and each (label, text) as lines of a fence with the cleaned text in between.

    Labels are ours: small letters, and perhaps a number. A function of its input.
    """
    cleaned = [(label, clean_text(text)) for label, text in blocks]
    whole = "\0".join(part for block in cleaned for part in block)
    code, folded, number = "", whole.casefold(), 0
    while not code or code in folded:
        code = hashlib.sha256(f"{number}\0{whole}".encode()).hexdigest()[:16]
        number += 1
    return code, [
        f"[[BEGIN {label} {code}]]\n{text}\n[[END {label} {code}]]" for label, text in cleaned
    ]


T = TypeVar("T")

PromptData = Mapping[str, str | Sequence[str]]
"""By slot of a template: one text, or several, which are numbered from 1."""

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")
_KEYS = {"source", "notes", "system", "user"}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """`hash`: 12 hex digits of the file's SHA-256. `user` has `{{slots}}`; `{{code}}` is the code
    of the fences."""

    name: str
    version: int
    hash: str
    source: str
    system: str
    user: str

    @property
    def title(self) -> str:
        """Name and version, as scores and the cache know it."""
        return f"{self.name}@{self.version}"

    def fill(self, data: PromptData, facts: Mapping[str, int] | None = None) -> str:
        """The user message: `data` fenced as text of others, `facts` (numbers of ours) as they are.

        What is filled in is not searched for slots again. ValueError where slots and parts differ.
        """
        blocks: list[tuple[str, str]] = []
        counts: dict[str, int] = {}
        for slot, texts in data.items():
            if isinstance(texts, str):
                blocks.append((slot, texts))
            else:
                label = slot.removesuffix("s")
                blocks += [(f"{label} {n}", text) for n, text in enumerate(texts, 1)]
            counts[slot] = 1 if isinstance(texts, str) else len(texts)
        code, fenced = fence_texts(blocks)
        parts = {"code": code} | {name: str(value) for name, value in (facts or {}).items()}
        at = 0
        for slot, count in counts.items():
            parts[slot] = "\n".join(fenced[at : at + count])
            at += count
        if set(_SLOT.findall(self.user)) != set(parts):
            raise ValueError(f"{self.title}: the slots are not {', '.join(sorted(parts))}")
        return _SLOT.sub(lambda found: parts[found.group(1)], self.user)

    def ask(
        self,
        data: PromptData,
        *,
        schema: Mapping[str, Any],
        read: Callable[[Any], T],
        facts: Mapping[str, int] | None = None,
        max_output_tokens: int,
    ) -> JudgeQuestion[T]:
        """The question about this data; see `fill`."""
        return JudgeQuestion(
            prompt=self.title,
            prompt_hash=self.hash,
            system=self.system,
            user=self.fill(data, facts),
            schema=schema,
            read=read,
            max_output_tokens=max_output_tokens,
        )


def list_prompts() -> list[tuple[str, int]]:
    """Name and version of every prompt there is."""
    files = [item.name for item in resources.files(__name__).iterdir()]
    found = [re.fullmatch(r"([a-z-]+)\.(\d+)\.yaml", name) for name in files]
    return sorted((match[1], int(match[2])) for match in found if match)


@cache
def load_prompt(name: str, version: int) -> PromptTemplate:
    """The prompt of this name and version. FileNotFoundError, ValueError for a broken file."""
    content = (resources.files(__name__) / f"{name}.{version}.yaml").read_bytes()
    parts = yaml.safe_load(content)
    if not isinstance(parts, dict) or set(parts) != _KEYS:
        raise ValueError(f"{name}.{version}: exactly {', '.join(sorted(_KEYS))} are needed")
    return PromptTemplate(
        name=name,
        version=version,
        hash=hashlib.sha256(content).hexdigest()[:12],
        source=parts["source"],
        system=parts["system"].strip(),
        user=parts["user"].strip(),
    )
