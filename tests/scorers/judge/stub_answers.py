"""Answers of the stub judge: made from the schema that a request holds."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

Messages = list[dict[str, str]]
Answering = Callable[[Messages, Mapping[str, Any]], object]


def generated(schema: Mapping[str, Any], rng: random.Random) -> Any:
    """A value that satisfies a schema of the subset that ragmeter.scorers.llm.questions knows."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: generated(one, rng) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        least = schema.get("minItems", 0)
        number = rng.randint(least, schema.get("maxItems", least + 3))
        return [generated(schema.get("items", {}), rng) for _ in range(number)]
    if kind == "string":
        return f"text {rng.getrandbits(32):08x}"
    if kind in ("integer", "number"):
        return rng.randint(0, 3) if kind == "integer" else rng.uniform(0, 3)
    return rng.random() < 0.5


def by_content(messages: Messages, schema: Mapping[str, Any]) -> object:
    """The same answer for the same question, valid for its schema."""
    text = "\0".join(message["content"] for message in messages[:2])
    seed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return generated(schema, random.Random(seed))


def schema_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """From `response_format`, else from the prompt."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        return form["json_schema"]["schema"]  # type: ignore[no-any-return]
    if "schema" in form:
        return form["schema"]  # type: ignore[no-any-return]
    for message in body["messages"]:
        _, found, after = message["content"].rpartition("JSON Schema:\n")
        if found and message["role"] == "system":
            return json.JSONDecoder().raw_decode(after)[0]  # type: ignore[no-any-return]
    return {"type": "object"}
