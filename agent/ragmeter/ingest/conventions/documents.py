"""Read retrieved documents in the forms that frameworks write.

A document may be an object, a node, text or the repr of an object; documents come as lists, objects
around a list, columns, JSON text of these and flattened attributes. Text that is known to be cut,
hidden or only the repr of an object is marked by a `Reason` and not taken for a passage.
Nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.joined_documents import is_heading, split_joined_documents
from ragmeter.ingest.conventions.query_rows import name_columns
from ragmeter.ingest.conventions.span_content import RetrievedDocument, has_texts
from ragmeter.ingest.conventions.streams import read_event_lines
from ragmeter.ingest.conventions.values import (
    QUOTED,
    first_text,
    flattened_items,
    is_embedding,
    is_hidden,
    is_python_form,
    is_repr,
    is_rows_form,
    is_truncated,
    key_list,
    key_set,
    looks_like_json,
    mcp_texts,
    parse_json_or_literal,
    parse_literal,
    parse_nested_json,
    parse_number,
    parse_printed,
    parse_rows,
    repr_text,
    scalar_text,
    unquote_repr,
)
from ragmeter.reasons import Reason
from ragmeter.trace import MAX_ID

MAX_DOCUMENTS = 1_000  # of one retrieval; the largest seen holds 100
_MAX_DEPTH = 6  # of objects around a list
_MAX_LAYERS = 6  # of one document
_MAX_METADATA = 32  # keys of one document
_MAX_METADATA_TEXT = 512  # characters of one value
_MAX_ERROR = 600  # characters of what a tool says in place of its result
_ERROR = re.compile(
    r"(?:error:|error (?:executing|invoking|calling|running|while|in tool|occurred)"
    r"|an error occurred"
    r"|\w*(?:error|exception)(?:\(|: )|tool [\w.-]{1,80} (?:failed|timed out|error)"
    r"|traceback \(most recent|failed to (?:call|execute|invoke|run) )",
    re.IGNORECASE,
)
# Llama Stack's search writes this around its results, and the other around each of them.
_FRAME = re.compile(
    r"\s*(?:knowledge_search tool found \d|(?:BEGIN|END) of \w{1,60} tool results"
    r"|The above results were retrieved to help answer)"
)
_NUMBERED_RESULT = re.compile(
    r"Result \d{1,3}:?\s{0,3}\n(?:Document_id: ?\S{1,200}\s{0,3}\n)?Content: (.*?)"
    r"(?:\nMetadata: \{[^\n]*)?",
    re.DOTALL,
)
# of a flattened document: OpenInference's names, and those that applications write by hand
_FLAT_TEXTS = ("document.content", "content", "text")
_FLAT_IDS = ("document.id", "document_id", "id")
_SENTENCE_ENDS = tuple(".!。！…")  # a question may be a title
_MIN_SENTENCE = 4  # words, or twice the signs of a language without blanks
# what may be as long: a title, what was asked, and what a grader says
_NO_TEXTS = frozenset(
    (
        "title",
        "heading",
        "subject",
        "question",
        "query",
        "prompt",
        "url",
        "source",
        "path",
        "error",
        "reason",
        "reasons",
        "reasoning",
        "rationale",
        "explanation",
        "feedback",
        "justification",
    )
)
_MIN_ROW = 8  # words of a text that nothing but its length tells from a title
_PAGE_CONTENT = re.compile(rf"(?:^|[\s(,])page_content={QUOTED}", re.DOTALL)
_RECORD_FIELD = re.compile(rf" ([\w.()]{{1,100}})=({QUOTED[1:-1]}|[^\s'\"<>]+)", re.DOTALL)
_RECORD = re.compile(rf"<Record(?:{_RECORD_FIELD.pattern})+>", re.DOTALL)
# Haystack prints 100 characters of a text and dots, or all of it, without escaping its quotes.
_HAYSTACK_CONTENT = re.compile(
    r", content: '(.+?)'(?:\)|, (?:dataframe|blob|meta|score|embedding|sparse_embedding): .*)\Z",
    re.DOTALL,
)
_REPR_ID = re.compile(r"\bid_?=(?:'([^']{1,512})'|\"([^\"]{1,512})\"|([0-9a-fA-F-]{8,64})\b)")
_CUT_REPR = re.compile(r"\s*<?(?:Document|NodeWithScore|TextNode|ScoredPoint|Node)\b\s*[(:{]")
_CUT_PAGE_CONTENT = re.compile(r"\s*(?:Document\(.{0,2000})?page_content=['\"]", re.DOTALL)


def read_metadata(value: Any) -> dict[str, Any]:
    """Return the scalars of a document's metadata, which may be JSON text, bounded in size."""
    value = parse_nested_json(value)
    scalars: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, item in value.items():
            if len(scalars) == _MAX_METADATA:
                break
            if isinstance(item, str):
                scalars[str(key)[:_MAX_METADATA_TEXT]] = item[:_MAX_METADATA_TEXT]
            elif isinstance(item, bool) or (parse_number(item) is not None):
                scalars[str(key)[:_MAX_METADATA_TEXT]] = item
    return scalars


