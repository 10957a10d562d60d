"""Read chat messages, and find the question or the answer in an input or output value.

Messages come with parts or blocks, as pairs, LangChain's dumps or flattened attributes. Nothing
here raises, whatever a value holds, and the work is bounded by the value's own size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import unescape
from itertools import pairwise
from typing import Any

from ragmeter.ingest.conventions.given_documents import PART_KINDS
from ragmeter.ingest.conventions.printed_objects import read_printed_object
from ragmeter.ingest.conventions.streams import parts_of_modes, read_event_lines, read_stream
from ragmeter.ingest.conventions.values import (
    flattened_items,
    is_embedding,
    is_hidden,
    is_python_form,
    is_repr,
    is_truncated,
    key_list,
    key_set,
    looks_like_json,
    parse_json_or_literal,
    parse_nested_json,
    repr_question,
    repr_role,
    repr_text,
    role_names,
    scalar_text,
)
from ragmeter.reasons import Reason

_AUTOGEN = ("Message", "Event")  # ends of the types of AutoGen's messages
# words by which its agents end a chat, within a message and as one
_AUTOGEN_END = re.compile(r"\bTERMINATE\b[.!]?\s*\Z|\A\W*(?:APPROVED?|DONE|STOP|EXIT)\W*\Z")
_AUTOGEN_USER = re.compile(r"(?:\A|_)(?:user|human|admin)\d*\Z|proxy", re.IGNORECASE)
_MAX_KEY = 64  # characters of a key
_MAX_MESSAGES = 500  # of one list
_MAX_DEPTH = 3  # of parts in parts, and of objects around a message
_MAX_SEARCH_DEPTH = 12  # of a search; real ones need 5
_MAX_VISITS = 2_000  # containers that one search looks at
_GOES_ON = frozenset(".,;:!?)]}%")  # signs with which no text begins
_CHOICES = ("choices", "candidates", "generations")  # several replies to one question
# Keys that hold an answer and nothing else: null there is an empty one. A function that returns
# nothing has null at `output`, too.
_STATUS = re.compile(r"success(?:ful(?:ly)?)?|ok(?:ay)?|done|completed?|finished", re.IGNORECASE)
# Messages of an assistant that are no answer, as Coze types them.
_BESIDE_ANSWER = ("verbose", "follow_up", "knowledge", "tool_output", "tool_response")
# Names of an application's own for what it was asked: `userQuery`, `inputTranscript`.
_ASKED = re.compile(
    r"^(?!sql)(?:[a-z]+[_-]?)?(?:question|query|utterance|transcript)$|^user[_-]?prompt$|^ask$",
    re.IGNORECASE,
)
# And for what it gave back: `final_report`, `botReply`.
_TOLD = re.compile(
    r"^(?!user|tool|raw|api|http|error|retriev|search|sql)(?:[a-z]+[_-]?){0,2}(?:answer|response|reply|report)$",
    re.IGNORECASE,
)
_SSML_TAG = re.compile(r"<[^<>]{1,300}>")
_ANSWERS = ("answer", "final_answer", "generated_text", "completion", "generation", "reply")
_GENERATED = ("generated_text", "outputText")  # of each prompt, in lists of Hugging Face and clouds
_CONTENT = ("parts", "content", "_content", "blocks", "contents", "text")  # of a message
# Parts of a message that nobody reads as the answer, in the words of all conventions.
_TOOL_PARTS = frozenset(("tool_call", "tool_use", "function_call", "tool-call"))
_THOUGHTS = re.compile(r"reason|think|thought|summary_text|compaction", re.IGNORECASE)
# Calls that the provider runs itself, so that the reply goes on without the application.
_RESULTS = re.compile(r"tool[_-](?:call_)?(?:result|response)|file_search_call", re.IGNORECASE)
_HOSTED_CALLS = frozenset(
    ("file_search_call", "web_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools")
)
_SILENT_PARTS = re.compile(
    r"system-prompt|retry-prompt"
    r"|(?:^|[_-])(?:tool|search|mcp|call|execution)(?:[_-]|$)",
    re.IGNORECASE,
)
# Parts that are no text, though they may hold a string: its data, an address, a name.
_MEDIA_PARTS = re.compile(
    r"(?:^|[_-])(?:image|audio|video|file|blob|uri|binary|media|container|usage)(?:[_-]|$)"
    r"|(?:image|audio|video|document|binary)url|upload",
    re.IGNORECASE,
)


@dataclass(slots=True)
class ChatMessage:
    """One message, which may have a text and may ask for tools.

    The role is `system`, `user`, `assistant`, `tool`, or the sender's own word in lower case.
    `empty` says that the content is there and holds nothing to read.
    """

    role: str
    text: str | None = None
    tools: bool = False
    empty: bool = False


def read_message(value: Any, depth: int = 0) -> ChatMessage | None:
    """Read a message in any framework's form, None for a value that is no message."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value):
        # the pairs of LangChain: ("human", "text")
        role = _role(value[0])
        return (
            ChatMessage(role, scalar_text(value[1]))
            if role in ("user", "assistant", "system")
            else None
        )
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    if isinstance(value.get("kwargs"), dict) and isinstance(value.get("id"), list):
        name = value["id"][-1] if value["id"] else ""  # LangChain: {"lc": 1, "id": [.., name]}
        inner = dict(value["kwargs"])
        inner["role"] = name
        return read_message(inner, depth + 1)
    for key in ("message", "data"):
        if isinstance(value.get(key), dict) and "content" not in value:
            inner = dict(value[key])
            for name in ("role", "type"):
                if name not in inner and name in value:
                    inner[name] = value[name]
            return read_message(inner, depth + 1)
    if "source" in value and str(value.get("type")).endswith(_AUTOGEN):
        return _autogen_message(value)
    if isinstance(value.get("parts"), list) and value.get("kind") in ("request", "response"):
        return _pydantic_message(value)
    role = _role(value.get("role") or value.get("_role") or value.get("author") or "")
    if not role:
        role = _role(value.get("type") or "")
        if role not in ("user", "assistant", "system", "tool") and role != "message":
            return None
        role = "assistant" if role == "message" else role
    text: str | None = None
    tools = False
    held = [value[key] for key in _CONTENT if key in value]
    for content in held:
        part_text, asks = _parts(content)
        tools = tools or asks
        text = text or part_text
    text = text or scalar_text(value.get("refusal"))
    if value.get("type") in _BESIDE_ANSWER:
        return ChatMessage("tool", text)
    extra = value.get("additional_kwargs")
    tools = tools or _any(value, ("tool_calls", "function_call", "toolCalls"))
    tools = tools or (isinstance(extra, dict) and _any(extra, ("tool_calls", "function_call")))
    empty = bool(held) and text is None and not tools and all(map(_is_silent, held))
    return ChatMessage(role, text, tools, empty)


