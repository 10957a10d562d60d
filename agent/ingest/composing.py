"""The fields of one request, chosen from what its spans say (docs/spans.md has the rules)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.config_otlp import Otlp
from agent.ingest.conventions.reading import Document, Gap, Reading, Role
from agent.ingest.conventions.texts import answer_in, question_in, text_of
from agent.ingest.cutting import last_moment
from agent.ingest.outcome import first_token, outcome, seconds
from agent.ingest.passages import Retrieved, retrieved, searches_of
from agent.ingest.tree import Node
from agent.ingest.usage import used
from agent.trace import MAX_ID, MAX_TAGS

__all__ = ["Composed", "compose", "hashed"]

# Characters kept: a scorer reads no more, and the state file holds every trace that waits. The
# sum of all is below `limits.trace_bytes` for text of Latin letters.
MAX_QUERY = 32_768
MAX_ANSWER = 131_072
MAX_PASSAGE = 131_072
MAX_PASSAGES_TEXT = 1_048_576
MAX_CITATIONS = 1_000

_Find = Callable[[Any], tuple[str | None, Gap | None]]


@dataclass(slots=True)
class Composed:
    """`values` are those of a `Trace` but for its identity; `end` is in Unix nanoseconds.
    `is_request` is False where there is neither a model call nor anything retrieved."""

    values: dict[str, Any] = field(default_factory=dict)
    end: int = 0
    is_request: bool = True
    origins: dict[str, list[Node]] = field(default_factory=dict)


@dataclass(slots=True)
class _Choice:
    """A text, the span that gave it and what is wrong with it."""

    text: str | None = None
    gap: Gap | None = None
    node: Node | None = None


class _Request:
    """One request while its fields are chosen."""

    def __init__(self, node: Node, server: Node | None, settings: Otlp) -> None:
        self.node = node
        self.server = server
        self.settings = settings
        self.nodes = list(node.walk())
        tools = frozenset(settings.tool_names)
        self.searches = searches_of(node, tools)
        self.retrieved: Retrieved = retrieved(node, tools)
        self.calls = self._calls()

    def _calls(self) -> list[Node]:
        """The model calls that no retrieval makes for itself, by their end."""
        below = {id(one) for search in self.searches for one in search.walk() if one is not search}
        calls = [one for one in self.nodes if one.role is Role.LLM and id(one) not in below]
        return sorted(calls, key=lambda one: (one.end, -one.start, _span_id(one)))

    def query(self) -> _Choice:
        """What the application was asked, else what was looked for, else what the user said last
        to the model."""
        own = self.node.content()
        gap = _Choice(None, own.query_gap, self.node if own.query_gap else None)
        if own.query is None:
            found = self._of_trace("langfuse.trace.input", question_in, MAX_QUERY)
            if found is not None:
                return found
        for one in (self.node, *self.searches, *reversed(self.calls)):
            reading = one.reading
            if reading.query is not None:
                return self._choice(reading.query, reading.query_gap, one, MAX_QUERY)
            if reading.query_gap is not None and gap.gap is None:
                gap = _Choice(None, reading.query_gap, one)
        return gap

    def _of_trace(self, key: str, find: _Find, limit: int) -> _Choice | None:
        """What any span may say of the whole trace, as those of Langfuse do."""
        for one in (*self.node.ancestors(), *self.nodes):
            raw = one.span.attributes.get(key) if one.span is not None else None
            if raw is not None:
                text, why = find(raw)
                if text is not None:
                    return self._choice(text, why, one, limit)
        return None

    def _choice(self, text: str, gap: Gap | None, node: Node, limit: int) -> _Choice:
        cut = Gap.QUERY_TRUNCATED if limit == MAX_QUERY else Gap.ANSWER_TRUNCATED
        if gap is None and (len(text) > limit or len(text) == self.settings.text_limit):
            gap = cut
        return _Choice(_clean(text[:limit]), gap, node)

    def answer(self) -> _Choice:
        """What the application gave back, else the reply of its last model call."""
        node = self.node
        own = node.content()
        if own.answer is None:
            found = self._of_trace("langfuse.trace.output", answer_in, MAX_ANSWER)
            if found is not None:
                return found
        reply = self._reply()
        if own.answer is not None and (node.role is not Role.RETRIEVER or not self.calls):
            cut = own.answer_gap is Gap.ANSWER_TRUNCATED
            whole = cut and reply.text is not None and reply.gap is None
            if whole and reply.text is not None and reply.text.startswith(own.answer.rstrip(".…")):
                return reply
            return self._choice(own.answer, own.answer_gap, node, MAX_ANSWER)
        if reply.text is None and own.answer_gap is not None:
            return _Choice(None, own.answer_gap, node)
        return reply

    def _reply(self) -> _Choice:
        """The reply of the last call that can be the answer: none that ended before the retrieval
        began (it has rewritten the question), none that only asks for tools, none of a tool's own
        while the application has others."""
        first = min((one.start for one in self.searches), default=0)
        able = [
            one for one in self.calls if last_moment(one) >= first and not one.reading.calls_tools
        ]
        outside = [one for one in able if not _in_tool(one, self.node)]
        able = outside or able
        if not able:
            return self._chain_answer()
        last = able[-1]
        gap = _Choice()
        for one in reversed(able):
            # of what was seen twice the other span may hold the text
            if one is not last and not (one.start < last.end and last.start < one.end):
                break
            reading = one.reading
            if reading.answer is not None:
                return self._choice(reading.answer, reading.answer_gap, one, MAX_ANSWER)
            if reading.answer_gap is not None and gap.gap is None:
                gap = _Choice(None, reading.answer_gap, one)
        return gap

    def _chain_answer(self) -> _Choice:
        """Where no model call is seen: the output of the last step that does not retrieve."""
        last = max((one.end for one in self.searches), default=0)
        steps = [
            one
            for one in self.node.children
            if one.role is Role.CHAIN and not one.searches and one.end >= last
        ]
        steps.sort(key=lambda one: (one.end, one.start, _span_id(one)))
        read = [one for one in reversed(steps) if one.content().answer is not None]
        if not read or self.node.role is not Role.OTHER:
            return _Choice()
        reading = read[0].reading
        return self._choice(reading.answer or "", reading.answer_gap, read[0], MAX_ANSWER)

    def passages(self) -> tuple[list[dict[str, Any]] | None, Gap | None]:
        documents, gap = self.retrieved.documents, self.retrieved.gap
        if documents is None:
            return None, gap or Gap.NO_PASSAGES
        out: list[dict[str, Any]] = []
        taken: set[str] = set()
        left = MAX_PASSAGES_TEXT
        for rank, one in enumerate(documents, 1):
            text = one.text
            if text is not None:
                if len(text) > min(MAX_PASSAGE, left) or len(text) == self.settings.text_limit:
                    gap = gap or Gap.PASSAGES_TRUNCATED
                text = _clean(text[: min(MAX_PASSAGE, left)])
                left -= len(text)
            out.append(_passage(one, text, rank, taken))
        return out, gap

    def status(self, answered: bool) -> tuple[str, str | None]:
        status, error = outcome(self.node, self.server, answered)
        return status, _clean(error) if error else None

    def timings(self) -> dict[str, float]:
        top = self.server or self.node
        total = seconds([top] if top.span is not None and top.span.end > 0 else self.nodes)
        start = top.start or min((one.start for one in self.nodes if one.start), default=0)
        inside = {id(one) for search in self.searches for one in search.walk()}
        stages = {
            "total": total,
            "retrieval": seconds(self.searches),
            "rerank": seconds(
                one for one in self.nodes if one.role is Role.RERANKER and id(one) not in inside
            ),
            "generation": seconds(self.calls),
            "first_token": first_token(start, self.calls),
        }
        return {name: value for name, value in stages.items() if value is not None}

    def end(self) -> int:
        own = self.node.end
        return own if own else max((one.end for one in self.nodes), default=0)

    def model(self, answer: _Choice) -> str | None:
        order = [answer.node, *reversed(self.calls), *self.nodes]
        return next((one.reading.model for one in order if one and one.reading.model), None)

    def about(self) -> list[Node]:
        """Who may tell session, user and tags: the request, what is above it, then what is in."""
        return [self.node, *self.node.ancestors(), *self.nodes[1:]]


def compose(node: Node, server: Node | None, settings: Otlp) -> Composed:
    """The fields of the request at `node`; `server` is the span that it was served by."""
    node.content()
    request = _Request(node, server, settings)
    query = request.query()
    status, error = request.status(answered=node.reading.answer is not None)
    answer = request.answer()
    if status == "ok" and answer.text is None and answer.gap is None:
        status, error = request.status(answered=False)
    passages, passages_gap = request.passages()
    missing: dict[str, str] = {}
    if query.text is None or query.gap is not None:
        missing["query"] = query.gap or Gap.NO_QUERY
    if passages_gap is not None:
        missing["passages"] = passages_gap
    if answer.gap is not None or (answer.text is None and status == "ok"):
        missing["answer"] = answer.gap or Gap.NO_ANSWER
    tokens_in, tokens_out, cost = used(node)
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
    told = told or any(one.role is Role.RETRIEVER for one in request.searches)
    return Composed(values, request.end(), told, origins)


def _span_id(node: Node) -> str:
    return node.span.span_id if node.span is not None else ""


def _in_tool(node: Node, top: Node) -> bool:
    for up in node.ancestors():
        if up is top:
            return False
        if up.role is Role.TOOL:
            return True
    return False


def _clean(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _passage(one: Document, text: str | None, rank: int, taken: set[str]) -> dict[str, Any]:
    """A passage. One without an id gets that of its text, the same in every trace."""
    identity = _clean(one.id)[:MAX_ID]
    if not identity and text:
        identity = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    identity = identity or f"#{rank}"
    if identity in taken:  # a source of several chunks
        identity = f"{identity[: MAX_ID - 8]}#{rank}"
    taken.add(identity)
    metadata = {
        _clean(key): _clean(value) if isinstance(value, str) else value
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


def _first_of(nodes: Iterable[Node], name: str) -> str | None:
    for one in nodes:
        value = getattr(one.reading, name)
        if isinstance(value, str) and value.strip():
            return _clean(value)
    return None


def _generic(nodes: Iterable[Node], *keys: str) -> str | None:
    """What spans of no convention may say, those of a server above all."""
    for one in nodes:
        if one.span is not None:
            for key in keys:
                value = text_of(one.span.attributes.get(key))
                if value:
                    return _clean(value)
    return None


def hashed(value: str, settings: Otlp) -> str:
    """A session or user as it is kept: a keyed hash, 64 bits, the same on every worker."""
    if not settings.hash_ids:
        return value
    key = hashlib.blake2b(settings.session_salt.get_secret_value().encode()).digest()
    return hashlib.blake2b(value.encode(), digest_size=8, key=key).hexdigest()


def _tags(request: _Request, query: _Choice, settings: Otlp) -> dict[str, str]:
    about = request.about()
    tags: dict[str, str] = {}
    session = _first_of(about, "session") or _generic(about, "session.id")
    user = _first_of(about, "user") or _generic(about, "user.id", "enduser.id")
    if session:
        tags["session"] = hashed(session, settings)
    if user:
        tags["user"] = hashed(user, settings)
    looked = request.searches[0].reading.query if request.searches else None
    if looked is not None and query.text is not None and looked != query.text:
        tags["retrieval_query"] = _clean(looked)  # the application has rewritten the question
    for one in about:
        for name, value in one.reading.tags.items():
            if len(tags) >= MAX_TAGS - 2:
                break
            tags.setdefault(_clean(name), _clean(value))
    environment = ("deployment.environment.name", "deployment.environment")
    for name, keys in (("environment", environment), ("service_version", ("service.version",))):
        for one in request.nodes:
            if one.span is not None and name not in tags:
                values = (text_of(one.span.resource.get(key)) for key in keys)
                found = next((value for value in values if value), None)
                if found:
                    tags[name] = _clean(found)
    return tags


def _citations(answer: _Choice, own: Reading) -> list[dict[str, Any]] | None:
    given = own.citations or (answer.node.reading.citations if answer.node else [])
    out = []
    for start, end, passages in given[:MAX_CITATIONS]:
        if any(value is not None and value < 0 for value in (start, end)):
            continue
        ids = [_clean(one)[:MAX_ID] for one in passages]
        out.append({"start": start, "end": end, "passage_ids": ids})
    return out or None
