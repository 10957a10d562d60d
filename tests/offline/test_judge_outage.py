"""`ragmeter score`, and the running agent, with a judge that is away for a while or for good."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.settings import Settings
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.offline.score_file import score_file
from ragmeter.offline.scoring_summary import ScoringSummary
from ragmeter.scoring.slow_tiers import ConfiguredTiers

from tests.cli.test_main import ragmeter
from tests.embedded.test_slow_tiers import mismatch, states
from tests.scorers.judge.stub_judge import StubJudge
from tests.scorers.judge.stub_process import StubProcess
from tests.scoring.test_slow_tiers import judged, running
from tests.traces import trace_line

pytestmark = pytest.mark.slow


def traces(folder: Path, number: int) -> Path:
    path = folder / "traces.jsonl"
    path.write_bytes(b"\n".join(trace_line(n, query=f"How do I do {n}?") for n in range(number)))
    return path


def settings(stub: StubJudge) -> Settings:
    return load_settings(environ={}, overrides={"judge": {"base_url": stub.base_url, "model": "m"}})


async def scored(path: Path, output: Path, stub: StubJudge) -> ScoringSummary:
    found = settings(stub)
    tiers = ConfiguredTiers(found).scorers
    return await score_file(path, output, "jsonl", found, lambda line: None, tiers)


# the errors end before the first trial, so that the test does
@pytest.mark.parametrize(("before", "errors"), [(0, 10), (60, 32)])
def test_a_short_outage_loses_nothing_of_a_file(tmp_path: Path, before: int, errors: int) -> None:
    path = traces(tmp_path, 40)
    output = tmp_path / "out.jsonl"

    async def main() -> ScoringSummary:
        script = ["ok"] * before + ["http_500"] * errors
        async with StubJudge(latency=0.01, script=script) as stub:
            done = await scored(path, output, stub)
            assert stub.fault_counts["http_500"] >= 10
            return done

    done = asyncio.run(main())
    assert done.summary_lines() == []
    assert done.failed_tiers == []
    assert done.traces == 40
    reasons = Counter(
        result.get("reason")
        for line in output.read_text().splitlines()
        for result in json.loads(line)["results"]
    )
    assert not [reason for reason in reasons if str(reason).startswith("judge_")]


def test_a_dead_judge_is_counted_and_fails_the_command(tmp_path: Path) -> None:
    path = traces(tmp_path, 12)

    async def main() -> None:
        async with StubJudge(api_key="another") as stub:
            env: dict[str, Any] = {
                "RAGMETER_JUDGE__BASE_URL": stub.base_url,
                "RAGMETER_JUDGE__MODEL": "m",
            }

            def command() -> CompletedProcess[bytes]:
                return ragmeter("score", path, "-o", tmp_path / "o", stdin=b"", **env)

            done = await asyncio.to_thread(command)
            assert done.returncode == 1
            assert b"12 traces scored" in done.stderr
            assert b"results unscored (judge_unavailable" in done.stderr
            assert (tmp_path / "o").read_bytes().count(b"\n") == 12
            stub.api_key = None
            stub.faults = {"garbage": 0.5}
            done = await asyncio.to_thread(command)
            assert done.returncode == 0
            assert b"judge: " in done.stderr
            assert b"unparsable" in done.stderr

    asyncio.run(main())


def test_an_outage_loses_nothing_of_a_backlog(tmp_path: Path) -> None:
    async def main() -> None:
        async with StubJudge(latency=0.01, script=["http_500"] * 10) as stub:

            def work() -> None:
                with running(tmp_path, StubProcess(stub.base_url)) as started:
                    check(started)

            await asyncio.to_thread(work)
            assert stub.fault_counts["http_500"] >= 10

    def check(started: EmbeddedAgent) -> None:
        started.accept(judged(60), "test")
        started.wait_idle()
        assert states(started, "answered", "judge") == {"scored": 60}
        assert mismatch(started) == 0

    asyncio.run(main())
