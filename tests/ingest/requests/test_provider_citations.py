"""Citations that a provider puts beside the text of its reply."""

from __future__ import annotations

import json
from typing import Any

from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.files import parse_yaml
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.citations import Citations, resolve_citations
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

from tests.ingest.building import Run, only
from tests.tables import each_row

FILE = __file__.rpartition("/ingest/")[0] + "/data/provider_citations.yaml"
with open(FILE) as text:
    SAMPLES = parse_yaml(text.read())
PASSAGES = SAMPLES["passages"]
REPLIES = {one["name"]: one for one in SAMPLES["replies"]}
QUESTION = "How long do refunds take?"
KIND = "openinference.span.kind"


def spans(reply: Any, answer: str | None = None, passages: Any = PASSAGES) -> Run:
    """A request whose model call holds the reply; the request gives back `answer`, if any."""
    run = Run()
    given = {} if answer is None else {"output.value": answer}
    root = run.span("rag", attributes={KIND: "CHAIN", "input.value": QUESTION, **given})
    found = {"documents": [{**one, "page_content": one["text"]} for one in passages]}
    run.span(
        "retrieve",
        root,
        (0.1, 0.2),
        {KIND: "RETRIEVER", "input.value": QUESTION, "output.value": json.dumps(found)},
    )
    call = {KIND: "LLM", "output.value": json.dumps(reply)}
    run.span("chat", root, (0.3, 0.9), call)
    return run


def cited(trace: Trace, citations: Citations) -> dict[str, set[int]]:
    """The passages that each cited part of an answer names."""
    found: dict[str, set[int]] = {}
    for mark in citations.marks:
        part = (trace.answer or "")[mark.start : mark.end].strip() if mark.start >= 0 else "whole"
        found.setdefault(part, set()).update(mark.passages)
    return found


@each_row("name", REPLIES)
def test_it_is_read_with_its_place_and_passage(name: str) -> None:
    one = REPLIES[name]
    for answer in (None, one["answer"]):
        trace = only(spans(one["reply"], answer))
        assert trace.answer == one["answer"]
        citations = resolve_citations(trace)
        assert cited(trace, citations) == {part: set(ps) for part, ps in one["cites"].items()}
        assert not citations.unread
        assert not citations.dangling
        scores = {
            score.metric: score.value
            for score in [*score_cheap(PreparedTrace(trace)), *score_builtin(PreparedTrace(trace))]
        }
        assert scores["citation_presence"] == 1.0
        assert scores["citation_fabricated"] == 0.0
        assert (scores["citation_precision"] or 0) > 0.3
    for mark, place in zip(citations.marks, one.get("places", ()), strict=False):
        assert [mark.start, mark.end] == place


@each_row("name", REPLIES)
def test_what_names_no_passage_has_no_value(name: str) -> None:
    """Nothing tells what is cited, so neither presence nor fabrication is known."""
    others = [{"id": "x", "text": "The shop opens at nine on weekdays and at ten on Sundays."}]
    text = json.dumps(REPLIES[name]["reply"])
    for word in ("kb-", "doc:", "_index", "Index"):
        text = text.replace(word, f"other{word}")
    reply = json.loads(text.replace("[0]", '["a"]').replace("[1]", '["b"]'))
    trace = only(spans(reply, REPLIES[name]["answer"].replace("【4:0†source】", ""), others))
    scores = {score.metric: score for score in score_cheap(PreparedTrace(trace))}
    presence = scores["citation_presence"]
    if trace.citations:
        assert (presence.value, presence.reason) == (None, Reason.CITATIONS_NOT_READ)
        assert scores["citation_fabricated"].value is None


