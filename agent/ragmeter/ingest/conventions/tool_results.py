"""Read what was retrieved where no span retrieves: in the messages and replies of model calls.

A loop over a model that is written by hand has no span for its tools: their results stand in the
messages of the next call alone. Hosted search (a file search of the provider, retrieve and
generate) gives its documents with the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.conventions.documents import read_documents
from ragmeter.ingest.conventions.given_documents import document_of_part, open_document_parts
from ragmeter.ingest.conventions.key_tables import first_value
from ragmeter.ingest.conventions.reply_facts import body_objects, reply_bodies
from ragmeter.ingest.conventions.span_content import RetrievedDocument, has_texts
from ragmeter.ingest.conventions.values import (
    first_text,
    flattened_items,
    parse_nested_json,
    parse_number,
    role_names,
    scalar_text,
)
from ragmeter.ingest.spans import Span

_MAX_MESSAGES = 500  # of one call, the last ones
_MAX_RESULTS = 50  # of one call
_MAX_EVENTS = 50_000  # of one stream
_MAX_DEPTH = 4  # of the objects around what a reply holds
_MIN_WORDS = 4  # of a text in a list of texts
_MESSAGE_KEYS = (
    "gen_ai.input.messages",
    "input.value",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "ai.prompt.messages",
    "gen_ai.prompt",
    "ai.prompt",
    "gen_ai.request.messages",
    "braintrust.input_json",
    "confident.span.input",
    "haystack.component.input",
    "haystack.agent.step.llm.input",
    "input",
)
# All messages of a run of Pydantic AI or Haystack, whose calls and tools may have been left out.
_HISTORIES = ("pydantic_ai.all_messages", "all_messages_events", "haystack.agent.output")
# Lists beside or within an answer that hold what the server searched for it: of Perplexity, Groq,
# Dify, Flowise and Google's search.
_SEARCHED = (
    "search_results",
    "searchResults",
    "retriever_resources",
    "top_documents",
    "sourceDocuments",
    "source_documents",
    "source_nodes",
    "sources",
    "references",
    "reference",
    "hits",
    "sourceAttributions",
)
# Applications call so what they retrieved, beside the answer that they give back. A model may write
# such a field itself.
_RETRIEVED = (
    "documents",
    "retrieved_documents",
    "docs",
    "contexts",
    "retrieved_contexts",
    "context",
)
# Such a list, or one of its items, may hold these in turn.
_LISTED = ("results", "chunks", "references", "documents", "document")
_REPLY_LISTS = ("messages", "chat_history", "output", "new_items", "new_messages")
_STEPS = ("intermediate_steps", "intermediateSteps")  # of LangChain's first agents, and of n8n
_AROUND = ("outputs", "output", "response", "result", "value", "kwargs", "json")
# of the API "responses", and of the AI SDK's streams to a browser
_HOSTED_TOOLS = ("function_call_output", "mcp_call", "tool-output-available")
_RESULT_PARTS = (
    "tool_result",
    "tool-result",
    "tool_call_response",
    "function_call_output",
    "mcp_tool_result",
)
# keys of a part that is a tool's result: of Bedrock, Gemini and Haystack
_RESULT_HOLDERS = ("toolResult", "functionResponse", "function_response", "tool_call_result")
_TOOL_NAMES = ("tool_name", "toolName", "name", "tool")
_UI_TOOL = "tool-"  # how the AI SDK names the kind of a part of a browser's message: `tool-search`
# Lists of a reply that hold the calls of tools with their results: of LlamaIndex, Flowise and the
# AI SDK.
_TOLD_CALLS = ("tool_calls", "toolCalls", "toolResults", "tool_results", "usedTools")
_TOLD_RESULTS = ("tool_output", "toolOutput", "raw_output", "output", "result", "response")
_RESULT_KEYS = ("response", "result", "output", "content", "results")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back, by the messages of a model call; `name` is empty if none tells it."""

    name: str
    value: Any