def _autogen_message(value: Mapping[str, Any]) -> ChatMessage:
    """Read a message or an event of AutoGen, which is named by its sender."""
    kind = str(value.get("type"))
    if kind.endswith("Event") or kind in ("StopMessage", "HandoffMessage"):
        return ChatMessage("tool", None, kind == "ToolCallRequestEvent")
    text, _ = _parts(value.get("content"))
    sender = str(value.get("source")).lower()
    if sender.startswith(("user", "human")):
        return ChatMessage("user", text)
    return ChatMessage("assistant", _before_end(text))


def _pydantic_message(value: Mapping[str, Any]) -> ChatMessage:
    """Read a message of Pydantic AI's own history."""
    parts = [part for part in value["parts"] if isinstance(part, dict)]
    if value["kind"] == "response":
        return ChatMessage("assistant", *_parts(parts), empty=_is_silent(parts))
    asked = [part for part in parts if part.get("part_kind") == "user-prompt"]
    return ChatMessage("user" if asked else "tool", _parts(asked)[0])


def _is_silent(content: Any) -> bool:
    """Return whether content is there and holds nothing that anybody reads: no image, no file."""
    if content is None or isinstance(content, str):
        return not content or content.isspace()
    if isinstance(content, dict):
        content = [content]
    return isinstance(content, list) and all(
        (isinstance(part, str) and not part.strip())
        or (isinstance(part, dict) and (_is_thought(part) or _is_blank_text(part)))
        for part in content
    )


