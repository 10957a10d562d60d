"""Build the ONNX graph of HHEM in float32 or 8-bit integers; `encoder.onnx.j2` describes it."""

from __future__ import annotations

import math
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined

from ragmeter.scorers.hhem.conversion import checkpoint as keys
from ragmeter.scorers.hhem.conversion.checkpoint import Checkpoint, EncoderShape
from ragmeter.scorers.hhem.model import require_module

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

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
        np, weight = require_module("numpy"), self._tensors[key]
        scale = np.abs(weight).max(axis=1) / np.float32(_INT8_STEPS)
        scale[scale == 0] = 1  # a column of zeros
        whole = np.rint(weight / scale[:, None]).T.astype(np.int8)
        return self._add(f"{key}.int8", whole), self._add(f"{key}.scale", scale)


def build_graph(checkpoint: Checkpoint, *, int8: bool = False) -> onnx.ModelProto:
    """Return the graph of a checkpoint; `int8` uses integers where that is accurate enough."""
    parser, helper = require_module("onnx.parser"), require_module("onnx.helper")
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
    model: onnx.ModelProto = parser.parse_model(text)
    # weights go straight into the graph that is written: every copy of them is 440 MB
    for name, value in weights.constants.items():
        tensor = model.graph.initializer.add()
        tensor.name = name
        tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor.dims.extend(value.shape)
        tensor.raw_data = value.tobytes()  # in C order whatever the array's is
    return model
