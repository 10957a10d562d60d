"""Makes the folder of the embedded grounding model from its trained weights.

    python -m training.convert WEIGHTS.safetensors tokenizer.json [--out DIR]

Writes the graph with 8-bit weights, the tokenizer, and the hashes of both into `model.json`, whose
other keys stay. The graph is a BERT encoder with one more embedding for `match_flags`; it has no
mask, since rows are scored one by one, and computes the last layer for the places in `read` alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from ragmeter.scorers.mini.model import BUNDLED_FOLDER, MANIFEST_NAME
from safetensors.numpy import load_file

HEADS = 12
FUSED = "com.microsoft"  # attention in one operator: half of the time of the separate ones


class Graph:
    """Collects nodes and weights."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.weights = {name: value.astype(np.float32) for name, value in weights.items()}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def const(self, name: str, value: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names if outputs > 1 else names[0]

    def linear(self, x: str, name: str) -> str:
        product = self.op("MatMul", x, self.const(f"{name}.w", self.weights[f"{name}.weight"].T))
        return str(self.op("Add", product, self.const(f"{name}.b", self.weights[f"{name}.bias"])))

    def norm(self, x: str, name: str) -> str:
        gain = self.const(f"{name}.g", self.weights[f"{name}.weight"])
        bias = self.const(f"{name}.b", self.weights[f"{name}.bias"])
        return str(self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=1e-12))

    def embedding(self, name: str, ids: str) -> str:
        return str(self.op("Gather", self.const(name, self.weights[f"{name}.weight"]), ids))


def build(weights: dict[str, Any]) -> Any:
    """The graph with 32-bit weights."""
    graph = Graph(weights)
    op, const = graph.op, graph.const
    base = "bert.embeddings."
    length = op("Gather", op("Shape", "input_ids"), const("one", np.array([1])))
    places = op(
        "Slice",
        const("positions", graph.weights[f"{base}position_embeddings.weight"]),
        const("zero", np.array([0])),
        length,
        const("axis", np.array([0])),
    )
    x = places
    for name, ids in (
        (f"{base}token_type_embeddings", "token_type_ids"),
        ("flag", "match_flags"),
        (f"{base}word_embeddings", "input_ids"),
    ):
        x = op("Add", graph.embedding(name, ids), x)
    x = graph.norm(x, f"{base}LayerNorm")
    layers = 1 + max(int(k.split(".")[3]) for k in weights if k.startswith("bert.encoder.layer."))
    for layer in range(layers):
        name = f"bert.encoder.layer.{layer}"
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        joined = np.concatenate([graph.weights[f"{part}.weight"] for part in parts])
        biases = np.concatenate([graph.weights[f"{part}.bias"] for part in parts])
        product = op("MatMul", x, const(f"{name}.qkv", joined.T))
        qkv = op("Split", product, outputs=3, axis=-1, num_outputs=3)
        if layer == layers - 1:
            x, qkv[0] = (op("Gather", t, "read", axis=1) for t in (x, qkv[0]))
        bias = const(f"{name}.qkv.b", biases)
        mixed = op("MultiHeadAttention", *qkv, bias, num_heads=HEADS, domain=FUSED)
        mixed = graph.linear(mixed, f"{name}.attention.output.dense")
        x = graph.norm(op("Add", x, mixed), f"{name}.attention.output.LayerNorm")
        wide = op("Gelu", graph.linear(x, f"{name}.intermediate.dense"))
        narrow = graph.linear(wide, f"{name}.output.dense")
        x = graph.norm(op("Add", x, narrow), f"{name}.output.LayerNorm")
    last = const("last", np.array([-1]))
    first = op("Gather", x, const("first", np.array(0)), axis=1)
    window = graph.linear(op("Gelu", graph.linear(first, "clsh.0")), "clsh.2")
    for value, name in ((graph.linear(x, "tokh"), "token_support"), (window, "window_support")):
        graph.nodes.append(helper.make_node("Squeeze", [value, last], [name]))
    inputs = {name: ["rows", "tokens"] for name in ("input_ids", "token_type_ids", "match_flags")}
    outputs = {"token_support": ["rows", "places"], "window_support": ["rows"]}
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "grounding",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, shape)
                for name, shape in {**inputs, "read": ["places"]}.items()
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in outputs.items()
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)],
    )
    model.ir_version = 9
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--out", type=Path, default=BUNDLED_FOLDER)
    parser.add_argument("--fp32", action="store_true", help="keep 32-bit weights, to compare")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    graph = options.out / "model.onnx"
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "fp32.onnx"
        onnx.save(build(load_file(options.weights)), whole)
        if options.fp32:
            shutil.copyfile(whole, graph)
        else:
            quantize_dynamic(
                whole,
                graph,
                weight_type=QuantType.QInt8,
                per_channel=True,
                # the type of what comes out of the fused operator, which is not inferred
                extra_options={"DefaultTensorType": TensorProto.FLOAT},
            )
    shutil.copyfile(options.tokenizer, options.out / "tokenizer.json")
    path = options.out / MANIFEST_NAME
    manifest: dict[str, Any] = {"name": "mini", "kind": "tokens"}
    if path.exists():
        manifest = json.loads(path.read_text())
    hashes = manifest["sha256"] = {
        name: hashlib.sha256((options.out / name).read_bytes()).hexdigest()
        for name in ("model.onnx", "tokenizer.json")
    }
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"{graph}: {graph.stat().st_size} bytes", *hashes.values())


if __name__ == "__main__":
    main()
