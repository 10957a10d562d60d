"""`model check`: right scores pass, others fail, and another model is called one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ragmeter.scorers.hhem.model import TOKENIZER_NAME, HhemModel, sha256_of

from training.hhem import convert as module
from training.hhem.convert import (
    check_conversion,
    convert_checkpoint,
    format_check,
)
from training.hhem.download import PUBLISHED_PAIRS, TOKENIZER_FILE, WEIGHTS_FILE

TINY = Path(__file__).parents[2] / "data" / "hhem-tiny"


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, shift: float) -> None:
    """Let the small model be the published one, with its own scores moved by `shift`."""
    model = HhemModel(folder)
    pairs = [
        replace(p, score=model.score(p.premise, p.hypothesis) + shift) for p in PUBLISHED_PAIRS
    ]
    weights = replace(WEIGHTS_FILE, sha256=model.manifest.weights_sha256)
    tokenizer = replace(TOKENIZER_FILE, sha256=sha256_of(folder / TOKENIZER_NAME))
    monkeypatch.setattr(module, "PUBLISHED_PAIRS", pairs)
    monkeypatch.setattr(module, "WEIGHTS_FILE", weights)
    monkeypatch.setattr(module, "TOKENIZER_FILE", tokenizer)


def test_another_model_does_not_pass_and_is_called_one(tmp_path: Path) -> None:
    convert_checkpoint(TINY, tmp_path)
    result = check_conversion(tmp_path)
    assert not result.passed
    text = "\n".join(format_check(result))
    assert "not the published weights" in text
    assert all(f"{pair.score:.4f}" in text for pair in PUBLISHED_PAIRS)
    assert "int8" not in text


@pytest.mark.parametrize(("shift", "passed"), [(0, True), (9e-5, True), (2e-4, False)])
def test_the_published_scores_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float, passed: bool
) -> None:
    convert_checkpoint(TINY, tmp_path)
    pretend(monkeypatch, tmp_path, shift)
    result = check_conversion(tmp_path)
    assert result.passed == passed
    assert result.off == pytest.approx(shift, abs=1e-9)
    assert ("as published" in list(format_check(result))[-1]) == passed


def test_the_error_of_the_fast_mode_is_told_and_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_checkpoint(TINY, tmp_path, int8=True)
    pretend(monkeypatch, tmp_path, 0)
    result = check_conversion(tmp_path)
    assert result.passed
    exact, fast = HhemModel(tmp_path), HhemModel(tmp_path, int8=True)
    errors = result.int8_errors()
    assert len(errors) == 2 * len(PUBLISHED_PAIRS)
    for row, error in zip(result.rows[:7], errors, strict=False):
        pair = (row.pair.premise, row.pair.hypothesis)
        assert error == abs(exact.score(*pair) - fast.score(*pair))
    assert f"{max(errors):.4f} from fp32" in list(format_check(result))[-1]