def read_tool_results(messages: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
    """Return the results of tools that a model was given since the user's last message."""
    messages = messages[-_MAX_MESSAGES:]
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for message in messages:
        role = str(message.get("role") or message.get("type") or "").strip().lower()
        role = role_names().get(role, role)
        for identity, name in _calls(message):
            names[identity] = name
        found = list(_results(message, role, names))
        if role == "user" and not found:
            results = []  # an earlier turn's
        results += found
    return results[-_MAX_RESULTS:]


def read_call_messages(span: Span) -> list[Mapping[str, Any]]:
    """Return the messages that went to the model, in the first form that a span has."""
    attributes = span.attributes
    for prefix, inner in (("llm.input_messages", "message."), ("gen_ai.prompt", "")):
        flat = flattened_items(attributes, prefix)
        if flat:
            sent: list[Mapping[str, Any]] = [
                _unflattened({k.removeprefix(inner): v for k, v in one.items()}) for _, one in flat
            ]
            if len(sent) == 1:  # a prompt of a model that completes texts has no role
                sent = [{"role": "user", **sent[0]}]
            return sent
    for key in _MESSAGE_KEYS:
        opened = parse_nested_json(attributes.get(key))
        if isinstance(opened, dict) and isinstance(opened.get("kwargs"), dict):
            opened = opened["kwargs"]  # the arguments of a function
        for name in ("messages", "input", "contents"):
            if isinstance(opened, dict) and isinstance(opened.get(name), list):
                opened = opened[name]
        while isinstance(opened, list) and len(opened) == 1 and isinstance(opened[0], list):
            opened = opened[0]
        if isinstance(opened, list):
            items = [parse_nested_json(one) for one in opened[-_MAX_MESSAGES:]]
            messages: list[Mapping[str, Any]] = [
                _plain(one) for one in items if isinstance(one, dict)
            ]
            if messages:
                return messages
    events = [
        (event.name, event.attributes) for event in span.events if event.name.endswith(".message")
    ]
    if not events:
        prompts = (_prompt(attributes.get(key)) for key in _MESSAGE_KEYS)
        prompt = next((text for text in prompts if text is not None), None)
        return [] if prompt is None else [{"role": "user", "content": prompt}]
    return [{"role": name.split(".")[-2], **_event_body(body)} for name, body in events]


def _prompt(value: Any) -> str | None:
    """Return the prompt of a model that completes texts: a text, or a field of its request."""
    opened = parse_nested_json(value)
    if isinstance(opened, dict):
        opened = first_text(opened, ("prompt", "inputText", "inputs"))
    return opened if isinstance(opened, str) else None


def _event_body(attributes: Mapping[str, Any]) -> dict[str, Any]:
    body = parse_nested_json(attributes.get("gen_ai.event.content"))
    return {**attributes, **body} if isinstance(body, dict) else dict(attributes)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Open the forms in which LangChain dumps a message."""
    kwargs = message.get("kwargs")
    if isinstance(kwargs, dict) and isinstance(message.get("id"), list) and message["id"]:
        return {**kwargs, "role": str(message["id"][-1])}
    for key in ("message", "data"):
        inner = message.get(key)
        if isinstance(inner, dict) and "content" not in message:
            return {"role": message.get("type"), **inner}
    return message


def _unflattened(item: dict[str, Any]) -> dict[str, Any]:
    """Return a flattened message with its calls and parts as lists."""
    calls = [
        {key.removeprefix("tool_call."): value for key, value in call.items()}
        for _, call in flattened_items(item, "tool_calls")
    ]
    parts = [
        {key.removeprefix("message_content."): value for key, value in part.items()}
        for _, part in flattened_items(item, "contents")
    ]
    message = {**item, "tool_calls": calls}
    content = parse_nested_json(item.get("content"))
    if parts:
        message["content"] = parts
    elif isinstance(content, list):
        message["content"] = content
    return message


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield id and name of the calls that an assistant's message asks for."""
    extra = message.get("additional_kwargs")
    lists = [message.get(key) for key in ("tool_calls", "toolCalls", "content", "parts")]
    lists.append(extra.get("tool_calls") if isinstance(extra, dict) else None)
    calls: list[Any] = [one for listed in lists if isinstance(listed, list) for one in listed]
    for call in (*calls, message):
        if not isinstance(call, dict):
            continue
        used = call.get("toolUse")
        inner: Mapping[str, Any] = used if isinstance(used, dict) else call
        function = inner.get("function")
        holder: Mapping[str, Any] = function if isinstance(function, dict) else inner
        name = scalar_text(
            holder.get("name") or inner.get("function.name") or inner.get("toolName")
        )
        keys = ("call_id", "id", "toolUseId", "toolCallId", "tool_call_id")
        for identity in (scalar_text(inner.get(key)) for key in keys):
            if identity and name:
                yield identity, name


def _results(
    message: Mapping[str, Any], role: str, names: Mapping[str, str]
) -> Iterator[ToolResult]:
    kind = str(message.get("type") or "")
    if _failed(message):
        return
    if kind in _HOSTED_TOOLS:
        yield ToolResult(_name(message, names), message.get("output"))
        return
    parts: list[Any] = next(
        (message[key] for key in ("parts", "content") if isinstance(message.get(key), list)), []
    )
    found = False
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("state") == "output-available" and "output" in part:
            found = True
            name = str(part.get("toolName") or part.get("type")).removeprefix(_UI_TOOL)
            yield ToolResult(name, part["output"])
            continue
        inner = next((part[key] for key in _RESULT_HOLDERS if part.get(key)), None)
        inner = inner if isinstance(inner, dict) else part
        if _failed(inner) or (inner is part and part.get("type") not in _RESULT_PARTS):
            found = found or _failed(inner)
            continue
        value = next((inner[key] for key in _RESULT_KEYS if inner.get(key) is not None), None)
        if isinstance(value, dict) and set(value) <= {"type", "value"}:  # Vercel
            value = value.get("value")
        if isinstance(value, list) and all(
            isinstance(one, dict) and "json" in one for one in value
        ):
            value = value[0]["json"] if value else None  # Bedrock
        found = True
        yield ToolResult(_name(inner, names), open_document_parts(value))
    if role == "tool" and not found:
        content = parse_nested_json(message.get("content", parts))
        yield ToolResult(_name(message, names), open_document_parts(content))


def _failed(result: Mapping[str, Any]) -> bool:
    """Return whether a tool's result is marked as an error: what it says is no passage."""
    marks = (result.get(key) for key in ("is_error", "isError", "error"))
    return any(mark is True for mark in marks) or result.get("status") == "error"


def _name(result: Mapping[str, Any], names: Mapping[str, str]) -> str:
    origin = result.get("origin")  # of Haystack
    if isinstance(origin, dict):
        result = {**result, **origin}
    given = scalar_text(result.get("name") or result.get("toolName") or result.get("tool_name"))
    keys = ("tool_call_id", "tool_use_id", "toolUseId", "toolCallId", "call_id", "id")
    called = (names.get(str(result.get(key))) for key in keys)
    return given or next((name for name in called if name), "")


def holds_history(span: Span) -> bool:
    """Return whether a span has all messages of a run."""
    return any(key in span.attributes for key in _HISTORIES)


def read_reply_results(span: Span) -> list[ToolResult]:
    """Return the results of tools that a reply tells: of the provider's own, or of an agent.

    The messages of a run tell them, too.
    """
    histories = [parse_nested_json(span.attributes.get(key)) for key in _HISTORIES]
    for body in (*reply_bodies(span), *histories):
        results = read_tool_results(_reply_messages(body, 0))
        if results:
            return results
    return []


def _reply_messages(body: Any, depth: int) -> list[Mapping[str, Any]]:
    """Return the messages or items of a reply, or the one that it is."""
    if isinstance(body, list):
        while len(body) == 1 and isinstance(body[0], list):
            body = body[0]
        if len(body) == 1 and isinstance(body[0], dict) and "json" in body[0]:  # n8n
            return _reply_messages(body[0], depth + 1)
        items = [parse_nested_json(one) for one in body[-_MAX_MESSAGES:]]
        return [_plain(one) for one in items if isinstance(one, dict)]
    if not isinstance(body, dict) or depth > _MAX_DEPTH:
        return []
    if isinstance(body.get("content"), list) or isinstance(body.get("parts"), list):
        return [body]
    if told := _told_calls(body):
        return told
    for key in _STEPS:
        if isinstance(body.get(key), list):
            steps = (_step(one) for one in body[key][-_MAX_MESSAGES:])
            return [step for step in steps if step is not None]
    for key in _REPLY_LISTS:
        if isinstance(body.get(key), list):
            return _reply_messages(body[key], depth + 1)
    inside = (
        _reply_messages(parse_nested_json(body[key]), depth + 1) for key in _AROUND if key in body
    )
    return next(filter(None, inside), [])


def _told_calls(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results that a reply tells with the calls of its tools, as messages of these."""
    messages: list[Mapping[str, Any]] = []
    for key in _TOLD_CALLS:
        listed = body.get(key)
        for call in listed[-_MAX_RESULTS:] if isinstance(listed, list) else ():
            result = first_value(call, _TOLD_RESULTS) if isinstance(call, dict) else None
            if isinstance(result, dict) and "raw_output" in result:  # LlamaIndex
                call = {**call, "is_error": result.get("is_error")}
                result = result["raw_output"]
            name = first_text(call, _TOOL_NAMES) if isinstance(call, dict) else None
            if result is not None and name is not None and not _failed(call):
                messages.append({"role": "tool", "name": name, "content": result})
    return messages


def _step(step: Any) -> Mapping[str, Any] | None:
    """Return the observation of a step as the message of its tool."""
    if isinstance(step, list) and len(step) == 2:
        action, seen = step
    elif isinstance(step, dict):
        action, seen = step.get("action"), step.get("observation")
    else:
        return None
    kwargs = action.get("kwargs") if isinstance(action, dict) else None
    action = kwargs if isinstance(kwargs, dict) else action
    name = action.get("tool") if isinstance(action, dict) else None
    return {"role": "tool", "name": name, "content": seen}


def read_hosted_documents(span: Span, *, of_run: bool) -> list[RetrievedDocument] | None:
    """Return the documents that the provider's own search gave with a reply, None without any.

    With `of_run` the reply is what the application gives back, else that of a model.
    """
    found: list[RetrievedDocument] = []
    searched = False
    for body in reply_bodies(span):
        for node in (*_retrieving_events(body), *body_objects(body)):
            listed = _hosted_list(node)
            if listed is None and of_run:
                listed = _retrieved_list(node)
            if listed is not None:
                searched = True
                found += read_documents(listed) or []
        if searched:
            break
    known = has_texts(found) or all(one.id for one in found)
    return found if searched and known else None


def _retrieving_events(body: Any) -> list[dict[str, Any]]:
    """Return the events of a stream that tell what was retrieved, as objects that hold it.

    They may stand anywhere in a long stream: Flowise sends them before the end, LangChain before
    the first piece.
    """
    found: list[dict[str, Any]] = []
    for event in body[:_MAX_EVENTS] if isinstance(body, list) else ():
        kind = event.get("event") if isinstance(event, dict) else None
        data = event.get("data") if isinstance(kind, str) else None
        if kind in _SEARCHED:
            found.append({kind: data})
        elif kind == "on_retriever_end" and isinstance(data, dict):
            output = data.get("output")
            listed = output.get("documents") if isinstance(output, dict) else output
            found.append({"source_documents": listed})
    return found


def _listed(value: Any, depth: int = 0) -> list[Any]:
    """Return the documents of a list of sources, without the objects around them."""
    if isinstance(value, dict):
        inside = {key: value[key] for key in _LISTED if isinstance(value.get(key), list | dict)}
        if isinstance(inside.get("chunks"), dict) and depth < _MAX_DEPTH:  # by their numbers
            return _listed(inside["chunks"], depth + 1)
        lists = (one for one in inside.values() if isinstance(one, list))
        by_id = list(value.values()) if all(isinstance(v, dict) for v in value.values()) else None
        return _listed(next(lists, by_id), depth)
    if not isinstance(value, list):
        return []
    value = [inner for one in value for inner in _opened(one)]
    if not any(isinstance(one, dict) for one in value):
        return []
    found: list[Any] = []
    for one in value:
        held = [one[key] for key in _LISTED if key in one] if isinstance(one, dict) else []
        inner = next((listed for listed in held if isinstance(listed, list)), None)
        if inner is not None and depth < _MAX_DEPTH:
            texts = all(isinstance(text, str) for text in inner)
            found += inner if texts else _listed(inner, depth + 1)
        else:
            found.append(_inside(one))
    return found


def _opened(value: Any) -> list[Any]:
    """Return the documents of a list in a list, or of a pair of a document and its score."""
    if not isinstance(value, list):
        return [value]
    if len(value) == 2 and isinstance(value[0], dict) and parse_number(value[1]) is not None:
        return [{"score": value[1], **value[0]}]
    return value if all(isinstance(one, dict | str) for one in value) else [value]


def _inside(value: Any) -> Any:
    """Return a document of Google's search without the object around it."""
    for key in ("chunkInfo", "unstructuredDocumentInfo"):
        inner = value.get(key) if isinstance(value, dict) else None
        if isinstance(inner, dict):
            return inner
    return value


def _retrieved_list(node: Mapping[str, Any]) -> list[Any] | None:
    for key in _RETRIEVED:
        value = node.get(key)
        if not isinstance(value, list) or not value or _are_messages(value):
            continue
        value = [inner for one in value for inner in _opened(one)]
        texts = [one for one in value if isinstance(one, str) and len(one.split()) >= _MIN_WORDS]
        listed = value if len(texts) == len(value) else _listed(value)
        if listed and has_texts(read_documents(listed)):
            return listed
    return None


def _are_messages(value: list[Any]) -> bool:
    return any(isinstance(one, dict) and "role" in one for one in value)


def _web_pages(chunks: list[Any]) -> list[dict[str, Any]]:
    """Return the pages of Google's search, of which a reply has addresses and no texts."""
    pages = (chunk.get("web") for chunk in chunks if isinstance(chunk, dict))
    return [
        {"id": page["uri"], "metadata": {"title": page.get("title"), "url": page["uri"]}}
        for page in pages
        if isinstance(page, dict) and isinstance(page.get("uri"), str)
    ]


def _hosted_list(node: Mapping[str, Any]) -> list[Any] | None:
    """Return the list of documents that an object of a reply holds, None for any other object."""
    kind = str(node.get("type") or "")
    results = node.get("results")
    if kind in ("file_search_call", "file_search") and isinstance(results, list):
        return results
    references = node.get("retrievedReferences")  # Bedrock
    if isinstance(references, list):
        return references
    for key in ("groundingChunks", "grounding_chunks"):  # Gemini and Vertex AI
        chunks = node.get(key)
        if isinstance(chunks, list):
            contexts = (
                chunk.get("retrievedContext") or chunk.get("retrieved_context")
                for chunk in chunks
                if isinstance(chunk, dict)
            )
            held = [_context_text(context) for context in contexts if isinstance(context, dict)]
            return held or _web_pages(chunks) or None
    for key in _SEARCHED:
        listed = _listed(node.get(key))
        if listed and has_texts(read_documents(listed)):
            return listed
    context = node.get("context")  # Azure OpenAI on your data
    if isinstance(context, dict) and (found := _azure_documents(context)) is not None:
        return found
    if kind == "web_fetch_result":
        return [document_of_part(node.get("content"))]
    if kind == "search_result" and isinstance(node.get("content"), list):  # Anthropic
        return [document_of_part(node)]
    return None


def _context_text(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what Vertex AI retrieved, whose text may stand in the chunk of its engine alone."""
    chunk = context.get("ragChunk") or context.get("rag_chunk")
    if context.get("text") or not isinstance(chunk, dict):
        return context
    return {**context, "text": chunk.get("text")}


def _azure_documents(context: Mapping[str, Any]) -> list[Any] | None:
    """Return what Azure OpenAI found in the data of the application: cited first, then the rest.

    Older versions give it as the message of a tool. What a filter left out was not given to the
    model.
    """
    messages = context.get("messages")
    if isinstance(messages, list):
        told = (parse_nested_json(one.get("content")) for one in messages if isinstance(one, dict))
        context = next((one for one in told if isinstance(one, dict) and "citations" in one), {})
    cited = context.get("citations")
    retrieved = context.get("all_retrieved_documents")
    if not isinstance(cited, list):
        return None
    texts = [one.get("content") for one in cited if isinstance(one, dict)]
    more = [
        one
        for one in (retrieved if isinstance(retrieved, list) else ())
        if isinstance(one, dict)
        and not one.get("filter_reason")
        and one.get("content") not in texts
    ]
    return [*cited, *more[:_MAX_RESULTS]]
