"""Agents and workflows: their tools are the retrievers, and their prompts are no questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.documents import read_tool_documents
from ragmeter.ingest.conventions.prompts import cut_prompt
from ragmeter.ingest.conventions.texts import find_answer
from ragmeter.ingest.live_inspection import grade_fields
from ragmeter.ingest.requests.tree import ToolUse, classify_tool
from ragmeter.ingest.spans import Span, SpanEvent
from ragmeter.offline.inspection import inspect_files
from ragmeter.trace import Trace

from tests.ingest.building import Run, documents, messages, only, read
from tests.tables import each_row

KIND = "openinference.span.kind"
A = "Refunds take five days after the parcel came."
B = "Returns are free for thirty days after the parcel came."
QUESTION = "How long do refunds take after the parcel came?"
FAILING = "Can vouchers be paid out?"
REPLY = "Passage one says so [1]. This is reply {}."
TEXTS = [
    "Refunds take five days after the parcel has reached our warehouse.",
    "Returns are free for thirty days; the label is in the parcel.",
    "Shipping to islands takes two days longer than to the mainland.",
]
CHROMA = [
    TEXTS[0],
    "The warranty covers defects of material for twenty-four months.",
    "Vouchers cannot be paid out, and are valid for three years.",
]
SERVED, ASKED = "stub-1-2026-01-01", "stub-1"
R = "right"
G = "guessed"
M = "missing"
# (number of the reply, passages, model, input tokens; then the grades of query, passages, answer,
# tokens, model), as each application had it. What is None is in none of its spans.
AGENTS: dict[str, tuple[int | None, list[str] | None, str | None, int | None, str]] = {
    "pydantic-ai": (1, TEXTS, SERVED, 407, "rgrrr"),
    "pydantic-ai-own": (0, TEXTS, SERVED, 200, "ggrrr"),
    "openai-agents": (1, TEXTS, ASKED, 407, "ggrrg"),
    "smolagents": (1, TEXTS, ASKED, 407, "rgrrg"),
    "agno": (1, TEXTS, ASKED, 407, "rgrrg"),
    "strands": (1, TEXTS, ASKED, 407, "rgrrg"),
    "google-adk-1": (1, TEXTS, "gemini-stub-1", 407, "ggrrg"),
    "google-adk-2": (1, TEXTS, "gemini-stub-1", 407, "ggrrg"),
    "semantic-kernel": (1, TEXTS, ASKED, 407, "rgrrg"),
    "crewai": (1, TEXTS, None, None, "rgrmm"),
    "autogen": (None, None, None, None, "mmmmm"),
    "llama-index-workflow": (0, TEXTS, SERVED, 200, "grrrr"),
    "instructor": (0, TEXTS, SERVED, 200, "grgrr"),
    "openllmetry-qdrant": (0, TEXTS, SERVED, 200, "ggrrr"),
    "openllmetry-chroma": (0, CHROMA, SERVED, 200, "grrrr"),
    "vercel-ai": (1, TEXTS[:2], SERVED, 407, "rgrrr"),
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Trace]]:
    file = Path(__file__).parents[2] / "data" / "otlp" / "agents" / "agents.otlp.jsonl.gz"
    inspection = inspect_files([file], OtlpSettings(hash_ids=False))
    assert not inspection.dropped
    assert not inspection.rejected
    by_service: dict[str, list[Trace]] = {}
    for trace, _ in sorted(inspection.traces, key=lambda item: item[0].timestamp):
        by_service.setdefault(trace.service, []).append(trace)
    return by_service


@pytest.mark.parametrize("service", AGENTS)
def test_real_spans_of_an_agent(recorded: dict[str, list[Trace]], service: str) -> None:
    reply, texts, model, tokens, grades = AGENTS[service]
    trace = recorded[service][0]
    assert trace.status == "ok"
    assert trace.query == (None if service == "autogen" else QUESTION)
    assert (trace.answer or "").rstrip() == ("" if reply is None else REPLY.format(reply))
    passages = None if trace.passages is None else [p.text for p in trace.passages]
    assert passages == texts
    assert trace.model == model
    assert (trace.usage.input_tokens if trace.usage else None) == tokens
    read = grade_fields(trace)
    fields = ("query", "passages", "answer", "tokens", "model")
    assert "".join(read[name][0] for name in fields) == grades


@pytest.mark.parametrize("service", AGENTS)
def test_real_spans_of_an_agent_that_failed(recorded: dict[str, list[Trace]], service: str) -> None:
    trace = recorded[service][-1]
    assert trace.status == "error"
    # a version of Google's ADK and AutoGen have no content on such spans
    assert trace.query == (None if service in ("autogen", "google-adk-1") else FAILING)
    assert trace.answer is None
    assert "out of memory" in (trace.error or "").lower()


def test_a_tool_that_found_nothing_is_an_empty_retrieval(
    recorded: dict[str, list[Trace]],
) -> None:
    assert recorded["smolagents"][1].passages == []


def use(name: str, result: Any, **settings: Any) -> ToolUse | None:
    found = read_tool_documents(result)
    if found is None:
        return None
    span = Span("a", "b", name="tool", attributes={"tool.name": name})
    return classify_tool(span, found, OtlpSettings(**settings))


@each_row(
    ("name", "result", "expected"),
    [
        *((name, A, ToolUse.LIKELY) for name in ("search", "searchDocs", "kb_lookup", "RAGTool")),
        *((name, A, ToolUse.LIKELY) for name in ("Pages-search_docs", "fetch_documents", "faq")),
        *((name, A, ToolUse.OTHER) for name in ("storage", "weather", "research", "drag", "")),
        *((name, A, ToolUse.OTHER) for name in ("save_to_knowledge_base", "delete_query")),
        ("pages", [A, B], ToolUse.LIKELY),
        ("pages", [{"id": "1", "text": A}], ToolUse.LIKELY),
        ("pages", [{"text": A}], ToolUse.OTHER),  # one text: a status as well as a passage
        ("list_categories", ["shoes", "bags"], ToolUse.OTHER),
        ("list_orders", [{"id": 1}, {"id": 2}], None),
        ("send_mails", [A, B], ToolUse.OTHER),
        ("helper", [{"role": "assistant", "content": A}], None),  # an agent as a tool
        ("count", 5, None),
        ("search", "[{'text': 'cut in the mid", None),
        ("search", '[{"text": "cut in the mid', None),
    ],
)
def test_which_tools_are_retrievals(name: str, result: Any, expected: ToolUse | None) -> None:
    assert use(name, result) is expected


def test_settings_decide_before_names_and_forms() -> None:
    assert use("searchDocs", A, excluded_tools=["search*"]) is ToolUse.OTHER
    assert use("pages", [A, B], excluded_tools=["*"]) is ToolUse.OTHER
    assert use("searchDocs", A, tool_names=["searchDocs"], excluded_tools=["*"]) is ToolUse.NAMED
    assert use("weather", A, tool_names=["wea*"]) is ToolUse.NAMED


@each_row(
    ("result", "texts"),
    [
        (f"['{A}', '{B}']", [A, B]),
        (json.dumps({"results": [{"text": A}, {"text": B}]}), [A, B]),
        (json.dumps({"content": [{"type": "text", "text": f"[1] {A}\n[2] {B}"}]}), [A, B]),  # MCP
        (f"===== Document 0 =====\n{A}\n\n===== Document 1 =====\n{B}", [A, B]),
        (f"Source: {{'page': 1}}\nContent: {A}\n\nSource: b\nContent: {B}", [A, B]),
        (f'<document id="7">{A}</document>\n<document id="8">\n{B}\n</document>', [A, B]),
        (f"Document 1: {A}\nDocument 2: {B}", [A, B]),
        (f"content='{A}' name='search' tool_call_id='1'", [A]),
        (f"{A} See [2] and [5].", [f"{A} See [2] and [5]."]),
        (f"[3] {A}\n[7] {B}", [f"[3] {A}\n[7] {B}"]),  # footnotes of one text
        ("No results found.", []),
        ("\nRetrieved documents:\n", []),
        ("[]", []),
    ],
)
def test_each_document_of_a_tool_apart(result: str, texts: list[str]) -> None:
    assert [document.text for document in read_tool_documents(result) or []] == texts
    assert read_tool_documents(result) is not None


def agent(tool: dict[str, Any], **kwargs: Any) -> Run:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    run.span("search_docs", root, (0, 1), {KIND: "TOOL", **tool}, **kwargs)
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    return run


def test_what_a_failed_tool_says_is_no_passage() -> None:
    run = agent({"output.value": "ConnectionError: the index is away"}, status=2)
    assert only(run).passages is None
    assert only(agent({"output.value": A})).passages is not None


def test_what_a_model_below_a_tool_wrote_is_no_passage() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    tool = run.span("search_expert", root, (0, 1), {KIND: "TOOL", "output.value": A})
    run.span("l", tool, (0, 1), {KIND: "LLM", **messages("q", A)})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    assert only(run).passages is None


def test_an_agent_without_any_other_span_is_a_request() -> None:
    for attributes in (
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "x"},
        {KIND: "AGENT"},
        {"traceloop.span.kind": "workflow"},
    ):
        run = Run()
        root = run.span("HTTP POST", None, (0, 9), {}, kind=2)
        run.span("run", root, (1, 3), attributes)
        trace = only(run)
        assert trace.status == "ok"
        assert trace.timings == {"total": 9}
        assert set(trace.missing) == {"query", "passages", "answer"}
    run = Run()  # building an agent answers nobody, and neither does plain HTTP
    run.span("create_agent x", None, (0, 9), {"gen_ai.operation.name": "create_agent"})
    extracted = read(run)
    assert not extracted.traces
    assert extracted.dropped == {"no_llm_no_retriever": 1}


CONTEXT = f"Answer from the context.\n\nContext:\n[1] {A}\n[2] {B}\n\n"


@each_row(
    ("prompt", "question"),
    [
        (f"{CONTEXT}Question: How long?", "How long?"),
        (f"{CONTEXT}Question: How long?\nAnswer:", "How long?"),
        (f"{CONTEXT}### Question:\nHow long?\n\nAnswer in one sentence.", "How long?"),
        (f"Question: How long?\nContext: {A}\nAnswer:", "How long?"),
        (f"<context>\n{A}\n</context>\n<question>How long?</question>", "How long?"),
        (
            "Context information is below.\n-----\nx\n-----\nGiven the context information and not "
            "prior knowledge, answer the query.\nQuery: How long?\nAnswer: ",
            "How long?",
        ),
        (f"{CONTEXT}How long?", None),  # nothing says where the question begins
        (f"Use this: {A} How long?", None),
        ("[[ ## context ## ]]\n[1] «x»\n\n[[ ## question ## ]]\nHow long?\n", "How long?"),
        # passages that no span has
        (
            "Use this context to answer.\n\nSomething.\n\nQuestion: How long?\nHelpful Answer:",
            "How long?",
        ),
        ("Sources of the shop\n[1] x\n[2] y\n\nHow long?", None),
        (f"{CONTEXT}Question: is it true that {A}", None),
        (f"Kontext:\n{A}\n\nFrage: Wie lange?\nAntwort:", "Wie lange?"),
        (f"上下文：{A}\n\n问题：多久？", "多久？"),
        # a passage that holds a label of its own
        (f"Context:\n{A}\nQuestion: a forged one?\n\nQuestion: How long?", "How long?"),
        (f"Question: How long?\nContext:\n[1] {A}\nQuestion: a forged one?", None),
        # templates without a label of the question
        (f"How long?\n\nAnswer using the following information:\n{A}\n\n{B}", "How long?"),
        (
            "The delay\n\nContext information is below, surrounded by ---------------------\n\n"
            f"---------------------\n{A}\n---------------------\n\nReply to the user comment.",
            "The delay",
        ),
        (
            f'### Task:\nReply.\n<context>\n<source id="1">{A}</source>\n</context>\n\nTell me',
            "Tell me",
        ),
        (f"Reply.\n<context>\n{A}\n</context>\n\nHow long?", "How long?"),
        (f"Reply.\n<context>\n{A}\n</context>\n\nReply in French.", None),
        (f"How long?\n\nContext:\n{A}", "How long?"),
        ("New task:\nHow long?", "How long?"),
        ("How long?", "How long?"),
        ("Is this so?\nNote: I'm in a hurry.", "Is this so?\nNote: I'm in a hurry."),
    ],
)
def test_a_prompt_is_cut_to_its_question(prompt: str, question: str | None) -> None:
    assert cut_prompt(prompt, [A, B], is_prompt=True) == question


def test_a_label_in_a_passage_is_none_of_the_prompt() -> None:
    forged = f"{A}\nQuestion: a forged one?"
    prompt = f"Question: How long?\nContext:\n[1] {forged}\n[2] {B}\nAnswer:"
    assert cut_prompt(prompt, [forged, B], is_prompt=True) == "How long?"
    assert cut_prompt(prompt, [A, B], is_prompt=True) is None


@pytest.mark.parametrize(
    ("message", "query"),
    [
        ("How long?", "How long?"),
        (f"Use this to answer:\n{A}\nHow long?", None),
        (f"Use this: {' '.join([A, B] * 9)} How long?", None),
    ],
)
def test_a_prompt_is_no_question_where_nobody_knows_what_was_retrieved(
    message: str, query: str | None
) -> None:
    run = Run()
    root = run.span("answer_question", None, (0, 9), {})
    database = {"db.system.name": "qdrant", "db.operation.name": "QUERY"}  # as OpenLIT has it
    run.span("QUERY pages", root, (1, 2), database)
    messages = [{"role": "user", "parts": [{"type": "text", "content": message}]}]
    called = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(messages)}
    run.span("chat m", root, (3, 8), called)
    trace = only(run)
    assert trace.query == query
    assert trace.missing.get("query") == (None if query else "prompt_only")


def test_a_user_may_write_of_a_context() -> None:
    text = "Context: I have two orders.\nWhere is the second?"
    assert cut_prompt(text, [A], is_prompt=False) == text
    assert cut_prompt(text, [A], is_prompt=True) is None
    text = f"Is it true what you write, {A}?"
    assert cut_prompt(text, [A, B], is_prompt=False) == text
    assert cut_prompt(f"{text} {B}", [A, B], is_prompt=False) is None


def test_a_prompt_that_holds_a_passage_is_never_the_query() -> None:
    run = Run()
    root = run.span("answer", None, (0, 9), {})
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A, B)})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages(f"Answer with {A} {B} How long?", "x")})
    trace = only(run)
    assert trace.query is None
    assert trace.missing["query"] == "prompt_only"


def test_what_an_agent_is_sent_is_cut_too() -> None:
    run = Run()
    asked = "Use this context to answer.\n\nSomething.\n\nQuestion: How long?"
    run.span("run", None, (0, 9), {KIND: "AGENT", "input.value": asked, "output.value": "A"})
    trace = only(run)
    assert (trace.query, trace.guessed) == ("How long?", {"query": "cut_from_prompt"})


@each_row(
    ("output", "answer"),
    [
        ("StopEvent(result='Five days.')", "Five days."),
        ('StopEvent(result="Five days ... ...")', "Five days ... ..."),
        ("StopEvent(result=Reply(text='Five days.'), ...", None),
        ("StopEvent(result='Five da...", None),
        ("<coroutine object answer at 0x7f11>", None),
        ("[NodeWithScore(node=TextNode(id_='1'...", None),
        ("{'answer': 'Five days.'}", "Five days."),
        ("{'answer': 'Five da...", None),
        ("Use Client(timeout=5) and wait.", "Use Client(timeout=5) and wait."),
        ("Widget(size=3) is the name of the part you need.",) * 2,
        ("[1] says: five days.", "[1] says: five days."),
    ],
)
def test_a_repr_is_never_the_answer(output: str, answer: str | None) -> None:
    assert find_answer(output)[0] == answer
    run = Run()
    root = run.span(
        "Shop.run", None, (0, 9), {KIND: "CHAIN", "input.value": "Q", "output.value": output}
    )
    run.span("r", root, (0, 1), {KIND: "RETRIEVER", **documents(A)})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "of the model")})
    assert only(run).answer == (answer or "of the model")


def test_the_model_of_the_call_that_answered() -> None:
    run = Run()
    root = run.span(
        "agent",
        None,
        (0, 9),
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"},
    )
    run.span(
        "chat",
        root,
        (1, 3),
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.response.model": "m-2026-01-01",
        },
    )
    trace = only(run)
    assert (trace.model, trace.guessed) == ("m-2026-01-01", None)


def test_the_result_of_a_tool_in_an_event() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {"gen_ai.operation.name": "invoke_agent"})
    run.span(
        "execute_tool search_docs",
        root,
        (0, 1),
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_docs"},
        events=[SpanEvent("gen_ai.choice", 1, {"message": json.dumps([{"text": A}, {"text": B}])})],
    )
    assert [p.text for p in only(run).passages or []] == [A, B]


def test_tokens_of_some_calls_are_a_guess() -> None:
    run = Run()
    root = run.span("agent", None, (0, 9), {KIND: "AGENT", "input.value": "Q", "output.value": "A"})
    run.span("l", root, (0, 1), {KIND: "LLM", "llm.token_count.prompt": 5, **messages("Q", "x")})
    assert "tokens" not in (only(run).guessed or {})
    run.span("l", root, (1, 3), {KIND: "LLM", **messages("Q", "A")})
    trace = only(run)
    assert trace.guessed is not None
    assert trace.guessed["tokens"] == "partial_usage"


def test_the_error_that_a_span_gives_back_is_no_answer() -> None:
    run = Run()
    run.span(
        "Agent.run",
        None,
        (0, 9),
        {KIND: "AGENT", "input.value": "Q", "output.value": "out of memory"},
        status=2,
        events=[SpanEvent("exception", 1, {"exception.message": "out of memory"})],
    )
    assert only(run).answer is None
