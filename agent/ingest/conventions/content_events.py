"""Span events `gen_ai.content.prompt` and `gen_ai.content.completion` (semantic conventions 1.26
and 1.27): OpenLIT before 1.35, Semantic Kernel (Python and .NET), Langtrace, Spring AI milestones.

Source: open-telemetry/semantic-conventions v1.27.0 docs/gen-ai/gen-ai-spans.md, openlit/openlit
`sdk/python/src/openlit/semcov/__init__.py` (and the sample in tests/data/otlp),
microsoft/semantic-kernel `python/semantic_kernel/utils/telemetry/model_diagnostics/decorators.py`.
Traps:
- The convention says JSON; OpenLIT writes lines `role: text`, whose text may have lines too.
- Semantic Kernel's completions are a list of messages, its operations `chat.completions`; newer
  versions send log records, which the reader of the official names understands.
- OpenLIT's span of a framework (`gen_ai.endpoint` = `framework.query_engine.query`) has the
  operation `retrieve` or `retrieval`, but is the whole request: question and answer.
- OpenLIT's retriever spans hold the question and no documents: not captured, not empty.
"""

from __future__ import annotations

import re
from typing import Any

from agent.ingest.conventions.keyed import Keys, asks_tools_only, first, read_keyed
from agent.ingest.conventions.reading import Reading, Role, leave_out
from agent.ingest.conventions.texts import (
    Turn,
    answer_in,
    last_of,
    messages_in,
    open_json,
    question_in,
    text_of,
)
from agent.ingest.spans import Span

__all__ = ["matches", "read", "spoken_lines"]

KEYS = Keys(
    convention="content_events",
    kind=("gen_ai.operation.name",),
    roles={
        "chat": Role.LLM,
        "chat.completions": Role.LLM,
        "text.completions": Role.LLM,
        "chat.streaming_completions": Role.LLM,
        "text.streaming_completions": Role.LLM,
        "text_completion": Role.LLM,
        "completion": Role.LLM,
        "generate_content": Role.LLM,
        "embeddings": Role.EMBEDDING,
        "embedding": Role.EMBEDDING,
        "framework": Role.CHAIN,
        "agent": Role.CHAIN,
        "execute_task": Role.CHAIN,
        "invoke_agent": Role.CHAIN,
        "invoke_workflow": Role.CHAIN,
        "execute_tool": Role.TOOL,
        "retrieve": Role.RETRIEVER,
        "retrieval": Role.RETRIEVER,
        "rerank": Role.RERANKER,
        "vectordb": Role.VECTOR_DB,
    },
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    output_tokens=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    cost_usd=("gen_ai.usage.cost",),
    user=("gen_ai.request.user",),
    tags={"gen_ai.environment": "environment", "gen_ai.application_name": "application"},
)
# operations that no official version knows; what such spans hold is read by other conventions too
UNOFFICIAL = frozenset(
    {
        "chat.completions",
        "chat.streaming_completions",
        "text.completions",
        "text.streaming_completions",
        "execute_task",
        "framework",
        "vectordb",
    }
)
PROMPT = "gen_ai.content.prompt"
COMPLETION = "gen_ai.content.completion"
_ROLE = re.compile(r"^(system|developer|user|human|assistant|ai|tool|function): ", re.MULTILINE)


def matches(span: Span) -> bool:
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation in UNOFFICIAL:
        return True
    if "gen_ai.usage.cost" in attributes or PROMPT in attributes:
        return True
    if span.scope.startswith("openlit") or attributes.get("telemetry.sdk.name") == "openlit":
        return True
    return bool(span.events) and any(event.name in (PROMPT, COMPLETION) for event in span.events)


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    reading = read_keyed(KEYS, attributes, content)
    if reading.role is Role.OTHER and any(event.name == COMPLETION for event in span.events):
        reading.role = Role.LLM
    endpoint = text_of(attributes.get("gen_ai.endpoint")) or ""
    if reading.role is Role.RETRIEVER and "retrieve" not in endpoint and endpoint:
        # query engines are whole requests, loading documents is index building
        reading.role = Role.CHAIN
    if reading.role not in (Role.LLM, Role.CHAIN, Role.RETRIEVER, Role.TOOL):
        return reading
    if content or not leave_out(reading):
        _talk(span, reading)
    return reading


def _talk(span: Span, reading: Reading) -> None:
    attributes = span.attributes
    prompts: list[Any] = []
    completions: list[Any] = []
    for event in span.events:
        if event.name == PROMPT:
            prompts.append(first(event.attributes, ("gen_ai.prompt", PROMPT)))
        elif event.name == COMPLETION:
            completions.append(first(event.attributes, ("gen_ai.completion", COMPLETION)))
    prompts.append(first(attributes, ("gen_ai.prompt", PROMPT)))
    completions.append(first(attributes, ("gen_ai.completion", COMPLETION)))
    reading.query, reading.query_gap = _asked(next((x for x in prompts if x is not None), None))
    if reading.role is not Role.RETRIEVER:
        made = next((x for x in completions if x is not None), None)
        reading.calls_tools = asks_tools_only(made)
        if not reading.calls_tools:
            reading.answer, reading.answer_gap = _replied(made)


def _asked(value: Any) -> tuple[str | None, Any]:
    opened = open_json(value)
    turns = messages_in(opened) if isinstance(opened, (list, dict)) else spoken_lines(opened)
    text = last_of(turns, "user")
    return question_in(text if text is not None else opened)


def _replied(value: Any) -> tuple[str | None, Any]:
    turns = (
        spoken_lines(value) if isinstance(value, str) and value.startswith("assistant: ") else []
    )
    text = last_of(turns, "assistant")
    return answer_in(text if text is not None else value)


def spoken_lines(text: Any) -> list[Turn]:
    """Messages written as `role: text` from the first character on; none where it is otherwise."""
    if not isinstance(text, str) or not _ROLE.match(text):
        return []
    marks = list(_ROLE.finditer(text))[-500:]
    turns = []
    for n, mark in enumerate(marks):
        end = marks[n + 1].start() if n + 1 < len(marks) else len(text)
        role = {"human": "user", "ai": "assistant", "developer": "system"}.get(mark[1], mark[1])
        turns.append(Turn(role, text_of(text[mark.end() : end].strip())))
    return turns
