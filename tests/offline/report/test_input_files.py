"""How far a report has read its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ragmeter.console.terminal import FileProgress
from ragmeter.offline.report.command import ReportOptions, run_report

from tests.offline.report.test_command import SETTINGS, scores


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_progress_bar_moves_with_the_file(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scores(tmp_path / "a.jsonl", [0.5] * 512)
    if form == "csv":
        rows = [f"{n:03},bot,2026-01-15T11:00:00Z,0.5\n" for n in range(512)]
        file.write_text("".join(["trace_id,service,timestamp,grounding.builtin\n", *rows]))
    positions: list[int] = []
    monkeypatch.setattr(FileProgress, "read", lambda bar, items, at: positions.append(at))
    run_report(ReportOptions([file]), SETTINGS, lambda line: None, lambda report: "")
    size = file.stat().st_size
    assert positions == [pytest.approx(size / 2, rel=0.02), size]
