"""The graph against a plain float64 forward pass, at other sizes and at the edges of its tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ragmeter.scorers.hhem.model import require_module

from tests.scorers.hhem.t5 import bucket, forward, random_tensors
from tests.tables import each_row
from training.hhem.checkpoint import PROMPT, Checkpoint, EncoderShape
from training.hhem.convert import TILE, bias_table, build_graph

SMALL = EncoderShape(
    vocabulary=50, width=24, heads=3, head=10, inner=20, layers=2, buckets=16, distance=40
)


def session(checkpoint: Checkpoint, int8: bool = False) -> Any:
    data = build_graph(checkpoint, int8=int8).SerializeToString()
    return require_module("onnxruntime").InferenceSession(data, providers=["CPUExecutionProvider"])


def checkpoint(shape: EncoderShape, seed: int = 0) -> Checkpoint:
    return Checkpoint(shape, random_tensors(shape, seed), PROMPT)


@cache
def small() -> tuple[Checkpoint, Any]:
    made = checkpoint(SMALL)
    return made, session(made)


def run(graph: Any, ids: list[int]) -> Any:
    return graph.run(None, {"ids": np.array(ids, np.int64)})[0]


def some_ids(length: int) -> list[int]:
    inner = np.random.default_rng(length).integers(0, SMALL.vocabulary, length)
    found: list[int] = inner.tolist()
    return found


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_any_depth_agrees_with_the_plain_forward_pass(layers: int) -> None:
    made = checkpoint(replace(SMALL, layers=layers))
    ids = some_ids(90)
    assert run(session(made), ids) == pytest.approx(forward(made, ids), abs=2e-5)


@each_row("length", [1, 2, 3, TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 3 * TILE - 2])
def test_any_length_agrees_with_the_plain_forward_pass(length: int) -> None:
    made, graph = small()
    ids = some_ids(length)
    assert run(graph, ids) == pytest.approx(forward(made, ids), abs=2e-5)


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({"epsilon": 1e-2}, 2e-4),
        ({"distance": 20}, 1e-3),
        ({"heads": 5, "head": 6}, 1e-3),
    ],
    ids=["epsilon", "distance", "heads"],
)
def test_the_comparison_sees_a_wrong_constant(change: dict[str, Any], least: float) -> None:
    made = checkpoint(SMALL)
    ids = some_ids(90)
    other = replace(SMALL, **change)
    tensors = dict(made.tensors)
    for key, size in other.tensors().items():
        if tensors[key].shape != size:  # only the table of biases has a column a head
            tensors[key] = np.resize(tensors[key], size)
    wrong = run(session(Checkpoint(other, tensors, PROMPT)), ids)
    assert abs(wrong - forward(made, ids)).max() > least


def test_every_position_counts_also_the_first_whose_id_is_that_of_padding() -> None:
    graph = session(checkpoint(SMALL))
    ids = [0, *some_ids(60)]
    found = run(graph, ids)
    for place in range(len(ids)):
        other = [*ids[:place], (ids[place] + 7) % SMALL.vocabulary, *ids[place + 1 :]]
        assert abs(run(graph, other) - found).max() > 1e-5, place


def test_integer_products_stay_close_also_where_a_token_is_all_zeros() -> None:
    made = checkpoint(SMALL)
    made.tensors["t5.transformer.shared.weight"][5] = 0
    made.tensors["t5.transformer.encoder.block.0.layer.1.DenseReluDense.wi_0.weight"][3] = 0
    ids = [0, 5, *some_ids(300), 5]
    exact, fast = run(session(made), ids), run(session(made, int8=True), ids)
    assert fast == pytest.approx(exact, abs=0.05)
    assert abs(fast - exact).max() > 1e-5


def test_distances_fall_into_the_buckets_of_t5() -> None:
    # by hand: 8 single ones, then 8 to 128 in steps of a factor 2 ** 0.5
    known = {0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -16: 10, -23: 11, -32: 12, -64: 14}
    known |= {-127: 15, -128: 15, 1: 17, 7: 23, 8: 24, 64: 30, 128: 31}
    shape = EncoderShape(1, 1, 1, 1, 1, 1, 32)
    table = bias_table(np.arange(32, dtype=np.float32)[:, None], shape)
    assert {distance: table[0, distance + 128] for distance in known} == known
    assert table[0].tolist() == [bucket(d, 32, 128) for d in range(-128, 129)]
