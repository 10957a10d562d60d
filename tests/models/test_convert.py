"""A conversion is whole or it has not been; files of two are never used together."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from agent.models import convert as module
from agent.models.checkpoint import CONFIG, WEIGHTS
from agent.models.convert import convert
from agent.models.errors import ModelError
from agent.models.hhem import Hhem
from agent.models.manifest import FP32, INT8, MANIFEST, TOKENIZER

TINY = Path(__file__).parent.parent / "data" / "hhem-tiny"
SOURCE = (WEIGHTS, CONFIG, TOKENIZER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in SOURCE:
        shutil.copyfile(TINY / name, tmp_path / name)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def other_weights(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["t5.classifier.bias"] += 1.0
    save_file(tensors, folder / WEIGHTS)


def test_what_is_written_is_all_that_scoring_needs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model"
    convert(folder, out, int8=True)
    assert files(out) == {FP32, INT8, MANIFEST, TOKENIZER}
    for name in SOURCE:
        (folder / name).unlink()
    assert 0 < Hhem(out).score("a", "b") < 1
    assert 0 < Hhem(out, int8=True).score("a", "b") < 1


def test_the_same_source_gives_the_same_bytes_and_fingerprint(folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    convert(folder, first, int8=True)
    convert(folder, second, int8=True)
    for name in files(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert Hhem(first).fingerprint == Hhem(second).fingerprint


def test_whatever_moves_scores_changes_the_fingerprint(folder: Path) -> None:
    convert(folder, int8=True)
    seen = {Hhem(folder).fingerprint, Hhem(folder, int8=True).fingerprint}
    config = json.loads((folder / CONFIG).read_text())
    for change in ({"prompt": "<pad> {text1} / {text2}"}, {"layer_norm_epsilon": 1e-5}):
        (folder / CONFIG).write_text(json.dumps({**config, **change}))
        convert(folder)
        seen.add(Hhem(folder).fingerprint)
    other_weights(folder)
    convert(folder)
    seen.add(Hhem(folder).fingerprint)
    tokenizer = json.loads((folder / TOKENIZER).read_text())
    tokenizer["model"]["vocab"][9][1] -= 1.0
    (folder / TOKENIZER).write_text(json.dumps(tokenizer))
    convert(folder)
    seen.add(Hhem(folder).fingerprint)
    assert len(seen) == 6
    assert all(len(one) == 12 and int(one, 16) >= 0 for one in seen)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", range(1, 4))
def test_a_conversion_that_breaks_off_leaves_the_earlier_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: int
) -> None:
    convert(folder, int8=True)
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    score = Hhem(folder).score("a", "b")
    other_weights(folder)
    before[WEIGHTS] = (folder / WEIGHTS).read_bytes()
    write, calls = module._write, []

    def breaks_off(path: Path, data: bytes) -> None:
        calls.append(path)
        write(path, data[: len(data) // 2] if len(calls) == at else data)
        if len(calls) == at:
            raise error

    monkeypatch.setattr(module, "_write", breaks_off)
    with pytest.raises((ModelError, KeyboardInterrupt)):
        convert(folder, int8=True)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert Hhem(folder).score("a", "b") == score


def test_graphs_of_two_conversions_are_not_mixed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(folder)
    other_weights(folder)
    replace = os.replace

    def killed(source: Any, target: Any) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        convert(folder)
    monkeypatch.undo()
    with pytest.raises(ModelError, match="not of the conversion"):
        Hhem(folder)
    convert(folder)
    Hhem(folder)


def test_what_a_killed_conversion_left_is_removed(folder: Path) -> None:
    (folder / module.STAGING).mkdir()
    (folder / module.STAGING / FP32).write_bytes(b"half")
    convert(folder)
    assert module.STAGING not in files(folder)


def test_a_quantised_graph_of_an_earlier_conversion_does_not_stay(folder: Path) -> None:
    convert(folder, int8=True)
    convert(folder)
    assert INT8 not in files(folder)
    with pytest.raises(ModelError, match="--int8"):
        Hhem(folder, int8=True)


@pytest.mark.parametrize("name", [FP32, MANIFEST, TOKENIZER])
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    convert(folder, tmp_path / "out")
    folder = tmp_path / "out"
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=name):
        Hhem(folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        Hhem(folder)


@pytest.mark.parametrize(
    "change",
    [{"graph": 0}, {"graph": "1"}, {"int8": 1}, {"more": 1}, {"prompt": None}, {"prompt": "x"}],
    ids=str,
)
def test_a_manifest_of_another_kind_is_refused(folder: Path, change: dict[str, Any]) -> None:
    convert(folder)
    found = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**found, **change}))
    with pytest.raises(ModelError):
        Hhem(folder)


def test_a_folder_that_is_not_converted_says_so(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not converted: `ragmeter model convert"):
        Hhem(folder)
    with pytest.raises(ModelError, match="no converted model"):
        Hhem(tmp_path / "nowhere")


def test_a_tokenizer_that_does_not_fit_is_refused(folder: Path) -> None:
    tokenizer = json.loads((folder / TOKENIZER).read_text())
    larger = json.loads(json.dumps(tokenizer))
    larger["model"]["vocab"].append(["zzzzzz", -20.0])
    (folder / TOKENIZER).write_text(json.dumps(larger))
    with pytest.raises(ModelError, match="id 564, but the model ends at 563"):
        convert(folder)
    (folder / TOKENIZER).write_text("{}")
    with pytest.raises(ModelError, match="not a tokenizer"):
        convert(folder)
    (folder / TOKENIZER).unlink()
    with pytest.raises(ModelError, match=TOKENIZER):
        convert(folder)


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ModelError, match="file cannot be written"):
        convert(folder, folder / "file")
