"""What a service replied, as a trace. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agent.canaries.places import MISSING, find
from agent.canaries.suite import CitationPlaces, PassagePlaces, Question, Reply, Suite
from agent.trace import CANARY, MAX_TAGS, Trace

__all__ = ["BadReply", "read", "trace_of"]

MAX_PASSAGES = 200
MAX_ERROR = 500  # characters


class BadReply(ValueError):
    """A reply without an answer where the suite says that it stands."""


def read(body: bytes, json_type: bool, places: Reply) -> dict[str, Any]:
    """The fields of a trace that a reply has. Raises `BadReply`."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        if json_type or places.answer not in ("$", "."):
            raise BadReply("the reply is no JSON") from None
        document = body.decode("utf-8", "replace")
    answer = _text(find(document, places.answer))
    if answer is None:
        there = ", ".join(sorted(map(str, document))[:10]) if isinstance(document, dict) else ""
        known = f"; it has {there}" if there else ""
        raise BadReply(f"the reply has no text at {places.answer!r}{known}")
    found: dict[str, Any] = {"answer": answer}
    passages = _at(document, places.passages)
    if isinstance(passages, list):
        found["passages"] = [
            _passage(item, number, places.passage)
            for number, item in enumerate(passages[:MAX_PASSAGES], 1)
        ]
    citations = _at(document, places.citations)
    if isinstance(citations, list):
        found["citations"] = [
            one for item in citations if (one := _citation(item, places.citation)) is not None
        ]
    abstained = _at(document, places.abstained)
    if isinstance(abstained, bool):
        found["abstained"] = abstained
    for name, place in (("model", places.model), ("prompt_version", places.prompt_version)):
        value = _at(document, place)
        if isinstance(value, str) and value:
            found[name] = value
    return found


def _at(document: Any, place: str | None) -> Any:
    return MISSING if place is None else find(document, place)


def _text(value: Any) -> str | None:
    """A text, a number as one, or the parts of one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return "".join(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _passage(item: Any, number: int, places: PassagePlaces) -> dict[str, Any]:
    """In the order in which they came: that is their rank."""
    known = _text(find(item, places.id))
    metadata = find(item, places.metadata)
    metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
    for name, place in (("rel_path", places.rel_path), ("heading_path", places.heading_path)):
        value = _at(item, place)
        if value is not MISSING and value is not None:
            metadata[name] = value
    return {
        "id": known or str(number),
        "text": item if isinstance(item, str) else _text(find(item, places.text)),
        "rank": number,
        "score": _number(find(item, places.score)),
        "metadata": metadata or None,
    }


def _citation(item: Any, places: CitationPlaces) -> dict[str, Any] | None:
    if isinstance(item, Mapping):
        cited = find(item, places.passage_id)
        ids = [_text(one) for one in (cited if isinstance(cited, list) else [cited])]
        ends = (find(item, places.start), find(item, places.end))
        start, end = (one if type(one) is int and one >= 0 else None for one in ends)
    else:
        ids, start, end = [_text(item)], None, None
    named = [one for one in ids if one]
    return {"start": start, "end": end, "passage_ids": named} if named else None


def trace_of(
    suite: Suite,
    question: Question,
    trace_id: str,
    timestamp: float,
    seconds: float,
    reply: Mapping[str, Any],
    *,
    status: str = "ok",
    error: str | None = None,
) -> Trace:
    """The canary. What a reply says that no trace can hold is left out, but for the answer."""
    tags = {**suite.tags, **question.tags}
    if suite.name:
        tags["suite"] = suite.name
    # ours last, and sure of their place among so many
    tags = dict(list(tags.items())[: MAX_TAGS - 2])
    tags |= {"question": question.id, CANARY: "true"}
    reference = question.reference
    if reference.answerable is not None:
        tags.setdefault("answerable", "true" if reference.answerable else "false")
    base: dict[str, Any] = {
        "trace_id": trace_id,
        "service": suite.service,
        "timestamp": timestamp,
        "query": question.query,
        "history": question.history,
        "status": status,
        "error": None if error is None else error[:MAX_ERROR],
        "timings": {"total": max(0.0, seconds)},
        "tags": tags,
        "reference": reference,
    }
    try:
        return Trace.model_validate({**base, **reply})
    except ValidationError:
        kept = {name: reply[name] for name in ("answer",) if name in reply}
        return Trace.model_validate({**base, **kept})
