"""Tokens from the provider's cache are told by every convention, and counted once."""

from __future__ import annotations

import json
from typing import Any

from tests.ingest.building import Run, only
from tests.tables import each_row

CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": json.dumps([{"role": "user", "content": "How long?"}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "A day."}]),
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 7,
}


def usage_of(attributes: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    run = Run()
    run.span("chat m", attributes=attributes)
    usage = only(run).usage
    assert usage is not None
    return usage.input_tokens, usage.cached_input_tokens, usage.output_tokens


@each_row(
    ("attributes", "counted"),
    [
        (CHAT, (100, None, 7)),
        ({**CHAT, "gen_ai.usage.cache_read.input_tokens": 80}, (100, 80, 7)),
        ({**CHAT, "gen_ai.usage.cache_read_input_tokens": 80}, (100, 80, 7)),
        ({**CHAT, "gen_ai.usage.cache_read.input_tokens": 0}, (100, 0, 7)),
        # more than all of the input: counted apart from it
        ({**CHAT, "gen_ai.usage.cache_read.input_tokens": 900}, (1000, 900, 7)),
        (
            {
                "openinference.span.kind": "LLM",
                "input.value": "How long?",
                "output.value": "A day.",
                "llm.token_count.prompt": 100,
                "llm.token_count.completion": 7,
                "llm.token_count.prompt_details.cache_read": 80,
            },
            (100, 80, 7),
        ),
        (
            {
                "ai.operationId": "ai.generateText.doGenerate",
                "ai.prompt.messages": json.dumps([{"role": "user", "content": "How long?"}]),
                "ai.response.text": "A day.",
                "ai.usage.inputTokens": 100,
                "ai.usage.outputTokens": 7,
                "ai.usage.cachedInputTokens": 80,
            },
            (100, 80, 7),
        ),
        (
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.input": "How long?",
                "langfuse.observation.output": "A day.",
                "langfuse.observation.usage_details": json.dumps(
                    {"input": 20, "input_cached_tokens": 80, "output": 7}
                ),
            },
            (100, 80, 7),
        ),
        (
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.input": "How long?",
                "langfuse.observation.output": "A day.",
                "langfuse.observation.usage_details": json.dumps(
                    {
                        "input": 15,
                        "cache_read_input_tokens": 80,
                        "cache_creation_input_tokens": 5,
                        "output": 7,
                    }
                ),
            },
            (100, 80, 7),
        ),
    ],
)
def test_attributes_that_count_cached_tokens(
    attributes: dict[str, Any], counted: tuple[int | None, int | None, int | None]
) -> None:
    assert usage_of(attributes) == counted


@each_row(
    "usage",
    [
        {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 80},
        },
        {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 80}},
        {"input_tokens": 100, "output_tokens": 7, "input_token_details": {"cache_read": 80}},
        {"prompt_tokens": 100, "completion_tokens": 7, "prompt_cache_hit_tokens": 80},
        {"promptTokenCount": 100, "candidatesTokenCount": 7, "cachedContentTokenCount": 80},
        # of Anthropic and Bedrock, which count them apart
        {
            "input_tokens": 15,
            "output_tokens": 7,
            "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 5,
        },
        {
            "inputTokens": 15,
            "outputTokens": 7,
            "cacheReadInputTokens": 80,
            "cacheWriteInputTokens": 5,
        },
    ],
)
def test_bodies_that_count_cached_tokens(usage: dict[str, Any]) -> None:
    reply = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "A day."}}],
        "usage": usage,
    }
    attributes = {
        "openinference.span.kind": "LLM",
        "input.value": "How long?",
        "output.value": json.dumps(reply),
    }
    assert usage_of(attributes) == (100, 80, 7)
