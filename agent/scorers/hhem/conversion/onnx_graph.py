"""Write the ONNX graph of HHEM: a T5 encoder with a classifier, in float32 or 8-bit integers.

One pair at a time: the input `ids` is int64 [n], the output `logits` float32 [2]. Three things
differ from a plain export, because they are faster on a CPU (`benchmarks/hhem.py`):

* Attention goes over the heads and over tiles of queries. Scores of all pairs of tokens, 12 x n x n
  numbers, would travel to memory and back several times; those of a tile mostly stay in the cache.
  Memory then grows with n and not with n squared.
* The bias depends on the distance of two tokens only, so it is a table of [heads, distances]. A
  tile's bias is a slice of one skewed copy of it, shared by all tiles and layers.
* The classifier reads position 0 only, so the last block computes that position only. Its keys and
  values are never made: q0 (W_k x) is (q0 W_k) x, and a weighted sum of W_v x is W_v times a sum.

The fast mode uses products of 8-bit integers. Weights are int8 with one scale an output column.
Activations are quantised as they come, with one scale a token: one scale for the whole text, as in
the usual dynamic quantisation, leaves the small tokens of a text few steps (on random weights:
twice the error in the same time). The embedding, the norms, the attention itself, the last block
and the classifier stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ragmeter.scorers.hhem.conversion.checkpoint import (
    BIAS,
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    HEAD_BIAS,
    Checkpoint,
    EncoderShape,
    block_key,
)
from ragmeter.scorers.hhem.model import require_module

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    # A product of x [n, in] with the transpose of a checkpoint's weight [out, in], by its key.
    Linear = Callable[[str, str], str]

TILE = 256  # most queries of a tile: shorter and longer ones were measured to be slower

_OPSET, _IR = 21, 10  # what ONNX Runtime 1.20 reads
_CONTRIB = "com.microsoft"  # domain of ONNX Runtime's own operators
_CONTRIB_OPS = {"SkipSimplifiedLayerNormalization", "FastGelu", "MatMulIntegerToFloat"}
_INT8_STEPS = 127  # of int8 to either side of zero; -128 is not used
_UINT8_MIDDLE = 128  # zero of the uint8 activations: the fast kernels take unsigned by signed
_SMALLEST_SCALE = 1e-20  # scale of a token that is all zeros


def build_graph(checkpoint: Checkpoint, *, int8: bool = False) -> onnx.ModelProto:
    """Return the graph of a checkpoint."""
    return _EncoderBuilder(checkpoint, int8).build()


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


class _GraphWriter:
    """Nodes and constants of a graph; methods return the name of what they add.

    `outer` is the graph that this one is a body in: it keeps the constants of both.
    """

    def __init__(self, outer: _GraphWriter | None = None, prefix: str = "") -> None:
        self.onnx = require_module("onnx")
        self.np = require_module("numpy")
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        # weights go straight into the graph that is written: every copy of them is 440 MB
        self.graph: onnx.GraphProto = outer.graph if outer else self.onnx.GraphProto()
        self.constants: set[str] = outer.constants if outer else set()

    def op(self, kind: str, *inputs: str | int | list[int], **attributes: Any) -> str:
        """Add an operator; numbers and lists of them become constants."""
        return self.node(kind, inputs, ("0",), **attributes)[0]

    def node(
        self,
        kind: str,
        inputs: Sequence[str | int | list[int]],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> list[str]:
        """Add an operator with several outputs, of which "" is left out."""
        label = f"{self.prefix}{kind}_{len(self.nodes)}"
        names = [f"{label}.{output}" if output else "" for output in outputs]
        self.nodes.append(
            self.onnx.helper.make_node(
                kind,
                [x if isinstance(x, str) else self.integers(x) for x in inputs],
                names,
                name=label,
                domain=_CONTRIB if kind in _CONTRIB_OPS else "",
                **attributes,
            )
        )
        return names

    def constant(self, name: str, value: Any) -> str:
        if name not in self.constants:
            self.constants.add(name)
            tensor = self.graph.initializer.add()
            tensor.name = name
            tensor.data_type = self.onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            tensor.dims.extend(value.shape)
            tensor.raw_data = value.tobytes()  # in C order whatever the array's is
        return name

    def integers(self, value: int | list[int]) -> str:
        return self.constant(f"int64_{value}", self.np.array(value, self.np.int64))

    def body(self, inputs: Sequence[str], output: str) -> onnx.GraphProto:
        """Return the nodes as the body of a scan; types and shapes follow from what is scanned."""
        untyped = self.onnx.helper.make_empty_tensor_value_info
        graph: onnx.GraphProto = self.onnx.helper.make_graph(
            self.nodes, self.prefix, [untyped(name) for name in inputs], [untyped(output)]
        )
        return graph

    def scan(self, inputs: Sequence[str], body: onnx.GraphProto) -> str:
        """Run `body` for each element along the first axis of the inputs; stack its outputs."""
        return self.op("Scan", *inputs, body=body, num_scan_inputs=len(inputs))


class _EncoderBuilder(_GraphWriter):
    def __init__(self, checkpoint: Checkpoint, int8: bool) -> None:
        super().__init__()
        self.model = self.onnx.ModelProto(ir_version=_IR, producer_name="ragmeter")
        self.graph = self.model.graph
        self.shape = checkpoint.shape
        self.tensors = checkpoint.tensors
        self.fast: Linear = self.int8_linear if int8 else self.linear
        self.quantised: dict[str, tuple[str, str]] = {}  # inputs that several products read

    def weight(self, key: str) -> str:
        return self.constant(key, self.tensors[key])

    def linear(self, x: str, key: str) -> str:
        return self.op("MatMul", x, self.constant(key, self.tensors[key].T))

    def int8_linear(self, x: str, key: str) -> str:
        np, weight = self.np, self.tensors[key]
        scale = np.abs(weight).max(axis=1) / np.float32(_INT8_STEPS)
        scale[scale == 0] = 1  # a column of zeros
        activations, scales = self.quantise(x)
        product = self.op(
            "MatMulIntegerToFloat",
            activations,
            self.constant(f"{key}.int8", np.rint(weight / scale[:, None]).T.astype(np.int8)),
            self.constant("one", np.array(1, np.float32)),
            self.constant(f"{key}.scale", scale),
            self.constant("middle", np.array(_UINT8_MIDDLE, np.uint8)),
        )
        return self.op("Mul", product, scales)

    def quantise(self, x: str) -> tuple[str, str]:
        """Return x [n, k] as uint8 [n, k], and its scales [n, 1]."""
        if x not in self.quantised:
            np = self.np
            step = self.constant("step", np.array(1 / _INT8_STEPS, np.float32))
            smallest = self.constant("smallest", np.array(_SMALLEST_SCALE, np.float32))
            middle = self.constant("middle_1", np.array([_UINT8_MIDDLE], np.uint8))
            largest = self.op("ReduceMax", self.op("Abs", x), [1], keepdims=0)
            scale = self.op("Max", self.op("Mul", largest, step), smallest)
            zeros = self.op("Expand", middle, self.op("Shape", scale))
            whole = self.op("QuantizeLinear", x, scale, zeros, axis=0)
            self.quantised[x] = whole, self.op("Unsqueeze", scale, [1])
        return self.quantised[x]

    def add_and_norm(self, x: str, added: str, key: str) -> tuple[str, str]:
        """Return the root mean square norm of x + added, without mean and bias, and x + added."""
        normed, _, _, total = self.node(
            "SkipSimplifiedLayerNormalization",
            [x, added, self.weight(key)],
            ("norm", "", "", "sum"),
            epsilon=self.shape.epsilon,
        )
        return normed, total

    def tiling(self, n: str) -> None:
        """Cut n queries into tiles of equal length, the last filled up with zeros; and the bias.

        `base[h, i, c]` is the bias of head h at distance c - i - last, where `last` is the first
        query of the last tile: the tile that begins at query s finds its bias, [rows, n] a head,
        from column last - s on.
        """
        heads, op = self.shape.heads, self.op
        tiles = op("Div", op("Add", n, [TILE - 1]), [TILE])
        rows = op("Div", op("Sub", op("Add", n, tiles), [1]), tiles)
        padded = op("Mul", rows, tiles)
        last = op("Sub", padded, rows)
        count, tile_rows, end = (op("Squeeze", x) for x in (n, rows, padded))
        self.n, self.rows, self.last = n, rows, last
        self.filling = op("Concat", [0, 0], op("Sub", padded, n), [0], axis=0)
        self.begins = op("Sub", last, op("Range", 0, end, tile_rows))
        self.tiled = op("Concat", tiles, rows, [heads, self.shape.head], axis=0)
        # One line of biases that is long enough, [heads, width], is written `rows` times in a row
        # and read in lines that are one shorter: so it moves by one from line to line.
        width = op("Add", op("Add", n, last), rows)
        first = op("Sub", op("Neg", op("Squeeze", last)), tile_rows)
        far = self.shape.distance
        distance = op("Clip", op("Range", first, count, 1), -far, far)
        table = self.constant("bias", bias_table(self.tensors[BIAS], self.shape))
        line = op("Unsqueeze", op("Gather", table, op("Add", distance, far), axis=1), [1])
        lines = op("Expand", line, op("Concat", [heads], rows, width, axis=0))
        shorter = op("Sub", width, [1])
        end = op("Add", rows, op("Mul", rows, shorter))
        flat = op("Slice", op("Reshape", lines, [heads, -1]), rows, end, [1])
        self.base = op("Reshape", flat, op("Concat", [heads], rows, shorter, axis=0))

    def split_heads(self, x: str, *axes: int) -> str:
        """[n, heads * head] as [n, heads, head] with its axes in another order."""
        split = self.op("Reshape", x, [-1, self.shape.heads, self.shape.head])
        return self.op("Transpose", split, perm=axes)

    def attention(self, layer: int, x: str) -> str:
        """Self-attention of every position, [n, width] to [n, width], before the residual."""
        q, k, v = (self.fast(x, block_key(layer, name)) for name in "qkv")
        q = self.op("Reshape", self.op("Pad", q, self.filling), self.tiled)
        tile = _GraphWriter(self, f"tile_{layer}.")
        begin, queries = "tile.begin", "tile.queries"  # [] and [rows, heads, head]
        begins = tile.op("Unsqueeze", begin, [0])
        ends = tile.op("Add", begins, self.n)
        head = _GraphWriter(tile, f"head_{layer}.")
        inputs = ["head.q", "head.k", "head.v", "head.bias"]
        scores = head.op("MatMul", *inputs[:2])  # not scaled in T5
        bias = head.op("Slice", inputs[3], begins, ends, [1])
        shares = head.op("Softmax", head.op("Add", scores, bias), axis=-1)
        by_head = [
            tile.op("Transpose", queries, perm=[1, 0, 2]),
            self.split_heads(k, 1, 2, 0),
            self.split_heads(v, 1, 0, 2),
            self.base,
        ]
        summed = tile.scan(by_head, head.body(inputs, head.op("MatMul", shares, inputs[2])))
        by_query = tile.op("Transpose", summed, perm=[1, 0, 2])  # from [heads, rows, head]
        joined = self.scan([self.begins, q], tile.body([begin, queries], by_query))
        flat = self.op("Reshape", joined, [-1, self.shape.heads * self.shape.head])
        return self.fast(self.op("Slice", flat, [0], self.n, [0]), block_key(layer, "o"))

    def first_attention(self, x: str) -> str:
        """Self-attention of position 0 in the last block: [n, width] to [1, width].

        Queries and sums are [heads, width] here: the key and value weights act on them and not on
        every position.
        """
        layer, shape = self.shape.layers - 1, self.shape
        q, k, v, o = (block_key(layer, name) for name in "qkvo")
        by_head = (shape.heads, shape.head, shape.width)
        key_weights = self.constant(k, self.tensors[k].reshape(by_head))
        value_weights = self.constant(v, self.tensors[v].reshape(by_head).transpose(0, 2, 1))
        query = self.linear(self.op("Slice", x, [0], [1], [0]), q)
        query = self.op("Reshape", query, [shape.heads, 1, shape.head])
        query = self.op("Squeeze", self.op("MatMul", query, key_weights), [1])  # [heads, width]
        scores = self.op("MatMul", query, self.op("Transpose", x, perm=[1, 0]))
        bias = self.op("Squeeze", self.op("Slice", self.base, [0], [1], [1]), [1])
        end = self.op("Add", self.last, self.n)
        bias = self.op("Slice", bias, self.last, end, [1])  # [heads, n]
        shares = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        summed = self.op("Unsqueeze", self.op("MatMul", shares, x), [1])
        heads = self.op("MatMul", summed, value_weights)  # [heads, 1, head]
        return self.linear(self.op("Reshape", heads, [1, -1]), o)

    def feed_forward(self, layer: int, x: str, linear: Linear) -> str:
        gate = self.op("FastGelu", linear(x, block_key(layer, "wi_0")))
        inner = self.op("Mul", gate, linear(x, block_key(layer, "wi_1")))
        return linear(inner, block_key(layer, "wo"))

    def build(self) -> onnx.ModelProto:
        last = self.shape.layers - 1
        self.tiling(self.op("Shape", "ids"))
        x = self.op("Gather", self.weight(EMBEDDING), "ids")
        normed = self.op(
            "SimplifiedLayerNormalization",
            x,
            self.weight(block_key(0, "attention_norm")),
            axis=-1,
            epsilon=self.shape.epsilon,
            stash_type=1,
        )
        for layer in range(last + 1):
            if layer < last:
                linear, attended = self.fast, self.attention(layer, normed)
                after = block_key(layer + 1, "attention_norm")
            else:
                linear, attended = self.linear, self.first_attention(normed)
                after = FINAL_NORM
                x = self.op("Slice", x, [0], [1], [0])
            normed, x = self.add_and_norm(x, attended, block_key(layer, "feed_forward_norm"))
            normed, x = self.add_and_norm(x, self.feed_forward(layer, normed, linear), after)
        result = self.op("Gemm", normed, self.weight(HEAD), self.weight(HEAD_BIAS), transB=1)
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        self.nodes.append(
            helper.make_node("Identity", [self.op("Reshape", result, [2])], ["logits"])
        )
        model: onnx.ModelProto = self.model
        model.opset_import.append(helper.make_opsetid("", _OPSET))
        model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
        self.graph.name = "hhem"
        self.graph.node.extend(self.nodes)
        self.graph.input.append(helper.make_tensor_value_info("ids", proto.INT64, ["n"]))
        self.graph.output.append(helper.make_tensor_value_info("logits", proto.FLOAT, [2]))
        return model
