"""Vercel AI SDK (3.3 to 6) with `experimental_telemetry`.

Source: vercel/ai, content/docs/03-ai-sdk-core/60-telemetry.mdx (early and ef0018f) and
`packages/ai/src/rerank/rerank.ts`. Traps:
- `ai.generateText` is the whole call, `ai.generateText.doGenerate` one request to the model: both
  hold the text and the tokens. Only the inner one is the model call.
- Old names are `ai.result.text`, `ai.stream.msToFirstChunk`, `ai.usage.promptTokens`; newer ones
  `ai.response.text`, `ai.response.msToFirstChunk`, `ai.usage.inputTokens`.
- `ai.prompt` is `{"system", "prompt"}` or `{"messages"}` as JSON text.
- There is no retriever: retrieval is a tool (`ai.toolCall.result`) or in the prompt.
- A reranker's span holds the documents in the old order and a ranking of their indexes.
- Session and user are what the application put into `metadata`, under names of its own.
"""

from __future__ import annotations

from agent.ingest.conventions.documents import document_in
from agent.ingest.conventions.keyed import Keys, first, read_keyed
from agent.ingest.conventions.reading import Document, Reading, Role
from agent.ingest.conventions.texts import number, open_json, text_of, whole
from agent.ingest.spans import Span

__all__ = ["matches", "read"]

META = "ai.telemetry.metadata."
KEYS = Keys(
    convention="vercel_ai",
    query=("ai.prompt.messages", "ai.prompt", "ai.toolCall.args", "ai.toolCall.input"),
    answer=(
        "ai.response.text",
        "ai.result.text",
        "ai.response.object",
        "ai.result.object",
        "ai.toolCall.result",
        "ai.toolCall.output",
    ),
    model=("ai.response.model", "gen_ai.response.model", "ai.model.id"),
    input_tokens=("ai.usage.inputTokens", "ai.usage.promptTokens"),
    output_tokens=("ai.usage.outputTokens", "ai.usage.completionTokens"),
    session=tuple(
        META + name
        for name in (
            "sessionId",
            "session.id",
            "session_id",
            "langfuseSessionId",
            "chatId",
            "threadId",
            "conversationId",
        )
    ),
    user=tuple(META + name for name in ("userId", "user.id", "user_id", "langfuseUserId")),
    tags={"ai.telemetry.functionId": "function"},
    tag_prefixes=(META,),
)
PERSONAL = tuple(key[len(META) :] for key in (*KEYS.session, *KEYS.user))
FIRST_CHUNK = ("ai.response.msToFirstChunk", "ai.stream.msToFirstChunk")


def matches(span: Span) -> bool:
    return "ai.operationId" in span.attributes


def read(span: Span, content: bool = True) -> Reading:
    attributes = span.attributes
    operation = text_of(attributes.get("ai.operationId")) or ""
    reading = read_keyed(KEYS_BY_ROLE[_role(operation)], attributes, content)
    for name in PERSONAL:  # they are session and user, and no label
        reading.tags.pop(name, None)
    if reading.role in (Role.LLM, Role.CHAIN):
        if not reading.light:
            calls = open_json(first(attributes, ("ai.response.toolCalls", "ai.result.toolCalls")))
            reading.calls_tools = bool(calls) and reading.answer is None
        wait = number(first(attributes, FIRST_CHUNK))
        if wait is not None and 0 <= wait < 1e9 and span.start:
            reading.first_token_ns = span.start + round(wait * 1e6)
    elif reading.role is Role.RERANKER:
        reading.documents = _reranked(span)
        if reading.documents is None and operation == "ai.rerank":
            reading.role = Role.OTHER  # the ranking is on the inner span
    return reading


def _role(operation: str) -> Role:
    if operation == "ai.toolCall":
        return Role.TOOL
    if operation.startswith("ai.embed"):
        return Role.EMBEDDING
    if operation.startswith("ai.rerank"):
        return Role.RERANKER
    if operation.endswith((".doGenerate", ".doStream")):
        return Role.LLM
    return Role.CHAIN if operation.startswith(("ai.generate", "ai.stream")) else Role.OTHER


def _keys(role: Role) -> Keys:
    return Keys(
        convention=KEYS.convention,
        kind=("ai.operationId",),
        unknown=role,
        query=KEYS.query,
        answer=() if role is Role.RERANKER else KEYS.answer,
        model=KEYS.model,
        input_tokens=KEYS.input_tokens,
        output_tokens=KEYS.output_tokens,
        session=KEYS.session,
        user=KEYS.user,
        tags=KEYS.tags,
        tag_prefixes=KEYS.tag_prefixes,
    )


KEYS_BY_ROLE = {
    role: _keys(role)
    for role in (Role.TOOL, Role.EMBEDDING, Role.RERANKER, Role.LLM, Role.CHAIN, Role.OTHER)
}


def _reranked(span: Span) -> list[Document] | None:
    """The documents in the order of the ranking `[{"index", "relevanceScore"}]`."""
    given = open_json(span.attributes.get("ai.documents"))
    ranking = open_json(span.attributes.get("ai.ranking"))
    if not isinstance(given, list) or not isinstance(ranking, list):
        return None
    out = []
    for item in ranking[:1_000]:
        item = open_json(item)
        if not isinstance(item, dict):
            continue
        index = whole(item.get("index", item.get("originalIndex")))
        if index is None or index >= len(given):
            continue
        one = document_in(given[index])
        if one is not None:
            score = number(item.get("relevanceScore", item.get("score")))
            one.score, one.score_kind = score, "" if score is None else "similarity"
            out.append(one)
    return out
