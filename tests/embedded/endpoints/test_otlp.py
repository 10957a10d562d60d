from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.errors import StateUnavailable
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.embedded.endpoints import otlp, request_bodies
from ragmeter.embedded.endpoints.otlp import OtlpEndpoint
from ragmeter.embedded.endpoints.request_bodies import BodyReader
from ragmeter.ingest.assembler import AssemblyBounds
from ragmeter.ingest.otlp.protobuf import Status
from ragmeter.store.pending import OpenSpanTable

from tests.waiting import PATIENCE

BODY_LIMIT = 100_000
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass
class Answer:
    status: int
    content_type: str
    retry_after: str | None
    body: bytes


class Server:
    """A live endpoint before an agent that closes nothing: open spans only gather."""

    def __init__(self, agent: EmbeddedAgent, session: aiohttp.ClientSession, port: int) -> None:
        self.agent = agent
        self.session = session
        self.port = port

    async def post(
        self, body: bytes, type_: str | None = PROTOBUF, path: str = "traces", **headers: str
    ) -> Answer:
        if type_ is not None:
            headers["Content-Type"] = type_
        url = f"http://127.0.0.1:{self.port}/v1/{path}"
        skip = ["Content-Type"] if type_ is None else []
        async with self.session.post(
            url, data=body, headers=headers, skip_auto_headers=skip
        ) as reply:
            return Answer(
                reply.status,
                reply.content_type,
                reply.headers.get("Retry-After"),
                await reply.read(),
            )

    def spans(self, result: str = "accepted", signal: str = "traces") -> float:
        labels = (("signal", signal), ("result", result))
        return self.agent.counters.get("ragmeter_otlp_spans_total", labels)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Server]:
    paths = {"path": str(tmp_path / "s.sqlite")}
    agent = EmbeddedAgent(load_settings(environ={}, overrides={"state": paths}), [], parts=PARTS)
    endpoint = OtlpEndpoint(agent.assembly, BodyReader(BODY_LIMIT, 5))
    app = web.Application()
    endpoint.add_to(app)
    await endpoint.start()
    runner = web.AppRunner(app, auto_decompress=False, lingering_time=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        yield Server(agent, session, runner.addresses[0][1])
    await runner.cleanup()
    await endpoint.stop()
    agent._store.close()


def run(tmp_path: Path, test: Callable[[Server], Awaitable[None]]) -> None:
    async def body() -> None:
        async with serving(tmp_path) as server:
            await test(server)

    asyncio.run(body())


def request(trace: int, *spans: int) -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for number in spans:
        scope.spans.add(
            trace_id=trace.to_bytes(16),
            span_id=number.to_bytes(8),
            name="chat",
            start_time_unix_nano=1,
            end_time_unix_nano=2,
        )
    return message.SerializeToString()


def in_json(trace: int, *spans: int) -> bytes:
    found = [{"traceId": f"{trace:032x}", "spanId": f"{n:016x}", "name": "chat"} for n in spans]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}).encode()


def logs(trace: int, span: int, *texts: str) -> bytes:
    message = ExportLogsServiceRequest()
    records = message.resource_logs.add().scope_logs.add().log_records
    for text in texts:
        record = records.add(
            trace_id=trace.to_bytes(16), span_id=span.to_bytes(8), event_name="gen_ai.choice"
        )
        attribute = record.attributes.add(key="gen_ai.output.messages")
        attribute.value.string_value = text
    return message.SerializeToString()


