from __future__ import annotations

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions import vector_databases
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.ingest.spans import AttributeValue, SpanEvent

from tests.ingest.conventions.samples import span
from tests.tables import each_row


def read(attributes: dict[str, AttributeValue], *events: SpanEvent) -> SpanContent:
    one = span(attributes=attributes, events=list(events))
    assert vector_databases.matches_vector_db(one)
    return vector_databases.read_vector_db(one)


@each_row("operation", ["add", "upsert", "INSERT", "create_collection", "upload"])
def test_writing_is_no_retrieval(operation: str) -> None:
    found = read({"db.system": "qdrant", "db.operation": operation})
    assert (found.role, found.documents) == (SpanRole.VECTOR_DB, None)
    spans = [span(attributes={"db.system": "qdrant", "db.operation": operation})]
    assert extract_requests(spans, OtlpSettings()).dropped == {"indexing": 1}


def test_other_databases_are_none_of_ours() -> None:
    assert not vector_databases.matches_vector_db(span(attributes={"db.system": "postgresql"}))
