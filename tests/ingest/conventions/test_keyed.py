from __future__ import annotations

from agent.ingest.conventions import keyed
from agent.ingest.conventions.reading import Gap, Reading, Role

KEYS = keyed.Keys(
    convention="x",
    kind=("kind",),
    roles={"retriever": Role.RETRIEVER, "llm": Role.LLM},
    unknown=Role.CHAIN,
    query=("in", "older_in"),
    answer=("out",),
    documents=("docs",),
    model=("model",),
    cost_usd=("cost",),
    tag_prefixes=("meta.",),
)


def test_the_first_key_that_holds_something() -> None:
    found = keyed.read_keyed(KEYS, {"in": "", "older_in": "q", "out": "a", "kind": "else"})
    assert (found.role, found.query, found.answer) == (Role.CHAIN, "q", "a")


def test_a_kind_in_quotes_and_of_any_case() -> None:
    assert keyed.read_keyed(KEYS, {"kind": '"Retriever"'}).role is Role.RETRIEVER
    assert keyed.read_keyed(KEYS, {"kind": 7}).role is Role.OTHER
    assert keyed.read_keyed(KEYS, {}).role is Role.OTHER


def test_a_span_of_unknown_use_says_nothing() -> None:
    found = keyed.read_keyed(KEYS, {"in": "q", "out": "a"})
    assert (found.query, found.answer) == (None, None)


def test_why_there_are_no_documents() -> None:
    found = keyed.read_keyed(KEYS, {"kind": "retriever", "docs": "__REDACTED__"})
    assert (found.documents, found.documents_gap) == (None, Gap.HIDDEN)
    found = keyed.read_keyed(KEYS, {"kind": "retriever", "docs": '[{"text": "whole"}, {"te'})
    assert found.documents_gap is Gap.PASSAGES_TRUNCATED
    found = keyed.read_keyed(KEYS, {"kind": "retriever", "docs": "[]"})
    assert (found.documents, found.documents_gap) == ([], None)


def test_masked_content_is_hidden() -> None:
    mask = "<fully masked due to failed mask function>"
    found = keyed.read_keyed(KEYS, {"kind": "else", "in": mask, "out": "[Scrubbed due to 'auth']"})
    assert (found.query, found.query_gap) == (None, Gap.HIDDEN)
    assert (found.answer, found.answer_gap) == (None, Gap.HIDDEN)
    found = keyed.read_keyed(KEYS, {"kind": "llm", "in": mask, "out": mask})
    assert (found.query_gap, found.answer_gap) == (Gap.HIDDEN, Gap.HIDDEN)
    found = keyed.read_keyed(KEYS, {"kind": "retriever", "docs": mask})
    assert (found.documents, found.documents_gap) == (None, Gap.HIDDEN)


def test_a_cost_below_nothing_is_none() -> None:
    assert keyed.read_keyed(KEYS, {"cost": "-1"}).cost_usd is None
    assert keyed.read_keyed(KEYS, {"cost": "nan"}).cost_usd is None


def test_tags_are_small_and_few() -> None:
    attributes = {f"meta.{n}": n for n in range(100)}
    found = keyed.read_keyed(KEYS, {**attributes, "kind": "llm"})
    assert len(found.tags) == keyed.MAX_TAGS
    reading = Reading()
    keyed.tag(reading, "prose", "x" * 300)
    keyed.tag(reading, "list", "[1, 2]")
    keyed.tag(reading, "flag", True)
    keyed.tag(reading, "quoted", '"v"')
    assert reading.tags == {"flag": "true", "quoted": "v"}


def test_replies_that_only_ask_for_tools() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "1"}], "content": None}
    assert keyed.asks_tools_only(call)
    assert keyed.asks_tools_only({"choices": [{"message": call}]})
    assert not keyed.asks_tools_only({**call, "content": "text too"})
    assert not keyed.asks_tools_only("text")