def read_document(value: Any) -> RetrievedDocument | None:
    """Read one document.

    Returns:
        None for numbers, vectors and blank text. An object without text or id is still a document,
        with the gap `passages_id_only`.
    """
    value = parse_nested_json(value)
    if isinstance(value, dict):
        return _from_mapping(value)
    if isinstance(value, list):
        # (document, score), as similarity_search_with_score gives
        if len(value) != 2 or not isinstance(value[0], (dict, str)):
            return None
        score = parse_number(value[1])
        document = read_document(value[0]) if score is not None else None
        if document is not None and document.score is None:
            document.score = score
        return document
    if not isinstance(value, str):
        return None
    document = _read_repr(value)
    text = scalar_text(value)
    if document is not None or text is None or is_embedding(text):
        return document
    return _document(text)


def _document(text: str | None, **fields: Any) -> RetrievedDocument:
    """Return a document with the text unless it is hidden, and the gap that the text shows."""
    hidden = is_hidden(text)
    gap = None
    if hidden:
        gap = Reason.CONTENT_HIDDEN
    elif text is None:
        gap = Reason.PASSAGES_ID_ONLY
    elif is_truncated(text):
        gap = Reason.PASSAGES_TRUNCATED
    return RetrievedDocument(text=None if hidden else text, gap=gap, **fields)


def _from_mapping(value: Mapping[str, Any]) -> RetrievedDocument:
    kwargs = value.get("kwargs")
    if isinstance(kwargs, dict) and isinstance(value.get("id"), list):  # LangChain's dumps
        value = kwargs
    if value.get("type") == "text":  # a tool has written a document into each block of text
        inner = parse_nested_json(value.get("text"))
        if isinstance(inner, dict) and (document := _from_mapping(inner)).text is not None:
            return document
    layers: list[Mapping[str, Any]] = [value]
    for layer in layers:  # which grow
        for key in key_list("document_inside") if len(layers) < _MAX_LAYERS else ():
            inner = parse_nested_json(layer[key]) if key in layer else None
            if isinstance(inner, dict):
                layers.append(inner)
    metadata: dict[str, Any] = {}
    raw: list[Mapping[str, Any]] = []
    for layer in layers:
        for key in key_list("document_metadata"):
            inner = parse_nested_json(layer[key]) if key in layer else None
            if isinstance(inner, dict):
                raw.append(inner)
                if not metadata:
                    metadata = read_metadata(inner)
    text = _text([*layers, *raw])
    if text is None:
        for inner in raw:  # LlamaIndex keeps its node as JSON in the metadata of a vector store
            node = parse_nested_json(inner.get("_node_content"))
            if isinstance(node, dict):
                text = _text([node])
    score, kind = _score(layers)
    metadata.pop("_node_content", None)
    return _document(text, id=_id(layers, raw), score=score, score_kind=kind, metadata=metadata)


