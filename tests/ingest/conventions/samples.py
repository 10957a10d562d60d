"""Spans of the sample files in tests/data/otlp, whatever form they are in."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from ragmeter.ingest.conventions.key_tables import key_table, matches_table
from ragmeter.ingest.spans import Span, SpanEvent

__all__ = ["matches", "printed_spans", "span", "wire_spans"]

DATA = Path(__file__).parents[2] / "data" / "otlp"


def span(name: str = "", /, **fields: Any) -> Span:
    """A span with ids, for a test of one."""
    return Span(
        trace_id="0" * 31 + "1",
        span_id="0" * 15 + "1",
        name=name,
        start=fields.pop("start", 1_000_000_000_000_000_000),
        end=fields.pop("end", 1_000_000_002_000_000_000),
        **fields,
    )


def matches(convention: str, span: Span) -> bool:
    """Whether the table of a convention takes a span for one of its own."""
    return matches_table(key_table(convention), span)


def printed_spans(name: str) -> list[Span]:
    """Spans as the Python SDK prints them (`ReadableSpan.to_json`)."""
    return [
        Span(
            trace_id=raw["context"]["trace_id"].removeprefix("0x"),
            span_id=raw["context"]["span_id"].removeprefix("0x"),
            parent_id=(raw["parent_id"] or "").removeprefix("0x"),
            name=raw["name"],
            start=_nanoseconds(raw["start_time"]),
            end=_nanoseconds(raw["end_time"]),
            status={"UNSET": 0, "OK": 1, "ERROR": 2}[raw["status"]["status_code"]],
            attributes=raw["attributes"],
            events=[
                SpanEvent(one["name"], _nanoseconds(one["timestamp"]), one["attributes"])
                for one in raw["events"]
            ],
            resource=raw["resource"]["attributes"],
        )
        for raw in json.loads((DATA / name).read_text())
    ]


def wire_spans(name: str) -> list[Span]:
    """Spans of one OTLP/JSON request with hex ids."""
    found = []
    for resource in json.loads((DATA / name).read_text())["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for raw in scope["spans"]:
                found.append(
                    Span(
                        trace_id=raw["traceId"],
                        span_id=raw["spanId"],
                        parent_id=raw.get("parentSpanId", ""),
                        name=raw["name"],
                        start=int(raw["startTimeUnixNano"]),
                        end=int(raw["endTimeUnixNano"]),
                        status=raw.get("status", {}).get("code", 0),
                        attributes=_attributes(raw.get("attributes")),
                        events=[
                            SpanEvent(
                                one["name"],
                                int(one["timeUnixNano"]),
                                _attributes(one.get("attributes")),
                            )
                            for one in raw.get("events", [])
                        ],
                        scope=scope["scope"]["name"],
                        resource=_attributes(resource["resource"].get("attributes")),
                    )
                )
    return found


def _attributes(raw: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in raw or []}


def _value(value: dict[str, Any]) -> Any:
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [_value(one) for one in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def _nanoseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000
