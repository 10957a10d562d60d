"""Tiny models in folders, one of each kind, whose verdicts are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [
    "the",
    "museum",
    "opened",
    "closed",
    "in",
    "1902",
    "1950",
    "paris",
    "rome",
    "it",
    "is",
    "free",
    "on",
    "sundays",
    "every",
    "day",
]
SPECIAL = ["[UNK]", "[CLS]", "[SEP]"]
# What nothing supports, says the model of tokens; the model of pairs, that nothing supports it.
BAD = ("1950", "rome", "closed")


def write_folder(folder: Path, kind: str, **manifest: Any) -> Path:
    """A model that gives each bad word -4, and any other token 4, as log odds of support; one of
    pairs gives the lowest of its tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.array([[0, -4 if word in BAD else 4] for word in vocabulary], np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["labels"])]
    constants = [numpy_helper.from_array(table, "table")]
    if kind == "pairs":
        constants.append(numpy_helper.from_array(np.array([1]), "axis"))
        nodes.append(helper.make_node("ReduceMin", ["labels", "axis"], ["logits"], keepdims=0))
    output = "logits" if kind == "pairs" else "labels"
    shape: list[str | int | None] = ["rows", 2] if kind == "pairs" else ["rows", "tokens", 2]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", "tokens"])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.save(model, folder / "model.onnx")
    content = {"name": "tiny", "kind": kind, **manifest}
    (folder / "model.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
