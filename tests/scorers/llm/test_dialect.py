"""Servers that do not know what we send: found out by trying, and remembered once it worked."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.dialect import ChatDialect, restore_dialect

from tests.scorers.judge.asking import (
    GRADE_SCHEMA,
    Asked,
    Reply,
    completion,
    error,
    question,
    script,
)
from tests.scorers.judge.stub_judge import StubJudge
from tests.tables import each_row


def refused(message: str, status: int = 400, **fields: Any) -> httpx.Response:
    return httpx.Response(status, json=error(message, **fields))


@pytest.mark.parametrize(
    ("formats", "form"),
    [
        (["json_schema"], "json_schema"),
        (["json_object_schema"], "json_object"),
        (["json_object"], "json_object"),
        ([], None),
    ],
)
def test_the_best_way_that_a_server_knows_is_found(formats: list[str], form: str | None) -> None:
    async def main() -> None:
        async with StubJudge(formats=formats) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            await client.ask(question("a"), ScoringCost())
            calls = stub.calls
            await client.ask(question("b"), ScoringCost())
            assert stub.calls == calls + 1  # found out once
            body = stub.bodies[-1]
            assert (body.get("response_format") or {}).get("type") == form
            assert ("JSON Schema" in body["messages"][0]["content"]) == (form != "json_schema")
            assert ("schema" in (body.get("response_format") or {})) == (
                formats == ["json_object_schema"]
            )
            await client.aclose()

    asyncio.run(main())


@each_row(
    "reply",
    [
        refused("Invalid parameter: 'response_format' of type 'json_schema' is not supported"),
        refused("x", param="response_format"),
        refused("x", param="response_format.type"),
        refused("This response_format type is unavailable now"),
        refused("No endpoints found that support response_format", status=404),
        refused("json_schema is not implemented", status=501),
        refused("grammar is not available", status=500),
        httpx.Response(400, json={"error": "'response_format.type' must be 'json_object'"}),
        httpx.Response(
            422,
            json={"detail": [{"loc": ["body", "response_format", "type"], "msg": "unexpected"}]},
        ),
        httpx.Response(
            422,
            json={
                "object": "error",
                "message": {"detail": [{"loc": ["body", "response_format"], "msg": "extra"}]},
            },
        ),
    ],
)
def test_complaints_about_the_format_are_understood(reply: httpx.Response) -> None:
    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        return (
            reply if body.get("response_format", {}).get("type") == "json_schema" else completion()
        )

    asked = Asked(serve)
    assert asked.once() == 2
    assert asked.outcomes == ["unsupported", "ok"]
    assert not asked.client.is_down


@pytest.mark.parametrize("structured", ["schema", "prompt"])
def test_what_is_configured_is_not_changed(structured: str) -> None:
    asked = Asked(
        script(refused("response_format?", param="response_format")), structured=structured
    )
    assert asked.once() == "judge_error"
    assert asked.cost.requests == 1


@pytest.mark.parametrize(
    ("parameter", "replies"),
    [
        (
            "temperature",
            [
                refused(
                    "Unsupported value: 'temperature' does not support 0 with this model. Only "
                    "the default (1) value is supported.",
                    param="temperature",
                    code="unsupported_value",
                ),
                refused("temperature is deprecated for this model"),
            ],
        ),
        (
            "max_tokens",
            [
                refused(
                    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                    "'max_completion_tokens' instead.",
                    param="max_tokens",
                    code="unsupported_parameter",
                ),
            ],
        ),
        (
            "seed",
            [
                httpx.Response(
                    422,
                    json={"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]},
                ),
                refused("Unrecognized request argument supplied: seed"),
            ],
        ),
    ],
)
def test_parameters_that_are_refused_are_left_out(
    parameter: str, replies: list[httpx.Response]
) -> None:
    for reply in replies:

        def serve(body: dict[str, Any], _: httpx.Request, reply: Reply = reply) -> Reply:
            return reply if parameter in body else completion()

        asked = Asked(serve, structured="schema")

        async def main(asked: Asked = asked) -> None:
            assert await asked.ask() == 2
            assert await asked.ask() == 2

        asyncio.run(main())
        assert asked.outcomes == ["unsupported", "ok", "ok"]
        assert asked.bodies[0].keys() - asked.bodies[1].keys() == {parameter}
        assert ("max_completion_tokens" in asked.bodies[1]) == (parameter == "max_tokens")


def test_all_of_it_at_once() -> None:
    async def main() -> None:
        async with StubJudge(formats=[], lacks=["temperature", "seed", "max_tokens"]) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            await asyncio.gather(*(client.ask(question(str(n)), ScoringCost()) for n in range(40)))
            # each of the first 16 in flight finds it out for itself, nobody later does
            assert stub.calls <= 40 + 16 * 6
            calls = stub.calls
            await client.ask(question("later"), ScoringCost())
            assert stub.calls == calls + 1
            await client.aclose()

    asyncio.run(main())


def test_a_complaint_that_may_quote_the_prompt_changes_nothing_for_others() -> None:
    """A trace that gets refused whatever is left out must not cost the others their parameters."""

    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        text = body["messages"][1]["content"]
        return refused(f"cannot process: {text}") if "poison" in text else completion()

    asked = Asked(serve)

    async def main() -> None:
        assert await asked.ask() == 2
        state = asked.client.state()
        poison = question("poison temperature seed max_tokens response_format json_schema")
        assert await asked.ask(poison) == "judge_error"
        assert asked.client.state() == state
        await asked.ask()
        assert {"temperature", "seed", "max_tokens", "response_format"} <= set(asked.bodies[-1])

    asyncio.run(main())
    assert asked.cost.requests < 12


def test_an_unexplained_400_is_about_the_mode_only_before_it_worked() -> None:
    asked = Asked(script(completion(), httpx.Response(400, text="bad request"), completion()))

    async def main() -> None:
        assert await asked.ask() == 2
        assert await asked.ask() == "judge_error"
        assert await asked.ask() == 2

    asyncio.run(main())
    assert asked.bodies[-1]["response_format"]["type"] == "json_schema"


def test_one_error_500_at_the_start_does_not_weaken_the_mode() -> None:
    asked = Asked(script(refused("oops", status=500), completion()))
    assert asked.once() == 2
    assert asked.bodies[-1]["response_format"]["type"] == "json_schema"


def test_a_server_that_ignores_the_format_gets_the_schema_in_the_prompt() -> None:
    async def main() -> None:
        async with StubJudge(ignores_format=True) as stub:
            client = JudgeClient(JudgeSettings(base_url=stub.base_url, model="asked-1"))
            notified = []
            for number in range(4):
                try:
                    await client.ask(question(str(number)), ScoringCost())
                    notified.append("scored")
                except Exception as failed:
                    notified.append(str(getattr(failed, "reason", failed)))
            assert notified == ["scored"] * 4
            assert "response_format" not in stub.bodies[-1]
            calls = stub.calls
            await client.ask(question("5"), ScoringCost())
            assert stub.calls == calls + 1
            await client.aclose()

    asyncio.run(main())


def test_two_unreadable_answers_do_not_change_how_others_are_asked() -> None:
    asked = Asked(script(completion("no"), completion("no"), completion()))

    async def main() -> None:
        assert await asked.ask() == 2
        assert await asked.ask() == 2

    asyncio.run(main())
    assert ["response_format" in body for body in asked.bodies] == [True, True, False, True]


def test_malformed_answers_do_not_weaken_a_mode_that_works() -> None:
    asked = Asked(script(completion(), *[completion("no")] * 30, completion()))

    async def main() -> None:
        for _ in range(12):
            await asked.ask()

    asyncio.run(main())
    assert all("response_format" in body for body in asked.bodies)


def test_a_dialect_is_restored_only_from_one() -> None:
    good = {
        "mode": "object",
        "temperature": False,
        "seed": True,
        "completion_tokens": True,
        "reasoning_effort": False,
    }
    assert restore_dialect(good) == ChatDialect(
        mode="object", temperature=False, completion_tokens=True, reasoning_effort=False
    )
    others: list[object] = [None, [], {}, {**good, "mode": "x"}, {**good, "seed": 1}]
    for bad in [*others, {**good, "more": True}]:
        assert restore_dialect(bad) is None


def test_object_mode_says_the_schema_in_both_places() -> None:
    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        form = body["response_format"]
        return completion() if form["type"] == "json_object" else refused("json_schema")

    asked = Asked(serve)
    asked.once()
    assert asked.bodies[-1]["response_format"] == {"type": "json_object", "schema": GRADE_SCHEMA}
