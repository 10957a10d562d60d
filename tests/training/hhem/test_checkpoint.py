"""Reading a checkpoint: what is right is taken whole, what is wrong is named."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ragmeter.scorers.hhem.model import WEIGHTS_NAME, ModelError, split_prompt
from safetensors.numpy import load_file, save_file

from training.hhem.checkpoint import (
    CONFIG,
    PROMPT,
    EncoderShape,
    read_checkpoint,
)

TINY = Path(__file__).parents[2] / "data" / "hhem-tiny"
Q = "t5.transformer.encoder.block.1.layer.0.SelfAttention.q.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (WEIGHTS_NAME, CONFIG):
        shutil.copyfile(TINY / name, tmp_path / name)
    return tmp_path


def configure(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


def test_the_shape_is_read_from_the_tensors(folder: Path) -> None:
    (folder / CONFIG).unlink()
    read = read_checkpoint(folder)
    assert read.shape == EncoderShape(564, 64, 4, 16, 128, 3, 32, 2, 128, 1e-6)
    assert read.prompt == PROMPT
    assert read.tensors.keys() == load_file(TINY / WEIGHTS_NAME).keys()


def test_the_config_of_the_published_checkpoint_which_has_no_sizes_is_enough(folder: Path) -> None:
    config = {"architectures": ["HHEMv2ForSequenceClassification"], "model_type": "HHEMv2Config"}
    (folder / CONFIG).write_text(json.dumps(config))
    assert read_checkpoint(folder).shape == read_checkpoint(TINY).shape


def test_the_published_shape_has_its_published_size() -> None:
    shape = EncoderShape(32128, 768, 12, 64, 2048, 12, 32)
    assert sum(int(np.prod(size)) for size in shape.tensors().values()) == 109_630_082


def test_what_tensors_cannot_show_comes_from_the_config(folder: Path) -> None:
    configure(folder, layer_norm_epsilon=1e-5, relative_attention_max_distance=64)
    shape = read_checkpoint(folder).shape
    assert (shape.epsilon, shape.distance) == (1e-5, 64)


def without(tensors: dict[str, Any]) -> None:
    del tensors[Q]


def without_embedding(tensors: dict[str, Any]) -> None:
    del tensors["t5.transformer.shared.weight"]


def without_all(tensors: dict[str, Any]) -> None:
    tensors.clear()


def with_more(tensors: dict[str, Any]) -> None:
    tensors["t5.transformer.decoder.x"] = np.zeros(1, np.float32)


def with_a_narrow_one(tensors: dict[str, Any]) -> None:
    tensors[Q] = tensors[Q][:, :-1].copy()


def with_a_vector(tensors: dict[str, Any]) -> None:
    tensors["t5.transformer.shared.weight"] = np.zeros(564, np.float32)


def with_half_precision(tensors: dict[str, Any]) -> None:
    tensors[Q] = tensors[Q].astype(np.float16)


def with_nan(tensors: dict[str, Any]) -> None:
    tensors[Q][0, 0] = np.nan


def with_three_labels(tensors: dict[str, Any]) -> None:
    tensors["t5.classifier.weight"] = np.zeros((3, 64), np.float32)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without, f"lacks {Q}"),
        (without_embedding, "lacks t5.transformer.shared.weight"),
        (without_all, "lacks t5.transformer.shared.weight"),
        (with_more, "unknown t5.transformer.decoder.x"),
        (with_a_narrow_one, r"has shape \[64, 63\], expected \[64, 64\]"),
        (with_a_vector, "where a matrix is needed"),
        (with_half_precision, "F16"),
        (with_nan, "not finite"),
        (with_three_labels, "3 labels"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(folder: Path, damage: Any, message: str) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    damage(tensors)
    save_file(tensors, folder / WEIGHTS_NAME)
    with pytest.raises(ModelError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 40) + b"{}",
        struct.pack("<Q", 10) + b"not json!!",
        struct.pack("<Q", 2) + b"{}x",
        (TINY / WEIGHTS_NAME).read_bytes()[:-1],
        (TINY / WEIGHTS_NAME).read_bytes()[:5000],
        (TINY / WEIGHTS_NAME).read_bytes() + b"\0",
    ],
    ids=["empty", "short", "huge header", "no JSON", "too long", "cut by one", "cut", "one more"],
)
def test_a_file_that_is_damaged_is_refused(folder: Path, data: bytes) -> None:
    (folder / WEIGHTS_NAME).write_bytes(data)
    with pytest.raises(ModelError, match=WEIGHTS_NAME):
        read_checkpoint(folder)


def test_a_folder_without_weights_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"training\.hhem fetch"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 65}, "d_model is 65, but the tensors say 64"),
        ({"num_layers": 12}, "num_layers is 12"),
        ({"feed_forward_proj": "relu"}, "feed_forward_proj is 'relu'"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon is 0"),
        ({"layer_norm_epsilon": "1e-6"}, "not a sensible number"),
        ({"relative_attention_max_distance": True}, "not a sensible number"),
        ({"relative_attention_max_distance": 8}, "below 9"),
        ({"prompt": 3}, "prompt is not a text"),
        ({"prompt": "{text1}"}, "once each"),
        ({"prompt": "{text1} {text2} {text2}"}, "once each"),
        ({"prompt": "{text2} {text1}"}, "before"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    folder: Path, change: dict[str, Any], message: str
) -> None:
    configure(folder, **change)
    with pytest.raises(ModelError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize("text", ["[]", "{", "\udcff", "[" * 100_000, " " * (1 << 21)])
def test_a_config_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / CONFIG).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=CONFIG):
        read_checkpoint(folder)


def test_a_prompt_is_split_at_its_texts() -> None:
    assert split_prompt("a{text1}b{text2}c") == ("a", "b", "c")
