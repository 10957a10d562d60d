"""Kubernetes objects against the schemas of its API and of custom resources.

Run by the interpreter of `.cache/deploy-tools`, which has what is imported here: arguments are the
Kubernetes version and the folder of custom schemas; objects come as a JSON list on stdin, and what
is wrong with them goes to stdout as a JSON list of lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped, import-not-found, unused-ignore]
import kubernetes_validate  # type: ignore[import-untyped, import-not-found, unused-ignore]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
OWN = ("apiVersion", "kind", "metadata")  # of every object; its metadata are checked by the server


def closed(schema: Any) -> Any:
    """With unknown fields refused: the API server would drop them without a word."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if "properties" in made and "additionalProperties" not in made and not made.get(PRESERVE):
        made["additionalProperties"] = False
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
    return made


def custom(item: dict[str, Any], folder: Path) -> list[str]:
    path = folder / f"{item['apiVersion'].replace('/', '_')}_{item['kind']}.json"
    if not path.is_file():
        return ["no schema is known"]
    schema = closed(json.loads(path.read_text()))
    for name in OWN:
        schema["properties"][name] = {}
    found = jsonschema.Draft202012Validator(schema).iter_errors(item)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


def errors(item: dict[str, Any], version: str, folder: Path) -> list[str]:
    try:
        kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return custom(item, folder)
    except kubernetes_validate.ValidationError as error:
        return [f"{error.json_path}: {error.message[:300]}"]
    return []


if __name__ == "__main__":
    notified = [
        f"{item['kind']} {item['metadata']['name']}: {line}"
        for item in json.load(sys.stdin)
        for line in errors(item, sys.argv[1], Path(sys.argv[2]))
    ]
    json.dump(notified, sys.stdout)
