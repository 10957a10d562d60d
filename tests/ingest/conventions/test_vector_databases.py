from __future__ import annotations

import pytest
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions import instrumentors
from ragmeter.ingest.conventions.span_content import ContentGap, SpanContent, SpanRole
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.spans import AttributeValue, SpanEvent

from tests.ingest.conventions.samples import span


def read(attributes: dict[str, AttributeValue], *events: SpanEvent) -> SpanContent:
    one = span(attributes=attributes, events=list(events))
    assert instrumentors.matches_vector_db(one)
    return instrumentors.read_vector_db(one)


def hit(**fields: AttributeValue) -> SpanEvent:
    return SpanEvent("db.query.result", 0, {f"db.query.result.{k}": v for k, v in fields.items()})


def test_chroma() -> None:
    found = read(
        {"db.system": "chroma", "db.operation": "query", "db.chroma.query.n_results": 2},
        hit(id="1", distance=0.25, document="one", metadata='{"source": "a.md"}'),
        hit(id="2", distance=0.5, document="two"),
    )
    assert (found.role, found.query, found.documents_gap) == (SpanRole.VECTOR_DB, None, None)
    assert found.documents is not None
    assert [(one.id, one.text, one.score, one.score_kind) for one in found.documents] == [
        ("1", "one", 0.25, "distance"),
        ("2", "two", 0.5, "distance"),
    ]
    assert found.documents[0].metadata == {"source": "a.md"}


def test_one_event_for_many_results_is_a_cut_list() -> None:
    asked: dict[str, AttributeValue] = {
        "db.system": "chroma",
        "db.operation": "query",
        "db.chroma.query.n_results": 5,
        "db.chroma.query.texts_count": 1,
    }
    assert read(asked, hit(id="1", document="one")).documents_gap is ContentGap.PASSAGES_TRUNCATED


def test_pinecone_has_text_in_its_metadata() -> None:
    found = read(
        {"db.system": "pinecone", "db.operation": "query"},
        hit(id="v1", score=0.9, metadata="{'text': \"it's\", 'source': 'a'}"),
        hit(id="v2", score=0.8, metadata="None"),
    )
    assert found.documents is not None
    assert [(one.id, one.text, one.score_kind, one.gap) for one in found.documents] == [
        ("v1", "it's", "similarity", None),
        ("v2", None, "similarity", ContentGap.ID_ONLY),
    ]


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ("{'metric_type': 'COSINE'}", "similarity"),
        ("{'metric_type': 'L2', 'params': {}}", "distance"),
        ("{}", ""),
        (None, ""),
    ],
)
def test_what_milvus_calls_a_distance(parameters: str | None, kind: str) -> None:
    attributes: dict[str, AttributeValue] = {"db.system": "milvus", "db.operation": "search"}
    if parameters is not None:
        attributes["db.milvus.search.search_params"] = parameters
    result: dict[str, AttributeValue] = {
        "db.search.query.id": 0,
        "db.search.result.id": 7,
        "db.search.result.distance": "0.75",
        "db.search.result.entity": "{'text': 'a passage', 'page': 3}",
    }
    found = read(attributes, SpanEvent("db.search.result", 0, result))
    assert found.documents is not None
    (one,) = found.documents
    assert (one.id, one.text, one.score, one.score_kind) == ("7", "a passage", 0.75, kind)


def test_marqo_has_a_query_and_its_own_fields() -> None:
    found = read(
        {"db.system": "marqo", "db.operation": "search", "db.marqo.search.query": "q"},
        SpanEvent(
            "db.query.result", 0, {"_id": "m1", "_score": 0.6, "Title": "t", "text": "a passage"}
        ),
    )
    assert found.query == "q"
    assert found.documents is not None
    (one,) = found.documents
    assert (one.id, one.text, one.score) == ("m1", "a passage", 0.6)


@pytest.mark.parametrize("operation", ["add", "upsert", "INSERT", "create_collection", "upload"])
def test_writing_is_no_retrieval(operation: str) -> None:
    found = read({"db.system": "qdrant", "db.operation": operation})
    assert (found.role, found.documents) == (SpanRole.VECTOR_DB, None)
    spans = [span(attributes={"db.system": "qdrant", "db.operation": operation})]
    assert extract_requests(spans, OtlpSettings()).dropped == {"indexing": 1}


def test_looking_up_a_collection_is_nothing() -> None:
    assert read({"db.system": "chroma", "db.operation": "get_collection"}).role is SpanRole.OTHER


def test_openlit_has_the_query_as_text() -> None:
    attributes: dict[str, AttributeValue] = {
        "db.system.name": "chroma",
        "db.operation.name": "GET",
        "db.query.text": "texts=['Who lives here?']",
    }
    assert read(attributes).query == "Who lives here?"
    attributes["db.query.text"] = "embeddings=1 vectors"
    assert read(attributes).query is None


def test_other_databases_are_none_of_ours() -> None:
    assert not instrumentors.matches_vector_db(span(attributes={"db.system": "postgresql"}))
