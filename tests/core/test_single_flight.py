from __future__ import annotations

import asyncio

import pytest
from ragmeter.core.single_flight import SingleFlight
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.questions import JudgeFailed


class Work:
    """Ends when the test lets it; costs one request."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self._failure = failure

    async def __call__(self, cost: ScoringCost) -> str:
        self.calls += 1
        cost.requests += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(0.01)  # closing a connection takes its time
            raise
        if self._failure is not None:
            raise self._failure
        return "done"


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_equal_requests_share_one_call_that_the_first_pays() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        costs = [ScoringCost() for _ in range(5)]
        tasks = [asyncio.create_task(flights.run(b"k", work, cost)) for cost in costs]
        await settle()
        work.go.set()
        results = await asyncio.gather(*tasks)
        assert results == [("done", False)] + [("done", True)] * 4
        assert work.calls == 1
        assert [cost.requests for cost in costs] == [1, 0, 0, 0, 0]
        assert len(flights) == 0
        await flights.run(b"k", work, costs[1])
        assert work.calls == 2

    asyncio.run(main())


def test_different_requests_do_not() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        work.go.set()
        await asyncio.gather(*(flights.run(b"%d" % n, work, ScoringCost()) for n in range(4)))
        assert work.calls == 4

    asyncio.run(main())


def test_a_failure_is_shared() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work(JudgeFailed("judge_timeout"))
        costs = [ScoringCost(), ScoringCost()]
        tasks = [asyncio.create_task(flights.run(b"k", work, cost)) for cost in costs]
        await settle()
        work.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(result, "reason", None) for result in results] == ["judge_timeout"] * 2
        assert [cost.requests for cost in costs] == [1, 0]
        assert len(flights) == 0

    asyncio.run(main())


def test_the_others_go_on_when_the_first_is_cancelled_and_the_next_pays() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        costs = [ScoringCost(), ScoringCost(), ScoringCost()]
        tasks = [asyncio.create_task(flights.run(b"k", work, cost)) for cost in costs]
        await settle()
        tasks[0].cancel()
        await settle()
        work.go.set()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert await tasks[1] == ("done", True)
        assert await tasks[2] == ("done", True)
        assert work.cancelled == 0
        assert [cost.requests for cost in costs] == [0, 1, 0]

    asyncio.run(main())


def test_the_call_is_cancelled_with_the_last_and_nobody_joins_it_then() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        tasks = [asyncio.create_task(flights.run(b"k", work, ScoringCost())) for _ in range(2)]
        await settle()
        for task in tasks:
            task.cancel()
        await settle()
        assert work.cancelled == 1
        late = asyncio.create_task(flights.run(b"k", work, ScoringCost()))
        await settle()
        work.go.set()
        assert await late == ("done", False)
        assert work.calls == 2
        assert len(flights) == 0

    asyncio.run(main())
