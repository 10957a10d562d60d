"""Applications of three frameworks, with the packages that instrument them, beside a live ragmeter:
what it reads of each request is what the application did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apps.model_server import Call, Model
from tests.apps.running import Live, application
from tests.apps.shop import MODEL, REQUESTS, Request

pytestmark = [pytest.mark.slow, pytest.mark.real]

FAILURES = {"timeout": "timed out", "error": "out of memory", "search-error": "the index is away"}


@pytest.mark.parametrize(
    ("framework", "instrumentation"),
    [
        ("langchain", "openinference"),
        ("langchain", "openllmetry"),
        ("llama_index", "openinference"),
        ("haystack", "openinference"),
    ],
)
def test_what_is_read_is_what_the_application_did(
    ragmeter: Live, model: Model, framework: str, instrumentation: str
) -> None:
    service = f"{framework}-{instrumentation}"
    dropped = ragmeter.dropped()
    did = {
        done["name"]: done
        for done in application(framework, service, instrumentation, ragmeter, model.base_url)
    }
    assert list(did) == [request.name for request in REQUESTS]
    traces = ragmeter.traces(service)
    read = {trace.get("query"): trace for trace in traces}
    # each once: the building of an index is no request, and no request is two
    assert sorted(str(trace.get("query")) for trace in traces) == sorted(
        request.question for request in REQUESTS
    )
    # only LlamaIndex has spans for the building of its index
    assert ragmeter.dropped() - dropped == (framework == "llama_index")
    for request in REQUESTS:
        done, trace = did[request.name], read[request.question]
        call = call_of(request, done, model)
        compare(request, done, trace)
        compare_passages(request, done["passages"], trace, instrumentation)
        assert trace.get("usage") == (
            {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
            if call
            else None
        )
        assert trace.get("model") in models(request, call, framework), trace


def call_of(request: Request, did: dict[str, Any], model: Model) -> Call | None:
    """The completion that the answer came from; every application asks the same questions."""
    calls = [call for call in model.calls if request.question in call.prompt]
    if calls and calls[-1].answer == did["answer"]:
        return calls[-1]
    assert request.name in FAILURES or request.search == "empty", did
    return None


def models(request: Request, call: Call | None, framework: str) -> set[str | None]:
    """Some instrumentation tells the build that answered, some what was asked for."""
    if call is not None:
        return {request.model, call.model}
    if request.model == MODEL or framework == "haystack":  # it tells none where there's no reply
        return {None}
    return {request.model}


def compare(request: Request, did: dict[str, Any], read: dict[str, Any]) -> None:
    expected = "timeout" if request.name == "timeout" else "error"
    assert did["status"] == (expected if request.name in FAILURES else "ok"), did
    assert read["status"] == did["status"], read
    assert read.get("answer") == did["answer"], read
    assert ("error" in read) == (request.name in FAILURES), read
    assert FAILURES.get(request.name, "") in (read.get("error") or "").lower(), read
    if request.name == "timeout":
        assert read["timings"]["total"] >= request.timeout, read


def compare_passages(
    request: Request, did: list[list[Any]] | None, trace: dict[str, Any], instrumentation: str
) -> None:
    if did is None:
        assert request.search == "fails"
        assert "passages" not in trace
        assert trace["missing"] == {"passages": "no_passages_captured"}
        return
    assert trace["missing"] == {}
    assert bool(did) == (request.search == "works")
    read = trace["passages"]
    assert [one["text"] for one in read] == [text for _, text, _ in did]
    assert [one["rank"] for one in read] == list(range(1, len(did) + 1))
    if instrumentation == "openllmetry":  # it leaves the ids out: ours are made of the texts
        assert len({one["id"] for one in read}) == len(did)
    else:
        assert [one["id"] for one in read] == [name for name, _, _ in did]
        scores = [score for _, _, score in did]
        assert [one.get("score") for one in read] == pytest.approx(scores)
