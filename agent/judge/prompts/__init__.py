"""What judges are asked, in versioned files: wording of our own of published methods.

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

from agent.judge.fence import fence
from agent.judge.question import Question

__all__ = ["Data", "Prompt", "load", "names"]

T = TypeVar("T")

Data = Mapping[str, str | Sequence[str]]
"""By slot of a template: one text, or several, which are numbered from 1."""

_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")
_KEYS = {"source", "notes", "system", "user"}


@dataclass(frozen=True, slots=True)
class Prompt:
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

    def fill(self, data: Data, facts: Mapping[str, int] | None = None) -> str:
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
        code, fenced = fence(blocks)
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
        data: Data,
        *,
        schema: Mapping[str, Any],
        read: Callable[[Any], T],
        facts: Mapping[str, int] | None = None,
        max_output_tokens: int,
    ) -> Question[T]:
        """The question about this data; see `fill`."""
        return Question(
            prompt=self.title,
            prompt_hash=self.hash,
            system=self.system,
            user=self.fill(data, facts),
            schema=schema,
            read=read,
            max_output_tokens=max_output_tokens,
        )


def names() -> list[tuple[str, int]]:
    """Name and version of every prompt there is."""
    files = [item.name for item in resources.files(__name__).iterdir()]
    found = [re.fullmatch(r"([a-z-]+)\.(\d+)\.yaml", name) for name in files]
    return sorted((match[1], int(match[2])) for match in found if match)


@cache
def load(name: str, version: int) -> Prompt:
    """The prompt of this name and version. FileNotFoundError, ValueError for a broken file."""
    content = (resources.files(__name__) / f"{name}.{version}.yaml").read_bytes()
    parts = yaml.safe_load(content)
    if not isinstance(parts, dict) or set(parts) != _KEYS:
        raise ValueError(f"{name}.{version}: exactly {', '.join(sorted(_KEYS))} are needed")
    return Prompt(
        name=name,
        version=version,
        hash=hashlib.sha256(content).hexdigest()[:12],
        source=parts["source"],
        system=parts["system"].strip(),
        user=parts["user"].strip(),
    )
