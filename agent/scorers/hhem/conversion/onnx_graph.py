"""Write the ONNX graph of HHEM: a T5 encoder with a classifier, in float32 or 8-bit integers.

The fast mode: products of 8-bit integers.

Weights are int8 with one scale an output column. Activations are quantised as they come, with one
scale a token: one scale for the whole text, as in the usual dynamic quantisation, leaves the small
tokens of a text few steps (on random weights: twice the error in the same time). The embedding, the
norms, the attention itself, the last block and the classifier stay float32.

The ONNX graph of HHEM: a T5 encoder with a classifier on its first position.

One pair at a time: the input `ids` is int64 [n], the output `logits` float32 [2]. What is
done other than in a plain export, because it is faster on a CPU (`benchmarks/hhem.py`):

* Attention goes over the heads and over tiles of queries. Scores of all pairs of tokens, 12 x n x n
  numbers, would travel to memory and back several times; those of a tile mostly stay in the cache.
  Memory then grows with n and not with n squared.
* The bias depends on the distance of two tokens only, so it is a table of [heads, distances]. A
  tile's bias is a slice of one skewed copy of it, shared by all tiles and layers.
* The classifier reads position 0 only, so the last block computes that position only. Its keys and
  values are never made: q0 (W_k x) is (q0 W_k) x, and a weighted sum of W_v x is W_v times a sum.
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

_CONTRIB = "com.microsoft"  # ONNX Runtime's own operators


class GraphWriter:
    """Nodes and constants in the making; every method adds something and gives its name."""

    def __init__(self, outer: GraphWriter | None = None, prefix: str = "") -> None:
        """`outer` is the graph that this one is a body in: it keeps the constants of both."""
        self.onnx = require_module("onnx")
        self.np = require_module("numpy")
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        # weights go straight into the graph that is written: every copy of them is 440 MB
        self.graph: onnx.GraphProto = outer.graph if outer else self.onnx.GraphProto()
        self.constants: set[str] = outer.constants if outer else set()

    def op(self, kind: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        return self.ops(kind, inputs, 1, domain=domain, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], outputs: int, *, domain: str = "", **attributes: Any
    ) -> list[str]:
        """A node with several outputs; position counts, so a name is "" nowhere."""
        label = f"{self.prefix}{kind}_{len(self.nodes)}"
        names = [f"{label}.{number}" for number in range(outputs)]
        self.nodes.append(
            self.onnx.helper.make_node(
                kind, list(inputs), names, name=label, domain=domain, **attributes
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

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(map(str, values))
        return self.constant(name, self.np.array(values, self.np.int64))

    def number(self, value: int) -> str:
        return self.constant(f"int_{value}", self.np.array(value, self.np.int64))

    def linear(self, x: str, name: str, weight: NDArray[np.float32]) -> str:
        """x [n, in] times the transpose of a checkpoint's weight [out, in]."""
        return self.op("MatMul", [x, self.constant(name, weight.T)])

    def norm(self, x: str, name: str, weight: NDArray[np.float32], epsilon: float) -> str:
        """Root mean square norm without mean and bias."""
        return self.op(
            "SimplifiedLayerNormalization",
            [x, self.constant(name, weight)],
            axis=-1,
            epsilon=epsilon,
            stash_type=1,
        )

    def skip_norm(
        self, x: str, add: str, name: str, weight: NDArray[np.float32], epsilon: float
    ) -> tuple[str, str]:
        """The norm of x + add, and x + add."""
        label = f"{self.prefix}skip_{len(self.nodes)}"
        outputs = [f"{label}.norm", "", "", f"{label}.sum"]
        self.nodes.append(
            self.onnx.helper.make_node(
                "SkipSimplifiedLayerNormalization",
                [x, add, self.constant(name, weight)],
                outputs,
                name=label,
                domain=_CONTRIB,
                epsilon=epsilon,
            )
        )
        return outputs[0], outputs[3]

    def body(self, inputs: Sequence[str], output: str) -> onnx.GraphProto:
        """The nodes as the body of a scan; types and shapes follow from what is scanned."""
        untyped = self.onnx.helper.make_empty_tensor_value_info
        graph: onnx.GraphProto = self.onnx.helper.make_graph(
            self.nodes, self.prefix, [untyped(name) for name in inputs], [untyped(output)]
        )
        return graph

    def scan(self, inputs: Sequence[str], body: onnx.GraphProto) -> str:
        """Run `body` for each element along the first axis of the inputs; stack what it gives."""
        return self.op("Scan", inputs, body=body, num_scan_inputs=len(inputs))


