"""What other packages gave for the same cases.

Recorded by `benchmarks/peers.py` of commit 5d72b3a0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["recorded"]

FILE = Path(__file__).parents[1] / "data" / "peers.json"


def recorded(kind: str) -> list[dict[str, Any]]:
    """The cases of a kind: `rankings`, `texts` or `verdicts`."""
    cases: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))[kind]
    assert len(cases) > 40
    return cases
