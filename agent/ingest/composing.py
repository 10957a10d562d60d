"""The fields of one request, put together as those of a `Trace`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.ingest.choosing import Choice, Request, clean
from agent.ingest.conventions.reading import Gap, Reading, Role
from agent.ingest.conventions.texts import text_of
from agent.ingest.tree import Node
from agent.ingest.usage import used
from agent.settings.otlp import Otlp
from agent.trace import CANARY, MAX_ID, MAX_TAGS

__all__ = ["Composed", "compose", "hashed"]

MAX_CITATIONS = 1_000


@dataclass(slots=True)
class Composed:
    """`values` are those of a `Trace` but for its identity; `end` is in Unix nanoseconds.
    `is_request` is False where there is neither a model call nor anything retrieved."""

    values: dict[str, Any] = field(default_factory=dict)
    end: int = 0
    is_request: bool = True
    origins: dict[str, list[Node]] = field(default_factory=dict)


def compose(node: Node, server: Node | None, settings: Otlp) -> Composed:
    """The fields of the request at `node`; `server` is the span that it was served by."""
    node.content()
    request = Request(node, server, settings)
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
    tokens_in, tokens_out, cost = used(request.nodes)
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


def _first_of(nodes: Iterable[Node], name: str) -> str | None:
    for one in nodes:
        value = getattr(one.reading, name)
        if isinstance(value, str) and value.strip():
            return clean(value)
    return None


def _generic(nodes: Iterable[Node], *keys: str) -> str | None:
    """What spans of no convention may say, those of a server above all."""
    for one in nodes:
        if one.span is not None:
            for key in keys:
                value = text_of(one.span.attributes.get(key))
                if value:
                    return clean(value)
    return None


def hashed(value: str, settings: Otlp) -> str:
    """A session or user as it is kept: a keyed hash, 64 bits, the same on every worker."""
    if not settings.hash_ids:
        return value
    key = hashlib.blake2b(settings.session_salt.get_secret_value().encode()).digest()
    return hashlib.blake2b(value.encode(), digest_size=8, key=key).hexdigest()


def _tags(request: Request, query: Choice, settings: Otlp) -> dict[str, str]:
    about = request.about()
    tags: dict[str, str] = {}
    session = _first_of(about, "session") or _generic(about, "session.id")
    user = _first_of(about, "user") or _generic(about, "user.id", "enduser.id")
    if session:
        tags["session"] = hashed(session, settings)
    if user:
        tags["user"] = hashed(user, settings)
    if (_generic(about, CANARY) or "").lower() == "true":
        tags[CANARY] = "true"  # the service has passed on the mark of `ragmeter canary run`
    looked = request.searches[0].content().query if request.searches else None
    if looked is not None and query.text is not None and looked != query.text:
        tags["retrieval_query"] = clean(looked)  # the application has rewritten the question
    for one in about:
        for name, value in one.reading.tags.items():
            if len(tags) >= MAX_TAGS - 2:
                break
            tags.setdefault(clean(name), clean(value))
    environment = ("deployment.environment.name", "deployment.environment")
    for name, keys in (("environment", environment), ("service_version", ("service.version",))):
        for one in request.nodes:
            if one.span is not None and name not in tags:
                values = (text_of(one.span.resource.get(key)) for key in keys)
                found = next((value for value in values if value), None)
                if found:
                    tags[name] = clean(found)
    return tags


def _citations(answer: Choice, own: Reading) -> list[dict[str, Any]] | None:
    given = own.citations or (answer.node.content().citations if answer.node else [])
    out = []
    for start, end, passages in given[:MAX_CITATIONS]:
        if any(value is not None and value < 0 for value in (start, end)):
            continue
        ids = [clean(one)[:MAX_ID] for one in passages]
        out.append({"start": start, "end": end, "passage_ids": ids})
    return out or None
