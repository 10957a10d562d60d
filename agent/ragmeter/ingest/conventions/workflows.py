"""Builders of workflows whose steps are spans with an input and an output: n8n, Langflow, Mastra.

`key_tables.yaml` has the sources of each and what to beware of.
"""

from __future__ import annotations

from typing import Any

from ragmeter.ingest.conventions.documents import read_documents
from ragmeter.ingest.conventions.key_tables import (
    fill_content,
    first_value,
    key_table,
    read_by_table,
)
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole, has_texts
from ragmeter.ingest.conventions.values import first_text, parse_nested_json, scalar_text
from ragmeter.ingest.spans import Span

_N8N_TYPE = "n8n.node.type"
# the last words of the types of n8n's nodes that call a model, search or serve an agent
_N8N_MODELS = ("lm", "agent", "chain", "openai", "anthropic", "googlegemini")
_MASTRA_TYPE = "mastra.span.type"
_AI_SERVICE = "langchain4j.aiservices."


def read_n8n(span: Span, full: bool = True) -> SpanContent:
    """Read a node of a workflow of n8n; an agent or a chain stands for the calls of its model."""
    table = key_table("n8n")
    kind = (scalar_text(span.attributes.get(_N8N_TYPE)) or "").rpartition(".")[2].lower()
    role = SpanRole.OTHER
    if kind.startswith(("vectorstore", "retriever")):
        role = SpanRole.RETRIEVER
    elif kind.startswith("tool") or kind.endswith("tool"):
        role = SpanRole.TOOL
    elif kind.startswith("embeddings"):
        role = SpanRole.EMBEDDING
    elif kind.startswith(_N8N_MODELS):
        role = SpanRole.LLM
    return read_by_table(table, span.attributes, full, role)


def read_langflow(span: Span, full: bool = True) -> SpanContent:
    """Read a flow of Langflow or one of its components."""
    table = key_table("langflow")
    whole = "trace_type" not in span.attributes
    role = SpanRole.CHAIN if whole else None
    content = read_by_table(table, span.attributes, full, role)
    if content.role is SpanRole.LLM:
        given = parse_nested_json(first_value(span.attributes, table.query))
        content.model = (
            first_text(given, ("model_name", "model")) if isinstance(given, dict) else None
        )
    return content


def read_mastra(span: Span, full: bool = True) -> SpanContent:
    """Read a workflow or an agent of Mastra, or a search of its vectors that tells its results."""
    kind = str(span.attributes.get(_MASTRA_TYPE)).lower()
    content = SpanContent(convention="mastra")
    given: Any = span.attributes.get(f"mastra.{kind}.input")
    told: Any = span.attributes.get(f"mastra.{kind}.output")
    if kind in ("workflow_run", "agent_run"):
        content.role = SpanRole.CHAIN
        fill_content(content, given, told)
    elif kind.startswith("rag_") and has_texts(read_documents(told)):
        content.role = SpanRole.RETRIEVER
        fill_content(content, given, told)
    return content


def read_langchain4j(span: Span, full: bool = True) -> SpanContent:
    """Read a span of LangChain4j in Quarkus around an AI service or a tool, by its name."""
    role = SpanRole.CHAIN if span.name.startswith(_AI_SERVICE) else SpanRole.TOOL
    return read_by_table(key_table("langchain4j"), span.attributes, full, role)
