"""`hhem.json`: what a converted model was made from and how, written beside its graphs.

It is the last file a conversion puts in place, and its fingerprint is also inside each graph: files
of two conversions are never used together.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.models.checkpoint import WEIGHTS, split_prompt
from agent.models.errors import ModelError

__all__ = [
    "FP32",
    "GRAPH_VERSION",
    "INT8",
    "MANIFEST",
    "SOURCE_KEY",
    "TOKENIZER",
    "Manifest",
    "read_manifest",
    "sha256_of",
]

MANIFEST, FP32, INT8, TOKENIZER = "hhem.json", "hhem.onnx", "hhem-int8.onnx", "tokenizer.json"
SOURCE_KEY = "ragmeter.source"  # the manifest's `source` in the metadata of a graph
GRAPH_VERSION = 1  # raise it with every change of the graph or the reading that may move a score
MANIFEST_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal. Raises `ModelError`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True)
class Manifest:
    """The sources of a converted model. `shape` is for people; the graph has its own."""

    weights_sha256: str
    tokenizer_sha256: str
    prompt: str
    shape: dict[str, int | float]
    int8: bool
    graph: int = GRAPH_VERSION

    @property
    def source(self) -> str:
        """Everything that decides a score, but for int8, as one hexadecimal number."""
        parts = [self.weights_sha256, self.tokenizer_sha256, self.prompt, self.graph]
        parts.extend(sorted(self.shape.items()))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def fingerprint(self, int8: bool) -> str:
        """12 hexadecimal digits: equal where and only where scores are comparable."""
        return hashlib.sha256(f"{self.source} {int8}".encode()).hexdigest()[:12]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Read and check `hhem.json`. Raises `ModelError`, which says what to do."""
    path = folder / MANIFEST
    convert = f"`ragmeter model convert {folder}`"
    if not path.is_file():
        if (folder / WEIGHTS).is_file():
            raise ModelError(f"{folder} holds a checkpoint that is not converted: {convert}")
        raise ModelError(f"{folder} holds no converted model: there is no {MANIFEST}")
    try:
        if path.stat().st_size > MANIFEST_BYTES:
            raise ValueError("too large")
        found = json.loads(path.read_bytes())
        manifest = Manifest(**found)
        kinds = {
            "weights_sha256": str,
            "tokenizer_sha256": str,
            "prompt": str,
            "shape": dict,
            "int8": bool,
            "graph": int,
        }
        if any(type(found.get(name, 0)) is not kind for name, kind in kinds.items()):
            raise ValueError("a value of the wrong kind")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read ({error}); {convert} makes it anew") from None
    if manifest.graph != GRAPH_VERSION:
        raise ModelError(f"{folder} was converted by another version of ragmeter: {convert} again")
    split_prompt(manifest.prompt)
    return manifest
