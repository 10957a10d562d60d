"""Merge the top-level retrievals of a request into one ranked list of passages.

A retriever below a retriever is part of it. The list of a reranker replaces what was retrieved
before it. The span of a vector database adds ids and scores to the retriever above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.documents import read_tool_documents
from ragmeter.ingest.conventions.given_documents import read_given_documents
from ragmeter.ingest.conventions.prompt_passages import read_prompt_documents
from ragmeter.ingest.conventions.span_content import RetrievedDocument, SpanRole
from ragmeter.ingest.conventions.tool_results import (
    holds_history,
    read_call_messages,
    read_hosted_documents,
    read_reply_results,
    read_tool_results,
)
from ragmeter.ingest.requests.tree import SpanNode, ToolUse, classify_result, tool_name
from ragmeter.reasons import Reason

_MAX_PASSAGES = 1_000  # of one request; real ones have up to 100
_MAX_CALLS = 50  # of one request whose messages are looked into, the last ones
_MAX_NESTING = 20  # retrievers in retrievers; real ones are three deep
_GAPS = (Reason.CONTENT_HIDDEN, Reason.PASSAGES_TRUNCATED, Reason.PASSAGES_ID_ONLY)  # worst first
_MIN_JOINED = 2  # documents of a text that a tool has joined
_MAX_JOINED_TEXTS = 8  # the longest, that may be such texts
_MAX_BETWEEN = 0.1  # of such a text, which are headings and numbers
_MAX_SAME_ID = 8  # documents of one id compared with the next one; a source may have thousands


@dataclass(slots=True)
class RetrievedPassages:
    """Documents of retrievals, why they are missing or incomplete, and the spans that hold them.

    Attributes:
        guessed: Whether nobody has said that the tool that gave them retrieves.
        prompted: Whether they stand in a prompt alone.
        tools: Whether the result was taken, by the name of a tool that only messages tell of.
        tool_calls: The call whose messages do, by that name.
    """

    documents: list[RetrievedDocument] | None = None
    gap: Reason | None = None
    spans: list[SpanNode] = field(default_factory=list)
    guessed: bool = False
    prompted: bool = False
    tools: dict[str, bool] = field(default_factory=dict)
    tool_calls: dict[str, SpanNode] = field(default_factory=dict)


def find_retrievals(node: SpanNode) -> list[SpanNode]:
    """Return the top-level retrievals at and below a node of an annotated tree, by time."""
    retrievals = []
    stack = [node]
    while stack:
        below = stack.pop()
        if below.is_retrieval:
            retrievals.append(below)
        else:
            stack += below.children
    return sorted(retrievals, key=_time_order)


def collect_passages(node: SpanNode, settings: OtlpSettings) -> RetrievedPassages:
    """Return what the request at a node of an annotated tree retrieved, without duplicates."""
    retrieved = _gather([node], 0)
    if retrieved is None:
        retrieved = _held_elsewhere(node, settings)
    if retrieved.documents is not None:
        retrieved.documents = _without_joined(_unique(retrieved.documents))
        seen = {document.gap for document in retrieved.documents}
        worst = (gap for gap in _GAPS if gap in seen)
        retrieved.gap = retrieved.gap or next(worst, None)
    return retrieved


def _held_elsewhere(node: SpanNode, settings: OtlpSettings) -> RetrievedPassages:
    """Return the documents of a request without a retrieval of its own.

    The innermost chain with documents counts, or a model call that searches by itself (grounding
    with a search tool); else the documents that the request of a call holds, and the results of
    tools that it was given; without such documents first the reply of a call that has the provider
    search. Where no call tells a result, the reply of an agent may hold those of its tools, and at
    last the text of a prompt.
    """
    nodes = list(node.walk())
    holders = [
        below
        for below in nodes
        if below.preview.documents and below.role in (SpanRole.CHAIN, SpanRole.LLM)
    ]
    if holders:
        content = holders[-1].preview
        return RetrievedPassages(content.documents, content.documents_gap, [holders[-1]])
    calls = [below for below in nodes if below.role is SpanRole.LLM][-_MAX_CALLS:]
    given = RetrievedPassages()
    messages = [read_call_messages(call.span) for call in calls]
    for call, sent in zip(calls, messages, strict=True):
        documents = read_given_documents(call.span, sent)
        if documents is not None:
            given.documents = [*(given.documents or ()), *documents]
            given.spans.append(call)
    tops = [node] if node.role in (SpanRole.CHAIN, SpanRole.OTHER) else []
    hosted = RetrievedPassages()
    for call in (*calls, *tops) if given.documents is None else ():
        documents = read_hosted_documents(call.span, of_run=call in tops)
        if documents is not None:
            hosted.documents = [*(hosted.documents or ()), *documents]
            hosted.spans.append(call)
            if call in tops:
                break
    if hosted.documents is not None:
        return hosted
    told = [(call, read_tool_results(sent)) for call, sent in zip(calls, messages, strict=True)]
    if not any(results for _, results in told):
        runs = [below for below in nodes if below not in tops and holds_history(below.span)]
        told = [(one, read_reply_results(one.span)) for one in (*tops, *runs[-1:], *calls)]
    named = {tool_name(below.span) for below in nodes if below.role is SpanRole.TOOL}
    only = named.pop() if len(named) == 1 else ""  # of results whose message names no tool
    for call, results in told:
        for found in results:
            result = found if found.name else replace(found, name=only)
            documents = read_tool_documents(result.value)
            use = classify_result(result.name, documents or (), settings)
            taken = documents is not None and use is not ToolUse.OTHER
            given.tools[result.name] = given.tools.get(result.name, False) or taken
            given.tool_calls.setdefault(result.name, call)
            if taken and documents is not None:
                given.documents = [*(given.documents or ()), *documents]
                given.guessed = given.guessed or use is ToolUse.LIKELY
                if call not in given.spans:
                    given.spans.append(call)
    if given.documents is None:
        for call, sent in zip(reversed(calls), reversed(messages), strict=True):
            given.documents = read_prompt_documents(call.span, sent)
            if given.documents is not None:
                given.prompted = True
                given.spans.append(call)
                break
    if given.documents is None:
        gaps = (below.preview.documents_gap for below in nodes)
        given.gap = next((gap for gap in gaps if gap), Reason.NO_PASSAGES_CAPTURED)
    return given


def _time_order(node: SpanNode) -> tuple[int, int, str]:
    return (node.start, node.end, node.span.span_id)


def _gather(tops: Sequence[SpanNode], nesting: int) -> RetrievedPassages | None:
    """Unite the top-level retrievals below `tops` and apply rerankers; None without any."""
    steps: list[SpanNode] = []
    stack = list(tops)
    while stack:
        node = stack.pop()
        is_reranker = node.role is SpanRole.RERANKER
        if node.is_retrieval or is_reranker:
            steps.append(node)
        if not node.is_retrieval:
            stack += node.children
    if not steps:
        return None
    # a reranker takes what was there when it began; its own span begins after the retrieval ended
    steps.sort(key=lambda step: (step.start, step.role is SpanRole.RERANKER, _time_order(step)))
    ranked: list[RetrievedDocument] = []
    unranked: list[RetrievedDocument] = []
    merged = RetrievedPassages()
    captured = incomplete = False
    for step in steps:
        if step.role is SpanRole.RERANKER:
            documents = _reranked(step, unranked)
            if documents is not None:
                ranked += documents
                unranked = []
                captured = True
                merged.spans.append(step)
                merged.gap = step.preview.documents_gap or merged.gap
            continue
        retrieved = _retrieved_by(step, nesting)
        merged.gap = merged.gap or retrieved.gap
        if retrieved.documents is None:
            incomplete = incomplete or step.span.status != 2
            continue
        captured = True
        unranked += retrieved.documents
        merged.spans += retrieved.spans
    if captured:
        merged.documents = [*ranked, *unranked]
        if incomplete:  # one retrieval among several was not captured
            merged.gap = merged.gap or Reason.PASSAGES_TRUNCATED
    else:
        merged.gap = merged.gap or Reason.NO_PASSAGES_CAPTURED
    return merged


def _retrieved_by(node: SpanNode, nesting: int) -> RetrievedPassages:
    """Return the documents of one retrieval: its own, or those of the spans below it."""
    own = node.preview.documents
    below = _gather(node.children, nesting + 1) if nesting < _MAX_NESTING else None
    # a tool around a retriever returns the texts of the retriever as one
    glued = node.role is SpanRole.TOOL and own is not None and len(own) == 1 and not own[0].id
    if own is None or (glued and below is not None and below.documents):
        if below is not None and below.documents is not None:
            return below
        gap = node.preview.documents_gap or (below.gap if below is not None else None)
        return RetrievedPassages(gap=gap)
    documents = [_copy(document) for document in own[:_MAX_PASSAGES]]
    if below is not None and below.documents:
        for document, other in _matches(documents, below.documents):
            document.fill_from(other, text=document.gap is not Reason.CONTENT_HIDDEN)
    return RetrievedPassages(documents, node.preview.documents_gap, [node])


def _reranked(node: SpanNode, given: list[RetrievedDocument]) -> list[RetrievedDocument] | None:
    """Return a reranker's list with texts and ids of what it was given.

    None if the reranker has no list, or one without any id or text to match by.
    """
    if node.preview.documents is None:
        return None
    documents = [_copy(document) for document in node.preview.documents[:_MAX_PASSAGES]]
    for document, other in _matches(documents, given):
        document.fill_from(other, score=False)
    if documents and not any(document.id or document.text for document in documents):
        return None
    return documents


def _matches(
    documents: list[RetrievedDocument], others: list[RetrievedDocument]
) -> Iterator[tuple[RetrievedDocument, RetrievedDocument]]:
    """Pair equal documents: by id, by text, else by rank if both lists have the same length."""
    by_id = {other.id: other for other in reversed(others) if other.id}
    by_text = {_text_key(other.text): other for other in reversed(others) if other.text}
    for index, document in enumerate(documents):
        other = by_id.get(document.id) if document.id else None
        if other is None and document.text:
            other = by_text.get(_text_key(document.text))
        if other is None and len(documents) == len(others):
            other = others[index]
            both = document.text and other.text
            if both and _text_key(document.text or "") != _text_key(other.text or ""):
                continue
            if document.id and other.id and document.id != other.id:
                continue
        if other is not None:
            yield document, other


def _copy(document: RetrievedDocument) -> RetrievedDocument:
    # `dataclasses.replace` takes more than twice as long
    return RetrievedDocument(
        id=document.id,
        text=document.text,
        score=document.score,
        score_kind=document.score_kind,
        metadata=document.metadata,
        gap=document.gap,
    )


def _text_key(text: str) -> str:
    """Return a hash of a text that ignores case and white space."""
    normal = " ".join(text.split()).casefold()
    return hashlib.blake2b(normal.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _unique(documents: list[RetrievedDocument]) -> list[RetrievedDocument]:
    """Return each document once, at its first rank.

    Documents are equal that share an id, unless their texts differ (chunks of one source), or, if
    one of them lacks an id, their text.
    """
    unique: list[RetrievedDocument] = []
    by_id: dict[str, list[RetrievedDocument]] = {}
    by_text: dict[str, RetrievedDocument] = {}
    for document in documents:
        key = _text_key(document.text) if document.text else ""
        candidates = by_id.get(document.id, ())[:_MAX_SAME_ID]
        first = next((earlier for earlier in candidates if _same(earlier, document)), None)
        if first is None and key:
            earlier = by_text.get(key)
            if earlier is not None and (
                earlier.id == document.id or not (earlier.id and document.id)
            ):
                first = earlier
        if first is not None:
            first.fill_from(document)
            if first.gap is not None and document.gap is None and document.text is not None:
                first.text = document.text  # the copy is whole
                first.gap = None
            continue
        if len(unique) == _MAX_PASSAGES:
            break
        document = _copy(document)
        unique.append(document)
        if document.id:
            by_id.setdefault(document.id, []).append(document)
        if key:
            by_text.setdefault(key, document)
    return unique


def _without_joined(documents: list[RetrievedDocument]) -> list[RetrievedDocument]:
    """Leave out a text into which a tool has joined the others, by blank lines or by headings.

    Its retriever has a span of its own then, which need not be below that of the tool.
    """
    if len(documents) < _MIN_JOINED + 1:
        return documents
    texts = [document.text.strip() if document.text else "" for document in documents]
    may_be = [n for n, one in enumerate(documents) if not one.id and "\n" in texts[n]]
    joined = set()
    for n in sorted(may_be, key=lambda n: len(texts[n]), reverse=True)[:_MAX_JOINED_TEXTS]:
        text = texts[n]
        others = [one for one in texts if one and len(one) < len(text) and one in text]
        rest = text
        for one in sorted(others, key=len, reverse=True):
            rest = rest.replace(one, "")
        if len(others) >= _MIN_JOINED and len(rest.strip()) <= _MAX_BETWEEN * len(text):
            joined.add(n)
    return [document for n, document in enumerate(documents) if n not in joined]


def _same(first: RetrievedDocument, second: RetrievedDocument) -> bool:
    """Return whether two documents of one id are one."""
    if first.text is None or second.text is None or first.text == second.text:
        return True
    if Reason.PASSAGES_TRUNCATED not in (first.gap, second.gap):
        return _text_key(first.text) == _text_key(second.text)
    short, long = sorted((first.text, second.text), key=len)
    return long.startswith(short.rstrip(".…"))
