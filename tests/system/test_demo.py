"""`make run` shows what it promises: alerts for both incidents, the segment, the recorded judge."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.system.demo import served
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_the_demo_tells_its_story(folder: Path) -> None:
    with served(folder) as urls:
        text = (folder / "out").read_text()
        pages = [httpx.get(url, timeout=PATIENCE) for url in urls]
        base = urls[0].rstrip("/")
        windows = httpx.get(f"{base}/api/windows.json", timeout=PATIENCE).json()
        metrics = httpx.get(f"{base}/metrics", timeout=PATIENCE).text
    lines = text.splitlines()
    assert "replayed until" in text  # how far it is, and a first number, while it works
    assert re.search("replayed until .*; [0-9,]+ traces? waits? for the model", text)
    assert "Staged: who asks when" in text
    assert "The judge is recorded: recorded-verdicts" in text
    # both incidents, in their own words, with ids that can be copied
    for rule in ("RagErrorsHigh", "RagGroundingLow", "RagDrift"):
        assert rule in text
    at = next(n for n, line in enumerate(lines) if "RagGroundingLow, since" in line)
    assert re.search(r"the mean grounding .* is 0\.\d+ \(0 to 1\) over 1h", lines[at + 1])
    assert any(re.match(r"    demo-\d{4}  \S", line) for line in lines[at : at + 6])
    assert re.search(r"domain=government: grounding \(builtin\) fell from 0\.\d+ to 0\.\d+", text)
    assert re.search(r"nugget_vital +autonuggetizer\* +0 to 1 ↑", text)
    assert "* judged by recorded-verdicts." in text
    assert re.search(r"Judge recorded-verdicts: .* USD of a budget of 0\.5 USD a day", text)
    # every question of the judge was recorded
    assert 'ragmeter_judge_info{judge="judge",model="recorded-verdicts"' in metrics
    judged = [
        row for row in windows["services"]["help-desk"][""]["metrics"]
        if row["scorer"] in ("umbrela", "judge", "autonuggetizer") and row["window"] == "24h"
    ]  # fmt: skip
    assert {row["metric"] for row in judged} >= {"relevance", "nugget_vital", "citation_f1"}
    assert [row for row in judged if row["states"].get("unscored")] == []
    # the three pages
    assert [page.status_code for page in pages] == [200, 200, 200]
    assert "RagGroundingLow" in pages[0].text
    assert "domain=government" in pages[1].text
    assert "<mark" in pages[2].text  # the words that nothing supports