_INT8_STEPS = 127  # of int8 to either side of zero; -128 is not used
_UINT8_MIDDLE = 128  # zero of the uint8 activations: the fast kernels take unsigned by signed
_SMALLEST_SCALE = 1e-20  # scale of a token that is all zeros


class _Quantiser:
    """Puts integer products into a net; what several products read is quantised once."""

    def __init__(self, net: GraphWriter) -> None:
        self.net = net
        self.done: dict[str, tuple[str, str]] = {}

    def activations(self, x: str) -> tuple[str, str]:
        """x [n, k] as uint8 [n, k], and its scales [n, 1]."""
        if x not in self.done:
            net, np = self.net, self.net.np
            step = net.constant("step", np.array(1 / _INT8_STEPS, np.float32))
            smallest = net.constant("smallest", np.array(_SMALLEST_SCALE, np.float32))
            middle = net.constant("middle_1", np.array([_UINT8_MIDDLE], np.uint8))
            largest = net.op("ReduceMax", [net.op("Abs", [x]), net.ints(1)], keepdims=0)
            scale = net.op("Max", [net.op("Mul", [largest, step]), smallest])
            zeros = net.op("Expand", [middle, net.op("Shape", [scale])])
            whole = net.op("QuantizeLinear", [x, scale, zeros], axis=0)
            self.done[x] = whole, net.op("Unsqueeze", [scale, net.ints(1)])
        return self.done[x]

    def linear(self, x: str, name: str, weight: NDArray[np.float32]) -> str:
        """About x [n, in] times the transpose of `weight` [out, in]."""
        net, np = self.net, self.net.np
        scale = np.abs(weight).max(axis=1) / np.float32(_INT8_STEPS)
        scale[scale == 0] = 1  # a column of zeros
        whole = np.rint(weight / scale[:, None]).T.astype(np.int8)
        activations, scales = self.activations(x)
        product = net.op(
            "MatMulIntegerToFloat",
            [
                activations,
                net.constant(f"{name}.int8", whole),
                net.constant("one", np.array(1, np.float32)),
                net.constant(f"{name}.scale", scale),
                net.constant("middle", np.array(_UINT8_MIDDLE, np.uint8)),
            ],
            domain=_CONTRIB,
        )
        return net.op("Mul", [product, scales])


if TYPE_CHECKING:
    Linear = Callable[[str, str, NDArray[np.float32]], str]


_OPSET, _IR = 21, 10  # what ONNX Runtime 1.20 reads
TILE = 256  # most queries of a tile: shorter and longer ones were measured to be slower


def bias_table(weights: NDArray[np.float32], shape: EncoderShape) -> NDArray[np.float32]:
    """The relative bias by distance key - query: [heads, 2 * distance + 1], from -distance up.

    `weights` is [buckets, heads]. Half of the buckets are for keys to the right; in each half the
    first half are single distances, the others grow as the logarithm (T5, arXiv 1910.10683).
    """
    half = shape.buckets // 2
    single = half // 2
    rows = []
    for distance in range(-shape.distance, shape.distance + 1):
        away = abs(distance)
        bucket = away
        if away >= single:
            part = math.log(away / single) / math.log(shape.distance / single)
            bucket = min(single + int(part * (half - single)), half - 1)
        rows.append(bucket + (half if distance > 0 else 0))
    table: NDArray[np.float32] = weights[rows].T
    return table


