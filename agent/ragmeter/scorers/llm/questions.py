"""A question to an LLM, its verdict, and the strict reading of the answer.

A metric makes a `JudgeQuestion`; a `QuestionAnswerer` (the HTTP client, a cache before it) gives a
`JudgeVerdict` or raises `JudgeFailed` with the reason that the score will carry.

An answer is one JSON object and nothing else. The thoughts of a reasoning model
(`<think>...</think>` and its kin) or words that only announce it may stand before it, one code
fence around it, and a token that ends a turn behind it: marks that `dialect.clean_text` breaks in
every prompt, so that no passage can bring them. All else is an error, remarks too. A strict reader
may cost one more call; a lenient one could take its guess from a quoted passage. Servers may ignore
`response_format`, so every answer is also checked against its schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from ragmeter.answers.thoughts import end_of_leading_thoughts, find_thoughts
from ragmeter.core.errors import DataError
from ragmeter.core.tiers import ScoringCost
from ragmeter.reasons import Reason

T = TypeVar("T")

# Why a call gave no verdict.
JudgeFailureReason = Literal[
    Reason.JUDGE_ERROR,
    Reason.JUDGE_TIMEOUT,
    Reason.JUDGE_REFUSED,
    Reason.JUDGE_UNAVAILABLE,  # the breaker is open
    Reason.UNPARSABLE,
    Reason.TOO_LONG,
]

_CODE_FENCE = "```"
_LANGUAGE = re.compile(r"\Ajson\w?\b", re.IGNORECASE)
_BEGINS_JSON = ("{", "[", '"')

# Blanks, and what is as invisible: a byte order mark, zero-width blanks.
_AROUND = " \t\r\n\f\v\u00a0\u200b\u2060\ufeff"
# Tokens of templates around the whole answer: of GLM, Command A, OpenThoughts and gpt-oss.
_FRAMES = (
    ("<|begin_of_box|>", "<|end_of_box|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<answer>", "</answer>"),
    ("<response>", "</response>"),
)
# Some servers leave the token of the template that ended the answer.
_ENDS_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "</s>",
)

# Words that announce the object and can say nothing of a passage: "Sure! Here is the JSON object:".
_ANNOUNCING = (
    "sure|certainly|okay|ok|of course|here|below|is|it|this|the|my|a|an|as|in|you|requested|asked"
    "|required|for|json|object|verdict|answer|response|output|result|format"
)
_ANNOUNCEMENT = re.compile(
    rf"(?:(?:{_ANNOUNCING})\b[ ,.!*]{{0,4}}){{1,20}}:\s*(?=[{{`])", re.IGNORECASE
)

# A deeper answer is none: no schema of ours goes past 5.
_MAX_DEPTH = 30

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


class JudgeFailed(DataError):
    """A call that gave no verdict.

    `reason` is what the score will carry. The text is for logs and holds nothing of the trace and
    no secret; nor does `server`, the server's own words.
    """

    def __init__(self, reason: str, message: str = "", server: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.server = server


class MalformedAnswer(DataError, ValueError):
    """An answer that is no JSON object; the text tells the judge why and quotes nothing of it.

    Args:
        kind: What is wrong, in words of which there are few, for a log.
        place: Where it is.
    """

    def __init__(self, kind: str, place: str = "") -> None:
        super().__init__(kind + place)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class JudgeQuestion(Generic[T]):
    """One call to a judge, rendered.

    Args:
        prompt: Name and version of the prompt.
        read: Turns the decoded answer into the verdict; raises ValueError, with a text that tells
            the judge what is wrong.
        max_output_tokens: Bound of the answer.
    """

    prompt: str
    prompt_hash: str
    system: str
    user: str
    schema: Mapping[str, Any]
    read: Callable[[Any], T]
    max_output_tokens: int = 200


@dataclass(frozen=True, slots=True)
class JudgeVerdict(Generic[T]):
    """The answer to a question.

    Args:
        fingerprint: Instrument that answered, 12 hex digits (`served_model.judge_fingerprint`).
        data: Decoded JSON that `value` was read from, which a cache stores.
        cached: No call was made for it.
    """

    value: T
    fingerprint: str
    data: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False


class QuestionAnswerer(Protocol):
    """A judge, or a cache before one."""

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """Return the verdict; its cost, failed attempts included, is added to `cost`.

        Raises:
            JudgeFailed: There is no verdict. Judge and network cause no other exception.
        """
        ...


def read_answer(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of an answer, which satisfies the schema.

    Some models write it under one key of their own (`{"result": {...}, "error": null}`): that is
    taken off where the whole does not satisfy the schema and what is inside does.

    Raises:
        MalformedAnswer: The answer is anything else, or holds anything else.
        ValueError: It does not satisfy the schema; the text says why.
    """
    data = parse_answer_json(text)
    problem = find_schema_violation(data, schema)
    if problem is None:
        return data
    [inner, *others] = [value for value in data.values() if value is not None] or [None]
    if isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    if not others and isinstance(inner, dict) and find_schema_violation(inner, schema) is None:
        return inner
    raise ValueError(problem)


