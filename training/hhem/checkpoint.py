"""Read and check the published checkpoint: tensors, shape and prompt.

The shape of the network is read from the tensors. `config.json` gives what tensors cannot show (the
buckets of relative positions, the epsilon of the norms, the activation), if it has the T5 fields.
The published checkpoint's own has none; then the values of google/flan-t5-base hold, which the
published model was trained from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from ragmeter.scorers.hhem.model import WEIGHTS_NAME, ModelError, split_prompt

Array = NDArray[np.float32]

CONFIG = "config.json"

# The prompt of the published model. `<pad>` is a special token: its id stands at position 0, is
# attended to, and is what the classifier reads.
PROMPT = (
    "<pad> Determine if the hypothesis is true given the premise?\n\n"
    "Premise: {text1}\n\nHypothesis: {text2}"
)

_MAX_CONFIG_BYTES = 1 << 20  # a config is a page of text; more is not one
_GELU_NAMES = ("gated-gelu", "gelu_new")

EMBEDDING = "t5.transformer.shared.weight"
FINAL_NORM = "t5.transformer.encoder.final_layer_norm.weight"
HEAD = "t5.classifier.weight"
HEAD_BIAS = "t5.classifier.bias"
_BLOCK = "t5.transformer.encoder.block"
BIAS = f"{_BLOCK}.0.layer.0.SelfAttention.relative_attention_bias.weight"
# Names of a block's weights in the checkpoint, by the names used here.
_BLOCK_NAMES = {
    **{name: f"layer.0.SelfAttention.{name}" for name in "qkvo"},
    **{name: f"layer.1.DenseReluDense.{name}" for name in ("wi_0", "wi_1", "wo")},
    "attention_norm": "layer.0.layer_norm",
    "feed_forward_norm": "layer.1.layer_norm",
}


def block_key(layer: int, name: str) -> str:
    """Return the key of a weight: q, k, v, o, wi_0, wi_1, wo or one of the two norms."""
    return f"{_BLOCK}.{layer}.{_BLOCK_NAMES[name]}.weight"


@dataclass(frozen=True)
class EncoderShape:
    """Sizes of a T5 encoder with a token classifier on it."""

    vocabulary: int
    width: int  # d_model
    heads: int
    head: int  # d_kv, of one head
    inner: int  # d_ff
    layers: int
    buckets: int
    labels: int = 2
    distance: int = 128  # from here on all distances are one bucket
    epsilon: float = 1e-6

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return every key that such a checkpoint holds, with its shape."""
        width = self.width
        attention = self.heads * self.head
        inner = self.inner
        block = {
            **dict.fromkeys("qkv", (attention, width)),
            "o": (width, attention),
            **dict.fromkeys(("wi_0", "wi_1"), (inner, width)),
            "wo": (width, inner),
            **dict.fromkeys(("attention_norm", "feed_forward_norm"), (width,)),
        }
        return {
            EMBEDDING: (self.vocabulary, width),
            FINAL_NORM: (width,),
            HEAD: (self.labels, width),
            HEAD_BIAS: (self.labels,),
            BIAS: (self.buckets, self.heads),
        } | {
            block_key(layer, name): size
            for layer in range(self.layers)
            for name, size in block.items()
        }


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint: float32 arrays by key, and its prompt."""

    shape: EncoderShape
    tensors: Mapping[str, Array]
    prompt: str


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check `model.safetensors` (and `config.json`) in a folder.

    Raises:
        ModelError: A file is missing or broken, or does not fit.
    """
    path, config_path = folder / WEIGHTS_NAME, folder / CONFIG
    if not path.is_file():
        raise ModelError(
            f"{path} is missing; `python -m training.hhem fetch --out {folder}` downloads it or"
            " says how"
        )
    config = _read_config(config_path)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            kinds = {tensor.get_dtype() for tensor in slices.values()}
            if kinds - {"F32"}:
                raise ModelError(f"{path} holds {sorted(kinds)}; F32 is needed")
            sizes = {key: tuple(tensor.get_shape()) for key, tensor in slices.items()}
            shape = _read_shape(sizes, config, config_path)
            _check_tensors(path, sizes, shape.tensors())
            tensors = {key: file.get_tensor(key) for key in sorted(sizes)}
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    for key, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ModelError(f"{path}: {key} holds numbers that are not finite")
    prompt = config.get("prompt", PROMPT)
    if not isinstance(prompt, str):
        raise ModelError(f"{config_path}: prompt is not a text")
    split_prompt(prompt)
    return Checkpoint(shape, tensors, prompt)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ModelError(f"{path} is larger than {_MAX_CONFIG_BYTES} bytes: not a config")
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object")
    return config


