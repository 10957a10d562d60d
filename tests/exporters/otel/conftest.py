from __future__ import annotations

import pytest
from ragmeter_exporters.otel import exporter


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BASE_DELAY", 0.02)
    monkeypatch.setattr(exporter, "MAX_DELAY", 0.1)
