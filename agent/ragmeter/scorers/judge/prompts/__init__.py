"""Prompts of the judge in versioned files, filled with fenced texts of others.

A file `NAME.VERSION.yaml` has `system` and `user`, the two messages in our own wording of a
published method, `source`, the paper of the method, and `notes`. A change of wording is a new
version: the hash of the file is part of a score's fingerprint, and another fingerprint starts
another series.

Text that others wrote is cleaned (`dialect.clean_text`) and fenced. A fence is a pair of lines
with a code, a hash of all the texts: equal data gives an equal prompt, which a cache needs, and no
text contains the code that would close its fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, TypeVar

from ragmeter.core.files import parse_yaml
from ragmeter.scorers.judge.schemas import labels_schema
from ragmeter.scorers.llm.dialect import clean_text
from ragmeter.scorers.llm.questions import JudgeQuestion

# A line of a fence.
CODE = re.compile(r"\[\[(BEGIN|END) ([a-z]+(?: \d+)?) ([0-9a-f]{16})\]\]")


def fence_texts(blocks: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """Return the code, and each (label, text) as a fence around the cleaned text.

    Labels are ours: small letters, and perhaps a number.
    """
    cleaned = [(label, clean_text(text)) for label, text in blocks]
    whole = "\0".join(text for block in cleaned for text in block)
    code = ""
    folded = whole.casefold()
    number = 0
    while not code or code in folded:
        code = hashlib.sha256(f"{number}\0{whole}".encode()).hexdigest()[:16]
        number += 1
    return code, [
        f"[[BEGIN {label} {code}]]\n{text}\n[[END {label} {code}]]" for label, text in cleaned
    ]


T = TypeVar("T")

# By slot of a template: one text, or several, which are numbered from 1.
PromptData = Mapping[str, str | Sequence[str]]

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")
_KEYS = {"source", "notes", "system", "user"}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt of one version.

    `hash` is 12 hex digits of the file's SHA-256. `user` has `{{slots}}`; `{{code}}` stands for the
    code of the fences.
    """

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
        """Return the user message; texts that are filled in are not searched for slots.

        Args:
            data: Texts of others, which are fenced.
            facts: Numbers of ours, which are not.

        Raises:
            ValueError: The template has other slots.
        """
        labelled = {
            slot: [(slot, texts)]
            if isinstance(texts, str)
            else [(f"{slot.removesuffix('s')} {n}", text) for n, text in enumerate(texts, 1)]
            for slot, texts in data.items()
        }
        code, fences = fence_texts([block for blocks in labelled.values() for block in blocks])
        rest = iter(fences)
        filled = {"code": code} | {name: str(value) for name, value in (facts or {}).items()}
        for slot, blocks in labelled.items():
            filled[slot] = "\n".join(islice(rest, len(blocks)))
        if set(_SLOT.findall(self.user)) != set(filled):
            raise ValueError(f"{self.title}: the slots are not {', '.join(sorted(filled))}")
        return _SLOT.sub(lambda match: filled[match.group(1)], self.user)

    def ask(
        self,
        data: PromptData,
        *,
        schema: Mapping[str, Any],
        read: Callable[[Any], T],
        facts: Mapping[str, int] | None = None,
        max_output_tokens: int,
    ) -> JudgeQuestion[T]:
        """Return the question about this data; `fill` explains `data` and `facts`."""
        return JudgeQuestion(
            prompt=self.title,
            prompt_hash=self.hash,
            system=self.system,
            user=self.fill(data, facts),
            schema=schema,
            read=read,
            max_output_tokens=max_output_tokens,
        )

    def ask_label(self, name: str, labels: Mapping[str, T], data: PromptData) -> JudgeQuestion[T]:
        """Return the question for one label; `labels` maps what the judge writes to values."""
        return self.ask(
            data,
            schema=labels_schema([name], list(labels)),
            read=lambda reply: labels[reply[name]],
            max_output_tokens=200,
        )

    def ask_labels(
        self, count: int, labels: Mapping[str, T], data: PromptData, tokens: int = 10
    ) -> JudgeQuestion[list[T]]:
        """Return the question for `count` labels, each of so many tokens."""
        numbers = [str(n) for n in range(1, count + 1)]
        return self.ask(
            data,
            facts={"count": count},
            schema=labels_schema(numbers, list(labels)),
            read=lambda reply: [labels[reply[number]] for number in numbers],
            max_output_tokens=200 + tokens * count,
        )


def list_prompts() -> list[tuple[str, int]]:
    """Return name and version of every prompt."""
    files = [item.name for item in resources.files(__name__).iterdir()]
    matches = [re.fullmatch(r"([a-z-]+)\.(\d+)\.yaml", name) for name in files]
    return sorted((match[1], int(match[2])) for match in matches if match)


@cache
def load_prompt(name: str, version: int) -> PromptTemplate:
    """Read a prompt.

    Raises:
        FileNotFoundError: There is none of this name and version.
        ValueError: The file is broken.
    """
    content = (resources.files(__name__) / f"{name}.{version}.yaml").read_bytes()
    fields = parse_yaml(content)
    if not isinstance(fields, dict) or set(fields) != _KEYS:
        raise ValueError(f"{name}.{version}: exactly {', '.join(sorted(_KEYS))} are needed")
    return PromptTemplate(
        name=name,
        version=version,
        hash=hashlib.sha256(content).hexdigest()[:12],
        source=fields["source"],
        system=fields["system"].strip(),
        user=fields["user"].strip(),
    )