def test_large_bodies_are_decoded_apart_and_stored_in_pieces_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_PIECE", 2)
    seen = []
    for large in (2**30, 1):
        folder = tmp_path / str(large)
        folder.mkdir()
        for module in (request_bodies, otlp):
            monkeypatch.setattr(module, "LARGE_BODY", large)

        async def test(server: Server) -> None:
            answers = [
                await server.post(request(1, 1, 2, 3, 4, 5)),
                await server.post(in_json(2, 3, 4), JSON),
                await server.post(logs(1, 1, "a"), path="logs"),
                await server.post(b"\xff\xff"),
            ]
            rows, _, _ = OpenSpanTable(server.agent._store).restore()
            counts = server.spans(), server.spans(signal="logs"), server.spans("undecodable")
            seen.append((answers, counts, sorted((row.trace, row.keys) for row in rows)))

        run(folder, test)
    assert [answer.status for answer in seen[0][0]] == [200, 200, 200, 400]
    assert seen[0][1] == (7, 1, 1)
    assert seen[0] == seen[1]


def test_metrics_are_taken_counted_and_dropped(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assert await server.post(b"\n\x00", path="metrics") == Answer(200, PROTOBUF, None, b"")
        answer = await server.post(b'{"resourceMetrics": []}', JSON, path="metrics")
        assert answer == Answer(200, JSON, None, b"{}")
        assert server.spans("not_read", signal="metrics") == 2

    run(tmp_path, test)


def test_spans_are_durable_when_answered_in_the_form_they_came_in(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        answer = await server.post(request(1, 1, 2))
        assert answer == Answer(200, PROTOBUF, None, b"")
        answer = await server.post(in_json(1, 2, 3), f"{JSON}; charset=utf-8")
        assert answer == Answer(200, JSON, None, b"{}")
        (opened,), _, _ = OpenSpanTable(server.agent._store).restore()
        assert opened.keys == [number.to_bytes(8) for number in (1, 2, 3)]
        assert (server.spans(), server.spans("duplicate")) == (3, 1)

    run(tmp_path, test)


def test_log_events_are_durable_when_answered(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        body = logs(1, 1, "hello", "hello", "bye")
        answer = await server.post(body, path="logs")
        assert answer == Answer(200, PROTOBUF, None, b"")
        assert server.spans(signal="logs") == 2
        assert server.spans("duplicate", signal="logs") == 1
        plain = ExportLogsServiceRequest()
        plain.resource_logs.add().scope_logs.add().log_records.add(body={"string_value": "started"})
        answer = await server.post(plain.SerializeToString(), path="logs")
        assert answer == Answer(200, PROTOBUF, None, b"")  # in order, and nothing of ours
        assert server.spans("no_content", signal="logs") == 1

    run(tmp_path, test)


def test_without_a_content_type_the_body_tells(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assert (await server.post(request(1, 1), None)).content_type == PROTOBUF
        assert (await server.post(in_json(1, 2), None)).content_type == JSON
        assert server.spans() == 2

    run(tmp_path, test)


def test_gzip_and_what_is_none(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        packed = {"Content-Encoding": "gzip"}
        answer = await server.post(gzip.compress(request(1, 1)), **packed)
        assert (answer.status, server.spans()) == (200, 1)
        answer = await server.post(b"no gzip", **packed)
        assert answer.status == 400
        assert "gzip" in Status.FromString(answer.body).message
        bomb = gzip.compress(b"\0" * 50_000_000)
        assert (await server.post(bomb, **packed)).status == 413
        assert (await server.post(b"x", **{"Content-Encoding": "br"})).status == 415
        assert server.spans("undecodable") == 3

    run(tmp_path, test)


@pytest.mark.parametrize("encoding", ["x-gzip", "deflate", "raw deflate", "zlib", "zstd"])
def test_other_compressions(tmp_path: Path, encoding: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {
        "x-gzip": gzip.compress,
        "deflate": zlib.compress,
        "zlib": zlib.compress,
        "raw deflate": lambda body: zlib.compress(body, wbits=-15),
        "zstd": zstandard.ZstdCompressor().compress,
    }
    pack = packers[encoding]
    header = {"Content-Encoding": encoding.rpartition(" ")[2]}

    async def test(server: Server) -> None:
        answer = await server.post(pack(request(1, 1)), **header)
        assert (answer.status, server.spans()) == (200, 1)
        assert (await server.post(b"\xff no body", **header)).status == 400
        assert (await server.post(pack(b"\0" * 50_000_000), **header)).status == 413

    run(tmp_path, test)


def test_grpc_over_http_is_told_the_cure(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        answer = await server.post(b"\0\0\0\0\0", "application/grpc")
        assert answer.status == 415
        assert b"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in answer.body

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("body", "type_", "cure"),
    [
        (b'{"resourceSpans": []}', PROTOBUF, "it is JSON: send Content-Type: application/json"),
        (b"\n\3abc", JSON, "protobuf needs Content-Type: application/x-protobuf"),
        (gzip.compress(b"{}"), JSON, "it is gzip: send Content-Encoding: gzip"),
        (zstandard.compress(b"{}"), PROTOBUF, "it is zstd: send Content-Encoding: zstd"),
        (b"\0\0\0\0\3\n\1x", PROTOBUF, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        (b'{"trace_id": "t1", "service": "s"}', JSON, "a native trace: those go to /v1/rag/traces"),
        (b'[{"traceId": "t1"}]', JSON, "the body is no JSON object"),
        (b'{"spans": [{}]}', JSON, "the body has no resourceSpans"),
        (b'{"data": [{"traceID": "t1"}]}', JSON, "the body is Jaeger's JSON"),
    ],
    ids=["json", "protobuf", "gzip", "zstd", "grpc", "native", "list", "other", "jaeger"],
)
def test_a_body_of_another_form_is_told_the_cure_and_logged_once(
    body: bytes, type_: str, cure: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: Server) -> None:
        for _ in range(3):
            answer = await server.post(body, type_)
            assert answer.status == 400
        if type_ == JSON:
            said = json.loads(answer.body)["message"]
        else:
            said = Status.FromString(answer.body).message
        assert cure in said
        assert server.spans("undecodable") == 3

    run(tmp_path, test)
    lines = [one.getMessage() for one in caplog.records if "OTLP from" in one.getMessage()]
    assert len(lines) == 1
    assert cure in lines[0]


def test_a_request_of_another_signal_is_none_of_these(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        for body in (b"{}", b'{"resourceMetrics": []}', b'{"resource_spans": []}'):
            assert (await server.post(body, JSON)).status == 200

    run(tmp_path, test)


def test_what_is_broken_is_refused_with_a_status_in_the_same_form(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        answer = await server.post(b"\xff\xff\xff")
        assert (answer.status, answer.content_type, answer.retry_after) == (400, PROTOBUF, None)
        assert Status.FromString(answer.body).code == 3
        answer = await server.post(b'{"resourceSpans": [', JSON)
        assert (answer.status, answer.content_type) == (400, JSON)
        assert json.loads(answer.body)["code"] == 3
        answer = await server.post(b"<xml/>", "text/xml")
        assert answer.status == 415
        assert "x-protobuf" in json.loads(answer.body)["message"]
        answer = await server.post(b"x" * (BODY_LIMIT + 1))
        assert answer.status == 413
        assert server.spans("undecodable") == 4

    run(tmp_path, test)


def test_spans_that_cannot_be_read_are_told_and_the_others_kept(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        message = ExportTraceServiceRequest.FromString(request(1, 1, 2))
        message.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
        answer = await server.post(message.SerializeToString())
        assert answer.status == 200
        notified = ExportTraceServiceResponse.FromString(answer.body).partial_success
        assert notified.rejected_spans == 1
        assert notified.error_message
        assert server.spans() == 1
        body = json.loads(in_json(1, 7, 8))
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "0" * 32
        answer = await server.post(json.dumps(body).encode(), JSON)
        assert json.loads(answer.body)["partialSuccess"]["rejectedSpans"] == "1"
        record = ExportLogsServiceRequest.FromString(logs(1, 1, "a"))
        record.resource_logs[0].scope_logs[0].log_records[0].trace_id = b"short"
        answer = await server.post(record.SerializeToString(), path="logs")
        part = ExportLogsServiceResponse.FromString(answer.body).partial_success
        assert (answer.status, part.rejected_log_records) in ((200, 0), (200, 1))

    run(tmp_path, test)


def test_what_a_full_trace_does_not_take_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(server: Server) -> None:
        answer = await server.post(request(1, 1, 2, 3))
        notified = ExportTraceServiceResponse.FromString(answer.body).partial_success
        assert (notified.rejected_spans, notified.error_message) == (1, "1 over_limit")

    monkeypatch.setattr("ragmeter.ingest.assembler.BOUNDS", AssemblyBounds(trace_spans=2))
    run(tmp_path, test)


def test_late_and_repeated_spans_are_nothing_to_worry_a_sender(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assembly = server.agent.assembly
        await server.post(request(1, 1))
        begin = assembly.now()
        assembly.now = lambda: begin + 60
        (due,) = assembly.due(9, 10**9)
        assembly.done([due.trace])
        for _ in range(2):
            assert await server.post(request(1, 1, 2)) == Answer(200, PROTOBUF, None, b"")
        assert server.spans("late") == 4

    run(tmp_path, test)


def test_our_own_spans_are_not_kept(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        message = ExportTraceServiceRequest.FromString(request(1, 1))
        message.resource_spans[0].scope_spans[0].scope.name = "ragmeter"
        assert await server.post(message.SerializeToString()) == Answer(200, PROTOBUF, None, b"")
        assert (server.spans("own"), server.spans()) == (1, 0)

    run(tmp_path, test)


def test_overload_says_when_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        for trace in (1, 2):
            assert (await server.post(request(trace, 1))).status == 200
        answer = await server.post(request(3, 1))
        assert (answer.status, answer.content_type, answer.retry_after) == (429, PROTOBUF, "2")
        assert Status.FromString(answer.body).code == 8

    monkeypatch.setattr("ragmeter.ingest.assembler.BOUNDS", AssemblyBounds(open_traces=1))
    run(tmp_path, test)


def test_a_full_disk_is_503_and_sent_again_it_counts_once(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        assembly = server.agent.assembly
        write = assembly._write

        def full(_: Any) -> None:
            raise StateUnavailable("disk full")

        assembly._write = full
        answer = await server.post(in_json(1, 1), JSON)
        assert (answer.status, answer.content_type, answer.retry_after) == (503, JSON, "5")
        assert json.loads(answer.body) == {"code": 14, "message": "disk full"}
        assembly._write = write
        assert (await server.post(in_json(1, 1), JSON)).status == 200
        assert (server.spans(), server.spans("duplicate")) == (1, 0)

    run(tmp_path, test)


def test_requests_at_the_same_time_are_each_answered_for_themselves(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        bodies = [request(trace, *range(1, 1 + trace)) for trace in range(1, 21)]
        answers = await asyncio.gather(*map(server.post, [*bodies, *bodies, b"\xff" * 9]))
        assert [answer.status for answer in answers] == [*[200] * 40, 400]
        assert (server.spans(), server.spans("duplicate")) == (210, 210)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"Content-Type: {PROTOBUF}\r\nContent-Length: 5", b"HTTP/1.1 100"),
        (f"Content-Type: {PROTOBUF}\r\nContent-Length: 999999999", b"HTTP/1.1 413"),
        ("Content-Type: text/plain\r\nContent-Length: 5", b"HTTP/1.1 415"),
    ],
)
def test_who_asks_first_is_told_before_sending(tmp_path: Path, head: str, status: bytes) -> None:
    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            start = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n{head}\r\n\r\n"
            connection.sendall(start.encode())
            return connection.recv(100)

    async def test(server: Server) -> None:
        assert (await asyncio.to_thread(ask, server.port)).startswith(status)

    run(tmp_path, test)
