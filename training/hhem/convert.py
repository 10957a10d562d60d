"""Convert the published checkpoint to ONNX graphs, and check a model against its model card."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import tokenizers
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray
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
    sha256_of,
)

from training.hhem import checkpoint as keys
from training.hhem.checkpoint import Checkpoint, EncoderShape, read_checkpoint
from training.hhem.download import (
    PUBLISHED_PAIRS,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    PublishedPair,
)

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
    entry.key = SOURCE_KEY
    entry.value = manifest.source
    _write_file(path, model.SerializeToString())


def _check_tokenizer(path: Path, vocabulary: int) -> None:
    """Refuse a tokenizer that makes ids which the model has no embedding for."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: it is the one of google/flan-t5-base")
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
            _write_file(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2).encode() + b"\n")
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


TILE = 256  # most queries of a tile: shorter and longer ones were measured to be slower

_OPSET, _IR = 21, 10  # what ONNX Runtime 1.20 reads
_INT8_STEPS = 127  # of int8 to either side of zero; -128 is not used
_UINT8_MIDDLE = 128  # zero of the uint8 activations: the fast kernels take unsigned by signed
_SMALLEST_SCALE = 1e-20  # scale of a token that is all zeros


def bias_table(weights: NDArray[np.float32], shape: EncoderShape) -> NDArray[np.float32]:
    """Return the relative bias by distance (key - query), from -distance up.

    Half of the buckets are for keys to the right. In each half the first half are single distances,
    the others grow as the logarithm (T5, arXiv 1910.10683).

    Args:
        weights: Bias of each bucket, [buckets, heads].
        shape: Shape of the encoder.

    Returns:
        An array of [heads, 2 * distance + 1].
    """
    half = shape.buckets // 2
    single = half // 2
    rows = []
    for distance in range(-shape.distance, shape.distance + 1):
        bucket = away = abs(distance)
        if away >= single:
            share = math.log(away / single) / math.log(shape.distance / single)
            bucket = min(single + int(share * (half - single)), half - 1)
        rows.append(bucket + (half if distance > 0 else 0))
    table: NDArray[np.float32] = weights[rows].T
    return table


class _Weights:
    """Adds weights of a checkpoint to the constants of a graph; methods return their names."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._tensors = checkpoint.tensors
        self._by_head = (checkpoint.shape.heads, checkpoint.shape.head, checkpoint.shape.width)
        table = bias_table(checkpoint.tensors[keys.BIAS], checkpoint.shape)
        self.constants: dict[str, Any] = {"bias": table}

    def _add(self, key: str, value: Any) -> str:
        name = key.replace(".", "_")
        self.constants[name] = value
        return name

    def weight(self, key: str) -> str:
        return self._add(key, self._tensors[key])

    def transposed(self, key: str) -> str:
        return self._add(key, self._tensors[key].T)

    def key_by_head(self, key: str) -> str:
        return self._add(key, self._tensors[key].reshape(self._by_head))

    def value_by_head(self, key: str) -> str:
        return self._add(key, self._tensors[key].reshape(self._by_head).transpose(0, 2, 1))

    def int8(self, key: str) -> tuple[str, str]:
        weight = self._tensors[key]
        scale = np.abs(weight).max(axis=1) / np.float32(_INT8_STEPS)
        scale[scale == 0] = 1  # a column of zeros
        whole = np.rint(weight / scale[:, None]).T.astype(np.int8)
        return self._add(f"{key}.int8", whole), self._add(f"{key}.scale", scale)


def build_graph(checkpoint: Checkpoint, *, int8: bool = False) -> onnx.ModelProto:
    """Return the graph of a checkpoint; `int8` uses integers where that is accurate enough."""
    weights = _Weights(checkpoint)
    source = (resources.files(__package__) / "encoder.onnx.j2").read_text("utf-8")
    text = (
        Environment(undefined=StrictUndefined)
        .from_string(source)
        .render(
            ir_version=_IR,
            opset=_OPSET,
            tile=TILE,
            step=1 / _INT8_STEPS,
            smallest=_SMALLEST_SCALE,
            middle=_UINT8_MIDDLE,
            shape=checkpoint.shape,
            epsilon=repr(checkpoint.shape.epsilon),
            fast_mode=int8,
            keys=keys,
            block_key=keys.block_key,
            weight=weights.weight,
            transposed=weights.transposed,
            key_by_head=weights.key_by_head,
            value_by_head=weights.value_by_head,
            int8=weights.int8,
        )
    )
    model: onnx.ModelProto = onnx.parser.parse_model(text)
    # weights go straight into the graph that is written: every copy of them is 440 MB
    for name, value in weights.constants.items():
        tensor = model.graph.initializer.add()
        tensor.name = name
        tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor.dims.extend(value.shape)
        tensor.raw_data = value.tobytes()  # in C order whatever the array's is
    return model
