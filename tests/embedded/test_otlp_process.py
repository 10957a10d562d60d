"""The real process and the real exporter, killed in the middle of traces: each counts once."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Tracer, set_span_in_context

from tests import waiting
from tests.embedded.test_crash import Live
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

QUERY, ANSWER = "How do I reset my password?", "Click Forgot password [1]."
PASSAGE = "Click Forgot password on the login page to reset it."


@contextmanager
def served(tmp_path: Path, grace: float) -> Iterator[Live]:
    live = Live(tmp_path)
    tree = json.loads(live.config.read_text())
    tree["otlp"] = {"grace_seconds": grace, "idle_seconds": 60}
    live.config.write_text(json.dumps(tree))
    with live:
        wait_ready(live)
        yield live


def wait_ready(live: Live) -> None:
    until(live, lambda: live.client.get(f"http://127.0.0.1:{live.port}/").status_code == 404)


def until(live: Live, condition: Any) -> None:
    def comes() -> bool:
        try:
            return bool(condition())
        except httpx.HTTPError:
            return False

    try:
        waiting.until(comes)
    except AssertionError as error:
        raise AssertionError((live.folder / "talk.txt").read_text()) from error


def metrics(live: Live) -> dict[str, float]:
    text = live.client.get(f"http://127.0.0.1:{live.page}/metrics").text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines if "otlp" in name or "rag_requests" in name}


def restart(live: Live) -> None:
    live.kill()
    live.start()
    wait_ready(live)


class Recording(OTLPSpanExporter):
    """The real exporter; it remembers what it sent."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"http://127.0.0.1:{port}/v1/traces", compression=Compression.Gzip, timeout=PATIENCE
        )
        self.sent: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.sent += spans
        return super().export(spans)


def tracer(exporter: Recording) -> tuple[TracerProvider, Tracer]:
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, provider.get_tracer("openinference.instrumentation.langchain")


def open_rows(live: Live) -> int:
    database = sqlite3.connect(f"file:{live.folder / 's.sqlite'}?mode=ro", uri=True)
    try:
        found: int = database.execute("SELECT count(*) FROM open_spans").fetchone()[0]
    finally:
        database.close()
    return found


def test_a_trace_of_the_real_exporter_survives_kills_and_is_scored_once(tmp_path: Path) -> None:
    with served(tmp_path, grace=3) as live:
        kill_within_a_trace(live)


def kill_within_a_trace(live: Live) -> None:
    exporter = Recording(live.port)
    provider, spans = tracer(exporter)
    kind = "openinference.span.kind"
    root = spans.start_span("chain", attributes={kind: "CHAIN", "input.value": QUERY})
    inside = set_span_in_context(root)
    document = "retrieval.documents.0.document"
    spans.start_span(
        "retriever",
        inside,
        attributes={
            kind: "RETRIEVER",
            "input.value": QUERY,
            f"{document}.content": PASSAGE,
            f"{document}.id": "kb-1",
        },
    ).end()
    assert open_rows(live) == 1
    restart(live)
    spans.start_span(
        "llm", inside, attributes={kind: "LLM", "output.value": ANSWER, "llm.model_name": "m"}
    ).end()
    root.set_attribute("output.value", ANSWER)
    root.end()
    assert open_rows(live) == 3
    restart(live)  # complete, but not closed yet
    until(live, lambda: metrics(live).get('ragmeter_otlp_traces_total{result="root"}') == 1)
    ok = 'rag_requests_total{service="shop",status="ok"}'
    until(live, lambda: metrics(live).get(ok) == 1)
    assert open_rows(live) == 0
    assert exporter.export([*exporter.sent]) is SpanExportResult.SUCCESS  # sent again, all of it
    late = 'ragmeter_otlp_spans_total{signal="traces",result="late"}'
    until(live, lambda: metrics(live).get(late) == 3)
    time.sleep(1)
    assert metrics(live)[ok] == 1
    assert live.terminate() == 0
    provider.shutdown()
    database = sqlite3.connect(live.folder / "s.sqlite")
    (body,) = database.execute("SELECT body FROM evidence").fetchone()
    database.close()
    trace = json.loads(body)["trace"]
    assert (trace["query"], trace["answer"]) == (QUERY, ANSWER)
    assert [(one["id"], one["text"]) for one in trace["passages"]] == [("kb-1", PASSAGE)]


def requests(traces: int, rng: random.Random) -> list[bytes]:
    """Traces of four spans, in requests of one to five in any order, but that roots come last:
    so nothing is late, however slow the machine is."""
    children = [(trace, number) for trace in range(1, traces + 1) for number in (2, 3, 4)]
    rng.shuffle(children)
    roots = [(trace, 1) for trace in range(1, traces + 1)]
    out = []
    for order in (children, roots):
        while order:
            message = ExportTraceServiceRequest()
            resource = message.resource_spans.add()
            resource.resource.attributes.add(key="service.name").value.string_value = "shop"
            scope = resource.scope_spans.add()
            for trace, number in order[: (size := rng.randint(1, 5))]:
                span = scope.spans.add(
                    trace_id=trace.to_bytes(16),
                    span_id=number.to_bytes(8),
                    parent_span_id=b"" if number == 1 else (1).to_bytes(8),
                    start_time_unix_nano=time.time_ns(),
                    end_time_unix_nano=time.time_ns(),
                )
                values = {"openinference.span.kind": "CHAIN" if number == 1 else "LLM"}
                values |= {"input.value": f"question {trace}", "output.value": ANSWER}
                for key, value in values.items():
                    span.attributes.add(key=key).value.string_value = value
            del order[:size]
            out.append(message.SerializeToString())
    return out


def send(live: Live, body: bytes) -> None:
    """Until it is answered, as exporters do."""
    head = {"Content-Type": "application/x-protobuf"}
    url = f"http://127.0.0.1:{live.port}/v1/traces"
    until(live, lambda: live.client.post(url, content=body, headers=head).status_code == 200)


def test_killed_at_random_points_each_trace_counts_once(tmp_path: Path) -> None:
    with served(tmp_path, grace=0.3) as live:
        kill_at_random_points(live, kills=15, traces=200)


def kill_at_random_points(live: Live, kills: int, traces: int) -> None:
    rng = random.Random(kills)
    bodies = requests(traces, rng)
    moments = rng.sample(range(1, len(bodies)), kills)
    for index, body in enumerate(bodies):
        send(live, body)
        if index in moments:
            time.sleep(rng.uniform(0, 0.6))  # also while traces are being closed
            live.kill()
            live.start()
            if rng.random() < 0.5:
                send(live, body)  # the answer was lost
    closed = 'ragmeter_otlp_traces_total{result="root"}'
    until(live, lambda: metrics(live).get(closed) == traces)
    counted = 'rag_requests_total{service="shop",status="ok"}'
    until(live, lambda: metrics(live).get(counted) == traces)
    found = metrics(live)
    assert found['ragmeter_otlp_spans_total{signal="traces",result="accepted"}'] == 4 * traces
    assert found["ragmeter_otlp_open_traces"] == 0
    assert live.terminate() == 0
    assert open_rows(live) == 0
