"""The real agent, from OTLP in to results out, and those sent back to it by the collector."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from tests.exporters.otel.collector import LOGS, PROTOBUF, Collector, plain, serve
from tests.exporters.otel.running import awaited
from tests.exporters.otel.scores import SPAN, TRACE
from tests.waiting import PATIENCE, until_async

TRACES = "/v1/traces"
START = time.time_ns() - 5 * 10**9


def texts(**pairs: str) -> list[KeyValue]:
    return [
        KeyValue(key=name.replace("__", "."), value=AnyValue(string_value=text))
        for name, text in pairs.items()
    ]


def request() -> bytes:
    """A retrieval and an answer in OpenInference, below one root."""
    trace, root = bytes.fromhex(TRACE), bytes.fromhex(SPAN)
    kind = "openinference__span__kind"
    question = {"input__value": "How do I reset it?"}
    spans = [
        Span(
            trace_id=trace,
            span_id=b"retrieve",
            parent_span_id=root,
            name="retrieve",
            start_time_unix_nano=START,
            end_time_unix_nano=START + 10**8,
            attributes=texts(
                **{kind: "RETRIEVER"},
                **question,
                retrieval__documents__0__document__id="kb-1",
                retrieval__documents__0__document__content="Hold the button for ten seconds.",
            ),
        ),
        Span(
            trace_id=trace,
            span_id=root,
            name="ask",
            start_time_unix_nano=START,
            end_time_unix_nano=START + 10**9,
            attributes=texts(
                **{kind: "CHAIN"}, **question, output__value="Hold the button for ten seconds [1]."
            ),
        ),
    ]
    scope = ScopeSpans(spans=spans)
    resource = Resource(attributes=texts(service__name="bot"))
    group = ResourceSpans(resource=resource, scope_spans=[scope])
    return ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()


async def urls(agent: asyncio.subprocess.Process) -> tuple[str, str]:
    """Where the agent takes traces and shows its metrics, as it says itself."""
    assert agent.stderr is not None
    reported = ""
    while "status page" not in reported:
        line = await asyncio.wait_for(agent.stderr.readline(), PATIENCE)
        assert line, reported
        reported += line.decode()
    found = re.findall(r"http://[\d.]+:\d+", reported)
    return found[0], found[-1]


async def counted(http: httpx.AsyncClient, metrics: str, name: str) -> float:
    """The sum of a family."""
    page = (await http.get(f"{metrics}/metrics")).text
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


async def through(agent: asyncio.subprocess.Process, found: Collector) -> None:
    base, metrics = await urls(agent)
    async with httpx.AsyncClient(headers={"Content-Type": PROTOBUF}) as http:
        assert (await http.post(base + TRACES, content=request())).status_code == 200
        await until_async(lambda: bool(found.records))
        for record in found.records:
            assert (record.trace_id.hex(), record.span_id.hex()) == (TRACE, SPAN)
            assert plain(record.attributes)["ragmeter.service"] == "bot"
        names = {plain(record.attributes)["gen_ai.evaluation.name"] for record in found.records}
        assert {"answered", "grounding"} <= names

        # the collector sends all that it has to all that it knows
        sent = list(found.raw)
        for path, body in sent:
            assert path == LOGS
            assert (await http.post(base + path, content=body)).status_code == 200
        await asyncio.sleep(1)  # many times the grace after which a trace is closed
        kept = 'ragmeter_otlp_spans_total{signal="logs",result="accepted"'
        assert await counted(http, metrics, kept) == 0
        assert await counted(http, metrics, "ragmeter_otlp_open_traces") == 0
        assert await counted(http, metrics, "rag_requests_total") == 1
        assert len(found.raw) == len(sent)


@awaited
async def test_a_request_comes_in_its_scores_go_out_and_never_come_back(tmp_path: Path) -> None:
    async with serve() as found:
        environ = {
            **os.environ,
            "RAGMETER_STATE__PATH": str(tmp_path / "s.sqlite"),
            "RAGMETER_HTTP__OTLP_PORT": "0",
            "RAGMETER_HTTP__METRICS_PORT": "0",
            "RAGMETER_OTLP__GRACE_SECONDS": "0.1",
            "RAGMETER_RESULTS_EXPORT__ENDPOINT": found.url,
        }
        command = (sys.executable, "-m", "ragmeter", "run")
        agent = await asyncio.create_subprocess_exec(
            *command,
            env=environ,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await through(agent, found)
        finally:
            agent.terminate()
            await agent.communicate()
        assert agent.returncode == 0