def _part_kind(part: Mapping[str, Any]) -> str:
    """Return the kind of a part of a message, in lower case."""
    kinds = (part.get(key) for key in ("type", "block_type", "part_kind"))
    return next((kind.lower() for kind in kinds if isinstance(kind, str)), "")


def _is_thought(part: Mapping[str, Any]) -> bool:
    kind = _part_kind(part)
    thought = part.get("thought") is True or "reasoningContent" in part
    return thought or _THOUGHTS.search(kind) is not None or _RESULTS.search(kind) is not None


def _is_blank_text(part: Mapping[str, Any]) -> bool:
    kind = _part_kind(part) or "text"
    texts = [part[key] for key in ("text", "content") if key in part]
    if not texts and _part_kind(part):
        return False  # Pydantic AI leaves out the content that it may not capture
    return kind in ("text", "output_text") and all(
        text is None or (isinstance(text, str) and not text.strip()) for text in texts
    )


def read_messages(value: Any) -> list[ChatMessage]:
    """Read the messages of a list, an object with `messages`, or JSON text of these.

    A list of lists (LangChain's batches) gives its first. Without messages the result is empty.
    """
    value = parse_nested_json(value)
    if isinstance(value, dict):
        for key in ("messages", "input_messages", "output_messages"):
            if isinstance(value.get(key), list):
                return read_messages(value[key])
        message = read_message(value)
        return [message] if message is not None else []
    for _ in range(3):
        if isinstance(value, list) and value and isinstance(value[0], list):
            if read_message(value[0]) is not None:
                break
            value = value[0]
    if not isinstance(value, list):
        return []
    if _newest_first(value):
        value = value[::-1]
    # what matters is last: the question and the reply
    items = [parse_nested_json(item) for item in value[-_MAX_MESSAGES:]]
    messages = [message for item in items if (message := read_message(item)) is not None]
    return _turned(messages) if _kept_by_user(items) else messages


def _kept_by_user(items: Sequence[Any]) -> bool:
    """Return whether the agent that stands for the user kept a history: its own are `assistant`.

    So do AutoGen up to 0.2 and AG2, whose agents all see themselves as the assistant.
    """
    named = [item for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]
    own = [item["name"] for item in named if item.get("role") == "assistant"]
    others = [item["name"] for item in named if item.get("role") == "user"]
    if not own or not all(map(_AUTOGEN_USER.search, own)):
        return False
    return any(name and not _AUTOGEN_USER.search(name) for name in others)