@each_row(
    "citation",
    [
        {"type": "char_location", "document_index": 1, "document_title": "Returns"},
        {
            "type": "url_citation",
            "url": "https://shop.example/help/returns",
            "start_index": 24,
            "end_index": 41,
        },
        {"type": "url_citation", "url_citation": {"url": "https://shop.example/help/returns"}},
        {"type": "file_citation", "file_id": "file-2", "filename": "returns.pdf", "index": 40},
        {"start": 24, "end": 41, "document_ids": ["kb-returns"]},
        {"start": 24, "end": 41, "sources": [{"type": "document", "id": "doc:1"}]},
        {"sources": [{"title": "Returns"}]},
        {"sources": [{"text": "the label is in the parcel"}]},
        {"retrievedReferences": [], "title": "Returns"},
        {"passage_ids": ["kb-returns"]},
    ],
)
def test_a_native_trace_may_hold_it_as_the_provider_gave_it(citation: dict[str, Any]) -> None:
    trace = native("Refunds take five days. Returns are free.", citations=[citation])
    marks = resolve_citations(trace).marks
    assert [mark.passages for mark in marks] == [[1]]
    again = Trace.model_validate_json(trace.model_dump_json())
    assert again == trace


def native(answer: str, **more: Any) -> Trace:
    return Trace(
        **{
            "trace_id": "t",
            "service": "s",
            "timestamp": 1_790_000_000,
            "query": QUESTION,
            "passages": PASSAGES,
            "answer": answer,
            **more,
        }
    )


@each_row(
    ("answer", "expected"),
    [
        ({"answer": "Refunds take five days.", "sources": ["kb-refunds"]}, {"whole": {0}}),
        ({"answer": "Refunds take five days.", "citations": [1, 2]}, {"whole": {0, 1}}),
        ({"answer": "Refunds take five days [1].", "sources": ["kb-returns"]}, {"[1]": {0}}),
        ({"answer": "Free.", "citations": [{"title": "Returns"}]}, {"whole": {1}}),
        ({"answer": "Free.", "quote": "the label is in the parcel"}, {"whole": {1}}),
        (
            {
                "claims": [
                    {"claim": "Refunds take five days.", "source": "kb-refunds"},
                    {"claim": "Returns are free.", "source": 2},
                ]
            },
            {"Refunds take five days.": {0}, "Returns are free.": {1}},
        ),
    ],
)
def test_sources_in_a_json_answer_are_its_citations(
    answer: dict[str, Any], expected: dict[str, set[int]]
) -> None:
    prepared = PreparedTrace(native(json.dumps(answer)))
    visible, _, citations, _ = prepared.derive()
    assert cited(visible, citations) == expected
    trace = only(
        spans({"choices": [{"message": {"role": "assistant", "content": json.dumps(answer)}}]})
    )
    visible, _, citations, _ = PreparedTrace(trace).derive()
    assert cited(visible, citations) == expected


def test_a_source_of_a_json_answer_that_is_no_passage_has_no_value() -> None:
    answer = json.dumps({"answer": "Refunds take five days.", "sources": ["Company handbook"]})
    scores = {score.metric: score for score in score_cheap(PreparedTrace(native(answer)))}
    assert scores["citation_presence"].reason == Reason.CITATIONS_NOT_READ
    none = json.dumps({"answer": "Refunds take five days.", "sources": []})
    scores = {score.metric: score for score in score_cheap(PreparedTrace(native(none)))}
    assert scores["citation_presence"].value == 0.0


def test_sources_are_redacted() -> None:
    trace = native(
        "Ask bob@corp.example. Returns are free.",
        citations=[
            {"start": 22, "end": 39, "sources": [{"id": "kb-returns", "text": "bob@corp.example"}]}
        ],
    )
    redacted = Redactor(PrivacySettings(redact=["email"])).trace(DecodedTrace(trace, b""), {}).trace
    (citation,) = redacted.citations or []
    assert citation.sources[0].id == "kb-returns"
    assert "bob" not in (citation.sources[0].text or "")
    assert (redacted.answer or "")[citation.start : citation.end] == "Returns are free."
