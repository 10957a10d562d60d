"""The queries of a dashboard as Grafana sends them: with its variables put in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from deploy.dashboards.files import DASHBOARDS

__all__ = ["Query", "Values", "boards", "choose", "fill", "panels", "queries", "run"]

Values = dict[str, str]
"""What stands for each variable in a query."""


@dataclass(frozen=True, slots=True)
class Query:
    board: str
    panel: str
    expr: str
    instant: bool = False


def boards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All but the rows; also those in folded rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(name: str, board: Mapping[str, Any]) -> list[Query]:
    """Of panels and annotations."""
    found = [
        Query(name, panel["title"], target["expr"], bool(target.get("instant")))
        for panel in panels(board)
        for target in panel["targets"]
    ]
    notes = board["annotations"]["list"]
    return found + [Query(name, f"annotation {note['name']}", note["expr"]) for note in notes]


def fill(text: str, values: Mapping[str, str]) -> str:
    """`$name` and `${name}`, where there is a value: Grafana leaves the rest as it is."""

    def value(found: re.Match[str]) -> str:
        return values.get(found[1] or found[2], found[0])

    return re.sub(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", value, text)


def choose(
    client: httpx.Client, board: Mapping[str, Any], span: float, interval: float
) -> tuple[Values, dict[str, list[str]]]:
    """Every variable as it stands when the dashboard opens, and what each can be."""
    values: Values = {
        # four scrapes at least, as Grafana has it
        "__rate_interval": f"{max(4 * interval, 4):.0f}s",
        "__range": f"{span:.0f}s",
    }
    options: dict[str, list[str]] = {}
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "query":
            options[name] = _options(client, fill(variable["query"], values), variable)
            values[name] = _current(variable, options[name])
        elif variable["type"] == "custom":
            values[name] = variable["current"]["value"]
        elif variable["type"] == "textbox":
            values[name] = variable["query"]
    return values, options


def _options(client: httpx.Client, query: str, variable: Mapping[str, Any]) -> list[str]:
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert asked is not None, query
    answer = client.get(f"/label/{asked[2]}/values", params={"match[]": asked[1]})
    answer.raise_for_status()
    keep = re.compile((variable.get("regex") or "/.*/").strip("/"))
    return [value for value in answer.json()["data"] if keep.match(value)]


def _current(variable: Mapping[str, Any], options: list[str]) -> str:
    wanted = (variable.get("current") or {}).get("value") or ""
    if variable.get("includeAll"):
        return str(variable["allValue"])
    return wanted if wanted in options else (options or [""])[0]


def run(
    client: httpx.Client, query: Query, values: Values, start: float, end: float, step: float
) -> list[dict[str, Any]]:
    """The series. AssertionError where Prometheus refuses the query."""
    parameters: dict[str, Any] = {"query": fill(query.expr, values)}
    if query.instant:
        answer = client.get("/query", params={**parameters, "time": end})
    else:
        times = {"start": start, "end": end, "step": step}
        answer = client.get("/query_range", params={**parameters, **times})
    assert answer.status_code == 200, (query.panel, parameters["query"], answer.text)
    return list(answer.json()["data"]["result"])
