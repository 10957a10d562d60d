"""What a client does about servers that are slow, full or gone: pauses, budget, breaker."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.exchange import ClientTiming, RetryBudget
from ragmeter.scorers.llm.questions import JudgeFailed

from tests.scorers.judge.asking import Asked, Clock, Reply, completion, error, question, script
from tests.scorers.judge.stub_judge import StubJudge
from tests.waiting import PATIENCE, until_async


def json_error(status: int, message: str, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json=error(message, **fields))


# Retry-After, budget


def test_retry_after_is_obeyed() -> None:
    asked = Asked(script(httpx.Response(503, headers={"retry-after": "7"}), completion()))
    assert asked.once() == 2
    assert sum(asked.clock.slept) == pytest.approx(7)


def test_retry_after_may_be_a_date_of_the_wall_clock() -> None:
    at = formatdate(1000 + 12, usegmt=True)  # the clock of the test stands at 1000
    asked = Asked(script(httpx.Response(429, headers={"retry-after": at}), completion()))
    assert asked.once() == 2
    assert sum(asked.clock.slept) == pytest.approx(12)


def test_a_rate_limit_holds_every_call_of_the_client() -> None:
    asked = Asked(
        script(httpx.Response(429, headers={"retry-after": "30"}), completion()), retries=0
    )
    other = Asked(script(completion()))

    async def main() -> None:
        assert await asked.ask() == "judge_error"
        begun = asked.clock.now
        assert await asked.ask() == 2
        assert asked.clock.now - begun == pytest.approx(30)
        assert await other.ask() == 2
        assert other.clock.slept == []  # another client is held by nothing

    asyncio.run(main())


def test_a_server_that_always_fails_gets_a_tenth_more_calls_and_the_floor() -> None:
    # 429 with an answer between, so that the breaker stays out of it
    count = 0

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        nonlocal count
        count += 1
        return completion() if count % 20 == 0 else 429

    async def main() -> None:
        asked = Asked(serve, retries=10)
        asked.client._timing = replace(
            asked.client._timing, sleep=no_pause
        )  # all within the same two minutes
        for _ in range(2000):
            await asked.ask()
        assert 2000 * 1.09 < count <= 2000 * 1.1 + RetryBudget()._floor

    asyncio.run(main())


def test_malformed_answers_draw_on_the_same_budget() -> None:
    asked = Asked(script(completion("never")), structured="schema")

    async def main() -> None:
        for _ in range(1000):
            await asked.ask()
        assert asked.cost.requests <= 1100 + RetryBudget()._floor

    asyncio.run(main())


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


def test_five_percent_of_malformed_replies_lose_nothing() -> None:
    async def main() -> Counter[str]:
        async with StubJudge(faults={"malformed": 0.05}, seed=3) as stub:
            client = JudgeClient(
                JudgeSettings(model="asked-1", base_url=stub.base_url, concurrency=32)
            )
            notified: Counter[str] = Counter()

            async def one(number: int) -> None:
                try:
                    await client.ask(question(str(number)), ScoringCost())
                    notified["scored"] += 1
                except Exception as failed:
                    notified[getattr(failed, "reason", repr(failed))] += 1

            await asyncio.gather(*(one(number) for number in range(600)))
            assert stub.calls > 610
            await client.aclose()
            return notified

    assert asyncio.run(main()) == {"scored": 600}


# Breaker and limiter


def test_a_dead_judge_is_left_alone_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 0.0)
    alive = False

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        return completion() if alive else httpx.ConnectError("refused")

    asked = Asked(serve)

    async def main() -> None:
        nonlocal alive
        asked.client._timing = replace(asked.client._timing, sleep=no_pause)
        notified = [await asked.ask() for _ in range(50)]
        assert notified[0] == "judge_error"
        assert notified[-1] == "judge_unavailable"
        assert asked.client.is_down
        calls = asked.cost.requests
        assert calls < 25
        assert await asked.ask() == "judge_unavailable"
        assert asked.cost.requests == calls  # at once, without a call
        asked.clock.now += 5
        assert await asked.ask() == "judge_error"  # the trial
        assert asked.cost.requests == calls + 1
        alive = True
        asked.clock.now += 10
        assert await asked.ask() == 2
        assert not asked.client.is_down

    asyncio.run(main())


@pytest.mark.parametrize("status", [401, 402, 403, 404, 307])
def test_a_wrong_key_or_address_opens_at_once_and_says_so_once_a_minute(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ragmeter.scorers.llm.exchange")
    asked = Asked(script(status))

    async def main() -> None:
        assert await asked.ask() == "judge_error"
        assert await asked.ask() == "judge_unavailable"
        assert len(caplog.records) == 1
        for _ in range(100):
            asked.clock.now += 1
            await asked.ask()
        assert len(caplog.records) == 2

    asyncio.run(main())
    assert asked.cost.requests < 8
    assert f"status {status}" in caplog.text
    advice = "its account has no money or quota left"
    assert (advice if status == 402 else "check base_url, model and key") in caplog.text


@pytest.mark.parametrize("status", [403, 404])
def test_a_text_that_a_firewall_refuses_does_not_stop_the_judge_for_others(status: int) -> None:
    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        return status if "<script>" in body["messages"][1]["content"] else completion()

    asked = Asked(serve)

    async def main() -> None:
        for _ in range(20):
            assert await asked.ask() == 2
            assert await asked.ask() == 2
            assert await asked.ask(question("<script>")) == "judge_error"
        asked.clock.now += 61  # long without an answer: then it may be the key or the address
        await asked.ask(question("<script>"))
        assert asked.client.is_down

    asyncio.run(main())


def test_a_quota_that_is_used_up_opens_at_once() -> None:
    asked = Asked(script(json_error(429, "no money", code="insufficient_quota")))
    assert asked.once() == "judge_error"
    assert asked.client.is_down
    assert asked.cost.requests == 1


def test_a_judge_that_only_says_later_is_left_alone_in_the_end() -> None:
    asked = Asked(script(httpx.Response(429, headers={"retry-after": "60"})), concurrency=4)

    async def main() -> None:
        for _ in range(40):
            last = await asked.ask()
        assert last == "judge_unavailable"
        assert asked.client.limit == 1

    asyncio.run(main())


def test_who_waits_during_a_pause_does_not_wait_on_when_the_breaker_opens() -> None:
    asked = Asked(
        script(httpx.Response(429, headers={"retry-after": "60"})), concurrency=1, retries=0
    )

    async def main() -> None:
        notified = Counter(await asyncio.gather(*(asked.ask() for _ in range(30))))
        # nine that fail, the tenth that opens it, and the trial that gives the judge up
        assert notified == {"judge_error": 11, "judge_unavailable": 19}
        assert asked.clock.now == 1000 + 10 * 60

    asyncio.run(main())


def test_nobody_queues_behind_a_trial() -> None:
    async def main() -> None:
        clock = Clock()
        async with StubJudge(script=["http_404", "hang"]) as stub:
            settings = JudgeSettings(model="asked-1", base_url=stub.base_url, concurrency=1)
            client = JudgeClient(settings, timing=ClientTiming(monotonic=clock))
            with pytest.raises(JudgeFailed, match="denied"):
                await client.ask(question(), ScoringCost())
            clock.now += 5
            trial = asyncio.create_task(client.ask(question(), ScoringCost()))
            await until_async(lambda: stub.in_flight == 1)
            with pytest.raises(JudgeFailed, match="is down"):
                await asyncio.wait_for(client.ask(question(), ScoringCost()), PATIENCE)
            trial.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trial
            # a trial that was given up leaves room for the next
            await asyncio.wait_for(client.ask(question(), ScoringCost()), PATIENCE)
            assert not client.is_down
            await client.aclose()

    asyncio.run(main())


def test_a_hung_judge_holds_its_own_slots_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.scorers.llm.admission.PATIENCE", 0.0)

    async def main() -> None:
        async with StubJudge(faults={"hang": 1.0}) as hung, StubJudge() as well:
            first = JudgeClient(
                JudgeSettings(
                    model="asked-1", base_url=hung.base_url, concurrency=4, timeout_seconds=0.2
                ),
                name="a",
            )
            second = JudgeClient(
                JudgeSettings(model="asked-1", base_url=well.base_url, concurrency=4), name="b"
            )

            async def reason(number: int) -> str:
                try:
                    await first.ask(question(str(number)), ScoringCost())
                except Exception as failed:
                    return str(getattr(failed, "reason", failed))
                return "scored"

            stuck = [asyncio.create_task(reason(number)) for number in range(60)]
            await until_async(lambda: hung.max_in_flight == 4)
            begun = asyncio.get_running_loop().time()
            await asyncio.gather(*(second.ask(question(str(n)), ScoringCost()) for n in range(50)))
            assert asyncio.get_running_loop().time() - begun < 2
            notified = Counter(await asyncio.gather(*stuck))
            assert set(notified) == {"judge_timeout", "judge_unavailable"}
            assert notified["judge_unavailable"] > notified["judge_timeout"]
            assert first.limit < 4
            await first.aclose()
            await second.aclose()

    asyncio.run(main())


def test_never_more_in_flight_than_configured() -> None:
    async def main() -> None:
        async with StubJudge(latency=0.01) as stub:
            client = JudgeClient(
                JudgeSettings(model="asked-1", base_url=stub.base_url, concurrency=7)
            )
            await asyncio.gather(*(client.ask(question(str(n)), ScoringCost()) for n in range(100)))
            assert stub.max_in_flight == 7
            assert stub.calls == 100
            await client.aclose()

    asyncio.run(main())
