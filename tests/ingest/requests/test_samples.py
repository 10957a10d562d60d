"""What real instrumentors sent, against the key of what is right to read from it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.requests.fields import hash_identity
from ragmeter.ingest.spans import Span
from ragmeter.trace import Trace

from tests.ingest.building import DATA, Run, expected, messages, only, read, sample
from tests.tables import each_row

FILES = {
    "openinference-langchain": "openinference-langchain.otlp.jsonl.gz",
    "openllmetry-llamaindex": "openllmetry-llamaindex.otlp.jsonl",
    "otel-genai-langchain": "otel-genai-langchain.otlp.jsonl",
}
SPANS = {name: sample(file) for name, file in FILES.items()}


def extract_row(row: dict[str, Any]) -> list[Trace]:
    name = row["file"].removeprefix("generated/").removesuffix(".otlp.jsonl")
    spans = [span for span in SPANS[name] if span.trace_id == row["trace_id"]]
    assert len(spans) == row["n_spans"]
    return read(spans).traces


@each_row("row", expected(), ids=lambda row: row["trace_id"][:6])
def test_every_field_of_the_key(row: dict[str, Any]) -> None:
    traces = extract_row(row)
    assert bool(traces) is row["is_rag_request"]
    if not traces:
        return
    (trace,) = traces
    assert trace.trace_id == row["trace_id"]
    assert trace.service == "acme-help-bot"
    assert trace.query == row["query"]
    assert trace.answer == row["answer"]
    assert trace.passages is not None
    assert [
        {
            "rank": one.rank,
            "id": one.id,
            "text": one.text,
            "score": one.score,
            "metadata": one.metadata,
        }
        for one in trace.passages
    ] == [
        # the official OTel span holds no metadata: the key has it from the application
        {**one, "metadata": one["metadata"] if one["text"] else None}
        for one in row["documents"]
    ]
    status = "timeout" if row["timed_out"] else row["status"]
    assert trace.status == status
    assert (row["error_type"] or "") in (trace.error or "")
    assert trace.timings is not None
    assert trace.timings["total"] == pytest.approx(row["latency_ms"] / 1e3, abs=1e-4)
    assert trace.model == row["model"]
    tokens = row["tokens"] or {"input": None, "output": None}
    usage = trace.usage.model_dump() if trace.usage else {}
    assert usage.get("input_tokens") == tokens["input"]
    assert usage.get("output_tokens") == tokens["output"]
    for tag, value in (("session", row["session_id"]), ("user", row["user_id"])):
        assert trace.tag(tag) == (hash_identity(value, OtlpSettings()) if value else None)
    id_only = all(one["text"] is None for one in row["documents"])
    assert trace.missing == ({"passages": "passages_id_only"} if id_only else {})


def test_several_traces_at_once_and_index_building_is_none() -> None:
    spans = [span for part in SPANS.values() for span in part]
    mixed = list(spans)
    random.Random(1).shuffle(mixed)
    result = extract_requests(mixed, OtlpSettings())
    assert result.traces == extract_requests(spans, OtlpSettings()).traces
    assert len(result.traces) == 7
    assert result.dropped == {"indexing": 1}


def test_sessions_as_they_come_where_so_configured() -> None:
    row = expected()[0]
    spans = [span for span in SPANS["openinference-langchain"] if span.trace_id == row["trace_id"]]
    assert only(spans, hash_ids=False).tag("user") == "u-17"
    assert only(spans, session_salt="other").tag("user") != only(spans).tag("user")


def test_sessions_and_users_are_hashed_wherever_they_stand() -> None:
    names = (
        "session_id",
        "thread_id",
        "user_id",
        "langfuse_user_id",
        "userEmail",
        "conversationId",
        "username",
        "chat_session",
    )
    metadata = {name: f"max.mustermann {name}" for name in names}
    kept = {"tenant_id": "acme", "user_role": "admin", "session_type": "web", "customer": "acme"}
    run = Run()
    run.span(
        "chat",
        attributes={
            "openinference.span.kind": "LLM",
            "session.id": "max.mustermann",
            "metadata": json.dumps({**metadata, **kept}),
            **messages("Hi?", "Hello."),
        },
    )
    trace = only(run)
    assert "mustermann" not in trace.model_dump_json()
    assert set(names) | set(kept) | {"session"} == set(trace.tags)
    assert {name: trace.tags[name] for name in kept} == kept


def test_chats_without_retrieval_and_http_noise() -> None:
    chat = only(sample("langwatch-openinference-openai-chat-streaming.otlp-protojson.json"))
    assert (chat.query, chat.model) == ("hi", "gpt-5")
    assert (chat.answer or "").startswith("Hey there!")
    assert chat.missing == {"passages": "no_passages_captured"}
    assert chat.timings is not None
    assert chat.timings["first_token"] == pytest.approx(0.467023)
    assert chat.tags["foo"] == "bar"
    assert {chat.tag("session"), chat.tag("user")}.isdisjoint({None, "my-test-session"})
    old = only(sample("langwatch-openllmetry-openai-chat.otlp-protojson.json"))
    assert old.query == "yous"
    assert (old.answer or "").startswith("Hey there!")
    noise = read(sample("langwatch-fastapi-http-noise.otlp-protojson.json"))
    assert noise.traces == []
    assert noise.dropped == {"no_llm_no_retriever": 1}


def test_a_call_by_the_current_conventions() -> None:
    name = "openinference-otel-genai-client-span.attributes.json"
    span = Span("a" * 32, "b" * 16, start=10**18, end=2 * 10**18)
    span.attributes = json.loads((DATA / name).read_text())
    trace = only([span])
    assert trace.query == "Weather in Paris?"
    assert (trace.answer or "").startswith("The weather in Paris")
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.output_tokens) == (97, 52)
    assert trace.model == "gpt-4-0613"
