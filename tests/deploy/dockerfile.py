"""Reading deploy/Dockerfile: its stages, and in each its instructions in order."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from tests.deploy.tools import ROOT

__all__ = ["DOCKERFILE", "Stage", "stages"]

DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@dataclass(slots=True)
class Stage:
    """`base` is an image, or the name of a stage before."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]

    def last(self, instruction: str) -> list[str]:
        """The words of the last one in the JSON form."""
        words: list[str] = json.loads(self.all(instruction)[-1])
        return words


def stages() -> dict[str, Stage]:
    """By name, in the order of the file."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).split("\n"):
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, name = re.split(r"\s+AS\s+", rest)
            found[name] = Stage(name, base)
        elif instruction and found:
            list(found.values())[-1].steps.append((instruction, rest.strip()))
    return found
