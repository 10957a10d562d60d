"""Read what a model call tells of its reply beside the text: why it ended, and who gave it.

These stand in attributes, in events, or in the body of the reply that an instrumentor has kept.
Only the call that answered is looked at, so this may open what was opened before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ragmeter.ingest.conventions.streams import read_event_lines
from ragmeter.ingest.conventions.values import (
    first_count,
    first_text,
    parse_cost,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.trace import read_finish_reason

# Attributes that hold the body of a reply.
_BODIES = (
    "output.value",
    "gen_ai.output.messages",
    "gen_ai.completion",
    "traceloop.entity.output",
    "mlflow.spanOutputs",
    "langfuse.observation.output",
    "ai.response.providerMetadata",
    "gcp.vertex.agent.llm_response",
    "genkit:output",
    "raw_response",
    "response_data",
    "braintrust.output_json",
    "haystack.component.output",
)
_REPLY_EVENTS = ("gen_ai.output.messages", "gen_ai.client.inference.operation.details")
_REASON_KEYS = (
    "finish_reason",
    "finishReason",
    "stop_reason",
    "stopReason",
    "done_reason",
    "completionReason",
    "finish_type",
)
_REASON_ATTRIBUTES = (
    "gen_ai.response.finish_reasons",
    "gen_ai.response.finish_reason",
    "ai.response.finishReason",
    "llm.finish_reason",
    "llm.response.finish_reason",
    "llm.response.stop_reason",
    "llm.choices.0.completion.finish_reason",
    "llm.output_messages.0.message.finish_reason",
    "gen_ai.completion.0.finish_reason",
    "langfuse.observation.metadata.finish_reason",
)
# of products with names of their own: `stop_reason`, `cloudflare.agents.response.finish_reason`
_ENDED = re.compile(r"(?:^|[._])(?:finish|stop)_?reasons?$", re.IGNORECASE)
_BLOCKED = ("blockReason", "block_reason")  # Gemini
_REPLY_KEYS = (
    "choices",
    "candidates",
    "generations",
    "usage",
    "usageMetadata",
    "object",
    "raw",
    "stop_reason",
    "finish_reason",
    "response_metadata",
    "llm_output",
    "message",
    "output",
    "delta",
)
_MODEL_KEYS = ("model", "model_name", "modelVersion", "model_version", "model_id")
# Objects of a reply that count its tokens: of OpenAI and Anthropic, Gemini, LangChain, and Cohere.
_USAGE_KEYS = (
    "usage",
    "usageMetadata",
    "usage_metadata",
    "token_usage",
    "tokenUsage",
    "tokens",
    "x_groq",
)
_INPUT_COUNTS = (
    "prompt_tokens",
    "input_tokens",
    "promptTokens",
    "inputTokens",
    "promptTokenCount",
    "prompt_token_count",
    "prompt_eval_count",
)
_OUTPUT_COUNTS = (
    "completion_tokens",
    "output_tokens",
    "completionTokens",
    "outputTokens",
    "candidatesTokenCount",
    "candidates_token_count",
    "eval_count",
)
_THOUGHT_COUNTS = ("thoughtsTokenCount", "thoughts_token_count")  # which Gemini counts apart
# Anthropic and Bedrock count the tokens of input from the cache, and to it, apart from the rest;
# OpenAI, Gemini, DeepSeek and LangChain count those from it as a part, there or in details.
_CACHED_APART = ("cache_read_input_tokens", "cacheReadInputTokens")
_CACHE_WRITES = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_CACHED_PART = (
    "cached_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
    "cache_read",
)
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
# of Semantic Kernel of .NET, and of a list that Python has printed: `[Stop]`, `['stop']`
_PRINTED_LIST = re.compile(r"\[[\w, '-]{0,200}\]")
_MAX_NAME = 256  # characters of a model's name
_MAX_NODES = 400  # of a body that are looked at
_MAX_DEPTH = 10
_MAX_CHUNKS = 8  # at each end of a stream


def finish_reason(span: Span) -> str | None:
    """Return why a model ended its reply: `stop`, `length`, `content_filter`, ... or None."""
    given: list[Any] = [span.attributes.get(key) for key in _REASON_ATTRIBUTES]
    for event in sorted(span.events, key=lambda event: not _is_first(event.attributes)):
        given += (event.attributes.get(key) for key in ("finish_reason", "gen_ai.choice"))
        body = parse_nested_json(event.attributes.get("gen_ai.event.content"))
        given.append(body.get("finish_reason") if isinstance(body, dict) else None)
        key = "output" if event.name == span.scope else "gen_ai.output.messages"
        messages = parse_nested_json(event.attributes.get(key))
        given += _found(messages, _REASON_KEYS)
    others = (
        value
        for key, value in span.attributes.items()
        if "eason" in key and _ENDED.search(key)  # the look is cheaper
    )
    for value in chain(given, others):
        opened = parse_nested_json(value)
        first = opened[0] if isinstance(opened, list) and opened else opened
        if isinstance(first, str) and _PRINTED_LIST.fullmatch(first):
            first = first[1:-1].partition(",")[0].strip("'")
        if reason := read_finish_reason(first):
            return reason
    for body in reply_bodies(span):
        found: dict[bool, str] = {}  # of the choice that was shown, and of others
        for node in body_objects(body[:1] if _are_choices(body) else body):
            if node.get("object") == "response" and (reason := _response_end(node)):
                return reason
            details = node.get("incomplete_details")
            if isinstance(details, dict) and (reason := read_finish_reason(details.get("reason"))):
                return reason
            feedback = node.get("promptFeedback") or node.get("prompt_feedback")
            if isinstance(feedback, dict) and first_text(feedback, _BLOCKED):
                return "content_filter"  # of the prompt, so that no reply tells a reason
            for key in _REASON_KEYS:
                if reason := read_finish_reason(node.get(key)):
                    found[_is_first(node)] = reason  # of the chunks of a stream, the last tells
        if found:
            return found.get(True) or found[False]
    return None


def _is_first(choice: Mapping[str, Any]) -> bool:
    """Return whether a reply is the only one, or the first of several, which was shown."""
    return choice.get("index") in (None, 0, "0")


def _are_choices(body: Any) -> bool:
    """Return whether a body is a list of replies of which the first was shown: see `reply_of`."""
    return isinstance(body, list) and all(
        isinstance(one, dict)
        and one.get("role") == "assistant"
        and one.get("finish_reason")
        and isinstance(one.get("parts"), list)
        and not any(
            isinstance(part, dict) and part.get("type") == "tool_call" for part in one["parts"]
        )
        for one in body
    )


def served_model(span: Span) -> str | None:
    """Return the model that a reply's body names, which may not be the one that was asked for."""
    for body in reply_bodies(span):
        for reply in _replies(body):
            for node in body_objects(reply):
                if model := first_text(node, _MODEL_KEYS):
                    return model[:_MAX_NAME]
    return None


