"""What a client asks, reads and pays for when the server works."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.billing import ATTEMPT_OUTCOMES
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed
from ragmeter.scorers.llm.served_model import ServedModel

from tests.scorers.judge.asking import GRADE_SCHEMA, Asked, completion, error, question, script
from tests.scorers.judge.stub_judge import StubJudge


def test_asks_with_a_strict_schema_and_gives_the_verdict() -> None:
    asked = Asked(script(completion()), api_key="sk-1")
    assert asked.once() == 2
    (request,) = asked.requests
    assert str(request.url) == "http://judge.test/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert asked.bodies == [
        {
            "model": "asked-1",
            "temperature": 0,
            "seed": 42,
            "max_tokens": 200,
            "messages": [
                {"role": "system", "content": "You grade."},
                {"role": "user", "content": "How relevant is it?"},
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": GRADE_SCHEMA},
            },
        }
    ]


@pytest.mark.parametrize("base", ["http://judge.test/v1", "http://judge.test/v1/"])
def test_a_slash_at_the_end_of_the_address_makes_no_difference(base: str) -> None:
    asked = Asked(script(completion()), base_url=base)
    asked.once()
    assert asked.requests[0].url.path == "/v1/chat/completions"


def test_no_key_no_header() -> None:
    asked = Asked(script(completion()))
    asked.once()
    assert "authorization" not in asked.requests[0].headers


def test_a_judge_without_an_address_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="base_url"):
        JudgeClient(JudgeSettings())


def test_none_means_not_sent() -> None:
    asked = Asked(script(completion()), temperature=None)
    asked.once()
    assert "temperature" not in asked.bodies[0]


def test_in_prompt_mode_the_schema_is_in_the_prompt() -> None:
    asked = Asked(script(completion('```json\n{"grade": 1}\n```')), structured="prompt")
    assert asked.once() == 1
    (body,) = asked.bodies
    assert "response_format" not in body
    system = body["messages"][0]["content"]
    assert system.startswith("You grade.")
    assert json.dumps(GRADE_SCHEMA, separators=(",", ":")) in system


def test_thoughts_and_parts_of_a_message_are_read() -> None:
    parts = [
        {"type": "thinking", "thinking": "It says..."},
        {"type": "text", "text": '{"grade":'},
        {"type": "text", "text": " 3}"},
    ]
    reply = completion()
    reply["choices"][0]["message"]["content"] = parts
    assert Asked(script(reply)).once() == 3
    assert Asked(script(completion('<think>3?</think>{"grade": 1}'))).once() == 1


def test_lone_surrogates_of_a_trace_can_be_sent() -> None:
    asked = Asked(script(completion()))
    assert asked.once(question("broken \ud800 text")) == 2


def test_every_attempt_is_observed_and_paid_for() -> None:
    asked = Asked(
        script(completion("no"), 500, completion()),
        input_usd_per_million=2.0,
        output_usd_per_million=10.0,
    )
    assert asked.once() == 2
    assert asked.outcomes == ["malformed", "server_error", "ok"]
    first, second, third = asked.attempts
    assert (first.input_tokens, first.output_tokens) == (100, 10)
    assert (second.input_tokens, second.output_tokens, second.usd) == (0, 0, 0.0)
    assert third.usd == pytest.approx(100 * 2e-6 + 10 * 10e-6)
    assert not any(attempt.estimated for attempt in asked.attempts)
    assert {attempt.judge for attempt in asked.attempts} == {"judge"}
    assert (asked.cost.requests, asked.cost.input_tokens) == (3, 200)
    assert asked.cost.output_tokens == 20
    assert asked.cost.usd == pytest.approx(2 * third.usd)
    assert set(asked.outcomes) <= set(ATTEMPT_OUTCOMES)


def test_tokens_are_estimated_where_the_reply_counts_none() -> None:
    reply = completion()
    del reply["usage"]
    asked = Asked(script(reply), structured="schema")
    asked.once(question("x" * 390, system="y" * 10))
    (attempt,) = asked.attempts
    assert attempt.estimated
    assert attempt.input_tokens == 100
    assert attempt.output_tokens == 3  # 12 characters


@pytest.mark.parametrize(
    "usage", [None, [], {"prompt_tokens": -1, "completion_tokens": 1}, {"prompt_tokens": 1e9}]
)
def test_a_count_that_is_none_is_not_believed(usage: object) -> None:
    asked = Asked(script(completion(usage=usage)))
    assert asked.once() == 2
    assert asked.attempts[0].estimated


def test_seconds_are_those_in_flight() -> None:
    asked = Asked(script(completion()))

    def slow(body: dict[str, Any], request: httpx.Request) -> dict[str, Any]:
        asked.clock.now += 1.5
        return completion()

    asked = Asked(slow)
    asked.once()
    assert asked.cost.seconds == asked.attempts[0].seconds == 1.5


def test_the_bill_of_a_failure_is_paid_too() -> None:
    asked = Asked(script(completion("no")))
    assert asked.once() == "unparsable"
    assert asked.cost.requests == 3
    assert asked.cost.input_tokens == 300


# Who serves


def test_the_fingerprint_tells_instruments_apart() -> None:
    async def mark(what: Any = None, reply: Any = None, **settings: Any) -> str:
        asked = Asked(script(reply or completion()), **settings)
        return (await asked.client.ask(what or question(), ScoringCost())).fingerprint

    async def main() -> None:
        first = await mark()
        assert len(first) == 12
        assert int(first, 16) >= 0
        others = [
            await mark(question(prompt_hash="hash-2")),
            await mark(reply=completion(model="served-2")),
            await mark(reply=completion(system_fingerprint="fp_2")),
            await mark(model="asked-2"),
            await mark(temperature=0.5),
            await mark(temperature=None),
            await mark(structured="prompt"),
        ]
        assert len({first, *others}) == 1 + len(others)
        same = [
            await mark(question("Another question")),
            await mark(timeout_seconds=3, concurrency=2, api_key="sk-2"),
            await mark(question(max_output_tokens=9), input_usd_per_million=3),
            await mark(structured="schema"),
        ]
        assert set(same) == {first}

    asyncio.run(main())


def test_a_change_of_who_serves_is_told_once() -> None:
    asked = Asked(
        script(completion(), completion(), completion(model="served-2"), completion(model=None))
    )

    async def main() -> None:
        for _ in range(3):
            await asked.ask()
        assert asked.changes == [(ServedModel("served-1", "fp_1"), ServedModel("served-2", "fp_1"))]
        assert asked.client.served == ServedModel("served-2", "fp_1")
        await asked.ask()
        assert asked.client.served == ServedModel("", "fp_1")

    asyncio.run(main())


def test_builds_that_answer_in_turn_share_a_fingerprint_until_one_is_gone() -> None:
    builds = ["a", "b"]
    rng = random.Random(3)
    asked = Asked(lambda *_: completion(system_fingerprint=rng.choice(builds)))

    async def marks(count: int) -> list[str]:
        found = []
        for number in range(count):
            asked.clock.now += 1.0
            verdict = await asked.client.ask(question(f"{asked.clock.now} {number}"), ScoringCost())
            found.append(verdict.fingerprint)
        return found

    async def main() -> None:
        early = await marks(20)
        assert len(set(early)) == 2  # one alone, then both
        both = await marks(500)
        assert set(both) == {early[-1]} == {asked.client.fingerprint("hash-1")}
        assert len(asked.changes) == 1
        (named,) = {asked.client.served.system_fingerprint} if asked.client.served else {""}
        builds.remove(named)
        alone = await marks(700)
        assert alone[0] == early[-1] != alone[-1]
        assert len(asked.changes) == 2
        assert asked.changes[-1][1].system_fingerprint == builds[0]

    asyncio.run(main())


def test_names_from_the_server_are_bounded_and_printable() -> None:
    asked = Asked(script(completion(model="m\n\x1b[31m" + "x" * 9999, system_fingerprint={})))
    asked.once()
    served = asked.client.served
    assert served is not None
    assert served.model == ("m??[31m" + "x" * 9999)[:120]
    assert served.system_fingerprint == ""


def test_the_fingerprint_to_come_is_that_of_the_last_reply() -> None:
    asked = Asked(script(completion()))
    assert asked.client.fingerprint("hash-1") is None
    verdict = asyncio.run(asked.client.ask(question(), ScoringCost()))
    assert asked.client.fingerprint("hash-1") == verdict.fingerprint
    assert asked.client.fingerprint("hash-2") not in (None, verdict.fingerprint)


def test_who_served_and_how_it_is_asked_survive_a_restart() -> None:
    def picky(body: dict[str, Any], _: httpx.Request) -> Any:
        if "temperature" in body:
            return httpx.Response(400, json=error("Unsupported value", param="temperature"))
        return completion()

    before = Asked(picky)
    assert before.once() == 2
    kept = json.loads(json.dumps(before.client.state()))
    after = Asked(picky, state=kept)
    assert after.client.fingerprint("hash-1") == before.client.fingerprint("hash-1")
    assert after.once() == 2
    assert after.outcomes == ["ok"]
    assert after.changes == []


@pytest.mark.parametrize("state", [{}, {"asked": 3}, {"asked": None, "served": [], "dialect": {}}])
def test_a_state_of_another_shape_is_no_state(state: dict[str, Any]) -> None:
    asked = Asked(script(completion()), state=state)
    assert asked.client.served is None
    assert asked.once() == 2


def test_a_state_whose_parts_are_damaged_is_no_state() -> None:
    first = Asked(script(completion()))
    first.once()
    kept = {**first.client.state(), "dialect": {"mode": "telepathy"}, "served": [1]}
    asked = Asked(script(completion()), state=kept)
    assert asked.client.served is None
    assert asked.once() == 2


def test_the_state_of_another_model_does_not_hold() -> None:
    first = Asked(script(completion()))
    first.once()
    second = Asked(script(completion()), state=first.client.state(), model="asked-2")
    assert second.client.served is None


# The key


def test_a_key_in_a_file_is_read_anew_when_the_server_refuses_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")

    def serve(_: dict[str, Any], request: httpx.Request) -> Any:
        if request.headers["authorization"] == "Bearer new":
            return completion()
        return 401

    asked = Asked(serve, api_key_file=file)
    file.write_text("new\n")
    assert asked.once() == 2
    assert asked.outcomes == ["denied", "ok"]
    assert not asked.client.is_down


def test_a_key_that_is_still_refused_is_tried_once_more_only(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old")
    asked = Asked(script(401), api_key_file=file)
    file.write_text("wrong")
    assert asked.once() == "judge_error"
    assert asked.outcomes == ["denied", "denied"]
    assert asked.client.is_down


def test_neither_key_nor_trace_stands_in_logs_and_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(0)
    replies: list[Any] = [
        httpx.Response(400, json=error("you said: private words", code="private words")),
        httpx.Response(401, json=error("bad key sk-secret for private words")),
        httpx.Response(500, text="private words"),
        completion("private words"),
        completion('{"private words": 1}'),
        httpx.ConnectError("to http://u:sk-secret@host private words"),
        httpx.Response(400, json=error("context length", code="context_length_exceeded")),
    ]
    for reply in replies:
        asked = Asked(script(reply), api_key="sk-secret", structured="schema", retries=0)
        with pytest.raises(JudgeFailed) as caught:
            asyncio.run(asked.client.ask(question("private words"), ScoringCost()))
        notified = str(caught.value) + repr(asked.client._server.key)
        assert "private" not in notified
        assert "sk-secret" not in notified
    ours = [record for record in caplog.records if record.name.startswith("ragmeter.")]
    assert ours
    for record in ours:
        assert "private" not in record.getMessage()
        assert "sk-secret" not in record.getMessage()


# Over a real connection


def test_asks_a_server_over_the_network() -> None:
    async def main() -> None:
        async with StubJudge() as stub:
            client = JudgeClient(
                JudgeSettings(base_url=stub.base_url, model="asked-1", api_key="sk-1")
            )
            values = [(await client.ask(question(str(i)), ScoringCost())).value for i in range(30)]
            assert set(values) == {0, 1, 2, 3}
            assert client.served == ServedModel("stub-1", "fp_stub")
            assert stub.headers[0]["authorization"] == "Bearer sk-1"
            assert stub.headers[0]["content-type"] == "application/json"
            assert client.in_flight == 0
            await client.aclose()

    asyncio.run(main())


def test_the_client_of_the_caller_is_not_closed() -> None:
    async def main() -> None:
        asked = Asked(script(completion()))
        await asked.client.aclose()
        assert await asked.ask() == 2

    asyncio.run(main())
