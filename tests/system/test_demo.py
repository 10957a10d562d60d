"""`make run` shows what it promises: both incidents, the segment, the recorded judge."""

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
    assert re.search("replayed until .* help-desk [0-9,]+ requests", text)  # while it works
    assert re.search(r"scoring: [0-9,]+ \(model\)", text)
    assert "Staged: who asks when" in text
    assert "The judge is recorded: recorded-verdicts" in text
    # both incidents, in their own words, with ids that can be copied
    assert re.search(r"■ PAGE \d+ % of requests fail", text)
    assert re.search(r"Errors \d+ %, timeouts \d+ % \(usual [\d.]+ %\) since \d\d:\d\d UTC", text)
    at = next(n for n, line in enumerate(lines) if "answers are supported less" in line)
    assert re.search(r"Support by passages \d+ -> \d+ of 100 since", lines[at + 1])
    below = "\n".join(lines[at + 2 : at + 6])
    assert re.search(r"\(\d+ (min|h)\); incident [0-9a-f]{16}; model Llama 3.1 \(405B\) at", below)
    assert re.search(r"^ +worst: ", below, re.MULTILINE)
    # the questions, each with its number and what that rests on
    assert re.search(r"works +\d+ % \(\d+ to \d+\) .* ■ +every request", text)
    assert re.search(r"grounded +\d+ % \(\d+ to \d+\).* [▲■] +\d+ labels", text)
    assert re.search(r"complete +\d+ % .* verdicts of the judge", text)
    assert re.search(r"Judge recorded-verdicts: .* USD of a budget of 0\.5 USD a day", text)
    # an incident has one id wherever it is met
    ids = set(re.findall(r"; incident ([0-9a-f]{16})", text))
    assert len(ids) >= 2
    assert ids <= set(re.findall(r'^rag_incident_open\{.*incident="([0-9a-f]{16})"', metrics, re.M))
    assert [one for one in ids if one not in pages[0].text] == []
    # every question of the judge was recorded
    assert 'ragmeter_judge_info{judge="judge",model="recorded-verdicts"' in metrics
    judged = [
        row
        for row in windows["services"]["help-desk"][""]["metrics"]
        if row["scorer"] in ("umbrela", "judge", "autonuggetizer") and row["window"] == "24h"
    ]
    assert {row["metric"] for row in judged} >= {"relevance", "nugget_vital", "citation_f1"}
    assert [row for row in judged if row["states"].get("unscored")] == []
    # the pages that it leads to
    assert [page.status_code for page in pages] == [200, 200, 200, 200]
    assert "answers are supported less by their passages" in pages[0].text
    assert "of requests fail" in pages[1].text
    assert "domain=government" in pages[2].text
