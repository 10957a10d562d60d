"""Read and check the published checkpoint: tensors, shape and prompt.

The shape of the network is read from the tensors. What tensors cannot show (how relative positions
fall into buckets, the epsilon of the norms, the activation) comes from `config.json` where that has
the T5 fields; the published checkpoint's own does not, and then the values of google/flan-t5-base
hold, which the published model was trained from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragmeter.scorers.hhem.model import WEIGHTS_NAME, ModelError, require_module, split_prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    Array = NDArray[np.float32]


CONFIG = "config.json"

# The prompt of the published model. `<pad>` is a special token: its id stands at position 0, is
# attended to, and is what the classifier reads.
PROMPT = (
    "<pad> Determine if the hypothesis is true given the premise?\n\n"
    "Premise: {text1}\n\nHypothesis: {text2}"
)

EMBEDDING = "t5.transformer.shared.weight"
FINAL_NORM = "t5.transformer.encoder.final_layer_norm.weight"
HEAD = "t5.classifier.weight"
HEAD_BIAS = "t5.classifier.bias"
BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
_CONFIG_BYTES = 1 << 20  # a config is a page of text; more is not one
_BLOCK_KEY = re.compile(r"t5\.transformer\.encoder\.block\.(\d{1,3})\.")
_GELU_NAMES = ("gated-gelu", "gelu_new")


def block_key(layer: int, name: str) -> str:
    return f"t5.transformer.encoder.block.{layer}.{name}"


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
        """Every key that such a checkpoint holds, with its shape."""
        attention, width = self.heads * self.head, self.width
        found: dict[str, tuple[int, ...]] = {
            EMBEDDING: (self.vocabulary, width),
            FINAL_NORM: (width,),
            HEAD: (self.labels, width),
            HEAD_BIAS: (self.labels,),
            block_key(0, BIAS): (self.buckets, self.heads),
        }
        for layer in range(self.layers):
            for name in "qkv":
                found[block_key(layer, f"layer.0.SelfAttention.{name}.weight")] = (attention, width)
            found[block_key(layer, "layer.0.SelfAttention.o.weight")] = (width, attention)
            for name in ("wi_0", "wi_1"):
                key = block_key(layer, f"layer.1.DenseReluDense.{name}.weight")
                found[key] = (self.inner, width)
            found[block_key(layer, "layer.1.DenseReluDense.wo.weight")] = (width, self.inner)
            for part in (0, 1):
                found[block_key(layer, f"layer.{part}.layer_norm.weight")] = (width,)
        return found


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint: float32 arrays by key, and the prompt split at its two texts."""

    shape: EncoderShape
    tensors: Mapping[str, Array]
    prompt: str


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _CONFIG_BYTES:
            raise ModelError(f"{path} is larger than {_CONFIG_BYTES} bytes: not a model's config")
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a JSON object")
    return found


def _positive(config: Mapping[str, Any], path: Path, name: str, default: float) -> float:
    value = config.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 20:
        raise ModelError(f"{path}: {name} is {json.dumps(value)[:60]}, not a sensible number")
    return float(value)


def _read_shape(
    sizes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any], path: Path
) -> EncoderShape:
    """The shape that the tensors have; raises `ModelError` where they do not fit together."""

    def two(key: str) -> tuple[int, int]:
        if key not in sizes:
            raise ModelError(f"the checkpoint lacks {key}")
        if len(sizes[key]) != 2 or 0 in sizes[key]:
            raise ModelError(f"{key} has shape {list(sizes[key])}, where a matrix is needed")
        return sizes[key][0], sizes[key][1]

    layers = 1 + max(
        (int(found[1]) for key in sizes if (found := _BLOCK_KEY.match(key))), default=0
    )
    vocabulary, width = two(EMBEDDING)
    buckets, heads = two(block_key(0, BIAS))
    attention, _ = two(block_key(0, "layer.0.SelfAttention.q.weight"))
    inner, _ = two(block_key(0, "layer.1.DenseReluDense.wi_0.weight"))
    labels, _ = two(HEAD)
    if attention % heads:
        raise ModelError(f"{attention} columns of attention cannot be shared by {heads} heads")
    if buckets % 4:
        raise ModelError(f"{buckets} relative buckets: a multiple of 4 is needed")
    if labels != 2:
        raise ModelError(f"the classifier has {labels} labels; HHEM has 2")
    shape = EncoderShape(
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        head=attention // heads,
        inner=inner,
        layers=layers,
        buckets=buckets,
        distance=int(_positive(config, path, "relative_attention_max_distance", 128)),
        epsilon=_positive(config, path, "layer_norm_epsilon", 1e-6),
    )
    if shape.distance <= buckets // 4:
        raise ModelError(f"{path}: relative_attention_max_distance is below {buckets // 4 + 1}")
    told = {
        "vocab_size": shape.vocabulary,
        "d_model": shape.width,
        "d_kv": shape.head,
        "d_ff": shape.inner,
        "num_layers": shape.layers,
        "num_heads": shape.heads,
        "relative_attention_num_buckets": shape.buckets,
    }
    for name, value in told.items():
        if config.get(name, value) != value:
            raise ModelError(f"{path}: {name} is {config[name]!r}, but the tensors say {value}")
    for name in ("feed_forward_proj", "dense_act_fn"):
        if config.get(name, _GELU_NAMES[0]) not in _GELU_NAMES:
            raise ModelError(f"{path}: {name} is {config[name]!r}; gated GELU (tanh) is built here")
    return shape


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check `model.safetensors` (and `config.json`) in `folder`. Raises `ModelError`."""
    safetensors = require_module("safetensors")
    path = folder / WEIGHTS_NAME
    if not path.is_file():
        raise ModelError(
            f"{path} is missing; `ragmeter model fetch --out {folder}` downloads it or says how"
        )
    config = _read_config(folder / CONFIG)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            keys = set(file.keys())
            sizes = {key: tuple(file.get_slice(key).get_shape()) for key in keys}
            kinds = {file.get_slice(key).get_dtype() for key in keys}
            if kinds - {"F32"}:
                raise ModelError(f"{path} holds {sorted(kinds)}; F32 is needed")
            shape = _read_shape(sizes, config, folder / CONFIG)
            expected = shape.tensors()
            for problem, odd in (
                ("lacks", sorted(expected.keys() - keys)),
                ("has the unknown", sorted(keys - expected.keys())),
            ):
                if odd:
                    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
                    raise ModelError(f"{path} {problem} {odd[0][:200]}{more}")
            for key, size in expected.items():
                if sizes[key] != size:
                    raise ModelError(
                        f"{path}: {key} has shape {list(sizes[key])}, expected {list(size)}"
                    )
            tensors = {key: file.get_tensor(key) for key in sorted(keys)}
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    numpy = require_module("numpy")
    for key, tensor in tensors.items():
        if not numpy.isfinite(tensor).all():
            raise ModelError(f"{path}: {key} holds numbers that are not finite")
    prompt = config.get("prompt", PROMPT)
    if not isinstance(prompt, str):
        raise ModelError(f"{folder / CONFIG}: prompt is not a text")
    split_prompt(prompt)
    return Checkpoint(shape, tensors, prompt)
