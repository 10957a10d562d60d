"""Forms in which servers and gateways say that something went wrong, as their users report them."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from typing import Any

import httpx
import pytest
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.billing import TokenUsage
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed
from ragmeter.scorers.llm.replies import ChatCompletion, FailedAttempt, read_chat_reply
from ragmeter.scorers.llm.server_words import printable_words, without_quotations

from tests.scorers.judge.asking import (
    Asked,
    Reply,
    Server,
    completion,
    error,
    question,
    script,
)
from tests.tables import each_row


def read(reply: Any, status: int = 200) -> ChatCompletion | FailedAttempt:
    return read_chat_reply(status, json.dumps(reply).encode())


def failed(reply: Any, status: int = 200) -> FailedAttempt:
    found = read(reply, status)
    assert isinstance(found, FailedAttempt)
    return found


# Errors in wrappings

SEED = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
GEMINI = {"code": 400, "message": SEED, "status": "INVALID_ARGUMENT"}


@each_row(
    "body",
    [
        [{"error": GEMINI}],
        {"error": GEMINI},
        {"error": [GEMINI]},
        {"error": {"error": GEMINI}},
        {"errors": [GEMINI]},
        [{"error": {"errors": [{**GEMINI, "reason": "badRequest"}]}}],
    ],
)
def test_an_error_is_opened_whatever_it_is_wrapped_in(body: Any) -> None:
    def serve(sent: dict[str, Any], _: httpx.Request) -> Reply:
        return httpx.Response(400, json=body) if "seed" in sent else completion()

    asked = Asked(serve)
    assert asked.once() == 2
    assert asked.outcomes == ["unsupported", "ok"]


@each_row(
    "body",
    [
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200000) exceeds the maximum",
                }
            }
        ],
        [{"error": {"code": 400, "message": "input token count exceeds what is allowed (8192)."}}],
        [error("x", code="context_length_exceeded")],
        {"errors": [{"message": "prompt is too long: 210000 tokens > 200000 maximum"}]},
        error("input length and `max_tokens` exceed context limit: 199000 + 2000 > 200000"),
        error("Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens)."),
        {"message": "The model returned the following errors: Input is too long"},
    ],
)
def test_too_long_is_seen_in_an_array(body: Any) -> None:
    assert failed(body, 400).outcome == "too_long"


# Failures of a provider in a reply that looks like a success


@each_row(
    ("choice", "outcome"),
    [
        ({"finish_reason": "error"}, "server_error"),
        ({"finish_reason": "ERROR"}, "server_error"),
        ({"finish_reason": "network_error"}, "server_error"),
        ({"finish_reason": "insufficient_system_resource"}, "server_error"),
        ({"finish_reason": "abort"}, "server_error"),
        ({"finish_reason": "stop", "error": {"code": 502, "message": "down"}}, "server_error"),
        ({"finish_reason": "error", "error": {"code": 429, "message": "x"}}, "rate_limited"),
        ({"finish_reason": "error", "error": {"code": 401, "message": "x"}}, "denied"),
        ({"finish_reason": "error", "error": "provider returned error"}, "server_error"),
        ({"finish_reason": "error", "error": {"code": "429", "message": "x"}}, "rate_limited"),
        ({"finish_reason": "stop", "native_finish_reason": "error"}, "server_error"),
        ({"finish_reason": "user_cancelled"}, "server_error"),
        ({"finish_reason": "interrupted"}, "server_error"),
        ({"finish_reason": "MALFORMED_FUNCTION_CALL"}, "server_error"),
        ({"finish_reason": "OTHER"}, "server_error"),
    ],
)
def test_an_answer_that_ends_in_an_error_is_no_verdict(
    choice: dict[str, Any], outcome: str
) -> None:
    for text in ('{"grade": 2}', "", None):  # whatever was written until then
        message = {"role": "assistant", "content": text}
        assert failed({"choices": [{"message": message, **choice}]}).outcome == outcome


def test_an_error_of_the_provider_is_tried_again() -> None:
    asked = Asked(script(completion('{"grade": 3}', finish="error"), completion()))
    assert asked.once() == 2
    assert asked.outcomes == ["server_error", "ok"]
    assert "response_format" in asked.bodies[-1]


@each_row(
    "finish",
    [
        "SAFETY",
        "PROHIBITED_CONTENT",
        "refusal",
        "content_filter",
        "content-filter",
        "content_filter: SAFETY",
        "IMAGE_SAFETY",
        "blocked",
        "policy_violation",
        "ERROR_TOXIC",
    ],
)
def test_a_filter_has_many_names(finish: str) -> None:
    asked = Asked(script(completion('{"grade": 3}', finish=finish)))
    assert asked.once() == "judge_refused"


@pytest.mark.parametrize(
    "finish", ["MAX_TOKENS", "token_limit", "max_length", "model_context_window_exceeded"]
)
def test_no_room_has_many_names(finish: str) -> None:
    found = read(completion('{"gr', finish=finish))
    assert isinstance(found, ChatCompletion)
    assert found.cut_off
    assert not found.refused


@each_row("finish", ["stop", "eos", "eos_token", "end_turn", "STOP", "stop_sequence"])
def test_an_end_is_an_end(finish: str) -> None:
    assert Asked(script(completion('{"grade": 2}', finish=finish))).once() == 2


@each_row(
    ("reply", "status"),
    [
        ({"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}, 200),
        (
            {
                "choices": [],
                "prompt_filter_results": [
                    {"content_filter_results": {"jailbreak": {"filtered": True}}}
                ],
            },
            200,
        ),
        ({"error": {"code": "DataInspectionFailed", "message": "Input data …"}}, 400),
        ({"error": {"message": "Output data may contain inappropriate content."}}, 400),
        ({"error": {"message": "Content Exists Risk"}}, 400),
        (
            {
                "error": {
                    "code": "1301",
                    "message": "系统检测到输入或生成内容可能包含不安全或敏感内容",
                }
            },
            400,
        ),
    ],
)
def test_a_blocked_prompt_is_a_refusal(reply: Any, status: int) -> None:
    assert failed(reply, status).outcome == "refused"


@pytest.mark.parametrize(
    "before", [": keep-alive\n\n", "\n: PROCESSING\r\n\r\n: PROCESSING\n\n", ":\n"]
)
def test_comments_that_a_gateway_sends_before_a_reply_are_no_part_of_it(before: str) -> None:
    body = before + json.dumps(completion('{"grade": 2}'))
    asked = Asked(script(httpx.Response(200, text=body)))
    assert asked.once() == 2
    assert failed_text(before).outcome == "server_error"


def failed_text(body: str) -> FailedAttempt:
    found = read_chat_reply(200, body.encode())
    assert isinstance(found, FailedAttempt)
    return found


def test_a_refusal_among_the_parts_of_a_content_is_one() -> None:
    reply = message(content=[{"type": "refusal", "refusal": "I can't help with that."}])
    assert Asked(script(reply)).once() == "judge_refused"


# Verdicts in other places, and replies that are no completions

VERDICT = '{"grade": 2}'
TOOL = {"name": "json_tool_call", "arguments": VERDICT}


def message(finish: str = "stop", **fields: Any) -> dict[str, Any]:
    return completion(
        choices=[{"message": {"role": "assistant", **fields}, "finish_reason": finish}]
    )


@each_row(
    "reply",
    [
        message(content=None, reasoning_content=VERDICT),
        message(content="", reasoning=f"\n{VERDICT}\n"),
        message(content=None, tool_calls=[{"id": "1", "type": "function", "function": TOOL}]),
        message(content=None, function_call=TOOL),
        message(content=None, parsed={"grade": 2}),
        message(content={"grade": 2}),
        message(content=[{"type": "text", "text": VERDICT}]),
        message(content=[{"text": VERDICT}]),
        message(content=[VERDICT]),
        completion(f"\ufeff{VERDICT}\u200b"),
        completion(VERDICT, finish="length"),  # the limit came with the last token
        httpx.Response(200, content=b"\xef\xbb\xbf" + json.dumps(completion()).encode()),
    ],
)
def test_a_verdict_is_read_wherever_servers_put_it(reply: Reply) -> None:
    asked = Asked(script(reply))
    assert asked.once() == 2
    assert asked.outcomes == ["ok"]


def events(*chunks: Any, newline: str = "\n", comment: str = "") -> httpx.Response:
    text = "".join(f"{comment}data: {json.dumps(chunk)}{newline * 2}" for chunk in chunks)
    return httpx.Response(200, text=f"{text}data: [DONE]{newline * 2}")


def delta(finish: str | None = None, **fields: object) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


PIECES = [
    delta(role="assistant", content=""),
    delta(content=VERDICT[:4]),
    delta(content=VERDICT[4:]),
]


@each_row(
    "reply",
    [
        events(*PIECES, delta("stop")),
        events(*PIECES, newline="\r\n", comment=": PROCESSING\r\n\r\n"),
        events(delta(reasoning_content="It says {3}."), *PIECES, delta("stop")),
        events({"choices": [], "prompt_filter_results": []}, *PIECES, delta("stop")),
        events(delta(reasoning_content=VERDICT), delta("stop")),
        events({"choices": [{"index": 1, "delta": {"content": "{"}}]}, *PIECES, delta("stop")),
        httpx.Response(200, text="id: 1\nevent: message\ndata:" + json.dumps(completion())),
    ],
)
def test_a_reply_that_is_streamed_unasked_is_put_together(reply: httpx.Response) -> None:
    asked = Asked(script(reply))
    assert asked.once() == 2
    assert asked.outcomes == ["ok"]


def test_a_stream_tells_tokens_refusals_limits_and_errors() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 20}}
    told = read_chat_reply(200, events(*PIECES, delta("length"), usage).content)
    assert isinstance(told, ChatCompletion)
    assert told.cut_off
    assert told.usage == TokenUsage(50, 20)
    assert told.served.model == "m"
    refused = read_chat_reply(
        200, events(delta(refusal="I "), delta("stop", refusal="won't")).content
    )
    assert isinstance(refused, ChatCompletion)
    assert refused.refused
    failure = read_chat_reply(200, events(*PIECES, error("worker lost", code=503)).content)
    assert isinstance(failure, FailedAttempt)
    assert (failure.outcome, failure.words) == ("server_error", "worker lost")


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (message(content=None, reasoning_content=f"I think {VERDICT}"), "the answer is empty"),
        (message("length", content=None, reasoning_content=VERDICT), "limit of 16,384"),
        (message(content=None, tool_calls=[{"function": TOOL}] * 2), "the answer is empty"),
        (message(content="no", reasoning_content=VERDICT), "only a JSON object"),
        (completion(f"```json\n{VERDICT}\n```\n// as asked"), "follow the code fence"),
        (completion(VERDICT * 2), "something follows"),
        (completion("Score: 2"), "only a JSON object"),
        (completion('{"grade": \u0662}'), "Expecting value"),
        (completion('{"grade": "2/3"}'), "not as the schema asks"),
        (completion('{"grade": -1}'), "not as the schema asks"),
        (completion('{"grade": 1e400}'), "not as the schema asks"),
        (completion('{"grade": NaN}'), "NaN and Infinity"),
    ],
)
def test_a_verdict_that_is_none_is_counted_and_the_log_says_why(
    reply: Reply, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert Asked(script(reply)).once() == "unparsable"
    assert why in caplog.text


def test_a_judge_that_repeats_the_question_gives_no_verdict() -> None:
    asked = Asked(lambda body, _: completion(body["messages"][-1]["content"]))
    assert asked.once() == "unparsable"


LOGIN = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Password</body></html>"
CHUNK = 'data: {"choices": [{"delta": {"content": "{"}}]}\n\n'
OTHER_STREAM = 'event: ping\ndata: {"type": "ping"}\n\ndata: {"type": "message_stop"}\n\n'


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            httpx.Response(200, html=LOGIN),
            'a web page: check base_url, and what stands before the judge; it says "Sign in"',
        ),
        (httpx.Response(403, html=LOGIN), 'status 403; it says "Sign in"'),
        (
            httpx.Response(407, html="<style>b{}</style><h1>Proxy</h1><p>key?"),
            'denied, status 407; it says "Proxy key?"',
        ),
        (httpx.Response(200, text=CHUNK), 'it says "the stream broke off"'),
        (httpx.Response(200, text=CHUNK + "data: {"), 'it says "the stream broke off"'),
        (
            httpx.Response(200, text=OTHER_STREAM),
            "a stream of no chat completion: turn streaming off",
        ),
        (httpx.Response(200, text="data: [DONE]\n\n"), "a stream of no chat completion"),
        (httpx.Response(200), "no chat completion"),
        ({"choices": [], "usage": {"prompt_tokens": 9}}, "no chat completion"),
        ({"object": "error", "message": "not ready", "code": 50001}, '; it says "not ready"'),
        ({"success": False, "errors": [{"message": "no route"}]}, '; it says "no route"'),
        ({"code": 10012, "msg": "no credit", "data": None}, '; it says "no credit"'),
        ({"detail": "Not authenticated"}, '; it says "Not authenticated"'),
    ],
)
def test_a_reply_that_is_no_completion_is_named(
    reply: Reply, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert Asked(script(reply)).once() == "judge_error"
    assert said in caplog.text


# Refusals behind gateways

LITELLM = "litellm.BadRequestError: litellm.ContentPolicyViolationError: AzureException - filtered"
POLICY = {"innererror": {"code": "ResponsibleAIPolicyViolation"}}


@each_row(
    ("status", "body"),
    [
        (400, error(LITELLM, type=None, param=None, code="400")),
        (500, error(LITELLM, code="500")),
        (400, error("bad request", provider_specific_fields=POLICY)),
        (400, error("bad request", metadata={"provider": {"error": {"code": "content_filter"}}})),
        (400, [{"error": {"code": 400, "message": "x", "status": "PROHIBITED_CONTENT"}}]),
        (400, error("Request blocked by the guardrail of this workspace")),
        (400, error("x", code="GUARDRAIL_INTERVENED")),
        (200, {"error": {"code": 403, "message": "flagged by moderation"}}),
    ],
)
def test_a_refusal_behind_a_gateway_is_one(status: int, body: Any) -> None:
    asked = Asked(script(httpx.Response(status, json=body)))
    assert asked.once() == "judge_refused"
    assert asked.outcomes == ["refused"]


@pytest.mark.parametrize(
    "message", ["the moderation queue of the forum", "safety data sheet", "a flagged ship"]
)
def test_a_word_of_the_prompt_in_an_error_is_no_refusal(message: str) -> None:
    assert failed(error(f"cannot parse: {message}"), 400).outcome == "client_error"


def test_throttling_has_any_status() -> None:
    reply = {"message": "Too many requests", "__type": "ThrottlingException"}
    assert failed(reply, 400).outcome == "rate_limited"


# Room for thoughts


def thinker(needs: int, *, says: str = "usage") -> Server:
    """A model whose thoughts and answer take so many tokens."""

    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        limit = body.get("max_tokens") or body["max_completion_tokens"]
        fits = limit >= needs
        reply = completion('{"grade": 2}' if fits else "", finish="stop" if fits else "length")
        used = min(limit, needs)
        reply["usage"] = {"prompt_tokens": 100, "completion_tokens": used}
        if says == "usage":
            reply["usage"]["completion_tokens_details"] = {"reasoning_tokens": used}
        else:
            reply["choices"][0]["message"][says] = "hm"
        return reply

    return serve


@pytest.mark.parametrize("says", ["usage", "reasoning_content", "reasoning"])
def test_a_thinking_model_gets_all_the_room_at_once_and_keeps_it(says: str) -> None:
    asked = Asked(thinker(5000, says=says))

    async def main() -> None:
        assert await asked.ask() == 2
        assert await asked.ask() == 2

    asyncio.run(main())
    assert [body["max_tokens"] for body in asked.bodies] == [200, 16_384, 16_384]
    again = Asked(thinker(5000), state=asked.client.state())
    assert again.once() == 2
    assert again.outcomes == ["ok"]  # and over a restart


def test_the_setting_bounds_the_room_and_the_log_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = Asked(thinker(5000), max_output_tokens=3000)
    assert asked.once() == "unparsable"
    assert [body["max_tokens"] for body in asked.bodies] == [200, 3000]
    assert "limit of 3,000 output tokens" in caplog.text
    assert "judge.max_output_tokens" in caplog.text
    assert Asked(thinker(5000), max_output_tokens=6000).once() == 2


def test_many_calls_at_the_start_find_the_room_without_a_budget_for_each() -> None:
    asked = Asked(thinker(5000))

    async def main() -> list[Any]:
        return list(await asyncio.gather(*(asked.ask(question(str(n))) for n in range(40))))

    assert asyncio.run(main()) == [2] * 40


@pytest.mark.parametrize(
    "complaint",
    [
        error("max_tokens is too large: 16384. This model supports at most 8192 completion tokens"),
        error("must be less than or equal to 8192", param="max_tokens"),
        error("Range of max_tokens should be [1, 8192]", code="InvalidParameter"),
        [{"error": {"message": "max_tokens: the maximum value is 8192"}}],
    ],
)
def test_the_room_that_the_server_names_is_the_most(complaint: Any) -> None:
    think = thinker(5000)

    def serve(body: dict[str, Any], request: httpx.Request) -> Reply:
        if body["max_tokens"] > 8192:
            return httpx.Response(400, json=complaint)
        return think(body, request)

    asked = Asked(serve)
    assert asked.once() == 2
    assert asked.bodies[-1]["max_tokens"] == 8192
    assert asked.outcomes == ["cut_off", "unsupported", "ok"]


def test_reasoning_effort_is_sent_if_set_and_left_out_if_refused() -> None:
    plain = Asked(script(completion()))
    plain.once()
    assert "reasoning_effort" not in plain.bodies[0]

    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        if "reasoning_effort" in body:
            return httpx.Response(400, json=error("Unknown parameter: 'reasoning_effort'."))
        return completion()

    asked = Asked(serve, reasoning_effort="low")
    assert asked.once() == 2
    assert [body.get("reasoning_effort") for body in asked.bodies] == ["low", None]


# A few failures at the start

GARBAGE = completion("")
UNEXPLAINED = httpx.Response(400, text="bad request")


@each_row("bad", [GARBAGE, completion("starting up"), UNEXPLAINED])
@each_row("number", [1, 4, 16])
def test_failures_at_the_start_change_no_form_for_good(bad: Reply, number: int) -> None:
    asked = Asked(script(*[bad] * number, completion()))

    async def main() -> None:
        await asyncio.gather(*(asked.ask(question(str(n))) for n in range(16)))
        await asked.ask()

    asyncio.run(main())
    assert asked.bodies[-1]["response_format"]["type"] == "json_schema"
    assert asked.client.state()["dialect"]["mode"] == "schema"


def test_a_form_that_a_server_does_not_know_is_given_up_all_the_same() -> None:
    def serve(body: dict[str, Any], _: httpx.Request) -> Reply:
        return UNEXPLAINED if "response_format" in body else completion()

    asked = Asked(serve)

    async def main() -> list[Any]:
        return [await asked.ask(question(str(n))) for n in range(12)]

    assert asyncio.run(main()) == [2] * 12
    assert asked.client.state()["dialect"]["mode"] == "prompt"


# The server's own words


def test_the_words_of_a_server_stand_in_one_line_a_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    asked = Asked(script(httpx.Response(422, json=error("the model stub-0 has no such mode"))))

    async def main() -> None:
        for number in range(8):
            await asked.ask(question(str(number)))

    asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records if "no such mode" in record.message]
    assert len(lines) == 1
    assert 'it says "the model stub-0 has no such mode"' in lines[0]


@pytest.mark.parametrize(
    "secret",
    ["sk-proj-abcdefghijklmnop", "sk-abc***xyz", "gsk_live*****99", "Bearer abc.def.ghi123456"],
)
def test_no_key_stands_in_the_words(secret: str) -> None:
    words = printable_words(f"Incorrect API key provided: {secret}. See the account page.")
    assert secret not in words
    assert "abc" not in words or "Bearer" not in secret


def test_the_key_that_was_sent_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    reply = httpx.Response(422, json=error("no plan for correcthorse here"))
    assert Asked(script(reply), api_key="correcthorse").once() == "judge_error"
    assert "no plan for" in caplog.text
    assert "correcthorse" not in caplog.text


def test_words_are_bounded_and_printable() -> None:
    words = printable_words("no \x1b[31m\n\u202ered" + "x y" * 10_000)
    assert words.isprintable()
    assert len(words) <= 240
    assert "\\u001b[31m" in words


def test_bytes_that_are_no_text_are_named() -> None:
    packed = gzip.compress(json.dumps(completion()).encode()).decode("utf-8", "replace")
    assert "compressed reply without Content-Encoding" in printable_words(packed)
    assert printable_words("caf\ufffd is closed today") == "caf\ufffd is closed today"


def test_what_stands_in_the_prompt_is_left_out() -> None:
    prompt = "Passage: The patient Jane Roe was admitted in May.\nQuestion: when?"
    words = without_quotations("cannot read 'the patient Jane Roe was admitted' here", prompt)
    assert words == "cannot read '[...]' here"


def test_a_client_tells_a_bounded_number_of_causes(caplog: pytest.LogCaptureFixture) -> None:
    codes = iter(range(1000))

    def serve(_: dict[str, Any], __: httpx.Request) -> Reply:
        return httpx.Response(422, json=error("x", code=f"code_{next(codes)}"))

    asked = Asked(serve)

    async def main(client: JudgeClient) -> None:
        for number in range(100):
            try:
                await client.ask(question(str(number)), ScoringCost())
            except Exception:
                continue

    asyncio.run(main(asked.client))
    assert sum("gave no verdict" in record.message for record in caplog.records) <= 20


def test_the_words_of_a_server_go_with_the_failure() -> None:
    prompt = question("How long is the warranty of it?")
    said = f"no such mode for key sk-abcdefghijklmnopqrst: {prompt.user}"
    asked = Asked(script(httpx.Response(422, json=error(said))))
    with pytest.raises(JudgeFailed) as failed:
        asyncio.run(asked.client.ask(prompt, ScoringCost()))
    assert failed.value.server.startswith("status 422")
    assert "no such mode" in failed.value.server
    assert "abcdefghijklmnop" not in failed.value.server
    assert prompt.user.rstrip("?") not in failed.value.server


# Replies as vendors and gateways give them: what each means

RAW_TOO_LONG = json.dumps(error("maximum context length", code="context_length_exceeded"))
RAW_FILTERED = json.dumps(error("The response was filtered", code="content_filter"))
NO_KEY = {"reason": "API_KEY_INVALID"}


@each_row(
    ("body", "outcome", "hopeless"),
    [
        # OpenRouter keeps the provider's error as text
        (error("Provider returned error", code=400, metadata={"raw": RAW_TOO_LONG}), "too_long", 0),
        (error("Provider returned error", code=400, metadata={"raw": RAW_FILTERED}), "refused", 0),
        (
            error("Provider returned error", metadata={"raw": "prompt is too long: 9 > 8"}),
            "too_long",
            0,
        ),
        ([error("API key not valid. Please pass one.", code=400, details=[NO_KEY])], "denied", 1),
        (error("Your credit balance is too low to access the API."), "denied", 1),
        (error("Access denied, please make sure of it.", code="Arrearage"), "denied", 1),
        (
            error("Budget has been exceeded! Current cost: 10.0", type="budget_exceeded"),
            "denied",
            1,
        ),
        # a prompt that is quoted speaks of money
        (error("Bad request: 'insufficient balance on my account'"), "client_error", 0),
        (
            {"__type": "com.amazon.coral#ThrottlingException", "message": "Too many tokens"},
            "rate_limited",
            0,
        ),
        (error("It may be.", code="InputTextSensitiveContentDetected"), "refused", 0),
        (
            {"error": {"message": {"error": "Violated guardrail policy"}, "code": "400"}},
            "refused",
            0,
        ),
        (error("The checks failed.", type="hooks_failed"), "refused", 0),
        (
            {"error": [{"code": 2016, "message": "Prompt blocked due to security configurations"}]},
            "refused",
            0,
        ),
        (
            error("Invalid prompt: it was flagged as potentially violating our usage policy."),
            "refused",
            0,
        ),
        (error("Blocked.", code="cyber_policy_violation"), "refused", 0),
        (error("litellm.ContextWindowExceededError: Input tokens exceed the limit"), "too_long", 0),
        (error("Blocked entity detected: CREDIT_CARD by Guardrail: presidio."), "refused", 0),
        (error("bad request: prompt pattern is blocked"), "refused", 0),
        (error("cannot parse 'a prompt pattern is blocked'"), "client_error", 0),
        # the model wrote no JSON: another attempt may
        (error("Failed to generate JSON.", code="json_validate_failed"), "server_error", 0),
    ],
)
def test_what_vendors_and_gateways_mean_by_status_400(
    body: Any, outcome: str, hopeless: int
) -> None:
    found = failed(body, 400)
    assert (found.outcome, found.hopeless) == (outcome, bool(hopeless))


def test_an_account_that_is_suspended_needs_a_person() -> None:
    said = "Account acme is suspended, possibly due to failure to pay past invoices."
    found = failed(error(said, code="PRECONDITION_FAILED"), 412)
    assert (found.outcome, found.hopeless) == ("denied", True)


@each_row(
    ("body", "words"),
    [
        ({"ErrorCode": "X", "Message": "input too long for it"}, "input too long for it"),
        (
            {"message": {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs"}]}},
            "seed: Extra inputs",
        ),
        ({"error_code": 336003, "error_msg": "no such mode"}, "no such mode"),
        ({"base_resp": {"status_code": 1008, "status_msg": "no balance"}}, "no balance"),
        ({"fault": {"faultstring": "quota", "detail": {"errorcode": "x"}}}, "quota"),
        ({"errorMessage": "timed out", "errorType": "Sandbox"}, "timed out"),
        ({"detail": {"error": "out of memory"}}, "out of memory"),
        ({"type": "about:blank", "title": "Backend exploded"}, "Backend exploded"),
    ],
)
def test_the_words_are_found_wherever_servers_put_them(body: Any, words: str) -> None:
    assert failed(body, 422).words == words


def test_what_may_be_an_answer_is_no_word_of_a_failure() -> None:
    assert failed({"data": {"message": "the patient said no"}}).words == ""
    assert failed({"base_resp": {"status_msg": "no balance"}}).words == "no balance"


@pytest.mark.parametrize("finish", ["time_limit", "server_shutdown", "preempted"])
def test_an_answer_that_a_server_broke_off_is_no_verdict(finish: str) -> None:
    assert failed(completion('{"grade": 2}', finish=finish)).outcome == "server_error"


# Replies of other APIs, and what is paid for without a verdict

ANSWER = [{"type": "text", "text": VERDICT}]
OTHER_APIS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"type": "message", "content": ANSWER, "stop_reason": "end_turn"},
        "Messages API",
        "stop_reason",
    ),
    (
        {"output": {"message": {"content": [{"text": VERDICT}]}}, "stopReason": "end_turn"},
        "Bedrock's Converse",
        "stopReason",
    ),
    (
        {"object": "response", "output": [{"type": "message", "content": ANSWER}]},
        "Responses API",
        "status",
    ),
    (
        {"message": {"role": "assistant", "content": VERDICT}, "done": True},
        "Ollama's",
        "finish_reason",
    ),
    ({"message": {"role": "assistant", "content": ANSWER}}, "Cohere's", "finish_reason"),
    ({"output": {"text": VERDICT, "finish_reason": "stop"}}, "DashScope's", "stopReason"),
    ({"result": {"response": VERDICT}, "success": True}, "Cloudflare's", "finish_reason"),
    ({"generated_text": VERDICT}, "Text Generation Inference's", "finish_reason"),
    ({"predictions": [VERDICT], "model": "projects/p"}, "Vertex AI's", "finish_reason"),
    ({"response": VERDICT, "done": True}, "Ollama's", "done_reason"),
    ({"content": VERDICT, "stop": True}, "llama.cpp's", "finish_reason"),
    ({"text_output": VERDICT, "model_name": "m"}, "Triton's", "finish_reason"),
    ({"outputs": [{"data": [VERDICT]}]}, "KServe's", "finish_reason"),
    ({"results": [{"generated_text": VERDICT}]}, "watsonx's", "finish_reason"),
    ({"object": "list", "data": [{"embedding": [0.1]}]}, "embeddings", "finish_reason"),
]


@pytest.mark.parametrize(("reply", "name", "end"), OTHER_APIS)
def test_a_reply_of_another_api_is_named_and_no_money_is_spent_on_more_of_them(
    reply: dict[str, Any], name: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(script({**reply, "usage": {"input_tokens": 50, "output_tokens": 7}}))
    assert asked.once() == "judge_error"
    assert asked.outcomes == ["denied"]
    assert (asked.cost.input_tokens, asked.cost.output_tokens) == (50, 7)
    assert name in caplog.text
    assert "check base_url" in caplog.text
    assert Asked(script({**reply, end: "guardrail_intervened"})).once() == "judge_refused"


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        ([{"generated_text": VERDICT}], "Text Generation Inference's"),
        ([[{"generated_text": [{"role": "assistant", "content": VERDICT}]}]], "Inference's"),
        ({"choices": [{"text": VERDICT, "finish_reason": "stop"}]}, "older Completions"),
        ({"urls": {"get": "https://a"}, "version": "1", "output": None}, "Replicate's"),
    ],
)
def test_a_list_and_a_text_without_a_message_are_of_another_api(
    reply: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(lambda *_: httpx.Response(200, json=reply))
    assert asked.once() == "judge_error"
    assert asked.outcomes == ["denied"]
    assert name in caplog.text


@each_row(
    ("status", "body", "seconds"),
    [
        (
            429,
            [
                {
                    "error": {
                        "code": 429,
                        "message": "You exceeded your current quota.",
                        "details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "34s"}],
                    }
                }
            ],
            34,
        ),
        (429, {"error": {"message": "Rate limit reached. Please try again in 7.66s. Need"}}, 7.66),
        (429, {"error": {"message": "Limit. Please try again in 620ms. Visit"}}, 0.62),
        (429, {"error": {"message": "Limit. Please try again in 1m12.3s."}}, 60),
        (429, {"error": {"message": "Please retry after 23 seconds. Go here"}}, 23),
        (503, {"error": "Model m is currently loading", "estimated_time": 20.0}, 20),
        (429, {"error": {"message": "slow", "retry_after": 1e9}}, 60),
        (429, {"error": {"message": "slow", "retry_after": "soon"}}, None),
        (429, {"error": {"message": "slow", "retry_after": True}}, None),
        (400, {"error": {"message": "try again in 7s"}}, None),
    ],
)
def test_the_pause_that_a_server_asks_for_in_its_body_is_kept(
    status: int, body: Any, seconds: float | None
) -> None:
    assert failed(body, status).retry_after == seconds
    if seconds is not None:
        asked = Asked(script(httpx.Response(status, json=body), completion()))
        asked.once()
        assert sum(asked.clock.slept) >= seconds


@each_row(
    ("status", "body", "outcome", "hopeless"),
    [
        (
            200,
            {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
            "denied",
            1,
        ),
        (200, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}, "rate_limited", 0),
        (200, {"error_code": 336501, "error_msg": "Rate limit reached for RPM"}, "rate_limited", 0),
        (
            429,
            {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}},
            "rate_limited",
            1,
        ),
        (429, {"error": "Your team has used all available credits or so"}, "rate_limited", 1),
        (
            429,
            {"error": {"message": "no", "type": "exceeded_current_quota_error"}},
            "rate_limited",
            1,
        ),
        (400, {"errors": [{"code": 7000, "message": "No route for that URI"}]}, "denied", 1),
    ],
)
def test_what_only_a_person_can_mend_is_told_apart(
    status: int, body: Any, outcome: str, hopeless: int
) -> None:
    found = failed(body, status)
    assert (found.outcome, found.hopeless) == (outcome, bool(hopeless))


def test_geminis_own_reply_is_one_of_them_and_its_filter_a_refusal() -> None:
    for finish, reason in (("STOP", "judge_error"), ("SAFETY", "judge_refused")):
        asked = Asked(script({"candidates": [{"finishReason": finish}]}))
        assert asked.once() == reason
        assert len(asked.bodies) == 1


@pytest.mark.parametrize(
    "reply",
    [
        completion(choices=[]),
        completion(finish="error"),
        completion(error={"message": "the stream broke", "code": 502}),
        completion(error="the stream broke"),
    ],
    ids=["no choice", "end", "error beside it", "text beside it"],
)
def test_tokens_without_a_verdict_are_counted(reply: Reply) -> None:
    asked = Asked(script(reply), retries=0)
    assert asked.once() == "judge_error"
    assert asked.outcomes == ["server_error"]
    assert (asked.cost.input_tokens, asked.cost.output_tokens) == (100, 10)


@pytest.mark.parametrize("nothing", [None, {}, "", {"message": "", "code": 0}])
def test_an_error_that_says_nothing_is_none(nothing: Any) -> None:
    assert Asked(script(completion(error=nothing))).once() == 2


def test_the_first_choice_is_that_with_the_first_number() -> None:
    second, first = (completion(f'{{"grade": {grade}}}')["choices"][0] for grade in (0, 2))
    choices = [{**second, "index": 1}, {**first, "index": 0}]
    assert Asked(script(completion(choices=choices))).once() == 2


def test_the_start_of_a_broken_answer_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    body = json.dumps(completion("the patient said no"))
    asked = Asked(script(httpx.Response(200, text=body + body)), retries=0)
    assert asked.once() == "judge_error"
    assert "the reply is broken JSON" in caplog.text
    assert "patient" not in caplog.text


@pytest.mark.parametrize("code", ["model_decommissioned", "model_not_found", "invalid_model"])
def test_a_model_that_is_not_served_needs_a_person(code: str) -> None:
    asked = Asked(script(httpx.Response(400, json=error("No such model.", code=code))))
    assert asked.once() == "judge_error"
    assert asked.outcomes == ["denied"]


@pytest.mark.parametrize("envelope", ["data", "result", "response", "body"])
def test_a_completion_in_the_envelope_of_a_gateway_is_opened(envelope: str) -> None:
    found = read({"code": 0, "msg": "success", envelope: completion("text")})
    assert isinstance(found, ChatCompletion)
    assert found.text == "text"


def test_a_failure_that_only_a_number_tells_is_known_by_its_words() -> None:
    spent = failed({"code": 1113, "msg": "Insufficient balance or no resource package."})
    assert spent.hopeless
    assert "Insufficient balance" in spent.words
    assert not failed({"code": 1305, "msg": "The model is busy, try again later."}).hopeless
