"""The notebook of the examples runs, and shows what it gives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.notebook import NOTEBOOK, code_cells
from tests.real import require_module


def shown(outputs: list[dict[str, Any]]) -> tuple[list[str], list[float], int]:
    """Words and numbers that are printed, and how many images there are."""
    text = "".join("".join(one.get("text", ())) for one in outputs)
    words = re.findall(r"[A-Za-z_]\w*", text)
    numbers = [float(one) for one in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", text)]
    return words, numbers, sum("image/png" in one.get("data", {}) for one in outputs)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_gives(tmp_path: Path) -> None:
    require_module("matplotlib")
    copy = tmp_path / "notebook.ipynb"
    # A process of its own: here the embedded model is left out.
    environ = {key: text for key, text in os.environ.items() if not key.startswith("RAGMETER_")}
    subprocess.run(
        [sys.executable, "-m", "tests.notebook", copy],
        cwd=NOTEBOOK.parents[1],
        env=environ,
        check=True,
    )
    kept, made = (code_cells(json.loads(one.read_text("utf-8"))) for one in (NOTEBOOK, copy))
    images = 0
    for cell, again in zip(kept, made, strict=True):
        words, numbers, drawn = shown(again["outputs"])
        kept_words, kept_numbers, kept_drawn = shown(cell["outputs"])
        hint = "python -m tests.notebook writes what it shows anew"
        assert (words, drawn) == (kept_words, kept_drawn), hint
        # Arithmetic of another processor may move a value of the model, not more.
        assert numbers == pytest.approx(kept_numbers, abs=0.02), hint
        images += drawn
    assert images == 2


def test_the_notebook_names_no_machine() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    sources = "".join("".join(cell["source"]) for cell in notebook["cells"])
    assert not re.search(r"/(home|tmp|root|Users)/", sources)
    assert "ragmeter.read_scores" in sources
