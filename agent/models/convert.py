"""From the published checkpoint to the graphs that are run: all files put in place, or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from agent.models.checkpoint import WEIGHTS, read_checkpoint
from agent.models.errors import ModelError, require
from agent.models.graph import build
from agent.models.manifest import (
    FP32,
    INT8,
    MANIFEST,
    SOURCE_KEY,
    TOKENIZER,
    Manifest,
    sha256_of,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["convert"]

STAGING = ".hhem-new"  # folder in which a conversion is made


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder within `out`, so on its file system, that is gone afterwards whatever happens.

    What a killed conversion has left in it goes first.
    """
    folder = out / STAGING
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _save(model: onnx.ModelProto, path: Path, manifest: Manifest) -> None:
    entry = model.metadata_props.add()
    entry.key, entry.value = SOURCE_KEY, manifest.source
    _write(path, model.SerializeToString())


def _check_tokenizer(path: Path, vocabulary: int) -> None:
    """Refuse a tokenizer that makes ids which the model has no embedding for."""
    tokenizers = require("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception
        raise ModelError(f"{path} is not a tokenizer: {error}") from None
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocabulary:
        raise ModelError(f"{path} has the id {largest}, but the model ends at {vocabulary - 1}")
    if tokenizer.token_to_id("<pad>") != 0:
        raise ModelError(f"{path}: <pad> must be id 0; this is not the tokenizer of a T5")


def convert(source: Path, out: Path | None = None, *, int8: bool = False) -> Manifest:
    """Build `hhem.onnx` (and `hhem-int8.onnx`) in `out`, by default `source`.

    `out` becomes complete by itself: the tokenizer is copied. Graphs of an earlier conversion are
    replaced at the end, one rename each, the manifest last. Raises `ModelError`.
    """
    out = out or source
    checkpoint = read_checkpoint(source)
    tokenizer = source / TOKENIZER
    if not tokenizer.is_file():
        raise ModelError(f"{tokenizer} is missing: it is the one of google/flan-t5-base")
    _check_tokenizer(tokenizer, checkpoint.shape.vocabulary)
    manifest = Manifest(
        weights_sha256=sha256_of(source / WEIGHTS),
        tokenizer_sha256=sha256_of(tokenizer),
        prompt=checkpoint.prompt,
        shape=asdict(checkpoint.shape),
        int8=int8,
    )
    try:
        with _staging(out) as folder:
            _save(build(checkpoint), folder / FP32, manifest)
            if int8:
                _save(build(checkpoint, int8=True), folder / INT8, manifest)
            if not (out / TOKENIZER).exists() or not tokenizer.samefile(out / TOKENIZER):
                _write(folder / TOKENIZER, tokenizer.read_bytes())
            _write(folder / MANIFEST, manifest.text().encode())
            for name in (TOKENIZER, FP32, INT8, MANIFEST):
                if (folder / name).exists():
                    os.replace(folder / name, out / name)
            if not int8:
                (out / INT8).unlink(missing_ok=True)  # of an earlier conversion
    except OSError as error:
        raise ModelError(f"{out} cannot be written: {error.strerror or error}") from None
    return manifest
