"""From a dashboard and what Prometheus answers to what the page draws."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.deploy.dashboard_queries import Query, Values, fill, run

__all__ = ["drawn"]

Panel = dict[str, Any]


def drawn(
    client: httpx.Client,
    board: Mapping[str, Any],
    values: Values,
    options: Mapping[str, list[str]],
    times: tuple[float, float, float],
) -> list[Panel]:
    """Every panel with its place, and its series or rows; repeated rows stand once a value."""
    found: list[Panel] = []
    for panel, own in _repeated(board["panels"], values, options):
        if panel["type"] == "row":
            folded = "▸ " if panel.get("collapsed") else ""
            found.append({**panel, "title": folded + fill(panel["title"], own), "panels": []})
            continue
        results = [
            (
                target,
                run(
                    client, Query("", panel["title"], target["expr"], _instant(target)), own, *times
                ),
            )
            for target in panel["targets"]
        ]
        shown = {key: panel[key] for key in ("title", "type", "gridPos", "fieldConfig", "options")}
        if panel["type"] == "table":
            shown["table"] = _table(panel, results)
        else:
            shown["series"] = [
                {"name": _name(target, one["metric"]), "values": _points(one)}
                for target, series in results
                for one in series
            ]
        if any(target.get("exemplar") for target, _ in results):
            shown["exemplars"] = _exemplars(client, panel, own, times)
        found.append(shown)
    return found


def _instant(target: Mapping[str, Any]) -> bool:
    return bool(target.get("instant"))


def _repeated(
    panels: list[Panel], values: Values, options: Mapping[str, list[str]]
) -> Iterator[tuple[Panel, Values]]:
    """Rows that repeat, with the panels up to the next one, moved down by what came before."""
    blocks: list[list[Panel]] = [[]]
    for panel in panels:
        if panel["type"] == "row":
            blocks.append([])
        blocks[-1].append(panel)
    moved = 0
    for block in blocks:
        name = block[0].get("repeat") if block else None
        if name is None or block[0]["type"] != "row":
            yield from ((_down(panel, moved), values) for panel in block)
            continue
        height = max(_bottom(panel) for panel in block) - block[0]["gridPos"]["y"]
        for number, value in enumerate(options[name]):
            down = moved + number * height
            yield from ((_down(panel, down), values | {name: value}) for panel in block)
        moved += (len(options[name]) - 1) * height


def _down(panel: Panel, rows: int) -> Panel:
    place = panel["gridPos"]
    return {**panel, "gridPos": {**place, "y": place["y"] + rows}}


def _bottom(panel: Panel) -> int:
    return int(panel["gridPos"]["y"] + panel["gridPos"]["h"])


def _name(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    legend = str(target.get("legendFormat") or "__auto")
    if legend == "__auto":
        return ", ".join(f"{key}={value}" for key, value in labels.items() if key != "__name__")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend).strip()


def _points(series: Mapping[str, Any]) -> list[tuple[float, float | None]]:
    raw = series["values"] if "values" in series else [series["value"]]
    return [(float(at), _number(value)) for at, value in raw]


def _number(text: str) -> float | None:
    value = float(text)
    return value if abs(value) < float("inf") and value == value else None


def _exemplars(
    client: httpx.Client, panel: Panel, values: Values, times: tuple[float, float, float]
) -> list[tuple[float, float]]:
    found = []
    for target in panel["targets"]:
        query = fill(target["expr"], values)
        asked: dict[str, str | float] = {"query": query, "start": times[0], "end": times[1]}
        answer = client.get("/query_exemplars", params=asked).json()
        for series in answer.get("data") or []:
            found += [(one["timestamp"], float(one["value"])) for one in series["exemplars"]]
    return found


def _table(panel: Panel, results: list[tuple[Any, list[Any]]]) -> dict[str, Any]:
    """The transformations `merge` and `organize`, as far as our panels use them."""
    organize = panel["transformations"][1]["options"]
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    fields: list[str] = []
    for target, series in results:
        value = "Value" if len(results) == 1 else f"Value #{target['refId']}"
        for one in series:
            key = tuple(sorted(one["metric"].items()))
            row = rows.setdefault(key, dict(one["metric"]))
            row[value] = _number(one["value"][1])
            fields += [name for name in (*one["metric"], value) if name not in fields]
    order, names = organize["indexByName"], organize["renameByName"]
    kept = [name for name in fields if not organize["excludeByName"].get(name)]
    kept.sort(key=lambda name: order.get(name, 99))
    columns = [names.get(name, name) for name in kept]
    body = [[row.get(name) for name in kept] for row in rows.values()]
    for sort in panel["options"].get("sortBy") or []:
        place = columns.index(sort["displayName"]) if sort["displayName"] in columns else 0
        body.sort(key=lambda row: str(row[place] or ""))
    return {"columns": columns, "rows": body}
