"""OpenInference (Arize): `openinference.span.kind`, flattened messages and documents.

The spec is spec/semantic_conventions.md of Arize-ai/openinference. Where the sender's limits have
cost a span its kind, the keys that are left tell it. What single instrumentors do otherwise:

- LangChain writes document ids into the retriever's `output.value` only.
- LlamaIndex nests a RETRIEVER without documents in one that has them.
- Haystack (old) calls prompt builders and every unknown component LLM.
- Bedrock's RetrieveAndGenerate is one RETRIEVER with query, cited passages and answer.
"""

from __future__ import annotations

from agent.ingest.conventions.documents import (
    documents_in,
    documents_of_tool,
    flat_documents,
    metadata_in,
)
from agent.ingest.conventions.flatten import has_items, items
from agent.ingest.conventions.reading import Document, Gap, Reading, Role, leave_out
from agent.ingest.conventions.texts import (
    Turn,
    answer_in,
    cut_json,
    flat_messages,
    hidden,
    last_of,
    looks_like_json,
    number,
    open_json,
    question_in,
    text_of,
    whole,
)
from agent.ingest.spans import Span, Value

__all__ = ["glance", "matches", "read"]

KIND = "openinference.span.kind"
_ROLES = {
    "chain": Role.CHAIN,
    "agent": Role.CHAIN,
    "prompt": Role.CHAIN,
    "llm": Role.LLM,
    "embedding": Role.EMBEDDING,
    "retriever": Role.RETRIEVER,
    "reranker": Role.RERANKER,
    "tool": Role.TOOL,
    "guardrail": Role.TOOL,  # what a model says in there is no answer
    "evaluator": Role.EVALUATOR,
}
_PREFIXES = ("openinference.", "retrieval.documents.", "llm.", "reranker.", "embedding.")
_RETRIEVED, _RERANKED = "retrieval.documents", "reranker.output_documents"


def matches(span: Span) -> bool:
    attributes = span.attributes
    if KIND in attributes or span.scope.startswith("openinference."):
        return True
    # without its kind: a span that has lost its first attributes, or an application's own
    return any(
        key.startswith(("retrieval.documents.", "llm.output_messages.", "reranker.output_"))
        for key in attributes
    )


def glance(span: Span) -> Reading | None:
    """What only wraps others, without its content; None for any other span. LangChain sends ten
    of them a request, each with all that is passed through it, and the topmost has what counts."""
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() not in ("CHAIN", "PROMPT"):
        return None
    if has_items(span.attributes, _RETRIEVED):
        return None
    reading = _about(span, Role.CHAIN)
    reading.light = True
    return reading


def _about(span: Span, role: Role) -> Reading:
    reading = Reading(role=role, convention="openinference")
    reading.session = text_of(span.attributes.get("session.id"))
    reading.user = text_of(span.attributes.get("user.id"))
    return reading


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    reading = _about(span, _role(span))
    reading.tags = _tags(attributes.get("metadata"), attributes.get("tag.tags"))
    reading.prompt_version = text_of(attributes.get("llm.prompt_template.version"))
    if content or has_items(attributes, _RETRIEVED) or not leave_out(reading):
        _content(span, reading)
    if reading.role is not Role.EMBEDDING:
        reading.model = (
            text_of(attributes.get("llm.response.model_name"))
            or text_of(attributes.get("llm.model_name"))
            or text_of(attributes.get("llm.request.model_name"))
        )
        reading.input_tokens = whole(attributes.get("llm.token_count.prompt"))
        reading.output_tokens = whole(attributes.get("llm.token_count.completion"))
        reading.cost_usd = number(attributes.get("llm.cost.total"))
    for event in span.events:
        if event.name == "First Token Stream Event" and event.time > 0:
            reading.first_token_ns = event.time
            break
    return reading


def _role(span: Span) -> Role:
    attributes = span.attributes
    kind = attributes.get(KIND)
    role = _ROLES.get(kind.strip().lower()) if isinstance(kind, str) else None
    if role is Role.LLM and _builds_prompt(span):
        return Role.CHAIN
    if role is not None:
        return role
    for prefix, guess in (
        (_RERANKED, Role.RERANKER),
        (_RETRIEVED, Role.RETRIEVER),
        ("llm.output_messages", Role.LLM),
        ("llm.input_messages", Role.LLM),
        ("llm.token_count", Role.LLM),
        ("embedding.embeddings", Role.EMBEDDING),
    ):
        if has_items(attributes, prefix):
            return guess
    return Role.OTHER


def _builds_prompt(span: Span) -> bool:
    """A component of Haystack that is called LLM for want of a better kind."""
    if not any(name in span.scope or name in span.name for name in ("haystack", "PromptBuilder")):
        return False
    attributes = span.attributes
    return not any(
        key.startswith(("llm.model_name", "llm.token_count.", "llm.output_messages."))
        for key in attributes
    )


