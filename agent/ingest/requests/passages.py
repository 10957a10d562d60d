"""Merge the top-level retrievals of a request into one ranked list of passages.

A retriever below a retriever is part of it, a reranker's list takes the place of what was retrieved
before it, and the span of a vector database fills in the ids and scores of the retriever above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragmeter.ingest.conventions.span_content import ContentGap, RetrievedDocument, SpanRole
from ragmeter.ingest.requests.tree import SpanNode

_MAX_PASSAGES = 1_000  # of one request; the most seen are 100
_MAX_NESTING = 20  # retrievers in retrievers; real ones are three deep
_ALIKE = 8  # documents of one id that are compared with the next; a source may have thousands


@dataclass(slots=True)
class RetrievedPassages:
    """`documents` is None where no retrieval was captured, `gap` why it is not whole. `spans` are
    those that gave the documents."""

    documents: list[RetrievedDocument] | None = None
    gap: ContentGap | None = None
    spans: list[SpanNode] = field(default_factory=list)


def find_retrievals(node: SpanNode) -> list[SpanNode]:
    """The top-level retrievals at and below a node of a counted tree."""
    found = []
    stack = [node]
    while stack:
        one = stack.pop()
        if one.is_search:
            found.append(one)
        else:
            stack += one.children
    return sorted(found, key=_order)


def _order(node: SpanNode) -> tuple[int, int, str]:
    return (node.start, node.end, node.span.span_id if node.span is not None else "")


def collect_passages(node: SpanNode) -> RetrievedPassages:
    """What a request retrieved, as its spans tell it."""
    out = _gather([node], 0)
    if out is None:
        # nobody says that it retrieves: whoever holds documents, the innermost first; a model
        # call that searches for itself (grounding with a search tool) is one of them
        roles = (SpanRole.CHAIN, SpanRole.LLM)
        holders = [one for one in node.walk() if one.reading.documents and one.role in roles]
        if not holders:
            gaps = [one.reading.documents_gap for one in node.walk() if one.reading.documents_gap]
            return RetrievedPassages(gap=gaps[0] if gaps else ContentGap.NO_PASSAGES)
        last = holders[-1]
        out = RetrievedPassages(
            list(last.reading.documents or []), last.reading.documents_gap, [last]
        )
    if out.documents is not None:
        out.documents = _unique(out.documents)
        out.gap = out.gap or _gap_of(out.documents)
    return out


def _gather(tops: Sequence[SpanNode], nesting: int) -> RetrievedPassages | None:
    """The union over top-level retrievals below `tops`, rerankers applied; None without any."""
    steps: list[SpanNode] = []
    stack = list(tops)
    while stack:
        one = stack.pop()
        if one.is_search:
            steps.append(one)
        elif one.role is SpanRole.RERANKER:
            steps.append(one)
            stack += one.children
        else:
            stack += one.children
    if not steps:
        return None
    # a reranker takes what was there when it began; its own span begins after the retrieval ended
    steps.sort(key=lambda one: (one.start, one.role is SpanRole.RERANKER, _order(one)))
    done: list[RetrievedDocument] = []
    waiting: list[RetrievedDocument] = []
    out = RetrievedPassages()
    captured = missing = False
    for one in steps:
        if one.role is SpanRole.RERANKER:
            ranked = _ranked(one, waiting)
            if ranked is not None:
                done += ranked
                waiting = []
                captured = True
                out.spans.append(one)
                out.gap = one.reading.documents_gap or out.gap
            continue
        found = _documents(one, nesting)
        out.gap = out.gap or found.gap
        if found.documents is None:
            failed = one.span is not None and one.span.status == 2
            missing = missing or not failed
            continue
        captured = True
        waiting += found.documents
        out.spans += found.spans
    if captured:
        out.documents = [*done, *waiting]
        if missing:  # of one retrieval among several nothing is known
            out.gap = out.gap or ContentGap.PASSAGES_TRUNCATED
    else:
        out.gap = out.gap or ContentGap.NO_PASSAGES
    return out


def _documents(node: SpanNode, nesting: int) -> RetrievedPassages:
    """The documents of one retrieval, its own or those of the spans below it."""
    own = node.reading.documents
    below = _gather(node.children, nesting + 1) if nesting < _MAX_NESTING else None
    glued = node.role is SpanRole.TOOL and own is not None and len(own) == 1 and not own[0].id
    if own is None or (glued and below is not None and below.documents):
        # a tool around a retriever gives back its texts as one
        if below is not None and below.documents is not None:
            return below
        gap = node.reading.documents_gap or (below.gap if below is not None else None)
        return RetrievedPassages(None, gap, [])
    documents = [_copy(one) for one in own[:_MAX_PASSAGES]]
    if below is not None and below.documents:
        _enrich(documents, below.documents)
    return RetrievedPassages(documents, node.reading.documents_gap, [node])


def _copy(one: RetrievedDocument) -> RetrievedDocument:
    """`dataclasses.replace` takes more than twice as long."""
    return RetrievedDocument(one.id, one.text, one.score, one.score_kind, one.metadata, one.gap)


def _key(text: str) -> str:
    """A text without what is no difference: case and blanks."""
    normal = " ".join(text.split()).casefold()
    return hashlib.blake2b(normal.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _pairs(
    mine: list[RetrievedDocument], its: list[RetrievedDocument]
) -> Iterator[tuple[RetrievedDocument, RetrievedDocument]]:
    """Which documents are the same: by id, by text, else by place where both lists are as long."""
    by_id = {one.id: one for one in reversed(its) if one.id}
    by_text = {_key(one.text): one for one in reversed(its) if one.text}
    for n, one in enumerate(mine):
        other = by_id.get(one.id) if one.id else None
        if other is None and one.text:
            other = by_text.get(_key(one.text))
        if other is None and len(mine) == len(its):
            other = its[n]
            both = one.text and other.text and _key(one.text) != _key(other.text)
            if both or (one.id and other.id and one.id != other.id):
                continue
        if other is not None:
            yield one, other


def _enrich(mine: list[RetrievedDocument], its: list[RetrievedDocument]) -> None:
    """Ids, scores and texts that only the spans below a retriever have."""
    for one, other in _pairs(mine, its):
        one.id = one.id or other.id
        if one.score is None:
            one.score, one.score_kind = other.score, other.score_kind
        if one.text is None and other.text is not None and one.gap is not ContentGap.HIDDEN:
            one.text, one.gap = other.text, other.gap
        one.metadata = one.metadata or other.metadata


def _ranked(node: SpanNode, waiting: list[RetrievedDocument]) -> list[RetrievedDocument] | None:
    """A reranker's list, its texts and ids filled in from what it was given. None where it says
    nothing that can be matched."""
    ranked = node.reading.documents
    if ranked is None:
        return None
    out = [_copy(one) for one in ranked[:_MAX_PASSAGES]]
    for one, other in _pairs(out, waiting):
        one.id = one.id or other.id
        if one.text is None and other.text is not None:
            one.text, one.gap = other.text, other.gap
        one.metadata = one.metadata or other.metadata
    if out and not any(one.id or one.text for one in out):
        return None
    return out


def _unique(documents: list[RetrievedDocument]) -> list[RetrievedDocument]:
    """Each document once, at its first rank: the same id unless the texts differ (a source of
    several chunks), and without an id the same text."""
    kept: list[RetrievedDocument] = []
    by_id: dict[str, list[RetrievedDocument]] = {}
    by_text: dict[str, RetrievedDocument] = {}
    for one in documents:
        text = _key(one.text) if one.text else ""
        known = next((old for old in by_id.get(one.id, ())[:_ALIKE] if _same(old, one)), None)
        if known is None and text:
            old = by_text.get(text)
            if old is not None and (old.id == one.id or not (old.id and one.id)):
                known = old
        if known is not None:
            _merge(known, one)
            continue
        if len(kept) == _MAX_PASSAGES:
            break
        one = _copy(one)
        kept.append(one)
        if one.id:
            by_id.setdefault(one.id, []).append(one)
        if text:
            by_text.setdefault(text, one)
    return kept


def _same(known: RetrievedDocument, one: RetrievedDocument) -> bool:
    """Whether two documents of one id are one."""
    if known.text is None or one.text is None or known.text == one.text:
        return True
    if not _cut(known, one):
        return _key(known.text) == _key(one.text)
    short, long = sorted((known.text, one.text), key=len)
    return long.startswith(short.rstrip(".…"))


def _cut(*documents: RetrievedDocument) -> bool:
    return any(one.gap is ContentGap.PASSAGES_TRUNCATED for one in documents)


def _merge(known: RetrievedDocument, one: RetrievedDocument) -> None:
    known.id = known.id or one.id
    if known.score is None:
        known.score, known.score_kind = one.score, one.score_kind
    if one.text is not None and (known.text is None or (known.gap is not None and one.gap is None)):
        known.text, known.gap = one.text, one.gap
    known.metadata = known.metadata or one.metadata


def _gap_of(documents: list[RetrievedDocument]) -> ContentGap | None:
    """What is wrong with a list: the gravest of its documents' gaps."""
    gaps = {one.gap for one in documents}
    for gap in (ContentGap.HIDDEN, ContentGap.PASSAGES_TRUNCATED, ContentGap.ID_ONLY):
        if gap in gaps:
            return gap
    return None
