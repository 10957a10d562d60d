"""The published HHEM-2.1-Open: where its two files are, what they hash to, what it scores.

The weights are vectara/hallucination_evaluation_model at the revision below (model card:
Apache-2.0), the tokenizer is the one of google/flan-t5-base, which that model was trained from and
whose tokenizer its own code loads by name. Pairs and scores are those of the model card.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.models.checkpoint import WEIGHTS
from agent.models.manifest import TOKENIZER

__all__ = ["FILES", "PAIRS", "TOKENIZER_FILE", "WEIGHTS_FILE", "Pair", "PublishedFile"]


@dataclass(frozen=True)
class PublishedFile:
    """A file of a pinned revision of a repository of the model hub."""

    name: str
    repository: str
    revision: str
    size: int  # bytes
    sha256: str

    @property
    def path(self) -> str:
        """Of the file's URL, below the host."""
        return f"{self.repository}/resolve/{self.revision}/{self.name}"


@dataclass(frozen=True)
class Pair:
    premise: str
    hypothesis: str
    score: float


WEIGHTS_FILE = PublishedFile(
    name=WEIGHTS,
    repository="vectara/hallucination_evaluation_model",
    revision="8e4a2e6e96c708cc76c2344f7e4757df2515292c",
    size=438_535_352,
    sha256="634de18a38cf1e991c1acd0f7a9e0d30f7ea187fba42bb4798f862d3edd31e72",
)
TOKENIZER_FILE = PublishedFile(
    name=TOKENIZER,
    repository="google/flan-t5-base",
    revision="7bcac572ce56db69c1ea7c8af255c5d7c9672fc2",
    size=2_424_064,
    sha256="fe2ebbbbde2985be723e0ce18217853e4020c5e9d35bd07be2c27ab9d3ead57a",
)
FILES = (TOKENIZER_FILE, WEIGHTS_FILE)

PAIRS = (
    Pair("The capital of France is Berlin.", "The capital of France is Paris.", 0.0111),
    Pair("I am in California", "I am in United States.", 0.6474),
    Pair("I am in United States", "I am in California.", 0.1290),
    Pair(
        "A person on a horse jumps over a broken down airplane.",
        "A person is outdoors, on a horse.",
        0.8969,
    ),
    Pair(
        "A boy is jumping on skateboard in the middle of a red bridge.",
        "The boy skates down the sidewalk on a red bridge",
        0.1846,
    ),
    Pair(
        "A man with blond-hair, and a brown shirt drinking out of a public water fountain.",
        "A blond man wearing a brown shirt is reading a book.",
        0.0050,
    ),
    Pair("Mark Wahlberg was a fan of Manny.", "Manny was a fan of Mark Wahlberg.", 0.0543),
)
