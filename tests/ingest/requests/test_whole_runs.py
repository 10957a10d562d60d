"""What is missing, failed, copied or no request at all, in whole runs of spans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.building import T0, Run, documents, exception, messages, only, read
from tests.tables import each_row

KIND = "openinference.span.kind"
OI = "openinference.instrumentation."
A = "Refunds take 5 days."
B = "Returns take 30 days."
C = "The warranty is 24 months."


def test_what_is_hidden_is_not_empty() -> None:
    run = Run()
    hidden = {"input.value": "__REDACTED__", "output.value": "__REDACTED__"}
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", **hidden})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **hidden, **documents("__REDACTED__")})
    run.span("l", root, (1, 3), {KIND: "LLM", **hidden, "llm.token_count.prompt": 7})
    trace = only(run)
    assert (trace.query, trace.answer) == (None, None)
    assert [p.text for p in trace.passages or []] == [None]
    assert trace.missing == dict.fromkeys(("query", "passages", "answer"), "content_hidden")
    assert trace.usage is not None
    assert trace.usage.input_tokens == 7


def test_content_that_is_switched_off_was_not_captured() -> None:
    run = Run(scope="opentelemetry.instrumentation.genai.langchain")
    root = run.span("invoke_workflow", None, (0, 9), {"gen_ai.operation.name": "invoke_workflow"})
    run.span("retrieval", root, (0, 1), {"gen_ai.operation.name": "retrieval"})
    run.span(
        "chat m",
        root,
        (1, 3),
        {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "11"},
    )
    trace = only(run)
    assert trace.missing == {
        "query": "no_query_captured",
        "passages": "no_passages_captured",
        "answer": "no_answer_captured",
    }
    assert trace.passages is None
    assert trace.usage is not None
    assert trace.usage.input_tokens == 11


def test_a_retrieval_that_found_nothing_is_empty_and_not_missing() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", "output.value": '{"documents": []}'})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert trace.passages == []
    assert trace.missing == {}


def test_what_failed_inside_and_was_made_good_is_no_error() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    broken = [exception("openai.RateLimitError", "slow down")]
    run.span("l1", root, (1, 2), {KIND: "LLM", **messages("Q")}, status=2, events=broken)
    run.span("l2", root, (2, 3), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert (trace.status, trace.error) == ("ok", None)
    root.attributes.pop("output.value")
    assert only(run).answer == "A"
    run.spans.pop()  # now the failed call is the last
    trace = only(run)
    assert (trace.status, trace.error) == ("error", "openai.RateLimitError: slow down")
    assert trace.missing == {}


@each_row(
    ("fields", "status"),
    [
        ({"events": [exception("httpx.ReadTimeout", "")]}, "timeout"),
        ({"attributes": {"error.type": "timeout"}}, "timeout"),
        ({"status_message": "Request timed out."}, "timeout"),
        ({"status_message": "rpc error: DEADLINE_EXCEEDED"}, "timeout"),
        ({"events": [exception("ValueError", "bad key")]}, "error"),
        (
            {
                "status_message": "ValueError('no')Traceback (most recent call last):\n"
                "  File 'a.py', line 3\n    get(url, timeout=timeout)  # timed out\nValueError: no"
            },
            "error",
        ),
        ({}, "error"),
    ],
)
def test_timeouts_are_told_from_other_errors(fields: dict[str, Any], status: str) -> None:
    run = Run()
    attributes = {KIND: "CHAIN", "input.value": "Q", **fields.pop("attributes", {})}
    root = run.span("q", None, (0, 9), attributes, status=2, **fields)
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    trace = only(run)
    assert trace.status == status
    assert len(trace.error or "") < 200
    assert "answer" not in trace.missing


def test_two_instrumentors_of_one_call_are_counted_once() -> None:
    tokens = {"llm.token_count.prompt": 10, "llm.token_count.completion": 2}
    other = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cost": 0.01,
    }
    for nested in (True, False):
        run = Run(scope=OI + "langchain")
        root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
        outer = run.span("ChatOpenAI", root, (1, 4), {KIND: "LLM", **tokens, **messages("Q", "A")})
        run.span(
            "chat",
            outer if nested else root,
            (1.5, 3.5),
            other,
            scope="opentelemetry.instrumentation.openai",
        )
        usage = only(run).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (10, 2)
        assert usage.cost_usd == pytest.approx(0.01)
        # two calls of one instrumentor with the same numbers are two
        run.span("ChatOpenAI", root, (1, 4), {KIND: "LLM", **tokens, **messages("Q", "A")})
        usage = only(run).usage
        assert usage is not None
        assert usage.input_tokens == 20


def test_tools_whose_results_are_passages_by_name() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    found = [{"title": "t", "href": "https://a", "body": A}, {"href": "https://b", "body": B}]
    run.span(
        "duckduckgo",
        root,
        (0, 1),
        {KIND: "TOOL", "tool.name": "web", "output.value": json.dumps(found)},
    )
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    # a list of texts is enough without a name
    assert only(run, excluded_tools=["web"]).missing == {"passages": "no_passages_captured"}
    assert [p.text for p in only(run).passages or []] == [A, B]
    trace = only(run, tool_names=["web"], excluded_tools=["*"])
    assert [(p.id, p.text) for p in trace.passages or []] == [("https://a", A), ("https://b", B)]
    assert trace.missing == {}


def test_the_question_is_the_users_and_not_what_the_model_asks_a_tool() -> None:
    # as openai-agents sends it: the agent's span holds neither question nor answer
    run = Run(scope=OI + "openai_agents")
    root = run.span("Agent workflow", None, (0, 9), {KIND: "AGENT"})
    asks = {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search_kb"}
    run.span("response", root, (0, 1), {KIND: "LLM", **messages("How long?"), **asks})
    run.span(
        "search_kb",
        root,
        (1, 2),
        {
            KIND: "TOOL",
            "tool.name": "search_kb",
            "input.value": '{"query": "refund time"}',
            "output.value": json.dumps([{"id": "a", "text": A}]),
        },
    )
    run.span("response", root, (2, 3), {KIND: "LLM", **messages("How long?", "5 days.")})
    trace = only(run, tool_names=["search_kb"])
    assert (trace.query, trace.answer) == ("How long?", "5 days.")
    assert trace.tags["retrieval_query"] == "refund time"


def test_a_message_that_goes_on_after_its_first_line_tells_of_a_timeout() -> None:
    # as Haystack's pipeline wraps what a component raises
    run = Run(scope=OI + "haystack")
    reported = (
        "The following component failed to run:\nComponent name: 'llm'\nError: Request timed out."
    )
    root = run.span(
        "Pipeline.run",
        None,
        (0, 9),
        {KIND: "CHAIN", "input.value": "Q"},
        status=2,
        events=[exception("haystack.core.errors.PipelineRuntimeError", reported)],
    )
    run.span("Retriever", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("l", root, (1, 9), {KIND: "LLM", **messages("Q")}, status=2)
    trace = only(run)
    assert trace.status == "timeout"
    assert trace.error is not None
    assert trace.error.endswith("Component name: 'llm' Error: Request timed out.")


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        # Pydantic AI, OpenInference, and OpenInference with a message of LangChain
        ({"gen_ai.operation.name": "execute_tool"}, {"gen_ai.tool.call.result": f"{A}\n\n{B}"}),
        ({KIND: "TOOL"}, {"output.value": f"{A}\n\n{B}"}),
        ({KIND: "TOOL"}, {"output.value": json.dumps({"content": f"{A}\n\n{B}", "type": "tool"})}),
    ],
)
def test_a_named_tool_that_gives_back_one_text(
    tool: dict[str, Any], result: dict[str, Any]
) -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    search = run.span("execute_tool pages", root, (0, 1), {**tool, **result})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    assert only(run).missing == {"passages": "no_passages_captured"}
    trace = only(run, tool_names=["pages"])
    assert [p.text for p in trace.passages or []] == [f"{A}\n\n{B}"]
    assert trace.missing == {}
    run.span("r", search, (0, 1), {KIND: "RETRIEVER", **documents(A, B)})
    assert [p.text for p in only(run, tool_names=["pages"]).passages or []] == [A, B]


def test_langfuse_may_tell_of_the_trace_on_any_span() -> None:
    run = Run(scope="langfuse-sdk")
    root = run.span("rag", None, (0, 3), {"langfuse.observation.type": "span"})
    run.span(
        "retrieve",
        root,
        (0, 1),
        {
            "langfuse.observation.type": "retriever",
            "langfuse.observation.input": '"rewritten"',
            "langfuse.observation.output": json.dumps([{"page_content": A, "id": "a"}]),
            "langfuse.trace.input": '{"question": "Q"}',
            "langfuse.trace.output": '"A"',
        },
    )
    reported = {"langfuse.observation.output": '{"role": "assistant", "content": "raw"}'}
    run.span("call", root, (1, 3), {"langfuse.observation.type": "generation", **reported})
    trace = only(run)
    assert (trace.query, trace.answer) == ("Q", "A")
    assert [p.id for p in trace.passages or []] == ["a"]
    assert trace.tag("retrieval_query") == "rewritten"


def test_a_reply_that_the_root_has_cut_is_taken_whole_from_the_call() -> None:
    run = Run()
    cut = "x" * 100 + "..."
    root = run.span("q", None, (0, 3), {KIND: "CHAIN", "input.value": "Q", "output.value": cut})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents("y" * 100 + "...")})
    call = run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "x" * 150)})
    trace = only(run)
    assert trace.answer == "x" * 150
    assert trace.missing == {"passages": "passages_truncated"}
    call.attributes = {KIND: "LLM", **messages("Q", "another reply")}
    trace = only(run)
    assert trace.answer == cut
    assert trace.missing["answer"] == "answer_truncated"


def test_text_of_just_the_senders_limit_was_cut() -> None:
    run = Run()
    root = run.span("q", None, (0, 3), {KIND: "CHAIN", "input.value": "Q?", "output.value": "Yes"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents("abc", "ab")})
    assert only(run).missing == {}
    assert only(run, text_limit=3).missing == {
        "passages": "passages_truncated",
        "answer": "answer_truncated",
    }


def test_questions_of_a_query_engine_of_engines_are_one_request() -> None:
    run = Run(scope=OI + "llama_index")
    root = run.span("Sub", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    for n in range(2):
        one = run.span("Q", root, (n, n + 1), {KIND: "CHAIN", "input.value": f"s{n}"})
        run.span("r", one, (n, n + 0.3), {KIND: "RETRIEVER", **documents(f"text {n}")})
        run.span("l", one, (n + 0.3, n + 0.9), {KIND: "LLM", **messages("p", f"a{n}")})
    run.span("l", root, (3, 8), {KIND: "LLM", **messages("p", "A")})
    trace = only(run)
    assert (trace.query, trace.answer, len(trace.passages or [])) == ("Q", "A", 2)


def test_a_database_and_a_model_below_a_server() -> None:
    run = Run(scope="opentelemetry.instrumentation.chromadb")
    http = run.span("POST /chat", None, (0, 4), kind=2)
    run.span("embeddings m", http, (0, 0.5), {"gen_ai.operation.name": "embeddings"})
    row: dict[str, Any] = {"db.query.result.id": "c1", "db.query.result.document": A}
    run.span(
        "chroma.query",
        http,
        (0.5, 1),
        {"db.system": "chroma", "db.operation": "query"},
        events=[SpanEvent("db.query.result", T0, row)],
    )
    run.span(
        "chat m",
        http,
        (1, 3),
        {"gen_ai.operation.name": "chat"},
        events=[
            SpanEvent("gen_ai.user.message", T0, {"content": "Q"}),
            SpanEvent("gen_ai.choice", T0, {"message": {"role": "assistant", "content": "A"}}),
        ],
    )
    trace = only(run)
    assert (trace.query, trace.answer) == ("Q", "A")
    assert [(p.id, p.text) for p in trace.passages or []] == [("c1", A)]
    # what fills an index is none
    job = Run()
    root = job.span("ingest", None, (0, 4))
    job.span("embed", root, (0, 1), {KIND: "EMBEDDING"})
    job.span("chroma.add", root, (1, 2), {"db.system": "chroma", "db.operation": "add"})
    assert read(job).dropped == {"indexing": 1}


def test_a_call_within_a_tool_is_no_answer_while_there_are_others() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q"})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("say", root, (1, 3), {KIND: "LLM", **messages("Q", "the answer")})
    tool = run.span("summarise", root, (1, 8), {KIND: "TOOL"})
    run.span("l", tool, (2, 7), {KIND: "LLM", **messages("p", "a summary")})
    assert only(run).answer == "the answer"


def test_an_agent_that_tells_nothing_is_one_request() -> None:
    for attributes, wanted in (
        ({KIND: "AGENT"}, 1),
        ({"gen_ai.operation.name": "invoke_workflow"}, 1),
        ({KIND: "CHAIN"}, 2),
        ({}, 2),
    ):
        run = Run()
        root = run.span("a", None, (0, 9), attributes)
        for n in range(2):
            one = run.span("Q", root, (n, n + 1), {KIND: "CHAIN", "input.value": f"Q{n}"})
            run.span("r", one, (n, n + 0.3), {KIND: "RETRIEVER", **documents(f"text {n}")})
            run.span("l", one, (n + 0.3, n + 0.9), {KIND: "LLM", **messages("p", f"a{n}")})
        assert len(read(run).traces) == wanted, attributes


def test_children_of_two_absent_parents_are_two_requests() -> None:
    run = Run()
    for n, parent in enumerate(("e" * 16, "f" * 16)):
        run.span("r", parent, (n, n + 0.3), {KIND: "RETRIEVER", **documents(f"text {n}")})
        run.span("l", parent, (n + 0.3, n + 0.9), {KIND: "LLM", **messages("p", f"a{n}")})
    assert [trace.answer for trace in read(run).traces] == ["a0", "a1"]


def test_documents_of_several_retrievals_are_the_same_by_id_unless_their_texts_differ() -> None:
    run = Run()
    root = run.span("q", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    cut = "x" * 97 + "..."
    lists = [
        documents(cut, A, "chunk one", id=["cut", "a", "file"]),
        documents("x" * 150, A + " ", "chunk two", B, id=["cut", "a", "file", "b"]),
        {"retrieval.documents.0.document.id": "b"},
        documents("  refunds TAKE 5 days. "),
    ]
    for n, attributes in enumerate(lists):
        run.span("r", root, (n, n + 0.5), {KIND: "RETRIEVER", **attributes})
    run.span("l", root, (5, 8), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert [(p.id, p.text) for p in trace.passages or []] == [
        ("cut", "x" * 150),
        ("a", A),
        ("file", "chunk one"),
        ("file#4", "chunk two"),
        ("b", B),
    ]
    assert trace.missing == {}


def test_spans_in_a_circle_are_read_all_the_same() -> None:
    run = Run()
    one = run.span("r", None, (0, 1), {KIND: "RETRIEVER", "input.value": "Q", **documents(A)})
    two = run.span("l", one, (1, 2), {KIND: "CHAIN"})
    run.span("l", two, (2, 3), {KIND: "LLM", **messages("p", "A")})
    one.parent_id = two.span_id
    trace = only(run)
    assert (trace.query, len(trace.passages or [])) == ("Q", 1)


def test_of_two_copies_the_fuller_counts_and_of_two_sessions_the_earlier() -> None:
    run = Run()
    whole = run.span("l", "f" * 16, (0, 3), {KIND: "LLM", "session.id": "b", **messages("Q", "A")})
    run.span("l", "f" * 16, (1, 3), {KIND: "LLM", "session.id": "a", **messages("Q", "A")})
    early = replace(whole, end=0, attributes={KIND: "LLM"})
    for spans in ([early, *run.spans], [*reversed(run.spans), early]):
        trace = only(spans, hash_ids=False)
        assert (trace.answer, trace.tag("session")) == ("A", "b")


def test_calls_in_calls_are_counted_once_whoever_sent_them() -> None:
    run = Run()
    tokens = {"llm.token_count.prompt": 10, "llm.token_count.completion": 2}
    outer = run.span("predict", None, (0, 9), {KIND: "LLM", **tokens, **messages("Q", "A")})
    run.span("chat", outer, (1, 2), {KIND: "LLM", **tokens, "llm.token_count.prompt": 9})
    usage = only(run).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 2)


def test_evaluators_and_our_own_spans_are_no_requests() -> None:
    run = Run()
    judge = run.span("judge", None, (0, 9), {KIND: "EVALUATOR"})
    run.span("l", judge, (1, 3), {KIND: "LLM", **messages("is it right?", "yes")})
    found = read(run)
    assert (found.traces, dict(found.dropped)) == ([], {"evaluator": 1})
    own = Run(service="ragmeter")
    own.span("l", None, (1, 3), {KIND: "LLM", **messages("is it right?", "yes")})
    assert read(own).dropped == {"own": 1}
    # inside of a request they are left out
    root = run.span("q", None, (0, 3), {KIND: "CHAIN", "input.value": "Q", "output.value": "A"})
    judge.parent_id = root.span_id
    run.span("l", root, (1, 2), {KIND: "LLM", **messages("Q", "A")})
    assert only(run).answer == "A"


@each_row(
    ("state", "probability"),
    [
        ("ot=th:8", 0.5),
        ("ot=th:0", 1.0),
        ("vendor=x,ot=rv:ab;th:c", 0.25),
        ("ot=th:fd70a3d70a3d71", 0.01),
        ("ot=th:ffffffffffffff", 2**-56),
        ("ot=th:8000000000000000", None),
        ("ot=th:zz", None),
        ("ot=", None),
        ("th:8", None),
    ],
)
def test_the_upstream_probability(state: str, probability: float | None) -> None:
    run = Run()
    run.span("l", None, (1, 3), {KIND: "LLM", **messages("Q", "A")}, trace_state=state)
    trace = only(run)
    if probability is None:
        assert trace.sampling is None
    else:
        assert trace.probability == pytest.approx(probability)


def test_a_model_with_half_a_surrogate_pair_can_be_written() -> None:
    run = Run()
    run.span("llm", None, (0, 1), {KIND: "LLM", "llm.model_name": "m\ud800", **messages("a", "b")})
    assert only(run).model == "m?"
    assert only(run).model_dump_json()


def test_each_turn_of_a_conversation_is_a_request() -> None:
    run = Run(scope="pipecat")
    talk = run.span("conversation", None, (0, 60), {"conversation.id": "c1"})
    for number, question in enumerate(("How long do refunds take?", "And returns?")):
        at = 10 * number
        mark = {"turn.number": number, "turn.type": "conversation", "conversation.id": "c1"}
        turn = run.span("turn", talk, (at, at + 9), mark)
        said = json.dumps([{"role": "user", "content": question}])
        call = {"gen_ai.operation.name": "chat", "input": said, "output": (A, B)[number]}
        run.span("llm", turn, (at + 1, at + 3), {**call, "metrics.ttfb": 0.5})
    first, second = read(run).traces
    assert (first.query, first.answer) == ("How long do refunds take?", A)
    assert (second.query, second.answer) == ("And returns?", B)
    assert first.tags["session"] == second.tags["session"]
    assert first.timings is not None
    assert first.timings["first_token"] == 1.5


def test_a_turn_that_goes_on_after_a_tool_is_one_request() -> None:
    run = Run(scope="livekit-agents")
    talk = run.span("agent_session", None, (0, 60), {"lk.room_name": "r1"})
    one = run.span("agent_turn", talk, (1, 3), {"lk.generation_id": "s_1", "lk.user_input": "Q1?"})
    said = json.dumps({"items": [{"type": "message", "role": "user", "content": ["Q1?"]}]})
    calls = {"lk.chat_ctx": said, "lk.response.function_calls": '[{"name": "search_faq"}]'}
    run.span("llm_node", one, (1, 2), calls)
    tool = {"lk.function_tool.name": "search_faq", "lk.function_tool.output": A}
    run.span("function_tool", one, (2, 3), tool)
    goes_on = {"lk.generation_id": "s_2", "lk.parent_generation_id": "s_1"}
    two = run.span("agent_turn", talk, (3, 5), goes_on)
    run.span("llm_node", two, (3, 4), {"lk.chat_ctx": said, "lk.response.text": "14 days"})
    third = {"lk.generation_id": "t_1", "lk.user_input": "Q2?"}
    other = run.span("agent_turn", talk, (9, 12), third)
    run.span("llm_node", other, (9, 10), {"lk.chat_ctx": said, "lk.response.text": "Hello"})
    first, second = read(run).traces
    assert (first.query, first.answer) == ("Q1?", "14 days")
    assert [passage.text for passage in first.passages or []] == [A]
    assert (second.query, second.answer, second.passages) == ("Q2?", "Hello", None)


@pytest.mark.parametrize(
    ("asked", "given", "attributes"),
    [
        ({"question": "Refund period"}, "It takes 5 days.", ("input", "output")),
        (
            {"args": [A[:7] + "?"], "kwargs": {}},
            {"answer": "It takes 5 days."},
            ("input", "output"),
        ),
        ("How long?", "It takes 5 days.", ("input.value", "output.value")),
    ],
)
def test_functions_alone_that_answer_a_question_are_a_request(
    asked: Any, given: Any, attributes: tuple[str, str]
) -> None:
    run = Run()
    sides = [one if isinstance(one, str) else json.dumps(one) for one in (asked, given)]
    mark = {KIND: "CHAIN"} if attributes[0] == "input.value" else {}
    root = run.span("answer", None, (0, 5), {**dict(zip(attributes, sides, strict=True)), **mark})
    run.span("call_it", root, (1, 4), {"input": "You are kind. How long?", "output": sides[1]})
    trace = only(run)
    assert trace.query
    assert trace.answer == "It takes 5 days."
    assert trace.timings == {"total": 5}


@each_row(
    ("asked", "given"),
    [
        ({"order": "77", "note": "to the back door"}, {"message": "The order was stored."}),
        ({"sql": "select * from orders"}, "There are 3 rows."),
        ({"question": "How long?", "answer": "5 days"}, "The answer is right."),  # a judge
        ({"question": "How long?"}, "done"),
        ({"question": "How long?"}, [0.1, 0.2]),
    ],
)
def test_functions_that_answer_no_question_are_none(asked: Any, given: Any) -> None:
    run = Run()
    root = run.span("work", None, (0, 5), {"input": json.dumps(asked), "output": json.dumps(given)})
    run.span("step", root, (1, 4), {"input": "a b", "output": "c d"})
    assert read(run).dropped == {"no_llm_no_retriever": 1}


FOUND = [[{"page_content": A}, {"page_content": B}]]


@each_row(
    ("asked", "given"),
    [
        ({"input": "refund duration"}, {"result": "Five days.", "source_documents": FOUND}),
        ({"input": "refunds"}, {"output_text": "Five.", "documents": FOUND[0]}),
        ("refund duration", {"text": "Five days.", "sourceDocuments": [[FOUND[0][0], 0.8]]}),
    ],
)
def test_a_function_that_gives_its_documents_beside_an_answer_is_a_request(
    asked: Any, given: Any
) -> None:
    run = Run()
    texts = [one if isinstance(one, str) else json.dumps(one) for one in (asked, given)]
    run.span("run", None, (0, 5), {"input.value": texts[0], "output.value": texts[1]})
    trace = only(run)
    assert trace.answer
    assert (trace.passages or [])[0].text == A


@each_row(
    ("asked", "given"),
    [
        ({"question": "How long?", "answer": A}, {"response": "All is there.", "documents": [A]}),
        ({"path": "faq.md"}, {"documents": [A, B]}),
        ({"text": "How long?"}, {"chunks": [A, B]}),
    ],
)
def test_a_function_that_gives_documents_without_an_answer_of_its_own_is_none(
    asked: Any, given: Any
) -> None:
    run = Run()
    run.span("run", None, (0, 5), {"input": json.dumps(asked), "output": json.dumps(given)})
    assert read(run).dropped == {"no_llm_no_retriever": 1}


def failing(name: str, asked: object, **step: str) -> Run:
    run = Run()
    root = run.span(name, None, (0, 5), {KIND: "CHAIN", "input.value": json.dumps(asked)}, status=2)
    run.span("step", root, (1, 4), step, status=2)
    return run


@each_row("kind", ["", "EMBEDDING"])
def test_a_function_that_fails_with_a_question_in_hand_is_a_request(kind: str) -> None:
    trace = only(failing("answer", {"question": "How long?"}, **({KIND: kind} if kind else {})))
    assert (trace.query, trace.status, trace.answer) == ("How long?", "error", None)


@each_row(
    ("name", "asked"),
    [
        ("rewrite_question", {"question": "How long?"}),
        ("embed", {"text": "How long?"}),
        ("index", {"path": "faq.md", "title": "Refunds"}),
        ("grade_answer", {"question": "How long?", "answer": A}),
    ],
)
def test_a_step_that_fails_alone_is_no_request(name: str, asked: object) -> None:
    assert not read(failing(name, asked)).traces


@pytest.mark.parametrize(
    "name", ["find_chunks", "get_relevant_documents", "getContext", "top_k_passages"]
)
def test_functions_that_retrieve_by_other_names(name: str) -> None:
    run = Run()
    root = run.span("rag", None, (0, 5), {"input": "How long?", "output": A})
    found = json.dumps([{"text": A}, {"text": B}])
    run.span(name, root, (1, 2), {"input": "refund", "output": found})
    assert [passage.text for passage in only(run).passages or []] == [A, B]
