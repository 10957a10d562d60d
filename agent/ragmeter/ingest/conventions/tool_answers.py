"""Read an answer that stands in the arguments of a tool call: structured output.

Libraries like Instructor have the model fill in a class by calling a tool that nobody executes.
Such a call is told from one of a search by its request, which forces this tool, or by its name:
that of a class, or a common one of an output. The calls and the request stand in flattened
attributes, in events or in bodies, whatever the convention. Only the last call of a request is
looked at, so this may open what was opened before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragmeter.ingest.conventions.reply_facts import body_objects, reply_bodies
from ragmeter.ingest.conventions.values import flattened_items, key_list, parse_nested_json
from ragmeter.ingest.spans import Span

# Attributes that hold the calls of a reply alone, and those that hold what was asked of the model.
_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls", "gen_ai.choice")
_REQUESTS = (
    "llm.invocation_parameters",
    "input.value",
    "gen_ai.request.tool_choice",
    "gen_ai.request.parameters",
    "ai.prompt.toolChoice",
    "langfuse.observation.input",
    "langfuse.observation.model.parameters",
    "mlflow.spanInputs",
    "mlflow.chat.toolChoice",
    "request_data",
    "model_request_parameters",
)
_CHOICES = (
    "tool_choice",
    "toolChoice",
    "function_call",
    "functionCallingConfig",
    "function_calling_config",
    "gen_ai.request.tool_choice",
    "ai.prompt.toolChoice",
)
# where a call has its arguments
_ARGUMENTS = ("arguments", "args", "input", "parameters")
_NAMES = ("name", "toolName", "tool_name", "function_name")
# The names that libraries give the tool of an output, and of a class: `Reply`, `AnswerWithSources`.
_OUTPUT_NAME = re.compile(
    r"(?:final|submit|give|provide|return|emit|format|structured|json|model)?_?"
    r"(?:answer|response|reply|result|output|respond|json_tool_call|response_format|schema)s?"
    r"(?:_tool|_format|_model|_schema)?|[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)*"
)
_MIN_WORDS = 4  # of a text at another key than those of answers
_MAX_CALLS = 16  # of one reply


def read_tool_answer(span: Span) -> str | None:
    """Return the answer in the only tool call of a reply, as JSON text; None where it asks a tool.

    What is returned are the arguments: the answer's own text is at one of their keys.
    """
    calls = {
        (name, json.dumps(arguments, sort_keys=True, default=str)): arguments
        for name, arguments in _calls_of(span)
    }
    if len(calls) != 1:
        return None
    ((name, _),) = calls
    arguments = next(iter(calls.values()))
    if not isinstance(arguments, dict) or not _says_something(arguments):
        return None
    if not _is_forced(span, name) and not (
        _OUTPUT_NAME.fullmatch(name) and _answer_texts(arguments)
    ):
        return None
    return json.dumps(arguments, ensure_ascii=False)


def _answer_texts(arguments: Mapping[str, Any]) -> list[str]:
    keys = set(key_list("answer"))
    return [
        value
        for key, value in arguments.items()
        if isinstance(value, str) and value.strip() and key.lower() in keys
    ]


def _says_something(arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments hold an answer: a text that is no question to be searched for."""
    if _answer_texts(arguments):
        return True
    asked = set(key_list("question"))
    return any(
        isinstance(value, str) and len(value.split()) >= _MIN_WORDS and key.lower() not in asked
        for key, value in arguments.items()
    )


def _is_forced(span: Span, name: str) -> bool:
    """Return whether the request left the model no other tool than this one."""
    attributes = span.attributes
    for key in _REQUESTS:
        opened = parse_nested_json(attributes.get(key))
        if key in _CHOICES and _names(opened, name):
            return True
        for node in body_objects(opened) if isinstance(opened, dict | list) else ():
            if any(_names(node[choice], name) for choice in _CHOICES if choice in node):
                return True
    return False


def _names(choice: Any, name: str) -> bool:
    """Return whether a `tool_choice` names one tool: of OpenAI, Anthropic, Google or Bedrock."""
    choice = parse_nested_json(choice)
    if isinstance(choice, str):
        return choice == name
    if not isinstance(choice, dict):
        return False
    allowed = choice.get("allowedFunctionNames") or choice.get("allowed_function_names")
    if isinstance(allowed, list):
        return allowed == [name]
    if any(choice.get(key) == name for key in _NAMES):
        return True
    return any(_names(choice[key], name) for key in ("function", "tool") if key in choice)


def _calls_of(span: Span) -> Iterator[tuple[str, Any]]:
    """Yield name and arguments of every tool call of a reply, the same one possibly twice."""
    attributes = span.attributes
    found = 0
    for prefix, inner in (("llm.output_messages", "message."), ("gen_ai.completion", "")):
        for _, item in flattened_items(attributes, prefix):
            for _, call in flattened_items(item, f"{inner}tool_calls"):
                plain = {
                    key.removeprefix("tool_call.").removeprefix("function."): value
                    for key, value in call.items()
                }
                yield from _read_call(plain)
            legacy = {
                key.rpartition("function_call")[2].lstrip("._"): value
                for key, value in item.items()
                if key.startswith(f"{inner}function_call")
            }
            yield from _read_call(legacy)
    bodies = [parse_nested_json(attributes.get(key)) for key in _CALLS]
    bodies += reply_bodies(span)
    for event in span.events:
        if event.name in ("gen_ai.choice", "gen_ai.client.inference.operation.details"):
            bodies.append({key: parse_nested_json(one) for key, one in event.attributes.items()})
    for body in bodies:
        for node in body_objects(body) if isinstance(body, dict | list) else ():
            for read in _read_call(node):
                yield read
                found += 1
                if found >= _MAX_CALLS:
                    return


def _read_call(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the call that an object is: a name with arguments, in the words of any provider."""
    name = next((node[key] for key in _NAMES if isinstance(node.get(key), str)), "")
    given = next((node[key] for key in _ARGUMENTS if key in node), None)
    arguments = parse_nested_json(given)
    # a reply of OpenAI's "responses" repeats the schemas of all tools
    if name and isinstance(arguments, dict) and "properties" not in arguments:
        yield name, arguments
