"""`gen_ai.task.*`: the task attributes that newer OpenLLMetry writes beside `traceloop.entity.*`
and that Amazon Bedrock AgentCore reads from agents.

Source: traceloop/openllmetry 0.62 (LangChain callback handler, semantic conventions), the
AgentCore documentation (`gen_ai.task.input` and `.output` on the `invoke_agent` span). Traps:
- The value is JSON text with OpenLLMetry, plain text with AgentCore.
- `vector_db_retrieve` as operation is a framework's retriever, not a vector database span.
- `gen_ai.task.status` = `failure` is said without a span status.
"""

from __future__ import annotations

from agent.ingest.conventions.keyed import Keys, read_keyed
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="gen_ai_task",
    kind=("gen_ai.operation.name", "gen_ai.task.kind"),
    roles={
        "vector_db_retrieve": Role.RETRIEVER,
        "retrieval": Role.RETRIEVER,
        "rerank": Role.RERANKER,
        "execute_tool": Role.TOOL,
        "embeddings": Role.EMBEDDING,
        "embedding": Role.EMBEDDING,
        "chat": Role.LLM,
        "generate_content": Role.LLM,
        "text_completion": Role.LLM,
    },
    unknown=Role.CHAIN,
    query=("gen_ai.task.input",),
    answer=("gen_ai.task.output",),
)


def matches(span: Span) -> bool:
    return "gen_ai.task.input" in span.attributes or "gen_ai.task.output" in span.attributes


def read(span: Span, content: bool = True) -> Reading:
    reading = read_keyed(KEYS, span.attributes, content)
    reading.failed = str(span.attributes.get("gen_ai.task.status", "")).lower() == "failure"
    return reading
