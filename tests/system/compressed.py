"""The rules for Prometheus on a clock that runs faster.

Prometheus has no clock but the wall's. So the story is played faster, and every duration of the
rules is divided by the same factor: intervals, `for`, `keep_firing_for`, ranges and offsets.
Thresholds, labels, names and everything else stay as they are written. So do the alerts on the
agent's process: whether that answers is a matter of the clock on the wall, and their five minutes
would be three seconds in which a busy machine may well not answer.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from ragmeter.core.durations import parse_duration

__all__ = ["BY_THE_CLOCK", "compressed", "compressed_routes", "faster"]

BY_THE_CLOCK = ("RagmeterAbsent", "RagmeterDown", "RagmeterNotReady", "RagmeterStalled")

_RANGE = re.compile(r"\[(\w+)\]|(?<= offset )(\w+)")
_KEYS = ("interval", "for", "keep_firing_for")


def faster(duration: str, factor: float) -> str:
    """`5m` by 60 is `5000ms`."""
    return f"{max(1, round(1000 * parse_duration(duration) / factor))}ms"


def _expression(text: str, factor: float) -> str:
    def one(found: re.Match[str]) -> str:
        inside, offset = found.groups()
        return f"[{faster(inside, factor)}]" if inside else faster(offset, factor)

    return _RANGE.sub(one, text)


def compressed_routes(text: str, factor: float) -> dict[str, Any]:
    """Alertmanager's settings with the durations divided."""
    tree: dict[str, Any] = yaml.safe_load(text)
    for route in (tree["route"], *tree["route"]["routes"]):
        for key in ("group_wait", "group_interval", "repeat_interval"):
            if key in route:
                route[key] = faster(route[key], factor)
    return tree


def compressed(text: str, factor: float) -> str:
    """A rule file with the durations divided."""
    tree: dict[str, Any] = yaml.safe_load(text)
    for group in tree["groups"]:
        for entry in (group, *group["rules"]):
            if entry.get("alert") in BY_THE_CLOCK:
                continue
            for key in _KEYS:
                if key in entry:
                    entry[key] = faster(entry[key], factor)
            if "expr" in entry:
                entry["expr"] = _expression(entry["expr"], factor)
    return yaml.safe_dump(tree, sort_keys=False, width=1_000, allow_unicode=True)
