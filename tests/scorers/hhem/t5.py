"""A T5 encoder with HHEM's head in float64 NumPy, written from the paper and not from our graph.

Every position goes through every block, with full score matrices: slow and plain, to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ragmeter.scorers.hhem.model import WEIGHTS_NAME
from safetensors.numpy import save_file

from training.hhem.checkpoint import Checkpoint, EncoderShape

__all__ = ["bucket", "forward", "random_tensors", "write"]

Floats = NDArray[np.float64]
STEM = "t5.transformer.encoder."


@cache
def bucket(distance: int, buckets: int, largest: int) -> int:
    """Of key - query: keys to the right take the upper half of the buckets."""
    half = buckets // 2
    found = half if distance > 0 else 0
    away = abs(distance)
    if away < half // 2:
        return found + away
    # in powers of the ratio, without logarithms: where does `away` come to lie?
    steps = half - half // 2
    step = 0
    while step < steps - 1 and away**steps * (half // 2) ** (step + 1 - steps) >= (
        largest ** (step + 1)
    ):
        step += 1
    return found + half // 2 + step


def forward(checkpoint: Checkpoint, ids: list[int]) -> Floats:
    """The logits of position 0."""
    shape = checkpoint.shape
    w = {key: value.astype(np.float64) for key, value in checkpoint.tensors.items()}

    def norm(x: Floats, key: str) -> Floats:
        mean = (x**2).mean(axis=-1, keepdims=True)
        result: Floats = x / np.sqrt(mean + shape.epsilon) * w[key]
        return result

    def heads(x: Floats) -> Floats:
        return x.reshape(len(ids), shape.heads, shape.head).transpose(1, 0, 2)

    x = w["t5.transformer.shared.weight"][ids]
    table = w[f"{STEM}block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    places = range(len(ids))
    index = [[bucket(j - i, shape.buckets, shape.distance) for j in places] for i in places]
    bias = table[np.array(index)].transpose(2, 0, 1)
    for layer in range(shape.layers):
        stem = f"{STEM}block.{layer}.layer."
        y = norm(x, f"{stem}0.layer_norm.weight")
        q, k, v = (heads(y @ w[f"{stem}0.SelfAttention.{part}.weight"].T) for part in "qkv")
        scores = q @ k.transpose(0, 2, 1) + bias
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        joined = (shares @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = x + joined @ w[f"{stem}0.SelfAttention.o.weight"].T
        y = norm(x, f"{stem}1.layer_norm.weight")
        gate = y @ w[f"{stem}1.DenseReluDense.wi_0.weight"].T
        gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        inner = gate * (y @ w[f"{stem}1.DenseReluDense.wi_1.weight"].T)
        x = x + inner @ w[f"{stem}1.DenseReluDense.wo.weight"].T
    first = norm(x, f"{STEM}final_layer_norm.weight")[0]
    found: Floats = first @ w["t5.classifier.weight"].T + w["t5.classifier.bias"]
    return found


def random_tensors(shape: EncoderShape, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    found = {}
    for key, size in shape.tensors().items():
        scale = 1.0 if "bias" in key or "shared" in key or "norm" in key else 0.5 * size[-1] ** -0.5
        found[key] = rng.standard_normal(size, dtype=np.float32) * np.float32(scale)
    return found


def write(folder: Path, tensors: Mapping[str, NDArray[np.float32]]) -> None:
    save_file(dict(tensors), folder / WEIGHTS_NAME)
