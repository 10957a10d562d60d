"""A question to an LLM with its JSON schema, and the strict reading and validation of the answer.

What a judge is asked and what comes back: the seam between the metrics and the client.

A metric makes a `Question`; whoever can `ask` (the HTTP client, a cache before it, a fake in a
test) gives a `Verdict` or raises `JudgeFailed` with the reason that the score will carry.

From the text of an answer to its one JSON object, strictly.

Allowed around it: white space; the thoughts of a reasoning model (`<think>...</think>`) before
it; one code fence, with remarks outside of the fence. Everything else is an error: remarks around
a bare object, two fences, two objects, a property twice, NaN. What a strict reader refuses costs
one more call; what a lenient one guesses could be taken from a quoted passage.

Validation of an answer against the JSON Schema that was asked for.

Servers may ignore `response_format` without a word, so every answer is checked here. The subset:
`type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `minItems`,
`maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `anyOf`. Stricter than the standard in
one point: 2.0 is no integer, as the readers of answers take it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ragmeter.core.tiers import ScoringCost

T = TypeVar("T")

JudgeFailureReason = str
"""Why a call gave no verdict: `judge_error`, `judge_timeout`, `judge_refused`,
`judge_unavailable` (breaker open), `unparsable`, `too_long`."""


class JudgeFailed(Exception):
    """A call that gave no verdict. `reason` is what the score will carry; the text is for logs
    and holds nothing of the trace and no secret."""

    def __init__(self, reason: JudgeFailureReason, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JudgeQuestion(Generic[T]):
    """One call to a judge, rendered.

    `prompt` is the name and version of the prompt, `prompt_hash` the hash of its file. `schema` is
    the JSON Schema that the answer must have. `read` turns the decoded JSON into the verdict and
    raises ValueError, with a text that tells the judge what is wrong, where it cannot.
    `max_output_tokens` bounds the answer.
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
    """`fingerprint` says which instrument answered (12 hex digits): model as served, prompt hash,
    parameters, code version. `cached`: no call was made."""

    value: T
    fingerprint: str
    cached: bool = False


class QuestionAnswerer(Protocol):
    """Who answers questions."""

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """The verdict; what it cost, failed attempts too, is added to `cost`.

        Raises `JudgeFailed`, and nothing else on account of judge or network.
        """
        ...


class MalformedAnswer(ValueError):
    """No answer can be read. The text tells the judge why and quotes nothing of the answer."""


_CODE_FENCE = "```"


def parse_answer_json(text: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises `Malformed`, whatever the text is."""
    stripped = text.strip()
    if not stripped:
        raise MalformedAnswer("the answer is empty")
    if not stripped.startswith("{"):
        stripped = _unfenced(_without_thoughts(stripped))
    try:
        value = json.loads(
            stripped, object_pairs_hook=_each_property_once, parse_constant=_no_constant
        )
    except MalformedAnswer:
        raise
    except RecursionError:
        raise MalformedAnswer("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise MalformedAnswer("something follows the JSON object") from None
        raise MalformedAnswer(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # a number of thousands of digits
        raise MalformedAnswer("a number is too long") from None
    if not isinstance(value, dict):
        raise MalformedAnswer("a JSON object is needed, not another JSON value")
    return value


def _without_thoughts(text: str) -> str:
    # some chat templates write the opening tag themselves, and only the closing one is answered
    thoughts, closed, rest = text.rpartition("</think>")
    if closed and ("<think>" not in thoughts or thoughts.startswith("<think>")):
        return rest.strip()
    if text.startswith("<think>"):
        raise MalformedAnswer("the thoughts do not end")
    return text


def _unfenced(text: str) -> str:
    if _CODE_FENCE not in text:
        if not text.startswith("{"):
            raise MalformedAnswer("the answer must be only a JSON object")
        return text
    if text.startswith("{"):
        return text
    parts = text.split(_CODE_FENCE)
    if len(parts) != 3:
        raise MalformedAnswer("there must be one JSON object in at most one code fence")
    inside = parts[1]
    language, newline, body = inside.partition("\n")
    if newline and language.strip().lower() in ("", "json"):
        inside = body
    else:
        inside = inside.removeprefix("json")
    return inside.strip()


def _each_property_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise MalformedAnswer("a property stands there twice")
    return out


def _no_constant(name: str) -> None:
    raise MalformedAnswer("NaN and Infinity are no JSON")


# An answer as deep as this is none: no schema of ours goes past 5.
_MAX_DEPTH = 30

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def find_schema_violation(
    value: Any, schema: Mapping[str, Any], path: str = "answer"
) -> str | None:
    """What is wrong with a value, in words for the judge; none: nothing.

    The text names places of the schema and numbers, and quotes nothing of the value, names of
    unknown properties aside.
    """
    if path.count(".") + path.count("[") > _MAX_DEPTH:
        return f"{path} is too deep"
    problem = _type_violation(value, schema, path) or _enum_violation(value, schema, path)
    if problem:
        return problem
    if isinstance(value, dict):
        return _object_violation(value, schema, path)
    if isinstance(value, list):
        return _array_violation(value, schema, path)
    if isinstance(value, str):
        return _bounds_violation(
            len(value), schema, path, "minLength", "maxLength", "characters in "
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounds_violation(value, schema, path, "minimum", "maximum", "")
    return None


def _type_violation(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    wanted = schema.get("type")
    if wanted is None:
        return None
    names: Sequence[str] = [wanted] if isinstance(wanted, str) else wanted
    if any(
        isinstance(value, _PYTHON_TYPES[name])
        and (name == "boolean" or not isinstance(value, bool))
        for name in names
    ):
        return None
    return f"{path} must be of type {' or '.join(names)}"


def _enum_violation(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    for key in ("const", "enum"):
        if key in schema:
            allowed = [schema[key]] if key == "const" else schema[key]
            # 1, 1.0 and true are equal to Python, not to a reader of answers
            if not any(value == one and type(value) is type(one) for one in allowed):
                return f"{path} must be one of {', '.join(map(json.dumps, allowed))}"
    if "anyOf" in schema and all(
        find_schema_violation(value, one, path) for one in schema["anyOf"]
    ):
        return f"{path} fits none of the allowed forms"
    return None


def _object_violation(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path}.{name} is missing"
    for name, item in value.items():
        inner = properties.get(name)
        if inner is None:
            inner = schema.get("additionalProperties", True)
            if inner is False:
                return f"{path} must not have a property {name[:60]!r}"
            if inner is True:
                continue
        problem = find_schema_violation(item, inner, f"{path}.{name}")
        if problem:
            return problem
    return None


def _array_violation(value: list[Any], schema: Mapping[str, Any], path: str) -> str | None:
    problem = _bounds_violation(len(value), schema, path, "minItems", "maxItems", "items in ")
    if problem:
        return problem
    inner = schema.get("items")
    if inner is not None:
        for index, item in enumerate(value):
            problem = find_schema_violation(item, inner, f"{path}[{index}]")
            if problem:
                return problem
    return None


def _bounds_violation(
    size: float, schema: Mapping[str, Any], path: str, least: str, most: str, what: str
) -> str | None:
    shown = f": there are {size}" if what else ""
    if least in schema and size < schema[least]:
        return f"at least {schema[least]} {what}{path}{shown}".replace("  ", " ")
    if most in schema and size > schema[most]:
        return f"at most {schema[most]} {what}{path}{shown}".replace("  ", " ")
    return None
