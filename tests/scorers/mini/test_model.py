"""Folders of models: what a manifest may say, and what is read and scored."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.scorers.hhem.model import ModelError
from ragmeter.scorers.mini.model import (
    BUNDLED_FOLDER,
    AnswerRows,
    PairModel,
    TokenModel,
    cut_evenly,
    load_model,
)

from tests.scorers.mini.folders import write_folder

PASSAGE = "the museum opened in 1902 in paris"


def token_model(folder: Path, **manifest: Any) -> TokenModel:
    model = load_model(write_folder(folder, "tokens", **manifest))
    assert isinstance(model, TokenModel)
    return model


def score_rows(model: TokenModel, prepared: AnswerRows) -> list[int]:
    """Score what is needed; the number of rows of each turn."""
    turns = []
    while rows := prepared.next_rows():
        turns.append(len(rows))
        for row in rows:
            model.score_window(prepared, *row)
    return turns


def read(model: TokenModel, passages: list[str], answer: str) -> tuple[float, list[str]]:
    """The risk of an answer, and its words that are more likely unsupported than not."""
    prepared = model.read("is it free", passages, answer)
    score_rows(model, prepared)
    risk, tokens = prepared.conclude()
    return risk, [answer[t.start : t.end] for t in tokens if t.risk > 0]


@pytest.mark.parametrize("first", ["passages", "answer"])
@pytest.mark.parametrize("query", [0, 8])
def test_a_model_of_tokens_says_which_words_nothing_supports(
    tmp_path: Path, first: str, query: int
) -> None:
    model = token_model(tmp_path, first=first, query=query)
    assert read(model, [PASSAGE], "the museum opened in 1902") == (-4, [])
    risk, words = read(model, [PASSAGE], "the museum opened in 1950 in rome")
    assert words == ["1950", "rome"]
    assert risk == pytest.approx((2 * 4 - 4 * 4) / 6)  # of the six worst


def test_an_answer_of_many_chunks_is_read_to_its_end(tmp_path: Path) -> None:
    model = token_model(tmp_path, chunk=16, window=64, overlap=8, windows=2)
    answer = " ".join(["the museum is free on sundays"] * 40) + " in rome"
    prepared = model.read("", [PASSAGE] * 40, answer)
    assert score_rows(model, prepared) == [len(prepared.chunks)] == [16]  # one window each
    assert read(model, [PASSAGE] * 40, answer)[1] == ["rome"]


def test_the_windows_that_share_most_words_are_read(tmp_path: Path) -> None:
    model = token_model(tmp_path, window=64, chunk=16, overlap=8, windows=1)
    passages = ["every day it is free "] * 30 + [PASSAGE] + ["on sundays it is free "] * 30
    prepared = model.read("", passages, "the museum opened in 1902")
    ((_, window),) = prepared.next_rows()
    at = len(" ".join(passages[:30]).split())
    assert window[0] <= at < at + 7 <= window[1]


@pytest.mark.parametrize(("enough", "turns"), [(4.0, [1]), (4.1, [1, 1, 1])])
def test_no_further_window_is_read_where_the_first_says_enough(
    tmp_path: Path, enough: float, turns: list[int]
) -> None:
    model = token_model(tmp_path, window=64, chunk=16, overlap=8, windows=3, enough=enough)
    passages = ["every day it is free "] * 60
    prepared = model.read("", passages, "it is free every day")
    assert score_rows(model, prepared) == turns  # each token has a support of 4
    doubted = model.read("", passages, "it is free in rome")
    assert score_rows(model, doubted) == [1, 1, 1]


@given(st.integers(0, 3000), st.integers(20, 400), st.integers(0, 15))
def test_windows_hold_everything_and_overlap(length: int, room: int, overlap: int) -> None:
    windows = cut_evenly(length, room, overlap)
    assert windows[0][0] == 0
    assert windows[-1][1] == length
    assert all(end - start <= room for start, end in windows)
    for (_, end), (start, _) in itertools.pairwise(windows):
        assert end - start >= min(overlap, 1)


@pytest.mark.parametrize("first", ["passages", "answer"])
def test_a_model_of_pairs_gives_a_probability(tmp_path: Path, first: str) -> None:
    model = load_model(
        write_folder(tmp_path, "pairs", first=first, calibration={"model": 0.5, "intercept": 1})
    )
    assert isinstance(model, PairModel)
    model.open()
    assert model.score(PASSAGE, "it opened in 1902") == pytest.approx(0.9526, abs=1e-4)
    assert model.score(PASSAGE, "it opened in rome") == pytest.approx(0.2689, abs=1e-4)
    assert (model.count("it is free"), len(model.encode("it is", "free"))) == (3, 6)


def test_a_row_of_a_pair_is_never_longer_than_the_model_takes(tmp_path: Path) -> None:
    model = load_model(write_folder(tmp_path, "pairs", window=400))
    assert isinstance(model, PairModel)
    assert len(model.encode("it is " * 300, "free")) == 604  # what a window is planned by
    assert model.score("it is " * 300 + "rome", "free") > 0.9  # rome is cut off
    assert model.score("it is " * 100 + "rome", "free") < 0.1


def test_the_label_says_which_side_means_supported(tmp_path: Path) -> None:
    model = load_model(write_folder(tmp_path, "pairs", label=0))
    assert isinstance(model, PairModel)
    assert model.score(PASSAGE, "rome") > 0.9
    model = load_model(write_folder(tmp_path, "pairs", label=7))
    assert isinstance(model, PairModel)
    with pytest.raises(ModelError, match="no label 7"):
        model.score(PASSAGE, "rome")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "words"}, "kind"),
        ({"name": "My model"}, "name"),
        ({"name": "judge"}, "choose another name"),
        ({"name": "mini"}, "choose another name"),
        ({"speed": 9}, "speed"),
        ({"window": 100}, "no room"),
        ({"sha256": {"model.onnx": "00"}}, "by its hash"),
        ({"graph": "other.onnx"}, "No such file"),
        ({"begin": "<s>"}, "no token"),
    ],
)
def test_a_manifest_that_cannot_work_is_named(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_folder(tmp_path, "tokens")
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path).open()


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.json"):
        load_model(tmp_path)
    write_folder(tmp_path, "pairs")
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        load_model(tmp_path).open()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be loaded"):
        load_model(tmp_path).open()
    (tmp_path / "model.json").write_text("[")
    with pytest.raises(ModelError, match=r"model\.json"):
        load_model(tmp_path)


def test_the_fingerprint_is_of_everything_that_decides_a_score(tmp_path: Path) -> None:
    first = load_model(write_folder(tmp_path / "a", "pairs")).fingerprint
    assert load_model(write_folder(tmp_path / "b", "pairs")).fingerprint == first
    assert load_model(write_folder(tmp_path / "c", "pairs", label=0)).fingerprint != first
    with (tmp_path / "a" / "tokenizer.json").open("a") as file:
        file.write(" ")
    assert load_model(tmp_path / "a").fingerprint != first


def test_the_bundled_model_marks_what_its_passages_do_not_say() -> None:
    model = load_model(BUNDLED_FOLDER)
    assert isinstance(model, TokenModel)
    passages = [
        "The Aldermoor museum opened in 1902. It is free on Sundays.",
        "The museum was closed for repairs from March to June 2019.",
    ]
    question = "When did the museum open?"

    def risk(answer: str) -> float:
        prepared = model.read(question, passages, answer)
        score_rows(model, prepared)
        return prepared.conclude()[0]

    true = risk("The museum opened in 1902.")
    assert true < -1
    assert risk("The museum opened in 1950 and was paid for by Queen Victoria.") > true + 2
