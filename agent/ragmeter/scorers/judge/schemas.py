"""Schemas of the judge's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEXT_SCHEMA = {"type": "string"}


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def labels_schema(names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """Return the schema of one label for each name.

    An object with a key for each, and not a list: no label can be too many, too few or slip to
    another name, and servers that write by the schema cannot get the number wrong.
    """
    label = {"type": "string", "enum": list(values)}
    return object_schema(dict.fromkeys(names, label))


def list_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


def enum_schema(*values: str) -> dict[str, Any]:
    """Return the schema of one of these words."""
    return {"type": "string", "enum": list(values)}
