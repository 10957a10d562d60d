"""`ragmeter model ...` as a user types it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ragmeter.cli.models import model_app
from ragmeter.scorers.hhem import model
from ragmeter.scorers.hhem.model import ModelError, require_module
from typer.testing import CliRunner, Result

from tests.scorers.mini.folders import write_folder
from tests.waiting import PATIENCE
from training.hhem.convert import convert_checkpoint

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "data" / "hhem-tiny"


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        os.dup2(file.fileno(), 0)
    try:
        return CliRunner().invoke(model_app, [str(argument) for argument in arguments])
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    convert_checkpoint(TINY, folder, int8=True)
    return folder


def test_a_folder_without_a_model_is_told_of_both_kinds(tmp_path: Path) -> None:
    result = run("check", tmp_path, "--labels", tmp_path / "none")
    assert result.exit_code == 1
    assert "holds no model: neither hhem.json nor model.json" in " ".join(result.stderr.split())


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_pairs_are_scored_in_order_and_keep_their_other_keys(folder: Path) -> None:
    result = run("score", folder, "--pairs", TINY / "expected.jsonl")
    assert result.exit_code == 0
    expected = [json.loads(line) for line in (TINY / "expected.jsonl").read_text().splitlines()]
    found = lines(result)
    assert len(found) == len(expected) == 20
    for got, want in zip(found, expected, strict=True):
        assert got["score"] == pytest.approx(want["score"], abs=2e-5)
        assert got["logits"] == pytest.approx(want["logits"], abs=2e-4)
        assert {**got, "score": 0, "logits": 0} == {**want, "score": 0, "logits": 0}


def test_the_quantised_graph_is_used_when_asked_for(folder: Path) -> None:
    pair = b'{"premise": "a b", "hypothesis": "b"}'
    (exact,) = lines(run("score", folder, "--pairs", "-", stdin=pair))
    (fast,) = lines(run("score", folder, "--pairs", "-", "--int8", stdin=pair))
    assert exact["score"] != fast["score"]
    assert exact["score"] == pytest.approx(fast["score"], abs=0.15)


BAD = [
    b"{",
    b"[]",
    b"3",
    b'{"premise": "a"}',
    b'{"premise": "a", "hypothesis": null}',
    b'{"premise": ["a"], "hypothesis": "b"}',
    b'{"premise": "a", "hypothesis": "b", "x": NaN}',
    b'{"premise": "\xff", "hypothesis": "b"}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:40].decode(errors="replace"))
def test_a_bad_line_is_named_and_the_others_are_scored(folder: Path, bad: bytes) -> None:
    good = b'{"premise": "a", "hypothesis": "b"}'
    result = run("score", folder, "--pairs", "-", stdin=b"\n".join([good, b"", bad, good]))
    assert result.exit_code == 1
    assert "line 3:" in result.stderr
    first, second = lines(result)
    assert first == second


def test_odd_texts_are_scored_and_given_back(folder: Path) -> None:
    pairs = [
        {"premise": "", "hypothesis": ""},
        {"premise": "{text2} {text1} {x}", "hypothesis": "{text1}"},
        {"premise": "\ud800 half a character", "hypothesis": "\udfff"},
        {"premise": "\0\x1b[31m\u202e", "hypothesis": "<pad></s>"},
    ]
    text = "".join(json.dumps(pair) + "\n" for pair in pairs).encode()
    result = run("score", folder, "--pairs", "-", stdin=b"\xef\xbb\xbf" + text)
    assert result.exit_code == 0
    found = lines(result)
    assert [{k: pair[k] for k in ("premise", "hypothesis")} for pair in found] == pairs
    assert all(0 < pair["score"] < 1 for pair in found)


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "nowhere", "--pairs", "x"),
        ("score", str(TINY), "--pairs", "x"),
        ("check", "nowhere", "--labels", "x"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_one_message_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("ragmeter: ")
    assert "Traceback" not in result.stderr


def test_a_file_of_pairs_that_is_missing_is_named(folder: Path) -> None:
    result = run("score", folder, "--pairs", "nowhere.jsonl")
    assert result.exit_code == 1
    assert "nowhere.jsonl" in result.stderr


def test_without_the_extra_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(model, "import_module", missing)
    with pytest.raises(ModelError, match=r"onnxruntime.*pip install '\.\[model\]'"):
        require_module("onnxruntime")
    result = run("score", folder, "--pairs", TINY / "expected.jsonl")
    assert result.exit_code == 1
    assert ".[model]" in result.stderr


def test_the_modules_load_nothing_of_the_extra_before_it_is_used() -> None:
    code = (
        "import sys, ragmeter.cli.models, ragmeter.scorers.hhem.model;"
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == b"[]"


def labelled(path: Path) -> Path:
    passages = [{"id": "a", "text": "The museum opened in 1902 in Paris. It is free on Sundays."}]
    answers = {
        "the museum opened in 1902": True,
        "it is free on sundays": True,
        "the museum opened in 1950": False,
        "the museum opened in rome": False,
    }
    rows = [
        {"trace_id": str(n), "passages": passages, "answer": text, "grounded": yes, "task": "QA"}
        for n, (text, yes) in enumerate([*answers.items()] * 3)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n[]\n")
    return path


@pytest.mark.parametrize("kind", ["pairs", "tokens"])
def test_the_agreement_of_a_model_with_people_is_printed(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    own = write_folder(tmp_path / "own", kind, pooling={"worst": 1})
    result = run("check", own, "--labels", labelled(tmp_path / "labels.jsonl"))
    assert result.exit_code == 0, result.output
    reported = capfd.readouterr().out
    assert "12 labelled traces" in reported
    tiny = next(line for line in reported.splitlines() if "(tiny)" in line)
    assert tiny.split()[:4] == ["grounding", "(tiny)", "12", "0.50"]
    assert "1.00 [0.73, 1.00]" in tiny
    assert any("(builtin)" in line for line in reported.splitlines())


def test_the_embedded_model_can_be_checked_and_labels_are_needed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run("check", "mini", "--labels", labelled(tmp_path / "labels.jsonl"))
    reported = capfd.readouterr().out
    assert "1.00 [" in next(line for line in reported.splitlines() if "(mini)" in line)
    (tmp_path / "none.jsonl").write_text('{"trace_id": "a"}\n')
    result = run("check", "mini", "--labels", tmp_path / "none.jsonl")
    assert result.exit_code == 2
    assert "no trace has `grounded`" in result.stderr
    assert run("check", "mini").exit_code == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{no", "invalid_json: item: Invalid JSON"),
        (b'{"grounded": "\xff"}', "invalid_json: item: not UTF-8: byte 0xff"),
        (
            b'{"grounded": true, "answer": []}',
            "invalid_trace: answer: Input should be a valid string",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_broken_line_of_labels_is_named(
    tmp_path: Path, line: bytes, why: str, packed: bool
) -> None:
    path = labelled(tmp_path / "labels.jsonl")
    data = b'\n{"trace_id": "a"}\n' + line + b"\n" + path.read_bytes()
    path.write_bytes(gzip.compress(data) if packed else data)
    result = run("check", "mini", "--labels", path)
    assert result.exit_code == 2
    assert f"labels.jsonl, line 3: {why}" in " ".join(result.stderr.split())


def test_the_agreement_about_relevance_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = {"The museum in Paris opened in 1902.": True, "It rained on the sea all week.": False}
    rows = [
        {
            "query": "When did the museum open?",
            "passages": [{"id": "a", "text": text}],
            "answer": "I don't know.",
            "relevant": yes,
        }
        for text, yes in texts.items()
        for _ in range(5)
    ]
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert run("check", "mini", "--labels", path).exit_code == 0
    reported = capfd.readouterr().out
    assert "10 labelled traces" in reported
    mini = next(line for line in reported.splitlines() if "(mini)" in line)
    assert mini.split()[:4] == ["relevance", "(mini)", "10", "0.50"]
    assert "1.00 [" in mini


def test_a_model_that_scores_no_trace_fails_the_check(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = write_folder(tmp_path / "own", "pairs", label=7)
    result = run("check", own, "--labels", labelled(tmp_path / "labels.jsonl"))
    assert result.exit_code == 1
    assert "scored none of the 12 labelled traces" in result.stderr
