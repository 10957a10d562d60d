"""JSON paths and templates of a suite: what is sent to a service, and what is read of its reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
)

MISSING = object()  # no value; None is a value, JSON's null

MAX_DEPTH = 20  # of a template

_PATH_SEGMENT = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]")
_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


def _split_path(path: str) -> list[str]:
    """Split a path into keys and indices. ValueError if it is not one."""
    if path.startswith("/"):  # RFC 6901
        return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]
    if path in ("$", "."):
        return []
    bare = path.removeprefix("$")
    parts = list[str]()
    at = 0
    while at < len(bare):
        step = _PATH_SEGMENT.match(bare, at)
        if step is None:
            break
        parts.append(step[1] or step[2])
        at = step.end()
    if at < len(bare) or not parts:
        raise ValueError("a path like data.answer, choices[0].text, /data/answer or $ is needed")
    return parts


def _validate_path(path: str) -> str:
    _split_path(path)
    return path


JsonPath = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_validate_path)]


def resolve_json_path(document: Any, path: str) -> Any:
    """Return the value at a path of a JSON document, or `MISSING`."""
    for part in _split_path(path):
        if isinstance(document, Mapping):
            document = document.get(part, MISSING)
        elif isinstance(document, list) and part.isascii() and part.isdigit():
            index = int(part) if len(part) < 10 else len(document)
            document = document[index] if index < len(document) else MISSING
        else:
            return MISSING
        if document is MISSING:
            return MISSING
    return document


def template_names(template: Any, depth: int = 0) -> set[str]:
    """Return the names in the placeholders of a template."""
    if depth > MAX_DEPTH:
        raise ValueError("the template is nested too deeply")
    if isinstance(template, str):
        return set(_PLACEHOLDER.findall(template))
    if isinstance(template, Mapping):
        items = [*template, *template.values()]
    else:
        items = template if isinstance(template, list) else []
    return {name for item in items for name in template_names(item, depth + 1)}


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced by values.

    A text that is only a placeholder becomes the value itself, so a list stays a list. Values are
    not expanded again: a question may contain `{{env.KEY}}` as its text.

    Raises:
        KeyError: A name has no value.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), template)
    if isinstance(template, Mapping):
        return {
            str(fill_template(key, values)): fill_template(item, values)
            for key, item in template.items()
        }
    if isinstance(template, list):
        return [fill_template(item, values) for item in template]
    return template
