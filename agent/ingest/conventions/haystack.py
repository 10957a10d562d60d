"""Haystack's own tracer (haystack-ai 2.x) over OpenTelemetry.

Source: deepset-ai/haystack c7cb46c, `haystack/core/pipeline/pipeline.py`,
`haystack/tracing/opentelemetry.py` and `utils.py`, `dataclasses/document.py`. Traps:
- The role is the class name in `haystack.component.type`; custom classes keep the endings.
- Inputs and outputs are there only with `HAYSTACK_CONTENT_TRACING_ENABLED`, as JSON text, or as
  Python's text form where JSON fails.
- `haystack.pipeline.input_data` is `{component: {input: value}}`. `output_data` may be an empty
  object: older versions set it before the pipeline has run.
- Embedding retrievers get a vector and no query.
- `documents` of a prompt builder or an answer builder are what others retrieved.
- Documents are flattened: metadata lies beside `id`, `content` and `score`.
"""

from __future__ import annotations

from typing import Any

from agent.ingest.conventions.keyed import (
    Keys,
    asks_tools_only,
    fill_content,
    read_keyed,
)
from agent.ingest.conventions.monocle import literal
from agent.ingest.conventions.reading import Reading, Role, leave_out
from agent.ingest.conventions.texts import answer_in, open_json, question_in, text_of, whole
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(convention="haystack")

# by the ending of the class name, the most particular first
ENDINGS = (
    ("retriever", Role.RETRIEVER),
    ("websearch", Role.RETRIEVER),
    ("ranker", Role.RERANKER),
    ("evaluator", Role.EVALUATOR),
    ("embedder", Role.EMBEDDING),
    ("generator", Role.LLM),
    ("toolinvoker", Role.TOOL),
    ("agent", Role.CHAIN),
    ("pipeline", Role.CHAIN),
)
# searched in a pipeline's outputs before anything else
REPLIES = ("answers", "replies", "reply", "answer", "last_message")
MAX_COMPONENTS = 64  # of one pipeline's inputs or outputs


def matches(span: Span) -> bool:
    return "haystack.component.type" in span.attributes or (
        span.name.startswith("haystack.")
        and (
            "haystack.pipeline.input_data" in span.attributes
            or "haystack.pipeline.output_data" in span.attributes
            or span.scope == "haystack"
        )
    )


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    reading = read_keyed(KEYS, attributes)
    kind = (text_of(attributes.get("haystack.component.type")) or "").lower()
    if not kind:
        reading.role = Role.CHAIN
        if not content and leave_out(reading):
            return reading
        _pipeline(
            reading,
            _opened(attributes.get("haystack.pipeline.input_data")),
            _opened(attributes.get("haystack.pipeline.output_data")),
        )
        return reading
    reading.role = next((role for end, role in ENDINGS if kind.endswith(end)), Role.OTHER)
    if not content and reading.role is Role.CHAIN and leave_out(reading):
        return reading  # a model call has its model and tokens in what it made
    given = _opened(attributes.get("haystack.component.input"))
    made = _opened(attributes.get("haystack.component.output"))
    if reading.role in (Role.RETRIEVER, Role.RERANKER):
        asked = given.get("query") if isinstance(given, dict) else None
        found = made.get("documents") if isinstance(made, dict) else made
        fill_content(reading, asked, found)
    elif reading.role is Role.LLM:
        _generator(reading, given, made)
    elif reading.role in (Role.CHAIN, Role.TOOL):
        fill_content(reading, given, made)
    return reading


def _opened(value: Any) -> Any:
    value = open_json(value)
    return literal(value) if isinstance(value, str) else value


def _generator(reading: Reading, given: Any, made: Any) -> None:
    fill_content(reading, given, None)
    if not isinstance(made, dict):
        reading.answer, reading.answer_gap = answer_in(made)
        return
    replies = made.get("replies")
    reading.calls_tools = asks_tools_only(replies)
    if not reading.calls_tools:
        reading.answer, reading.answer_gap = answer_in(replies)
    meta = made.get("meta")
    if not meta and isinstance(replies, list) and replies and isinstance(replies[-1], dict):
        meta = replies[-1].get("meta") or replies[-1].get("_meta")
    if isinstance(meta, list):
        meta = meta[0] if meta else None
    if not isinstance(meta, dict):
        return
    reading.model = text_of(meta.get("model"))
    usage = meta.get("usage")
    if isinstance(usage, dict):
        for field, names in (
            ("input_tokens", ("prompt_tokens", "input_tokens")),
            ("output_tokens", ("completion_tokens", "output_tokens")),
        ):
            setattr(reading, field, next((n for k in names if (n := whole(usage.get(k)))), None))


def _pipeline(reading: Reading, given: Any, made: Any) -> None:
    if isinstance(given, dict):
        # the retriever's query before a prompt builder's variables and a router's text
        parts = list(given.items())[:MAX_COMPONENTS]
        parts.sort(key=lambda part: "retriev" not in str(part[0]).lower())
        for _, inputs in parts:
            if isinstance(inputs, dict):
                asked = {k: v for k, v in inputs.items() if k in ASKED}
                reading.query, reading.query_gap = question_in(asked) if asked else (None, None)
            if reading.query is not None:
                break
        if reading.query is None:
            reading.query, reading.query_gap = question_in(given)
    if isinstance(made, dict) and made:
        for key in REPLIES:
            for outputs in list(made.values())[:MAX_COMPONENTS]:
                if isinstance(outputs, dict) and outputs.get(key):
                    reading.answer, reading.answer_gap = _reply(outputs[key])
                    if reading.answer is not None:
                        return
        if any(key in made for key in REPLIES):
            reading.answer, reading.answer_gap = answer_in(made)


ASKED = frozenset({"query", "question", "messages", "text", "prompt", "input", "user_input"})


def _reply(value: Any) -> tuple[str | None, Any]:
    """A reply, also a `GeneratedAnswer`: {"type": ..., "init_parameters": {"data": ...}}."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = value[0].get("init_parameters", value[0])
        if isinstance(inner, dict) and isinstance(inner.get("data"), str):
            return answer_in(inner["data"])
    return answer_in(value)
