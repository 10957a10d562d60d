"""A conversion is whole or it has not been; files of two are never used together."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from ragmeter.scorers.hhem.model import (
    FP32_NAME,
    INT8_NAME,
    MANIFEST_NAME,
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    HhemModel,
    ModelError,
)
from safetensors.numpy import load_file, save_file

from training.hhem import convert as module
from training.hhem.checkpoint import CONFIG
from training.hhem.convert import convert_checkpoint

TINY = Path(__file__).parents[2] / "data" / "hhem-tiny"
SOURCE = (WEIGHTS_NAME, CONFIG, TOKENIZER_NAME)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in SOURCE:
        shutil.copyfile(TINY / name, tmp_path / name)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def other_weights(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    tensors["t5.classifier.bias"] += 1.0
    save_file(tensors, folder / WEIGHTS_NAME)


def test_what_is_written_is_all_that_scoring_needs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model"
    convert_checkpoint(folder, out, int8=True)
    assert files(out) == {FP32_NAME, INT8_NAME, MANIFEST_NAME, TOKENIZER_NAME}
    for name in SOURCE:
        (folder / name).unlink()
    assert 0 < HhemModel(out).score("a", "b") < 1
    assert 0 < HhemModel(out, int8=True).score("a", "b") < 1


def test_the_same_source_gives_the_same_bytes_and_fingerprint(folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    convert_checkpoint(folder, first, int8=True)
    convert_checkpoint(folder, second, int8=True)
    for name in files(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert HhemModel(first).fingerprint == HhemModel(second).fingerprint


def test_whatever_moves_scores_changes_the_fingerprint(folder: Path) -> None:
    convert_checkpoint(folder, folder, int8=True)
    seen = {HhemModel(folder).fingerprint, HhemModel(folder, int8=True).fingerprint}
    config = json.loads((folder / CONFIG).read_text())
    for change in ({"prompt": "<pad> {text1} / {text2}"}, {"layer_norm_epsilon": 1e-5}):
        (folder / CONFIG).write_text(json.dumps({**config, **change}))
        convert_checkpoint(folder, folder)
        seen.add(HhemModel(folder).fingerprint)
    other_weights(folder)
    convert_checkpoint(folder, folder)
    seen.add(HhemModel(folder).fingerprint)
    tokenizer = json.loads((folder / TOKENIZER_NAME).read_text())
    tokenizer["model"]["vocab"][9][1] -= 1.0
    (folder / TOKENIZER_NAME).write_text(json.dumps(tokenizer))
    convert_checkpoint(folder, folder)
    seen.add(HhemModel(folder).fingerprint)
    assert len(seen) == 6
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in seen)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(1, 4))
def test_a_conversion_that_breaks_off_leaves_the_earlier_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: int
) -> None:
    convert_checkpoint(folder, folder, int8=True)
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    score = HhemModel(folder).score("a", "b")
    other_weights(folder)
    before[WEIGHTS_NAME] = (folder / WEIGHTS_NAME).read_bytes()
    write = module._write_file
    calls = []

    def breaks_off(path: Path, data: bytes) -> None:
        calls.append(path)
        write(path, data[: len(data) // 2] if len(calls) == at else data)
        if len(calls) == at:
            raise error

    monkeypatch.setattr(module, "_write_file", breaks_off)
    with pytest.raises((ModelError, KeyboardInterrupt)):
        convert_checkpoint(folder, folder, int8=True)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert HhemModel(folder).score("a", "b") == score


def test_graphs_of_two_conversions_are_not_mixed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_checkpoint(folder, folder)
    other_weights(folder)
    replace = os.replace

    def killed(source: Any, target: Any) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(folder, folder)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="not of the conversion"):
        HhemModel(folder)
    convert_checkpoint(folder, folder)
    HhemModel(folder)


def test_what_a_killed_conversion_left_is_removed(folder: Path) -> None:
    (folder / module.STAGING).mkdir()
    (folder / module.STAGING / FP32_NAME).write_bytes(b"half")
    convert_checkpoint(folder, folder)
    assert module.STAGING not in files(folder)


def test_a_quantised_graph_of_an_earlier_conversion_does_not_stay(folder: Path) -> None:
    convert_checkpoint(folder, folder, int8=True)
    convert_checkpoint(folder, folder)
    assert INT8_NAME not in files(folder)
    with pytest.raises(ModelError, match="--int8"):
        HhemModel(folder, int8=True)


@pytest.mark.parametrize("name", [FP32_NAME, MANIFEST_NAME, TOKENIZER_NAME])
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    convert_checkpoint(folder, tmp_path / "out")
    folder = tmp_path / "out"
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=name):
        HhemModel(folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        HhemModel(folder)


@pytest.mark.parametrize(
    "change",
    [{"graph": 0}, {"graph": "1"}, {"int8": 1}, {"more": 1}, {"prompt": None}, {"prompt": "x"}],
    ids=str,
)
def test_a_manifest_of_another_kind_is_refused(folder: Path, change: dict[str, Any]) -> None:
    convert_checkpoint(folder, folder)
    found = json.loads((folder / MANIFEST_NAME).read_text())
    (folder / MANIFEST_NAME).write_text(json.dumps({**found, **change}))
    with pytest.raises(ModelError):
        HhemModel(folder)


def test_a_folder_that_is_not_converted_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not converted: `python -m training\.hhem convert"):
        HhemModel(folder)
    with pytest.raises(ModelError, match="no converted model: no such folder"):
        HhemModel(tmp_path / "nowhere")


def test_a_tokenizer_that_does_not_fit_is_refused(folder: Path) -> None:
    tokenizer = json.loads((folder / TOKENIZER_NAME).read_text())
    larger = json.loads(json.dumps(tokenizer))
    larger["model"]["vocab"].append(["zzzzzz", -20.0])
    (folder / TOKENIZER_NAME).write_text(json.dumps(larger))
    with pytest.raises(ModelError, match="id 564, but the model ends at 563"):
        convert_checkpoint(folder, folder)
    (folder / TOKENIZER_NAME).write_text("{}")
    with pytest.raises(ModelError, match="not a tokenizer"):
        convert_checkpoint(folder, folder)
    (folder / TOKENIZER_NAME).unlink()
    with pytest.raises(ModelError, match=TOKENIZER_NAME):
        convert_checkpoint(folder, folder)


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ModelError, match="file cannot be written"):
        convert_checkpoint(folder, folder / "file")
