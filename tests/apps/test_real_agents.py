"""Agents and structured answers of the frameworks of 2026 beside a live ragmeter.

What it reads of each request is what the application did, or nothing where no span says it: it is
never anything else.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.apps.model_server import Call, Model
from tests.apps.running import Live, application
from tests.apps.shop import AGENT_REQUESTS, Request

pytestmark = [pytest.mark.slow, pytest.mark.real]

# What the spans of an application do not hold: `model` is the one that answered where another is
# given, and a request that failed may have less. Where the prompt alone holds the passages, it does
# not say that a search has found none.
NOT_SENT: dict[tuple[str, str], set[str]] = {
    ("pydantic_ai", "tool"): set(),
    ("pydantic_ai", "own"): {"ids", "empty passages", "failed passages"},
    ("openai_agents", "openinference"): {"model"},
    ("smolagents", "openinference"): {"model", "ids"},
    ("agno", "openinference"): {"model"},
    ("strands", "own"): {"model", "ids"},
    ("google_adk", "own"): {"model", "failed query", "failed session"},
    ("semantic_kernel", "own"): {"model", "ids"},
    ("crewai", "openinference"): {"model", "tokens", "ids"},
    ("autogen", "own"): {"query", "passages", "answer", "model", "tokens"},
    ("llama_index_workflow", "openinference"): set(),
    ("instructor", "openinference"): set(),
    ("vector_database", "qdrant"): {"ids"},
    ("vector_database", "chroma"): set(),
    ("vector_database", "milvus"): set(),
    ("vector_database", "openlit_chroma"): {"passages", "failed query"},
    ("dspy", "own"): {"ids", "empty passages", "model", "tokens"},
    ("dspy", "litellm"): {"ids", "model"},
}


# In CI one of each kind of span; the others, which import for long, are in `make acceptance`.
IN_CI = {
    ("pydantic_ai", "tool"),
    ("openai_agents", "openinference"),
    ("strands", "own"),
    ("semantic_kernel", "own"),
    ("autogen", "own"),
    ("llama_index_workflow", "openinference"),
    ("instructor", "openinference"),
    ("vector_database", "chroma"),
    ("dspy", "own"),
}


@pytest.mark.parametrize(
    ("framework", "instrumentation"),
    [pytest.param(*pair, marks=() if pair in IN_CI else pytest.mark.long) for pair in NOT_SENT],
)
def test_what_is_read_is_what_the_agent_did(
    ragmeter: Live, model: Model, framework: str, instrumentation: str
) -> None:
    service = f"{framework}-{instrumentation}"
    before = len(model.calls)
    done = application(framework, service, instrumentation, ragmeter, model.base_url)
    assert [did["name"] for did in done] == [request.name for request in AGENT_REQUESTS]
    traces = sorted(ragmeter.traces(service), key=lambda trace: str(trace["timestamp"]))
    assert len(traces) == len(AGENT_REQUESTS)  # each once
    for request, did, trace in zip(AGENT_REQUESTS, done, traces, strict=True):
        calls = [call for call in model.calls[before:] if request.question in call.prompt]
        compare(request, did, trace, calls, NOT_SENT[framework, instrumentation])


def compare(
    request: Request,
    did: dict[str, Any],
    trace: dict[str, Any],
    calls: list[Call],
    not_sent: set[str],
) -> None:
    assert did["status"] == ("error" if request.name == "error" else "ok"), did
    assert trace["status"] == did["status"], trace
    failed = {name.removeprefix("failed ") for name in not_sent} if calls == [] else not_sent
    texts = None
    if did["passages"] is not None and "passages" not in failed:
        texts = [text for _, text, _ in did["passages"]]
        if not texts and "empty passages" in not_sent:
            texts = None
    expected = {
        "query": request.question if "query" not in failed else None,
        "answer": did["answer"] if "answer" not in not_sent else None,
        "passages": texts,
    }
    read = {name: trace.get(name) for name in ("query", "answer")}
    passages = trace.get("passages")
    read["passages"] = None if passages is None else [one["text"] for one in passages]
    assert read == expected, trace
    missing = {name for name, value in read.items() if value is None}
    assert set(trace["missing"]) == missing - ({"answer"} if did["status"] == "error" else set())
    if passages and "ids" not in not_sent:
        assert [one["id"] for one in passages] == [name for name, _, _ in did["passages"]]
    if "session" not in failed and did["session"]:
        assert trace["tags"]["session"] == did["session"]
    usage = trace.get("usage") or {}
    tokens = (usage.get("input_tokens"), usage.get("output_tokens"))
    if calls and "tokens" not in not_sent:
        sums = (sum(c.input_tokens for c in calls), sum(c.output_tokens for c in calls))
        assert tokens == sums, trace
    else:
        assert tokens in ((None, None), (0, 0)), trace
    if calls and "model" not in not_sent:
        assert trace["model"] == calls[-1].model, trace
    elif trace.get("model") is not None:
        assert trace["model"].endswith(request.model), trace
        assert trace["guessed"]["model"] == "requested_model", trace