def _content(span: Span, reading: Reading) -> None:
    attributes = span.attributes
    role = reading.role
    given, made = attributes.get("input.value"), attributes.get("output.value")
    if role is Role.EMBEDDING:
        return
    if role is Role.LLM:
        _call(span, reading)
        return
    if role is Role.RERANKER:
        reading.query, reading.query_gap = question_in(attributes.get("reranker.query"))
    if reading.query is None:
        reading.query, reading.query_gap = question_in(given)
    if reading.query is None and span.dropped and reading.query_gap is None:
        reading.query_gap = Gap.QUERY_TRUNCATED
    if role in (Role.RETRIEVER, Role.RERANKER):
        _retrieval(span, reading, made)
    elif role is Role.TOOL:
        reading.documents = documents_of_tool(made)
    else:
        reading.answer, reading.answer_gap = answer_in(made)
        if has_items(attributes, _RETRIEVED):
            reading.documents, cut = flat_documents(attributes, _RETRIEVED)
            reading.documents_gap = Gap.PASSAGES_TRUNCATED if cut else None


def _call(span: Span, reading: Reading) -> None:
    """A call of a model: its messages, else `input.value` and `output.value`."""
    attributes = span.attributes
    asked = flat_messages(attributes, "llm.input_messages", "message.")
    told = flat_messages(attributes, "llm.output_messages", "message.")
    reading.query = last_of(asked, "user")
    if hidden(reading.query):
        reading.query, reading.query_gap = None, Gap.HIDDEN
    elif reading.query is None:
        reading.query, reading.query_gap = question_in(attributes.get("input.value"))
    text = _reply(told) or _completion(span)
    reading.calls_tools = text is None and any(turn.tools for turn in told)
    if hidden(text):
        reading.answer_gap = Gap.HIDDEN
    elif text is not None:
        reading.answer, reading.answer_gap = answer_in_plain(text)
    elif not reading.calls_tools:
        reading.answer, reading.answer_gap = answer_in(attributes.get("output.value"))
    variables = open_json(attributes.get("llm.prompt_template.variables"))
    if isinstance(variables, dict):
        for key in ("context", "context_str", "documents"):
            if reading.context is None and isinstance(variables.get(key), str):
                reading.context = text_of(variables[key])


def answer_in_plain(text: str) -> tuple[str | None, Gap | None]:
    """The text of a message as it is: an application that answers in JSON means that text, but
    what a user reads is at its key `answer`."""
    if looks_like_json(text):
        found, gap = answer_in(text)
        return (found, gap) if found is not None else (text, None)
    return text, None


def _reply(turns: list[Turn]) -> str | None:
    """The text of the reply; a message without a role is one."""
    text = last_of(turns, "assistant")
    if text is None:
        text = next((turn.text for turn in reversed(turns) if turn.text and not turn.role), None)
    return text


def _completion(span: Span) -> str | None:
    for _, item in items(span.attributes, "llm.choices"):
        text = text_of(item.get("completion.text"))
        if text is not None:
            return text
    return None


def _retrieval(span: Span, reading: Reading, made: Value) -> None:
    prefix = _RERANKED if reading.role is Role.RERANKER else _RETRIEVED
    found, cut = flat_documents(span.attributes, prefix)
    if found is None and reading.role is Role.RERANKER:
        found, cut = flat_documents(span.attributes, _RETRIEVED)
    other = documents_in(made) if made is not None and not hidden(made) else None
    if isinstance(made, str) and other is not None and not looks_like_json(made):
        other = None
    if found is None:
        found = other
    elif other is not None and len(other) == len(found):
        for mine, its in zip(found, other, strict=True):
            _complete(mine, its)
    reading.documents = found
    if cut or (span.dropped and not found):
        reading.documents_gap = Gap.PASSAGES_TRUNCATED
    elif found is None and hidden(made):
        reading.documents_gap = Gap.HIDDEN
    elif found is None and cut_json(made):
        reading.documents_gap = Gap.PASSAGES_TRUNCATED
    if reading.role is Role.RETRIEVER and isinstance(made, str) and not looks_like_json(made):
        # the one span of Bedrock's RetrieveAndGenerate
        reading.answer, reading.answer_gap = answer_in(made)


def _complete(mine: Document, its: Document) -> None:
    """Ids and scores that only the output has. The same place is the same document, unless the
    texts say otherwise."""
    if mine.text is not None and its.text is not None and mine.text != its.text:
        return
    mine.id = mine.id or its.id
    if mine.score is None:
        mine.score, mine.score_kind = its.score, its.score_kind
    if mine.text is None and mine.gap is not Gap.HIDDEN and its.text is not None:
        mine.text, mine.gap = its.text, its.gap
    mine.metadata = mine.metadata or its.metadata


def _tags(metadata: Value, tags: Value) -> dict[str, str]:
    """The application's own metadata as tags; what LangChain adds of itself is left out."""
    found = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in metadata_in(metadata).items()
        if not key.startswith(("ls_", "lc_", "langgraph_", "checkpoint_"))
    }
    if isinstance(tags, list):
        for name in tags[:16]:
            if isinstance(name, str) and name:
                found.setdefault(f"tag.{name[:64]}", "true")
    return found