class ReplyTokens(NamedTuple):
    """The tokens of a model call; `cached` are those of the input from the provider's cache."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None


def reply_tokens(span: Span) -> ReplyTokens:
    """Return the tokens that a reply's body counts.

    The chunks of a stream count what there was so far, so that the largest count is the whole.
    """
    for body in reply_bodies(span):
        tokens_in: list[int] = []
        tokens_out: list[int] = []
        cached: list[int] = []
        for reply in _replies(body):
            for node in body_objects(reply):
                held = (node.get(key) for key in _USAGE_KEYS)
                for usage in (node, *(one for one in held if isinstance(one, dict))):
                    given = first_count(usage, _INPUT_COUNTS)
                    if given is not None:
                        apart = first_count(usage, _CACHED_APART) or 0
                        tokens_in.append(given + apart + (first_count(usage, _CACHE_WRITES) or 0))
                        cached.append(apart or _cached_part(usage))
                    written = first_count(usage, _OUTPUT_COUNTS)
                    if written is not None:
                        tokens_out.append(written + (first_count(usage, _THOUGHT_COUNTS) or 0))
        if tokens_in or tokens_out:
            largest = max(tokens_in, default=None), max(tokens_out, default=None)
            return ReplyTokens(largest[0], largest[1], max(cached, default=0) or None)
    return ReplyTokens()


def _cached_part(usage: Mapping[str, Any]) -> int:
    """Return how many of the tokens of input came from the provider's cache."""
    for key in _INPUT_DETAILS:
        details = usage.get(key)
        if isinstance(details, dict) and (counted := first_count(details, _CACHED_PART)):
            return counted
    return first_count(usage, _CACHED_PART) or 0


def reply_cost(span: Span) -> float | None:
    """Return the cost in USD that a reply's body tells, as gateways and Perplexity do."""
    held = [span.attributes.get(key) for key in _BODIES]
    if all("cost" not in value if isinstance(value, str) else not value for value in held):
        return None  # most calls tell none, and their bodies need not be opened
    for body in reply_bodies(span):
        for reply in reversed(_replies(body)):
            for node in body_objects(reply):
                usage = next((node[key] for key in _USAGE_KEYS if key in node), None)
                cost = usage.get("cost") if isinstance(usage, dict) else None
                if isinstance(cost, dict):
                    cost = cost.get("total_cost")
                if cost is not None and (told := parse_cost(cost)) is not None:
                    return told
    return None


