"""LangSmith SDK with OpenTelemetry export (`LANGSMITH_OTEL_ENABLED`), Python and JavaScript.

Source: langchain-ai/langsmith-sdk `python/langsmith/_internal/otel/_otel_exporter.py`. Traps:
- `gen_ai.operation.name` of a retriever run is `embeddings` and of a prompt run `chat`: the real
  kind is `langsmith.span.kind`, so this convention is asked before the general one.
- `gen_ai.prompt` and `gen_ai.completion` are the run's whole inputs and outputs as JSON text.
- `langsmith.trace.session_id` and `session_name` are the project, not a user's session; that is
  in the metadata (`session_id`, `thread_id` or `conversation_id`, the keys LangSmith groups by).
- LangChain adds tags of its own to every step of a chain.
- Chat models are dumped as LangChain's `generations`, messages with `lc` and `kwargs`.
"""

from __future__ import annotations

from agent.ingest.conventions.keyed import Keys, read_keyed, tag
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="langsmith",
    kind=("langsmith.span.kind",),
    roles={
        "llm": Role.LLM,
        "chain": Role.CHAIN,
        "tool": Role.TOOL,
        "retriever": Role.RETRIEVER,
        "embedding": Role.EMBEDDING,
        "prompt": Role.CHAIN,  # not OTHER: its operation name would make it a model call
        "parser": Role.CHAIN,
    },
    unknown=Role.CHAIN,
    query=("gen_ai.prompt",),
    answer=("gen_ai.completion",),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=(
        "langsmith.metadata.session_id",
        "langsmith.metadata.thread_id",
        "langsmith.metadata.conversation_id",
    ),
    user=("langsmith.metadata.user_id",),
    tags={"langsmith.trace.session_name": "project"},
)

STEPS = ("seq:step:", "map:key:", "graph:step:")  # LangChain's own: the place in a chain


def matches(span: Span) -> bool:
    return "langsmith.span.kind" in span.attributes


def read(span: Span, content: bool = True) -> Reading:
    reading = read_keyed(KEYS, span.attributes, content)
    tags = span.attributes.get("langsmith.span.tags")
    if isinstance(tags, str):
        for one in (each.strip() for each in tags.split(",", 32)[:32]):
            if one and not one.startswith(STEPS):
                tag(reading, f"tag.{one}", "true")
    return reading
