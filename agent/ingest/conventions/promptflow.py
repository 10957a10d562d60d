"""Prompt flow (promptflow-tracing 1.x) of Microsoft.

Source: microsoft/promptflow 6e76ef4, the trace span specification in its documentation and
`promptflow/tracing/_trace.py`, `_retrieval.py`. Traps:
- Content is in events whose attribute `payload` is JSON text; older versions repeat it in the
  attributes `inputs`, `output`, `retrieval.query`.
- A node of type `Tool` is any Python function of the flow, not a tool that a model calls.
- Streams have a second span `Iterated(NAME)` with a link: the reply and the tokens are there.
- Spans with `referenced.line_run_id` are of an evaluation flow.
- `__computed__.cumulative_token_count.*` counts children too and is never added up.
"""

from __future__ import annotations

from typing import Any

from agent.ingest.conventions.keyed import Keys, fill_content, first, read_keyed
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.conventions.texts import answer_in, question_in
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="promptflow",
    kind=("span_type",),
    roles={
        "llm": Role.LLM,
        "assistant": Role.LLM,
        "function": Role.CHAIN,
        "tool": Role.CHAIN,
        "flow": Role.CHAIN,
        "langchain": Role.CHAIN,
        "embedding": Role.EMBEDDING,
        "retrieval": Role.RETRIEVER,
    },
    unknown=Role.CHAIN,
    model=("llm.response.model",),
    input_tokens=("llm.usage.prompt_tokens",),
    output_tokens=("llm.usage.completion_tokens",),
    session=("session_id",),
)
EVALUATION = ("referenced.line_run_id", "referenced.batch_run_id")


def matches(span: Span) -> bool:
    attributes = span.attributes
    return "span_type" in attributes and (
        attributes.get("framework") == "promptflow"
        or span.scope == "promptflow"
        or any(event.name.startswith("promptflow.") for event in span.events)
    )


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    if first(attributes, EVALUATION) is not None:
        return Reading(role=Role.EVALUATOR, convention=KEYS.convention)
    reading = read_keyed(KEYS, attributes, content)
    if reading.light:
        return reading
    payloads: dict[str, Any] = {
        event.name.removeprefix("promptflow."): event.attributes.get("payload")
        for event in span.events
        if event.name.startswith("promptflow.")
    }
    given = payloads.get("function.inputs")
    made = payloads.get("function.output")
    given = attributes.get("inputs") if given is None else given
    made = attributes.get("output") if made is None else made
    documents = payloads.get("retrieval.documents")
    fill_content(reading, given, made, documents)
    if reading.role is Role.RETRIEVER:
        asked = payloads.get("retrieval.query", attributes.get("retrieval.query"))
        query, gap = question_in(asked)
        if query is not None or gap is not None:
            reading.query, reading.query_gap = query, gap
    elif reading.role is Role.LLM:
        said = payloads.get("llm.generated_message", attributes.get("llm.generated_message"))
        answer, gap = answer_in(said)
        if answer is not None or gap is not None:
            reading.answer, reading.answer_gap = answer, gap
    return reading
