"""Writing an ONNX graph: nodes and constants that get their names by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.models.errors import require

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["CONTRIB", "Net"]

CONTRIB = "com.microsoft"  # ONNX Runtime's own operators


class Net:
    """Nodes and constants in the making; every method adds something and gives its name."""

    def __init__(self, outer: Net | None = None, prefix: str = "") -> None:
        """`outer` is the graph that this one is a body in: it keeps the constants of both."""
        self.onnx = require("onnx")
        self.np = require("numpy")
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
                domain=CONTRIB,
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
