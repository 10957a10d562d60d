"""The commands as a user types them, each in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main
from ragmeter import __version__
from ragmeter.cli.main import SECTIONS, app
from ragmeter.trace import Trace
from typer.testing import CliRunner

from tests.crash import RAGMETER
from tests.ports import free_port
from tests.traces import trace_dict, trace_line
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def ragmeter(
    *arguments: str | Path, cwd: Path = ROOT, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    command = [*RAGMETER, *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        env=environment,
        check=False,
    )


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    lines = [trace_line(n) for n in range(8)]
    path.write_bytes(b"\n".join([*lines[:4], b'{"trace_id": "x"', *lines[4:]]))
    return path


def test_help_is_whole_on_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "80")

    def check(command: Any, path: list[str]) -> int:
        shown = CliRunner().invoke(app, [*path, "--help"]).output
        assert "…" not in shown, shown
        below = getattr(command, "commands", {})
        return 1 + sum(check(one, [*path, name]) for name, one in below.items())

    assert check(typer.main.get_command(app), []) > 30


def test_help_and_version() -> None:
    done = ragmeter("--help")
    assert done.returncode == 0
    order = [
        done.stdout.index(f"│ {name} ".encode()) for names in SECTIONS.values() for name in names
    ]
    assert order == sorted(order)
    assert ragmeter("--version").stdout.decode().strip() == f"ragmeter {__version__}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_complete(shell: str) -> None:
    command = [sys.executable, "-m", "tests.cli.completing", shell]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=True)
    assert b"backtest" in done.stdout
    assert b"baseline" in done.stdout
    assert b"inspect" not in done.stdout


def test_a_command_starts_without_what_it_does_not_need() -> None:
    """What another command needs, it loads itself: `ragmeter --help` waits for none of it."""
    heavy = {"aiohttp", "faust", "httpx", "kafka", "numpy", "onnxruntime", "prometheus_client"}
    heavy |= {"asyncio", "rich", "yaml"}
    loaded = modules_after("import ragmeter.cli.main")
    assert heavy & {name.partition(".")[0] for name in loaded} == set()


def test_an_agent_starts_without_the_other_commands_and_without_tables_for_a_terminal() -> None:
    loaded = modules_after(
        "from ragmeter.cli.main import app\n"
        "import typer.main, ragmeter.app.embedded_agent\n"
        "typer.main.get_command(app).commands['run']\n"
    )
    assert "ragmeter.cli.agent" in loaded
    commands = {name for name in loaded if name.startswith("ragmeter.cli.")}
    assert commands == {"ragmeter.cli.agent", "ragmeter.cli.main", "ragmeter.cli.options"}
    assert "ragmeter.console.terminal" not in loaded


def modules_after(code: str) -> set[str]:
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_mistake_in_the_call_is_2() -> None:
    assert ragmeter("nonsense").returncode == 2
    assert ragmeter("run", "--exit-after-replay").returncode == 2


def test_schema_describes_what_is_read() -> None:
    schema = json.loads(ragmeter("schema").stdout)
    assert schema["$id"] == "ragmeter.trace/1"
    assert schema["required"] == ["trace_id", "service", "timestamp"]
    assert set(trace_dict()) <= set(schema["properties"])
    assert set(schema["properties"]) == set(Trace.model_fields)


def test_score_writes_one_object_a_trace(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    done = ragmeter("score", traces, "-o", out)
    assert done.returncode == 0
    assert b"8 traces scored, 1 items unreadable" in done.stderr
    assert b"item 5: invalid_json" in done.stderr
    scored = [json.loads(line) for line in out.read_text().splitlines()]
    assert [item["trace_id"] for item in scored] == [f"t{n}" for n in range(8)]
    for result in scored[0]["results"]:
        assert {"metric", "scorer", "state"} <= set(result)
        assert ("value" in result) == (result["state"] == "scored")
        assert ("probability" in result) == (result["state"] == "scored")
        if result["state"] == "unscored":
            assert result["reason"]


def test_score_as_csv_has_a_column_a_metric(traces: Path) -> None:
    done = ragmeter("score", traces, "--format", "csv")
    assert done.returncode == 0
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    assert len(rows) == 8
    assert rows[0]["error.builtin"] == "0.0"
    assert 0 < float(rows[0]["grounding.builtin"]) <= 1
    assert rows[0]["cost_usd.builtin"] == ""  # not reported is not 0


def test_scores_are_not_written_uncompressed_under_the_name_of_a_gzip_file(
    traces: Path, tmp_path: Path
) -> None:
    file = tmp_path / "scores.jsonl.gz"
    found = CliRunner().invoke(app, ["score", str(traces), "-o", str(file)])
    assert found.exit_code == 2
    assert "scores are written uncompressed" in found.stderr
    assert not file.exists()


def test_score_reads_stdin() -> None:
    done = ragmeter("score", "-", stdin=trace_line(1))
    assert json.loads(done.stdout)["trace_id"] == "t1"


def test_score_of_nothing_readable_fails(tmp_path: Path) -> None:
    assert ragmeter("score", "-", stdin=b"{oops").returncode == 1
    done = ragmeter("score", tmp_path / "nowhere.jsonl")
    assert done.returncode == 1
    assert b"nowhere.jsonl" in done.stderr
    assert b"Traceback" not in done.stderr


def test_configuration_mistakes_are_2_and_name_the_key(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("http: {metrics_port: nine}")
    for command in (["config", "check"], ["config", "show"], ["run"]):
        done = ragmeter(*command, "--config", path)
        assert done.returncode == 2
        assert b"http.metrics_port: 'nine' is not allowed" in done.stderr
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: X, severity: loud}]")
    done = ragmeter("config", "check", RAGMETER_ALERTS__RULES=str(rules))
    assert done.returncode == 2
    assert b"'X'" in done.stderr


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("judge: {base_url: 'http://x/v1', model: m, api_key: 'hush hush'}", "judge.api_key: the"),
        (
            "kafka: {security: {protocol: SSL, ca_file: /nowhere.pem}}",
            "kafka.security.ca_file: /no",
        ),
        (
            "kafka: {security: {protocol: SASL_SSL, mechanism: OAUTHBEARER,"
            " oauth: {token_file: /nowhere}}}",
            "kafka.security.oauth.token_file: /nowhere",
        ),
        (
            "kafka: {security: {protocol: SASL_SSL, username: u, password_file: /nowhere}}",
            "kafka.security.password_file: /nowhere",
        ),
    ],
)
def test_keys_and_files_that_settings_name_are_checked(
    section: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(section)
    done = ragmeter("config", "check", "--config", path)
    assert done.returncode == 2
    assert why in done.stderr.decode()
    assert b"hush" not in done.stderr


def test_a_replay_of_one_line_without_an_end_fails(tmp_path: Path) -> None:
    (tmp_path / "page.jsonl").write_bytes(b"<html></html>")
    assert replay(tmp_path / "page.jsonl", tmp_path).returncode == 1


def test_config_show_prints_yaml_and_check_says_it_is_sound() -> None:
    assert b"metrics_port: 9464" in ragmeter("config", "show").stdout
    assert ragmeter("config", "check").returncode == 0


def replay(file: Path, folder: Path, *more: str | Path, stdin: bytes = b"") -> Any:
    arguments = ["run", "--replay", file, "--exit-after-replay", *more]
    state = str(folder / "state.sqlite")
    return ragmeter(*arguments, cwd=folder, stdin=stdin, RAGMETER_STATE__PATH=state)


def test_replay_prints_the_windows_and_ends(traces: Path, tmp_path: Path) -> None:
    done = replay(traces, tmp_path)
    assert done.returncode == 0
    out = done.stdout.decode()
    assert "bot: 8 requests in the last 24h" in out
    assert "No incident." in out
    assert re.search(r"works +100 % \(\d+ to 100\)", out)
    assert re.search(r"grounded +not enough yet", out)
    assert re.search(r"cost +not enough yet", out)
    assert b"9 items, 1 of them unreadable (invalid_json: item: " in done.stderr
    (dead,) = (tmp_path / "state.sqlite.dead-letters.jsonl").read_text().splitlines()
    assert json.loads(dead)["reason"] == "invalid_json"


def test_replay_output_is_the_same_whatever_the_clock(traces: Path, tmp_path: Path) -> None:
    first = replay(traces, tmp_path)
    time.sleep(1.1)
    assert replay(traces, tmp_path, "--fresh").stdout == first.stdout


def test_the_same_file_again_counts_nothing_and_says_so(traces: Path, tmp_path: Path) -> None:
    first = replay(traces, tmp_path)
    again = replay(traces, tmp_path)
    assert b"nothing new" in again.stderr
    assert again.stdout == first.stdout


def test_replay_of_stdin(tmp_path: Path) -> None:
    done = replay(Path("-"), tmp_path, stdin=b"\n".join(trace_line(n) for n in range(6)))
    assert "bot: 6 requests" in done.stdout.decode()


def test_a_missing_replay_file_fails_plainly(tmp_path: Path) -> None:
    done = replay(tmp_path / "nowhere.jsonl", tmp_path)
    assert done.returncode == 1
    assert b"nowhere.jsonl" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "other"), [("METRICS", "OTLP"), ("OTLP", "METRICS")])
def test_a_port_in_use_is_named_with_its_setting(name: str, other: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        variable = f"RAGMETER_HTTP__{name}_PORT"
        environment: dict[str, Any] = {variable: port, f"RAGMETER_HTTP__{other}_PORT": "0"}
        done = ragmeter("run", cwd=tmp_path, **environment)
    assert done.returncode == 1
    assert (
        f"cannot listen on 127.0.0.1:{port}: address already in use; for another port set"
        f" http.{name.lower()}_port ({variable})\n"
    ).encode() in done.stderr
    assert b"Traceback" not in done.stderr


def test_run_serves_until_it_is_interrupted(traces: Path, tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAGMETER_HTTP__OTLP_PORT": str(port),
        "RAGMETER_HTTP__METRICS_PORT": str(page),
    }
    process = subprocess.Popen(
        [*RAGMETER, "run", "--replay", str(traces)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    reported = b""
    while b"serving until Ctrl-C" not in reported:
        line = process.stderr.readline()
        assert line, reported
        reported += line
    assert f"http://127.0.0.1:{page}/metrics".encode() in reported
    with httpx.Client(base_url=f"http://127.0.0.1:{page}") as client:
        assert "rag_requests_total" in client.get("/metrics").text
        assert "bot" in client.get("/").text
        assert client.get("/readyz").status_code == 200
        for base in (port, page):
            reply = client.post(
                f"http://127.0.0.1:{base}/v1/rag/traces", content=trace_line(100 + base)
            )
            assert reply.json()["accepted"] == 1
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, rest
    assert b"Traceback" not in rest


def test_the_embedded_model_scores_relevance_of_files(tmp_path: Path) -> None:
    passages = [
        {"id": "a", "text": "The museum in Paris opened in 1902."},
        {"id": "b", "text": "It rained on the sea all week."},
    ]
    rows = [
        {
            "trace_id": f"t{n}",
            "service": "s",
            "timestamp": 1_700_000_000 + n,
            "query": query,
            "passages": passages,
            "answer": "I don't know.",
        }
        for n, query in enumerate(["When did the museum open?", None] * 6)
    ]
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    on: dict[str, Any] = {"RAGMETER_MODELS__CPU_SHARE": "0.2"}  # the tests turn it off
    done = ragmeter("score", file, "--format", "jsonl", cwd=tmp_path, **on)
    results = [json.loads(line)["results"] for line in done.stdout.splitlines()]
    found = [
        one
        for of_trace in results
        for one in of_trace
        if (one["metric"], one["scorer"]) == ("relevance", "mini")
    ]
    assert [one["state"] for one in found] == ["scored", "unscored"] * 6
    assert {one.get("reason") for one in found[1::2]} == {"no_query"}
    graded = found[0]["detail"]["graded"]
    assert graded["a"] > 1.5 > graded["b"]


@pytest.mark.parametrize("arguments", [["--log-format", "xml", "schema"], ["schema", "xml"]])
def test_a_wrong_value_of_an_option_is_named_in_plain_words(arguments: list[str]) -> None:
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2
    assert "'xml' is not one of '" in found.stderr
    assert "Value error" not in found.stderr


@pytest.mark.parametrize(
    ("command", "module"), [("kafka lag", "kafka.errors"), ("worker", "faust")]
)
def test_a_missing_extra_is_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 2
    assert "pip install '.[kafka]' in a clone" in done.output