def _text(layers: list[Mapping[str, Any]]) -> str | None:
    keys = key_list("document_text")
    for layer in layers:
        for key in keys:
            if key in layer and (text := _plain_text(layer[key])) is not None:
                return _without_print(text)
        resource = layer.get("text_resource")
        if isinstance(resource, dict) and scalar_text(resource.get("text")):
            return scalar_text(resource.get("text"))
    for layer in layers:  # columns of a query: `c.text`
        columns = {name.rpartition(".")[2]: value for name, value in layer.items() if "." in name}
        for key in keys if columns else ():
            if (text := _plain_text(columns.get(key))) is not None:
                return _without_print(text)
    for layer in layers:
        pieces = (_pieces(layer[key]) for key in key_list("document_pieces") if key in layer)
        if text := next(filter(None, pieces), ""):
            return text
        # columns of Snowflake and Oracle
        upper = (layer[key.upper()] for key in keys if key.upper() in layer)
        if (text := next((one for one in upper if isinstance(one, str) and one.strip()), "")) != "":
            return text
    if fragments := _highlighted(layers):
        return fragments
    named = (
        layer[key] for layer in layers for key in key_list("document_sentence") if key in layer
    )
    sentences = [text for text in named if isinstance(text, str)]
    # a hit of a vector search that has this text alone is no list of names
    alone = [text for one in layers for text in one.values() if isinstance(text, str)]
    is_hit = _score(layers)[0] is not None
    scored = alone == sentences and is_hit
    sentence = next((text for text in sentences if _is_sentence(text, scored)), None)
    if sentence is not None or not is_hit:
        return sentence
    # a row or a hit whose text has a name of the application's own
    held = [
        text
        for layer in layers
        for name, text in layer.items()
        if isinstance(text, str) and name.lower() not in _NO_TEXTS
        if len(text.split(None, _MIN_ROW)) >= _MIN_ROW
    ]
    return max(held, key=len, default=None)


def _highlighted(layers: list[Mapping[str, Any]]) -> str:
    """Return the fragments of a hit of Elasticsearch by their fields, "" where it has none."""
    held = next((one for layer in layers if isinstance(one := layer.get("highlight"), dict)), {})
    return "\n".join(filter(None, map(_pieces, held.values())))


def _without_print(text: str) -> str | None:
    """Return the text in a document, a row or a node that was printed, any other as it is."""
    document = _read_repr(text)
    if document is not None:
        return document.text
    row = parse_literal(text) if is_python_form(text) else _record(text)
    inner = _text([row]) if isinstance(row, dict) else None
    return inner or text


def _record(text: str) -> dict[str, str] | None:
    """Return the values of a row of Neo4j or asyncpg by the last word of their names."""
    if not text.startswith("<Record ") or not text.endswith(">"):
        return None
    fields = _RECORD_FIELD.findall(text[:-1])
    return {
        name.rpartition(".")[2]: unquote_repr(value) if value[0] in "'\"" else value
        for name, value in fields
    }


def _records(text: str) -> list[dict[str, str]] | None:
    """Return the rows of a printed list of such rows, None for any other text."""
    if not text.startswith("[<Record "):
        return None
    rows: list[dict[str, str]] = []
    at = 1
    while len(rows) < MAX_DOCUMENTS and (match := _RECORD.match(text, at)):
        row = _record(match[0])
        rows += [row] if row is not None else []
        at = match.end() + len(", ")
    return rows if text[at - len(", ") :].strip() == "]" or len(rows) == MAX_DOCUMENTS else None


def _plain_text(text: Any) -> str | None:
    """Return the text at a key of a document, None where it is no text."""
    if isinstance(text, list) and text:
        if all(isinstance(one, str) for one in text):  # a field of Solr
            text = "\n".join(text)
        elif all(isinstance(one, dict) and _is_text_part(one) for one in text):
            text = "\n".join(one["text"] for one in text)
    if isinstance(text, dict):  # Bedrock: {"content": {"text": ...}}
        text = text.get("text") or text.get("value")
    held = isinstance(text, str) and bool(text.strip()) and not is_embedding(text)
    return text if isinstance(text, str) and held else None


def _is_text_part(part: Mapping[str, Any]) -> bool:
    """Return whether an object is a part of a text: of Genkit, or of OpenAI's stores."""
    kind = part.get("type", "text")
    text = part.get("text")
    is_text = isinstance(text, str) and not looks_like_json(text)
    return is_text and isinstance(kind, str) and kind.endswith("text")


