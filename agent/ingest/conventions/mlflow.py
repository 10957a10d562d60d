"""MLflow tracing (2.14 to 3.x) exported over OTLP.

Source: mlflow/mlflow `mlflow/tracing/constant.py` and `mlflow/entities/span.py` (span types, keys),
`mlflow/langchain/langchain_tracer.py` (what the LangChain autolog writes); run: mlflow 3.17.2.
Traps:
- Every attribute is JSON text, so the type of a retriever is `"RETRIEVER"` with the quotes.
- The type UNKNOWN is that of every function with `@mlflow.trace`, also of the root.
- Inputs are the function's arguments under the application's own names.
- A document is `{page_content, metadata, id}`; its id may be in `metadata.chunk_id` or `doc_uri`,
  a score only in the metadata by habit.
- Session and user are trace metadata and not always on a span.
- A trace that MLflow's own scorer made carries the tag `mlflow.trace.sourceScorer`.
"""

from __future__ import annotations

from typing import Any

from agent.ingest.conventions.keyed import Keys, first, read_keyed
from agent.ingest.conventions.reading import Reading, Role
from agent.ingest.conventions.texts import number, open_json, text_of, whole
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

KEYS = Keys(
    convention="mlflow",
    kind=("mlflow.spanType",),
    roles={
        "llm": Role.LLM,
        "chat_model": Role.LLM,
        "chain": Role.CHAIN,
        "agent": Role.CHAIN,
        "workflow": Role.CHAIN,
        "task": Role.CHAIN,
        "unknown": Role.CHAIN,
        "tool": Role.TOOL,
        "retriever": Role.RETRIEVER,
        "reranker": Role.RERANKER,
        "embedding": Role.EMBEDDING,
        "evaluator": Role.EVALUATOR,
        "guardrail": Role.TOOL,
        "parser": Role.OTHER,
        "memory": Role.OTHER,
    },
    unknown=Role.CHAIN,  # custom types are allowed: a span around something
    query=("mlflow.spanInputs",),
    answer=("mlflow.spanOutputs",),
    model=("mlflow.llm.model",),
    session=("session.id", "mlflow.trace.session", "mlflow.traceTag.mlflow.trace.session"),
    user=("user.id", "mlflow.trace.user"),
    tag_prefixes=("mlflow.traceTag.",),
)
SCORER = ("mlflow.traceTag.mlflow.trace.sourceScorer", "mlflow.trace.sourceScorer")
FIRST_CHUNK = "mlflow.chunk.item.0"


def matches(span: Span) -> bool:
    attributes = span.attributes
    return (
        "mlflow.spanType" in attributes
        or "mlflow.spanInputs" in attributes
        or "mlflow.spanOutputs" in attributes
    )


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    if first(attributes, SCORER) is not None:
        return Reading(role=Role.EVALUATOR, convention=KEYS.convention)
    if "mlflow.spanType" in attributes:
        reading = read_keyed(KEYS, attributes, content)
    else:  # a function's span without a type; another convention may know the role
        reading = read_keyed(KEYS, {**attributes, "mlflow.spanType": "UNKNOWN"}, content)
        reading.role = Role.OTHER
    for one in reading.documents or ():
        if one.score is None:
            for key in ("score", "relevance_score", "similarity_score", "similarity"):
                one.score = number(one.metadata.get(key))
                if one.score is not None:
                    one.score_kind = "similarity"
                    break
    usage = open_json(attributes.get("mlflow.chat.tokenUsage"))
    if isinstance(usage, dict):
        reading.input_tokens = whole(usage.get("input_tokens"))
        reading.output_tokens = whole(usage.get("output_tokens"))
    cost = open_json(attributes.get("mlflow.llm.cost"))
    if isinstance(cost, dict):
        total = number(cost.get("total_cost"))
        reading.cost_usd = total if total is not None and total >= 0 else None
    reading.prompt_version = _prompt(open_json(attributes.get("mlflow.linkedPrompts")))
    reading.first_token_ns = next(
        (event.time or None for event in span.events if event.name == FIRST_CHUNK), None
    )
    return reading


def _prompt(linked: Any) -> str | None:
    """The first linked prompt as name@version."""
    if not isinstance(linked, list) or not linked or not isinstance(linked[0], dict):
        return None
    name, version = text_of(linked[0].get("name")), text_of(linked[0].get("version"))
    return f"{name}@{version}" if name and version else name