class _EncoderBuilder(GraphWriter):
    def __init__(self, checkpoint: Checkpoint, int8: bool) -> None:
        super().__init__()
        self.model = self.onnx.ModelProto(ir_version=_IR, producer_name="ragmeter")
        self.graph = self.model.graph
        self.shape = checkpoint.shape
        self.tensors = checkpoint.tensors
        self.fast = _Quantiser(self).linear if int8 else self.linear

    def weight(self, layer: int, name: str) -> tuple[str, NDArray[np.float32]]:
        key = block_key(layer, f"{name}.weight")
        return key, self.tensors[key]

    def tiling(self, n: str) -> None:
        """Cut n queries into tiles of equal length, the last filled up with zeros; and the bias.

        `base[h, i, c]` is the bias of head h at distance c - i - last, where `last` is the first
        query of the last tile: the tile that begins at query s finds its bias, [rows, n] a head,
        from column last - s on.
        """
        shape = self.shape
        tiles = self.op("Div", [self.op("Add", [n, self.ints(TILE - 1)]), self.ints(TILE)])
        rows = self.op("Div", [self.op("Sub", [self.op("Add", [n, tiles]), self.ints(1)]), tiles])
        padded = self.op("Mul", [rows, tiles])
        last = self.op("Sub", [padded, rows])
        count, of_tile, end = (self.op("Squeeze", [x]) for x in (n, rows, padded))
        self.n, self.rows, self.last = n, rows, last
        missing = self.op("Sub", [padded, n])
        self.filling = self.op("Concat", [self.ints(0, 0), missing, self.ints(0)], axis=0)
        self.begins = self.op("Sub", [last, self.op("Range", [self.number(0), end, of_tile])])
        self.tiled = self.op("Concat", [tiles, rows, self.ints(shape.heads, shape.head)], axis=0)
        # One line of biases that is long enough, [heads, width], is written `rows` times in a row
        # and read in lines that are one shorter: so it moves by one from line to line.
        width = self.op("Add", [self.op("Add", [n, last]), rows])
        first = self.op("Sub", [self.op("Neg", [self.op("Squeeze", [last])]), of_tile])
        distance = self.op("Range", [first, count, self.number(1)])
        far = shape.distance
        distance = self.op("Clip", [distance, self.number(-far), self.number(far)])
        index = self.op("Add", [distance, self.number(far)])
        table = self.constant("bias", bias_table(self.tensors[block_key(0, BIAS)], shape))
        line = self.op("Gather", [table, index], axis=1)
        line = self.op("Unsqueeze", [line, self.ints(1)])
        again = self.op("Concat", [self.ints(shape.heads), rows, width], axis=0)
        flat = self.op("Reshape", [self.op("Expand", [line, again]), self.ints(shape.heads, -1)])
        shorter = self.op("Sub", [width, self.ints(1)])
        end = self.op("Add", [rows, self.op("Mul", [rows, shorter])])
        flat = self.op("Slice", [flat, rows, end, self.ints(1)])
        skewed = self.op("Concat", [self.ints(shape.heads), rows, shorter], axis=0)
        self.base = self.op("Reshape", [flat, skewed])

    def heads_of(self, x: str, *axes: int) -> str:
        """[n, heads * head] as [n, heads, head] with its axes in another order."""
        split = self.op("Reshape", [x, self.ints(-1, self.shape.heads, self.shape.head)])
        return self.op("Transpose", [split], perm=axes)

    def attention(self, layer: int, x: str) -> str:
        """Self-attention of every position, [n, width] to [n, width], before the residual."""
        name, columns = "layer.0.SelfAttention", self.shape.heads * self.shape.head
        q, k, v = (self.fast(x, *self.weight(layer, f"{name}.{part}")) for part in "qkv")
        q = self.op("Reshape", [self.op("Pad", [q, self.filling]), self.tiled])
        tile = GraphWriter(self, f"tile_{layer}.")
        begin, queries = "tile.begin", "tile.queries"  # [] and [rows, heads, head]
        begins = tile.op("Unsqueeze", [begin, self.ints(0)])
        ends = tile.op("Add", [begins, self.n])
        head = GraphWriter(tile, f"head_{layer}.")
        parts = ["head.q", "head.k", "head.v", "head.bias"]
        scores = head.op("MatMul", parts[:2])  # not scaled in T5
        bias = head.op("Slice", [parts[3], begins, ends, self.ints(1)])
        shares = head.op("Softmax", [head.op("Add", [scores, bias])], axis=-1)
        found = head.op("MatMul", [shares, parts[2]])
        of_heads = [
            tile.op("Transpose", [queries], perm=[1, 0, 2]),
            self.heads_of(k, 1, 2, 0),
            self.heads_of(v, 1, 0, 2),
            self.base,
        ]
        found = tile.scan(of_heads, head.body(parts, found))  # [heads, rows, head]
        found = tile.op("Transpose", [found], perm=[1, 0, 2])
        found = self.scan([self.begins, q], tile.body([begin, queries], found))
        flat = self.op("Reshape", [found, self.ints(-1, columns)])
        kept = self.op("Slice", [flat, self.ints(0), self.n, self.ints(0)])
        return self.fast(kept, *self.weight(layer, f"{name}.o"))

    def attention_first(self, x: str) -> str:
        """Self-attention of position 0 in the last block: [n, width] to [1, width].

        Queries and sums are [heads, width] here: the key and value weights act on them and not on
        every position.
        """
        layer, shape = self.shape.layers - 1, self.shape
        name = "layer.0.SelfAttention"
        first = self.op("Slice", [x, self.ints(0), self.ints(1), self.ints(0)])
        q = self.linear(first, *self.weight(layer, f"{name}.q"))
        q = self.op("Reshape", [q, self.ints(shape.heads, 1, shape.head)])
        key, k = self.weight(layer, f"{name}.k")
        k = k.reshape(shape.heads, shape.head, shape.width)
        asked = self.op("MatMul", [q, self.constant(key, k)])  # [heads, 1, width]
        asked = self.op("Squeeze", [asked, self.ints(1)])
        scores = self.op("MatMul", [asked, self.op("Transpose", [x], perm=[1, 0])])
        bias = self.op("Slice", [self.base, self.ints(0), self.ints(1), self.ints(1)])
        bias = self.op("Squeeze", [bias, self.ints(1)])
        end = self.op("Add", [self.last, self.n])
        bias = self.op("Slice", [bias, self.last, end, self.ints(1)])  # [heads, n]
        share = self.op("Softmax", [self.op("Add", [scores, bias])], axis=-1)
        summed = self.op("Unsqueeze", [self.op("MatMul", [share, x]), self.ints(1)])
        key, v = self.weight(layer, f"{name}.v")
        v = v.reshape(shape.heads, shape.head, shape.width).transpose(0, 2, 1)
        heads = self.op("MatMul", [summed, self.constant(key, v)])  # [heads, 1, head]
        flat = self.op("Reshape", [heads, self.ints(1, -1)])
        return self.linear(flat, *self.weight(layer, f"{name}.o"))

    def feed_forward(self, layer: int, x: str, linear: Linear) -> str:
        name = "layer.1.DenseReluDense"
        gate = self.op(
            "FastGelu", [linear(x, *self.weight(layer, f"{name}.wi_0"))], domain=_CONTRIB
        )
        inner = self.op("Mul", [gate, linear(x, *self.weight(layer, f"{name}.wi_1"))])
        return linear(inner, *self.weight(layer, f"{name}.wo"))

    def build(self) -> onnx.ModelProto:
        shape = self.shape
        self.tiling(self.op("Shape", ["ids"]))
        x = self.op("Gather", [self.constant(EMBEDDING, self.tensors[EMBEDDING]), "ids"])
        normed = self.norm(x, *self.weight(0, "layer.0.layer_norm"), shape.epsilon)
        for layer in range(shape.layers - 1):
            added = self.attention(layer, normed)
            normed, x = self.skip_norm(
                x, added, *self.weight(layer, "layer.1.layer_norm"), shape.epsilon
            )
            added = self.feed_forward(layer, normed, self.fast)
            after = self.weight(layer + 1, "layer.0.layer_norm")
            normed, x = self.skip_norm(x, added, *after, shape.epsilon)
        layer = shape.layers - 1
        added = self.attention_first(normed)
        x = self.op("Slice", [x, self.ints(0), self.ints(1), self.ints(0)])
        normed, x = self.skip_norm(
            x, added, *self.weight(layer, "layer.1.layer_norm"), shape.epsilon
        )
        added = self.feed_forward(layer, normed, self.linear)
        normed, _ = self.skip_norm(x, added, FINAL_NORM, self.tensors[FINAL_NORM], shape.epsilon)
        head = self.constant(HEAD, self.tensors[HEAD])
        bias = self.constant(HEAD_BIAS, self.tensors[HEAD_BIAS])
        result = self.op("Gemm", [normed, head, bias], transB=1)
        result = self.op("Reshape", [result, self.ints(2)])
        self.nodes.append(self.onnx.helper.make_node("Identity", [result], ["logits"]))
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        model: onnx.ModelProto = self.model
        model.opset_import.append(helper.make_opsetid("", _OPSET))
        model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
        self.graph.name = "hhem"
        self.graph.node.extend(self.nodes)
        self.graph.input.append(helper.make_tensor_value_info("ids", proto.INT64, ["n"]))
        self.graph.output.append(helper.make_tensor_value_info("logits", proto.FLOAT, [2]))
        return model


def build_graph(checkpoint: Checkpoint, *, int8: bool = False) -> onnx.ModelProto:
    """The graph of a checkpoint; with `int8` most products are of integers (`Quantiser`)."""
    return _EncoderBuilder(checkpoint, int8).build()
