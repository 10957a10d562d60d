"""What a citation of a provider says of its place and of its sources, in one form.

Anthropic gives a position, a title and the cited words, OpenAI a file or an address, Google a
chunk, Cohere and Amazon the document itself: each may help to find the passage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What a source may be called by, of all providers.
_IDENTITY = {
    "id": (
        "passageid",
        "chunkid",
        "fileid",
        "documentid",
        "docid",
        "sourceid",
        "referenceid",
        "nodeid",
        "id",
        "xamzbedrockkbchunkid",
        "number",
    ),
    "url": (
        "url",
        "uri",
        "href",
        "link",
        "address",
        "source",
        "filepath",
        "path",
        "doc",
        "xamzbedrockkbsourceuri",
    ),
    "title": ("title", "documenttitle", "filename", "documentname", "name", "document"),
    "text": ("citedtext", "quote", "snippet", "excerpt", "passage", "text", "content"),
    "index": ("documentindex", "searchresultindex"),
}

# Objects that an annotation of OpenAI has inside, then those of sources.
_ANNOTATIONS = ("url_citation", "file_citation", "container_file_citation")
_INSIDE = (
    *_ANNOTATIONS,
    "document",
    "location",
    "documentChar",
    "documentPage",
    "documentChunk",
    "searchResultLocation",
    "web",
    "retrievedContext",
    "retrieved_context",
    "maps",
    "s3Location",
    "webLocation",
    "confluenceLocation",
    "sharePointLocation",
    "salesforceLocation",
    "customDocumentLocation",
    "kendraDocumentLocation",
    "sqlLocation",
    "metadata",
    "content",
    "data",
)
_STARTS = ("start_index", "startIndex", "start")
_ENDS = ("end_index", "endIndex", "end")
_AUTOMATIC_ID = re.compile(r"doc(?:ument)?[:_](\d{1,4})\Z")  # that Cohere gives: positions from 0
_SIGNS = re.compile(r"[\s_\-]")
_MAX_DEPTH = 3


def read_source(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object says of a source: id, url, title, index and cited text."""
    names = {_SIGNS.sub("", str(key)).lower(): given for key, given in value.items()}
    read: dict[str, Any] = {}
    for field, keys in _IDENTITY.items():
        for key in keys:
            given = names.get(key)
            if field == "index":
                if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
                    read.setdefault(field, given)
            elif isinstance(given, str | int) and not isinstance(given, bool) and str(given):
                read.setdefault(field, str(given))
    return read


def read_sources(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sources of one citation, which are mostly one."""
    named = item.get("sources")
    if isinstance(named, list):  # Cohere
        sources = [read_nested_source(one) for one in named if isinstance(one, dict)]
    elif isinstance(item.get("document_ids"), list):
        sources = [read_nested_source({"id": one}) for one in item["document_ids"]]
    else:
        sources = [read_nested_source(item)]
    return [source for source in sources if source]


def read_place(item: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return which characters of the text beside it a citation stands for, if it says so."""
    for node in (item, *(item[key] for key in _ANNOTATIONS if isinstance(item.get(key), dict))):
        start, end = _first_count(node, _STARTS), _first_count(node, _ENDS)
        if start is not None and end is not None and start < end:
            return start, end
    place = item.get("index")
    if isinstance(place, int) and not isinstance(place, bool) and place > 0 and "file_id" in item:
        return place - 1, place  # it stands behind the words that it cites
    return None, None


def _first_count(node: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = node.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def read_nested_source(node: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return what an object, and those inside it, say of one source."""
    own = {key: value for key, value in node.items() if key not in _ANNOTATIONS}
    if any(key in own for key in _STARTS):
        own.pop("text", None)  # that of the answer
    source = read_source(own)
    for key in _INSIDE:
        inner = node.get(key)
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            for name, value in read_nested_source(inner, depth + 1).items():
                source.setdefault(name, value)
    texts = node.get("sourceContent")
    if isinstance(texts, list):  # Bedrock
        held = (one.get("text") for one in texts if isinstance(one, dict))
        joined = " ".join(text for text in held if isinstance(text, str))
        if joined:
            source["text"] = joined
    automatic = _AUTOMATIC_ID.match(str(source.get("id", "")))
    if automatic:
        source.setdefault("index", int(automatic[1]))
    return source