def has_choices(span: Span) -> bool:
    """Return whether a call was given several replies to choose from."""
    attributes = span.attributes
    for key in ("gen_ai.request.choice.count", "llm.n"):
        if (parse_number(attributes.get(key)) or 0) > 1:
            return True
    for key in ("llm.invocation_parameters", "gen_ai.request.parameters"):
        parameters = parse_nested_json(attributes.get(key))
        if isinstance(parameters, dict) and (parse_number(parameters.get("n")) or 0) > 1:
            return True
    if "gen_ai.completion.1.content" in attributes:
        return True
    choices = (event for event in span.events if event.name == "gen_ai.choice")
    if any(parse_number(choice.attributes.get("index")) for choice in choices):
        return True
    if "llm.output_messages.1.message.content" in attributes:
        return True
    for body in reply_bodies(span):
        for node in body_objects(body):
            for key in ("choices", "candidates", "generations"):
                listed = node.get(key)
                while isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], list):
                    listed = listed[0]
                if isinstance(listed, list) and len(listed) > 1:
                    return True
        outputs = [one for one in body if isinstance(one, dict) and "flowOutputEvent" in one]
        if isinstance(body, list) and len(outputs) > 1:
            return True
        if isinstance(body, list) and len(body) > 1 and "gen_ai.output.messages" in attributes:
            roles = [one.get("role") for one in body if isinstance(one, dict)]
            return roles == ["assistant"] * len(body)
    return False


def holds_reply(span: Span) -> bool:
    """Return whether a span has an output at all, in words that may not be understood."""
    return any(span.attributes.get(key) not in (None, "", [], {}) for key in _BODIES)


def _response_end(response: Mapping[str, Any]) -> str | None:
    """Return why a reply of the API "responses" ended, where it ended by itself."""
    output = response.get("output")
    kinds = {one.get("type") for one in output or () if isinstance(one, dict)}
    if response.get("status") != "completed" or not kinds:
        return None
    asks = "function_call" in kinds and "message" not in kinds
    return read_finish_reason("tool_calls" if asks else "stop")


def _replies(body: Any) -> list[Mapping[str, Any]]:
    """Return the reply that a body is, or the chunks of a stream, the first and the last."""
    listed = body if isinstance(body, list) else [body]
    if len(listed) > 2 * _MAX_CHUNKS:
        listed = [*listed[:_MAX_CHUNKS], *listed[-_MAX_CHUNKS:]]
    listed = [_unwrapped(one) for one in listed]
    return [one for one in listed if isinstance(one, dict) and _is_reply(one)]


def _unwrapped(chunk: Any) -> Any:
    """Return the reply in an event of the API "responses", any other chunk as it is."""
    inner = chunk.get("response") if isinstance(chunk, dict) else None
    return inner if isinstance(inner, dict) and not _is_reply(chunk) else chunk


def _is_reply(body: Mapping[str, Any]) -> bool:
    """Return whether a body is that of a model's reply: another may name any model."""
    return any(key in body for key in _REPLY_KEYS)


def reply_bodies(span: Span) -> Iterator[Any]:
    """Yield the replies that a span holds whole, opened."""
    for key in _BODIES:
        value = span.attributes.get(key)
        if not isinstance(value, str):
            if isinstance(value, dict | list):
                yield value
            continue
        opened = parse_nested_json(value)
        if isinstance(opened, str):
            opened = read_event_lines(opened)
        if isinstance(opened, dict | list):
            yield opened
    for event in span.events:
        for key in ("gen_ai.output.messages", "gen_ai.event.content"):
            opened = parse_nested_json(event.attributes.get(key))
            if event.name in _REPLY_EVENTS and isinstance(opened, dict | list):
                yield opened


def body_objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a body, outer ones first; a long list by its first and last items."""
    level = [value]
    seen = 0
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            seen += 1
            if seen > _MAX_NODES:
                return
            if isinstance(one, dict):
                yield one
                below += [item for item in one.values() if isinstance(item, dict | list)]
            elif isinstance(one, list):
                ends = one if len(one) <= 8 else [*one[:4], *one[-4:]]
                below += [item for item in ends if isinstance(item, dict | list)]
        level = below


def _found(value: Any, keys: tuple[str, ...]) -> list[str]:
    texts = (scalar_text(node.get(key)) for node in body_objects(value) for key in keys)
    return [text for text in texts if text]
