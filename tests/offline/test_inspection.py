"""What `ragmeter inspect` reads and prints."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import subprocess
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import httpx
import pytest
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from ragmeter.cli.main import app
from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.ingest.live_inspection import (
    _MAX_QUEUED_LINES,
    MAX_LISTENERS,
    LiveInspection,
    TooManyListeners,
    grade_fields,
)
from ragmeter.ingest.requests.extraction import FieldOrigin, NotRequest, extract_requests
from ragmeter.offline.inspection import (
    Inspection,
    inspect_files,
    inspection_to_dict,
    print_inspection,
    print_request,
)
from rich.console import Console
from typer.testing import CliRunner

from tests.crash import RAGMETER, start
from tests.ingest.building import T0, Run
from tests.ports import free_port
from tests.tables import each_row
from tests.waiting import PATIENCE

OTLP = Path(__file__).parents[1] / "data" / "otlp"
LANGCHAIN = OTLP / "openinference-langchain.otlp.jsonl.gz"
GENAI = [OTLP / "wire" / f"genai-{n}.pb" for n in (1, 2, 3)]


def wait_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("never ready")


def printed(*paths: Path) -> str:
    out = StringIO()
    print_inspection(inspect_files(paths, OtlpSettings()), Console(file=out, width=160))
    return out.getvalue()


def test_a_table_says_which_span_gave_a_field() -> None:
    text = printed(LANGCHAIN)
    assert "VectorStoreRetriever (openinference)" in text
    assert "How long do refunds take?" in text
    assert "1. [policy-01] Refunds are issued" in text
    assert "timeout: langchain_openai" in text
    assert "4 requests in" in text


def test_fields_are_graded_and_tools_named_with_the_setting_that_changes_them() -> None:
    rows = printed(OTLP / "agents" / "agents.otlp.jsonl.gz").split("smolagents ")[1].splitlines()
    grades = {
        cells[0].strip(): cells[2].strip() for row in rows if len(cells := row.split("│")[1:]) > 3
    }
    assert grades["query"] == grades["tokens"] == "right"
    assert grades["passages"] == grades["model"] == "guessed"
    assert grades["session"] == "missing"
    text = "\n".join(rows)
    assert "tool retriever: its result gives passages; otlp.excluded_tools: [retriever]" in text
    assert (
        "tool final_answer: its result gives no passages; otlp.tool_names: [final_answer]" in text
    )
    assert "model: is the one that was asked for" in text
    document = inspection_to_dict(
        inspect_files([OTLP / "agents" / "agents.otlp.jsonl.gz"], OtlpSettings())
    )
    grade = {one["trace"]["service"]: one["grades"] for one in document["requests"]}
    assert grade["crewai"]["tokens"] == "missing"


def test_every_missing_field_says_what_was_looked_at_and_the_cure() -> None:
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "read_pages"}
    run = Run()
    root = run.span("rag", attributes={"openinference.span.kind": "AGENT"})
    run.span("tool", root, (0.1, 0.2), attributes)
    run.span("chat", root, (0.3, 0.4), {"gen_ai.operation.name": "chat"})
    read = extract_requests(run.spans, OtlpSettings())
    out = StringIO()
    inspection = Inspection(list(zip(read.traces, read.origins, strict=True)))
    print_inspection(inspection, Console(file=out, width=400))
    text = out.getvalue()
    for line in (
        "query: no_query_captured; looked at rag (openinference), chat (otel_genai); give the",
        "answer: no_answer_captured; looked at rag (openinference), chat (otel_genai); give the",
        "passages: no_passages_captured; looked at tool (openinference), chat (otel_genai); record",
        "or name the tool that retrieves in otlp.tool_names: [read_pages]",
        "tokens: not captured; looked at chat (otel_genai); let the model call have",
        "model: not captured; looked at chat (otel_genai); let the model call have",
        "finish_reason: not captured; looked at chat (otel_genai); let the model call have",
        "session: not captured; looked at rag (openinference); let a span have session.id",
        "tool read_pages: its result gives no passages; otlp.tool_names: [read_pages]",
    ):
        assert line in text


@each_row(
    ("attributes", "switch"),
    [
        ({"ai.operationId": "ai.generateText.doGenerate"}, "recordInputs: true"),
        ({"haystack.component.type": "OpenAIGenerator"}, "HAYSTACK_CONTENT_TRACING_ENABLED=true"),
        ({"llm.request.type": "chat"}, "TRACELOOP_TRACE_CONTENT=true"),
        ({"gen_ai.operation.name": "chat"}, "GENAI_CAPTURE_MESSAGE_CONTENT=true"),
        ({"openinference.span.kind": "LLM"}, "OPENINFERENCE_HIDE_INPUTS=false"),
        ({"langfuse.observation.type": "generation"}, "capture_input=True"),
        # Spring AI writes texts to a log alone
        ({"spring.ai.kind": "chat", "gen_ai.operation.name": "chat"}, "ObservationFilter"),
    ],
)
def test_what_switches_capture_on_is_said_of_the_product(
    attributes: dict[str, object], switch: str
) -> None:
    run = Run(scope="x")
    run.span("chat", attributes=attributes)
    read = extract_requests(run.spans, OtlpSettings())
    out = StringIO()
    inspection = Inspection(list(zip(read.traces, read.origins, strict=True)))
    print_inspection(inspection, Console(file=out, width=400))
    (line,) = [one for one in out.getvalue().splitlines() if one.startswith("  query: ")]
    assert switch in line
    assert "switch its capture on" in line
    assert line.count("=true") <= 2  # of no other product


def test_every_field_says_where_it_came_from() -> None:
    kind = "openinference.span.kind"
    run = Run()
    root = run.span(
        "rag",
        attributes={
            kind: "AGENT",
            "input.value": "Why?",
            "output.value": "Because.",
            "metadata": '{"tenant": "a", "session_id": "s"}',
            "session.id": "s",
        },
    )
    found = {kind: "RETRIEVER", "retrieval.documents.0.document.content": "A text of it."}
    run.span("find", root, (0.1, 0.2), found)
    run.span(
        "chat",
        root,
        (0.3, 0.4),
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": "m",
            "gen_ai.usage.input_tokens": 3,
            "gen_ai.response.finish_reasons": ["stop"],
        },
    )
    ((_, origins),) = [
        (trace, origins)
        for read in [extract_requests(run.spans, OtlpSettings())]
        for trace, origins in zip(read.traces, read.origins, strict=True)
    ]
    assert {name: [one.name for one in spans] for name, spans in origins.items() if spans} == {
        "query": ["rag"],
        "answer": ["rag"],
        "passages": ["find"],
        "status": ["rag"],
        "timings": ["rag"],
        "tags": ["rag"],
        "session": ["rag"],
        "model": ["chat"],
        "tokens": ["chat"],
        "finish_reason": ["chat"],
    }


@pytest.mark.parametrize(
    ("attributes", "line"),
    [
        (
            {
                "gen_ai.operation.name": "chat",
                "acme.request.messages": '[{"content": "Why so?"}]',
            },
            "step has text at acme.request.messages that is not understood: record it as"
            " input.value",
        ),
        (
            {"gen_ai.operation.name": "chat", "acme.span.output": "Because of it."},
            "step has text at acme.span.output that is not understood: record it as output.value",
        ),
        (
            {"gen_ai.operation.name": "chat", "acme.rag.contexts": '[{"content": "A text"}]'},
            "step has text at acme.rag.contexts that is not understood: record it as"
            " retrieval.documents.0.document.content of a span of the kind RETRIEVER",
        ),
        (
            {"gen_ai.operation.name": "retrieval", "acme.output": '[{"content": "A text"}]'},
            "step has text at acme.output that is not understood: record it as"
            " retrieval.documents.0.document.content of a span of the kind RETRIEVER, or"
            " gen_ai.retrieval.documents",
        ),
        (
            {
                "gen_ai.operation.name": "chat",
                "acme.output_messages": '[{"role": "assistant", "parts": [{"type": "text"}]}]',
            },
            "give the request's span output.value or gen_ai.output.messages",
        ),
        (
            {"acme.output_json": '[{"message": {"content": "A"}}]'},
            "its texts at acme.output_json are read as input.value and output.value",
        ),
    ],
)
def test_a_text_that_no_convention_reads_is_named(
    attributes: Mapping[str, object], line: str
) -> None:
    assert line in not_a_request(attributes)


def test_the_standard_input_is_a_minus() -> None:
    with LANGCHAIN.open("rb") as file:
        done = subprocess.run([*RAGMETER, "inspect", "-"], stdin=file, capture_output=True)
    assert done.returncode == 0
    assert b"4 requests in" in done.stdout


def test_a_huge_file_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmeter.offline.inspection.MAX_BODY", 1000)
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(64 * 2**20)  # takes no place
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="more than 1000 bytes"):
            inspect_files([huge], OtlpSettings())
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_folder_is_all_files_in_it(tmp_path: Path) -> None:
    for path in GENAI:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / ".hidden").write_bytes(b"no body")
    (tmp_path / "deeper").mkdir()
    folder, files = inspect_files([tmp_path], OtlpSettings()), inspect_files(GENAI, OtlpSettings())
    assert (folder.bodies, folder.spans) == (3, files.spans)
    assert inspection_to_dict(folder) == inspection_to_dict(files)


def test_a_file_without_spans_says_what_is_read(tmp_path: Path) -> None:
    native = tmp_path / "traces.jsonl"
    native.write_text('{"trace_id": "t", "service": "s", "timestamp": 1}\n')
    assert "in 0 spans of 1 bodies; inspect reads OTLP export requests" in printed(native)


def test_spans_of_several_files_are_one_trace() -> None:
    alone = inspect_files(GENAI[:1], OtlpSettings())
    together = inspect_files(GENAI, OtlpSettings())
    assert together.spans == 6 > alone.spans
    trace, origins = together.traces[0]
    assert trace.missing == {"passages": "passages_id_only"}
    assert origins["query"][0].convention == "otel_genai"
    assert "(passages_id_only)" in printed(*GENAI)


def test_what_is_no_request_or_unreadable_is_counted(tmp_path: Path) -> None:
    noise = OTLP / "langwatch-fastapi-http-noise.otlp-protojson.json"
    broken = tmp_path / "broken.json"
    broken.write_text('{"resourceSpans": [')
    found = inspection_to_dict(inspect_files([noise, broken], OtlpSettings()))
    assert found["requests"] == []
    assert found["not_requests"] == {"no_llm_no_retriever": 1}
    assert found["rejected"] == {"bad_json": 1}


CONSOLE = json.dumps(
    {"name": "chat", "context": {"trace_id": f"0x{7:032x}", "span_id": f"0x{8:016x}"}}, indent=4
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"trace_id": "x", "service": "s", "timestamp": 1, "query": "q"}',
            "a native trace: those go to /v1/rag/traces, and files to `ragmeter score`",
        ),
        ('{"data": [{"traceID": "a", "spans": [], "processes": {}}]}', "Jaeger's JSON"),
        ('[{"traceId": "a", "id": "b", "localEndpoint": {"serviceName": "s"}}]', "Zipkin's JSON"),
        ('[{"id": "t", "input": "q", "observations": []}]', "an export of Langfuse"),
        ('[{"id": "r", "run_type": "chain", "inputs": {}}]', "an export of LangSmith"),
        ('{"info": {"trace_id": "t"}, "data": {"spans": []}}', "an export of MLflow"),
        (CONSOLE, "what the SDK's ConsoleSpanExporter prints"),
        (f"{CONSOLE}\n{CONSOLE}\n", "what the SDK's ConsoleSpanExporter prints"),
    ],
)
def test_another_form_than_otlp_is_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text(text)
    shown = " ".join(printed(tmp_path / "given.json").split())
    assert f"given.json: the body is {words}" in shown
    assert "OTLP exporter" in shown or "native" in words


def metrics_body() -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "gen_ai.client.token.usage"
    metric.histogram.data_points.add(count=3, time_unix_nano=T0)
    return request


def logs_body() -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano = T0
    record.body.string_value = "started"
    return request


@pytest.mark.parametrize("form", ["json", "protobuf"])
@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        (metrics_body(), "holds metrics, which tell"),
        (logs_body(), "holds logs without their spans"),
    ],
)
def test_a_file_of_metrics_or_logs_says_so_with_the_cure(
    request_body: Message, words: str, form: str, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    if form == "json":
        given.write_text(MessageToJson(request_body))
    else:
        given.write_bytes(request_body.SerializeToString())
    found = inspect_files([given], OtlpSettings())
    (line,) = found.unread
    assert f"given: {words}" in line
    assert "record the export of traces" in line
    assert not found.rejected
    beside = inspect_files([given, GENAI[0]], OtlpSettings())
    assert len(beside.unread) == words.startswith("holds metrics")  # logs belong to spans


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"gen_ai.usage.cost": 0.0125}, "0.0125 USD, as a span tells it"),
        ({}, "0.00045 USD, estimated from tokens, prices of 20"),
        ({"gen_ai.response.model": "a-model-of-ours"}, "cost: no price of a-model-of-ours"),
    ],
)
def test_the_cost_says_where_it_is_from(attributes: Mapping[str, object], words: str) -> None:
    run = Run()
    run.span(
        "chat m",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": "gpt-4o-mini",
            "gen_ai.usage.input_tokens": 1_000,
            "gen_ai.usage.output_tokens": 500,
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": "How long?"}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "A day."}]),
            **attributes,
        },
    )
    read = extract_requests(run.spans, OtlpSettings())
    out = StringIO()
    console = Console(file=out, width=600)
    print_request(read.traces[0], read.origins[0], grade_fields(read.traces[0]), console)
    assert words in out.getvalue()


def test_passages_that_blank_lines_part_have_a_cure() -> None:
    run = Run()
    prompt = f"Context:\n{'One text of the handbook. ' * 3}\n\nAnother.\n\nQuestion: How long?"
    run.span(
        "chat m",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": prompt}]),
        },
    )
    read = extract_requests(run.spans, OtlpSettings())
    (trace,) = read.traces
    assert (trace.query, trace.passages) == ("How long?", None)
    out = StringIO()
    print_request(trace, read.origins[0], grade_fields(trace), Console(file=out, width=600))
    assert "part the passages in the prompt by tags (<document>) or numbers ([1])" in out.getvalue()


def not_a_request(attributes: Mapping[str, object], settings: OtlpSettings | None = None) -> str:
    """Return what is printed about a trace of a server span with one span below it."""
    run = Run()
    root = run.span("POST /ask", attributes={"http.request.method": "POST"})
    run.span("step", root, (0.1, 0.2), dict(attributes))
    read = extract_requests(run.spans, settings or OtlpSettings())
    out = StringIO()
    inspection = Inspection(
        list(zip(read.traces, read.origins, strict=True)),
        not_requests=read.not_requests,
    )
    print_inspection(inspection, Console(file=out, width=600))
    return out.getvalue()


@each_row(
    ("attributes", "line"),
    [
        ({"server.address": "api.example.com"}, "POST /ask (no convention): no convention marks"),
        (
            {"openinference.span.kind": "CHAIN"},
            "step (openinference): a step without a model call or a retrieval: mark the model call",
        ),
        (
            {"gen_ai.operation.name": "embeddings"},
            "indexing; nearest span step (otel_genai): indexing, if no question is asked; else",
        ),
        (
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "ledger",
                "output.value": "Pay in March.",
            },
            "step (openinference): a tool without a model call: otlp.tool_names: [step]",
        ),
        (
            {"openinference.span.kind": "EVALUATOR"},
            "POST /ask (no convention): no convention marks it",
        ),
        (
            {
                "openinference.span.kind": "LLM",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "kb",
            },
            "step (openinference): a model call that asks for tools alone: send the call that",
        ),
    ],
)
def test_a_trace_without_a_request_names_its_nearest_span_and_the_cure(
    attributes: dict[str, object], line: str
) -> None:
    assert line in not_a_request(attributes)


def test_the_cure_of_a_trace_without_a_request_works() -> None:
    tool = {
        "openinference.span.kind": "TOOL",
        "tool.name": "ledger",
        "output.value": "Pay in March.",
    }
    text = not_a_request(tool, OtlpSettings(tool_names=["step"]))
    assert "no request in trace" not in text
    assert "1 requests in" in text
    marked = {"gen_ai.operation.name": "chat"}
    assert "no request in trace" not in not_a_request(marked)


def test_traces_without_a_request_that_are_alike_are_one_line() -> None:
    noise = OTLP / "langwatch-fastapi-http-noise.otlp-protojson.json"
    found = inspect_files([noise], OtlpSettings())
    found.not_requests *= 3
    out = StringIO()
    print_inspection(found, Console(file=out, width=600))
    assert out.getvalue().count("no request in trace") == 1
    assert "(2 more like it)" in out.getvalue()
    assert inspection_to_dict(found)["nearest"][0]["cure"].startswith("no convention marks it")


def test_one_body_over_several_lines(tmp_path: Path) -> None:
    lines = gzip.decompress(LANGCHAIN.read_bytes()).splitlines()
    pretty = tmp_path / "pretty.json"
    pretty.write_text(json.dumps(json.loads(lines[0]), indent=2))
    assert inspect_files([pretty], OtlpSettings()).spans == len(
        json.loads(lines[0])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    )


def test_a_text_from_a_span_cannot_steer_the_terminal(tmp_path: Path) -> None:
    body = gzip.decompress(LANGCHAIN.read_bytes()).replace(
        b"How long do refunds take?", b"\\u001b[2J[red]boo"
    )
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(body)
    text = printed(path)
    assert "\x1b[2J" not in text
    assert "\\x1b[2J[red]boo" in text


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_writes_what_steers_a_terminal_as_escapes(tmp_path: Path, form: str) -> None:
    hidden = "\x7f\x85\x9b31m\u202egnp.exe\u2066\u2028\U000e0041"
    changed = gzip.decompress(LANGCHAIN.read_bytes()).replace(
        b"How long do refunds take?", f"How long? {hidden} äöü 再".encode()
    )
    path = tmp_path / "changed.jsonl"
    path.write_bytes(changed)
    result = CliRunner().invoke(app, ["inspect", str(path), "--format", form])
    assert result.exit_code == 0
    assert "\\u202e" in result.output
    assert "äöü 再" in result.output
    assert not set("\x7f\x85\x9b\u202e\u2066\u2028\U000e0041") & set(result.output)
    document = json.loads(result.output.splitlines()[0] if form == "jsonl" else result.output)
    trace = document if form == "jsonl" else document["requests"][0]["trace"]
    assert hidden in trace["query"]


@pytest.mark.parametrize(("name", "status"), [("openinference-langchain", 0), ("nothing", 1)])
def test_the_command(name: str, status: int) -> None:
    path = OTLP / f"{name}.otlp.jsonl.gz"
    done = CliRunner().invoke(app, ["inspect", str(path), "--format", "json"])
    assert done.exit_code == status, done.output
    if not status:
        first = json.loads(done.stdout)["requests"][0]
        assert first["trace"]["query"] == "How long do refunds take?"
        assert first["from"]["answer"][0]["name"] == "retrieval_chain"


def test_native_traces_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["inspect", *map(str, GENAI), "--format", "jsonl"])
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["missing"] == {"passages": "passages_id_only"}
    assert [passage["id"] for passage in first["passages"]] == [
        "policy-01",
        "policy-02",
        "warranty-01",
    ]
    assert (first["status"], second["status"]) == ("ok", "timeout")


@pytest.mark.parametrize("arguments", [[], ["--live", "x.json"]])
def test_files_or_live(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["inspect", *arguments])
    assert done.exit_code == 2


@pytest.mark.parametrize("content", ["full", "none"])
def test_a_running_agent_shows_what_it_reads(tmp_path: Path, content: str) -> None:
    config = tmp_path / "c.json"
    config.write_text(
        json.dumps(
            {
                "http": {"otlp_port": free_port(), "metrics_port": (page := free_port())},
                "state": {"path": str(tmp_path / "s")},
                "privacy": {"content": content},
                "otlp": {"grace_seconds": 0.1},
            }
        )
    )
    port = json.loads(config.read_text())["http"]["otlp_port"]
    agent = start(tmp_path, "run", "-c", config)
    watch = None
    try:
        wait_ready(f"http://127.0.0.1:{page}")
        command = [*RAGMETER, "inspect", "--live", "-c", str(config), "-f", "jsonl"]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert watch.stderr is not None
        assert watch.stdout is not None
        assert b"watching" in watch.stderr.readline()
        for body in gzip.decompress(LANGCHAIN.read_bytes()).splitlines():
            kind = {"Content-Type": "application/json"}
            url = f"http://127.0.0.1:{port}/v1/traces"
            assert httpx.post(url, content=body, headers=kind).status_code == 200
        found = [json.loads(watch.stdout.readline()) for _ in range(4)]
    finally:
        for process in (watch, agent):
            if process is not None:
                process.kill()
                process.communicate()
    assert {trace["status"] for trace in found} == {"ok", "error", "timeout"}
    queries = {trace.get("query") for trace in found}
    assert ("How long do refunds take?" in queries) == (content == "full")
    assert all(len(trace["passages"]) == 3 for trace in found)


def test_nobody_to_watch_is_said() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, ["inspect", "--live", "--url", url])
    assert done.exit_code == 1
    assert "is `ragmeter run` up?" in done.output


@pytest.mark.parametrize("spans", [[], [("chat", {"gen_ai.operation.name": "chat"})]])
def test_the_spans_behind_a_result_are_looked_for_where_somebody_listens(
    spans: list[tuple[str, dict[str, object]]],
) -> None:
    run = Run()
    root = run.span("POST /ask", attributes={"http.request.method": "POST"})
    for name, attributes in spans:
        run.span(name, root, (0.1, 0.2), attributes)
    asked = extract_requests(run.spans, OtlpSettings())
    unasked = extract_requests(run.spans, OtlpSettings(), inspected=False)
    assert (unasked.traces, unasked.dropped) == (asked.traces, asked.dropped)
    assert bool(spans) == bool(asked.traces)
    assert asked.origins or asked.not_requests
    assert not unasked.origins
    assert not unasked.not_requests

    async def play() -> None:
        watchers = LiveInspection(ContentPolicy())
        assert not watchers.listened
        with watchers.listening() as listener:
            assert watchers.listened
            watchers.publish(unasked)  # read before anybody listened
            watchers.publish(asked)
            await asyncio.sleep(0)
            notified = json.loads(await listener.next())
            assert ("reason" in notified) == (not spans)

    asyncio.run(play())


def test_listeners_are_bounded_and_none_is_waited_for() -> None:
    async def play() -> None:
        watchers = LiveInspection(ContentPolicy())
        found = extract_requests([], OtlpSettings())
        lost = NotRequest("indexing", "t1", FieldOrigin("s1", "embed", "otel_genai"), "embedding")
        found.not_requests = [lost] * (3 * _MAX_QUEUED_LINES)
        with contextlib.ExitStack() as stack:
            listeners = [stack.enter_context(watchers.listening()) for _ in range(MAX_LISTENERS)]
            with pytest.raises(TooManyListeners), watchers.listening():
                pass
            await asyncio.to_thread(watchers.publish, found)
            await asyncio.sleep(0)
            for listener in listeners:
                assert json.loads(await listener.next()) == asdict(lost)
                assert listener.missed == 2 * _MAX_QUEUED_LINES
        with watchers.listening():
            pass

    asyncio.run(play())