def _check_tensors(
    path: Path, sizes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for problem, odd in (
        ("lacks", sorted(expected.keys() - sizes.keys())),
        ("has the unknown", sorted(sizes.keys() - expected.keys())),
    ):
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            raise ModelError(f"{path} {problem} {odd[0][:200]}{more}")
    for key, size in expected.items():
        if sizes[key] != size:
            raise ModelError(f"{path}: {key} has shape {list(sizes[key])}, expected {list(size)}")


def _positive(config: Mapping[str, Any], path: Path, name: str, default: float) -> float:
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 20:
        raise ModelError(f"{path}: {name} is {json.dumps(value)[:60]}, not a sensible number")
    return float(value)


def _read_shape(
    sizes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any], path: Path
) -> EncoderShape:
    def matrix(key: str) -> tuple[int, int]:
        if key not in sizes:
            raise ModelError(f"the checkpoint lacks {key}")
        if len(sizes[key]) != 2 or 0 in sizes[key]:
            raise ModelError(f"{key} has shape {list(sizes[key])}, where a matrix is needed")
        return sizes[key][0], sizes[key][1]

    block = re.compile(re.escape(_BLOCK) + r"\.(\d{1,3})\.")
    layers = [int(match[1]) for key in sizes if (match := block.match(key))]
    vocabulary, width = matrix(EMBEDDING)
    buckets, heads = matrix(BIAS)
    attention, _ = matrix(block_key(0, "q"))
    inner, _ = matrix(block_key(0, "wi_0"))
    labels, _ = matrix(HEAD)
    distance = int(_positive(config, path, "relative_attention_max_distance", 128))
    for wrong, problem in (
        (attention % heads, f"{attention} columns of attention cannot be shared by {heads} heads"),
        (buckets % 4, f"{buckets} relative buckets: a multiple of 4 is needed"),
        (labels != 2, f"the classifier has {labels} labels; HHEM has 2"),
        (
            distance <= buckets // 4,
            f"{path}: relative_attention_max_distance is below {buckets // 4 + 1}",
        ),
    ):
        if wrong:
            raise ModelError(problem)
    shape = EncoderShape(
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        head=attention // heads,
        inner=inner,
        layers=1 + max(layers, default=0),
        buckets=buckets,
        distance=distance,
        epsilon=_positive(config, path, "layer_norm_epsilon", 1e-6),
    )
    for name, value in (
        ("vocab_size", shape.vocabulary),
        ("d_model", shape.width),
        ("d_kv", shape.head),
        ("d_ff", shape.inner),
        ("num_layers", shape.layers),
        ("num_heads", shape.heads),
        ("relative_attention_num_buckets", shape.buckets),
    ):
        if config.get(name, value) != value:
            raise ModelError(f"{path}: {name} is {config[name]!r}, but the tensors say {value}")
    for name in ("feed_forward_proj", "dense_act_fn"):
        if config.get(name, _GELU_NAMES[0]) not in _GELU_NAMES:
            raise ModelError(f"{path}: {name} is {config[name]!r}; gated GELU (tanh) is built here")
    return shape
