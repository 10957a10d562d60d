"""A suite from its file: YAML, or JSON lines with a question each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agent.canaries.suite import Suite

__all__ = ["SuiteError", "read_suite"]

MAX_BYTES = 32 * 2**20
MAX_SHOWN = 10  # mistakes; the rest are counted

Loc = Sequence[int | str]


class SuiteError(ValueError):
    """What is wrong with a suite: a line for each mistake, with file, line and field."""


def read_suite(path: Path, service: str | None = None) -> Suite:
    """`service` stands for the one that the file does not name. Raises OSError and `SuiteError`."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SuiteError(f"{path}: over {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path}: not UTF-8 (byte {error.start})") from None
    lines = path.suffix in (".jsonl", ".ndjson")
    return (_of_lines if lines else _of_yaml)(path, text, service)


def _of_yaml(path: Path, text: str, service: str | None) -> Suite:
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _check_keys(path, node)
        tree = None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SuiteError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or str(error)
        raise SuiteError(f"{path}{where}: {why}") from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(tree, dict):
        raise SuiteError(f"{path}: a mapping with `service` and `questions` is needed")
    return _suite(path, tree, service, lambda loc: _line_in(node, loc))


def _of_lines(path: Path, text: str, service: str | None) -> Suite:
    """A question a line; a first line without `query` holds the rest of the suite."""
    tree: dict[str, Any] = {}
    questions: list[Any] = []
    at: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SuiteError(f"{path}:{number}: {error}") from None
        if isinstance(item, dict) and "query" not in item and not questions and not tree:
            tree = item
            continue
        questions.append(item)
        at.append(number)
    tree = {**tree, "questions": questions}

    def line_of(loc: Loc) -> int:
        if len(loc) > 1 and loc[0] == "questions" and isinstance(loc[1], int):
            return at[loc[1]]
        return 1

    return _suite(path, tree, service, line_of)


def _suite(path: Path, tree: dict[str, Any], service: str | None, line_of: Any) -> Suite:
    if service is not None:
        tree = {**tree, "service": service}
    try:
        return Suite.model_validate(tree)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        shown = [
            f"{path}:{line_of(item['loc'])}: {_field(item['loc'])}"
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in found[:MAX_SHOWN]
        ]
        if len(found) > MAX_SHOWN:
            shown.append(f"and {len(found) - MAX_SHOWN} more")
        raise SuiteError("\n".join(shown)) from None


def _field(loc: Loc) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{text.removeprefix('.')}: " if text else ""


def _check_keys(path: Path, node: yaml.Node) -> None:
    """YAML takes the last of two equal keys, in silence."""
    todo, done = [node], set[int]()
    while todo:
        one = todo.pop()
        if id(one) in done:
            continue
        done.add(id(one))
        if isinstance(one, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in one.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        where = f"{path}:{key.start_mark.line + 1}"
                        raise SuiteError(f"{where}: {key.value!r} is there twice")
                    seen.add(key.value)
                todo.append(value)
        elif isinstance(one, yaml.SequenceNode):
            todo += one.value


def _line_in(node: yaml.Node | None, loc: Loc) -> int:
    """The line of a field, or of the nearest thing around it that is there."""
    line = 1
    for part in loc:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    line, found = key.start_mark.line + 1, value
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            found = node.value[part]
            line = found.start_mark.line + 1
        if found is None:
            break
        node = found
    return line
