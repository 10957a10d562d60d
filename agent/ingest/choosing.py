"""What a request was asked, what it retrieved and answered, chosen among what its spans say.

docs/spans.md has the rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.ingest.conventions.reading import Document, Gap, Role
from agent.ingest.conventions.texts import answer_in, question_in
from agent.ingest.cutting import last_moment
from agent.ingest.outcome import first_token, outcome, seconds
from agent.ingest.passages import Retrieved, retrieved, searches_of
from agent.ingest.tree import Node
from agent.settings.otlp import Otlp
from agent.trace import MAX_ID

__all__ = ["Choice", "Request", "clean"]

# Characters kept: a scorer reads no more, and the state file holds every trace that waits. The
# sum of all is below `limits.trace_bytes` for text of Latin letters.
MAX_QUERY = 32_768
MAX_ANSWER = 131_072
MAX_PASSAGE = 131_072
MAX_PASSAGES_TEXT = 1_048_576

_Find = Callable[[Any], tuple[str | None, Gap | None]]


@dataclass(slots=True)
class Choice:
    """A text, the span that gave it and what is wrong with it."""

    text: str | None = None
    gap: Gap | None = None
    node: Node | None = None


class Request:
    """One request while its fields are chosen."""

    def __init__(self, node: Node, server: Node | None, settings: Otlp) -> None:
        self.node = node
        self.server = server
        self.settings = settings
        self.nodes = list(node.walk())
        self.searches = searches_of(node)
        self.retrieved: Retrieved = retrieved(node)
        self.calls = self._calls()

    def _calls(self) -> list[Node]:
        """The model calls that no retrieval makes for itself, by their end."""
        below = {id(one) for search in self.searches for one in search.walk() if one is not search}
        calls = [one for one in self.nodes if one.role is Role.LLM and id(one) not in below]
        return sorted(calls, key=lambda one: (one.end, -one.start, _span_id(one)))

    def query(self) -> Choice:
        """What the application was asked, else what was looked for, else what the user said last
        to the model. What a tool looks for are the model's words: the user's come before them."""
        own = self.node.content()
        gap = Choice(None, own.query_gap, self.node if own.query_gap else None)
        if own.query is None:
            found = self._of_trace("langfuse.trace.input", question_in, MAX_QUERY)
            if found is not None:
                return found
        tools = [one for one in self.searches if one.role is Role.TOOL]
        searches = [one for one in self.searches if one.role is not Role.TOOL]
        for one in (self.node, *searches, *reversed(self.calls), *tools):
            reading = one.content()
            if reading.query is not None:
                return self._choice(reading.query, reading.query_gap, one, MAX_QUERY)
            if reading.query_gap is not None and gap.gap is None:
                gap = Choice(None, reading.query_gap, one)
        return gap

    def _of_trace(self, key: str, find: _Find, limit: int) -> Choice | None:
        """What any span may say of the whole trace, as those of Langfuse do."""
        for one in (*self.node.ancestors(), *self.nodes):
            raw = one.span.attributes.get(key) if one.span is not None else None
            if raw is not None:
                text, why = find(raw)
                if text is not None:
                    return self._choice(text, why, one, limit)
        return None

    def _choice(self, text: str, gap: Gap | None, node: Node, limit: int) -> Choice:
        cut = Gap.QUERY_TRUNCATED if limit == MAX_QUERY else Gap.ANSWER_TRUNCATED
        if gap is None and (len(text) > limit or len(text) == self.settings.text_limit):
            gap = cut
        return Choice(clean(text[:limit]), gap, node)

    def answer(self) -> Choice:
        """What the application gave back, else the reply of its last model call."""
        node = self.node
        own = node.content()
        if own.answer is None:
            found = self._of_trace("langfuse.trace.output", answer_in, MAX_ANSWER)
            if found is not None:
                return found
        if own.answer is not None and (node.role is not Role.RETRIEVER or not self.calls):
            if own.answer_gap is Gap.ANSWER_TRUNCATED:
                reply = self._reply()
                whole = reply.text if reply.gap is None else None
                if whole is not None and whole.startswith(own.answer.rstrip(".…")):
                    return reply
            return self._choice(own.answer, own.answer_gap, node, MAX_ANSWER)
        reply = self._reply()
        if reply.text is None and own.answer_gap is not None:
            return Choice(None, own.answer_gap, node)
        return reply

    def _reply(self) -> Choice:
        """The reply of the last call that can be the answer: none that ended before the retrieval
        began (it has rewritten the question), none that only asks for tools, none of a tool's own
        while the application has others."""
        first = min((one.start for one in self.searches), default=0)
        able = [
            one for one in self.calls if last_moment(one) >= first and not one.content().calls_tools
        ]
        in_tools = self._in_tools()
        outside = [one for one in able if id(one) not in in_tools]
        able = outside or able
        if not able:
            return self._chain_answer()
        last = able[-1]
        gap = Choice()
        for one in reversed(able):
            # of what was seen twice the other span may hold the text
            if one is not last and not (one.start < last.end and last.start < one.end):
                break
            reading = one.content()
            if reading.answer is not None:
                return self._choice(reading.answer, reading.answer_gap, one, MAX_ANSWER)
            if reading.answer_gap is not None and gap.gap is None:
                gap = Choice(None, reading.answer_gap, one)
        return gap

    def _in_tools(self) -> set[int]:
        """What runs inside of a tool of this request."""
        inside: set[int] = set()
        for one in self.nodes[1:]:  # parents first
            up = one.parent
            if up is not None and (
                id(up) in inside or (up.role is Role.TOOL and up is not self.node)
            ):
                inside.add(id(one))
        return inside

    def _chain_answer(self) -> Choice:
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
            return Choice()
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
                text = clean(text[: min(MAX_PASSAGE, left)])
                left -= len(text)
            out.append(_passage(one, text, rank, taken))
        return out, gap

    def status(self, answered: bool) -> tuple[str, str | None]:
        status, error = outcome(self.nodes, self.server, answered)
        return status, clean(error) if error else None

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

    def model(self, answer: Choice) -> str | None:
        order = [answer.node, *reversed(self.calls), *self.nodes]
        return next((one.reading.model for one in order if one and one.reading.model), None)

    def about(self) -> list[Node]:
        """Who may tell session, user and tags: the request, what is above it, then what is in."""
        return [self.node, *self.node.ancestors(), *self.nodes[1:]]


def _span_id(node: Node) -> str:
    return node.span.span_id if node.span is not None else ""


def clean(text: str) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _passage(one: Document, text: str | None, rank: int, taken: set[str]) -> dict[str, Any]:
    """A passage. One without an id gets that of its text, the same in every trace."""
    identity = clean(one.id)[:MAX_ID]
    if not identity and text:
        identity = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    identity = identity or f"#{rank}"
    if identity in taken:  # a source of several chunks
        identity = f"{identity[: MAX_ID - 8]}#{rank}"
    taken.add(identity)
    metadata = {
        clean(key): clean(value) if isinstance(value, str) else value
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
