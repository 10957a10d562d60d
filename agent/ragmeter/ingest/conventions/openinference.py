"""OpenInference (Arize).

`key_tables.yaml` has the sources and what to beware of.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragmeter.ingest.conventions.documents import (
    read_documents,
    read_flattened_documents,
    read_metadata,
    read_tool_documents,
)
from ragmeter.ingest.conventions.key_tables import key_table, missing_documents_gap
from ragmeter.ingest.conventions.span_content import (
    SpanContent,
    SpanRole,
    defer_content,
    first_event_time,
)
from ragmeter.ingest.conventions.texts import (
    find_answer,
    find_question,
    last_text_of,
    read_flattened_messages,
    reply_of,
)
from ragmeter.ingest.conventions.values import (
    first_text,
    flattened_items,
    has_flattened_items,
    is_hidden,
    is_repr,
    looks_like_json,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)
from ragmeter.ingest.spans import KIND, AttributeValue, Span
from ragmeter.reasons import Reason

_MODEL = ("llm.response.model_name", "llm.model_name", "llm.request.model_name")
_RETRIEVED = "retrieval.documents"
_RERANKED = "reranker.output_documents"


def preview_wrapper(span: Span) -> SpanContent | None:
    """Read a span that only wraps others without its content, None for any other span.

    LangChain sends ten of them a request, each with all that is passed through it, and the topmost
    has what counts.
    """
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str) or kind.upper() not in ("CHAIN", "PROMPT"):
        return None
    if has_flattened_items(span.attributes, _RETRIEVED):
        return None
    content = _bare_content(span, SpanRole.CHAIN)
    content.light = True
    return content


def _bare_content(span: Span, role: SpanRole) -> SpanContent:
    content = SpanContent(role=role, convention="openinference")
    content.session = scalar_text(span.attributes.get("session.id"))
    content.user = scalar_text(span.attributes.get("user.id"))
    return content


def read_openinference(span: Span, full: bool = True) -> SpanContent:
    """Read a span of OpenInference."""
    attributes = span.attributes
    content = _bare_content(span, _openinference_role(span))
    content.tags = _metadata_tags(attributes.get("metadata"), attributes.get("tag.tags"))
    content.prompt_version = scalar_text(attributes.get("llm.prompt_template.version"))
    if full or _holds_documents(attributes) or not defer_content(content):
        _fill_content(span, content)
    if content.role is not SpanRole.EMBEDDING:
        content.model = first_text(attributes, _MODEL)
        content.input_tokens = parse_count(attributes.get("llm.token_count.prompt"))
        content.output_tokens = parse_count(attributes.get("llm.token_count.completion"))
        content.cost_usd = parse_number(attributes.get("llm.cost.total"))
    content.first_token_ns = first_event_time(span, "First Token Stream Event")
    return content


def _openinference_role(span: Span) -> SpanRole:
    attributes = span.attributes
    kind = attributes.get(KIND)
    roles = key_table("openinference").roles
    role = roles.get(kind.strip().lower()) if isinstance(kind, str) else None
    if role is SpanRole.LLM and _builds_prompt(span):
        return SpanRole.CHAIN
    if role is not None:
        return role
    for prefix, guess in (
        (_RERANKED, SpanRole.RERANKER),
        (_RETRIEVED, SpanRole.RETRIEVER),
        ("llm.output_messages", SpanRole.LLM),
        ("llm.input_messages", SpanRole.LLM),
        ("llm.token_count", SpanRole.LLM),
        ("embedding.embeddings", SpanRole.EMBEDDING),
    ):
        if has_flattened_items(attributes, prefix):
            return guess
    if _RETRIEVED in attributes:
        return SpanRole.CHAIN if "output.value" in attributes else SpanRole.RETRIEVER
    return SpanRole.OTHER


def _holds_documents(attributes: Mapping[str, AttributeValue]) -> bool:
    return _RETRIEVED in attributes or has_flattened_items(attributes, _RETRIEVED)


def _builds_prompt(span: Span) -> bool:
    """Return whether this is a component of Haystack that has the kind LLM for want of a better."""
    if not any(name in span.scope or name in span.name for name in ("haystack", "PromptBuilder")):
        return False
    attributes = span.attributes
    return not any(
        key.startswith(("llm.model_name", "llm.token_count.", "llm.output_messages."))
        for key in attributes
    )


def _fill_content(span: Span, content: SpanContent) -> None:
    attributes = span.attributes
    role = content.role
    input_value = attributes.get("input.value")
    output_value = attributes.get("output.value")
    if role is SpanRole.EMBEDDING:
        return
    if role is SpanRole.LLM:
        _fill_openinference_call(span, content)
        return
    if role is SpanRole.RERANKER:
        content.query, content.query_gap = find_question(attributes.get("reranker.query"))
    if content.query is None:
        content.query, content.query_gap = find_question(input_value)
    if content.query is None and span.dropped and content.query_gap is None:
        content.query_gap = Reason.QUERY_TRUNCATED
    if role in (SpanRole.RETRIEVER, SpanRole.RERANKER):
        _fill_retrieval(span, content, output_value)
    elif role is SpanRole.TOOL:
        content.documents = read_tool_documents(output_value)
    else:
        if content.query is None:
            content.query, content.query_gap = _crew_question(attributes)
        content.answer, content.answer_gap = find_answer(output_value)
        if _holds_documents(attributes):
            content.documents, cut = read_flattened_documents(attributes, _RETRIEVED)
            content.documents_gap = Reason.PASSAGES_TRUNCATED if cut else None


def _crew_question(
    attributes: Mapping[str, AttributeValue],
) -> tuple[str | None, Reason | None]:
    """Return what a crew of CrewAI was asked: its inputs, else the description of its only task."""
    asked = find_question(attributes.get("crew_inputs"))
    tasks = parse_nested_json(attributes.get("crew_tasks")) if asked == (None, None) else None
    if isinstance(tasks, list) and len(tasks) == 1 and isinstance(tasks[0], dict):
        return find_question(tasks[0].get("description"))
    return asked


def _fill_openinference_call(span: Span, content: SpanContent) -> None:
    """Read a model call: its messages, else `input.value` and `output.value`."""
    attributes = span.attributes
    prompts = read_flattened_messages(attributes, "llm.input_messages", "message.")
    replies = read_flattened_messages(attributes, "llm.output_messages", "message.")
    content.query = last_text_of(prompts, "user")
    if is_hidden(content.query):
        content.query = None
        content.query_gap = Reason.CONTENT_HIDDEN
    elif content.query is None:
        content.query, content.query_gap = find_question(attributes.get("input.value"))
    if content.query is None and content.query_gap is None:
        texts = (item.get("prompt.text") for _, item in flattened_items(attributes, "llm.prompts"))
        asked = next((text for text in texts if text is not None), None)
        content.query, content.query_gap = find_question(asked)
    choices = flattened_items(attributes, "llm.choices")
    completions = (scalar_text(choice.get("completion.text")) for _, choice in choices)
    reply = reply_of(replies)
    text = reply or next((text for text in completions if text is not None), None)
    content.calls_tools = text is None and any(message.tools for message in replies)
    if is_hidden(text):
        content.answer_gap = Reason.CONTENT_HIDDEN
    elif text is not None:
        content.answer = text
        if looks_like_json(text):  # what a user reads is at its key `answer`
            answer, gap = find_answer(text)
            if answer:
                content.answer = answer
                content.answer_gap = gap
    elif not content.calls_tools:
        content.answer, content.answer_gap = find_answer(attributes.get("output.value"))
        if content.answer is None and content.answer_gap is None:
            content.answer = reply
    variables = parse_nested_json(attributes.get("llm.prompt_template.variables"))
    if isinstance(variables, dict):
        for key in ("context", "context_str", "documents"):
            if content.context is None and isinstance(variables.get(key), str):
                content.context = scalar_text(variables[key])


def _fill_retrieval(span: Span, content: SpanContent, output_value: AttributeValue) -> None:
    prefix = _RERANKED if content.role is SpanRole.RERANKER else _RETRIEVED
    documents, cut = read_flattened_documents(span.attributes, prefix)
    if documents is None and content.role is SpanRole.RERANKER:
        documents, cut = read_flattened_documents(span.attributes, _RETRIEVED)
    is_text = (
        isinstance(output_value, str)
        and not looks_like_json(output_value)
        and not is_repr(output_value)
    )
    other = None if is_text or is_hidden(output_value) else read_documents(output_value)
    if documents is None:
        documents = other
    elif other is not None and len(other) == len(documents):
        for document, same in zip(documents, other, strict=True):
            if document.may_be(same):  # the same position, and the texts do not differ
                document.fill_from(same, text=document.gap is not Reason.CONTENT_HIDDEN)
    content.documents = documents
    if cut or (span.dropped and not documents):
        content.documents_gap = Reason.PASSAGES_TRUNCATED
    elif documents is None:
        content.documents_gap = missing_documents_gap(documents, output_value)
    if is_text and content.role is SpanRole.RETRIEVER:
        # the one span of Bedrock's RetrieveAndGenerate; a plain retriever has nothing to say
        answer, content.answer_gap = find_answer(output_value)
        content.answer = answer or (answer if "generate" in span.name.lower() else None)


def _metadata_tags(metadata: AttributeValue, names: AttributeValue) -> dict[str, str]:
    """Return the application's own metadata as tags, without what LangChain adds."""
    tags = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in read_metadata(metadata).items()
        if not key.startswith(("ls_", "lc_", "langgraph_", "checkpoint_"))
    }
    for name in names[:16] if isinstance(names, list) else ():
        if isinstance(name, str) and name:
            tags.setdefault(f"tag.{name[:64]}", "true")
    return tags