def _turned(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages with the roles of user and assistant exchanged."""
    roles = {"user": "assistant", "assistant": "user"}
    return [
        replace(one, role=roles.get(one.role, one.role), text=_before_end(one.text))
        for one in messages
    ]


def _before_end(text: str | None) -> str | None:
    """Return what an agent of AutoGen says beside the word that ends a chat."""
    return scalar_text(_AUTOGEN_END.sub("", text).rstrip()) if text else None


def _newest_first(value: Sequence[Any]) -> bool:
    """Return whether messages come with the last first, as the API of assistants lists them."""
    times = [one.get("created_at") if isinstance(one, dict) else None for one in value]
    known = [time for time in times if isinstance(time, int | float)]
    falls = all(one >= two for one, two in pairwise(known))
    return len(known) == len(times) > 1 and falls and known[0] > known[-1]


def read_flattened_messages(
    attributes: Mapping[str, Any], prefix: str, inner: str = ""
) -> list[ChatMessage]:
    """Read messages written as `prefix.N.role`, `prefix.N.content`.

    With `inner` = "message." they are written as `prefix.N.message.role` (OpenInference), with
    parts at `contents.N.message_content.text`.
    """
    messages = []
    for _, item in flattened_items(attributes, prefix):
        if inner:
            cut = len(inner)
            item = {key[cut:]: value for key, value in item.items() if key.startswith(inner)}
        content = item.get("content")
        silent = False
        if isinstance(content, str):
            opened = parse_nested_json(content) if content[:2] in ("[{", "[ ") else content
            text, tools = (
                _parts(opened) if isinstance(opened, list) else (scalar_text(content), False)
            )
        else:
            text, tools = _parts(content)
        if text is None:
            parts = [
                {key.removeprefix("message_content."): one for key, one in part.items()}
                for name in ("contents", "content", "parts")
                for _, part in flattened_items(item, name)
            ]
            text, asks = _parts(parts) if parts else (None, False)
            tools = tools or asks
            text = text or scalar_text(item.get("refusal"))
            silent = bool(parts or "content" in item) and _is_silent(parts or content)
        tools = tools or any(
            key.startswith(("tool_calls", "function_call")) and value not in (None, "", [], {})
            for key, value in item.items()
        )
        if text is not None or tools or "role" in item:
            role = _role(item.get("role"))
            if not role and text is not None and _is_joined_prompt(text):
                role = "user"
            messages.append(ChatMessage(role, text, tools, silent and text is None and not tools))
    return messages


def _is_joined_prompt(text: str) -> bool:
    """Return whether a text without a role is the whole prompt of a model that completes texts."""
    return text.rstrip().endswith("Assistant:") and "Human:" in text


def reply_of(messages: Sequence[ChatMessage]) -> str | None:
    """Return the text of a model's reply, "" for an empty one, None where there is none.

    Several messages of the assistant alone are choices, of which the first was shown; among
    messages of others, as an agent keeps them, the last is the reply.
    """
    texts = [message for message in messages if message.text and message.role in ("assistant", "")]
    if texts:
        alone = all(one.role in ("assistant", "") and not one.tools for one in messages)
        return texts[0 if alone else -1].text
    if any(message.tools for message in messages):
        return None
    replies = [message for message in messages if message.role in ("assistant", "")]
    return "" if replies and replies[-1].empty else None


def last_text_of(messages: Sequence[ChatMessage], *roles: str) -> str | None:
    """Return the text of the last message that has one of the roles and a text."""
    texts = (message.text for message in reversed(messages) if message.role in roles)
    return next((text for text in texts if text), None)


def _role(value: object) -> str:
    name = value.strip().lower() if isinstance(value, str) else ""
    return role_names().get(name, name)


def _parts(content: Any, depth: int = 0) -> tuple[str | None, bool]:
    """Return the text of content (text or a list of parts), and whether it asks for tools."""
    if isinstance(content, str):
        return scalar_text(content), False
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or depth > _MAX_DEPTH:
        return None, False
    texts: list[str] = []
    parted: list[str] = []  # texts before the last part that nobody reads
    tools = cited = False
    for part in content[:_MAX_MESSAGES]:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            continue
        kind = _part_kind(part)
        if kind in _TOOL_PARTS or _any(
            part, ("toolUse", "tool_call", "function_call", "functionCall")
        ):
            tools = True
            continue
        if kind == "tool_reference":  # Mistral divides a sentence by them
            cited = True
            continue
        if "audio" in kind and isinstance(part.get("transcript"), str):
            texts.append(part["transcript"])
            continue
        silent = _is_thought(part) or kind in PART_KINDS
        if silent or _SILENT_PARTS.search(kind) or _MEDIA_PARTS.search(kind):
            parted += [_joined(texts, cited)] if texts else []
            texts = []
            continue
        if isinstance(part.get("citationsContent"), dict):  # of Bedrock's Converse
            part = part["citationsContent"]
        # Mistral divides a sentence by parts of references
        cited = cited or bool(part.get("citations")) or kind == "reference"
        for key in ("text", "content", "output_text", "value", "refusal"):
            inner = part.get(key)
            if isinstance(inner, dict):  # {"text": {"value": ...}} of the assistants' API
                inner = inner.get("value") or inner.get("text") or inner.get("body")
            if isinstance(inner, str) and inner:
                texts.append(inner)
                break
            if isinstance(inner, list):
                nested, asks = _parts(inner, depth + 1)
                tools = tools or asks
                if nested:
                    texts.append(nested)
                break
    parted += [_joined(texts, cited)] if texts else []
    return scalar_text(_joined(parted, cited=False)), tools


def _are_parts(value: Sequence[Any]) -> bool:
    """Return whether a list holds the parts of one message."""
    kinds = [_part_kind(part) if isinstance(part, dict) else "" for part in value]
    return all(kinds) and not {"text", "output_text", "refusal"}.isdisjoint(kinds)


def _joined(texts: Sequence[str], cited: bool) -> str:
    """Join the parts of a message; parts that citations divide go on within a sentence."""
    joined = texts[0] if texts else ""
    for text in texts[1:]:
        goes_on = cited or joined[-1:].isspace() or text[:1].isspace() or text[:1] in _GOES_ON
        joined += text if goes_on else f"\n{text}"
    return joined


def _any(value: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(value.get(key) for key in keys)


def find_question(value: Any) -> tuple[str | None, Reason | None]:
    """Return the question that an input holds, and why there is none or not all of it."""
    opened = parse_nested_json(value)
    if isinstance(opened, dict) and not opened.keys().isdisjoint(_SEARCH_BODIES):
        text = _searched_text(opened)
        if text is not None:
            return with_gap(text, Reason.QUERY_TRUNCATED)
    return _find(value, key_list("question"), "user", Reason.QUERY_TRUNCATED)


# Elasticsearch and OpenSearch take a search as an object below one of these keys.
_SEARCH_BODIES = frozenset(("query", "retriever", "knn"))
_SEARCHED = ("llm_question", "query", "query_text", "model_text", "inference_text")


def _searched_text(body: Mapping[str, Any]) -> str | None:
    """Return the text that the body of a search in Elasticsearch or OpenSearch asks for."""
    if not any(isinstance(body.get(key), dict) for key in _SEARCH_BODIES):
        return None
    found: dict[str, str] = {}
    known = False
    left: list[Any] = [body]
    for value in left:
        if len(left) > _MAX_VISITS:
            break
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            known = known or not value.keys().isdisjoint(key_set("search_clauses"))
            match = value.get("match")  # {"match": {"title": "words"}}
            if isinstance(match, dict):
                for text in match.values():
                    if isinstance(text, str):
                        found.setdefault("query", text)
            for key, item in value.items():
                if isinstance(item, str) and key in _SEARCHED:
                    found.setdefault(key, item)
                elif isinstance(item, (dict, list)):
                    left.append(item)
    return next((found[key] for key in _SEARCHED if key in found), None) if known else None


def find_answer(value: Any) -> tuple[str | None, Reason | None]:
    """Return the answer that an output holds, and why there is none or not all of it.

    An output that is there and has nothing to read is the empty text.
    """
    if isinstance(value, str) and (events := read_event_lines(value)) is not None:
        value = events
    if isinstance(value, str) and value.strip() == "null":  # as JSON says that nothing was given
        return None, None
    if isinstance(value, str):  # LlamaIndex prints a reply with its role
        value = value.removeprefix("assistant: ")
    text, gap = _find(value, key_list("answer"), "assistant", Reason.ANSWER_TRUNCATED)
    return ("", None) if text is None and gap is None and _is_empty_reply(value) else (text, gap)


def _is_empty_reply(value: Any, depth: int = 0) -> bool:
    """Return whether an output is a reply without text, and asks for no tool either."""
    value = parse_nested_json(value)
    if isinstance(value, str):
        return not value.strip()
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, list):
        stream = read_stream(value)
        if stream is not None:
            return stream.text == ""
        if value and all(isinstance(one, str) and not one.strip() for one in value):
            return True
        messages = read_messages(value)
        return _is_nothing_generated(value) or (bool(messages) and reply_of(messages) == "")
    if not isinstance(value, dict):
        return False
    if depth > 0 and value.keys() == {"role"}:  # of Gemini, whose limit went into thoughts
        return True
    if _is_nothing_generated(value.get("results")):  # of Titan and watsonx
        return True
    for key in _CHOICES:
        if isinstance(value.get(key), list):
            choices = _first_choice(value[key])
            return not choices or _is_empty_reply(choices[0], depth + 1)
    message = read_message(value)
    if message is not None and message.role == "assistant":
        unsaid = message.text is None and not message.tools and _stopped(value)
        return message.empty or (unsaid and "content" not in (value.get("message") or value))
    feedback = value.get("promptFeedback") or value.get("prompt_feedback")
    if isinstance(feedback, dict) and (feedback.get("blockReason") or feedback.get("block_reason")):
        return True
    if isinstance(value.get("output"), list) and "object" in value:  # of the API "responses"
        kinds = {str(one.get("type")) for one in value["output"] if isinstance(one, dict)}
        silent = all(kind in _HOSTED_CALLS or _THOUGHTS.search(kind) for kind in kinds)
        return silent or _is_empty_reply(value["output"], depth + 1)
    for key in key_list("answer"):
        if key in value and value[key] not in ([], {}):
            given = value[key]
            return key in _ANSWERS if given is None else _is_empty_reply(given, depth + 1)
    if value.keys() <= {"role", "parts"} and isinstance(value.get("parts"), list):
        return _is_silent(value["parts"])
    content = value.get("content")  # of a candidate of Gemini, or one that was stopped
    return _stopped(value) and (content is None or _is_silent(content))


def _is_nothing_generated(items: Any) -> bool:
    """Return whether the first text that a model has generated for a prompt is empty."""
    first = items[0] if isinstance(items, list) and items else None
    texts = [first[key] for key in _GENERATED if key in first] if isinstance(first, dict) else []
    return bool(texts) and all(isinstance(text, str) and not text.strip() for text in texts)


def _stopped(value: Mapping[str, Any]) -> bool:
    return "finishReason" in value or "finish_reason" in value


def _first_choice(choices: list[Any]) -> list[Any]:
    """Return the first of several choices alone, which is the one that is shown."""
    while len(choices) == 1 and isinstance(choices[0], list):  # LangChain's batch of one
        choices = choices[0]
    indexed = [one for one in choices if isinstance(one, dict) and one.get("index") == 0]
    return indexed[:1] or choices[:1]


def with_gap(text: str, truncated: Reason) -> tuple[str | None, Reason | None]:
    """Return text unless it is hidden, with the gap that it shows."""
    if is_hidden(text):
        return None, Reason.CONTENT_HIDDEN
    return text, truncated if is_truncated(text) else None


def _find(
    value: Any, keys: Sequence[str], role: str, truncated: Reason
) -> tuple[str | None, Reason | None]:
    if isinstance(value, str):
        if is_hidden(value):
            return None, Reason.CONTENT_HIDDEN
        opened = parse_json_or_literal(value)
        if isinstance(opened, str):
            if is_embedding(opened):
                return None, None
            if looks_like_json(opened) or is_python_form(opened):  # cut in the middle, or too large
                text = _salvage(opened, keys)
                return text, truncated if text is None else None
            text = scalar_text(opened)
            fields = read_printed_object(text) if text is not None else None
            if fields is not None:
                text = next(_Search(keys, role).texts(fields), None)
            elif text is not None and is_repr(text):
                text = next(_Search(keys, role, visits=1).texts(text), None)
            return text, truncated if text is not None and is_truncated(text) else None
        value = opened
    if value is None or isinstance(value, bool):
        return None, None
    if isinstance(value, (int, float)):
        return scalar_text(value), None
    text = next(_Search(keys, role).texts(value), None)
    return (None, None) if text is None else with_gap(text, truncated)


@dataclass(slots=True)
class _Search:
    """A search for text, which looks at no more than `visits` containers."""

    keys: Sequence[str]
    role: str
    visits: int = _MAX_VISITS

    def texts(self, value: Any, depth: int = 0) -> Iterator[str]:
        """Yield texts, those at the best keys first and deeper ones last."""
        self.visits -= 1
        if depth > _MAX_SEARCH_DEPTH or self.visits < 0:
            return
        if isinstance(value, str):
            opened = parse_json_or_literal(value)
            if isinstance(opened, str) and (events := read_event_lines(opened)) is not None:
                opened = events
            if isinstance(opened, str) and (fields := read_printed_object(opened)) is not None:
                opened = fields
            if not isinstance(opened, str):
                yield from self.texts(opened, depth + 1)
            elif is_repr(opened):
                if repr_role(opened) in ("", self.role):
                    inner = repr_text(opened)
                    if inner is None and self.role == "user":
                        inner = repr_question(opened)
                    if inner is not None:
                        yield inner
            elif scalar_text(opened) and not is_embedding(opened) and not looks_like_json(opened):
                yield opened
            return
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield str(value)
            return
        if isinstance(value, list):
            if is_embedding(value):
                return
            value = parts_of_modes(value)
            stream = read_stream(value) if self.role == "assistant" else None
            if stream is not None:
                if stream.text:
                    yield stream.text
                for whole in stream.wholes:
                    yield from self.texts(whole, depth + 1)
                return
            pair = _last_pair(value)
            if pair is not None:  # question and answer
                yield from self.texts(pair[self.role == "assistant"], depth + 1)
                return
            if self.role == "assistant" and _are_states(value):
                yield from self.texts(value[-1], depth + 1)
                return
            messages = read_messages(value)
            if messages:
                text = last_text_of(messages, self.role)
                if text is not None:
                    yield text
                return
            if _are_parts(value):  # of one message
                text, _ = _parts(value)
                if text is not None:
                    yield text
                return
            if (depth == 0 and _several_texts(value)) or _holds_documents(value):
                return
            if self.role == "assistant" and _are_updates(value):
                value = value[::-1]
            found = [next(self.texts(item, depth + 1), None) for item in value[:8]]
            if self.role == "assistant" and _are_alike(value) and len({*found} - {None}) > 1:
                return  # a batch, as of several texts
            yield from (text for text in found if text is not None)
            return
        if not isinstance(value, dict):
            return
        if self.role == "user" and {"query", "variables"} <= value.keys():  # GraphQL
            yield from self.texts(value["variables"], depth + 1)
        if self.role == "user" and isinstance(value.get("slots"), dict):
            yield from self._spoken(value["slots"])
        if isinstance(value.get("document"), str) and len(value) == 1:  # of Bedrock's flows
            yield value["document"]
        if self.role == "assistant" and isinstance(value.get("ssml"), str):  # of Alexa
            yield unescape(_SSML_TAG.sub("", value["ssml"])).strip()
        if self.role == "assistant" and _is_error(value):
            return
        if value.keys() == {"type", "value"}:  # LangWatch
            yield from self.texts(value["value"], depth + 1)
            return
        message = read_message(value)
        if message is not None and message.text and message.role == self.role:
            yield message.text
            return
        if self.role == "assistant" and {"chat_history", "summary", "cost"} <= value.keys():
            # the result of a chat of AutoGen
            yield from self.texts(value["summary"], depth + 1)
            yield from self.texts(value["chat_history"], depth + 1)
            return
        nested = any(isinstance(one, dict | list) for one in value.values())
        for key in self.keys:
            given = value.get(key)
            if nested and isinstance(given, str) and _STATUS.fullmatch(given):
                continue
            if given is not None and not isinstance(given, bool):
                if isinstance(given, list) and key in _CHOICES:
                    given = given if read_stream(given) is not None else _first_choice(given)
                elif key in ("replies", "answers") and _several_texts(given):
                    given = given if is_repr(given[0]) else given[:1]
                yield from self.texts(given, depth + 1)
        skipped = key_set("skipped")
        echoed = key_set("echoed") if self.role == "assistant" else frozenset()
        rest = [k for k in value if k not in self.keys and str(k).lower() not in skipped | echoed]
        names = _ASKED if self.role == "user" else _TOLD
        for key in rest[:64]:
            if isinstance(value[key], str) and names.search(str(key)[:_MAX_KEY]):
                yield from self.texts(value[key], depth + 1)
        for key in rest[:64]:
            if isinstance(value[key], (dict, list)) and not _several_texts(value[key]):
                yield from self.texts(value[key], depth + 1)
        if depth == 0 and len(value) == 1:  # {"topic": "..."}: nothing else can be the question
            only = next(iter(value.values()))
            if isinstance(only, str) and str(next(iter(value))).lower() not in skipped:
                yield from self.texts(only, depth + 1)

    def _spoken(self, slots: Mapping[str, Any]) -> Iterator[str]:
        """Yield what a user of Alexa has said freely: the slot that is named as a question."""
        for name, slot in slots.items():
            if name.lower() in self.keys or _ASKED.search(name):
                text = slot.get("value") if isinstance(slot, dict) else None
                if isinstance(text, str) and text:
                    yield text


def _is_error(value: Mapping[str, Any]) -> bool:
    """Return whether an output says what went wrong, and nothing else."""
    if not isinstance(value.get("error"), dict | str) or not value["error"]:
        return False
    return not any(value.get(key) for key in key_list("answer") if key != "message")


def _last_pair(value: Sequence[Any]) -> list[str] | None:
    """Return the last pair of a history of questions and answers, as Gradio keeps it."""
    while value and all(_are_pairs(one) for one in value):
        value = value[-1]  # the history grows while the answer is streamed
    return value[-1] if _are_pairs(value) else None


def _are_pairs(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, list)
            and len(one) == 2
            and all(text is None or isinstance(text, str) for text in one)
            and _role(one[0]) not in ("user", "assistant", "system", "tool")
            for one in value
        )
    )


def _are_states(value: Sequence[Any]) -> bool:
    """Return whether a list holds the states of a graph, each with all messages so far."""
    states = [
        one["messages"]
        for one in value
        if isinstance(one, dict) and isinstance(one.get("messages"), list)
    ]
    lengths = [len(messages) for messages in states]
    return (
        len(value) > 1
        and len(states) == len(value)
        and lengths == sorted(lengths)
        and states[0][:1] == states[-1][:1]
    )


def _are_updates(value: Sequence[Any]) -> bool:
    """Return whether a list holds what the steps of a graph have said, each under its name."""
    steps = [one for one in value if isinstance(one, dict) and len(one) == 1]
    names = {next(iter(one)) for one in steps if isinstance(next(iter(one.values())), dict)}
    return len(steps) == len(value) > 1 and len(names) > 1


def _are_alike(value: Sequence[Any]) -> bool:
    """Return whether a list holds objects of one form."""
    forms = {frozenset(one) if isinstance(one, dict) else None for one in value}
    return len(value) > 1 and len(forms) == 1 and None not in forms


def _several_texts(value: Any) -> bool:
    """Return whether a value is a batch: the input of a job is no question of its own."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(item, str) for item in value[:8])


def _holds_documents(value: list[Any]) -> bool:
    """Return whether a list holds documents, which are neither a question nor an answer."""
    first = parse_nested_json(value[0]) if value else None
    return (
        isinstance(first, dict)
        and "role" not in first
        and not key_set("document_marks").isdisjoint(first)
        and "message" not in first
        and "data" not in first
    )


def _salvage(text: str, keys: Sequence[str]) -> str | None:
    """Return a whole string at one of the keys, in JSON that was cut behind it."""
    head = text[:65536]
    for key in keys:
        match = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*")', head)
        if match is not None:
            try:
                return scalar_text(json.loads(match[1]))
            except ValueError:
                continue
    return None
