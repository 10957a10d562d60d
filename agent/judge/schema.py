"""Validation of an answer against the JSON Schema that was asked for.

Servers may ignore `response_format` without a word, so every answer is checked here. The subset:
`type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `minItems`,
`maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `anyOf`. Stricter than the standard in
one point: 2.0 is no integer, as the readers of answers take it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["violation"]

# An answer as deep as this is none: no schema of ours goes past 5.
MAX_DEPTH = 30

PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def violation(value: Any, schema: Mapping[str, Any], path: str = "answer") -> str | None:
    """What is wrong with a value, in words for the judge; none: nothing.

    The text names places of the schema and numbers, and quotes nothing of the value, names of
    unknown properties aside.
    """
    if path.count(".") + path.count("[") > MAX_DEPTH:
        return f"{path} is too deep"
    problem = _type(value, schema, path) or _choice(value, schema, path)
    if problem:
        return problem
    if isinstance(value, dict):
        return _object(value, schema, path)
    if isinstance(value, list):
        return _array(value, schema, path)
    if isinstance(value, str):
        return _bounds(len(value), schema, path, "minLength", "maxLength", "characters in ")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounds(value, schema, path, "minimum", "maximum", "")
    return None


def _type(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    wanted = schema.get("type")
    if wanted is None:
        return None
    names: Sequence[str] = [wanted] if isinstance(wanted, str) else wanted
    if any(
        isinstance(value, PYTHON_TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in names
    ):
        return None
    return f"{path} must be of type {' or '.join(names)}"


def _choice(value: Any, schema: Mapping[str, Any], path: str) -> str | None:
    for key in ("const", "enum"):
        if key in schema:
            allowed = [schema[key]] if key == "const" else schema[key]
            # 1, 1.0 and true are equal to Python, not to a reader of answers
            if not any(value == one and type(value) is type(one) for one in allowed):
                return f"{path} must be one of {', '.join(map(json.dumps, allowed))}"
    if "anyOf" in schema and all(violation(value, one, path) for one in schema["anyOf"]):
        return f"{path} fits none of the allowed forms"
    return None


def _object(value: dict[str, Any], schema: Mapping[str, Any], path: str) -> str | None:
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
        problem = violation(item, inner, f"{path}.{name}")
        if problem:
            return problem
    return None


def _array(value: list[Any], schema: Mapping[str, Any], path: str) -> str | None:
    problem = _bounds(len(value), schema, path, "minItems", "maxItems", "items in ")
    if problem:
        return problem
    inner = schema.get("items")
    if inner is not None:
        for index, item in enumerate(value):
            problem = violation(item, inner, f"{path}[{index}]")
            if problem:
                return problem
    return None


def _bounds(
    size: float, schema: Mapping[str, Any], path: str, least: str, most: str, what: str
) -> str | None:
    shown = f": there are {size}" if what else ""
    if least in schema and size < schema[least]:
        return f"at least {schema[least]} {what}{path}{shown}".replace("  ", " ")
    if most in schema and size > schema[most]:
        return f"at most {schema[most]} {what}{path}{shown}".replace("  ", " ")
    return None
