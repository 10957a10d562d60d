"""Choose the query, passages, answer and other fields of a request among its spans and compose trace fields of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import scalar_text
from ragmeter.ingest.requests.boundaries import last_retrieval_moment
from ragmeter.ingest.requests.outcome import (
    covered_seconds,
    read_outcome,
    seconds_to_first_token,
    sum_usage,
)
from ragmeter.ingest.requests.passages import RetrievedPassages, collect_passages, find_retrievals
from ragmeter.ingest.requests.tree import SpanNode
from ragmeter.trace import CANARY, MAX_ID, MAX_TAGS

# Characters kept: a scorer reads no more, and the state file holds every trace that waits. The
# sum of all is below `limits.trace_bytes` for text of Latin letters.
_MAX_QUERY = 32_768
_MAX_ANSWER = 131_072
_MAX_PASSAGE = 131_072
_MAX_PASSAGES_TEXT = 1_048_576

_Find = Callable[[Any], tuple[str | None, ContentGap | None]]


@dataclass(slots=True)
class _FieldChoice:
    """A text, the span that gave it and what is wrong with it."""

    text: str | None = None
    gap: ContentGap | None = None
    node: SpanNode | None = None


class _RequestFields:
    """One request while its fields are chosen."""

    def __init__(self, node: SpanNode, server: SpanNode | None, settings: OtlpSettings) -> None:
        self.node = node
        self.server = server
        self.settings = settings
        self.nodes = list(node.walk())
        self.searches = find_retrievals(node)
        self.retrieved: RetrievedPassages = collect_passages(node)
        self.calls = self._calls()

    def _calls(self) -> list[SpanNode]:
        """The model calls that no retrieval makes for itself, by their end."""
        below = {id(one) for search in self.searches for one in search.walk() if one is not search}
        calls = [one for one in self.nodes if one.role is SpanRole.LLM and id(one) not in below]
        return sorted(calls, key=lambda one: (one.end, -one.start, _span_id(one)))

    def query(self) -> _FieldChoice:
        """What the application was asked, else what was looked for, else what the user said last
        to the model. What a tool looks for are the model's words: the user's come before them."""
        own = self.node.content()
        gap = _FieldChoice(None, own.query_gap, self.node if own.query_gap else None)
        if own.query is None:
            found = self._of_trace("langfuse.trace.input", find_question, _MAX_QUERY)
            if found is not None:
                return found
        tools = [one for one in self.searches if one.role is SpanRole.TOOL]
        searches = [one for one in self.searches if one.role is not SpanRole.TOOL]
        for one in (self.node, *searches, *reversed(self.calls), *tools):
            reading = one.content()
            if reading.query is not None:
                return self._choice(reading.query, reading.query_gap, one, _MAX_QUERY)
            if reading.query_gap is not None and gap.gap is None:
                gap = _FieldChoice(None, reading.query_gap, one)
        return gap

    def _of_trace(self, key: str, find: _Find, limit: int) -> _FieldChoice | None:
        """What any span may say of the whole trace, as those of Langfuse do."""
        for one in (*self.node.ancestors(), *self.nodes):
            raw = one.span.attributes.get(key) if one.span is not None else None
            if raw is not None:
                text, why = find(raw)
                if text is not None:
                    return self._choice(text, why, one, limit)
        return None

    def _choice(
        self, text: str, gap: ContentGap | None, node: SpanNode, limit: int
    ) -> _FieldChoice:
        cut = ContentGap.QUERY_TRUNCATED if limit == _MAX_QUERY else ContentGap.ANSWER_TRUNCATED
        if gap is None and (len(text) > limit or len(text) == self.settings.text_limit):
            gap = cut
        return _FieldChoice(_replace_surrogates(text[:limit]), gap, node)

    def answer(self) -> _FieldChoice:
        """What the application gave back, else the reply of its last model call."""
        node = self.node
        own = node.content()
        if own.answer is None:
            found = self._of_trace("langfuse.trace.output", find_answer, _MAX_ANSWER)
            if found is not None:
                return found
        if own.answer is not None and (node.role is not SpanRole.RETRIEVER or not self.calls):
            if own.answer_gap is ContentGap.ANSWER_TRUNCATED:
                reply = self._reply()
                whole = reply.text if reply.gap is None else None
                if whole is not None and whole.startswith(own.answer.rstrip(".…")):
                    return reply
            return self._choice(own.answer, own.answer_gap, node, _MAX_ANSWER)
        reply = self._reply()
        if reply.text is None and own.answer_gap is not None:
            return _FieldChoice(None, own.answer_gap, node)
        return reply

    def _reply(self) -> _FieldChoice:
        """The reply of the last call that can be the answer: none that ended before the retrieval
        began (it has rewritten the question), none that only asks for tools, none of a tool's own
        while the application has others."""
        first = min((one.start for one in self.searches), default=0)
        able = [
            one
            for one in self.calls
            if last_retrieval_moment(one) >= first and not one.content().calls_tools
        ]
        in_tools = self._in_tools()
        outside = [one for one in able if id(one) not in in_tools]
        able = outside or able
        if not able:
            return self._chain_answer()
        last = able[-1]
        gap = _FieldChoice()
        for one in reversed(able):
            # of what was seen twice the other span may hold the text
            if one is not last and not (one.start < last.end and last.start < one.end):
                break
            reading = one.content()
            if reading.answer is not None:
                return self._choice(reading.answer, reading.answer_gap, one, _MAX_ANSWER)
            if reading.answer_gap is not None and gap.gap is None:
                gap = _FieldChoice(None, reading.answer_gap, one)
        return gap

    def _in_tools(self) -> set[int]:
        """What runs inside of a tool of this request."""
        inside: set[int] = set()
        for one in self.nodes[1:]:  # parents first
            up = one.parent
            if up is not None and (
                id(up) in inside or (up.role is SpanRole.TOOL and up is not self.node)
            ):
                inside.add(id(one))
        return inside

    def _chain_answer(self) -> _FieldChoice:
        """Where no model call is seen: the output of the last step that does not retrieve."""
        last = max((one.end for one in self.searches), default=0)
        steps = [
            one
            for one in self.node.children
            if one.role is SpanRole.CHAIN and not one.searches and one.end >= last
        ]
        steps.sort(key=lambda one: (one.end, one.start, _span_id(one)))
        read = [one for one in reversed(steps) if one.content().answer is not None]
        if not read or self.node.role is not SpanRole.OTHER:
            return _FieldChoice()
        reading = read[0].reading
        return self._choice(reading.answer or "", reading.answer_gap, read[0], _MAX_ANSWER)

    def passages(self) -> tuple[list[dict[str, Any]] | None, ContentGap | None]:
        documents, gap = self.retrieved.documents, self.retrieved.gap
        if documents is None:
            return None, gap or ContentGap.NO_PASSAGES
        out: list[dict[str, Any]] = []
        taken: set[str] = set()
        left = _MAX_PASSAGES_TEXT
        for rank, one in enumerate(documents, 1):
            text = one.text
            if text is not None:
                if len(text) > min(_MAX_PASSAGE, left) or len(text) == self.settings.text_limit:
                    gap = gap or ContentGap.PASSAGES_TRUNCATED
                text = _replace_surrogates(text[: min(_MAX_PASSAGE, left)])
                left -= len(text)
            out.append(_passage(one, text, rank, taken))
        return out, gap

    def status(self, answered: bool) -> tuple[str, str | None]:
        status, error = read_outcome(self.nodes, self.server, answered)
        return status, _replace_surrogates(error) if error else None

    def timings(self) -> dict[str, float]:
        top = self.server or self.node
        total = covered_seconds([top] if top.span is not None and top.span.end > 0 else self.nodes)
        start = top.start or min((one.start for one in self.nodes if one.start), default=0)
        inside = {id(one) for search in self.searches for one in search.walk()}
        stages = {
            "total": total,
            "retrieval": covered_seconds(self.searches),
            "rerank": covered_seconds(
                one for one in self.nodes if one.role is SpanRole.RERANKER and id(one) not in inside
            ),
            "generation": covered_seconds(self.calls),
            "first_token": seconds_to_first_token(start, self.calls),
        }
        return {name: value for name, value in stages.items() if value is not None}

    def end(self) -> int:
        own = self.node.end
        return own if own else max((one.end for one in self.nodes), default=0)

    def model(self, answer: _FieldChoice) -> str | None:
        order = [answer.node, *reversed(self.calls), *self.nodes]
        return next((one.reading.model for one in order if one and one.reading.model), None)

    def about(self) -> list[SpanNode]:
        """Who may tell session, user and tags: the request, what is above it, then what is in."""
        return [self.node, *self.node.ancestors(), *self.nodes[1:]]


def _span_id(node: SpanNode) -> str:
    return node.span.span_id if node.span is not None else ""


def _replace_surrogates(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _passage(
    one: RetrievedDocument, text: str | None, rank: int, taken: set[str]
) -> dict[str, Any]:
    """A passage. One without an id gets that of its text, the same in every trace."""
    identity = _replace_surrogates(one.id)[:MAX_ID]
    if not identity and text:
        identity = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    identity = identity or f"#{rank}"
    if identity in taken:  # a source of several chunks
        identity = f"{identity[: MAX_ID - 8]}#{rank}"
    taken.add(identity)
    metadata = {
        _replace_surrogates(key): _replace_surrogates(value) if isinstance(value, str) else value
        for key, value in one.metadata.items()
    }
    if one.score is not None and one.score_kind == "distance":
        metadata["score_kind"] = "distance"  # lower is better
    return {
        "id": identity,
        "text": text,
        "rank": rank,
        "score": one.score,
        "metadata": metadata or None,
    }


_MAX_CITATIONS = 1_000


@dataclass(slots=True)
class ComposedRequest:
    """`values` are those of a `Trace` but for its identity; `end` is in Unix nanoseconds.
    `is_request` is False where there is neither a model call nor anything retrieved."""

    values: dict[str, Any] = field(default_factory=dict)
    end: int = 0
    is_request: bool = True
    origins: dict[str, list[SpanNode]] = field(default_factory=dict)


def compose_request(
    node: SpanNode, server: SpanNode | None, settings: OtlpSettings
) -> ComposedRequest:
    """The fields of the request at `node`; `server` is the span that it was served by."""
    node.content()
    request = _RequestFields(node, server, settings)
    query = request.query()
    status, error = request.status(answered=node.reading.answer is not None)
    answer = request.answer()
    if status == "ok" and answer.text is None and answer.gap is None:
        status, error = request.status(answered=False)
    passages, passages_gap = request.passages()
    missing: dict[str, str] = {}
    if query.text is None or query.gap is not None:
        missing["query"] = query.gap or ContentGap.NO_QUERY
    if passages_gap is not None:
        missing["passages"] = passages_gap
    if answer.gap is not None or (answer.text is None and status == "ok"):
        missing["answer"] = answer.gap or ContentGap.NO_ANSWER
    tokens_in, tokens_out, cost = sum_usage(request.nodes)
    values: dict[str, Any] = {
        "query": query.text,
        "answer": answer.text,
        "passages": passages,
        "status": status,
        "error": error,
        "timings": request.timings(),
        "model": request.model(answer),
        "prompt_version": _first_of(request.nodes, "prompt_version"),
        "tags": _tags(request, query, settings),
        "citations": _citations(answer, node.reading),
        "missing": missing,
    }
    if (tokens_in, tokens_out, cost) != (None, None, None):
        values["usage"] = {
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "cost_usd": cost if cost is not None and 0 <= cost <= 1e9 else None,
        }
    origins = {
        "query": [query.node] if query.node else [],
        "answer": [answer.node] if answer.node else [],
        "passages": request.retrieved.spans,
    }
    told = bool(request.calls) or passages is not None
    told = told or any(one.role is SpanRole.RETRIEVER for one in request.searches)
    return ComposedRequest(values, request.end(), told, origins)


def _first_of(nodes: Iterable[SpanNode], name: str) -> str | None:
    for one in nodes:
        value = getattr(one.reading, name)
        if isinstance(value, str) and value.strip():
            return _replace_surrogates(value)
    return None


def _generic(nodes: Iterable[SpanNode], *keys: str) -> str | None:
    """What spans of no convention may say, those of a server above all."""
    for one in nodes:
        if one.span is not None:
            for key in keys:
                value = scalar_text(one.span.attributes.get(key))
                if value:
                    return _replace_surrogates(value)
    return None


def hash_identity(value: str, settings: OtlpSettings) -> str:
    """A session or user as it is kept: a keyed hash, 64 bits, the same on every worker."""
    if not settings.hash_ids:
        return value
    key = hashlib.blake2b(settings.session_salt.get_secret_value().encode()).digest()
    return hashlib.blake2b(value.encode(), digest_size=8, key=key).hexdigest()


def _tags(request: _RequestFields, query: _FieldChoice, settings: OtlpSettings) -> dict[str, str]:
    about = request.about()
    tags: dict[str, str] = {}
    session = _first_of(about, "session") or _generic(about, "session.id")
    user = _first_of(about, "user") or _generic(about, "user.id", "enduser.id")
    if session:
        tags["session"] = hash_identity(session, settings)
    if user:
        tags["user"] = hash_identity(user, settings)
    if (_generic(about, CANARY) or "").lower() == "true":
        tags[CANARY] = "true"  # the service has passed on the mark of `ragmeter canary run`
    looked = request.searches[0].content().query if request.searches else None
    if looked is not None and query.text is not None and looked != query.text:
        tags["retrieval_query"] = _replace_surrogates(
            looked
        )  # the application has rewritten the question
    for one in about:
        for name, value in one.reading.tags.items():
            if len(tags) >= MAX_TAGS - 2:
                break
            tags.setdefault(_replace_surrogates(name), _replace_surrogates(value))
    environment = ("deployment.environment.name", "deployment.environment")
    for name, keys in (("environment", environment), ("service_version", ("service.version",))):
        for one in request.nodes:
            if one.span is not None and name not in tags:
                values = (scalar_text(one.span.resource.get(key)) for key in keys)
                found = next((value for value in values if value), None)
                if found:
                    tags[name] = _replace_surrogates(found)
    return tags


def _citations(answer: _FieldChoice, own: SpanContent) -> list[dict[str, Any]] | None:
    given = own.citations or (answer.node.content().citations if answer.node else [])
    out = []
    for start, end, passages in given[:_MAX_CITATIONS]:
        if any(value is not None and value < 0 for value in (start, end)):
            continue
        ids = [_replace_surrogates(one)[:MAX_ID] for one in passages]
        out.append({"start": start, "end": end, "passage_ids": ids})
    return out or None
