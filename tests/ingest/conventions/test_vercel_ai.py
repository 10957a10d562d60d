from __future__ import annotations

import json

from ragmeter.ingest.conventions import frameworks
from ragmeter.ingest.conventions.registry import matching_conventions
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span


def read(operation: str, attributes: dict[str, AttributeValue]) -> SpanContent:
    one = span(operation, attributes={"ai.operationId": operation, **attributes}, scope="ai")
    assert "vercel_ai" in {each.name for each in matching_conventions(one)}
    return frameworks.read_vercel_ai(one)


def test_the_whole_call_is_no_model_call() -> None:
    found = read(
        "ai.generateText",
        {
            "ai.prompt": '{"system": "s", "prompt": "q"}',
            "ai.response.text": "a",
            "ai.usage.inputTokens": 9,
            "ai.usage.outputTokens": 3,
            "ai.telemetry.metadata.sessionId": "s1",
            "ai.telemetry.metadata.userId": "u1",
            "ai.telemetry.metadata.plan": "pro",
            "ai.telemetry.functionId": "chat",
        },
    )
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")
    assert (found.session, found.user) == ("s1", "u1")
    assert found.tags == {"plan": "pro", "function": "chat"}


def test_one_request_to_the_model() -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
    ]
    found = read(
        "ai.streamText.doStream",
        {
            "ai.prompt.messages": json.dumps(messages),
            "ai.response.text": "a",
            "ai.response.model": "gpt-5",
            "ai.response.msToFirstChunk": 250.5,
            "ai.usage.promptTokens": 9,
            "ai.usage.completionTokens": 3,
        },
    )
    assert (found.role, found.query, found.answer) == (SpanRole.LLM, "q", "a")
    assert (found.input_tokens, found.output_tokens, found.model) == (9, 3, "gpt-5")
    assert found.first_token_ns == 1_000_000_000_250_500_000


def test_old_names() -> None:
    found = read("ai.generateText.doGenerate", {"ai.result.text": "a"})
    assert (found.role, found.answer) == (SpanRole.LLM, "a")


def test_only_tool_calls() -> None:
    calls = '[{"toolName": "search", "args": "{}"}]'
    found = read("ai.generateText.doGenerate", {"ai.response.toolCalls": calls})
    assert found.calls_tools
    assert found.answer is None
    found = read(
        "ai.generateText.doGenerate", {"ai.response.toolCalls": calls, "ai.response.text": "a"}
    )
    assert not found.calls_tools


def test_a_tool_may_have_found_documents() -> None:
    result = json.dumps([{"content": "a passage", "id": "1"}])
    found = read(
        "ai.toolCall", {"ai.toolCall.args": '{"query": "q"}', "ai.toolCall.result": result}
    )
    assert (found.role, found.query, found.answer) == (SpanRole.TOOL, "q", None)
    assert found.documents is not None
    assert [(one.id, one.text) for one in found.documents] == [("1", "a passage")]
    assert read("ai.toolCall", {"ai.toolCall.result": '{"ok": true}'}).documents is None


def test_a_reranker_gives_the_new_order() -> None:
    found = read(
        "ai.rerank.doRerank",
        {
            "ai.documents": ['"one"', '"two"', '{"id": "x", "text": "three"}'],
            "ai.ranking.type": "text",
            "ai.ranking": [
                '{"index": 2, "relevanceScore": 0.9}',
                '{"index": 0, "relevanceScore": 0.1}',
                '{"index": 99, "relevanceScore": 0}',
            ],
        },
    )
    assert found.role is SpanRole.RERANKER
    assert found.documents is not None
    assert [(one.id, one.text, one.score) for one in found.documents] == [
        ("x", "three", 0.9),
        ("", "one", 0.1),
    ]
    assert read("ai.rerank", {"ai.documents": ['"one"']}).role is SpanRole.OTHER


def test_embeddings() -> None:
    found = read("ai.embed.doEmbed", {"ai.values": ['"q"'], "ai.embeddings": ["[0.1,0.2]"]})
    assert found.role is SpanRole.EMBEDDING
    assert found.query is None
