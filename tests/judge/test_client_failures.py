"""What a client does about each kind of failure, and which reason it gives."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections import Counter
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from agent.config import Judge
from agent.judge.client import JudgeClient
from agent.judge.question import JudgeFailed
from agent.judge.retries import RetryBudget
from agent.tiers import Cost
from tests.judge.asking import Asked, Clock, Reply, completion, error, question, script
from tests.judge.stub_judge import StubJudge


def json_error(status: int, message: str, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json=error(message, **fields))


def compressed(data: bytes) -> httpx.Response:
    headers = {"content-encoding": "gzip"}
    return httpx.Response(200, headers=headers, stream=httpx.ByteStream(data))


# Malformed answers


def test_a_malformed_answer_is_repaired_with_the_error_in_hand() -> None:
    asked = Asked(script(completion('{"grade": 7}'), completion()))
    assert asked.once() == 2
    assert asked.outcomes == ["malformed", "ok"]
    first, second = (body["messages"] for body in asked.bodies)
    assert second[:2] == first
    assert second[2] == {"role": "assistant", "content": '{"grade": 7}'}
    assert second[3]["role"] == "user"
    assert "at most 3 answer.grade" in second[3]["content"]
    assert asked.clock.slept == []


def test_the_reader_has_the_last_word() -> None:
    def read(data: dict[str, int]) -> int:
        if data["grade"] == 2:
            raise ValueError("there are 3 passages, not 2")
        return data["grade"]

    asked = Asked(script(completion(), completion('{"grade": 3}')))
    assert asked.once(question(read=read)) == 3
    assert "there are 3 passages, not 2" in asked.bodies[1]["messages"][3]["content"]


def test_two_repairs_and_no_more() -> None:
    asked = Asked(script(completion("never")), structured="schema")
    assert asked.once() == "unparsable"
    assert asked.outcomes == ["malformed"] * 3
    # only the last answer is shown: the conversation does not grow
    assert [len(body["messages"]) for body in asked.bodies] == [2, 4, 4]


def test_what_is_shown_of_a_malformed_answer_is_bounded() -> None:
    def read(_: object) -> int:
        raise ValueError("e" * 100_000)

    asked = Asked(script(completion('{"grade": 2}' + " " * 100_000 + "x")), structured="schema")
    asked.once()
    assert len(asked.bodies[1]["messages"][2]["content"]) == 2000
    asked = Asked(script(completion()))
    asked.once(question(read=read))
    assert len(asked.bodies[1]["messages"][3]["content"]) < 1000


@pytest.mark.parametrize("content", [None, "", "   "])
def test_an_empty_answer_is_malformed(content: str | None) -> None:
    asked = Asked(script(completion(content), completion()))
    assert asked.once() == 2
    assert asked.outcomes == ["malformed", "ok"]
    assert asked.bodies[1]["messages"][2]["content"].strip() in ("", "(no answer)")


def test_malformed_answers_do_not_trip_the_breaker() -> None:
    asked = Asked(script(completion("never")))

    async def main() -> None:
        for _ in range(40):
            assert await asked.ask() == "unparsable"
        assert not asked.client.is_down

    asyncio.run(main())


# Refused, cut off, too long, too large


def test_a_refusal_is_not_asked_again() -> None:
    reply = completion(None)
    reply["choices"][0]["message"]["refusal"] = "I cannot help with that."
    for refusal in (
        reply,
        completion('{"grade"', finish="content_filter"),
        json_error(400, "filtered", code="content_filter"),
        json_error(403, "Your input was flagged by moderation"),
    ):
        asked = Asked(script(refusal))
        assert asked.once() == "judge_refused"
        assert asked.outcomes == ["refused"]
        assert not asked.client.is_down


def test_an_answer_that_the_limit_ended_gets_more_room_once() -> None:
    asked = Asked(script(completion('{"gra', finish="length"), completion()))

    async def main() -> None:
        assert await asked.ask() == 2
        assert [body["max_tokens"] for body in asked.bodies] == [200, 1600]
        assert await asked.ask() == 2  # and that is remembered
        assert asked.bodies[-1]["max_tokens"] == 1600

    asyncio.run(main())
    assert asked.outcomes == ["cut_off", "ok", "ok"]


def test_an_answer_that_the_limit_ends_twice_is_unparsable() -> None:
    asked = Asked(script(completion('{"gra', finish="length")))
    assert asked.once() == "unparsable"
    assert asked.outcomes == ["cut_off", "cut_off"]


def test_an_answer_that_is_whole_at_the_limit_is_one() -> None:
    asked = Asked(script(completion(finish="length")))
    assert asked.once() == 2


def test_room_that_no_longer_fits_is_given_back() -> None:
    """A prompt that fits with the ordinary limit is not too long."""

    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        long = len(body["messages"][1]["content"]) > 1000
        if body["max_tokens"] == 200:
            return completion() if long else completion('{"gra', finish="length")
        if long:
            return json_error(400, "maximum context length is 4096 tokens")
        return completion()

    asked = Asked(serve)

    async def main() -> None:
        assert await asked.ask() == 2
        assert await asked.ask(question("x" * 2000)) == 2

    asyncio.run(main())
    assert asked.outcomes == ["cut_off", "ok", "too_long", "ok"]


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(413, text="Payload Too Large"),
        json_error(
            400,
            "This model's maximum context length is 16384 tokens. However, you requested 122946 "
            "tokens (112946 in the messages, 10000 in the completion).",
            code="context_length_exceeded",
            param="messages",
        ),
        json_error(
            400,
            "You passed 1015 input tokens and requested 10 output tokens. However, the model's "
            "context length is only 1024 tokens",
            param="input_tokens",
            code=400,
        ),
        json_error(
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 200. This model's maximum "
            "context length is 512 tokens",
        ),
        json_error(
            400,
            "the request exceeds the available context size. try increasing the context size",
            type="exceed_context_size_error",
            code=400,
        ),
        httpx.Response(
            422,
            json={
                "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be "
                "<= 2048. Given: 4000",
                "error_type": "validation",
            },
        ),
        json_error(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        httpx.Response(500, json=error("Requested tokens (900) exceed context window of 512")),
    ],
)
def test_what_is_too_long_is_neither_tried_again_nor_held_against_the_judge(
    reply: httpx.Response,
) -> None:
    asked = Asked(script(reply))

    async def main() -> None:
        for _ in range(30):
            assert await asked.ask() == "too_long"
        assert not asked.client.is_down

    asyncio.run(main())
    assert asked.outcomes == ["too_long"] * 30


def test_a_reply_without_end_is_cut() -> None:
    asked = Asked(script(httpx.Response(200, content=b" " * 3_000_000)))
    assert asked.once() == "unparsable"
    assert asked.outcomes == ["too_large"]


def test_a_compressed_reply_is_read_and_bounded_as_well() -> None:
    good = gzip.compress(httpx.Response(200, json=completion()).content)
    assert Asked(script(compressed(good))).once() == 2
    asked = Asked(script(compressed(gzip.compress(b" " * 50_000_000))))
    assert asked.once() == "unparsable"


# Transient failures


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_transient_errors_are_tried_again(status: int) -> None:
    asked = Asked(script(status, status, completion()))
    assert asked.once() == 2
    assert len(asked.clock.slept) == 2
    assert 0 <= asked.clock.slept[0] <= 0.5
    assert 0 <= asked.clock.slept[1] <= 1.0


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("bad"),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"choices": [{"message": "text"}]}),
        httpx.Response(200, json={"error": {"message": "upstream", "code": 502}}),
        compressed(b"no gzip"),
    ],
)
def test_broken_connections_and_replies_are_tried_again(failure: Reply) -> None:
    asked = Asked(script(failure, completion()))
    assert asked.once() == 2
    assert asked.outcomes[0] in ("connection", "server_error")


def test_at_most_so_many_retries() -> None:
    asked = Asked(script(500), retries=3)
    assert asked.once() == "judge_error"
    assert asked.cost.requests == 4
    asked = Asked(script(500), retries=0)
    assert asked.once() == "judge_error"
    assert asked.cost.requests == 1


@pytest.mark.parametrize("status", [400, 404, 405, 410, 422, 301])
def test_other_errors_are_not_tried_again(status: int) -> None:
    asked = Asked(script(status), structured="schema")
    assert asked.once() == "judge_error"
    assert asked.cost.requests == 1


def test_a_late_reply_is_a_timeout_and_its_prompt_is_paid_for() -> None:
    async def main() -> None:
        async with StubJudge(script=["hang"]) as stub:
            settings = Judge(
                model="asked-1", base_url=stub.base_url, timeout_seconds=0.1, retries=0
            )
            attempts: list[Any] = []
            client = JudgeClient(settings, observe=attempts.append)
            with pytest.raises(Exception, match="no reply within") as caught:
                await client.ask(question(), Cost())
            assert caught.value.reason == "judge_timeout"  # type: ignore[attr-defined]
            assert attempts[0].outcome == "timeout"
            assert attempts[0].input_tokens > 0
            assert attempts[0].estimated
            await client.aclose()

    asyncio.run(main())


def test_the_time_is_for_the_whole_reply() -> None:
    """A byte every 20 ms is never silent for long, and is as late as silence."""

    async def main() -> None:
        async with StubJudge(script=["trickle"]) as stub:
            settings = Judge(
                model="asked-1", base_url=stub.base_url, timeout_seconds=0.3, retries=0
            )
            client = JudgeClient(settings)
            begun = asyncio.get_running_loop().time()
            with pytest.raises(Exception, match="timeout"):
                await client.ask(question(), Cost())
            assert asyncio.get_running_loop().time() - begun < 1.0
            await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    "fault",
    ["disconnect", "cut", "no_json", "no_choices", "garbage", "prose", "truncated", "violation"],
)
def test_one_fault_on_the_wire_costs_one_attempt_more(fault: str) -> None:
    async def main() -> None:
        async with StubJudge(script=["ok", fault]) as stub:
            client = JudgeClient(Judge(model="asked-1", base_url=stub.base_url))
            cost = Cost()
            for _ in range(3):
                await client.ask(question(), cost)
            assert stub.calls == cost.requests == 4
            await client.aclose()

    asyncio.run(main())


def test_a_cancelled_call_frees_its_slot_and_is_counted() -> None:
    async def main() -> None:
        async with StubJudge(script=["hang"]) as stub:
            attempts: list[Any] = []
            settings = Judge(model="asked-1", base_url=stub.base_url, concurrency=1)
            client = JudgeClient(settings, observe=attempts.append)
            cost = Cost()
            task = asyncio.create_task(client.ask(question(), cost))
            await asyncio.sleep(0.2)
            assert stub.in_flight == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [attempt.outcome for attempt in attempts] == ["cancelled"]
            assert cost.requests == 1
            await client.ask(question(), cost)
            assert client.in_flight == 0
            await client.aclose()

    asyncio.run(main())


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
        asked.client._sleep = no_pause  # all within the same two minutes
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
            client = JudgeClient(Judge(model="asked-1", base_url=stub.base_url, concurrency=32))
            told: Counter[str] = Counter()

            async def one(number: int) -> None:
                try:
                    await client.ask(question(str(number)), Cost())
                    told["scored"] += 1
                except Exception as failed:
                    told[getattr(failed, "reason", repr(failed))] += 1

            await asyncio.gather(*(one(number) for number in range(600)))
            assert stub.calls > 610
            await client.aclose()
            return told

    assert asyncio.run(main()) == {"scored": 600}


# Breaker and limiter


def test_a_dead_judge_is_left_alone_and_tried_again() -> None:
    alive = False

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        return completion() if alive else httpx.ConnectError("refused")

    asked = Asked(serve)

    async def main() -> None:
        nonlocal alive
        asked.client._sleep = no_pause
        told = [await asked.ask() for _ in range(50)]
        assert told[0] == "judge_error"
        assert told[-1] == "judge_unavailable"
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
    caplog.set_level(logging.WARNING, "ragmeter.judge")
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
    assert "check base_url, model and key" in caplog.text


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
        told = Counter(await asyncio.gather(*(asked.ask() for _ in range(30))))
        assert told == {"judge_error": 10, "judge_unavailable": 20}
        assert len(asked.clock.slept) == 9  # before each attempt but the first

    asyncio.run(main())


def test_nobody_queues_behind_a_trial() -> None:
    async def main() -> None:
        clock = Clock()
        async with StubJudge(script=["http_404", "hang"]) as stub:
            settings = Judge(model="asked-1", base_url=stub.base_url, concurrency=1)
            client = JudgeClient(settings, monotonic=clock)
            with pytest.raises(JudgeFailed, match="denied"):
                await client.ask(question(), Cost())
            clock.now += 5
            trial = asyncio.create_task(client.ask(question(), Cost()))
            await asyncio.sleep(0.1)
            assert stub.in_flight == 1
            with pytest.raises(JudgeFailed, match="is down"):
                await asyncio.wait_for(client.ask(question(), Cost()), 1)
            trial.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trial
            # a trial that was given up leaves room for the next
            await asyncio.wait_for(client.ask(question(), Cost()), 1)
            assert not client.is_down
            await client.aclose()

    asyncio.run(main())


def test_a_hung_judge_holds_its_own_slots_and_no_others() -> None:
    async def main() -> None:
        async with StubJudge(faults={"hang": 1.0}) as hung, StubJudge() as well:
            first = JudgeClient(
                Judge(model="asked-1", base_url=hung.base_url, concurrency=4, timeout_seconds=0.2),
                name="a",
            )
            second = JudgeClient(
                Judge(model="asked-1", base_url=well.base_url, concurrency=4), name="b"
            )

            async def reason(number: int) -> str:
                try:
                    await first.ask(question(str(number)), Cost())
                except Exception as failed:
                    return str(getattr(failed, "reason", failed))
                return "scored"

            stuck = [asyncio.create_task(reason(number)) for number in range(60)]
            await asyncio.sleep(0.05)
            assert hung.max_in_flight == 4
            begun = asyncio.get_running_loop().time()
            await asyncio.gather(*(second.ask(question(str(n)), Cost()) for n in range(50)))
            assert asyncio.get_running_loop().time() - begun < 2
            told = Counter(await asyncio.gather(*stuck))
            assert set(told) == {"judge_timeout", "judge_unavailable"}
            assert told["judge_unavailable"] > told["judge_timeout"]
            assert first.limit < 4
            await first.aclose()
            await second.aclose()

    asyncio.run(main())


def test_never_more_in_flight_than_configured() -> None:
    async def main() -> None:
        async with StubJudge(latency=0.01) as stub:
            client = JudgeClient(Judge(model="asked-1", base_url=stub.base_url, concurrency=7))
            await asyncio.gather(*(client.ask(question(str(n)), Cost()) for n in range(100)))
            assert stub.max_in_flight == 7
            assert stub.calls == 100
            await client.aclose()

    asyncio.run(main())
