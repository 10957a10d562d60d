"""What a client does about each kind of failure, and which reason it gives."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeClient

from tests.scorers.judge.asking import Asked, Reply, completion, error, question, script
from tests.scorers.judge.stub_judge import StubJudge
from tests.tables import each_row
from tests.waiting import until_async


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
    assert "answer.grade must be one of" in second[3]["content"]
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


def test_an_answer_that_the_limit_ends_twice_is_unparsable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = Asked(script(completion('{"gra', finish="length")))
    assert asked.once() == "unparsable"
    assert asked.outcomes == ["cut_off", "cut_off"]
    assert "1,600 output tokens, which no verdict needs: the model runs on" in caplog.text
    assert "judge.max_output_tokens" in caplog.text


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


@each_row(
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
        json_error(400, "max_tokens must be at least 1, got -186."),
        json_error(400, "This model's maximum prompt length is 131072 but the request has 537812"),
        json_error(400, "Invalid request: Your request exceeded model token limit: 8192"),
        json_error(400, "Range of input length should be [1, 30720]"),
        httpx.Response(200, json={"error": "loaded with context length of only 4096 tokens"}),
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


@each_row("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_transient_errors_are_tried_again(status: int) -> None:
    asked = Asked(script(status, status, completion()))
    assert asked.once() == 2
    assert len(asked.clock.slept) == 2
    assert 0 <= asked.clock.slept[0] <= 0.5
    assert 0 <= asked.clock.slept[1] <= 1.0


@each_row(
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


@each_row("status", [400, 404, 405, 410, 422, 301])
def test_other_errors_are_not_tried_again(status: int) -> None:
    asked = Asked(script(status), structured="schema")
    assert asked.once() == "judge_error"
    assert asked.cost.requests == 1


def test_a_late_reply_is_a_timeout_and_its_prompt_is_paid_for() -> None:
    async def main() -> None:
        async with StubJudge(script=["hang"]) as stub:
            settings = JudgeSettings(model="asked-1", base_url=stub.base_url, timeout_seconds=0.1)
            attempts: list[Any] = []
            client = JudgeClient(settings, observe=attempts.append, retries=0)
            with pytest.raises(Exception, match="no reply within") as caught:
                await client.ask(question(), ScoringCost())
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
            settings = JudgeSettings(model="asked-1", base_url=stub.base_url, timeout_seconds=0.3)
            client = JudgeClient(settings, retries=0)
            begun = asyncio.get_running_loop().time()
            with pytest.raises(Exception, match="timeout"):
                await client.ask(question(), ScoringCost())
            assert asyncio.get_running_loop().time() - begun < 1.0
            await client.aclose()

    asyncio.run(main())


@each_row(
    "fault",
    ["disconnect", "cut", "no_json", "no_choices", "garbage", "prose", "truncated", "violation"],
)
def test_one_fault_on_the_wire_costs_one_attempt_more(fault: str) -> None:
    async def main() -> None:
        async with StubJudge(script=["ok", fault]) as stub:
            client = JudgeClient(JudgeSettings(model="asked-1", base_url=stub.base_url))
            cost = ScoringCost()
            for _ in range(3):
                await client.ask(question(), cost)
            assert stub.calls == cost.requests == 4
            await client.aclose()

    asyncio.run(main())


def test_a_cancelled_call_frees_its_slot_and_is_counted() -> None:
    async def main() -> None:
        async with StubJudge(script=["hang"]) as stub:
            attempts: list[Any] = []
            settings = JudgeSettings(model="asked-1", base_url=stub.base_url, concurrency=1)
            client = JudgeClient(settings, observe=attempts.append)
            cost = ScoringCost()
            task = asyncio.create_task(client.ask(question(), cost))
            await until_async(lambda: stub.in_flight == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [attempt.outcome for attempt in attempts] == ["cancelled"]
            assert cost.requests == 1
            await client.ask(question(), cost)
            assert client.in_flight == 0
            await client.aclose()

    asyncio.run(main())
