from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.canaries.client import CanaryClient
from ragmeter.canaries.delivery import TraceDelivery
from ragmeter.canaries.runner import CanaryRound, CanaryRunner, CanarySchedule
from ragmeter.canaries.suite import CanarySuite
from ragmeter.core.score import Score
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

from tests.canaries.suites import Respond, suite
from tests.waiting import until_async

SCORER = Scorer(builtin=False, ks=[5])


async def reference_scores(trace: Trace) -> list[Score]:
    return SCORER.score_reference(trace)


RIGHT = {"answer": "In 14 days.", "passages": [{"id": "a", "text": "14 days."}]}
FAST = 6000.0


def questions(number: int) -> list[dict[str, Any]]:
    reference = {"checks": [{"patterns": ["14 days"]}]}
    return [{"id": f"q{i}", "query": f"{i}?", "reference": reference} for i in range(number)]


class World:
    """A service, a file that traces go to, and a runner between them."""

    def __init__(self, folder: Path, suite: CanarySuite, respond: Respond, **pace: Any) -> None:
        self.file = folder / "traces.jsonl"
        self.rounds: list[CanaryRound] = []
        self._suite, self._respond = suite, respond
        self._pace = CanarySchedule(**{"every": None, "per_minute": FAST, **pace})

    def traces(self) -> list[Trace]:
        return [Trace.model_validate_json(line) for line in self.file.read_bytes().splitlines()]

    def run(self, stop_when: Callable[[], bool] | None = None) -> CanaryRound:
        async def main() -> CanaryRound:
            transport = httpx.MockTransport(self._respond)
            asker = CanaryClient(self._suite, "http://bot/", seconds=30, transport=transport)
            delivery = TraceDelivery(None, "", file=self.file)
            async with asker:
                runner = CanaryRunner(
                    self._suite,
                    asker,
                    delivery,
                    self._pace,
                    score=reference_scores,
                    on_round=self.rounds.append,
                )
                running = asyncio.create_task(runner.run())
                if stop_when is not None:
                    await until_async(stop_when)
                    runner.stop()
                return await running

        return asyncio.run(main())


def always(document: Any, status: int = 200, **headers: str) -> Respond:
    return lambda _: httpx.Response(status, json=document, headers=headers)


def test_one_round(tmp_path: Path) -> None:
    world = World(tmp_path, suite(*questions(3)), always(RIGHT))
    done = world.run()
    assert done.passed
    assert [one.question for one in done.verdicts] == ["q0", "q1", "q2"]
    assert [trace.tags["question"] for trace in world.traces()] == ["q0", "q1", "q2"]
    assert len({trace.trace_id for trace in world.traces()}) == 3


def test_a_required_canary_that_fails_fails_the_round(tmp_path: Path) -> None:
    wrong = always({"answer": "Soon."})
    done = World(tmp_path, suite(*questions(1)), wrong).run()
    assert not done.passed
    assert done.verdicts[0].failed == ["fact_checks 0, wanted 1 (failed: 1)"]
    optional = [{**questions(1)[0], "required": False}]
    assert World(tmp_path, suite(*optional), wrong).run().passed


def test_a_file_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    world = World(tmp_path, suite(*questions(2)), always(RIGHT))
    world.file.mkdir()
    with pytest.raises(IsADirectoryError):
        world.run()


def test_failures_are_traces(tmp_path: Path) -> None:
    world = World(tmp_path, suite(*questions(2)), always({}, 500))
    assert not world.run().passed
    assert [(trace.status, trace.error) for trace in world.traces()] == [("error", "HTTP 500")] * 2


def test_a_busy_service_is_left_alone_and_asked_once_more(tmp_path: Path) -> None:
    asked: list[float] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(time.monotonic())
        if len(asked) == 1:
            return httpx.Response(503, headers={"retry-after": "1"})
        return httpx.Response(200, json=RIGHT)

    world = World(tmp_path, suite(*questions(2)), respond)
    assert world.run().passed
    assert len(asked) == 3
    assert asked[1] - asked[0] >= 1
    assert len(world.traces()) == 2

    world = World(tmp_path / "b", suite(*questions(1)), always({}, 429, **{"retry-after": "0"}))
    world.file.parent.mkdir()
    assert not world.run().passed
    assert [trace.error for trace in world.traces()] == ["HTTP 429"]


def test_no_more_at_a_time_and_a_minute_than_allowed(tmp_path: Path) -> None:
    under_way = 0
    most = 0
    begun = list[float]()

    async def respond(request: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        begun.append(time.monotonic())
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        return httpx.Response(200, json=RIGHT)

    slow: Any = respond
    assert World(tmp_path, suite(*questions(6)), slow).run().passed
    assert most == 1
    begun.clear()
    assert World(tmp_path, suite(*questions(4)), slow, per_minute=600).run().passed
    # 0.3 s apart; a busy machine delays the first request, too
    assert begun[-1] - begun[0] > 0.2


def test_rounds_follow_each_other_until_a_stop(tmp_path: Path) -> None:
    world = World(tmp_path, suite(*questions(2)), always(RIGHT), every=0.3)
    world.run(stop_when=lambda: len(world.rounds) >= 2)
    assert all(done.complete for done in world.rounds[:-1])


def test_a_stop_finishes_what_is_under_way(tmp_path: Path) -> None:
    asked = []

    async def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        await asyncio.sleep(1)
        return httpx.Response(200, json=RIGHT)

    slow: Any = respond
    world = World(tmp_path, suite(*questions(5)), slow)
    done = world.run(stop_when=lambda: bool(asked))
    assert not done.complete
    assert [one.passed for one in done.verdicts] == [True]
    assert len(world.traces()) == 1
