from __future__ import annotations

from ragmeter.ingest.conventions import key_tables
from ragmeter.ingest.conventions.registry import CONVENTIONS, PLAIN
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.reasons import Reason

KEYS = key_tables.KeyTable(
    convention="x",
    kind=("kind",),
    roles={"retriever": SpanRole.RETRIEVER, "llm": SpanRole.LLM},
    unknown=SpanRole.CHAIN,
    query=("in", "older_in"),
    answer=("out",),
    documents=("docs",),
    scalars={"model": ("model",), "cost_usd": ("cost",)},
    tag_prefixes=("meta.",),
)


def test_the_first_key_that_holds_something() -> None:
    found = key_tables.read_by_table(KEYS, {"in": "", "older_in": "q", "out": "a", "kind": "else"})
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")


def test_a_kind_in_quotes_and_of_any_case() -> None:
    assert key_tables.read_by_table(KEYS, {"kind": '"Retriever"'}).role is SpanRole.RETRIEVER
    assert key_tables.read_by_table(KEYS, {"kind": 7}).role is SpanRole.OTHER
    assert key_tables.read_by_table(KEYS, {}).role is SpanRole.OTHER


def test_a_span_of_unknown_use_says_nothing() -> None:
    found = key_tables.read_by_table(KEYS, {"in": "q", "out": "a"})
    assert (found.query, found.answer) == (None, None)


def test_why_there_are_no_documents() -> None:
    found = key_tables.read_by_table(KEYS, {"kind": "retriever", "docs": "__REDACTED__"})
    assert (found.documents, found.documents_gap) == (None, Reason.CONTENT_HIDDEN)
    found = key_tables.read_by_table(
        KEYS, {"kind": "retriever", "docs": '[{"text": "whole"}, {"te'}
    )
    assert found.documents_gap is Reason.PASSAGES_TRUNCATED
    found = key_tables.read_by_table(KEYS, {"kind": "retriever", "docs": "[]"})
    assert (found.documents, found.documents_gap) == ([], None)


def test_masked_content_is_hidden() -> None:
    mask = "<fully masked due to failed mask function>"
    found = key_tables.read_by_table(
        KEYS, {"kind": "else", "in": mask, "out": "[Scrubbed due to 'auth']"}
    )
    assert (found.query, found.query_gap) == (None, Reason.CONTENT_HIDDEN)
    assert (found.answer, found.answer_gap) == (None, Reason.CONTENT_HIDDEN)
    found = key_tables.read_by_table(KEYS, {"kind": "llm", "in": mask, "out": mask})
    assert (found.query_gap, found.answer_gap) == (Reason.CONTENT_HIDDEN, Reason.CONTENT_HIDDEN)
    found = key_tables.read_by_table(KEYS, {"kind": "retriever", "docs": mask})
    assert (found.documents, found.documents_gap) == (None, Reason.CONTENT_HIDDEN)


def test_a_cost_below_nothing_is_none() -> None:
    assert key_tables.read_by_table(KEYS, {"cost": "-1"}).cost_usd is None
    assert key_tables.read_by_table(KEYS, {"cost": "nan"}).cost_usd is None


def test_tags_are_small_and_few() -> None:
    attributes = {f"meta.{n}": n for n in range(100)}
    found = key_tables.read_by_table(KEYS, {**attributes, "kind": "llm"})
    assert len(found.tags) == key_tables.MAX_TAGS
    content = SpanContent()
    key_tables.add_tag(content, "prose", "x" * 300)
    key_tables.add_tag(content, "list", "[1, 2]")
    key_tables.add_tag(content, "flag", True)
    key_tables.add_tag(content, "quoted", '"v"')
    assert content.tags == {"flag": "true", "quoted": "v"}


def test_replies_that_only_ask_for_tools() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1"}], "content": None}
    assert key_tables.asks_tools_only(call)
    assert key_tables.asks_tools_only({"choices": [{"message": call}]})
    assert not key_tables.asks_tools_only({**call, "content": "text too"})
    assert not key_tables.asks_tools_only("text")


def test_every_table_belongs_to_a_convention() -> None:
    names = [name for name in key_tables._all_tables() if not name.startswith(".")]
    for name in names:
        assert key_tables.key_table(name).convention == name
    order = [convention.name for convention in (*CONVENTIONS, PLAIN)]
    assert names == [name for name in order if name in names], "not in the registry's order"
    assert not set(names) - set(order)


def test_a_table_may_mark_failures() -> None:
    table = key_tables.KeyTable(convention="x", failed={"status": "failure"})
    assert key_tables.read_by_table(table, {"status": "FAILURE"}).failed
    assert not key_tables.read_by_table(table, {"status": "success"}).failed