def parse_answer_json(text: str) -> dict[str, Any]:
    """Return the JSON object of an answer: bare, alone in a list, or written as a JSON string.

    Raises:
        MalformedAnswer: The answer is anything else, or holds anything else.
    """
    value = _load(_undressed(text))
    if isinstance(value, str):
        value = _load(_undressed(value))
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise MalformedAnswer("the answer must be only a JSON object")
    return value


def _undressed(text: str) -> str:
    """Return an answer without what models and servers write around it."""
    stripped = text.strip(_AROUND)
    if not stripped:
        raise MalformedAnswer("the answer is empty")
    if stripped.startswith("{"):
        return _without_end_of_turn(stripped)
    body = _unframed(_without_thoughts(_without_end_of_turn(stripped)))
    announced = _ANNOUNCEMENT.match(body)
    body = _unfenced(body[announced.end() :] if announced else body)
    if not body.startswith(_BEGINS_JSON) and any(
        start == 0 for start, _ in find_thoughts(stripped)
    ):
        raise MalformedAnswer("thoughts end that never began: let the server take them out")
    return body


def _load(text: str) -> Any:
    if not text.startswith(_BEGINS_JSON):
        raise MalformedAnswer("the answer must be only a JSON object")
    try:
        return json.loads(text, object_pairs_hook=_each_property_once, parse_constant=_no_constant)
    except MalformedAnswer:
        raise
    except RecursionError:
        raise MalformedAnswer("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise MalformedAnswer("something follows the JSON object") from None
        raise MalformedAnswer(f"not JSON: {error.msg}", f" at character {error.pos}") from None
    except ValueError:  # a number of thousands of digits
        raise MalformedAnswer("a number is too long") from None


def _without_end_of_turn(text: str) -> str:
    end = next((end for end in _ENDS_OF_TURN if text.endswith(end)), "")
    return text.removesuffix(end).rstrip()


def _without_thoughts(text: str) -> str:
    """Return what follows the thoughts, which the answer must begin: a quoted end could move it."""
    end = end_of_leading_thoughts(text)
    if end and end == len(text):
        raise MalformedAnswer("the thoughts must end, and the answer follow them")
    return text[end:].strip(_AROUND)


def _unframed(text: str) -> str:
    """Return the content of the tokens by which a model's template marks an answer as a whole."""
    for begin, end in _FRAMES:
        if text.startswith(begin) and text.endswith(end):
            return text.removeprefix(begin).removesuffix(end).strip()
    return text


def _unfenced(text: str) -> str:
    """Return the content of a fence that is the whole text."""
    if not text.startswith(_CODE_FENCE):
        return text
    body = text.removeprefix(_CODE_FENCE).removesuffix(_CODE_FENCE)
    if not text.endswith(_CODE_FENCE) or len(body) != len(text) - 2 * len(_CODE_FENCE):
        raise MalformedAnswer("nothing may follow the code fence")
    return _LANGUAGE.sub("", body).strip()


def _each_property_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise MalformedAnswer("a property stands there twice")
    return out


def _no_constant(name: str) -> None:
    raise MalformedAnswer("NaN and Infinity are no JSON")


def find_schema_violation(
    value: Any, schema: Mapping[str, Any], path: str = "answer"
) -> str | None:
    """Return what is wrong with a value, for the judge to read; None: nothing.

    Known are the keywords of our schemas: `type`, `enum`, `properties`, `required`,
    `additionalProperties` and `items`. Stricter than the standard: 2.0 is no integer, as the
    readers of answers take it. The text names places of the schema, and quotes nothing of the
    value but names of unknown properties.
    """
    if path.count(".") + path.count("[") > _MAX_DEPTH:
        return f"{path} is too deep"
    kind = schema.get("type")
    choices = schema.get("enum")
    if kind is not None and type(value) not in _PYTHON_TYPES[kind]:
        return f"{path} must be of type {kind}"
    # 1, 1.0 and true are equal to Python, not to a reader of answers
    if choices is not None and not any(
        value == choice and type(value) is type(choice) for choice in choices
    ):
        return f"{path} must be one of {', '.join(map(json.dumps, choices))}"
    if isinstance(value, dict):
        return _object_violation(value, schema, path)
    if isinstance(value, list) and "items" in schema:
        problems = (
            find_schema_violation(item, schema["items"], f"{path}[{index}]")
            for index, item in enumerate(value)
        )
        return next(filter(None, problems), None)
    return None


def _object_violation(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> str | None:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path}.{name} is missing"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        inner = properties.get(name, others)
        if inner is False:
            return f"{path} must not have a property {name[:60]!r}"
        if inner is not True and (problem := find_schema_violation(item, inner, f"{path}.{name}")):
            return problem
    return None
