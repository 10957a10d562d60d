"""What other packages gave for the same cases.

Recorded by `benchmarks/peers_report.py` of commit 5d72b3a0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["FOREIGN", "recorded"]

DATA = Path(__file__).parents[2] / "data"
FOREIGN = DATA / "open-rag-eval.csv"
"""Written by open-rag-eval 0.3.0 itself."""


def recorded(kind: str) -> list[dict[str, Any]]:
    """The cases of a kind: `paired`, `unpaired`, `welch` or `holm`."""
    text = (DATA / "peers-report.json").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = json.loads(text)[kind]
    assert len(cases) > 7
    return cases
