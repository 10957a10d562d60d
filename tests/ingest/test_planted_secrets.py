"""Nothing of a key, a password or an address gets from a span into a trace, whatever its form."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from ragmeter.config.inputs import OtlpSettings, PrivacySettings
from ragmeter.core.redaction_rules import BUILTIN_RULES
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.redaction import Redactor
from ragmeter.ingest.requests.extraction import extract_requests
from ragmeter.trace import Trace

from tests.ingest.test_invented_requests import CASES

pytestmark = pytest.mark.slow

PLANTED = ("AKIAIOSFODNN7EXAMPL2", "Winterzauber2026x", "jane.doe.4711@corp.example")
SENTENCE = " My AWS key is {}, my password is {} and my mail {}".format(*PLANTED)
TEXTS = ("How long do refunds take?", "Refunds take 14 days", "Returns are free for 30 days.")


def plant(value: Any) -> Any:
    """Return a request with the sentence behind each of its texts, also within JSON in JSON."""
    if isinstance(value, str):
        for text in TEXTS:
            value = value.replace(text, text + SENTENCE)
        return value
    if isinstance(value, dict):
        return {key: plant(item) for key, item in value.items()}
    return [plant(item) for item in value] if isinstance(value, list) else value


def attribute(key: str, text: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": text}}


def planted_request(body: dict[str, Any]) -> bytes:
    body = plant(body)
    for resource in body["resourceSpans"]:
        resource["resource"]["attributes"].append(attribute("owner", PLANTED[2]))
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["attributes"] += [
                    attribute("metadata", json.dumps({"note": SENTENCE, PLANTED[2]: 1})),
                    attribute("langfuse.trace.metadata.note", SENTENCE),
                    attribute("session.id", PLANTED[2]),
                ]
                span.setdefault("status", {"code": 2})["message"] = SENTENCE
                event = {"name": PLANTED[2], "attributes": [attribute("note", SENTENCE)]}
                span.setdefault("events", []).append({"timeUnixNano": "1", **event})
    return json.dumps(body).encode()


def traces_of(body: bytes, redactor: Redactor) -> list[Trace]:
    decoded = decode_traces(body, json=True)
    spans = [redactor.span(span, {}) for span in decoded.spans]
    return redactor.extracted(extract_requests(spans, OtlpSettings()).traces, {})


def test_no_form_of_a_request_lets_a_planted_secret_through() -> None:
    rules = PrivacySettings.model_validate({"redact": list(BUILTIN_RULES)})
    redactor = Redactor(rules, monotonic=time.thread_time)
    shown = plain = 0
    for case in CASES:
        body = planted_request(case["body"])
        for trace in traces_of(body, redactor):
            shown += 1
            text = trace.model_dump_json()
            assert [one for one in PLANTED if one in text] == [], case["name"]
        for trace in traces_of(body, Redactor()):
            plain += PLANTED[0] in trace.model_dump_json()
    assert shown >= len(CASES) * 0.95
    assert plain >= len(CASES) * 0.9  # what is planted would be seen
