"""Whole runs of frameworks whose spans are in no sample, built from what their instrumentors and
the conventions' documents say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.building import T0, Run, documents, messages, only, read

KIND = "openinference.span.kind"
OI = "openinference.instrumentation."
A = "Refunds take 5 days."
B = "Returns take 30 days."
C = "The warranty is 24 months."


def test_llama_index_by_openinference_nests_retrievers_and_calls() -> None:
    run = Run(scope=OI + "llama_index")
    root = run.span(
        "RetrieverQueryEngine.query",
        None,
        (0, 3),
        {KIND: "CHAIN", "input.value": "How long?", "output.value": "5 days."},
    )
    inner = run.span("RetrieverQueryEngine._query", root, (0, 3), {KIND: "CHAIN"})
    outer = run.span(
        "VectorIndexRetriever.retrieve",
        inner,
        (0, 1),
        {
            KIND: "RETRIEVER",
            "input.value": "How long?",
            **documents(A, B, id=["n1", "n2"], score=[0.9, 0.8]),
        },
    )
    run.span("VectorIndexRetriever._retrieve", outer, (0, 0.9), {KIND: "RETRIEVER"})
    predict = run.span(
        "OpenAI.predict", inner, (1, 3), {KIND: "LLM", "output.value": "5 days.", **messages("x")}
    )
    run.span(
        "OpenAI.chat",
        predict,
        (1.5, 2.5),
        {
            KIND: "LLM",
            "llm.model_name": "gpt-4o",
            "llm.token_count.prompt": 50,
            "llm.token_count.completion": 4,
            **messages("prompt with source: x", "5 days."),
        },
    )
    trace = only(run)
    assert (trace.query, trace.answer, trace.model) == ("How long?", "5 days.", "gpt-4o")
    assert [(p.id, p.text, p.score, p.rank) for p in trace.passages or []] == [
        ("n1", A, 0.9, 1),
        ("n2", B, 0.8, 2),
    ]
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.output_tokens) == (50, 4)
    assert trace.timings == {"total": 3, "retrieval": 1, "generation": 2}
    assert trace.missing == {}
    assert trace.trace_id == "a" * 32


def test_documents_of_the_inner_retriever_where_only_it_has_them() -> None:
    run = Run()
    root = run.span("q", None, (0, 3), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    outer = run.span("retrieve", root, (0, 1), {KIND: "RETRIEVER", "input.value": "Q"})
    run.span("_retrieve", outer, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("llm", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    assert [p.text for p in only(run).passages or []] == [A]


def test_llama_index_typescript_kinds_in_lower_case() -> None:
    run = Run()
    root = run.span("q", None, (0, 3), {KIND: "chain", "input.value": "Q", "output.value": "A"})
    run.span("retrieve", root, (0, 1), {KIND: "retriever", **documents(A, id=[7])})
    run.span("llm", root, (1, 3), {KIND: "llm", **messages("Q", "A")})
    (passage,) = only(run).passages or []
    assert (passage.id, passage.text) == ("7", A)


@pytest.mark.parametrize("generator", ["OpenAIGenerator", "OpenAIChatGenerator"])
def test_haystack_by_openinference(generator: str) -> None:
    run = Run(scope=OI + "haystack")
    inputs = {"retriever": {"query": "How long?"}, "prompt_builder": {"question": "How long?"}}
    outputs = {"llm": {"replies": ["5 days."], "meta": [{"model": "gpt-4o"}]}}
    root = run.span(
        "Pipeline",
        None,
        (0, 3),
        {
            KIND: "CHAIN",
            "input.value": json.dumps({"data": inputs}),
            "output.value": json.dumps(outputs),
        },
    )
    run.span(
        "InMemoryBM25Retriever",
        root,
        (0, 1),
        {
            KIND: "RETRIEVER",
            "input.value": json.dumps({"query": "How long?", "top_k": 2}),
            **documents(A, B, id=["h1", "h2"], score=[3.2, 1.1], metadata=['{"page": 2}', "{}"]),
        },
    )
    # the prompt builder is called LLM by older versions
    run.span(
        "PromptBuilder",
        root,
        (1, 1.2),
        {KIND: "LLM", "output.value": json.dumps({"prompt": f"Answer. {A} {B} How long?"})},
    )
    run.span(
        generator,
        root,
        (1.2, 3),
        {
            KIND: "LLM",
            "llm.model_name": "gpt-4o",
            "llm.token_count.prompt": 10,
            **messages("prompt", "5 days."),
        },
    )
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", "5 days.")
    assert [(p.id, p.score, p.metadata) for p in trace.passages or []] == [
        ("h1", 3.2, {"page": 2}),
        ("h2", 1.1, None),
    ]
    assert trace.timings is not None
    assert trace.timings["generation"] == pytest.approx(1.8)


def test_dspy_with_many_retrievers_is_one_request() -> None:
    run = Run(scope=OI + "dspy")
    root = run.span(
        "RAG.forward",
        None,
        (0, 9),
        {
            KIND: "CHAIN",
            "input.value": json.dumps({"question": "How long?"}),
            "output.value": json.dumps({"reasoning": "x", "answer": "5 days."}),
        },
    )
    for n, texts in enumerate([(A, B), (B, C), (C,)]):
        run.span(
            "Predict.forward",
            root,
            (n, n + 0.2),
            {KIND: "CHAIN", "input.value": '{"question": "sub"}', "output.value": '{"query": "s"}'},
        )
        run.span(
            "Retrieve.forward",
            root,
            (n + 0.3, n + 0.8),
            {KIND: "RETRIEVER", "input.value": json.dumps({"query": f"s{n}"}), **documents(*texts)},
        )
    run.span("LM", root, (5, 8), {KIND: "LLM", **messages("p", '{"answer": "5 days."}')})
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", "5 days.")
    assert [p.text for p in trace.passages or []] == [A, B, C]
    assert [p.rank for p in trace.passages or []] == [1, 2, 3]
    assert len({p.id for p in trace.passages or []}) == 3
    assert trace.tag("retrieval_query") == "s0"
    assert trace.timings is not None
    assert trace.timings["retrieval"] == pytest.approx(1.5)


def test_bedrock_retrieve_and_generate_is_one_span() -> None:
    run = Run(scope=OI + "bedrock")
    run.span(
        "bedrock.retrieve_and_generate",
        None,
        (0, 2),
        {
            KIND: "RETRIEVER",
            "input.value": "How long?",
            "output.value": "They take 5 days.",
            "llm.model_name": "claude",
            # cited references, again for every citation
            **documents(A, B, A, id=["c1", "c2", "c1"], score=[0.7, 0.6, 0.7]),
        },
    )
    trace = only(run)
    assert (trace.query, trace.answer, trace.model) == ("How long?", "They take 5 days.", "claude")
    assert [(p.id, p.rank) for p in trace.passages or []] == [("c1", 1), ("c2", 2)]
    assert trace.missing == {}


def test_an_agent_loop_is_one_request_with_all_passages() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    plan = {KIND: "LLM", "llm.token_count.prompt": 5, "llm.token_count.completion": 1}
    plan["llm.output_messages.0.message.role"] = "assistant"
    plan["llm.output_messages.0.message.tool_calls.0.tool_call.function.name"] = "search"
    for n, text in enumerate((A, B)):
        run.span("plan", root, (n, n + 0.2), plan)
        tool = run.span("search", root, (n + 0.2, n + 0.9), {KIND: "TOOL"})
        run.span("retrieve", tool, (n + 0.3, n + 0.8), {KIND: "RETRIEVER", **documents(text)})
    run.span("say", root, (3, 8), {**plan, **messages("Q", "A")})
    trace = only(run)
    assert (trace.query, trace.answer) == ("Q", "A")
    assert [p.text for p in trace.passages or []] == [A, B]
    assert trace.usage is not None
    assert (trace.usage.input_tokens, trace.usage.output_tokens) == (15, 3)


def test_an_agent_without_an_output_answers_by_its_last_call_that_says_something() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q"})
    run.span("retrieve", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("say", root, (1, 2), {KIND: "LLM", **messages("Q", "the answer")})
    asks = {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "log"}
    run.span("log", root, (3, 4), {KIND: "LLM", **asks})
    assert only(run).answer == "the answer"


def test_a_batch_of_questions_under_one_job() -> None:
    for job in (
        {},
        {KIND: "CHAIN", "input.value": json.dumps(["Q0", "Q1", "Q2"])},
        {"traceloop.span.kind": "workflow", "traceloop.entity.input": '{"args": [], "kwargs": {}}'},
    ):
        run = Run()
        root = run.span("job", None, (0, 9), job)
        for n in range(3):
            one = run.span(
                "answer",
                root,
                (n, n + 0.9),
                {KIND: "CHAIN", "input.value": f"Q{n}", "output.value": f"A{n}"},
            )
            run.span("r", one, (n, n + 0.3), {KIND: "RETRIEVER", **documents(f"text {n}")})
            if n < 2:
                run.span("l", one, (n + 0.4, n + 0.8), {KIND: "LLM", **messages("p", f"A{n}")})
        traces = read(run).traces
        assert [(t.query, t.answer) for t in traces] == [(f"Q{n}", f"A{n}") for n in range(3)], job
        assert [len(t.passages or []) for t in traces] == [1, 1, 1]
        assert traces[0].trace_id == f"{'a' * 32}-{2:016x}"
        assert len({t.trace_id for t in traces}) == 3


def test_several_roots_in_one_trace_are_several_requests() -> None:
    run = Run()
    for n in range(2):
        root = run.span(
            "q", None, (n, n + 0.9), {KIND: "CHAIN", "input.value": "Q", "output.value": f"A{n}"}
        )
        run.span("r", root, (n, n + 0.3), {KIND: "RETRIEVER", **documents(A)})
        run.span("l", root, (n + 0.4, n + 0.8), {KIND: "LLM", **messages("p", f"A{n}")})
    assert [t.answer for t in read(run).traces] == ["A0", "A1"]


def test_a_server_above_lends_time_status_session_and_user() -> None:
    run = Run()
    http = run.span(
        "POST /ask",
        None,
        (0, 5),
        {"session.id": "s", "enduser.id": "u", "ragmeter.canary": "true"},
        kind=2,
        status=0,
    )
    chain = run.span("rag", http, (1, 4), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    run.span("r", chain, (1, 2), {KIND: "RETRIEVER", **documents(A)})
    run.span("l", chain, (2, 4), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run, hash_ids=False)
    assert trace.timings is not None
    assert trace.timings["total"] == 5
    assert (trace.tag("session"), trace.tag("user"), trace.status) == ("s", "u", "ok")
    assert trace.canary  # baggage that a span processor has put on the span
    http.attributes["http.response.status_code"] = 504
    assert only(run).status == "timeout"
    http.attributes["http.response.status_code"] = "500"
    assert only(run).status == "error"


def test_a_server_with_retriever_and_call_right_below_it_is_the_request() -> None:
    run = Run()
    http = run.span("GET /ask", None, (0, 5), kind=2)
    run.span("r", http, (1, 2), {KIND: "RETRIEVER", "input.value": "Q", **documents(A)})
    run.span("l", http, (2, 4), {KIND: "LLM", **messages("the prompt", "A")})
    trace = only(run)
    assert (trace.query, trace.answer, trace.trace_id) == ("Q", "A", "a" * 32)
    assert trace.span is not None
    assert trace.span.span_id == http.span_id


def test_a_missing_root_does_not_tear_its_children_apart() -> None:
    run = Run()
    run.span("r", "f" * 16, (1, 2), {KIND: "RETRIEVER", "input.value": "Q", **documents(A)})
    run.span("l", "f" * 16, (2, 4), {KIND: "LLM", **messages("prompt", "A")})
    trace = only(run)
    assert (trace.query, trace.answer, len(trace.passages or [])) == ("Q", "A", 1)
    assert trace.timings is not None
    assert trace.timings["total"] == 3


def test_a_remote_parent_is_no_loss() -> None:
    run = Run()
    root = run.span("q", "f" * 16, (0, 3), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert (trace.query, trace.trace_id) == ("Q", "a" * 32)
    assert trace.span is not None
    assert trace.span.span_id == root.span_id


@pytest.mark.parametrize("nested", [True, False])
def test_a_reranker_has_the_last_word(nested: bool) -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    above = root
    if nested:  # LangChain's ContextualCompressionRetriever
        above = run.span(
            "compress", root, (0, 4), {KIND: "RETRIEVER", **documents(C, A, id=["c", "a"])}
        )
    run.span("r", above, (0, 1), {KIND: "RETRIEVER", **documents(A, B, C, id=["a", "b", "c"])})
    run.span(
        "rerank",
        above,
        (1, 3),
        {
            KIND: "RERANKER",
            "reranker.query": "Q",
            "reranker.top_k": 2,
            **documents(A, B, C, prefix="reranker.input_documents"),
            **documents(C, A, prefix="reranker.output_documents", score=[0.99, 0.5]),
        },
    )
    run.span("l", root, (4, 9), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert [(p.id, p.text, p.score) for p in trace.passages or []] == [
        ("c", C, 0.99),
        ("a", A, 0.5),
    ]
    assert trace.timings is not None
    assert trace.timings.get("rerank") == (None if nested else 2)


def test_a_vector_database_below_a_retriever_fills_in_and_adds_nothing() -> None:
    run = Run(scope="opentelemetry.instrumentation.chromadb")
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    above = run.span("r", root, (0, 2), {KIND: "RETRIEVER", **documents(A, B)})
    rows = [
        SpanEvent(
            "db.query.result",
            T0,
            {
                "db.query.result.id": f"v{n}",
                "db.query.result.distance": 0.1 * n,
                "db.query.result.document": text,
            },
        )
        for n, text in enumerate((A, B), 1)
    ]
    run.span(
        "chroma.query",
        above,
        (0.5, 1),
        {"db.system": "chroma", "db.operation": "query"},
        events=rows,
    )
    run.span("l", root, (4, 9), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert [(p.id, p.text, p.score) for p in trace.passages or []] == [
        ("v1", A, 0.1),
        ("v2", B, 0.2),
    ]
    assert [p.metadata for p in trace.passages or []] == [{"score_kind": "distance"}] * 2


def test_a_rewriter_is_no_answer_and_its_question_is_a_label() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "and then?"})
    run.span("rewrite", root, (0, 1), {KIND: "LLM", **messages("and then?", "rewritten")})
    run.span("r", root, (1, 2), {KIND: "RETRIEVER", "input.value": "rewritten", **documents(A)})
    trace = only(run)
    assert trace.answer is None
    assert trace.missing == {"answer": "no_answer_captured"}
    assert (trace.query, trace.tag("retrieval_query")) == ("and then?", "rewritten")
    run.span("say", root, (2, 3), {KIND: "LLM", **messages("p", "the answer")})
    trace = only(run)
    assert (trace.answer, trace.missing) == ("the answer", {})


def test_a_call_within_a_retriever_is_no_answer() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q"})
    hyde = run.span("HydeRetriever", root, (0, 4), {KIND: "RETRIEVER", **documents(A)})
    run.span(
        "l", hyde, (1, 3), {KIND: "LLM", "llm.token_count.prompt": 3, **messages("Q", "guess")}
    )
    trace = only(run)
    assert trace.answer is None
    assert trace.usage is not None
    assert trace.usage.input_tokens == 3
    assert trace.timings is not None
    assert "generation" not in trace.timings


def test_streaming_tells_the_first_token() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    first = SpanEvent("First Token Stream Event", T0 + 2_500_000_000)
    run.span("l", root, (2, 8), {KIND: "LLM", **messages("Q", "A")}, events=[first])
    trace = only(run)
    assert trace.timings is not None
    assert trace.timings["first_token"] == 2.5


def test_forty_documents_with_the_sdks_limit_of_128_attributes() -> None:
    """The oldest are gone: the kind, the query and the first 8 documents."""
    lost: dict[str, Any] = {}
    for n in range(8, 40):
        for name, value in (("id", f"d{n}"), ("content", f"text {n}"), ("score", 1 / n)):
            lost[f"retrieval.documents.{n}.document.{name}"] = value
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    run.span("retrieve", root, (0, 1), lost, dropped=34)
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert len(trace.passages or []) == 32
    assert trace.missing == {"passages": "passages_truncated"}
    assert (trace.query, trace.answer) == ("Q", "A")


def test_smolagents_calls_the_question_a_task() -> None:
    run = Run(scope=OI + "smolagents")
    asked = {"task": "How long?", "stream": False, "images": None, "max_steps": None}
    root = run.span(
        "ToolCallingAgent.run",
        None,
        (0, 3),
        {KIND: "AGENT", "input.value": json.dumps(asked), "output.value": "5 days."},
    )
    wrapped = "Please provide an answer to the following user task:\nHow long?"
    run.span("OpenAIModel.generate", root, (1, 3), {KIND: "LLM", **messages(wrapped, "5 days.")})
    assert only(run).query == "How long?"


def test_an_ai_service_of_quarkus_is_the_request_with_its_retrieval_time() -> None:
    run = Run(scope="io.quarkus.opentelemetry")
    server = run.span("POST /ask", None, (0, 4), {"http.route": "/ask"}, kind=1)
    service = run.span("langchain4j.aiservices.Assistant.chat", server, (0.5, 3.5))
    run.span("langchain4j.tools.add", service, (1, 1.2))
    run.span(
        "completion m",
        service,
        (1.5, 3.5),
        {
            "gen_ai.prompt": "How long?",
            "gen_ai.completion": "24 months.",
            "gen_ai.response.model": "m",
        },
    )
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", "24 months.")
    assert trace.timings == {"total": 3.0, "generation": 2.0}


def test_an_agent_of_mastra_may_tell_its_texts_under_names_of_its_own() -> None:
    run = Run(scope="@mastra/otel")
    agent = run.span(
        "invoke_agent help",
        None,
        (0, 5),
        {
            "mastra.span.type": "agent_run",
            "gen_ai.operation.name": "invoke_agent",
            "mastra.agent_run.input": json.dumps([{"role": "user", "content": "How long?"}]),
            "mastra.agent_run.output": json.dumps({"text": A, "files": []}),
        },
    )
    run.span("chat m", agent, (1, 2), {"gen_ai.operation.name": "chat"})
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", A)


def test_a_chain_named_after_a_retrieval_that_has_answered_is_no_retriever() -> None:
    run = Run(scope="langfuse-sdk")
    found = [{"pageContent": B, "metadata": {}}, {"pageContent": C, "metadata": {}}]
    chain = run.span(
        "Conversational Retrieval QA Chain",
        attributes={
            "langfuse.observation.type": "chain",
            "langfuse.observation.input": json.dumps({"question": "How long?"}),
            "langfuse.observation.output": json.dumps({"text": A, "sourceDocuments": found}),
        },
    )
    run.span("llm", chain, (0.1, 0.2), {"langfuse.observation.type": "generation"})
    trace = only(run)
    assert (trace.query, trace.answer) == ("How long?", A)
    assert [passage.text for passage in trace.passages or ()] == [B, C]


def test_a_reply_that_llama_index_prints_with_its_role_is_read_without() -> None:
    run = Run()
    run.span(
        "OpenAI.chat",
        attributes={KIND: "LLM", **messages("How long?"), "output.value": f"assistant: {A}"},
    )
    assert only(run).answer == A


@pytest.mark.parametrize("text", [A, "It's 'quoted', media='x', and ends."])
@pytest.mark.parametrize("media", ["media='null', ", ""])
def test_documents_that_spring_prints_keep_their_texts(text: str, media: str) -> None:
    run = Run(scope="org.springframework.boot")
    top = run.span("POST /ask", at=(0, 5), kind=2)
    shown = [
        f"Document{{id='d{n}', text='{one}', {media}metadata={{distance=0.2}}, score=0.8}}"
        for n, one in enumerate((text, B))
    ]
    run.span(
        "pg_vector query",
        top,
        (1, 2),
        {
            "spring.ai.kind": "vector_store",
            "db.system": "pg_vector",
            "db.operation.name": "query",
            "db.vector.query.content": "How long?",
            "db.vector.query.response.documents": json.dumps(shown),
        },
    )
    run.span("chat m", top, (3, 4), {"gen_ai.operation.name": "chat", "gen_ai.completion": A})
    trace = only(run)
    assert [passage.text for passage in trace.passages or ()] == [text, B]
    assert [passage.id for passage in trace.passages or ()] == ["d0", "d1"]
