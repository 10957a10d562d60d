"""The traffic of a chaos run: what a trace says is a function of the seed and its number; only its
time is that of its sending.

How good the passages of a trace are stands in their text, for the judge beside this file to read.
Failed traces and those of an overload are much worse than the others: both are judged with another
probability, so that an estimate that forgets a weight is wrong by far.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.requests.extraction import extract_requests

from tests.ingest.building import T0, Run, documents, messages
from tests.kafka.otlp_bodies import as_proto

__all__ = ["POISON", "SPANS", "WAYS", "lines_of", "native", "spans"]

WAYS: dict[str, tuple[str, ...]] = {
    "http": ("shop", "desk"),
    "file": ("files",),
    "overload": ("shop", "desk"),
}
"""Services of each way in; overload is more of what comes over HTTP."""

SPANS = "spans"
"""The service that is instrumented for OpenTelemetry."""

POISON = (b'{"trace_id": 1', b"[]", b'{"service": "x"}', b"\x00", b"\xff\xfe", b"[" * 1000)

GOOD, BAD = (0, 5, 15, 80), (70, 20, 5, 5)
"""Weights of the grades 0 to 3."""


def _passage(grade: int, number: int) -> str:
    # few different ones: the undisturbed run asks the judge about each once
    return f"quality-{grade}: click Forgot password on the login page to reset it, way {number % 5}"


def question(service: str, chance: random.Random) -> str:
    """It names the service, for the judge to count by."""
    return f"How do I reset my password at {service}, case {chance.randrange(5)}?"


def _reported(chance: random.Random, bad: bool) -> tuple[list[str], str]:
    """Passages and answer."""
    grades = chance.choices(range(4), BAD if bad else GOOD, k=2)
    passages = [_passage(grade, chance.randrange(100)) for grade in grades]
    if chance.random() < (0.5 if bad else 0.05):
        return passages, "Sorry, that I cannot say."
    return passages, f"Click Forgot password on the login page, way {chance.randrange(5)} [1]."


def native(seed: int, way: str, number: int, now: float) -> bytes:
    """A trace as JSON, dated `now` (Unix seconds) or, one in ten, some minutes before."""
    chance = random.Random(f"{seed} {way} {number}")
    status = chance.choices(("ok", "error", "timeout"), (88, 9, 3))[0]
    passages, answer = _reported(chance, way == "overload" or status == "error")
    service = chance.choice(WAYS[way])
    if chance.random() < 0.1:
        now -= chance.expovariate(1 / 60)
    trace: dict[str, Any] = {
        "trace_id": f"{way}-{number}",
        "service": service,
        "timestamp": round(now, 3),
        "query": question(service, chance),
        "passages": [{"id": f"kb-{n}", "text": text} for n, text in enumerate(passages)],
        "answer": "" if status == "timeout" else answer,
        "status": status,
        "timings": {"total": round(chance.lognormvariate(0, 1), 3), "retrieval": 0.1},
        "usage": {"input_tokens": chance.randrange(2000), "output_tokens": 50, "cost_usd": 0.001},
        "model": chance.choice("ab"),
        "sampling": {"probability": chance.choice((1, 1, 1, 0.25))},
    }
    return json.dumps(trace).encode()


def spans(seed: int, number: int, now: float) -> tuple[bytes, bytes]:
    """A trace of spans in two requests: what came of its parts, then its root."""
    chance = random.Random(f"{seed} spans {number}")
    failed = chance.random() < 0.1
    passages, answer = _reported(chance, failed)
    asked = question(SPANS, chance)
    run = Run(f"{random.Random(f'{seed} id {number}').getrandbits(128) | 1:032x}", service=SPANS)
    at = now - T0 / 1e9
    kind = "openinference.span.kind"
    reported = {"input.value": asked, "output.value": answer}
    root = run.span("ask", None, (at, at + 2), {kind: "CHAIN", **reported}, status=2 * failed)
    run.span("find", root, (at, at + 1), {kind: "RETRIEVER", **documents(*passages)})
    run.span("llm", root, (at + 1, at + 2), {kind: "LLM", **messages(asked, answer)})
    return as_proto(run.spans[1:]), as_proto([root])


def lines_of(bodies: Sequence[bytes], otlp: OtlpSettings) -> list[bytes]:
    """The native traces that requests of spans come to, by the agent's own reading."""
    parts = [span for body in bodies for span in decode_traces(body, json=False).spans]
    found = extract_requests(parts, otlp).traces
    return [trace.model_dump_json(exclude_none=True).encode() for trace in found]
