"""Whole traces of other products through `requests`: what the application did is what is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.requests.extraction import ExtractedRequests, extract_requests
from ragmeter.ingest.spans import AttributeValue, Span, SpanEvent
from ragmeter.trace import Trace

from tests.ingest.conventions.samples import printed_spans, wire_spans
from tests.tables import each_row

DATA = Path(__file__).parents[2] / "data" / "otlp"
SETTINGS = OtlpSettings(hash_ids=False, tool_names=["retrieve"])

QUESTION = "When does the office open?"
ANSWER = "The office opens at 8 on weekdays [1]."
FIRST = "Opening hours: the office opens at 8 and closes at 18 on weekdays."
SECOND = 'The office is closed on public holidays, and "half days" are announced a week before.'


def of_lines(name: str) -> ExtractedRequests:
    spans: list[Span] = []
    for line in (DATA / name).read_bytes().splitlines():
        decoded = decode_traces(line, json=True)
        assert decoded.rejected == 0
        spans += decoded.spans
    forward, backward = extract_requests(spans, SETTINGS), extract_requests(spans[::-1], SETTINGS)
    assert forward.traces == backward.traces
    return forward


@each_row(
    ("name", "more", "tokens"),
    [
        ("haystack-tracer", [], (50, 9)),
        ("langfuse-sdk", [("visitors.md", "Visitors register at the desk in the hall.")], (50, 9)),
        ("langsmith-otel", [], None),
        ("mlflow", [], (50, 9)),
        ("pydantic-ai", [], (155, 21)),
    ],
)
def test_what_the_published_packages_send(
    name: str, more: list[tuple[str, str]], tokens: tuple[int, int] | None
) -> None:
    found = of_lines(f"{name}.otlp.jsonl")
    trace = found.traces[0]
    assert not found.dropped
    assert (trace.query, trace.answer, trace.status) == (QUESTION, ANSWER, "ok")
    assert [(one.id, one.text) for one in trace.passages or []] == [
        ("d1", FIRST),
        ("d2", SECOND),
        *more,
    ]
    assert trace.missing in (None, {})
    usage = trace.usage
    assert (usage and (usage.input_tokens, usage.output_tokens)) == tokens


def test_what_only_some_of_them_send() -> None:
    good, bad = of_lines("langfuse-sdk.otlp.jsonl").traces
    assert (good.tag("session"), good.tag("user"), good.tag("tag.rag")) == ("s-1", "u-1", "true")
    assert good.usage is not None
    assert good.usage.cost_usd == pytest.approx(0.003)
    assert (bad.status, bad.error, bad.answer) == ("timeout", "model timed out", None)
    (trace,) = of_lines("langsmith-otel.otlp.jsonl").traces
    tags = {"session": "s-1", "user": "u-1", "project": "desk", "tag.rag": "true"}
    assert tags.items() <= trace.tags.items()
    assert not [name for name in trace.tags if "seq:" in name]
    (trace,) = of_lines("pydantic-ai.otlp.jsonl").traces
    assert trace.tag("retrieval_query") == "opening hours"
    (trace,) = of_lines("haystack-tracer.otlp.jsonl").traces
    assert [one.score for one in trace.passages or []] == [
        pytest.approx(0.7393, abs=1e-4),
        pytest.approx(0.7125, abs=1e-4),
    ]


@each_row(
    ("name", "query", "answer", "passages", "missing", "tokens", "dropped"),
    [
        (
            "monocle-haystack-metamodel.spans.json",
            "What does Rhodes Statue look like?",
            "The Rhodes Statue, also known as",
            1,
            {"passages": "passages_truncated"},
            (2464, 102),
            {},
        ),
        (
            "monocle-langchain.spans.json",
            "What is Task Decomposition?",
            "Task Decomposition is a technique",
            1,
            {"passages": "passages_truncated"},
            (684, 66),
            {"indexing": 1},
        ),
        (
            "monocle-llama-index.spans.json",
            "What did the author do growing up?",
            "The author grew up in a location",
            1,
            {},
            (152, 24),
            {"indexing": 1},
        ),
        (
            "monocle-openai-rag.spans.json",
            "what is latte?",
            "A latte consists of",
            0,
            {"passages": "no_passages_captured"},
            (152, 30),
            {"indexing": 1},  # the embedding of the question, in a trace of its own
        ),
        (
            "langfuse-langfuse-sdk-generation.otlp.json",
            "hello",
            "what's up?",
            0,
            {"passages": "no_passages_captured"},
            (123, 456),
            {},
        ),
        (
            "langfuse-openlit-openai-chat.otlp.json",
            "What is LLM Observability?",
            "LLM Observability stands for logs",
            0,
            {"passages": "no_passages_captured"},
            (14, 96),
            {},
        ),
    ],
)
def test_public_samples(
    name: str,
    query: str,
    answer: str,
    passages: int,
    missing: dict[str, str],
    tokens: tuple[int, int],
    dropped: dict[str, int],
) -> None:
    read = printed_spans if name.endswith(".spans.json") else wire_spans
    found = extract_requests(read(name), SETTINGS)
    (trace,) = found.traces
    assert trace.query == query
    assert (trace.answer or "").startswith(answer)
    assert len(trace.passages or []) == passages
    assert (trace.missing or {}) == missing
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.output_tokens) == tokens
    assert dict(found.dropped) == dropped


def _tree(
    *spans: tuple[str, str, dict[str, AttributeValue], list[SpanEvent]], scope: str = ""
) -> Trace:
    """A request whose first span is the parent of the others, one second each."""
    second = 1_000_000_000
    start = 1_800_000_000 * second
    made = []
    for n, (name, parent, attributes, events) in enumerate(spans, start=1):
        made.append(
            Span(
                trace_id="a" * 32,
                span_id=f"{n:016x}",
                parent_id=parent,
                name=name,
                start=start + n * second,
                end=start + (n + 1 if parent else len(spans) + 1) * second,
                attributes=attributes,
                events=events,
                scope=scope,
            )
        )
    (trace,) = extract_requests(made[::-1], SETTINGS).traces
    assert (trace.query, trace.answer) == ("q?", "a.")
    return trace


ROOT = f"{1:016x}"


def test_spring_ai() -> None:
    store: dict[str, AttributeValue] = {
        "spring.ai.kind": "vector_store",
        "db.system": "simple",
        "db.operation.name": "query",
        "db.vector.query.content": "q?",
        "db.vector.query.response.documents": '["one", "two"]',
    }
    chat: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.usage.input_tokens": "11",
        "gen_ai.usage.output_tokens": "3",
        "gen_ai.prompt": '["prompt with one and two"]',
        "gen_ai.completion": '["a."]',
    }
    trace = _tree(
        ("spring_ai chat_client", "", {"spring.ai.kind": "chat_client"}, []),
        ("simple query", ROOT, store, []),
        ("chat gpt-4o", ROOT, chat, []),
        scope="org.springframework.boot",
    )
    assert [one.text for one in trace.passages or []] == ["one", "two"]
    assert trace.usage is not None
    assert trace.usage.input_tokens == 11


def test_prompt_flow() -> None:
    def payload(name: str, value: object) -> SpanEvent:
        return SpanEvent(f"promptflow.{name}", 0, {"payload": json.dumps(value)})

    document = {"document.id": "u1", "document.score": 2.5, "document.content": "one"}
    kinds = {"framework": "promptflow"}
    trace = _tree(
        (
            "flow",
            "",
            {**kinds, "span_type": "Flow"},
            [
                payload("function.inputs", {"question": "q?"}),
                payload("function.output", {"answer": "a."}),
            ],
        ),
        (
            "search",
            ROOT,
            {**kinds, "span_type": "Retrieval"},
            [payload("retrieval.query", "q?"), payload("retrieval.documents", [document])],
        ),
        (
            "chat",
            ROOT,
            {**kinds, "span_type": "LLM", "llm.usage.prompt_tokens": 7},
            [payload("llm.generated_message", {"role": "assistant", "content": "a."})],
        ),
        scope="promptflow",
    )
    assert [(one.id, one.text, one.score) for one in trace.passages or []] == [("u1", "one", 2.5)]
    assert trace.usage is not None
    assert trace.usage.input_tokens == 7


def test_a_framework_above_a_vector_database() -> None:
    """OpenLLMetry's LangChain over Chroma: the database has ids and scores, the same texts."""
    documents = {"documents": [{"page_content": "one", "metadata": {}}]}
    hit: dict[str, AttributeValue] = {
        "db.query.result.id": "c1",
        "db.query.result.distance": 0.25,
        "db.query.result.document": "one",
    }
    retriever = f"{2:016x}"
    trace = _tree(
        ("chain.workflow", "", {"traceloop.span.kind": "workflow"}, []),
        (
            "VectorStoreRetriever.task",
            ROOT,
            {
                "traceloop.span.kind": "task",
                "traceloop.entity.name": "VectorStoreRetriever",
                "traceloop.entity.input": '{"query": "q?"}',
                "traceloop.entity.output": json.dumps(documents),
            },
            [],
        ),
        (
            "chroma.query",
            retriever,
            {"db.system": "chroma", "db.operation": "query"},
            [SpanEvent("db.query.result", 0, hit)],
        ),
        (
            "openai.chat",
            ROOT,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "prompt",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "a.",
            },
            [],
        ),
    )
    (one,) = trace.passages or []
    assert (one.id, one.text, one.score) == ("c1", "one", 0.25)
    assert one.metadata is not None
    assert one.metadata["score_kind"] == "distance"


def test_an_agent_of_googles_kit() -> None:
    request = {"model": "g", "contents": [{"role": "user", "parts": [{"text": "q?"}]}]}
    parts = {"role": "model", "parts": [{"text": "a."}]}
    chunk = {"retrieved_context": {"uri": "gs://b/1", "text": "one"}}
    reply = {"content": parts, "grounding_metadata": {"grounding_chunks": [chunk]}}
    trace = _tree(
        ("invoke_agent helper", "", {"gen_ai.operation.name": "invoke_agent"}, []),
        (
            "call_llm",
            ROOT,
            {
                "gcp.vertex.agent.llm_request": json.dumps(request),
                "gcp.vertex.agent.llm_response": json.dumps(reply),
            },
            [],
        ),
        scope="gcp.vertex.agent",
    )
    assert trace.model == "g"
