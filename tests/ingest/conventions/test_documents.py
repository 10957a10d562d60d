"""Lists of documents as frameworks write them."""

from __future__ import annotations

import json
from typing import Any

from ragmeter.ingest.conventions.documents import (
    read_document,
    read_documents,
    read_flattened_documents,
    read_metadata,
)
from ragmeter.ingest.conventions.span_content import RetrievedDocument
from ragmeter.ingest.conventions.values import (
    MAX_FLATTENED_ITEMS,
    flattened_items,
    has_flattened_items,
)
from ragmeter.reasons import Reason

from tests.tables import each_row

TEXT = "Refunds take 5 days."


@each_row(
    ("value", "identity", "score", "kind"),
    [
        ({"page_content": TEXT, "metadata": {}, "id": "a"}, "a", None, ""),
        ({"pageContent": TEXT, "id": 7}, "7", None, ""),
        ({"content": TEXT, "id": "a", "score": "0.5"}, "a", 0.5, "similarity"),
        ({"node": {"id_": "a", "text": TEXT}, "score": 0.5}, "a", 0.5, "similarity"),
        ({"node": {"id_": "a", "text_resource": {"text": TEXT}}, "score": 1}, "a", 1, "similarity"),
        ({"pid": 3, "text": TEXT}, "3", None, ""),
        ({"id": "a", "score": 0.5, "metadata": {"text": TEXT}}, "a", 0.5, "similarity"),
        ({"id": 4, "score": 0.5, "payload": {"page_content": TEXT}}, "4", 0.5, "similarity"),
        ({"_id": "a", "_score": 2.5, "_source": {"content": TEXT}}, "a", 2.5, "similarity"),
        ({"@search.score": 2.5, "chunk_id": "a", "chunk": TEXT}, "a", 2.5, "similarity"),
        (
            {"content": {"text": TEXT}, "score": 0.5, "metadata": {"id": "a"}},
            "a",
            0.5,
            "similarity",
        ),
        ({"title": "t", "href": "https://a", "body": TEXT}, "https://a", None, ""),
        ({"page_content": TEXT, "metadata": {"doc_uri": "u", "chunk_id": "c"}}, "c", None, ""),
        ({"id": "a", "distance": 0.1, "document": TEXT}, "a", 0.1, "distance"),
        (
            {"lc": 1, "id": ["x", "Document"], "kwargs": {"page_content": TEXT, "id": "a"}},
            "a",
            None,
            "",
        ),
        ({"id": "a", "metadata": {"_node_content": json.dumps({"text": TEXT})}}, "a", None, ""),
        ([{"page_content": TEXT, "id": "a"}, 0.5], "a", 0.5, ""),
        (json.dumps({"node": {"id_": "a", "text": TEXT}, "score": 0.5}), "a", 0.5, "similarity"),
        ({"name": TEXT, "similarity": 0.5}, "", 0.5, "similarity"),
        ({"type": "text", "text": json.dumps({"pageContent": TEXT, "id": "a"})}, "a", None, ""),
        (f"page_content='{TEXT}' metadata={{'a': 1}}", "", None, ""),
        (f"Document(id='a', metadata={{}}, page_content='{TEXT}')", "a", None, ""),
        (TEXT, "", None, ""),
    ],
)
def test_one_document(value: Any, identity: str, score: float | None, kind: str) -> None:
    one = read_document(value)
    assert one is not None
    assert (one.id, one.text, one.score, one.score_kind, one.gap) == (
        identity,
        TEXT,
        score,
        kind,
        None,
    )


@each_row(
    ("value", "gap", "identity"),
    [
        ({"id": "a", "score": 0.9, "title": "t"}, Reason.PASSAGES_ID_ONLY, "a"),
        ({"id": "a", "name": "How do I reset my password?"}, Reason.PASSAGES_ID_ONLY, "a"),
        ({"id": "a", "doc": "Guide to refunds and returns"}, Reason.PASSAGES_ID_ONLY, "a"),
        ({}, Reason.PASSAGES_ID_ONLY, ""),
        ({"id": "a", "content": "__REDACTED__"}, Reason.CONTENT_HIDDEN, "a"),
        ({"id": "a", "content": "x" * 100 + "..."}, Reason.PASSAGES_TRUNCATED, "a"),
        ({"id": "a", "content": "[0.1, 0.2, 0.3]"}, Reason.PASSAGES_ID_ONLY, "a"),
        (
            "Document(id=0a1b2c3d, content: 'cut...', meta: {})",
            Reason.PASSAGES_TRUNCATED,
            "0a1b2c3d",
        ),
        ("<NodeWithScore(node=TextNode(id_='a', text='x'))>", Reason.PASSAGES_TRUNCATED, "a"),
        ("page_content='never en", Reason.PASSAGES_TRUNCATED, ""),
    ],
)
def test_text_that_is_not_all_there(value: Any, gap: Reason, identity: str) -> None:
    one = read_document(value)
    assert one is not None
    assert (one.gap, one.id) == (gap, identity)
    assert one.text is None or gap is Reason.PASSAGES_TRUNCATED


@each_row(
    "value",
    [
        [{"page_content": TEXT}, {"page_content": "b"}],
        {"documents": [{"page_content": TEXT}, {"page_content": "b"}], "count": 2},
        {"source_nodes": [{"node": {"text": TEXT}}, {"node": {"text": "b"}}]},
        {"retriever": 1, "output": {"documents": [{"content": TEXT}, {"content": "b"}]}},
        {"ids": [["1", "2"]], "documents": [[TEXT, "b"]], "distances": [[0.1, 0.2]]},
        {"retrievalResults": [{"content": {"text": TEXT}}, {"content": {"text": "b"}}]},
        {"matches": [{"metadata": {"text": TEXT}}, {"metadata": {"text": "b"}}]},
        [json.dumps({"node": {"text": TEXT}}), json.dumps({"node": {"text": "b"}})],
        [[{"page_content": TEXT}, {"page_content": "b"}]],
        [TEXT, "b"],
    ],
)
def test_lists_of_documents(value: Any) -> None:
    for form in (value, json.dumps(value)):
        assert [one.text for one in read_documents(form) or []] == [TEXT, "b"]


