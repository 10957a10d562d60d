from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.canaries.delivery import TraceDelivery
from ragmeter.trace import Trace

from tests.traces import make_trace
from tests.waiting import PATIENCE

OK = {"accepted": 1, "duplicates": 0, "rejected": 0, "errors": []}


class Agent:
    """Takes traces, or does not."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.status = 200
        self.reply: dict[str, Any] = OK
        self.tries = 0

    def respond(self, request: httpx.Request) -> httpx.Response:
        self.tries += 1
        if self.status == 0:
            raise httpx.ConnectError("", request=request)
        if self.status == 200 and not self.reply.get("rejected"):
            assert request.url.path == "/v1/rag/traces"
            self.took.append(Trace.model_validate_json(request.content).trace_id)
        return httpx.Response(self.status, json=self.reply)


def delivery(agent: Agent, **changes: Any) -> TraceDelivery:
    client = httpx.Client(transport=httpx.MockTransport(agent.respond))
    rng = random.Random()
    rng.uniform = lambda a, b: 0.01  # type: ignore[method-assign]
    return TraceDelivery(client, "http://agent:4318/", rng=rng, **changes)


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_what_comes_is_handed_over_in_order() -> None:
    agent = Agent()

    async def main() -> None:
        one = delivery(agent)
        one.start()
        for number in range(3):
            one.put(make_trace(number))
        await until(lambda: one.sent == 3)
        assert await one.finish(1)

    asyncio.run(main())
    assert agent.took == ["t0", "t1", "t2"]


def test_what_the_agent_does_not_take_waits() -> None:
    agent = Agent()

    async def away() -> None:
        agent.status = 0
        one = delivery(agent)
        one.start()
        one.put(make_trace(0))
        await until(lambda: agent.tries > 0)
        one.put(make_trace(1))
        assert not await one.finish(0.05)
        assert one.waiting == 2

    async def back() -> None:
        agent.status = 503
        one = delivery(agent)
        one.start()
        for number in range(2):
            one.put(make_trace(number))
        tries = agent.tries
        await until(lambda: agent.tries > tries + 1)
        assert one.waiting == 2
        agent.status = 200
        await until(lambda: one.sent == 2)
        assert await one.finish(1)

    asyncio.run(away())
    asyncio.run(back())
    assert agent.took == ["t0", "t1"]


def test_too_many_that_wait_lose_the_oldest_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        one = delivery(Agent(), most=3)
        for number in range(5):
            one.put(make_trace(number))
        assert (one.waiting, one.dropped) == (3, 2)
        assert await one.finish(5)
        assert one.sent == 3

    asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    ("status", "reply"),
    [
        (400, {"error": "no"}),
        (413, {"error": "no"}),
        (200, {**OK, "rejected": 1}),
        (200, {}),  # another server
    ],
)
def test_what_is_refused_is_counted_and_holds_up_nothing(status: int, reply: Any) -> None:
    agent = Agent()
    agent.status, agent.reply = status, reply

    async def main() -> None:
        one = delivery(agent)
        one.put(make_trace(0))
        assert await one.finish(5)
        assert (one.refused, one.sent) == (1, 0)

    asyncio.run(main())


def test_a_file_alone(tmp_path: Path) -> None:
    async def main() -> None:
        one = TraceDelivery(None, "", file=tmp_path / "out.jsonl")
        for number in range(2):
            one.put(make_trace(number))
        assert await one.finish(0)
        assert one.sent == 2

    asyncio.run(main())
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert [Trace.model_validate_json(line).trace_id for line in lines] == ["t0", "t1"]