def _pieces(value: Any) -> str:
    """Return the texts of a list, or of its objects, as one."""
    texts = [
        first_text(one, ("content", "text", "snippet", "fragment"))
        if isinstance(one, dict)
        else one
        for one in (value[:MAX_DOCUMENTS] if isinstance(value, list) else ())
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _is_sentence(text: str, scored: bool) -> bool:
    """Return whether a text reads as a sentence rather than as a name or a title."""
    if not scored and not text.rstrip("\"'”»)] \n").endswith(_SENTENCE_ENDS):
        return False
    words = len(text.split(None, _MIN_SENTENCE))
    return words >= _MIN_SENTENCE or (not text.isascii() and len(text) >= 2 * _MIN_SENTENCE * words)


def _id(layers: list[Mapping[str, Any]], metadata: list[Mapping[str, Any]]) -> str:
    for group, names in (
        (layers, key_list("document_id")),
        (metadata, key_list("metadata_id")),
        (layers, key_list("document_source")),
        (metadata, key_list("document_source")),
    ):
        for layer in group:
            identity = first_text(layer, names)
            if identity is not None:
                return identity
    return ""


def _score(layers: list[Mapping[str, Any]]) -> tuple[float | None, str]:
    for layer in layers:
        for kind in ("similarity", "distance"):
            for key in key_list(f"document_{kind}"):
                score = parse_number(layer[key]) if key in layer else None
                if score is not None:
                    return score, kind
    return None, ""


def _spring_text(text: str) -> str | None:
    """Return the text of a document of Spring AI as Java prints it, None where it has no end.

    Quotes are not escaped: the text goes to the last `metadata`, less a `media` right before it.
    """
    _, _, rest = text.partition("text='")
    held, ended, _ = rest.rpartition("', metadata={")
    if not ended:
        return None
    before, media, kind = held.rpartition("', media='")
    return before if media and "'" not in kind else held


def _read_repr(text: str) -> RetrievedDocument | None:
    """Read the repr of a framework's document object, None for ordinary text.

    Those of LangChain and Spring AI hold the whole text. Those of others are cut or mixed with
    other fields and are never used as text.
    """
    head = text[:64]
    if "page_content=" not in text[:4096] and not _CUT_REPR.match(head):
        return None
    whole = _PAGE_CONTENT.search(text)
    match = _REPR_ID.search(text[:4096])
    identity = next((group for group in match.groups() if group), "") if match else ""
    if whole is not None and (whole.start() == 0 or _CUT_REPR.match(head)):
        content = unquote_repr(whole[1]) or None
        return RetrievedDocument(id=identity, text=content, gap=_document(content).gap)
    if head.startswith("Document{id="):
        content = _spring_text(text)
        return RetrievedDocument(id=identity, text=content, gap=_document(content).gap)
    printed = _HAYSTACK_CONTENT.search(text) if head.startswith("Document(id=") else None
    if printed is not None and not printed[1].endswith("..."):
        return RetrievedDocument(id=text[12:].partition(",")[0][:MAX_ID], text=printed[1])
    if _CUT_REPR.match(head) or _CUT_PAGE_CONTENT.match(text):
        return RetrievedDocument(id=identity, gap=Reason.PASSAGES_TRUNCATED)
    return None


def read_documents(value: Any, *, depth: int = 0) -> list[RetrievedDocument] | None:
    """Read the documents of a list, an object around one, Chroma's columns or JSON text of these.

    Returns:
        None if the value holds no documents, which is not the same as an empty list.
    """
    value = parse_nested_json(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        value = parse_rows(value)
    if isinstance(value, dict):
        return _from_object(value, depth)
    if isinstance(value, str):
        document = _read_repr(value)
        if document is not None:
            return [document]
        printed = parse_printed(value)
        listed = printed if isinstance(printed, list) else _only_list(printed or {})
        return read_documents(listed, depth=depth + 1) if listed else None
    if not isinstance(value, list) or is_embedding(value):
        return None
    if (rows := read_rows(value[:MAX_DOCUMENTS])) is not None:
        return rows
    if len(value) == 1 and isinstance(value[0], list):
        return read_documents(value[0], depth=depth + 1)  # a batch of one query
    items = (_json_of(item) for item in value[:MAX_DOCUMENTS])
    held = [one for item in items for one in _inner_hits(item)][:MAX_DOCUMENTS]
    if len(held) == 1 and held[0] is not value[0]:
        return read_documents(held[0], depth=depth + 1)
    items = (read_document(item) for item in held)
    documents = [document for document in items if document is not None]
    return documents if documents or not value else None


def _json_of(item: Any) -> Any:
    """Return what Bedrock's blocks and n8n's items hold as `json`, any other item as it is."""
    return item["json"] if isinstance(item, dict) and isinstance(item.get("json"), dict) else item


def read_rows(value: list[Any]) -> list[RetrievedDocument] | None:
    """Read the rows of a query without the names of its columns, None for any other list."""
    columns = name_columns(value)
    if columns is None:
        return None
    return [
        _document(
            "\n".join(text for n in columns.texts if (text := scalar_text(row[n]))) or None,
            id=(scalar_text(row[columns.id]) or "")[:MAX_ID] if columns.id is not None else "",
            score=parse_number(row[columns.score]) if columns.score is not None else None,
            metadata=next((read_metadata(cell) for cell in row if isinstance(cell, dict)), {}),
        )
        for row in value
    ]


def _inner_hits(item: Any) -> list[Any]:
    """Return the passages of a hit of Elasticsearch, where these were searched and it has any.

    They stand below the hit of their document, whose id and metadata are theirs too.
    """
    inside = item.get("inner_hits") if isinstance(item, dict) else None
    found: list[Any] = []
    for named in inside.values() if isinstance(inside, dict) else ():
        held = named.get("hits") if isinstance(named, dict) else None
        hits = held.get("hits") if isinstance(held, dict) else None
        found += (one for one in (hits if isinstance(hits, list) else ()) if isinstance(one, dict))
    passages = [
        {**hit, "fields": _nested_fields(hit.get("fields")), "metadata": item.get("_source")}
        for hit in found
    ]
    return passages if has_texts(list(filter(None, map(read_document, passages)))) else [item]


def _nested_fields(fields: Any) -> Any:
    """Return the fields of a nested hit without the lists of one object around them."""
    while isinstance(fields, dict) and len(fields) == 1:
        (inner,) = fields.values()
        if not isinstance(inner, list) or len(inner) != 1 or not isinstance(inner[0], dict):
            break
        fields = inner[0]
    return fields


def _from_object(value: dict[str, Any], depth: int) -> list[RetrievedDocument] | None:
    columns = _columns(value)
    if columns is not None:
        return columns
    rows = _rows(value)
    if rows is not None:
        return read_documents(rows, depth=depth + 1)
    keyed = _keyed_objects(value)
    if keyed is not None:
        return read_documents(keyed, depth=depth + 1)
    references = _bedrock_references(value)
    if references is not None:
        return read_documents(references, depth=depth + 1)
    without_text: list[RetrievedDocument] | None = None
    for key in key_list("document_lists"):
        inner = parse_nested_json(value.get(key))
        if isinstance(inner, (list, dict)) and not is_embedding(inner):
            documents = read_documents(inner, depth=depth + 1)
            if has_texts(documents):
                return documents
            without_text = documents if without_text is None else without_text
    only = _only_list(value)
    if only is not None:
        documents = read_documents(only, depth=depth + 1)
        if has_texts(documents):
            return documents
    if without_text is not None:
        return without_text
    document = _from_mapping(value)
    return [document] if document.text or document.gap is not Reason.PASSAGES_ID_ONLY else None


def _only_list(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the only list of objects that an object holds, whatever its name is."""
    lists = [
        one
        for one in value.values()
        if isinstance(one, list) and one and all(isinstance(item, dict) for item in one)
    ]
    return lists[0] if len(lists) == 1 else None


def _keyed_objects(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the documents of an object that has them by their ids, or by columns as pandas does.

    MediaWiki has the pages of a query so.
    """
    query = value.get("query")
    pages = query.get("pages") if isinstance(query, dict) else None
    held: Mapping[str, Any] = pages if isinstance(pages, dict) else value
    objects = list(held.values())
    if len(objects) < 1 or not all(isinstance(one, dict) for one in objects):
        return None
    texts = key_set("document_text") | key_set("document_sentence")
    if all(not texts.isdisjoint(one) for one in objects) and all(map(_is_index, held)):
        return objects[:MAX_DOCUMENTS]
    rows = list(objects[0])
    columns_alike = all(list(one) == rows for one in objects)
    if texts.isdisjoint(held) or not rows or not columns_alike or not all(map(_is_index, rows)):
        return None
    return [{name: held[name][row] for name in held} for row in rows[:MAX_DOCUMENTS]]


def _is_index(name: str) -> bool:
    return name.lstrip("-").isdecimal()


def _bedrock_references(value: Mapping[str, Any]) -> list[Any] | None:
    """Return what Bedrock's "retrieve and generate" has retrieved, beside the answer."""
    citations = value.get("citations")
    if not isinstance(citations, list):
        return None
    held = [one for one in citations if isinstance(one, dict) and "retrievedReferences" in one]
    lists = (one["retrievedReferences"] for one in held)
    references = [one for listed in lists if isinstance(listed, list) for one in listed]
    return references if held else None


def read_tool_documents(value: Any) -> list[RetrievedDocument] | None:
    """Read the output of a tool as documents: a list of them, else its one text.

    Whether they count, `ragmeter.ingest.requests.passages` decides.

    Returns:
        None for an output that is no text, such as a number or cut JSON.
    """
    opened = _open_tool_output(value)
    if isinstance(opened, dict) and (
        opened.get("isError") is True or opened.get("is_error") is True
    ):
        return None  # of MCP
    if isinstance(opened, dict) and isinstance(opened.get("structuredContent"), dict):
        structured = read_documents(opened["structuredContent"])
        if structured and has_texts(structured):
            return _split_texts(structured)
    documents = None if _holds_messages(opened) else read_documents(opened)
    if documents:
        if not has_texts(documents):
            return None
        only = documents[0]
        # one text without an id may be a list that the tool or its framework has joined
        if len(documents) == 1 and not only.id and only.gap is None:
            return _read_tool_text(only.text or "") or documents
        return _split_texts(documents)
    if documents is not None:
        return documents
    if isinstance(opened, dict):  # a message of LangChain, or the one field that a tool returns
        texts = (opened[key] for key in key_list("tool_text") if isinstance(opened.get(key), str))
        opened = next(texts, None)
    return _read_tool_text(opened) if isinstance(opened, str) else None


def _open_tool_output(value: Any) -> Any:
    """Open JSON, Python's text form of a list, and the repr of a message of a tool."""
    opened = parse_json_or_literal(value)
    if isinstance(opened, str):
        opened = parse_rows(opened)
    if isinstance(opened, str) and (texts := mcp_texts(opened)) is not None:
        return texts
    if isinstance(opened, str) and (records := _records(opened)) is not None:
        return records
    if isinstance(opened, str) and is_repr(opened):
        held = parse_json_or_literal(repr_text(opened))
        printed = parse_printed(opened) if held is None else None
        if printed and _read_repr(opened) is None:
            return (printed if isinstance(printed, list) else _only_list(printed)) or opened
        return opened if printed else held
    return opened


def _holds_messages(value: Any) -> bool:
    """Return whether a tool gave back messages: what an agent has written is no passage."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and ("role" in value[0])
    )


def _read_tool_text(text: str) -> list[RetrievedDocument] | None:
    opened = _open_tool_output(text)
    if not isinstance(opened, str):
        return read_documents(opened)
    lines = read_event_lines(text)
    if lines:  # an object a line
        return read_documents(lines)
    if looks_like_json(text) or is_python_form(text) or is_rows_form(text):
        return None  # and not whole
    if is_embedding(text) or is_hidden(text):
        return None
    kept = text.strip()
    if not kept:
        return None
    if len(kept) <= _MAX_ERROR and _ERROR.match(kept):
        return None
    if kept.lower().startswith(key_list("nothing_found")) or (
        kept.endswith(":") and "\n" not in kept
    ):
        return []  # said in words, or a heading without anything below it
    return _split(kept) or [_document(text)]


def _split(text: str) -> list[RetrievedDocument] | None:
    if numbered := _NUMBERED_RESULT.fullmatch(text.strip()):
        return [_document(numbered[1].strip())]
    joined = split_joined_documents(text) or ()
    return [_document(one.text, id=one.id[:MAX_ID]) for one in joined] or None


def _split_texts(documents: list[RetrievedDocument]) -> list[RetrievedDocument]:
    """Split each of the texts that a tool gave apart, without the heading above them.

    A document with an id or a score of its own is one.
    """
    if len(documents) > 1 and is_heading(documents[0].text or ""):
        documents = documents[1:]
    documents = [one for one in documents if not _FRAME.match(one.text or "")] or documents
    found: list[RetrievedDocument] = []
    for document in documents:
        plain = document.text and not document.id and document.score is None
        found += (_split(document.text or "") if plain and document.gap is None else None) or [
            document
        ]
    return found[:MAX_DOCUMENTS]


def _rows(value: Mapping[str, Any]) -> list[Any] | None:
    """Return the rows of a table with the names of its columns: of pandas, Databricks, Elastic."""
    manifest = value.get("manifest")
    holder = manifest if isinstance(manifest, dict) else value
    heads = holder.get("columns")
    names = [
        scalar_text(one.get("name") if isinstance(one, dict) else one)
        for one in (heads if isinstance(heads, list) else ())
    ]
    inner = value.get("result")
    held = {**inner, **value} if isinstance(inner, dict) else value
    tables = (held.get(key) for key in ("data_array", "data", "rows", "values"))
    table = next((one for one in tables if isinstance(one, list)), None)
    if not names or None in names or table is None:
        return None
    if not all(isinstance(row, list) and len(row) == len(names) for row in table):
        return None
    return [dict(zip(names, row, strict=True)) for row in table[:MAX_DOCUMENTS]]


def _columns(value: Mapping[str, Any]) -> list[RetrievedDocument] | None:
    """Read Chroma's answer: lists side by side, each in one more list for a batch of queries."""
    columns: dict[str, list[Any]] = {}
    for name in ("ids", "documents", "distances", "metadatas", "scores"):
        column = value.get(name)
        if isinstance(column, list):
            if column and isinstance(column[0], list):
                column = column[0]
            columns[name] = column[:MAX_DOCUMENTS]
    if "ids" not in columns or not ({"documents", "distances", "metadatas"} & columns.keys()):
        return None
    documents = []
    for n, identity in enumerate(columns["ids"]):
        row = {name: column[n] for name, column in columns.items() if n < len(column)}
        distance = parse_number(row.get("distances"))
        score = parse_number(row.get("scores"))
        kind = "" if score is None else "similarity"
        documents.append(
            _document(
                scalar_text(row.get("documents")),
                id=scalar_text(identity) or "",
                score=score if distance is None else distance,
                score_kind=kind if distance is None else "distance",
                metadata=read_metadata(row.get("metadatas")),
            )
        )
    return documents


def read_flattened_documents(
    attributes: Mapping[str, Any], prefix: str
) -> tuple[list[RetrievedDocument] | None, bool]:
    """Read documents at `prefix.N.document.content` and so on, None if there are none.

    Returns:
        The documents, and whether the first ones are missing.
    """
    items = flattened_items(attributes, prefix)
    if not items:
        return _whole_list(attributes.get(prefix)), False
    documents = []
    for _, item in items[:MAX_DOCUMENTS]:
        text = scalar_text(first_text(item, _FLAT_TEXTS))
        if text is not None and is_embedding(text):
            text = None
        document = _read_repr(text) if text is not None else None
        document = document or _document(text)
        document.id = first_text(item, _FLAT_IDS) or document.id
        document.score = parse_number(item.get("document.score", item.get("score")))
        document.score_kind = "similarity" if document.score is not None else ""
        document.metadata = read_metadata(item.get("document.metadata"))
        documents.append(document)
    return documents, items[0][0] > 0


def _whole_list(value: Any) -> list[RetrievedDocument] | None:
    """Read the documents that stand in one attribute, as applications write them by hand."""
    if value in ([], "[]"):  # DSPy found nothing
        return []
    documents = read_tool_documents(value) if isinstance(value, str | list) else None
    texts = [document.text.split() for document in documents or () if document.text]
    worded = sum(map(len, texts)) >= _MIN_SENTENCE * len(texts)  # else ids, or names
    return documents if texts and worded else None
