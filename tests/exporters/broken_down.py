"""An agent with real windows in which one segment has fallen."""

from __future__ import annotations

from typing import cast

from tests.exporters.fakes import FakeAgent, FakeWindows
from tests.windows.segment_traffic import busy

__all__ = ["fallen"]


def fallen(drop: float = 0.4, tag: str = "kind", few: int = 0) -> FakeAgent:
    windows = busy(drop, few=few, tag=tag)
    return FakeAgent(fake=cast(FakeWindows, windows), segments=[tag])
