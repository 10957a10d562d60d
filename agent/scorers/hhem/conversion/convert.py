"""Convert the published checkpoint to ONNX graphs, and check a model against its model card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragmeter.scorers.hhem.conversion.checkpoint import read_checkpoint
from ragmeter.scorers.hhem.conversion.download import (
    PUBLISHED_PAIRS,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    PublishedPair,
)
from ragmeter.scorers.hhem.conversion.onnx_graph import build_graph
from ragmeter.scorers.hhem.model import (
    FP32_NAME,
    INT8_NAME,
    MANIFEST_NAME,
    SOURCE_KEY,
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    HhemModel,
    ModelError,
    ModelManifest,
    require_module,
    sha256_of,
)

if TYPE_CHECKING:
    import onnx

STAGING = ".hhem-new"  # folder in which a conversion is made
_TOLERANCE = 1e-4  # the card gives four digits: half a unit is rounding, the rest is arithmetic
_REPEATS = 6  # of all seven premises, one after the other: a premise of some 500 tokens


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    folder = out / STAGING  # on the file system of `out`
    shutil.rmtree(folder, ignore_errors=True)  # of a killed conversion
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_graph(path: Path, model: onnx.ModelProto, manifest: ModelManifest) -> None:
    entry = model.metadata_props.add()
    entry.key, entry.value = SOURCE_KEY, manifest.source
    _write_file(path, model.SerializeToString())


def _check_tokenizer(path: Path, vocabulary: int) -> None:
    """Refuse a tokenizer that makes ids which the model has no embedding for."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: it is the one of google/flan-t5-base")
    tokenizers = require_module("tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises bare Exception
        raise ModelError(f"{path} is not a tokenizer: {error}") from None
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= vocabulary:
        raise ModelError(f"{path} has the id {largest}, but the model ends at {vocabulary - 1}")
    if tokenizer.token_to_id("<pad>") != 0:
        raise ModelError(f"{path}: <pad> must be id 0; this is not the tokenizer of a T5")


def convert_checkpoint(source: Path, out: Path, *, int8: bool = False) -> ModelManifest:
    """Build a model of one or two graphs from a checkpoint.

    `source` has the checkpoint and its tokenizer, and is not written to unless it is `out`, which
    becomes complete by itself. Files of an earlier conversion are replaced at the end, one rename
    each, the manifest last.

    Raises:
        ModelError: The checkpoint is not right, or `out` cannot be written.
    """
    checkpoint = read_checkpoint(source)
    tokenizer = source / TOKENIZER_NAME
    _check_tokenizer(tokenizer, checkpoint.shape.vocabulary)
    manifest = ModelManifest(
        weights_sha256=sha256_of(source / WEIGHTS_NAME),
        tokenizer_sha256=sha256_of(tokenizer),
        prompt=checkpoint.prompt,
        shape=asdict(checkpoint.shape),
        int8=int8,
    )
    try:
        with _staging(out) as folder:
            _write_graph(folder / FP32_NAME, build_graph(checkpoint), manifest)
            if int8:
                _write_graph(folder / INT8_NAME, build_graph(checkpoint, int8=True), manifest)
            if not (out / TOKENIZER_NAME).exists() or not tokenizer.samefile(out / TOKENIZER_NAME):
                _write_file(folder / TOKENIZER_NAME, tokenizer.read_bytes())
            _write_file(folder / MANIFEST_NAME, manifest.text().encode())
            for name in (TOKENIZER_NAME, FP32_NAME, INT8_NAME, MANIFEST_NAME):
                if (folder / name).exists():
                    os.replace(folder / name, out / name)
            if not int8:
                (out / INT8_NAME).unlink(missing_ok=True)  # of an earlier conversion
    except OSError as error:
        raise ModelError(f"{out} cannot be written: {error.strerror or error}") from None
    return manifest


@dataclass(frozen=True)
class PairCheck:
    """Scores of one pair; `expected` where the model card has it, `int8` where there is a graph."""

    pair: PublishedPair
    expected: float | None
    fp32: float
    int8: float | None


@dataclass(frozen=True)
class ModelCheck:
    """Scores of the pairs of the model card, and then of their hypotheses with a long premise.

    `published`: these are the published weights and their tokenizer.
    """

    published: bool
    rows: Sequence[PairCheck]

    @property
    def off(self) -> float:
        """The largest distance of a float32 score from the published one."""
        return max(abs(r.fp32 - r.expected) for r in self.rows if r.expected is not None)

    def int8_errors(self) -> list[float]:
        """Return the distances of the quantised scores from the float32 ones."""
        return [abs(row.int8 - row.fp32) for row in self.rows if row.int8 is not None]

    @property
    def passed(self) -> bool:
        """Whether it is the published model and scores as published."""
        return self.published and self.off <= _TOLERANCE


def check_conversion(folder: Path) -> ModelCheck:
    """Score the pairs of the model card with a converted model.

    Raises:
        ModelError: The model cannot be loaded or run.
    """
    exact = HhemModel(folder)
    fast = HhemModel(folder, int8=True) if exact.manifest.int8 else None
    long = " ".join([pair.premise for pair in PUBLISHED_PAIRS] * _REPEATS)

    def check(pair: PublishedPair, premise: str, expected: float | None) -> PairCheck:
        texts = premise, pair.hypothesis
        return PairCheck(pair, expected, exact.score(*texts), fast.score(*texts) if fast else None)

    rows = [check(pair, pair.premise, pair.score) for pair in PUBLISHED_PAIRS]
    rows += [check(pair, long, None) for pair in PUBLISHED_PAIRS]
    sources = (exact.manifest.weights_sha256, exact.manifest.tokenizer_sha256)
    return ModelCheck(sources == (WEIGHTS_FILE.sha256, TOKENIZER_FILE.sha256), rows)


def format_check(result: ModelCheck) -> Iterator[str]:
    """Yield the lines of a report."""
    errors = result.int8_errors()
    yield "expected  fp32    " + ("int8    " if errors else "") + "hypothesis"
    for row in result.rows:
        expected = "-" if row.expected is None else f"{row.expected:.4f}"
        int8 = "" if row.int8 is None else f"{row.int8:.4f}  "
        text = row.pair.hypothesis if row.expected is not None else f"long: {row.pair.hypothesis}"
        yield f"{expected:8}  {row.fp32:.4f}  {int8}{text}"
    if result.published:
        verdict = "as published" if result.passed else f"more than {_TOLERANCE} off: do not use it"
        yield f"fp32: at most {result.off:.5f} from the published scores, {verdict}"
    else:
        yield "These are not the published weights and tokenizer: the expected scores do not apply."
    if errors:
        mean = sum(errors) / len(errors)
        yield f"int8: at most {max(errors):.4f} from fp32, {mean:.4f} on average"
