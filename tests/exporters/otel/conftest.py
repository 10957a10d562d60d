from __future__ import annotations

import pytest

from exporters.otel import channel


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "BASE_DELAY", 0.02)
    monkeypatch.setattr(channel, "MAX_DELAY", 0.1)
