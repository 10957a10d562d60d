"""The fast mode: products of 8-bit integers.

Weights are int8 with one scale an output column. Activations are quantised as they come, with one
scale a token: one scale for the whole text, as in the usual dynamic quantisation, leaves the small
tokens of a text few steps (on random weights: twice the error in the same time). The embedding, the
norms, the attention itself, the last block and the classifier stay float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.models.net import CONTRIB, Net

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Quantiser"]

STEPS = 127  # of int8 to either side of zero; -128 is not used
MIDDLE = 128  # zero of the uint8 activations: the fast kernels take unsigned by signed
SMALLEST = 1e-20  # scale of a token that is all zeros


class Quantiser:
    """Puts integer products into a net; what several products read is quantised once."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.done: dict[str, tuple[str, str]] = {}

    def activations(self, x: str) -> tuple[str, str]:
        """x [n, k] as uint8 [n, k], and its scales [n, 1]."""
        if x not in self.done:
            net, np = self.net, self.net.np
            step = net.constant("step", np.array(1 / STEPS, np.float32))
            smallest = net.constant("smallest", np.array(SMALLEST, np.float32))
            middle = net.constant("middle_1", np.array([MIDDLE], np.uint8))
            largest = net.op("ReduceMax", [net.op("Abs", [x]), net.ints(1)], keepdims=0)
            scale = net.op("Max", [net.op("Mul", [largest, step]), smallest])
            zeros = net.op("Expand", [middle, net.op("Shape", [scale])])
            whole = net.op("QuantizeLinear", [x, scale, zeros], axis=0)
            self.done[x] = whole, net.op("Unsqueeze", [scale, net.ints(1)])
        return self.done[x]

    def linear(self, x: str, name: str, weight: NDArray[np.float32]) -> str:
        """About x [n, in] times the transpose of `weight` [out, in]."""
        net, np = self.net, self.net.np
        scale = np.abs(weight).max(axis=1) / np.float32(STEPS)
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
                net.constant("middle", np.array(MIDDLE, np.uint8)),
            ],
            domain=CONTRIB,
        )
        return net.op("Mul", [product, scales])
