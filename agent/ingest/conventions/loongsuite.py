"""LoongSuite (Alibaba), an extension of OpenTelemetry's GenAI conventions.

Source: alibaba/loongsuite-python-agent, util/opentelemetry-util-genai
`_extended_semconv/gen_ai_extended_attributes.py` and `extended_span_utils.py`. Traps:
- The role is `gen_ai.span.kind`; operation names differ too (`retrieve_documents`,
  `rerank_documents`), so a reader of the official names alone sees no retrieval.
- Documents are captured only where the application opts in, as JSON text or plain text.
"""

from __future__ import annotations

from agent.ingest.conventions.keyed import Keys, read_keyed
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="loongsuite",
    kind=("gen_ai.span.kind", "gen_ai.operation.name"),
    roles={
        "llm": Role.LLM,
        "agent": Role.CHAIN,
        "chain": Role.CHAIN,
        "task": Role.CHAIN,
        "entry": Role.CHAIN,
        "step": Role.CHAIN,
        "tool": Role.TOOL,
        "embedding": Role.EMBEDDING,
        "retriever": Role.RETRIEVER,
        "reranker": Role.RERANKER,
        "memory": Role.OTHER,
        "retrieve_documents": Role.RETRIEVER,
        "rerank_documents": Role.RERANKER,
    },
    query=("gen_ai.retrieval.query", "gen_ai.retrieval.query.text", "gen_ai.input.messages"),
    answer=("gen_ai.output.messages",),
    documents=("gen_ai.rerank.output_documents", "gen_ai.retrieval.documents"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    input_tokens=("gen_ai.usage.input_tokens",),
    output_tokens=("gen_ai.usage.output_tokens",),
    session=("gen_ai.session.id",),
    user=("gen_ai.user.id",),
)


def matches(span: Span) -> bool:
    attributes = span.attributes
    return "gen_ai.span.kind" in attributes or attributes.get("gen_ai.operation.name") in (
        "retrieve_documents",
        "rerank_documents",
    )


def read(span: Span, content: bool = True) -> Reading:
    return read_keyed(KEYS, span.attributes, content)
