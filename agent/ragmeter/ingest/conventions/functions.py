"""Products and applications that trace functions by their arguments and results alone.

Nothing tells which of them retrieves but its name and what it returns. `key_tables.yaml` has the
sources of each and what to beware of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import read_tool_documents
from ragmeter.ingest.conventions.key_tables import (
    RETRIEVER_NAME,
    fill_content,
    first_value,
    key_table,
    read_by_table,
    recognise_retrieval,
)
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.conventions.texts import find_answer, last_text_of, read_messages
from ragmeter.ingest.conventions.values import key_list, parse_nested_json
from ragmeter.ingest.spans import Span

_AGENTA_SIDES = ("ag.data.inputs.", "ag.data.outputs.")
_MAX_FIELDS = 64  # of the arguments or results of a function
# where conventions have the arguments and the result of a function
_INPUTS = (
    "input",
    "input.value",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "gen_ai.prompt",  # of a chain of LangSmith
)
_OUTPUTS = (
    "output",
    "output.value",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "gen_ai.completion",
)
_QUESTIONS = ("question", "user_question", "user_query", "user_message", "user_input", "chatInput")
_ANSWERS = ("answer", "final_answer", "response", "reply", "answer_text", "generated_text")
_QUESTION_MARKS = ("?", "？", "؟")
# These arguments hold what somebody asked, or what a function searches for, sends or runs.
_MAY_ASK = ("query", "prompt", "message", "user_prompt", "utterance", "q", "request", "ask", "text")
_ADDRESSED = frozenset(("to", "recipient", "recipients", "channel", "subject", "sql", "language"))
# Functions that do something else with such a text are named so: `send_email`, `TranslateText`.
_OTHER_WORK = re.compile(
    r"(?:\A|[\W_])(?:send|post|notify|publish|email|sms|search|retriev|lookup|find|fetch|embed|encode|log"
    r"|save|store|insert|write|index|upload|translate|summari[sz]|classify|categori[sz]|rewrite"
    r"|rephrase|expand|route|parse|valid|moderat|redact|token|execut|sql|run_?sql|transcri|speak|tts"
    r"|evaluat|grade|judge|check|render|format|build|load|clean|normali[sz]|detect|extract|count)",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"\s*(?:(?:select|insert|update|delete|with|create|alter|drop|match|merge|return|show|explain)\s"
    r"[^.!?]*(?:[=*();]|\bfrom\b)|[{\[<]|https?://|query\s*\{)",
    re.IGNORECASE,
)
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MAX_NAME = 200  # characters of a function's name
_MIN_WORDS = 3  # of an answer: `done` and `3 rows` are none


def read_lilypad(span: Span, full: bool = True) -> SpanContent:
    """Read a function that Lilypad has decorated."""
    return _read_function(span, "lilypad", full, unknown=SpanRole.CHAIN)


def read_plain(span: Span, full: bool = True) -> SpanContent:
    """Read a span with `input` and `output` of an application's own."""
    named = any(key in span.attributes for key in key_list("tool_names"))
    asked = parse_nested_json(span.attributes.get("input"))
    if isinstance(asked, dict) and isinstance(asked.get("messages"), list) and "model" in asked:
        role = SpanRole.LLM  # the body of a request to a model
    else:
        role = SpanRole.TOOL if named else SpanRole.CHAIN
    return _read_function(span, "plain", full, unknown=role)


def read_agenta(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Agenta, whose inputs and outputs may be an attribute for each field."""
    attributes = span.attributes
    sides = [_fields(attributes, prefix) for prefix in _AGENTA_SIDES]
    if not any(sides):
        return _read_function(span, "agenta", full, unknown=SpanRole.CHAIN)
    content = read_by_table(key_table("agenta"), attributes, full)
    fill_content(content, *sides)
    return content


def asks_and_answers(span: Span) -> bool:
    """Return whether the arguments and the result of a function are a question and its answer.

    Nothing else tells a request where no span calls a model or retrieves: the input has to name a
    question or end as one, and the output has to be words. What is given an answer grades it. A
    `query` or `message` is a question, too, unless the function's name tells of other work.
    """
    if not asks(span):
        return False
    given = parse_nested_json(first_value(span.attributes, _OUTPUTS))
    reply = first_value(given, _ANSWERS) if isinstance(given, dict) else given
    if not isinstance(reply, str) and isinstance(given, dict | list):
        # the reply of a model or a product, which another step would not give back
        reply = None if does_other_work(span.name) else find_answer(given)[0]
    return isinstance(reply, str) and len(reply.split()) >= _MIN_WORDS


def asks(span: Span) -> bool:
    """Return whether one of a function's arguments is a question, and none an answer to it."""
    if is_given_answer(span):
        return False
    asked = _arguments(span)
    if isinstance(asked, dict):
        named = first_value(asked, _QUESTIONS)
        texts = [named] if named is not None else [*asked.values()]
    else:
        named = None
        texts = asked if isinstance(asked, list) else [asked]
    texts = [text for text in texts[:_MAX_FIELDS] if isinstance(text, str)]
    if any(named or text.rstrip().endswith(_QUESTION_MARKS) for text in texts):
        return True
    if isinstance(asked, dict) and _may_ask(span.name, asked):
        return True
    return isinstance(asked, dict | list) and _is_conversation(span.name, asked)


def _is_conversation(name: str, arguments: Any) -> bool:
    """Return whether the arguments of a function are the messages of a chat with a user."""
    if does_other_work(name):
        return False
    return last_text_of(read_messages(arguments), "user") is not None


def does_other_work(name: str) -> bool:
    """Return whether a function's name tells of a step of a request: `rewrite_question`."""
    return _OTHER_WORK.search(_words(name)) is not None


def is_given_answer(span: Span) -> bool:
    """Return whether one of a function's arguments is an answer, which it then grades."""
    asked = _arguments(span)
    return isinstance(asked, dict) and not asked.keys().isdisjoint(_ANSWERS)


def _arguments(span: Span) -> Any:
    asked = parse_nested_json(first_value(span.attributes, _INPUTS))
    for key in ("args", "kwargs", "inputs"):
        if isinstance(asked, dict) and isinstance(asked.get(key), dict | list) and asked[key]:
            asked = asked[key]
    return asked


def _may_ask(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether an argument of a function is what somebody asked, not what it works on."""
    text = first_value(arguments, _MAY_ASK)
    if not isinstance(text, str) or len(text.split(None, 1)) < 2 or _CODE.match(text):
        return False
    return _ADDRESSED.isdisjoint(arguments) and not does_other_work(name)


def _words(name: str) -> str:
    """Return a function's name with its words apart: `SendEmail` as `Send_Email`."""
    return _INNER_CAPITAL.sub("_", name[:_MAX_NAME])


def _fields(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = [(key, value) for key, value in attributes.items() if key.startswith(prefix)]
    return {
        "output" if key == f"{prefix}__default__" else key.removeprefix(prefix): value
        for key, value in found[:_MAX_FIELDS]
    }


def _read_function(span: Span, convention: str, full: bool, *, unknown: SpanRole) -> SpanContent:
    table = key_table(convention)
    full = full or RETRIEVER_NAME.search(span.name) is not None
    content = read_by_table(table, span.attributes, full)
    output_value = first_value(span.attributes, table.answer)
    if content.role is SpanRole.OTHER:
        content.role = unknown
        fill_content(content, first_value(span.attributes, table.query), output_value)
    if content.role is SpanRole.TOOL and content.documents is None:
        content.documents = read_tool_documents(output_value)
    recognise_retrieval(span, content, output_value)
    return content