def test_empty_is_not_nothing() -> None:
    assert read_documents([]) == []
    assert read_documents('{"documents": []}') == []
    for nothing in (None, "", "some text", {}, {"a": 1}, 3, [0.1, 0.2, 0.3], [1, 2], True):
        assert read_documents(nothing) is None
    # the items of the conventions' own test case: an empty object is an item too
    three = read_documents([{"id": "doc-1", "score": 0.91, "title": "t"}, {"id": "doc-2"}, {}])
    assert [one.id for one in three or []] == ["doc-1", "doc-2", ""]
    assert {one.gap for one in three or []} == {Reason.PASSAGES_ID_ONLY}


def test_a_quoted_text_is_unquoted() -> None:
    one = read_document('page_content="it\'s \\"5\\" days\\n\\u00e9\\x41" metadata={}')
    assert one is not None
    assert one.text == 'it\'s "5" days\néA'


def test_flattened_documents_and_a_hostile_index() -> None:
    attributes = {
        "retrieval.documents.10.document.content": "b",
        "retrieval.documents.2.document.content": "a",
        "retrieval.documents.2.document.id": 5,
        "retrieval.documents.2.document.score": "0.5",
        "retrieval.documents.2.document.metadata": '{"page": 4, "vector": [1, 2]}',
        "retrieval.documents.999999999.document.id": "far",
        "retrieval.documents.9999999999999.document.id": "no index",
        "retrieval.documents.__proto__.document.id": "no index",
    }
    found, cut = read_flattened_documents(attributes, "retrieval.documents")
    assert cut
    assert found == [
        RetrievedDocument("5", "a", 0.5, "similarity", {"page": 4}),
        RetrievedDocument(text="b"),
        RetrievedDocument("far", gap=Reason.PASSAGES_ID_ONLY),
    ]
    assert read_flattened_documents({}, "retrieval.documents") == (None, False)


def test_lists_and_metadata_are_bounded() -> None:
    many = {f"a.{n}.b": n for n in range(MAX_FLATTENED_ITEMS + 50)}
    assert [index for index, _ in flattened_items(many, "a")] == list(range(MAX_FLATTENED_ITEMS))
    assert has_flattened_items(many, "a")
    assert not has_flattened_items(many, "b")
    assert len(read_documents([{"id": str(n)} for n in range(5_000)]) or []) == 1_000
    assert len(read_metadata({str(n): "x" * 9_999 for n in range(99)})) == 32
    assert read_metadata({"a": float("nan"), "b": [1], "c": None, "d": True}) == {"d": True}


def test_a_whole_text_that_haystack_has_printed_is_read() -> None:
    text = "Document(id=0a1b, content: 'It's free, and 'now'.', meta: {'a': 'b'}, score: 1.2)"
    one = read_document(text)
    assert one is not None
    assert (one.id, one.text, one.gap) == ("0a1b", "It's free, and 'now'.", None)


SENTENCE = "Refunds take five days to arrive."
OTHER = "Gift cards cannot be refunded at all."


@each_row(
    ("rows", "found"),
    [
        ([[7, SENTENCE, 0.25], [9, OTHER, 0.5]], [("7", SENTENCE, 0.25), ("9", OTHER, 0.5)]),
        ([[7, SENTENCE]], [("7", SENTENCE, None)]),
        ([[SENTENCE], [OTHER]], [("", SENTENCE, None), ("", OTHER, None)]),
        (
            [["a.md", "Refunds", SENTENCE], ["b.md", "Gift cards", OTHER]],
            [("a.md", SENTENCE, None), ("b.md", OTHER, None)],
        ),
        ([["a", SENTENCE, [0.1, 0.2, 0.3], {"page": 4}]], [("a", SENTENCE, None)]),
        ([[1, "How long do refunds take?", SENTENCE]], None),
    ],
)
def test_rows_without_names(rows: Any, found: list[tuple[str, str, float | None]] | None) -> None:
    read = [(one.id, one.text, one.score) for one in read_documents(rows) or []]
    # a question and its answer are both the text
    assert read == (found or [("1", f"How long do refunds take?\n{SENTENCE}", None)])
    printed = str([tuple(row) for row in rows])
    assert [one.text for one in read_documents(printed) or []] == [text for _, text, _ in read]


@each_row(
    "value",
    [
        [["2026-01", 17, 3], ["2026-02", 21, 4]],  # numbers of a report
        [[1, "Berlin"], [2, "Paris"]],  # names
        [[SENTENCE, OTHER], [OTHER, SENTENCE]],  # documents of two queries, or pairs of a chat
        [[SENTENCE, OTHER], [OTHER]],
        "[(1, 'cut in the mid",
    ],
)
def test_what_is_no_rows_of_texts(value: Any) -> None:
    assert not [one for one in read_documents(value) or [] if one.text]


def test_a_hit_has_a_text_of_any_name_but_what_a_grader_says() -> None:
    plot = "A detective looks for the parcel that never arrived in town."
    one = read_document({"_id": "a", "plot": plot, "title": f"{plot} {plot}", "score": 0.9})
    assert one is not None
    assert one.text == plot
    graded = read_document({"score": 0.9, "reason": plot, "question": f"{plot} {plot}"})
    assert graded is not None
    assert graded.text is None
